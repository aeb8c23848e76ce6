"""Study ids: one function decides, wherever an id comes from."""

import io
import json
import os

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.cli.console import plain
from enteron.datasets.galar import find_studies
from enteron.errors import EnteronError
from enteron.ids import id_problem, is_dataset_id, natural_key, require_study_id
from enteron.labels import LABELS
from tests.making import label_rows, write_frames, write_labels

BAD = [
    "", ".", "..", "a/b", "a\\b", "x\x1b[31m", "x\ny", "\ud800", "M\udcfcller", "[red]", "x[/b]",
    "<b>", "-x", ".x", "x.", "x ", " x", "a\u202eb", "a\u200bb", "con", "LPT1.mp4", "12²",
    "x" * 101, "é" * 101, "a:b", "a|b", "a*b", "a?b", 'a"b', "x\x00y", "\ufeffx", "{{7}}", "`x`",
    "a$b",
]  # fmt: skip
GOOD = ["1", "ukdd_navi_00051", "study-3fa9c2d1", "Müller 3 (b)", "日本", "a.b", "_x", "x" * 100]


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_what_is_no_id(text):
    with pytest.raises(EnteronError, match="the study's id"):
        require_study_id(text)


@pytest.mark.parametrize("text", GOOD)
def test_what_is_an_id(text):
    assert require_study_id(text) == text


@settings(max_examples=300, derandomize=True)
@given(st.text())
def test_an_id_is_one_harmless_file_name(text):
    if id_problem(text) is None:
        assert text.isprintable()
        assert os.path.basename(text) == text  # noqa: PTH119
        assert not set(text) & set("/\\[]<>&\"'`$:*?|\x00")
        text.encode()


def test_numbers_that_may_be_dates_or_patients_are_no_dataset_ids():
    for name in ("1", "80", "0042", "ukdd_navi_00051", "131368cc17e44240", "0728084c"):
        assert is_dataset_id(name)
    for name in ("19510312", "12345", "Doe_John", "recording_x", "study", "abcdefab", "1²"):
        assert not is_dataset_id(name)


def test_natural_order_knows_only_ascii_digits():
    assert sorted(["10", "9", "12²", "\u0661", "a3", "a12"], key=natural_key) == [
        "9", "10", "12²", "a3", "a12", "\u0661",
    ]  # fmt: skip


def test_terminals_get_nothing_to_obey():
    assert plain("a\x1b[31m\nb\udcfc\u202e\ud800é日") == "a\\x1b[31m\\x0ab\\xfc\\u202e\\ud800é日"


# ---- through the command line: one sentence, no traceback, no raw escape


def scores_csv(path, study=None):
    table = pl.DataFrame({"frame": np.arange(9), **{label: np.full(9, 0.2) for label in LABELS}})
    if study is None:
        table.write_csv(path)
    else:
        content = io.BytesIO()
        table.write_parquet(content, metadata={"enteron": json.dumps({"study": study})})
        path.write_bytes(content.getvalue())
    return path


def refused(result, *parts):
    code, _, said = result
    assert code == 1
    assert said.startswith("enteron: ")
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("study", "shown"),
    [("x[/b]", "x[/b]"), ("12²", "12²"), ("..", "begins with '.'"), ("\x1b[31m", "\\x1b[31m"),
     ("M\udcfcller", "M\\xfcller"), ("a/b", "contains '/'"), ("", "is empty")],
    ids=ascii,
)  # fmt: skip
def test_ids_given_as_an_option(tmp_path, command, study, shown):
    scores_csv(tmp_path / "scores.csv")
    result = command("decode", "scores.csv", "--out", "out", "--study-id", study)
    refused(result, "the study's id", shown)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "study", ["\ud800", "x[/b]", "12²", "../up", "\x1b[2J", "x" * 500], ids=ascii
)
def test_ids_in_submissions(tmp_path, command, study):
    content = {"videos": [{"video_id": study, "events": []}]}
    (tmp_path / "s.json").write_text(json.dumps(content))
    # Half of a character is no text: the file is refused before its ids are looked at.
    said = "s.json contains half of" if study == "\ud800" else "s.json: video 1: 'video_id'"
    refused(command("validate", "s.json"), said)
    refused(command("evaluate", "s.json", "s.json"), said)


def test_ids_in_score_files(tmp_path, command):
    scores_csv(tmp_path / "scores.parquet", study="../../up")
    refused(command("decode", "scores.parquet", "--out", "out"), "scores.parquet: the study's id")


@pytest.mark.parametrize("name", ["recording_..", "recording_", "x[bold]", "12²", "-x"])
def test_ids_from_folders_of_a_data_root(tmp_path, command, name):
    write_frames(tmp_path / "root" / name, range(2))
    refused(command("check", "root"), "in 'root', the study's name")


def test_ids_from_label_files_and_metadata(tmp_path, command):
    write_labels(tmp_path / "Labels" / "x[red].csv", label_rows((3, ["colon"])))
    refused(command("check", "."), "in 'Labels', the study's name 'x[red]' contains '['")
    (tmp_path / "Labels" / "x[red].csv").unlink()
    write_frames(tmp_path / "1", range(2))
    (tmp_path / "metadata.csv").write_text("File Name,Capsule System\n1[/b],x\n")
    refused(command("check", "."), "metadata.csv, line 2: the study's name '1[/b]' contains '['")


def test_names_that_are_not_utf8(tmp_path, command):
    folder = os.fsencode(tmp_path) + b"/M\xfcller"
    os.mkdir(folder)  # noqa: PTH102
    write_frames(tmp_path / "1", range(2))
    with open(folder + b"/f1.png", "wb") as file:  # noqa: PTH123
        file.write((tmp_path / "1" / "frame_000000.PNG").read_bytes())
    refused(command("check", "."), "M\\xfcller' contains a byte that is not UTF-8")
    with pytest.raises(EnteronError, match="not UTF-8"):
        find_studies(tmp_path)
