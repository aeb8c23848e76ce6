"""How commands end when something goes wrong that nobody foresaw."""

import os
import resource
import subprocess
import sys

import pytest

from enteron.cli import main
from enteron.labels import LABELS


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run `enteron decode` in this process with a decoder that raises `error`."""

    def run(error, *, out="out"):
        import enteron.decoding

        def failing(*_):
            patient = "Doe_John"  # in a frame's variables, as the study's id is
            raise error from KeyError(patient)

        (tmp_path / "s.csv").write_text("frame," + ",".join(LABELS) + "\n0" + ",0.5" * 17 + "\n")
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "tmp").mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        monkeypatch.setattr(enteron.decoding, "decode", failing)
        monkeypatch.setattr(sys, "argv", ["enteron", "decode", "s.csv", "--out", out])
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        said = capsys.readouterr().err
        return said.removeprefix(said.partition("enteron: ")[0])

    return run


class PanicError(BaseException):
    """As polars raises them: no Exception."""


@pytest.mark.parametrize(
    "error", [ValueError("Doe_John"), RecursionError("Doe_John"), PanicError("Doe_John")]
)
def test_an_unforeseen_error_is_a_sentence_and_a_file(run, tmp_path, error):
    said = run(error)
    (details,) = (tmp_path / "out").iterdir()
    assert said == (
        f"enteron: `enteron decode` failed while starting ({type(error).__name__}), an error in "
        f"enteron; please report it; details are in '{details.name}' in the output folder 'out'.\n"
    )
    text = details.read_text()
    assert "command: enteron decode --out" in text
    assert "enteron/cli/decode.py" in text
    assert f"{type(error).__qualname__}, raised at:" in text
    assert "builtins.KeyError, raised at:" in text
    assert "enteron 0." in text
    for secret in ("Doe", "John", str(tmp_path), "s.csv"):
        assert secret not in text


def test_the_stage_is_the_innermost_part_of_enteron(run, monkeypatch):
    from enteron.folders import scores

    def failing(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(scores, "read_csv_table", failing)
    said = run(ValueError())
    assert "failed while reading or writing the files of a folder (ZeroDivisionError)" in said


def test_memory(run):
    said = run(MemoryError())
    assert said.startswith(
        "enteron: the memory was not enough for `enteron decode` while starting;"
    )


def test_details_go_to_the_temporary_folder_where_there_is_no_other(run, tmp_path):
    said = run(ValueError(), out="none")
    (details,) = (tmp_path / "tmp").iterdir()
    assert f"details are in '{details}'." in said
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(28, "No space left on device"),
            "a file in the output folder 'out' cannot be used (No space left on device); free some "
            "disk space and run again.",
        ),
        (
            PermissionError(13, "Permission denied", "/data/Doe_John/frames/a.png"),
            "'a.png' cannot be used (Permission denied); ask for the right to use it, or give "
            "another folder.",
        ),
        (
            OSError(24, "Too many open files", b"/data/Doe_John/b.png"),
            "'b.png' cannot be used (Too many open files); close other programs, or raise the "
            "limit with `ulimit -n`.",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "/data/x/c.png"),
            "'c.png' cannot be used (No such file or directory); it is not there, or no longer; "
            "check it and run again.",
        ),
        (OSError(5, "Input/output error", "/d"), "'d' cannot be used (Input/output error); check"),
    ],
)
def test_failures_of_the_system_name_the_file(run, tmp_path, error, said):
    assert run(error).startswith(f"enteron: {said}")
    assert not list((tmp_path / "out").iterdir())


# ---- in processes of their own

COMMAND = [sys.executable, "-m", "enteron"]


def test_a_full_disk_behind_the_output():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "enteron: the output cannot be written (No space left on device); free some disk space, or "
        "send it elsewhere.\n"
    )


def test_a_closed_pipe_is_quiet():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, "--help"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.stderr == b""


def test_a_full_disk_while_events_are_written(tmp_path):
    """The size limit of files stands for a full disk: it fails in the same place of write()."""
    rows = "\n".join(f"{frame}" + ",0.9" * 17 for frame in range(3000))
    (tmp_path / "s.csv").write_text("frame," + ",".join(LABELS) + "\n" + rows + "\n")

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = subprocess.run(
        [*COMMAND, "decode", "s.csv", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=limited,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "enteron: 'events.json' could not be written completely (File too large); free" in (
        done.stderr
    )
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_a_terminal_that_does_not_know_every_letter(tmp_path):
    (tmp_path / "ü.csv").write_text("frame," + ",".join(LABELS) + "\n0" + ",0.5" * 17 + "\n")
    done = subprocess.run(
        [*COMMAND, "decode", "ü.csv", "--out", "out", "--study-id", "ü"],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert b"Study \\xfc" in done.stdout
