"""One door to files: what is read, what is refused, and writes that are whole or not there."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.errors import ConfigError, EnteronError, LabelError
from enteron.files import (
    MAX_DEPTH,
    make_folder,
    make_subfolder,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    write_bytes,
    write_text,
    writing,
)
from enteron.options import parse_toml

# ---- reading


def test_reads_text_and_drops_the_byte_order_mark(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfz\xc3\xbc")
    assert read_text(tmp_path / "a", 10, "x") == "zü"
    assert read_bytes(tmp_path / "a", 6, "x") == b"\xef\xbb\xbfz\xc3\xbc"


def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    """A FIFO without a writer waits for ever when it is opened as files usually are."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for name, said in (
            ("pipe", "pipe cannot be read (it is a pipe, not a regular file); copy it."),
            ("link", "link cannot be read (it is a pipe, not a regular file); copy it."),
            ("folder", "folder cannot be read (it is a folder); copy it."),
            ("socket", "socket cannot be read (it is not a regular file); copy it."),
            ("/dev/zero", "zero cannot be read (it is a device, not a regular file); copy it."),
            ("none", "none cannot be read (No such file or directory); copy it."),
        ):
            with pytest.raises(LabelError) as refused:
                read_bytes(tmp_path / name, 10, "copy it", error=LabelError)
            assert str(refused.value) == said


def test_a_file_above_its_limit_is_not_loaded(tmp_path):
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(EnteronError, match=r"sparse.json has 1,000 GB, more than the 33.6 MB that"):
        read_json(tmp_path / "sparse.json")
    (tmp_path / "a").write_bytes(b"12345678")
    assert read_bytes(tmp_path / "a", 8, "x") == b"12345678"
    with pytest.raises(EnteronError, match="a has 8 bytes, more than the 7 bytes that"):
        read_bytes(tmp_path / "a", 7, "x")


def test_a_file_that_states_no_size_is_limited_too(tmp_path):
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("needs /proc")
    assert path.stat().st_size == 0
    assert read_bytes(path, 10**6, "x").startswith(b"Name:")
    with pytest.raises(EnteronError, match="status has 11 bytes, more than the 10 bytes"):
        read_bytes(path, 10, "x")


def test_what_is_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"M\xfcller")
    with pytest.raises(EnteronError, match=r"a.csv cannot be read \(it is not text in UTF-8\); sa"):
        read_text(tmp_path / "a.csv", 100, "save it")


def test_a_name_with_a_nul_is_no_file_name(tmp_path):
    with pytest.raises(EnteronError, match="is not a file name"):
        read_bytes(tmp_path / "a\0b", 10, "x")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (13, "ask for the right to read the file"),
        (24, "close other programs, or raise the limit with `ulimit -n`"),
        (5, "check the disk or the connection to it, and copy the file again"),
        (2, "look elsewhere"),
    ],
)
def test_the_remedy_for_a_failure_of_the_system(tmp_path, monkeypatch, number, remedy):
    def failing(path, *options):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(EnteronError) as refused:
        read_bytes(tmp_path / "a.json", 10, "look elsewhere")
    assert str(refused.value) == f"a.json cannot be read ({os.strerror(number)}); {remedy}."


# ---- JSON


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f is empty; copy it again from its source."),
        ("[" * 10**6, "f nests too deeply; write it as its format has it, without further levels."),
        ("[" * 65 + "]" * 65, "f nests too deeply; write it as its format"),
        ('{"a":' * 65 + "1" + "}" * 65, "f nests too deeply"),
        ("1" * 5000, "f contains the number 111111111111… of 5000 digits; whole numbers have at"),
        ("9223372036854775808", "f contains the number 922337203685… of 19 digits"),
        ("-9223372036854775809", "f contains the number -92233720368… of 19 digits"),
        ("1e309", "f contains the number 1e309; give a number that a computer can hold"),
        ("-1e99999", "f contains the number -1e99999; give"),
        ("NaN", "f contains NaN; give a number that is finite."),
        ("[1, -Infinity]", "f contains -Infinity; give a number that is finite."),
        (r'"\ud800"', "f contains half of a character; write its text again."),
        (r'{"\udfff": 1}', "f contains half of a character; write its text again."),
        ('{"a": {"b": 1, "b": 1}}', "f: an object has the key 'b' twice; keep one of the two."),
        ('{"a"', "f is not JSON: it ends in the middle, at line 1; it was cut off"),
        ('{"a" 1}', "f is not JSON: expecting ':' delimiter at line 1, column 6; correct the file"),
        ("[1]\n[2]", "f is not JSON: extra data at line 2, column 1; correct the file there."),
    ],
)
def test_json_that_is_refused(text, said):
    with pytest.raises(ConfigError) as refused:
        parse_json(text, "f", error=ConfigError)
    assert str(refused.value).startswith(said)
    with pytest.raises(ConfigError, match=r"; run it again\.$"):
        parse_json(text, "f", "run it again", error=ConfigError)


