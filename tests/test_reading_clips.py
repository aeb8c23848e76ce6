"""`enteron read`: views that are averaged, and how far apart the frames of a clip are."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from enteron.folders.model import load_model, save_model
from enteron.folders.reading import RuntimeFacts
from enteron.folders.scores import read_scores
from enteron.inference.score import score_study
from enteron.inference.spacing import Spacing
from enteron.inference.store import open_embeddings
from enteron.model.network import Network, start_network
from enteron.model.options import ModelOptions
from enteron.reading import read
from tests.making import write_frames

SPACINGS = (Spacing(frames=5, share=0.7), Spacing(frames=3, share=0.3))


def different_network(**options) -> Network:
    """A network whose scores depend visibly on its clips."""
    network = start_network(ModelOptions(backbone="vit-tiny", **options))
    with torch.no_grad():
        for parameter in network.head_parameters():
            parameter.mul_(3)
    return network


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("clips")
    save_model(home / "model", different_network(), spacings=SPACINGS)
    save_model(home / "single", different_network(frames=1, local_differencing=False))
    save_model(home / "older", different_network())
    write_frames(home / "77", range(12))
    write_frames(home / "78", range(0, 60, 5))
    write_frames(home / "79", range(0, 48, 4))
    return home


@pytest.fixture
def folder(home, tmp_path) -> Path:
    for path in home.iterdir():
        shutil.copytree(path, tmp_path / path.name)
    return tmp_path


def run_facts(folder: Path) -> RuntimeFacts:
    facts = json.loads((folder / "run.json").read_text())["runtime"]
    return RuntimeFacts.model_validate(facts)


def test_views_are_stored_averaged_and_named(folder, command):
    rows = {}
    for words, views, count in (
        ((), "flip", 2), (("--tta",), "flip", 2), (("--no-tta",), "none", 1),
        (("--views", "none"), "none", 1), (("--views", "d4"), "d4", 8),
    ):  # fmt: skip
        out = folder / "-".join(("out", *words)).replace("--", "")
        code, _, error = command("read", "77", "--model", "model", "--out", out, *words)
        assert (code, error) == (0, "")
        assert run_facts(out).views == views
        assert np.load(out / "embeddings.npy").shape == (12, count, 512)
        rows[words] = read_scores(out / "scores.parquet").values
    np.testing.assert_array_equal(rows[()], rows["--tta",])
    np.testing.assert_array_equal(rows["--no-tta",], rows["--views", "none"])
    turned = folder / "out-views-d4"
    network, _ = load_model(folder / "model")
    expected = score_study(network, open_embeddings(turned / "embeddings.npy"), views="d4")
    np.testing.assert_array_equal(rows["--views", "d4"], expected.values)
    assert "seven mirrored and turned copies" in (turned / "report.html").read_text()
    # The same reading again has the same bytes; with other views it is refused, nothing lost.
    before = {name: (turned / name).read_bytes() for name in ("embeddings.npy", "scores.parquet")}
    assert command("read", "77", "--model", "model", "--out", turned, "--views", "d4")[0] == 0
    code, _, error = command("read", "77", "--model", "model", "--out", turned, "--views", "flips")
    assert code == 1
    assert "made with other views of each picture" in error
    assert {name: (turned / name).read_bytes() for name in before} == before


def test_two_names_for_views_must_agree(folder, command):
    words = ("read", "77", "--model", "model", "--out", "out")
    code, _, error = command(*words, "--views", "d4", "--no-tta")
    assert code == 1
    assert error.strip() == (
        "enteron: --views d4 and --no-tta contradict each other; give one of them."
    )
    assert not (folder / "out").exists()
    assert command(*words, "--views", "flip", "--tta")[0] == 0


def test_readings_of_earlier_versions_say_tta():
    facts = RuntimeFacts.model_validate({"name": "onnx", "why": "fastest", "tta": True})
    assert facts == RuntimeFacts(name="onnx", why="fastest", views="flip")
    assert RuntimeFacts.model_validate({"tta": False}).views == "none"
    assert RuntimeFacts.model_validate({"tta": None}).views is None


def test_clips_as_far_apart_as_in_training(folder, command):
    words = ("--model", "model", "--neighbour-step", "trained")
    network, record = load_model(folder / "model")
    assert record.spacings == SPACINGS
    # Every frame is stored: five apart, the commonest. Every fifth: stored neighbours are that.
    for study, step in (("77", 5), ("78", 1)):
        code, _, error = command("read", study, *words, "--out", f"trained-{study}")
        assert (code, error) == (0, "")
        out = folder / f"trained-{study}"
        assert run_facts(out).neighbour_step == step
        embeddings = open_embeddings(out / "embeddings.npy")
        expected = score_study(network, embeddings, step=step).values
        np.testing.assert_array_equal(read_scores(out / "scores.parquet").values, expected)
        stored = read(folder / study, model=folder / "model", out=folder / f"stored-{study}")
        assert stored.run.runtime is not None
        assert stored.run.runtime.neighbour_step is None
        assert np.array_equal(stored.scores.values, expected) == (step == 1)
    page = (folder / "trained-77" / "report.html").read_text()
    assert "those 5 and 10 stored frames before" in page


@pytest.mark.parametrize(
    ("study", "words", "problem"),
    [
        ("79", (), "the stored frames of the study are 4 apart, so none are 5, 3 apart"),
        ("77", ("--preset", "paper"), "the preset 'paper' compares stored neighbours"),
        ("77", ("--model", "single"), "the model looks at single frames"),
        ("77", ("--model", "older"), "does not say how far apart the frames of its training"),
    ],
)
def test_spacings_that_cannot_be_had_are_refused(folder, command, study, words, problem):
    read = ("read", study, "--model", "model", "--out", "out", "--neighbour-step", "trained")
    code, _, error = command(*read, *words)
    assert code == 1
    assert problem in error
    assert "leave out --neighbour-step, to compare stored neighbours." in error
    assert not (folder / "out" / "embeddings.npy").exists()
    assert not (folder / "out" / "run.json").exists()
