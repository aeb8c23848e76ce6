"""From a study to a reading: whole, interrupted, and with everything that can be wrong."""

import hashlib
import html
import json
import os
import signal
import subprocess
import sys

import cv2
import numpy as np
import polars as pl
import pytest

import enteron
from enteron.calibration import Calibration, FittedFor
from enteron.folders.model import read_record, save_calibration, save_model
from enteron.folders.reading import RuntimeFacts
from enteron.folders.scores import read_scores
from enteron.inference import runtimes
from enteron.inference.store import open_embeddings
from enteron.labels import LABELS
from enteron.locks import folder_lock
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.priors import load_priors, priors_hash
from enteron.reading import Reader, ReadOptions, StudiesNotReadError, read
from enteron.study import open_study
from enteron.study.picture import encode_png
from tests.conftest import ROOT
from tests.inference.stub import StubEncoder
from tests.making import picture, write_frames, write_video
from tests.two_readings import run_rounds

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
    reading = read(folder, model=model, out=tmp_path / "out", options=ReadOptions(views="none"))
    assert reading.run.runtime == RuntimeFacts(name="torch", views="none")
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
    assert (tmp_path / "out" / "studies.csv").exists()
    assert "Open out/index.html in a browser" in said
    assert '"study":["12","3"]' in (tmp_path / "out" / "index.html").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "12", "3", "index.html", "studies.csv", "submission.json",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["video", "folder"])
def test_the_name_of_a_file_reaches_no_file(tmp_path, model, command, kind):
    """`Doe_John_1951.mp4` is read under an id that is derived from its content."""
    if kind == "video":
        write_video(tmp_path / "Doe_John_1951.mp4", 6)
    else:
        write_frames(tmp_path / "Doe_John_1951.mp4", range(6))
    code, said, _ = command("read", "Doe_John_1951.mp4", "--model", model)
    assert code == 0
    (out,) = tmp_path.glob("study-*-reading")
    assert f"Study {out.name.removesuffix('-reading')}: 6 frames" in said
    for path in out.rglob("*"):
        assert "Doe" not in path.name
        assert not path.is_file() or b"Doe_John" not in path.read_bytes()
    code, _, _ = command("read", "Doe_John_1951.mp4", "--model", model, "--keep-names")
    assert code == 0  # asked for, the name is the id
    assert (tmp_path / f"Doe_John_1951{'.mp4' if kind == 'folder' else ''}-reading").is_dir()


def test_one_bad_study_does_not_stop_the_others(tmp_path, model, command):
    """Of three studies one cannot be opened: the others are read, and nothing passes for whole."""
    write_frames(tmp_path / "root" / "3", range(4))
    write_frames(tmp_path / "root" / "12", range(4))
    (tmp_path / "root" / "Doe_John.mp4").write_bytes(b"no video")
    (tmp_path / "root" / "notes.txt").write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "submission.json").write_text("of an earlier run")
    code, said, error = command("read", "root", "--model", model, "--out", "out")
    assert code == 1
    assert "Ignored: 1 file (notes.txt): not frames or videos." in said
    assert "Study 3: 4 frames" in said
    assert "Study 12: 4 frames" in said
    assert "1 of 3 studies was not read:\n  Doe_John.mp4: 'Doe_John.mp4' is a text file" in error
    assert "No submission.json of all studies was written" in error
    assert not (tmp_path / "out" / "submission.json").exists()
    assert (tmp_path / "out" / "12" / "report.html").exists()
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"John" not in path.read_bytes()
    with pytest.raises(StudiesNotReadError, match="1 of 3 studies was not read") as caught:
        enteron.read_all(tmp_path / "root", model=model, out=tmp_path / "out")
    assert [reading.study for reading in caught.value.readings] == ["3", "12"]
    assert list(caught.value.failures) == ["Doe_John.mp4"]
    code, _, error = command("read", "root", "--model", model, "--study-id", "x")
    assert code == 1
    assert "--study-id names one study, and here are 3" in sentence(error)
    (tmp_path / "root" / "Doe_John.mp4").unlink()
    readings = enteron.read_all(tmp_path / "root", model=model, out=tmp_path / "out")
    assert len(readings) == 2
    assert (tmp_path / "out" / "submission.json").exists()


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
    "where",
    [
        "embed",
        *(
            pytest.param(w, marks=pytest.mark.slow)
            for w in ("score", "write_events", "save_pictures", "write_report")
        ),
    ],
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


# ---- stages of different runs


@pytest.fixture
def cheap_encoder(monkeypatch):
    """What these tests look at does not depend on the encoder."""
    monkeypatch.setattr(runtimes, "make_encoder", lambda backbone, runtime, **_: StubEncoder())


