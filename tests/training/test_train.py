"""`enteron train` on the command line: a model folder, a page, and every way to fail."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from enteron.datasets.splits import Split, load_split, save_split
from enteron.folders.model import load_model
from enteron.labels import LABELS
from enteron.model.backbones import lite_backbone
from enteron.priors import load_priors, save_priors
from enteron.training.page import TrainingReport, training_page
from enteron.training.results import (
    EpochRecord,
    History,
    Validation,
    calibrated_results,
    validation_metrics,
)
from enteron.training.sampling import Samples, StudySamples
from enteron.types import FrameLabels, study_id_hash
from tests.making import write_frames, write_labels
from tests.training.making import some_labels
from tests.training.model_folders import STUDIES, LookupEncoder, store_features, write_root

QUICK = """
epochs = 2
batch = 16
checkpoint_steps = 2
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_root(tmp_path_factory.mktemp("data") / "galar")


@pytest.fixture(scope="module")
def features(root, tmp_path_factory):
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)
    return store_features(root, tmp_path_factory.mktemp("stores") / "features", encoder)


@pytest.fixture(scope="module")
def quick(root):
    path = root.parent / "quick.toml"
    path.write_text(QUICK)
    return path


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def arguments(root, features, quick) -> list[str]:
    words = ["train", root, "--preset", "lite", "--config", quick, "--features", features]
    return list(map(str, words))


@pytest.fixture(scope="module")
def finished(root, features, quick, tmp_path_factory):
    """A finished model folder, and the standard output of its training."""
    parent = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [sys.executable, "-m", "enteron", *arguments(root, features, quick), "--out", "model"],
        cwd=parent,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return parent / "model", done.stdout


def test_messages(finished):
    _, output = finished
    assert "Training on 3 studies, 120 frames; validating on 1 study, 40 frames" in output
    assert "No training frame shows z-line, pylorus, ileocecal valve, active bleeding" in output
    assert "Rarest label: polyp, " in output
    assert "times as often as in the data" in output
    assert "epoch  1: train loss" in output
    assert "Best epoch" in output
    assert "Open model/training/training.html." in output


def test_a_model_folder(enteron, root, finished):
    model, _ = finished
    assert sorted(path.name for path in model.iterdir()) == [
        "card.md", "model.json", "model.safetensors", "split.json", "training",
    ]  # fmt: skip
    network, record = load_model(model)
    assert record.split_hash == json.loads((model / "split.json").read_text())["hash"]
    split = load_split(model / "split.json")
    assert record.training_studies is not None
    assert {s.id for s in record.training_studies} == {study_id_hash(s) for s in split.train}
    assert len({s.pictures for s in record.training_studies} - {None}) == 3
    assert record.training["frames"] == 120
    assert record.training["devices"] == "unknown (3)"
    (source,) = record.sources
    assert (source.title, source.kind) == ("studies in Galar's layout", "real frames")
    assert (source.studies, source.frames) == (3, 120)
    # Short values only: the report lists each of them on one line.
    assert all(isinstance(value, int | str) for value in record.training.values())
    assert record.frames_by_label["ulcer"] == 0
    assert set(record.results) >= {"macro ap", "macro ap present", "findings ap"}
    assert network.options.backbone == "lite"
    options = json.loads((model / "training" / "options.json").read_text())
    assert (options["seed"], options["epochs"], options["regime"]) == (42, 2, "frozen")


def test_a_page_for_people(finished):
    model, _ = finished
    page = (model / "training" / "training.html").read_text()
    history = json.loads((model / "training" / "history.json").read_text())["epochs"]
    best = max(history, key=lambda record: record["figures"]["macro_ap"])
    marked = page.split('<tr class="best">')[1].split("</tr>")[0]
    assert f"<td>{best['epoch']}</td><td>{best['train_loss']:.4f}</td>" in marked
    assert f"<td>{best['figures']['macro_f1']:.4f}</td>" in marked
    for label in LABELS:
        assert f"</span>{label}</td>" in page
    assert "Support: validation frames with the label." in page
    assert "<th>Oversampling</th>" in page
    assert "head only (the backbone keeps its pretrained weights)" in page
    assert "frozen" not in page
    assert page.count("<svg") == 4
    # Names of formats only: nothing is fetched, and no path of this machine is shown.
    assert set(re.findall(r"https?://([^/\"]+)", page)) == {"www.w3.org"}
    assert str(model.parent) not in page
    assert list((model / "training" / "board").glob("events.*"))


def test_a_finished_training_is_left_alone(enteron, root, finished):
    model, _ = finished
    again = enteron("train", root, "--out", model, "--resume")
    assert again.stdout == "model is finished: there is nothing to resume.\n"
    refused = enteron("train", root, "--out", model, "--preset", "lite", code=1)
    assert "'model' already holds a model; give another folder." in refused.stderr


