"""Studies drawn from priors of one's own: `enteron priors fit`, then `enteron phantom --priors`."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from enteron.datasets.galar import find_studies
from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS
from enteron.phantom.dataset import PhantomOptions, StudyPlan, make_studies
from enteron.priors import Priors, load_priors, save_priors
from tests.phantom.test_dataset import digest

OPTIONS = PhantomOptions(frames=8, seed=3)


def longer(factor: float) -> Priors:
    """The packaged priors with every region lasting `factor` times as long."""
    table = load_priors().model_dump()
    for duration in table["regions"]["durations"].values():
        duration["fitted"]["log_mean"] += math.log(factor)
    return Priors.model_validate(table | {"source": f"{factor} times longer"})


def always(label: str) -> Priors:
    """The packaged priors with one label in every study."""
    table = load_priors().model_dump()
    share = table["presence"]["labels"][label]
    share["published"]["count"] = share["published"]["n"]
    return Priors.model_validate(table | {"source": f"always {label}"})


def draw(root: Path, priors: Priors | None, workers: int = 1, studies: int = 2) -> Path:
    for _ in make_studies(root, studies, OPTIONS, workers, priors=priors):
        pass
    return root


def test_longer_durations_shorten_studies_further():
    options = PhantomOptions(frames=400, seed=3)
    for number in (1, 2, 3):
        usual = StudyPlan(number, options, load_priors())
        double = StudyPlan(number, options, longer(2))
        assert double.timeline.frames_per_row == pytest.approx(2 * usual.timeline.frames_per_row)
        assert double.metadata.frames_per_row == pytest.approx(
            2 * (usual.metadata.frames_per_row or 0), rel=1e-3
        )


def test_a_label_that_is_always_present_is_in_every_study():
    options = PhantomOptions(frames=200, seed=3)
    shown = {
        name: sum(
            bool(StudyPlan(n, options, priors).table.values[:, COLUMN["ulcer"]].any())
            for n in range(1, 31)
        )
        for name, priors in (("usual", load_priors()), ("always", always("ulcer")))
    }
    assert shown["usual"] < 20
    assert shown["always"] == 30


@pytest.mark.slow
def test_workers_draw_from_the_same_priors(tmp_path):
    priors = always("polyp")
    alone = draw(tmp_path / "alone", priors)
    together = draw(tmp_path / "together", priors, workers=2)
    assert digest(together) == digest(alone)
    for number, entry in enumerate(find_studies(alone).values(), start=1):
        plan = StudyPlan(number, OPTIONS, priors)
        np.testing.assert_array_equal(entry.join().values, plan.table.values)
        film = plan.film()
        for row, frame in enumerate(entry.open()):
            np.testing.assert_array_equal(frame.image, film.frame(row))
    assert digest(draw(tmp_path / "usual", None)) != digest(alone)


def test_resuming_with_other_priors_is_refused(tmp_path):
    root = draw(tmp_path / "own", longer(2), studies=1)
    recorded = json.loads((root / "phantom.json").read_text())["priors"]
    assert recorded["source"] == "2 times longer"
    before = digest(root)
    for other, named in (
        (longer(3), r"priors of '3 times longer'"),
        (None, "the packaged priors"),
    ):
        with pytest.raises(EnteronError, match=f"'2 times longer' .* not from .*{named}.*; give"):
            draw(root, other)
    assert digest(root) == before
    draw(root, longer(2))  # the same ones may add studies
    assert sorted(find_studies(root)) == ["1", "2"]

    usual = draw(tmp_path / "usual", None, studies=1)
    assert "priors" not in json.loads((usual / "phantom.json").read_text())
    with pytest.raises(EnteronError, match="drawn from the packaged priors, not from the priors"):
        draw(usual, longer(2))


def test_the_packaged_priors_from_a_file_are_the_packaged_ones(tmp_path):
    save_priors(load_priors(), tmp_path / "copy.json")
    copied = draw(tmp_path / "copied", load_priors(tmp_path / "copy.json"), studies=1)
    assert digest(copied) == digest(draw(tmp_path / "usual", None, studies=1))


@pytest.mark.slow
def test_what_was_fitted_can_be_drawn_from(tmp_path, enteron):
    few = ("--frames", 40, "--workers", 1)
    enteron("phantom", "seen", "--studies", 3, "--device", "navicam", "--rarity", 0, *few)
    strides = [x for n in (1, 2, 3) for x in ("--stride-of", f"ukdd_navi_0000{n}=5")]
    enteron("priors", "fit", "seen/truth.json", "--out", "own.json", "--no-published", *strides)
    priors = load_priors(tmp_path / "own.json")
    assert priors.source == "truth.json (3 studies)"
    assert priors.share("blood") == 1

    enteron("phantom", "drawn", "--studies", 2, *few, "--priors", "own.json")
    options = PhantomOptions(frames=40)
    for number, entry in enumerate(find_studies(tmp_path / "drawn").values(), start=1):
        plan = StudyPlan(number, options, priors)
        np.testing.assert_array_equal(entry.join().values, plan.table.values)
        assert entry.open().frames_per_row == plan.metadata.frames_per_row
        # Every study that the priors were fitted to shows every finding, so these do too.
        assert all(plan.table.values[:, COLUMN[label]].any() for label in FINDINGS)
    assert "no problems" in enteron("check", "drawn").stdout
    refused = enteron("phantom", "drawn", "--studies", 3, *few, code=1)
    assert "not from the packaged priors; give another folder" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "priors own.json cannot be read"),
        ("{", "own.json is not JSON"),
        ('{"source": "x"}', "own.json: studies is missing"),
    ],
)
def test_a_missing_or_damaged_file_is_one_sentence(tmp_path, enteron, text, said):
    if text is not None:
        (tmp_path / "own.json").write_text(text)
    refused = enteron("phantom", "out", "--priors", "own.json", code=1)
    assert said in " ".join(refused.stderr.split())
    assert not (tmp_path / "out").exists()
