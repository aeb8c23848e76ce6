"""Model, split, calibration and priors belong together; parts of other folders are refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import enteron
from enteron import decode
from enteron.calibration import Calibration, FittedFor
from enteron.cli import calibrate as calibrate_command
from enteron.cli.read import show
from enteron.datasets.galar import find_studies
from enteron.datasets.splits import Split, save_split
from enteron.errors import ConfigError, EnteronError, LabelError, ModelError
from enteron.fitting import calibrate as calibrate_module
from enteron.fitting.calibrate import calibrate_model
from enteron.fitting.frames import LabelledStudy
from enteron.folders.identity import ReadingIdentity
from enteron.folders.model import (
    decoding_priors,
    load_calibration,
    model_split,
    read_record,
    save_calibration,
    save_model,
)
from enteron.folders.reading import load_reading
from enteron.folders.scores import write_scores
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.priors import load_priors, priors_hash, save_priors
from enteron.reading import Reader
from enteron.report import write_report
from enteron.study import open_study
from enteron.study.fingerprint import study_fingerprint
from enteron.types import FrameAxis, Scores, study_id_hash
from tests.decode.making import priors_without
from tests.making import label_rows, write_frames, write_labels
from tests.report.making import edit_json, write_folder

LABELLED = label_rows((4, ["mouth"]), (4, ["stomach", "blood"]), (4, ["colon"]))
SPLIT = Split(("1", "2"), ("3",), (), "by hand")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Four studies with pictures of their own; 1 and 2 train the model."""
    root = tmp_path_factory.mktemp("data") / "root"
    for number in (1, 2, 3, 4):
        first = 100 * number
        write_frames(root / "Galar_Frames_1_to_10" / str(number), range(first, first + 12))
        write_labels(root / "Labels" / f"{number}.csv", LABELLED, first=first)
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    """A model folder as training leaves it."""
    folder = tmp_path_factory.mktemp("models") / "model"
    entries = find_studies(data)
    save_model(
        folder,
        start_network(ModelOptions(backbone="vit-tiny")),
        split_hash=SPLIT.hash,
        training_studies=tuple(study_fingerprint(entries[name].open()) for name in SPLIT.train),
        training={"studies": 2},
    )
    save_split(SPLIT, folder / "split.json")
    return folder


@pytest.fixture
def model(trained, tmp_path) -> Path:
    """A copy to change, without the weights, which nothing here loads."""
    folder = tmp_path / "model"
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


@pytest.fixture
def quick_fit(monkeypatch):
    """Neither encoding nor fitting: one row per study, and a calibration that counts them."""

    class QuickScorer:
        def __init__(self, *_, **__):
            self.encoder = SimpleNamespace(backbone_hash="a" * 64)

        def labelled(self, entries, features):
            axis, zeros = FrameAxis(np.arange(1)), np.zeros((1, len(LABELS)))
            return {
                study: LabelledStudy(Scores(study, axis, zeros.astype(np.float32)), zeros > 0)
                for study in entries
            }

        def stored_appearance(self, key, features):
            return np.random.default_rng(len(key)).normal(size=(4, 8)).astype(np.float32)

    monkeypatch.setattr(calibrate_module, "StudyScorer", QuickScorer)
    monkeypatch.setattr(calibrate_module, "_reference", lambda *_: None)
    monkeypatch.setattr(
        calibrate_module, "fit_decoder", lambda studies, *_: Calibration(studies=len(studies))
    )


def write_calibration(folder: Path, **changes) -> Path:
    """A calibration that fits the model folder, but for the changes."""
    record = read_record(folder)
    fitted = {
        "origin": "model",
        "weights": record.weights_hash,
        "settings": record.settings_hash,
        "split": record.split_hash,
        "priors": priors_hash(load_priors()),
        "study_ids": (study_id_hash("3"),),
    }
    calibration = Calibration(studies=1, fitted_for=FittedFor.model_validate(fitted | changes))
    save_calibration(calibration, folder / "calibration.json")
    return folder / "calibration.json"


