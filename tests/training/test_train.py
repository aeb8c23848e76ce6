"""`enteron train` as a person meets it: a model folder, a page, and every way to fail."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from enteron.datasets.splits import Split, save_split
from enteron.folders.model import load_model
from enteron.labels import LABELS
from enteron.model.backbones import lite_backbone
from tests.making import write_frames, write_labels
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
def whole(root, features, quick, tmp_path_factory):
    """A model folder, and what was said while it was made."""
    place = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [sys.executable, "-m", "enteron", *arguments(root, features, quick), "--out", "model"],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return place / "model", done.stdout


def test_what_is_said(whole):
    _, said = whole
    assert "Training on 3 studies, 120 frames; validating on 1 study, 40 frames" in said
    assert "No training frame shows z-line, pylorus, ileocecal valve, active bleeding" in said
    assert "Rarest label: polyp, " in said
    assert "times as often as in the data" in said
    assert "epoch  1: train loss" in said
    assert "Best epoch" in said
    assert "Look at model/training/training.html." in said


def test_a_model_folder(enteron, root, whole):
    model, _ = whole
    assert sorted(path.name for path in model.iterdir()) == [
        "card.md", "model.json", "model.safetensors", "split.json", "training",
    ]  # fmt: skip
    network, record = load_model(model)
    assert record.split_hash == json.loads((model / "split.json").read_text())["hash"]
    assert record.training["frames"] == 120
    assert record.training["frames by label"]["ulcer"] == 0
    assert set(record.results) >= {"macro ap", "macro ap present", "findings ap"}
    assert network.options.backbone == "lite"
    options = json.loads((model / "training" / "options.json").read_text())
    assert (options["seed"], options["epochs"], options["regime"]) == (42, 2, "frozen")


def test_a_page_for_people(whole):
    model, _ = whole
    page = (model / "training" / "training.html").read_text()
    history = json.loads((model / "training" / "history.json").read_text())["epochs"]
    best = max(history, key=lambda record: record["figures"]["macro_ap"])
    marked = page.split('<tr class="best">')[1].split("</tr>")[0]
    assert f"<td>{best['epoch']}</td><td>{best['train_loss']:.4f}</td>" in marked
    assert f"<td>{best['figures']['macro_f1']:.4f}</td>" in marked
    for label in LABELS:
        assert f"</span>{label}</td>" in page
    assert page.count("<svg") == 4
    # Names of formats only: nothing is fetched, and no place on this machine is told.
    assert set(re.findall(r"https?://([^/\"]+)", page)) == {"www.w3.org"}
    assert str(model.parent) not in page
    assert list((model / "training" / "board").glob("events.*"))


def test_a_finished_training_is_left_alone(enteron, root, whole):
    model, _ = whole
    again = enteron("train", root, "--out", model, "--resume")
    assert again.stdout == "model is finished: there is nothing to resume.\n"
    refused = enteron("train", root, "--out", model, "--preset", "lite", code=1)
    assert "'model' holds a model already; give another folder." in refused.stderr


def test_a_killed_training_goes_on_to_the_same_weights(
    enteron, root, features, quick, whole, tmp_path
):
    given = arguments(root, features, quick)
    command = [sys.executable, "-m", "enteron", *given, "--out", "killed"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch  1"):
                process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "killed" / "model.json").exists()
    refused = enteron(*given, "--out", "killed", code=1)
    assert "holds a training that did not finish; add --resume to go on" in refused.stderr
    other = enteron(*given, "--out", "killed", "--resume", "--epochs", 3, code=1)
    assert "was begun with another 'epochs'; resume with the same options" in other.stderr
    resumed = enteron("train", root, "--out", "killed", "--features", features, "--resume")
    assert "Going on after 1 of 2 epochs" in resumed.stdout
    for name in ("model.safetensors", "model.json", "split.json", "training/history.json"):
        assert (whole[0] / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name
    assert not (tmp_path / "killed" / "checkpoint").exists()


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
    assert "none.json is not a split" in done.stderr
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
