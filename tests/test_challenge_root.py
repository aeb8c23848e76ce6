"""The challenge's test root from end to end: its CSV files, one submission, the table."""

import csv
import json

import numpy as np
import pytest

import enteron
from enteron.datasets.galar import write_challenge_file
from enteron.decoding import PRESETS
from enteron.errors import StudyError
from enteron.folders.model import save_model
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.study import open_study
from tests.making import write_frames, write_video

NAME = "frame_{:07d}.png"
FIRST, SECOND = "ukdd_navi_00051", "ukdd_navi_00068"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    return folder


def write_study(root, study, frames, asked=None):
    """A folder of frames, and beside it the challenge's CSV of those that it asks for."""
    write_frames(root / study, frames, NAME)
    names = [NAME.format(number) for number in (frames if asked is None else asked)]
    write_challenge_file(root / f"{study}.csv", names)


def test_a_root_becomes_one_submission_and_a_table(tmp_path, model, command):
    write_study(tmp_path / "root", FIRST, range(49, 61))
    write_study(tmp_path / "root", SECOND, range(81, 89))
    code, said, error = command("read", "root", "--model", model, "--out", "out", "--no-tta")
    assert code == 0, error
    assert "Ignored" not in said
    assert "Note: 1" not in said
    together = json.loads((tmp_path / "out" / "submission.json").read_text())
    assert [video["video_id"] for video in together["videos"]] == [FIRST, SECOND]
    assert "holds all 2 studies; the table is in studies.csv beside it" in said
    rows = list(csv.DictReader((tmp_path / "out" / "studies.csv").read_text().splitlines()))
    assert [(row["study"], row["frames"]) for row in rows] == [(FIRST, "12"), (SECOND, "8")]
    for row, video in zip(rows, together["videos"], strict=True):
        assert int(row["events"]) == len(video["events"])
        for label in LABELS:
            carried = sum(label in event["label"] for event in video["events"])
            assert int(row[label]) == carried
        assert float(row["minutes"]) >= 0
        shown = [f"{label}({row[label]})" for label in LABELS if row[label] != "0"]
        assert shown[0] in said
    assert command("validate", "out")[0] == 0


def test_extra_frames_are_left_out_and_missing_ones_named(tmp_path, model, command):
    asked = [*range(49, 61), 70, 71]
    write_study(tmp_path / "root", FIRST, range(46, 61), asked)
    code, said, error = command("read", "root", "--model", model, "--out", "out", "--no-tta")
    assert code == 0, error
    said = " ".join(said.split())
    assert (
        "Ignored: 3 files (frame_0000046.png, frame_0000047.png, frame_0000048.png): frames that "
        "the list of the study does not ask for."
    ) in said
    missing = "2 of the 14 frames that the list of this study asks for are not there: 70, 71"
    assert f"Note: {missing}." in said
    reading = enteron.load(tmp_path / "out")
    assert reading.scores.axis.frames.tolist() == list(range(49, 61))
    assert reading.run.notes == (missing,)
    assert reading.run.ignored == ("3 files: frames that the list of the study does not ask for",)
    assert missing in (tmp_path / "out" / "report.html").read_text()
    #  A second run finds everything done: the frames that are left out are no new files.
    assert command("read", "root", "--model", model, "--out", "out", "--no-tta")[0] == 0


def test_a_single_study_is_read_whole(tmp_path):
    write_study(tmp_path / "root", FIRST, range(46, 61), range(49, 61))
    study = open_study(tmp_path / "root" / FIRST)  # what lies beside a study is not searched
    assert len(study) == 15
    assert not study.notes


def test_a_study_without_most_of_its_frames_is_refused(tmp_path, model, command):
    write_study(tmp_path / "root", FIRST, range(49, 53), range(49, 59))
    write_study(tmp_path / "root", SECOND, range(4))
    code, said, error = command("read", "root", "--model", model, "--out", "out", "--no-tta")
    assert code == 1
    assert (
        f"study {FIRST} lacks 6 of the 10 frames that its list asks for: 53, 54, 55, 56, 57, …; "
        "download its frames again"
    ) in error
    assert f"Study {SECOND}: 4 frames" in said
    assert not (tmp_path / "out" / "submission.json").exists()
    assert not (tmp_path / "out" / "studies.csv").exists()