def test_json_at_the_limits_is_read():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f")
    assert parse_json("[" + "[],{}," * 1000 + "1]", "f")[-1] == 1
    brackets_in_strings = '["' + r"[[{{\"\\" * 1000 + '"]'
    assert parse_json(brackets_in_strings, "f") == ['[[{{"\\' * 1000]
    assert parse_json("[9223372036854775807, -9223372036854775808]", "f") == [2**63 - 1, -(2**63)]
    assert parse_json("[1e308, 1e-400, 0.12345678901234567890123]", "f")[0] == 1e308
    assert parse_json(r'"\ud83d\ude00 \\ud800"', "f") == "😀 \\ud800"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),  # hypothesis makes no surrogates unless asked to
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_valid_json_is_read_as_the_standard_library_reads_it(value, ascii_only):
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only), "f") == value


def test_a_duplicate_among_many_keys_is_found_in_linear_time():
    """60,000 keys took a minute, so that these would take hours: the test would time out."""
    keys = ",".join(f'"{number}":1' for number in range(1_000_000))
    with pytest.raises(EnteronError, match="has the key '999999' twice"):
        parse_json("{" + keys + ',"999999":2}', "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 60_000, "nests too deeply"),
        ("a = " + "[" * 100 + "]" * 100, "nests too deeply"),
        ("a = " + "1" * 5000, "holds a value that cannot be read"),
        ("a = 0x" + "f" * 5000, "holds a whole number of more than 64 bits"),
        ("a = [1, {b = 9223372036854775808}]", "holds a whole number of more than 64 bits"),
        ("a = 2024-13-45", "f.toml is not TOML|cannot be read"),
        ("a = 1\na = 2", "f.toml is not TOML: Cannot overwrite a value"),
        ("a", "f.toml is not TOML"),
    ],
)
def test_toml_that_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_toml(text, "f.toml")


# ---- writing


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("sync", [True, False])
def test_a_link_is_replaced_not_written_through(tmp_path, sync):
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "a.jpg").symlink_to("outside")
    write_bytes(tmp_path / "a.jpg", b"new", sync=sync)
    assert (tmp_path / "outside").read_text() == "kept"
    assert (tmp_path / "a.jpg").read_bytes() == b"new"
    assert not (tmp_path / "a.jpg").is_symlink()


def test_a_folder_inside_an_output_folder_is_no_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pictures").symlink_to("elsewhere")
    with pytest.raises(EnteronError, match="'pictures' is a symbolic link, and nothing is"):
        make_subfolder(tmp_path, "pictures")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        EnteronError, match=r"could not be written completely \(No space left on device"
    ):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(EnteronError, match=r"'a\.txt' cannot be written"):
        write_text(tmp_path / "none" / "a.txt", "x")


def test_a_file_where_a_folder_is_needed(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnteronError, match="'file' is a file; give a folder"):
        make_folder(tmp_path / "file")
    with pytest.raises(EnteronError, match="'b' cannot be created, since 'file' is a file"):
        make_folder(tmp_path / "file" / "a" / "b")
    make_folder(tmp_path / "x" / "y")
    assert (tmp_path / "x" / "y").is_dir()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (28, "free some disk space and run again"),
        (27, "free some disk space and run again"),
        (122, "free some disk space and run again"),
        (30, "give an existing folder that you may write to"),
        (13, "give an existing folder that you may write to"),
        (24, "close other programs, or raise the limit with `ulimit -n`"),
        (36, "give a shorter name"),
    ],
)
def test_writing_names_the_file(tmp_path, number, remedy):
    with pytest.raises(EnteronError) as refused, writing(tmp_path / "film.mp4"):
        raise OSError(number, os.strerror(number))  # as write() fails: without a name
    assert str(refused.value) == f"'film.mp4' cannot be written ({os.strerror(number)}); {remedy}."


def test_a_folder_without_the_right_to_write(tmp_path):
    """Root may write anywhere, so a process without its rights tries."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody without rights")
    (tmp_path / "theirs").mkdir(mode=0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    program = (
        "import os, sys\nfrom pathlib import Path\n"
        "from enteron.errors import EnteronError\nfrom enteron.files import *\n"
        "os.setgid(65534); os.setuid(65534)\n"
        f"root = Path({str(tmp_path)!r})\n"
        "for act in (lambda: write_text(root / 'theirs' / 'a.json', 'x'),\n"
        "            lambda: make_folder(root / 'theirs' / 'b'),\n"
        "            lambda: read_bytes(root / 'secret', 10, 'x')):\n"
        "    try:\n        act()\n        print('nothing refused')\n"
        "    except EnteronError as error:\n        print(error)\n"
    )
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "'a.json' cannot be written (Permission denied); give an existing folder that you may "
        "write to.",
        "'b' cannot be written (Permission denied); give an existing folder that you may write to.",
        "secret cannot be read (Permission denied); ask for the right to read the file.",
    ], done.stderr
