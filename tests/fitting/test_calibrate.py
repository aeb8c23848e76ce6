"""`enteron calibrate`: a model and labelled studies to calibration.json."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest

from enteron.cli import main
from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.splits import Split, save_split
from enteron.errors import ConfigError, LabelError, ModelError, StudyError
from enteron.fitting import calibrate as calibrate_module
from enteron.fitting.calibrate import calibrate_model
from enteron.folders.model import load_calibration, load_model, save_model
from enteron.folders.scores import write_scores
from enteron.inference import embed
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.views import FLIPPED, PLAIN, View
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.priors import load_priors, save_priors
from enteron.study.study import StudyMetadata
from enteron.types import FrameAxis, Scores
from tests.decode.making import priors_without
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
    save_with_split(folder, ("1",), ("2", "3"))
    return folder


def save_with_split(folder, train, val) -> None:
    """A model folder whose model.json names this split."""
    split = Split(train, val, (), "by hand")
    network = start_network(ModelOptions(backbone="vit-tiny"))
    save_model(folder, network, split_hash=split.hash)
    save_split(split, folder / "split.json")


def test_the_validation_part_is_what_is_fitted_on(model, data):
    report = calibrate_model(model, data)
    assert report.calibration.studies == 2
    assert report.calibration.rows == 2 * 32
    assert report.support["blood"] == 2 * 4
    assert report.support["ulcer"] == 0
    assert report.calibration.likelihood.thresholds["ulcer"] is None  # never seen, never emitted
    assert load_calibration(model) == report.calibration
    assert report.scaling_note is None


def test_a_study_without_a_readable_frame_is_a_sentence_and_no_calibration(
    model, tmp_path, monkeypatch, capsys
):
    root = tmp_path / "root"
    labels = label_rows((16, ["stomach"]), (16, ["colon"]))
    for study in ("1", "2", "3"):
        write_frames(root / "frames" / study, range(32))
        write_labels(root / "Labels" / f"{study}.csv", labels)
    for path in (root / "frames" / "3").iterdir():
        path.write_bytes(b"no picture")
    monkeypatch.setattr(sys, "argv", ["enteron", "calibrate", str(model), str(root)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("enteron: more than half of study 3 cannot be read: ")
    assert said.count("\n") == 1
    assert not (model / "calibration.json").exists()
    assert not (model / "features" / "3.npy").exists()


def test_features_are_made_once(model, data, monkeypatch):
    calibrate_model(model, data)
    assert sorted(p.name for p in (model / "features").iterdir()) == [
        "2.npy", "2.npy.stamps", "3.npy", "3.npy.stamps",
    ]  # fmt: skip
    before = load_calibration(model)
    monkeypatch.setattr(embed, "PartialStore", None)  # nothing may be embedded again
    assert calibrate_model(model, data).calibration == before


def store_features(model, data, views) -> None:
    """Features of the validation studies with these views, as training leaves them."""
    network, _ = load_model(model)
    encoder = make_encoder(network.backbone, default_runtime(network.backbone))
    for study, entry in find_studies(data).items():
        if study in ("2", "3"):
            path = model / "features" / f"{study}.npy"
            embed_study(entry.open(), encoder, path, EmbedOptions(), views=views)


@pytest.mark.slow
def test_features_with_augmented_views_of_training_are_used(model, data, monkeypatch):
    plain = calibrate_model(model, data).calibration
    for path in (model / "features").iterdir():
        path.unlink()
    darker = View("augmented-1-0-0", lambda images, frames: images // 2)
    #  The augmented view lies between the two that are scored: views are found by name.
    store_features(model, data, (PLAIN, darker, FLIPPED))
    monkeypatch.setattr(embed, "PartialStore", None)  # nothing may be embedded again
    assert calibrate_model(model, data).calibration == plain


def test_features_without_a_view_that_is_scored_are_refused(model, data):
    store_features(model, data, (PLAIN,))
    with pytest.raises(ModelError, match="made with other views"):
        calibrate_model(model, data)


def test_studies_with_fewer_rows_than_real_ones_are_reported(model, data, monkeypatch):
    frames_per_row = {"2": 50.0, "3": 100.0}
    opened = Entry.open

    def open_synthetic(entry):
        study = opened(entry)
        study.metadata = StudyMetadata(frames_per_row=frames_per_row[study.id])
        return study

    monkeypatch.setattr(Entry, "open", open_synthetic)
    note = calibrate_model(model, data).scaling_note
    assert note
    assert "10.0 to 20.0 times shorter" in note


class RecordedProgress:
    """Remembers the tasks and how far they came."""

    def __init__(self):
        self.tasks = []

    def message(self, text):
        pass

    def task(self, description, total, unit="frames"):
        done = [0]
        self.tasks.append((description, total, done))

        def advance(frames):
            done[0] += frames

        return nullcontext(advance)


def test_progress_counts_the_frames_of_each_study(model, data):
    progress = RecordedProgress()
    calibrate_model(model, data, progress=progress)
    assert progress.tasks == [("Encoding", 32, [32])] * 2


@pytest.fixture
def fitted_priors(monkeypatch):
    """The priors that calibrations were fitted with, in order."""
    used = []
    fit = calibrate_module.fit_decoder

    def recording(studies, priors, options):
        used.append(priors)
        return fit(studies, priors, options)

    monkeypatch.setattr(calibrate_module, "fit_decoder", recording)
    return used


def test_priors_of_the_caller_then_of_the_model_then_of_the_package(model, data, fitted_priors):
    own, other = priors_without("blood", "colon"), priors_without("polyp", "colon")
    calibrate_model(model, data)
    save_priors(own, model / "priors.json")
    calibrate_model(model, data)
    calibrate_model(model, data, priors=other)
    assert fitted_priors == [load_priors(), own, other]


def test_damaged_priors_of_a_model_are_refused(model, data):
    (model / "priors.json").write_text("{")
    with pytest.raises(ConfigError, match=r"priors\.json is not JSON"):
        calibrate_model(model, data)


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
    with pytest.raises(StudyError, match="'empty' holds no studies; give a folder with studies"):
        calibrate_model(model, tmp_path / "empty")


def test_a_study_of_the_split_that_is_missing(model, data):
    save_with_split(model, ("1",), ("2", "9"))
    with pytest.raises(LabelError, match="study 9 of the part 'val' is not under 'root'"):
        calibrate_model(model, data)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command in this process; gives its exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["enteron", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code or 0, " ".join(output.out.split()), output.err

    return run


def test_the_command_shows_thresholds(model, data, command):
    code, output, _ = command("calibrate", model, data)
    assert code == 0
    assert "Calibrated on 2 studies, 64 frames" in output
    assert "calibration.json is in model." in output
    assert "Temperature" in output
    assert "challenge" not in output  # two studies are enough for it


def test_a_single_study_cannot_fit_the_rule_of_silence(model, data, command, tmp_path):
    save_with_split(model, ("1",), ("2",))
    code, output, _ = command("calibrate", model, data)
    assert code == 0
    assert "`--preset challenge` needs a calibration on two or more" in output
    #  and the option that the note names exists, and refuses as it says
    write_scores(tmp_path / "s.parquet", uniform_scores())
    code, _, errors = command(
        "decode", tmp_path / "s.parquet", "--out", tmp_path / "out",
        "--model", model, "--preset", "challenge",
    )  # fmt: skip
    assert code == 1
    assert "for silence, were never fitted" in errors


def uniform_scores() -> Scores:
    return Scores("2", FrameAxis(np.arange(20)), np.full((20, len(LABELS)), 0.5, np.float32))


def test_the_command_takes_priors_from_a_file(model, data, command, fitted_priors, tmp_path):
    other = priors_without("blood", "colon")
    save_priors(other, tmp_path / "mine.json")
    assert command("calibrate", model, data, "--priors", tmp_path / "mine.json")[0] == 0
    assert fitted_priors == [other]


def test_the_command_refuses_priors_that_are_missing_or_damaged(model, data, command, tmp_path):
    (tmp_path / "damaged.json").write_text('{"format": 1')
    for name, problem in (("none.json", "cannot be read"), ("damaged.json", "is not JSON")):
        code, output, errors = command("calibrate", model, data, "--priors", tmp_path / name)
        assert code == 1
        assert output == ""
        assert f"{name} {problem}" in errors
        assert errors.count("\n") == 1