def test_a_file_of_the_challenge_without_frames_is_refused_before_anything_is_read(
    tmp_path, model, command
):
    write_study(tmp_path / "root", FIRST, range(4))
    write_challenge_file(tmp_path / "root" / f"{SECOND}.csv", [NAME.format(1)])
    code, _, error = command("read", "root", "--model", model, "--out", "out")
    assert code == 1
    assert f"study {SECOND} has a file of the challenge and no frames" in error
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_of_the_challenge_is_told_for_its_study(tmp_path, model, command):
    write_study(tmp_path / "root", FIRST, range(4))
    write_study(tmp_path / "root", SECOND, range(4))
    path = tmp_path / "root" / f"{SECOND}.csv"
    path.write_text(path.read_text().replace(NAME.format(2), NAME.format(1)))
    code, _, error = command("read", "root", "--model", model, "--out", "out", "--no-tta")
    assert code == 1
    assert f"{SECOND}: the test file of study {SECOND} names a frame twice" in error
    assert (tmp_path / "out" / FIRST / "report.html").exists()


def test_a_video_has_no_list_of_frames(tmp_path, model, command):
    (tmp_path / "root").mkdir()
    write_video(tmp_path / "root" / f"{FIRST}.mkv", 6, "ffv1")
    write_challenge_file(tmp_path / "root" / f"{FIRST}.csv", [NAME.format(n) for n in range(3)])
    code, said, error = command("read", "root", "--model", model, "--out", "out", "--no-tta")
    assert code == 0, error
    assert "so it was not used for the video" in " ".join(said.split())
    video = tmp_path / "root" / f"{FIRST}.mkv"
    with pytest.raises(StudyError, match="is a video, of which all frames are read"):
        open_study(video, only=np.array([1]))


# ---- options of the decoder in a file


def test_read_takes_decoder_options_from_a_file(tmp_path, model, command):
    write_frames(tmp_path / "77", range(12))
    (tmp_path / "mine.toml").write_text(
        'calibration = "paper"\ncut = true\norder = "time"\n[gap_merge]\ngap = 15\n'
    )
    read = ("read", "77", "--model", model, "--no-tta", "--out")
    code, _, error = command(*read, "a", "--config", "mine.toml")
    assert code == 0, error
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert run["preset"] is None
    assert run["options"]["gap_merge"]["gap"] == 15
    assert run["command"] == "enteron read 77 --config FILE"
    command("decode", "a/scores.parquet", "--out", "b", "--config", "mine.toml")
    events = [json.loads((tmp_path / f / "events.json").read_text())["events"] for f in "ab"]
    assert events[0] == events[1]
    (tmp_path / "mine.toml").write_text("[findings]\nwindows = 3\n")
    code, _, error = command(*read, "c", "--config", "mine.toml")
    assert code == 1
    assert "mine.toml: [findings] windows is not an option; did you mean 'window'" in error
    assert not (tmp_path / "c").exists()
    code, _, error = command(*read, "c", "--config", "none.toml")
    assert code == 1
    assert "none.toml cannot be read" in error


def test_the_preset_gap_merge_reads_a_study(tmp_path, model):
    folder = write_frames(tmp_path / "77", range(12))
    reading = enteron.read(folder, model=model, out=tmp_path / "out", preset="gap-merge")
    assert reading.run.options == PRESETS["gap-merge"]
    starts = [segment.start for segment in reading.annotation.segments]
    assert starts == sorted(starts)
    assert (tmp_path / "out" / "report.html").exists()
    same = enteron.decode(reading.scores, "gap-merge")
    assert tuple(same) == reading.events


# ---- a study in which no frame can be read


def test_a_study_without_a_readable_frame_is_a_sentence_and_no_reading(tmp_path, model, command):
    write_frames(tmp_path / "root" / "3", range(6))
    (tmp_path / "root" / "77").mkdir(parents=True)
    for number in range(12):
        (tmp_path / "root" / "77" / f"frame_{number:06d}.png").write_bytes(b"no picture")
    code, _, error = command("read", "root/77", "--model", model, "--out", "one")
    assert code == 1
    assert error.startswith("enteron: more than half of study 77 cannot be read: ")
    assert error.rstrip().endswith("copy the study again from its source.")
    assert error.count("\n") == 1
    assert json.loads((tmp_path / "one" / "run.json").read_text())["state"] == "started"
    left = {path.name for path in (tmp_path / "one").iterdir()}
    assert not left & {"scores.parquet", "events.json", "submission.json", "report.html"}
    assert "embeddings.npy" not in left
    for arguments in (("report", "one"), ("validate", "one"), ("export", "one")):
        assert command(*arguments)[0] == 1
    code, said, error = command("read", "root", "--model", model, "--out", "all", "--no-tta")
    assert code == 1
    assert "Study 3: 6 frames, all readable" in said
    assert "1 of 2 studies was not read:\n  77: more than half of study 77" in error
    assert not (tmp_path / "all" / "submission.json").exists()
