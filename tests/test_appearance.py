"""What studies look like: against a plain loop over all frames, and its promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.appearance import (
    DIRECTIONS,
    FRAMES_KEPT,
    LEAST_STUDIES,
    Appearance,
    Likeness,
    compare,
    fit_appearance,
)
from enteron.errors import ModelError

ENCODER = "a" * 64


def studies(count: int, seed: int, shift: float = 0.0, frames: int = 40) -> list[np.ndarray]:
    """Studies scattered around a common direction, each with a tint of its own."""
    generator = np.random.default_rng(seed)
    centre = np.ones(64) * 3
    centre[0] += shift
    return [
        centre + generator.normal(size=64) * 0.4 + generator.normal(size=(frames, 64)) * 0.5
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def drawn() -> Appearance:
    return fit_appearance({"drawings": studies(30, 1)}, ENCODER)


def literal_distance(study: np.ndarray, others: list[np.ndarray]) -> float:
    """Median over frames of the smallest distance to a kept frame, with plain loops."""
    points = [
        frame / np.linalg.norm(frame)
        for other in others
        for frame in other[np.linspace(0, len(other) - 1, FRAMES_KEPT).astype(int)]
    ]
    nearest = [
        min(np.linalg.norm(frame / np.linalg.norm(frame) - point) for point in points)
        for frame in study
    ]
    return float(np.median(nearest))


def test_distances_are_those_of_a_plain_loop(drawn):
    """64 features fit into 96 directions, so that nothing is lost by projecting but rounding."""
    known = studies(30, 1)
    new = studies(1, 5)[0]
    loo = [literal_distance(s, [o for o in known if o is not s]) for s in known]
    limit = np.quantile(loo, 0.95)
    assert drawn.kinds[0].limit == pytest.approx(limit, rel=2e-3)
    measured = compare(drawn, new, ENCODER).distances["drawings"]
    assert measured == pytest.approx(literal_distance(new, known) / limit, rel=3e-3)
    assert DIRECTIONS > 64


def test_own_kind_is_like_and_another_is_not(drawn):
    own = [compare(drawn, study, ENCODER).verdict for study in studies(60, 2)]
    assert own.count("unlike") <= 9
    other = [compare(drawn, study, ENCODER) for study in studies(20, 3, shift=12)]
    assert {result.verdict for result in other} == {"unlike"}
    assert all(result.distances["drawings"] > 1 for result in other)


def test_the_nearest_kind_is_named():
    both = fit_appearance(
        {"drawings": studies(10, 1), "real frames": studies(10, 4, shift=12)}, ENCODER
    )
    assert compare(both, studies(1, 6)[0], ENCODER).nearest == "drawings"
    assert compare(both, studies(1, 7, shift=12)[0], ENCODER).nearest == "real frames"


def test_few_studies_make_no_limit():
    few = fit_appearance({"real frames": studies(LEAST_STUDIES - 1, 1)}, ENCODER)
    assert few.kinds[0].limit is None
    assert compare(few, studies(1, 2)[0], ENCODER) == Likeness(verdict="unknown")


def test_a_study_without_frames_is_unknown_and_unreadable_frames_are_left_out(drawn):
    assert compare(drawn, np.empty((0, 64)), ENCODER).verdict == "unknown"
    study = studies(1, 8)[0]
    broken = np.insert(study, 3, np.nan, axis=0)
    assert compare(drawn, broken, ENCODER).verdict == compare(drawn, study, ENCODER).verdict


def test_survives_its_file(drawn):
    again = Appearance.model_validate_json(drawn.model_dump_json())
    new = studies(1, 9)[0]
    assert compare(again, new, ENCODER) == compare(drawn, new, ENCODER)


@given(st.sampled_from(["mean", "directions"]), st.sampled_from(["", "AAA", "no base 64", "AHw="]))
def test_damaged_files_are_refused(field, text):
    appearance = fit_appearance({"drawings": studies(8, 1)}, ENCODER)
    damaged = appearance.model_copy(update={field: text})
    with pytest.raises(ModelError, match=r"damaged|features where embeddings have"):
        compare(damaged, studies(1, 2)[0], ENCODER)


def test_embeddings_of_another_encoder_are_refused(drawn):
    with pytest.raises(ModelError, match="another encoder"):
        compare(drawn, studies(1, 2)[0], "b" * 64)
