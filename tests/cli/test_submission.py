"""`enteron submission merge` as a person meets it."""

import csv
import json

import pytest

from tests.folders.making import official, write_json, write_plain_reading

EVENTS = [(0, 10, "stomach"), (10, 20, "colon"), (12, 14, "blood"), (15, 16, "blood")]


def test_files_and_readings_become_one_file(tmp_path, command):
    write_json(tmp_path / "a.json", official(("7", EVENTS)))
    write_plain_reading(tmp_path / "b", "12", EVENTS[:1])
    write_plain_reading(tmp_path / "root" / "x", "3", [])
    arguments = ("submission", "merge", "a.json", "b", "root", "--out", "all.json")
    code, said, error = command(*arguments, "--table", "t.csv")
    assert code == 0, error
    merged = json.loads((tmp_path / "all.json").read_text())
    assert merged == official(("7", EVENTS), ("12", EVENTS[:1]), ("3", []))
    assert "stomach(1), colon(1), blood(2)" in said
    assert "all.json holds 3 studies and 5 events." in said
    lines = (tmp_path / "t.csv").read_text().splitlines()
    rows = {row["study"]: row for row in csv.DictReader(lines)}
    assert (rows["7"]["events"], rows["7"]["blood"], rows["7"]["frames"]) == ("4", "2", "")
    assert command("validate", "all.json")[0] == 0


def test_the_same_study_twice_is_refused_unless_both_say_the_same(tmp_path, command):
    write_json(tmp_path / "a.json", official(("7", EVENTS), ("8", EVENTS)))
    write_json(tmp_path / "b.json", official(("9", []), ("7", EVENTS)))
    write_json(tmp_path / "c.json", official(("7", EVENTS[::-1])))  # another ranking
    merge = ("submission", "merge", "a.json")
    assert command(*merge, "b.json", "--out", "all.json")[0] == 0
    merged = json.loads((tmp_path / "all.json").read_text())
    assert [video["video_id"] for video in merged["videos"]] == ["7", "8", "9"]
    code, _, error = command(*merge, "c.json", "--out", "none.json")
    assert code == 1
    assert error == (
        "enteron: 'a.json' and 'c.json' have different events of study 7; give one of them: which "
        "is meant cannot be told.\n"
    )
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("second", "more", "said"),
    [
        ("missing.json", (), "missing.json cannot be read"),
        ("bad.json", (), "study 8, event 1: 'label' names \"Blod\"; did you mean 'blood'"),
        ("unfinished", (), "the reading 'unfinished' has no submission.json; it is not finished"),
        ("a.json", ("--truth", "truth.json"), "the prediction lacks 1 of the truth's 2 studies"),
        ("a.json", ("--out", "folder"), "'folder' is a folder; name the file to write with --out"),
        ("a.json", ("--table", "nowhere/t.csv"), "cannot be written"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path, command, second, more, said):
    write_json(tmp_path / "a.json", official(("7", EVENTS)))
    write_json(tmp_path / "bad.json", official(("8", [(0, 3, "Blod")])))
    write_json(tmp_path / "truth.json", official(("7", EVENTS), ("8", EVENTS)))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    out = () if "--out" in more else ("--out", "all.json")
    code, _, error = command("submission", "merge", "a.json", second, *out, *more)
    assert code == 1
    assert said in error


def test_help_has_an_example(command):
    for arguments in (("submission", "merge"), ("combine",), ("read",)):
        code, said, _ = command(*arguments, "--help")
        assert code == 0
        assert "Example:" in said
