"""`enteron calibrate`: a model and labelled studies to calibration.json."""

import json
import sys

import pytest

from enteron.cli import main
from enteron.datasets.splits import Split, save_split
from enteron.errors import LabelError
from enteron.fitting.calibrate import calibrate_model
from enteron.folders.model import load_calibration, save_model
from enteron.inference import embed
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.making import label_rows, write_frames, write_labels


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three small studies in Galar's layout, every fifth frame stored."""
    root = tmp_path_factory.mktemp("data") / "root"
    labels = label_rows(
        (4, ["mouth"]), (4, ["esophagus"]), (8, ["stomach"]),
        (6, ["small intestine"]), (4, ["small intestine", "blood"]), (6, ["colon"]),
    )  # fmt: skip
    for study in ("1", "2", "3"):
        write_frames(root / "Galar_Frames_1_to_10" / study, range(0, 5 * len(labels), 5))
        write_labels(root / "Labels" / f"{study}.csv", labels, step=5)
    return root


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    save_split(Split(("1",), ("2", "3"), (), "by hand"), folder / "split.json")
    return folder


def test_the_validation_part_is_what_is_fitted_on(model, data):
    done = calibrate_model(model, data)
    assert done.calibration.studies == 2
    assert done.calibration.rows == 2 * 32
    assert done.support["blood"] == 2 * 4
    assert done.support["ulcer"] == 0
    assert done.calibration.likelihood.thresholds["ulcer"] is None  # never seen, never emitted
    assert load_calibration(model) == done.calibration
    assert done.shortened is None


def test_features_are_made_once(model, data, monkeypatch):
    calibrate_model(model, data)
    assert sorted(p.name for p in (model / "features").iterdir()) == ["2.npy", "3.npy"]
    before = load_calibration(model)
    monkeypatch.setattr(embed, "PartialStore", None)  # nothing may be embedded again
    assert calibrate_model(model, data).calibration == before


def test_shortened_studies_are_told(model, data, tmp_path):
    files = {
        scale: data / "Galar_Frames_1_to_10" / study / "study.json"
        for study, scale in (("2", 50.0), ("3", 100.0))
    }
    for scale, file in files.items():
        file.write_text(json.dumps({"frames_per_row": scale}))
    try:
        told = calibrate_model(model, data).shortened
    finally:
        for file in files.values():
            file.unlink()
    assert told
    assert "10.0 to 20.0 times shorter" in told


def test_all_studies_of_a_root(model, data):
    assert calibrate_model(model, data, part="all").calibration.studies == 3


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("test", "the part 'test' of the model's split is empty"),
        ("valid", "there is no part 'valid'; use train, val, test or all"),
    ],
)
def test_parts_that_are_not_there(model, data, part, said):
    with pytest.raises(LabelError, match=said):
        calibrate_model(model, data, part=part)


def test_data_without_the_studies_of_the_split(model, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LabelError, match="holds no study with images and labels"):
        calibrate_model(model, tmp_path / "empty")


def test_a_study_of_the_split_that_is_missing(model, data):
    save_split(Split(("1",), ("2", "9"), (), "by hand"), model / "split.json")
    with pytest.raises(LabelError, match="study 9 of the part 'val' is not under 'root'"):
        calibrate_model(model, data)


def test_the_command_shows_thresholds(model, data, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["enteron", "calibrate", str(model), str(data)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr().out
    assert "Calibrated on 2 studies, 64 frames" in said
    assert "calibration.json is in model." in said
    assert "Temperature" in said
