"""`enteron read --coarse`, `--minutes` and `--profile`, from the study to the page."""

import json
import shutil

import numpy as np
import pytest

from enteron.errors import ConfigError, ModelError, StudyError
from enteron.fitting.coarse import fit_readings
from enteron.fitting.glance import GlanceFit
from enteron.folders.model import COARSE, GLANCE, load_coarse, read_record, save_model
from enteron.folders.reading import load_reading
from enteron.folders.shown import representative_frames
from enteron.inference import budget
from enteron.inference.budget import Setting
from enteron.inference.coarse_to_fine import CoarseOptions
from enteron.inference.glance import Glance, glance_content
from enteron.inference.store import open_embeddings
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.progress import SilentProgress
from enteron.reading import Reader, ReadOptions
from tests.making import write_frames

COUNT = 90
QUICK = GlanceFit(steps=10, batch=16)
SAME = ("scores.parquet", "events.json", "events.csv", "submission.json", "suspicious.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with an estimate, fitted on a reading of another study."""
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    other = write_frames(folder.parent / "other", range(200, 200 + COUNT))
    Reader(folder, ReadOptions(views="none")).read(other, folder.parent / "other-reading")
    fit_readings(folder, [folder.parent / "other-reading"], [folder.parent], QUICK)
    return folder


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_frames(tmp_path_factory.mktemp("studies") / "study", range(COUNT))


@pytest.fixture(scope="module")
def plain(model, study):
    # Embeddings of torch depend on their batch, in the last bit; those of onnx do not.
    options = ReadOptions(views="none", runtime="onnx")
    return Reader(model, options).read(study, model.parent / "plain")


def coarse(limit: float, **options) -> ReadOptions:
    return ReadOptions(views="none", coarse=CoarseOptions(limit=limit), **options)


def test_a_limit_of_nothing_writes_the_files_of_a_plain_reading(model, study, plain, tmp_path):
    reading = Reader(model, coarse(0.0, runtime="onnx")).read(study, tmp_path / "r")
    for name in SAME:
        assert (tmp_path / "r" / name).read_bytes() == (plain.folder / name).read_bytes(), name
    facts = reading.run.coarse
    assert facts is not None
    assert (facts.encoded, facts.skipped, facts.missed) == (COUNT, 0, 0.0)
    assert plain.run.coarse is None


def test_what_was_not_looked_at_is_told_everywhere(model, study, tmp_path):
    reading = Reader(model, coarse(1.0)).read(study, tmp_path / "r")
    store = open_embeddings(tmp_path / "r" / "embeddings.npy")
    facts = load_reading(tmp_path / "r").run.coarse
    assert facts is not None
    assert facts.encoded == int(store.encoded.sum()) < COUNT
    assert facts.encoded + facts.skipped == COUNT
    runs = "".join("x" if own else "." for own in store.encoded.tolist()).split("x")
    assert facts.longest == max(map(len, runs))
    assert facts.studies == 1
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Not every frame was looked at." in page
    assert f"{facts.skipped:,} of {COUNT}" in page
    assert len(reading.scores.axis) == COUNT
    np.testing.assert_array_equal(reading.scores.axis.frames, np.arange(COUNT))
    # Pictures are of frames that the model saw, here and in every later step.
    seen = set(np.flatnonzero(store.encoded).tolist())
    again = load_reading(tmp_path / "r")
    assert again.scores.encoded is not None
    np.testing.assert_array_equal(again.scores.encoded, store.encoded)
    listed = json.loads((tmp_path / "r" / "suspicious.json").read_text())["frames"]
    assert listed
    assert {frame["frame"] for frame in listed} <= seen
    assert set(representative_frames(again.events, again.scores)) <= seen


def test_contradictions_and_missing_estimates_are_refused(model, study, tmp_path):
    with pytest.raises(ConfigError, match="looks at every frame"):
        Reader(model, coarse(0.1, runtime="exact"))
    with pytest.raises(ConfigError, match="already leaves out"):
        Reader(model, coarse(0.1, redundancy=2.0))
    bare = tmp_path / "bare"
    save_model(bare, start_network(ModelOptions(backbone="vit-tiny")))
    with pytest.raises(ModelError, match="nobody has estimated"):
        Reader(bare, coarse(0.1))
    table = json.loads((model / COARSE).read_text()) | {"weights": "0" * 64}
    (bare / COARSE).write_text(json.dumps(table))
    with pytest.raises(ModelError, match="other weights"):
        load_coarse(bare, read_record(bare))
    (bare / COARSE).write_text('{"weights": 3}')
    with pytest.raises(ModelError, match=r"coarse\.json"):
        load_coarse(bare, read_record(bare))


def test_readings_that_left_frames_out_teach_nothing(model, study, tmp_path):
    Reader(model, coarse(1.0)).read(study, tmp_path / "r")
    before = (model / COARSE).read_bytes()
    with pytest.raises(Exception, match="left out frames itself"):
        fit_readings(model, [tmp_path / "r"], [study], QUICK)
    assert (model / COARSE).read_bytes() == before


def test_pictures_of_another_study_are_refused(model, study, tmp_path, command):
    reading = model.parent / "other-reading"
    before = (model / COARSE).read_bytes()
    with pytest.raises(StudyError, match="no study given has the pictures of study"):
        fit_readings(model, [reading], [study], QUICK)
    code, _, err = command("calibrate", str(model), "--readings", str(reading))
    assert code == 1
    assert "give both --readings and --studies" in err
    assert (model / COARSE).read_bytes() == before


def test_a_glance_of_another_fit_is_refused(model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    record = read_record(copy)
    load_coarse(copy, record)
    tensors = dict(load_coarse(copy, record).glance.tensors)
    other = Glance(tensors | {"output.bias": tensors["output.bias"] + 1})
    (copy / GLANCE).write_bytes(glance_content(other))
    with pytest.raises(ModelError, match="fitted with another"):
        load_coarse(copy, record)
    (copy / GLANCE).unlink()
    with pytest.raises(ModelError, match=r"no 'glance\.safetensors'"):
        load_coarse(copy, record)


def test_fitting_again_gives_the_same_bytes(model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    fit_readings(copy, [model.parent / "other-reading"], [model.parent / "other"], QUICK)
    for name in (COARSE, GLANCE):
        assert (copy / name).read_bytes() == (model / name).read_bytes(), name


def settings(share: float) -> tuple[Setting, ...]:
    return (
        Setting("flip", None, 1.0, None, None),
        Setting("none", CoarseOptions(limit=0.9), share, 0.99, 0.95),
    )


def test_a_plan_is_told_kept_and_resumed(model, study, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "SETTINGS", settings(0.3))
    monkeypatch.setattr(budget, "ONCE", 0.0)
    told: list[str] = []

    class Listening(SilentProgress):
        def message(self, text: str) -> None:
            told.append(text)

    full = Reader(model, minutes=1000).read(study, tmp_path / "full", progress=Listening())
    assert full.run.plan is not None
    assert full.run.plan.stride == 1
    assert full.run.coarse is None
    assert "every frame is encoded" in told[0]
    # A time in which only the coarse setting fits.
    monkeypatch.setattr(
        budget, "expected_seconds", lambda setting, *_: 10.0 if setting.coarse else 1e6
    )
    reading = Reader(model, minutes=5).read(study, tmp_path / "r", progress=Listening())
    assert reading.run.plan is not None
    assert reading.run.plan.stride == CoarseOptions().stride
    assert reading.run.plan.kept == 0.99
    assert reading.run.coarse is not None
    assert "99.0% of the lesions" in told[-1]
    # The machine is faster now: the plan that was begun is kept.
    monkeypatch.setattr(budget, "expected_seconds", lambda *_: 1.0)
    (tmp_path / "r" / "report.html").unlink()
    again = Reader(model, minutes=5).read(study, tmp_path / "r", progress=Listening())
    assert again.run.plan == reading.run.plan
    assert "resumed" in told[-1]


def test_a_time_that_is_too_short_is_refused_before_anything_is_written(model, study, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read within"):
        Reader(model, minutes=0.01).read(study, tmp_path / "r")
    assert not (tmp_path / "r" / "run.json").exists()


def test_the_profile_is_in_run_json_and_on_the_terminal(model, study, tmp_path, command):
    code, out, _ = command(
        "read", str(study), "--model", str(model), "--out", str(tmp_path / "r"),
        "--no-tta", "--profile",
    )  # fmt: skip
    assert code == 0
    for word in ("decode", "resize", "encode", "head", "decode events", "page", "GEMM peak"):
        assert word in out
    headings = next(
        line for line in out.splitlines() if "seconds" in line and "of the time" in line
    )
    assert headings.index("part") < headings.index("seconds")  # every column below its own
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    profile = run["profile"]
    assert profile["images"] == COUNT
    assert {"read", "decode", "resize", "encode", "head", "page"} <= set(profile["parts"])
    beside = {"read", "decode", "resize"}
    assert sum(s for part, s in profile["parts"].items() if part not in beside) <= (
        profile["seconds"] * 1.01
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minutes", "10", "--views", "flip"], "--minutes chooses itself what --views"),
        (["--minutes", "10", "--coarse"], "--minutes chooses itself what --coarse"),
        (["--coarse", "--skip-redundant"], "already leaves out"),
        (["--coarse", "--runtime", "exact"], "looks at every frame"),
    ],
)
def test_contradictory_commands_end_in_a_sentence(
    model, study, tmp_path, command, arguments, words
):
    code, _, err = command(
        "read", str(study), "--model", str(model), "--out", str(tmp_path / "r"), *arguments
    )
    assert code == 1
    assert words in err
    assert not (tmp_path / "r").exists()


def test_without_context_the_model_in_the_box_reads_every_frame(study, tmp_path, command):
    asked = ("read", str(study), "--no-context", "--out", str(tmp_path / "r"))
    code, _, err = command(*asked, "--coarse")
    assert code == 1
    assert "holds for scores with context only" in err
    assert not (tmp_path / "r").exists()
    code, out, _ = command(*asked, "--minutes", "10")
    assert code == 0
    assert "every frame is encoded" in out.replace("\n", " ")


def test_calibrate_takes_data_or_readings(model, command):
    for arguments in ([], ["data", "--readings", "reading"]):
        code, _, err = command("calibrate", str(model), *arguments)
        assert code == 1
        assert "either on data with labels or on readings" in err
