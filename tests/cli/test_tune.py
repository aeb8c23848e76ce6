"""`enteron tune` as a person meets it."""

import json

import numpy as np
import polars as pl
import pytest

from enteron.datasets.label_table import LabelTable, truth_events
from enteron.datasets.submission import write_submission
from enteron.decoding import PRESETS
from enteron.folders.model import load_calibration
from enteron.labels import LABELS
from enteron.priors import Priors, load_priors, save_priors
from enteron.types import Unit
from tests.fitting.test_tuning import studies


@pytest.fixture
def folder(tmp_path):
    """Scores of four studies, and their truth."""
    (tmp_path / "scores").mkdir()
    truths = []
    for study in studies(4, rows=1200):
        axis = study.scores.axis
        table = {"frame": axis.frames}
        table |= {label: study.scores.column(label) for label in LABELS}
        pl.DataFrame(table).write_parquet(tmp_path / "scores" / f"{study.scores.study}.parquet")
        labels = LabelTable(study.scores.study, axis, np.arange(len(axis)), study.truth)
        truths.append(truth_events(labels, Unit.FRAME))
    write_submission(tmp_path / "truth.json", truths)
    return tmp_path


def test_tune_reports_other_studies_and_writes_what_decode_reads(enteron, folder):
    done = enteron("tune", "scores", "truth.json", "--folds", 2, "--out", "model")
    for part in ("4 studies, 2 folds", "paper", "transit", "challenge", "clinical", "empty file"):
        assert part in done.stdout
    assert load_calibration(folder / "model").studies == 4
    for preset in ("challenge", "clinical"):
        enteron(
            "decode", "scores/0.parquet", "--out", "out", "--model", "model", "--preset", preset
        )
    assert json.loads((folder / "out" / "run.json").read_text())["model"]
    figures = json.loads(enteron("tune", "scores", "truth.json", "--folds", 2, "--json").stdout)
    assert set(figures["presets"]) == set(PRESETS)
    assert figures["presets"]["transit"]["counts"]["studies"] == 4


def test_tune_says_whether_context_beats_the_plain_decoder(enteron, folder):
    def tuned(*arguments):
        done = enteron("tune", "scores", "truth.json", "--folds", 2, "--json", *arguments)
        return json.loads(done.stdout)

    compared = tuned()["context"]
    gains = [compared["with"][name] - value for name, value in compared["without"].items()]
    # Fewer studies in a fold than a context needs: both are the same, and it is not used.
    assert set(gains) == {0.0}
    assert compared["used"] is False
    assert "context" not in tuned("--no-context")
    said = enteron("tune", "scores", "truth.json", "--folds", 2).stdout
    assert "not used, since it does not beat the plain decoder" in " ".join(said.split())


def test_tune_fits_with_the_priors_of_the_file_or_of_the_model_folder(enteron, folder):
    def fitted(*arguments):
        enteron("tune", "scores", "truth.json", "--folds", 2, "--out", "model", *arguments)
        return load_calibration(folder / "model")

    #  Blood that no region shows is attenuated everywhere, so that other thresholds fit.
    table = load_priors().model_dump()
    for shares in table["given_region"]["shares"].values():
        shares["blood"] = 0.0
    save_priors(Priors.model_validate(table), folder / "bloodless.json")
    packaged, other = fitted(), fitted("--priors", "bloodless.json")
    assert other.events["blood"] != packaged.events["blood"]
    save_priors(Priors.model_validate(table), folder / "model" / "priors.json")
    assert fitted() == other


def test_tune_refuses(enteron, folder):
    (folder / "empty").mkdir()
    (folder / "damaged.json").write_text("{")
    for arguments, said in (
        (["none", "truth.json"], "'none' is not a folder"),
        (["empty", "truth.json"], "the folder 'empty' holds no scores"),
        (["scores", "none.json"], "none.json cannot be read"),
        (["scores", "truth.json", "--folds", 9], "4 studies cannot be divided into 9 folds"),
        (["scores", "truth.json", "--unit", "index"], "scores count in 'frame', the truth in"),
        (["scores", "truth.json", "--priors", "none.json"], "priors none.json cannot be read"),
        (["scores", "truth.json", "--priors", "damaged.json"], "damaged.json is not JSON"),
    ):
        done = enteron("tune", *arguments, code=1)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    (folder / "scores" / "77.csv").write_text("x")
    assert "the first is 77" in enteron("tune", "scores", "truth.json", code=1).stderr
    (folder / "scores" / "0.csv").write_text("x")
    assert "study 0 has two files" in enteron("tune", "scores", "truth.json", code=1).stderr
    assert "Missing argument" in enteron("tune", "scores", code=2).stderr


def test_tune_promises_a_recall_or_says_what_it_would_take(enteron, folder):
    refused = enteron(
        "tune", "scores", "truth.json", "--folds", 2, "--lesion-recall", 0.9, code=1
    ).stderr
    assert refused == (
        "enteron: 4 studies with lesions cannot promise that at most 0.1 of the lesions are "
        "missed; give at least 9 studies with lesions, or allow 0.2.\n"
    )
    said = enteron(
        "tune", "scores", "truth.json", "--folds", 2, "--out", "model", "--lesion-recall", 0.6
    ).stdout
    said = " ".join(said.split())
    assert "Promised recall 0.6: of a new study like these, at most 0.4" in said
    assert "pictures a study:" in said
    assert "Confidence of events on held-out studies" in said
    guarantee = load_calibration(folder / "model").guarantee
    assert guarantee is not None
    assert guarantee.signatures is None
    enteron("decode", "scores/0.parquet", "--out", "o", "--model", "model", "--preset", "clinical")
    listed = json.loads((folder / "o" / "suspicious.json").read_text())
    assert listed["promise"]["verdict"] == "unknown"
    assert len(listed["frames"]) >= listed["promise"]["pictures"]
    findings = [
        event
        for event in json.loads((folder / "o" / "events.json").read_text())["events"]
        if event["label"] in LABELS[8:]
    ]
    assert len(findings) == listed["promise"]["pictures"]
    assert "Invalid value" in enteron("tune", "a", "b", "--lesion-recall", 1.5, code=2).stderr
