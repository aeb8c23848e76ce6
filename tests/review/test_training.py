"""Reviewed studies feed training and calibration; what nobody looked at stays unknown."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from enteron.cli import app
from enteron.datasets.layouts import open_dataset
from enteron.fitting.calibrate import calibrate_model
from enteron.folders.model import read_record
from enteron.folders.reading import load_reading
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.labels import COLUMN
from enteron.model.backbones import lite_backbone
from enteron.progress import SilentProgress
from enteron.review.exports.labels import frame_labels
from enteron.review.store import REVIEWS, ReviewStore
from enteron.training.options import recipe
from enteron.training.plan import TrainingRequest, make_plan
from enteron.training.run import run_training
from tests.review.making import FRAMES, review, write_reading, write_study
from tests.training.model_folders import LookupEncoder

STUDIES = ("7", "8", "9")


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Two signed reviews and one that is not, exported for training."""
    root = tmp_path_factory.mktemp("reviewed")
    states = {}
    for seed, study in enumerate(STUDIES):
        frames = write_study(root / "studies", study, seed)
        write_reading(root / "readings" / study, frames, study)
    with ReviewStore(root / "readings" / REVIEWS) as store:
        for study in STUDIES:
            review(store, load_reading(root / "readings" / study), sign=study != "9")
            states[study] = store.state(study)
    out = root / "out"
    text = run(
        "review", "export", root / "readings", "--out", out, "--format", "labels",
        "--studies", root / "studies",
    )  # fmt: skip
    assert "Not signed: 9" in text
    return out / "labels", states


def test_a_training_is_planned_with_exactly_what_was_reviewed(exported, tmp_path):
    labels, states = exported
    request = TrainingRequest((labels,), tmp_path / "model", recipe("lite", epochs=1))
    plan = make_plan(request, SilentProgress())
    samples = {sample.study: sample for sample in (*plan.train, *plan.val)}
    assert set(samples) == set(STUDIES)
    for study, sample in samples.items():
        known = frame_labels(states[study], np.arange(FRAMES))
        informative = known.informative
        np.testing.assert_array_equal(sample.labels.present, known.present[informative])
        np.testing.assert_array_equal(sample.labels.known, known.known[informative])
        assert not sample.labels.is_complete
    # An unsigned review says less: silence is no statement.
    assert samples["9"].labels.known.sum() < samples["7"].labels.known.sum()


def test_check_says_what_is_unknown(exported):
    labels, _ = exported
    report = json.loads(run("check", labels, "--json"))
    assert report["layout"] == "table"


def test_reviewed_studies_train_and_calibrate_a_model(exported, tmp_path):
    labels, states = exported
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)  # quick, and no network
    features = tmp_path / "features"
    features.mkdir()
    for study, entry in open_dataset(labels).studies.items():
        embed_study(entry.open(), encoder, features / f"{study}.npy", EmbedOptions())
    model = tmp_path / "model"
    options = recipe("lite", epochs=1, batch=64)
    request = TrainingRequest((labels,), model, options, features=features)
    run_training(make_plan(request, SilentProgress()), SilentProgress())
    record = read_record(model)
    assert record.training["labels unknown"].endswith("% of all labels of all frames")
    report = calibrate_model(model, labels, features=features)
    assert report.calibration.studies == 1  # the one that validated
    assert report.event_studies == 0  # no study was reviewed from end to end
    (study,) = set(STUDIES) - set(json.loads((model / "split.json").read_text())["train"])
    # Mouth and pylorus were never decided about: nothing is fitted for them.
    known = frame_labels(states[study], np.arange(FRAMES)).known_counts
    assert known[COLUMN["pylorus"]] == 0
    assert report.calibration.likelihood.thresholds["pylorus"] is None