def test_a_killed_training_resumes_to_the_same_weights(
    enteron, root, features, quick, finished, tmp_path
):
    train = arguments(root, features, quick)
    command = [sys.executable, "-m", "enteron", *train, "--out", "killed"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch  1"):
                process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "killed" / "model.json").exists()
    refused = enteron(*train, "--out", "killed", code=1)
    assert "holds a training that did not finish; add --resume to resume it" in refused.stderr
    other = enteron(*train, "--out", "killed", "--resume", "--epochs", 3, code=1)
    assert "was started with another 'epochs'; resume with the same options" in other.stderr
    resumed = enteron("train", root, "--out", "killed", "--features", features, "--resume")
    assert re.search("Resuming (after epoch 1 of 2|in epoch 2 of 2)", resumed.stdout)
    for name in ("model.safetensors", "model.json", "split.json", "training/history.json"):
        assert (finished[0] / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name
    assert not (tmp_path / "killed" / "checkpoint").exists()


def test_both_temperatures_are_on_the_page():
    validation, samples = scripted_validation()
    results = calibrated_results(samples, validation)
    page = training_page(
        TrainingReport(
            facts={},
            history=History(epochs=(epoch_record(validation),)),
            results=results,
            prototypes=None,
            counts=samples.counts,
            oversampling=np.ones(len(LABELS)),
            split="0",
        )
    )
    paper, likelihood = results.calibration.paper, results.calibration.likelihood
    assert f"{paper.temperature:g}" != f"{likelihood.temperature:.2f}"
    rows = re.findall(r"<tr><td>(By [^<]+)</td><td>([^<]+)</td></tr>", page)
    assert [value for _, value in rows] == [
        f"{paper.temperature:g}",
        f"{likelihood.temperature:.2f}",
    ]
    assert [name.split(",")[0].split(" (")[0] for name, _ in rows] == [
        "By the paper's rule",
        "By likelihood",
    ]


def scripted_validation() -> tuple[Validation, Samples]:
    """Overconfident scores of one study."""
    labels = some_labels(200, seed=0)
    rng = np.random.default_rng(1)
    odds = np.where(labels, 1.0, -1.0) + rng.normal(size=labels.shape)
    scores = (1 / (1 + np.exp(-4 * odds))).astype(np.float32)
    rows = np.arange(200)
    truth = FrameLabels.complete(labels)
    samples = Samples([StudySamples("1", rows, rows, truth)])
    return Validation(rows, truth, scores, loss=0.1, classification=0.05), samples


def epoch_record(validation: Validation) -> EpochRecord:
    metrics = validation_metrics(validation.truth, validation.scores)
    return EpochRecord(epoch=1, train_loss=0.2, val_loss=validation.loss, figures=metrics)


def test_priors_go_into_the_model_folder(enteron, root, features, quick, tmp_path):
    priors = load_priors().model_copy(update={"source": "our own studies"})
    save_priors(priors, tmp_path / "own.json")
    train = [*arguments(root, features, quick), "--epochs", "1", "--priors", "own.json"]
    command = [sys.executable, "-m", "enteron", *train, "--out", "model"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Rarest label"):
                process.send_signal(signal.SIGKILL)
    # Not before the training finishes; a resumed training remembers them.
    assert not (tmp_path / "model" / "priors.json").exists()
    save_priors(load_priors(), tmp_path / "others.json")
    resume = ["train", root, "--out", "model", "--features", features, "--resume"]
    refused = enteron(*resume, "--priors", "others.json", code=1)
    assert "was started with other priors; leave out --priors" in refused.stderr
    enteron(*resume)
    assert load_priors(tmp_path / "model" / "priors.json") == priors


def test_a_part_without_readable_labelled_frames_is_a_sentence_and_no_model(
    tmp_path, command, monkeypatch
):
    """The pictures of a study can be read, but for those that have labels."""
    root = write_root(tmp_path / "galar", frames=20)
    write_labels(root / "Labels" / "4.csv", some_labels(4, 3), step=5)
    for number in range(0, 20, 5):
        (root / "4" / f"frame_{number:06d}.PNG").write_bytes(b"no picture")
    save_split(Split(("1", "2", "3"), ("4",), (), "by hand"), tmp_path / "split.json")
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)
    monkeypatch.setattr("enteron.training.run.make_encoder", lambda *_: encoder)
    words = ("--preset", "lite", "--split", "split.json")
    code, _, error = command("train", root, "--out", "model", *words)
    assert code == 1
    assert error == (
        "enteron: none of the 4 labelled frames of 'val' can be read; check the images with "
        "`enteron check`.\n"
    )
    assert not (tmp_path / "model" / "model.json").exists()
    assert not (tmp_path / "model" / "card.md").exists()


def test_priors_are_checked_before_any_work(enteron, root, tmp_path):
    (tmp_path / "own.json").write_text('{"source": "our own studies"}')
    train = ["train", root, "--preset", "lite", "--out", "model", "--priors"]
    done = enteron(*train, "own.json", code=1)
    assert "own.json: studies is missing" in done.stderr
    done = enteron(*train, "none.json", code=1)
    assert "priors none.json cannot be read" in done.stderr
    assert not (tmp_path / "model").exists()


def split_file(path, **parts):
    save_split(Split(**{"train": (), "val": (), "test": (), "rule": "by hand", **parts}), path)
    return path


def test_splits_that_cannot_be_used(enteron, root, tmp_path):
    cases = (
        ({"train": STUDIES}, "the part 'val' of the split has no studies; give a split whose"),
        ({"val": STUDIES}, "the part 'train' of the split has no studies"),
        (
            {"train": ("1", "9"), "val": ("2",)},
            "1 of 2 studies of 'train' are not there with images and labels, the first is 9",
        ),
    )
    for parts, message in cases:
        path = split_file(tmp_path / "split.json", **parts)
        done = enteron("train", root, "--out", "model", "--preset", "lite", "--split", path, code=1)
        assert message in done.stderr
    done = enteron(
        "train", root, "--out", "model", "--preset", "lite", "--split", "none.json", code=1
    )
    assert "none.json cannot be read (No such file or directory)" in done.stderr
    assert not (tmp_path / "model").exists()


def test_data_that_cannot_be_used(enteron, tmp_path):
    bare = tmp_path / "bare"
    write_frames(bare / "1", range(4), size=32)
    done = enteron("train", bare, "--out", "model", "--preset", "lite", code=1)
    assert "'bare' holds images of 1 studies and labels of none; put their CSV" in done.stderr

    write_labels(bare / "Labels" / "2.csv", np.zeros((4, 17), bool))
    done = enteron("train", bare, "--out", "model", "--preset", "lite", code=1)
    assert "no study in 'bare' has both images (1 have) and labels (1 have)" in done.stderr

    (tmp_path / "nothing").mkdir()
    done = enteron("train", "nothing", "--out", "model", "--preset", "lite", code=1)
    assert "'nothing' holds no studies" in done.stderr
    done = enteron("train", "nowhere", "--out", "model", "--preset", "lite", code=1)
    assert "there is no folder 'nowhere'" in done.stderr

    wrong = write_root(tmp_path / "wrong", frames=4)
    path = wrong / "Labels" / "3.csv"
    path.write_text(path.read_text().replace(",0,", ",2,", 1))
    done = enteron("train", wrong, "--out", "model", "--preset", "lite", code=1)
    assert "the labels of study 3, line 2: 'z-line' is '2'; label cells are 0 or 1." in done.stderr

    silent = tmp_path / "silent"
    for study in STUDIES:
        write_frames(silent / study, range(4), size=32)
        write_labels(silent / "Labels" / f"{study}.csv", np.zeros((4, 17), bool))
    done = enteron("train", silent, "--out", "model", "--preset", "lite", code=1)
    assert "none of the 12 frames of 'train' shows any of the 17 labels" in done.stderr
    assert not (tmp_path / "model").exists()


def test_options_that_cannot_be_used(enteron, root, tmp_path):
    config = tmp_path / "mine.toml"
    for text, message in (
        ("epoch = 3", "mine.toml: epoch is not an option; did you mean 'epochs'."),
        ("[sampler]\nbalance = true", "mine.toml: [sampler] balance is not an option"),
        ("epochs = 0", "mine.toml: epochs = 0 is not valid"),
        ('regime = "full"\nviews = 2', "views belong to the frozen regime"),
        ("epochs = ", "mine.toml is not TOML"),
    ):
        config.write_text(text)
        done = enteron(
            "train", root, "--out", "model", "--preset", "lite", "--config", config, code=1
        )
        assert message in done.stderr
    done = enteron("train", root, "--out", "model", "--preset", "huge", code=2)
    assert "huge" in done.stderr
    (tmp_path / "file").write_text("")
    done = enteron("train", root, "--out", "file", "--preset", "lite", code=1)
    assert "'file' is a file; give a folder." in done.stderr
    done = enteron("train", root, "--out", "model", "--preset", "paper", code=1)
    assert "the weights of BiomedCLIP are not on this machine" in done.stderr
