"""Reviewed studies feed training and calibration; what nobody looked at stays unknown."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from enteron.cli import app
from enteron.folders.reading import load_reading
from enteron.progress import SilentProgress
from enteron.review.exports.labels import frame_labels
from enteron.review.store import REVIEWS, ReviewStore
from enteron.training.options import recipe
from enteron.training.plan import TrainingRequest, make_plan
from tests.review.making import FRAMES, review, write_reading, write_study

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


@pytest.mark.slow
def test_reviewed_studies_train_and_calibrate_a_model(exported, tmp_path):
    labels, _ = exported
    (tmp_path / "quick.toml").write_text("epochs = 1\nbatch = 32\n")
    model = tmp_path / "model"
    run("train", labels, "--out", model, "--preset", "lite", "--config", tmp_path / "quick.toml")
    record = json.loads((model / "model.json").read_text())
    assert "labels unknown" in json.dumps(record)
    run("calibrate", model, labels)
    assert (model / "calibration.json").is_file()