def identity_of(folder, name):
    """What a file of a reading says that it belongs to."""
    if name == "scores.parquet":
        return json.loads(pl.read_parquet_metadata(folder / name)["enteron"])
    if name == "report.html":
        text = (folder / name).read_text()
        return json.loads(
            html.unescape(text.split('"enteron-identity" content="')[1].split('"')[0])
        )
    content = json.loads((folder / name).read_text())
    if name == "label-studio.json":
        return content[0]["meta"]["enteron"]
    return content if name == "pictures/index.json" else content["identity"]


def test_every_file_names_what_it_belongs_to(tmp_path, model, reader):
    folder = write_frames(tmp_path / "77", range(3))
    reader.read(folder, tmp_path / "out")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    whole = run["identity"]
    record = json.loads((model / "model.json").read_text())
    embeddings = open_embeddings(tmp_path / "out" / "embeddings.npy")
    assert whole["study"] == "77"
    assert whole["model"] == record["weights_hash"]
    assert whole["calibration"] is None  # the model was never calibrated
    assert whole["content"] == embeddings.record.content
    assert len(whole["content"]) == len(whole["decoding"]) == len(whole["scores"]) == 64
    for name, stage, fields in (
        ("scores.parquet", "scored", ("study", "content", "model")),
        ("events.json", "decoded", tuple(whole)),
        ("label-studio.json", "decoded", tuple(whole)),
        ("pictures/index.json", "illustrated", ("study", "content")),
        ("report.html", "finished", tuple(whole)),
    ):
        stated = identity_of(tmp_path / "out", name)
        assert stated["stage"] == stage
        assert {field: stated[field] for field in fields} == {f: whole[f] for f in fields}
    files = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.*")}
    described = {str(path) for path in files} - {"run.json", "embeddings.npy"}
    described = {name for name in described if not name.endswith((".jpg", ".stamps"))}
    assert set(run["files"]) == described
    for name, stated in run["files"].items():
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == stated


def replace_frames(folder, seed):
    """Other pictures in files of the same names and sizes."""
    for path in folder.iterdir():
        image = np.random.default_rng([seed, frame_of(path)]).integers(
            0, 255, (48, 48, 3), np.uint8
        )
        options = [cv2.IMWRITE_PNG_COMPRESSION, 0]
        path.write_bytes(cv2.imencode(".png", image, options)[1].tobytes())


def frame_of(path):
    return int(path.stem.split("_")[1])


def test_another_patient_s_frames_never_give_the_first_one_s_events(
    tmp_path, model, command, cheap_encoder
):
    folder = write_frames(tmp_path / "77", range(9))
    replace_frames(folder, seed=1)
    assert read_both(command, tmp_path, model)[0] == 0
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    before = contents(tmp_path / "out")
    run = (tmp_path / "out" / "run.json").read_bytes()
    replace_frames(folder, seed=2)
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == sizes
    code, said = read_both(command, tmp_path, model)
    assert code == 1
    assert "other files of the study (frame 0 was another picture then)" in sentence(said)
    # Nothing was touched: the first patient's reading is still whole.
    assert contents(tmp_path / "out") == before
    assert (tmp_path / "out" / "run.json").read_bytes() == run
    assert command("report", "out")[0] == 0
    # As advised, the embeddings are deleted: nothing of the first patient remains.
    pictures = {p.name: p.read_bytes() for p in (tmp_path / "out" / "pictures").glob("*.jpg")}
    (tmp_path / "out" / "embeddings.npy").unlink()
    assert read_both(command, tmp_path, model)[0] == 0
    assert command("read", "77", "--model", model, "--out", "fresh")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    for path in (tmp_path / "out" / "pictures").glob("*.jpg"):
        assert path.read_bytes() == (tmp_path / "fresh" / "pictures" / path.name).read_bytes()
        assert path.read_bytes() != pictures.get(path.name)


def test_a_changed_frame_gets_a_new_picture_after_the_advised_deletion(
    tmp_path, model, command, cheap_encoder
):
    folder = write_frames(tmp_path / "77", range(9))
    # Patterns do not look like the gut: without this option none of them would be shown.
    arguments = ("read", "77", "--model", model, "--out", "out", "--device-text")
    assert command(*arguments)[0] == 0
    index = json.loads((tmp_path / "out" / "pictures" / "index.json").read_text())
    number = index["frames"][0]
    shown = tmp_path / "out" / "pictures" / f"frame_{number:06d}.jpg"
    before = shown.read_bytes()
    replacement = cv2.imencode(".png", picture(40_000))[1].tobytes()
    (folder / f"frame_{number:06d}.PNG").write_bytes(replacement)
    (tmp_path / "out" / "embeddings.npy").unlink()
    assert command(*arguments)[0] == 0
    again = json.loads((tmp_path / "out" / "pictures" / "index.json").read_text())
    assert number in again["frames"]
    assert shown.read_bytes() != before


