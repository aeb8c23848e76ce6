"""From a study to a reading: whole, interrupted, and with everything that can be wrong."""

import json
import os
import signal
import subprocess
import sys

import cv2
import numpy as np
import pytest

import enteron
from enteron.cli import main
from enteron.folders.model import save_model
from enteron.folders.reading import RuntimeFacts
from enteron.folders.scores import read_scores
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.reading import Reader, ReadOptions, read
from enteron.study import open_study
from enteron.study.picture import encode_png
from tests.conftest import ROOT
from tests.making import picture, write_frames, write_video

FILES = (
    "scores.parquet", "events.json", "events.csv", "submission.json", "label-studio.json",
    "embeddings.npy",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    return folder


@pytest.fixture(scope="module")
def reader(model):
    return Reader(model)


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """`enteron …` in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["enteron", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code or 0, said.out, said.err

    return run


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


# ---- the whole way


def test_a_reading_has_all_its_files(tmp_path, reader):
    folder = write_frames(tmp_path / "77", range(10, 42, 2))
    reading = reader.read(folder, tmp_path / "out")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    events = json.loads((tmp_path / "out" / "events.json").read_text())
    assert {*FILES, "report.html", "run.json", "label-studio.xml"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert run["rows"] == 16
    assert run["model"]["backbone"] == "vit-tiny"
    assert run["runtime"]["name"] == "torch"
    assert set(run["timings"]) == {"embed", "score", "decode", "pictures", "report"}
    assert events["study"] == reading.study == "77"
    assert len(events["events"]) == len(reading.events)
    stored = read_scores(tmp_path / "out" / "scores.parquet")
    np.testing.assert_array_equal(stored.values, reading.scores.values)
    assert stored.study == "77"


def test_no_place_of_this_machine_in_any_file(tmp_path, reader):
    folder = write_frames(tmp_path / "Mustermann" / "77", range(6))
    reader.read(folder, tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert b"Mustermann" not in path.read_bytes()
            assert str(tmp_path).encode() not in path.read_bytes()


def test_a_video_and_a_folder_of_its_frames_give_the_same_events(tmp_path, reader):
    video = write_video(tmp_path / "77.mkv", 20, "ffv1")
    folder = tmp_path / "frames" / "77"
    folder.mkdir(parents=True)
    for frame in open_study(video):
        assert frame.image is not None  # for the types; a missing one fails below
        (folder / f"frame_{frame.number:05d}.png").write_bytes(encode_png(frame.image))
    one = reader.read(video, tmp_path / "one")
    other = reader.read(folder, tmp_path / "other")
    assert one.events == other.events
    np.testing.assert_array_equal(one.scores.values, other.scores.values)
    assert (tmp_path / "one/submission.json").read_bytes() == (
        tmp_path / "other/submission.json"
    ).read_bytes()
    assert one.run.rate == pytest.approx(29.97, abs=0.01)
    assert other.run.rate is None


def test_the_python_interface(tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_frames(tmp_path / "77", range(6))
    reading = enteron.read(folder, model=model)
    assert reading.report == reading.folder / "report.html"
    assert (tmp_path / "77-reading" / "report.html").exists()
    assert sum(reading.counts.values()) == len(reading.events)
    truth = {"videos": [{"video_id": "77", "events": [{"start": 0, "end": 5, "label": ["colon"]}]}]}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    figures = enteron.evaluate(tmp_path / "truth.json", reading)
    same = enteron.evaluate("truth.json", tmp_path / "77-reading" / "submission.json")
    assert figures.official[0].studies.tolist() == same.official[0].studies.tolist()


def test_without_the_mirror_image_half_is_encoded(tmp_path, model):
    folder = write_frames(tmp_path / "77", range(6))
    reading = read(folder, model=model, out=tmp_path / "out", options=ReadOptions(tta=False))
    assert reading.run.runtime == RuntimeFacts(name="torch", tta=False)
    assert np.load(tmp_path / "out" / "embeddings.npy").shape == (6, 1, 512)


def test_redundant_frames_are_told(tmp_path, model):
    folder = write_frames(tmp_path / "77", [0])
    for number in range(1, 130):
        content = (folder / "frame_000000.PNG").read_bytes()
        (folder / f"frame_{number:06d}.PNG").write_bytes(content)
    options = ReadOptions(redundancy=1.0)
    redundant = read(folder, model=model, out=tmp_path / "out", options=options).run.redundant
    assert redundant is not None
    assert redundant.count == 130 - 4  # three chunks of 64 begin anew, and row 100 is a probe
    assert redundant.probed == 1
    assert redundant.largest_difference == pytest.approx(0, abs=1e-5)


def test_several_studies_under_a_root(tmp_path, model, command):
    for name in ("3", "12"):
        write_frames(tmp_path / "root" / name, range(4))
    code, said, _ = command("read", "root", "--model", model, "--out", "out")
    assert code == 0
    assert "holds all 2 studies" in said
    together = json.loads((tmp_path / "out" / "submission.json").read_text())
    assert [video["video_id"] for video in together["videos"]] == ["3", "12"]
    assert (tmp_path / "out" / "12" / "report.html").exists()


def test_the_summary_speaks_plainly(tmp_path, model, command):
    write_frames(tmp_path / "77", range(8))
    code, said, _ = command("read", "77", "--model", model)
    assert code == 0
    assert "Study 77: 8 frames, all readable" in said
    assert "never calibrated" in said
    assert "Open 77-reading/report.html in a browser. Not a diagnosis." in said
    assert "Seconds: embed" in said


# ---- interrupted

KILLED = """
import os, signal, sys
from pathlib import Path
from enteron import reading

def dies(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

where = sys.argv[4]
if where == "embed":
    from enteron.inference import store
    add = store.PartialStore.add
    def once(self, *arguments):
        add(self, *arguments)
        dies()
    store.PartialStore.add = once
elif where == "score":
    from enteron.inference import score
    score.score_study = dies
else:
    setattr(reading, where, dies)
reading.read(Path(sys.argv[1]), model=Path(sys.argv[2]), out=Path(sys.argv[3]))
"""


@pytest.mark.parametrize(
    "where", ["embed", "score", "write_events", "save_pictures", "write_report"]
)
def test_killed_in_any_stage_a_rerun_ends_with_the_same_files(tmp_path, model, reader, where):
    folder = write_frames(tmp_path / "77", range(70))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, folder, model, tmp_path / "out", where],
        cwd=ROOT, env={**os.environ}, timeout=300, check=False, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] != "finished" or (
        where == "write_report"
    )
    reader.read(folder, tmp_path / "out")
    reader.read(folder, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "finished"


# ---- what can be wrong with a study: each with one sentence, nothing lost, and a rerun that works


def read_both(command, tmp_path, model):
    """Read the study '77' into 'out'; what was said on standard error."""
    code, _, said = command("read", "77", "--model", model, "--out", "out")
    return code, said


def sentence(said):
    """The one sentence of a failure."""
    assert said.startswith("enteron: ")
    assert said.count("\n") == 1
    assert "; " in said
    return said


@pytest.mark.parametrize("count", [1, 2, 3])
def test_very_short_studies(tmp_path, model, command, count):
    write_frames(tmp_path / "77", range(count))
    assert read_both(command, tmp_path, model)[0] == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["rows"] == count


def test_an_empty_folder(tmp_path, model, command):
    (tmp_path / "77").mkdir()
    code, said = read_both(command, tmp_path, model)
    assert code == 1
    assert "'77' holds neither frames nor videos" in sentence(said)
    write_frames(tmp_path / "77", range(3))
    assert read_both(command, tmp_path, model)[0] == 0


def damage(folder, kind):
    path = folder / "frame_000004.PNG"
    whole = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is not a picture")
    else:  # claims 60,000 x 60,000 pixels
        wide = (60_000).to_bytes(4)
        header = b"IHDR" + wide + wide + whole[24:29]
        import zlib

        path.write_bytes(whole[:12] + header + zlib.crc32(header).to_bytes(4) + whole[33:])
    return whole


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("truncated", "the PNG is cut off"),
        ("empty", "the file is empty"),
        ("text", "the file is neither PNG nor JPEG"),
        ("bomb", "the file claims to hold 60000 x 60000 pixels"),
    ],
)
def test_an_unreadable_frame_is_counted_and_told(tmp_path, model, command, kind, reason):
    folder = write_frames(tmp_path / "77", range(9))
    whole = damage(folder, kind)
    code, said, _ = command("read", "77", "--model", model, "--out", "out")
    assert code == 0
    assert "9 frames, 1 of them unreadable" in said
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["unreadable"] == {"count": 1, "frames": [4], "reasons": {reason: 1}}
    assert reason in (tmp_path / "out" / "report.html").read_text()
    frames = read_scores(tmp_path / "out" / "scores.parquet").axis.frames
    assert frames.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    # Mended, the study is another one: the old embeddings are refused, and kept.
    (folder / "frame_000004.PNG").write_bytes(whole)
    code, said = read_both(command, tmp_path, model)
    assert code == 1
    assert "made with other files of the study" in sentence(said)
    (tmp_path / "out" / "embeddings.npy").unlink()
    assert read_both(command, tmp_path, model)[0] == 0


def test_pictures_of_every_kind(tmp_path, model, command):
    folder = write_frames(tmp_path / "77", range(3))
    write_frames(folder, [3], size=96)
    grey = cv2.cvtColor(picture(4), cv2.COLOR_RGB2GRAY)
    cv2.imwrite(str(folder / "frame_000004.png"), grey)
    cv2.imwrite(str(folder / "frame_000005.png"), cv2.cvtColor(picture(5), cv2.COLOR_RGB2BGRA))
    cv2.imwrite(str(folder / "frame_000006.png"), picture(6).astype(np.uint16) * 257)
    cv2.imwrite(str(folder / "frame_000007.jpg"), picture(7))
    assert read_both(command, tmp_path, model)[0] == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["unreadable"]["count"] == 0


def test_numbers_out_of_order_and_twice(tmp_path, model, command):
    folder = tmp_path / "77"
    folder.mkdir()
    for number in (9, 100, 10, 2):
        write_frames(folder, [number], name="f{}.png")
    assert read_both(command, tmp_path, model)[0] == 0
    frames = read_scores(tmp_path / "out" / "scores.parquet").axis.frames
    assert frames.tolist() == [2, 9, 10, 100]
    write_frames(folder, [9], name="f{:04d}.png")
    code, said = read_both(command, tmp_path, model)
    assert code == 1
    assert "are both frame 9; keep one of them" in sentence(said)
    (folder / "f0009.png").unlink()
    assert read_both(command, tmp_path, model)[0] == 0


def test_a_video_cut_off_in_the_middle(tmp_path, model, command):
    video = write_video(tmp_path / "77.mkv", 60)
    video.write_bytes(video.read_bytes()[: video.stat().st_size * 2 // 3])
    code, said, _ = command("read", "77.mkv", "--model", model, "--out", "out")
    assert code == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert 20 < run["rows"] < 60
    lost = 60 - run["rows"]
    assert run["missing"]["frames"] == lost
    sentence_of_loss = f"{lost} of 60 frames are missing at its end"
    assert f"Incomplete: the recording is cut off: {sentence_of_loss}" in " ".join(said.split())
    assert sentence_of_loss in (tmp_path / "out" / "report.html").read_text()
    broken = tmp_path / "78.mp4"
    broken.write_bytes(write_video(tmp_path / "x.mp4", 60).read_bytes()[:2000])
    code, _, said = command("read", "78.mp4", "--model", model, "--out", "other")
    assert code == 1
    assert "cannot be opened" in sentence(said)


def test_notes_of_a_study_reach_terminal_record_and_page(tmp_path, model, command):
    video = write_video(tmp_path / "77.avi", 20, "mjpeg")
    data = video.read_bytes()
    header = data[:2000].replace((20).to_bytes(4, "little"), (500).to_bytes(4, "little"))
    video.write_bytes(header + data[2000:])
    code, said, _ = command("read", "77.avi", "--model", model, "--out", "out")
    assert code == 0
    note = "the header states 500 frames, the file holds 20"
    assert f"Note: {note}." in " ".join(said.split())
    assert note in json.loads((tmp_path / "out" / "run.json").read_text())["notes"]
    assert note[1:] in (tmp_path / "out" / "report.html").read_text()


def test_a_disk_that_fails_ends_in_a_sentence(tmp_path, model, command):
    (tmp_path / "77.mkv").symlink_to("/proc/self/mem")  # whose first page cannot be read
    code, _, said = command("read", "77.mkv", "--model", model, "--out", "out")
    assert code == 1
    assert "cannot be read from its disk (input/output error); check the disk" in sentence(said)


def test_an_output_folder_that_cannot_be_written(tmp_path, model, command):
    write_frames(tmp_path / "77", range(3))
    code, _, said = command("read", "77", "--model", model, "--out", "/proc/enteron")
    assert code == 1
    assert "cannot create folder 'enteron'" in sentence(said)
    (tmp_path / "file").write_text("mine")
    code, _, said = command("read", "77", "--model", model, "--out", "file")
    assert code == 1
    assert "'file' is a file; give a folder for the reading." in sentence(said)
    assert (tmp_path / "file").read_text() == "mine"
    assert read_both(command, tmp_path, model)[0] == 0


def test_the_output_folder_of_another_study(tmp_path, model, command):
    write_frames(tmp_path / "77", range(3))
    write_frames(tmp_path / "78", range(4))
    assert read_both(command, tmp_path, model)[0] == 0
    before = contents(tmp_path / "out")
    code, _, said = command("read", "78", "--model", model, "--out", "out")
    assert code == 1
    assert "'out' holds the reading of study 77, not of 78; give another folder." in sentence(said)
    assert contents(tmp_path / "out") == before


def test_a_model_of_another_label_set(tmp_path, model, command):
    write_frames(tmp_path / "77", range(3))
    other = tmp_path / "other"
    other.mkdir()
    for path in model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    record = json.loads((other / "model.json").read_text())
    record["labels"][0] = "teeth"
    (other / "model.json").write_text(json.dumps(record))
    code, _, said = command("read", "77", "--model", other, "--out", "out")
    assert code == 1
    assert "'teeth' where enteron has 'mouth'" in sentence(said)
    assert read_both(command, tmp_path, model)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "--model", "MODEL"), "there is no 'nowhere'"),
        (("77", "--model", "nowhere"), "'nowhere' has no 'model.json'"),
        (("77", "--model", "MODEL", "--runtime", "onyx"), "there is no runtime 'onyx'"),
        (("77", "--model", "MODEL", "--preset", "clinical"), "were never fitted"),
        (("77", "--model", "MODEL", "--truth", "truth.json"), "has no annotation of study 77"),
        (("notes.txt", "--model", "MODEL"), "is neither a folder of frames nor a video"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, model, command, arguments, said):
    write_frames(tmp_path / "77", range(3))
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "truth.json").write_text('{"videos": [{"video_id": "1", "events": []}]}')
    given = [model if argument == "MODEL" else argument for argument in arguments]
    code, _, error = command("read", *given)
    assert code == 1
    assert said in sentence(error)
    assert len(LABELS) == 17