# ---- the calibration and its model


def test_calibrate_binds_what_it_writes(model, data, quick_fit):
    report = calibrate_model(model, data)
    record, fitted_for = read_record(model), report.calibration.fitted_for
    assert fitted_for is not None
    assert fitted_for.weights == record.weights_hash
    assert (fitted_for.origin, fitted_for.split) == ("model", SPLIT.hash)
    assert fitted_for.study_ids == (study_id_hash("3"),)
    assert fitted_for.training_studies == 0
    assert load_calibration(model) == report.calibration


OTHERS = {
    "another model's": ({"weights": "0" * 64}, "was fitted for another model; run `enteron calib"),
    "other settings": ({"settings": "0" * 64}, "options or backbone in 'model.json' were changed"),
    "another split": ({"split": "0" * 16}, "was fitted with another split"),
    "of tune": (
        {"origin": "scores", "weights": None, "settings": None},
        "was fitted by `enteron tune` on scores that are not of this model",
    ),
    "silent about training studies": (
        {"study_ids": (study_id_hash("2"), study_id_hash("3"))},
        "was fitted on studies that trained the model, and does not say so",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_calibration_of_something_else_is_refused_everywhere(model, tmp_path, other, monkeypatch):
    changes, message = OTHERS[other]
    file = write_calibration(model, **changes)
    scores = tmp_path / "s.parquet"
    write_scores(scores, Scores("s", FrameAxis(np.arange(9)), np.zeros((9, 17), np.float32)))
    uses = (
        lambda: load_calibration(model),
        lambda: load_calibration(file),
        lambda: Reader(model),
        lambda: enteron.read(tmp_path, model=model),
        lambda: enteron.decode(scores, model=model),
        lambda: enteron.decode(scores, model=file),
    )
    for use in uses:
        with pytest.raises(ModelError, match=message) as caught:
            use()
        assert str(tmp_path) not in str(caught.value)


def test_the_commands_refuse_it_too(model, tmp_path, enteron):
    write_calibration(model, weights="0" * 64)
    write_frames(tmp_path / "study", range(3))
    write_scores(
        tmp_path / "s.parquet", Scores("s", FrameAxis(np.arange(9)), np.zeros((9, 17), np.float32))
    )
    for arguments in (("read", "study"), ("decode", "s.parquet", "--out", "out")):
        done = enteron(*arguments, "--model", "model", code=1)
        assert "'calibration.json' was fitted for another model" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "study-reading").exists()


def test_scores_of_another_model_are_not_calibrated(model, tmp_path, enteron):
    """By the folder of a model, or by its calibration.json alone; unknown scores pass."""
    file = write_calibration(model)
    alone = tmp_path / "calibration.json"
    shutil.copy(file, alone)
    scores = Scores("s", FrameAxis(np.arange(9)), np.zeros((9, 17), np.float32))
    for name, weights in (("other", "0" * 64), ("own", read_record(model).weights_hash)):
        identity = ReadingIdentity(study="s", model=weights)
        write_scores(tmp_path / f"{name}.parquet", scores, identity)
    for source in ("model", "calibration.json"):
        done = enteron("decode", "other.parquet", "--out", "out", "--model", source, code=1)
        assert f"'{source}' is not the model that made other.parquet" in done.stderr
        enteron("decode", "own.parquet", "--out", source + "-out", "--model", source)
    with pytest.raises(ModelError, match=r"'model' is not the model that made other\.parquet"):
        decode(tmp_path / "other.parquet", model=model)
    assert decode(tmp_path / "own.parquet", model=model) is not None
    assert decode(scores, model=alone) is not None


def test_an_old_calibration_is_refused_beside_a_model_and_read_alone(model, tmp_path):
    save_calibration(Calibration(studies=3), model / "calibration.json")
    with pytest.raises(ModelError, match=r"does not say which model .*; run `enteron calibrate`"):
        load_calibration(model)
    alone = tmp_path / "calibration.json"
    (model / "calibration.json").rename(alone)
    assert load_calibration(alone).studies == 3


def test_an_edited_option_of_the_model_is_noticed(model):
    write_calibration(model)
    table = json.loads((model / "model.json").read_text())
    table["options"]["neighbour_step"] = 5
    (model / "model.json").write_text(json.dumps(table))
    with pytest.raises(ModelError, match="options or backbone"):
        load_calibration(model)


def test_tune_writes_beside_no_model(model, tmp_path, enteron):
    (tmp_path / "scores").mkdir()
    done = enteron("tune", "scores", "truth.json", "--out", "model", code=1)
    assert "'model' holds a model, and these scores may be of another one" in done.stderr


# ---- the split and its model


def test_an_exchanged_split_is_refused(model, data):
    """Its own hash is right: only the model tells that it is another one."""
    save_split(Split(("3",), ("1", "2"), (), "exchanged"), model / "split.json")
    with pytest.raises(ModelError, match=r"'split\.json' is not the split that the model was"):
        calibrate_model(model, data)
    with pytest.raises(ModelError, match=r"'split\.json' is not the split that the model was"):
        model_split(model, read_record(model))


def test_a_split_that_no_model_names_is_refused(model, data):
    edit_json(model / "model.json", split_hash=None)
    with pytest.raises(ModelError, match=r"'model\.json' names no split"):
        calibrate_model(model, data)


# ---- training studies


@pytest.mark.parametrize("part", ["all", "train"])
def test_training_studies_are_refused_unless_named(model, data, part, quick_fit):
    message = (
        f"2 studies of {4 if part == 'all' else 2} trained this model, the first is 1: .* --in"
    )
    with pytest.raises(LabelError, match=message):
        calibrate_model(model, data, part=part)
    assert not (model / "calibration.json").exists()
    report = calibrate_model(model, data, part=part, include_training=True)
    assert report.calibration.training_studies == 2
    assert load_calibration(model).training_studies == 2


def test_a_training_study_under_another_id_is_noticed(model, data, tmp_path, quick_fit):
    other = tmp_path / "other"
    shutil.copytree(data / "Galar_Frames_1_to_10" / "2", other / "Galar_Frames_1_to_10" / "77")
    write_labels(other / "Labels" / "77.csv", LABELLED, first=200)
    with pytest.raises(LabelError, match="1 study of 1 trained this model, the first is 77"):
        calibrate_model(model, other, part="all")
    shutil.copytree(data / "Galar_Frames_1_to_10" / "4", tmp_path / "new/Galar_Frames_1_to_10/77")
    write_labels(tmp_path / "new" / "Labels" / "77.csv", LABELLED, first=400)
    assert calibrate_model(model, tmp_path / "new", part="all").calibration.studies == 1


def test_the_validation_part_needs_no_permission(model, data, quick_fit):
    assert calibrate_model(model, data).calibration.training_studies == 0


def test_folders_of_versions_before(model, data, quick_fit):
    """Without fingerprints the split tells by id; without a split nothing does."""
    edit_json(model / "model.json", training_studies=None)
    with pytest.raises(LabelError, match="2 studies of 4 trained this model"):
        calibrate_model(model, data, part="all")
    assert calibrate_model(model, data).calibration.studies == 1
    (model / "split.json").unlink()
    with pytest.raises(LabelError, match=r"does not say which studies trained .* there is no 'spl"):
        calibrate_model(model, data, part="all")
    report = calibrate_model(model, data, part="all", include_training=True)
    assert report.calibration.training_studies == 4


def test_fingerprints_name_no_study_and_recognise_by_id_or_pictures(data):
    folder = data / "Galar_Frames_1_to_10" / "1"
    one, renamed = study_fingerprint(open_study(folder)), open_study(folder, study_id="Doe_John")
    assert one.is_of(study_fingerprint(renamed))
    assert "Doe" not in study_fingerprint(renamed).model_dump_json()
    other = study_fingerprint(open_study(data / "Galar_Frames_1_to_10" / "2", study_id="1"))
    assert one.is_of(other)
    assert not one.is_of(study_fingerprint(open_study(data / "Galar_Frames_1_to_10" / "2")))


# ---- what people see of training studies in a calibration


NOTE = "the confidence was calibrated on 2 studies that had trained the model"


def test_reading_record_page_and_terminal_say_so(tmp_path, capsys):
    folder = write_folder(tmp_path / "reading")
    edit_json(folder / "run.json", model={"calibrated": True, "calibrated_on_training": 2})
    write_report(folder)
    page = (folder / "report.html").read_text()
    section = page.split('id="confidence"')[1].split("</section>")[0]
    assert NOTE in section
    assert "about eight in ten should be real" not in section
    reading = load_reading(folder)
    show(reading)
    assert NOTE in " ".join(capsys.readouterr().out.split())
    show(replace(reading, run=reading.run.model_copy(update={"model": None})))
    assert "had trained the model" not in capsys.readouterr().out


def test_decode_and_calibrate_say_so(model, data, tmp_path, enteron, quick_fit, capsys):
    write_calibration(model, study_ids=(study_id_hash("1"),), training_studies=1)
    write_scores(
        tmp_path / "s.parquet", Scores("s", FrameAxis(np.arange(9)), np.zeros((9, 17), np.float32))
    )
    done = enteron("decode", "s.parquet", "--out", "out", "--model", "model")
    assert "the confidence was calibrated on a study that had trained the model" in done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["model"]["calibrated_on_training"] == 1
    report = calibrate_model(model, data, part="all", include_training=True)
    calibrate_command._show(report, "model")
    assert "2 of these studies trained the model" in " ".join(capsys.readouterr().out.split())


# ---- the priors of a calibration


def test_priors_of_the_fit_are_stored_and_others_refused(model, data, quick_fit, tmp_path):
    own, other = priors_without("blood", "colon"), priors_without("polyp", "colon")
    calibration = calibrate_model(model, data, priors=own).calibration
    assert decoding_priors(calibration, model) == own
    assert decoding_priors(calibration, model, own) == own
    with pytest.raises(ConfigError, match=r"the file of --priors is not what 'calibration\.json'"):
        decoding_priors(calibration, model, other)
    (model / "priors.json").unlink()
    with pytest.raises(ConfigError, match=r"'priors\.json' .* is not what .*; copy the 'priors"):
        decoding_priors(load_calibration(model), model)
    save_priors(other, model / "priors.json")
    with pytest.raises(ConfigError, match=r"is not what 'calibration\.json' was fitted with"):
        Reader(model)
    #  A calibration without a fit has no priors of its own.
    assert decoding_priors(Calibration(), None, other) == other
    assert decoding_priors(Calibration(), None) == load_priors()


def test_the_packaged_priors_are_not_copied(model, data, quick_fit):
    calibrate_model(model, data)
    assert not (model / "priors.json").exists()


def test_decode_of_the_api_takes_the_models_priors(model, tmp_path, monkeypatch):
    own = priors_without("blood", "colon")
    save_priors(own, model / "priors.json")
    write_calibration(model, priors=priors_hash(own))
    used = []
    monkeypatch.setattr("enteron.decoding.decode", lambda *values: used.append(values) or [])
    scores = Scores("s", FrameAxis(np.arange(9)), np.zeros((9, 17), np.float32))
    enteron.decode(scores, model=model)
    assert used[0][2] == own
    with pytest.raises(EnteronError, match="the file of --priors"):
        enteron.decode(scores, model=model, priors=load_priors())