@pytest.mark.parametrize("where", ["score", "save_pictures"])
def test_a_killed_second_reading_is_not_shown_beside_the_first(tmp_path, model, command, where):
    folder = write_frames(tmp_path / "77", range(2))
    assert read_both(command, tmp_path, model)[0] == 0
    whole = contents(tmp_path / "out")
    other = tmp_path / "other model"
    save_model(other, start_network(ModelOptions(backbone="vit-tiny"), seed=5))
    (tmp_path / "out" / "embeddings.npy").unlink()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, folder, other, tmp_path / "out", where],
        cwd=ROOT, env={**os.environ}, timeout=300, check=False, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    for arguments in (
        ("report", "out"),
        ("export", "out"),
        ("decode", "out/scores.parquet", "--out", "out"),
        ("decode", "out/scores.parquet", "--out", "elsewhere"),
        ("validate", "out"),
    ):
        code, _, said = command(*arguments)
        assert code == 1
        assert "'out' was begun and not finished, after the stage" in said.replace("\n", " ")
        assert "run `enteron read` again to finish it" in said
    assert not (tmp_path / "elsewhere").exists()
    code, _, said = command("read", "77", "--model", other, "--out", "out")
    assert code == 0
    assert command("report", "out")[0] == 0
    assert contents(tmp_path / "out")["scores.parquet"] != whole["scores.parquet"]


def test_a_second_reading_with_other_options_redoes_what_depends_on_them(
    tmp_path, model, command, cheap_encoder
):
    write_frames(tmp_path / "77", range(9))
    for out, presets in (("out", ("transit", "paper")), ("fresh", ("paper",))):
        for preset in presets:
            arguments = ("read", "77", "--model", model, "--out", out, "--preset", preset)
            assert command(*arguments)[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert (
        json.loads((tmp_path / "out" / "run.json").read_text())["identity"]
        == (json.loads((tmp_path / "fresh" / "run.json").read_text())["identity"])
    )


# ---- what `decode` may replace


def test_decode_replaces_events_of_the_same_scores_only(tmp_path, model, command, cheap_encoder):
    write_frames(tmp_path / "77", range(9))
    write_frames(tmp_path / "78", range(20, 29))
    for study in ("77", "78"):
        assert command("read", study, "--model", model, "--out", f"out{study}")[0] == 0
    before = contents(tmp_path / "out78")
    code, _, said = command("decode", "out77/scores.parquet", "--out", "out78")
    assert code == 1
    assert "'out78' holds the reading of study 77" not in said
    assert "'out78' holds the reading of study 78, not of 77; give another folder." in said
    arguments = ("decode", "out77/scores.parquet", "--out", "out78", "--study-id", "78")
    code, _, said = command(*arguments)
    assert code == 1
    assert "events of study 78 that were decoded from other scores; give another folder" in said
    assert contents(tmp_path / "out78") == before
    assert command("report", "out78")[0] == 0
    # The same scores: the events are replaced, and what showed the old ones is removed.
    old = json.loads((tmp_path / "out77" / "run.json").read_text())
    code, _, said = command("decode", "out77/scores.parquet", "--out", "out77", "--preset", "paper")
    assert code == 0
    assert "Removed report.html, which showed the events that were replaced." in said
    run = json.loads((tmp_path / "out77" / "run.json").read_text())
    assert not (tmp_path / "out77" / "report.html").exists()
    assert not (tmp_path / "out77" / "label-studio.json").exists()
    assert (run["preset"], run["state"]) == ("paper", "finished")
    assert run["model"]["backbone"] == "vit-tiny"  # the facts of the reading are kept
    assert run["unreadable"] == old["unreadable"]
    assert run["identity"]["content"] == old["identity"]["content"]
    assert run["identity"]["decoding"] != old["identity"]["decoding"]
    assert command("report", "out77")[0] == 0
    assert command("export", "out77")[0] == 0


def test_scores_are_not_decoded_with_another_model(tmp_path, model, command, cheap_encoder):
    write_frames(tmp_path / "77", range(9))
    assert read_both(command, tmp_path, model)[0] == 0
    other = tmp_path / "other"
    save_model(other, start_network(ModelOptions(backbone="vit-tiny"), seed=5))
    for folder in (other, model):
        record = read_record(folder)
        fitted_for = FittedFor(
            origin="model",
            weights=record.weights_hash,
            settings=record.settings_hash,
            priors=priors_hash(load_priors()),
        )
        save_calibration(Calibration(fitted_for=fitted_for), folder / "calibration.json")
    arguments = ("decode", "out/scores.parquet", "--out", "new", "--model")
    try:
        code, _, said = command(*arguments, other)
        assert code == 1
        assert "'other' is not the model that made scores.parquet" in said
        assert command(*arguments, model)[0] == 0
    finally:
        (model / "calibration.json").unlink()


@pytest.mark.parametrize("kind", ["folder", "video"])
def test_pictures_are_taken_again_from_the_study_that_was_read_only(
    tmp_path, model, command, cheap_encoder, kind
):
    if kind == "folder":
        study = write_frames(tmp_path / "77", range(9)).name
        other = write_frames(tmp_path / "b" / "77", range(9))
        (other / "frame_000004.PNG").write_bytes((other / "frame_000003.PNG").read_bytes())
    else:
        study = write_video(tmp_path / "77.mkv", 9, "ffv1").name
        (tmp_path / "b").mkdir()
        other = write_video(tmp_path / "b" / "77.mkv", 9, "ffv1", size=96)
    assert command("read", study, "--model", model, "--out", "out", "--study-id", "77")[0] == 0
    for embeddings in (True, False):
        if not embeddings:
            (tmp_path / "out" / "embeddings.npy").unlink()
        assert command("report", "out", "--study", study)[0] == 0
        before = (tmp_path / "out" / "report.html").read_bytes()
        code, _, said = command("report", "out", "--study", other)
        assert code == 1
        assert "that were read" in said or "is not the one that was read" in said
        if (tmp_path / "out" / "pictures" / "index.json").exists():
            assert (tmp_path / "out" / "report.html").read_bytes() == before
        assert command("report", "out", "--study", study)[0] == 0
        assert (tmp_path / "out" / "report.html").read_bytes() == before


def test_a_folder_of_an_older_version_is_refused_by_report_and_read_again(
    tmp_path, model, command, cheap_encoder
):
    write_frames(tmp_path / "77", range(9))
    assert read_both(command, tmp_path, model)[0] == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    del run["identity"], run["files"]
    (tmp_path / "out" / "run.json").write_text(json.dumps(run))
    for arguments in (("report", "out"), ("export", "out")):
        code, _, said = command(*arguments)
        assert code == 1
        assert "'out' was made by an older version of enteron" in sentence(said)
    assert read_both(command, tmp_path, model)[0] == 0
    assert command("report", "out")[0] == 0


# ---- links in the folder of a reading


def test_nothing_is_written_through_links_of_the_folder(tmp_path, model, command, cheap_encoder):
    write_frames(tmp_path / "77", range(9))
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    names = (
        "run.json", "scores.parquet", "events.json", "events.csv", "submission.json",
        "report.html", "label-studio.json", "label-studio.xml", "embeddings.npy.stamps",
    )  # fmt: skip
    for name in names:
        (outside / name).write_text("{}")
        (out / name).symlink_to(outside / name)
    (out / "run.json").unlink()
    assert read_both(command, tmp_path, model)[0] == 0
    assert {path.name for path in outside.iterdir()} == set(names)
    assert {path.read_text() for path in outside.iterdir()} == {"{}"}
    assert not any(path.is_symlink() for path in out.rglob("*"))


def test_a_folder_of_a_study_that_is_a_link_is_refused(tmp_path, model, command, cheap_encoder):
    for name in ("3", "12"):
        write_frames(tmp_path / "root" / name, range(4))
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "12").symlink_to(tmp_path / "outside")
    code, _, said = command("read", "root", "--model", model, "--out", "out")
    assert code == 1
    assert "'12' is a symbolic link, and nothing is written through it" in said
    assert list((tmp_path / "outside").iterdir()) == []


# ---- two readings in one folder


def test_a_folder_that_is_being_written_is_refused(tmp_path, model, command, cheap_encoder):
    write_frames(tmp_path / "77", range(4))
    assert read_both(command, tmp_path, model)[0] == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with folder_lock(tmp_path / "out"):
        for arguments in (
            ("read", "77", "--model", model, "--out", "out"),
            ("decode", "out/scores.parquet", "--out", "out"),
            ("report", "out"),
            ("export", "out"),
        ):
            code, _, said = command(*arguments)
            assert code == 1
            assert "is writing to 'out'; wait for it, or give another folder." in said
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert after == before


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(50, marks=(pytest.mark.slow, pytest.mark.timeout(7200)))]
)
def test_two_readings_in_one_folder(rounds):
    """One works, the other says why it does not, and the bytes are those of a single one."""
    results = run_rounds(rounds, seed=3)
    assert [result.problems for result in results] == [[]] * rounds


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
        ("text", "the file is not a PNG, JPEG, TIFF or BMP picture"),
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
    lost = run["missing"]["frames"]
    # A few frames before the cut may have lost a picture they refer to: they have no row either.
    assert 60 - run["rows"] - 5 <= lost <= 60 - run["rows"]
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
    assert "'enteron' cannot be written (No such file or directory)" in sentence(said)
    (tmp_path / "file").write_text("mine")
    code, _, said = command("read", "77", "--model", model, "--out", "file")
    assert code == 1
    assert "'file' is a file; give a folder." in sentence(said)
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
