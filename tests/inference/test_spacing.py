"""Clip spacing: what a training stores, and what a study offers of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.errors import ConfigError
from enteron.inference.score import score_study
from enteron.inference.spacing import Spacing, trained_step
from enteron.training.batches import clip_spacings
from enteron.training.sampling import Samples, StudySamples
from enteron.types import FrameLabels
from tests.inference.test_score import network, stored
from tests.training.making import some_labels


def samples(study: str, numbers: list[int], rows: list[int]) -> StudySamples:
    labels = FrameLabels.complete(some_labels(len(rows), 0))
    return StudySamples(study, np.array(numbers), np.array(rows), labels)


def test_spacings_by_hand():
    #  clips end at 10, 15, 20 (5 apart), at 0 (repeats the first frame: not counted), and at 101
    #  (1 apart); 30 comes ten frames after 20
    studies = Samples(
        [
            samples("a", [0, 5, 10, 15, 20, 30], [0, 2, 3, 4, 5]),
            samples("b", [100, 101], [1]),
        ]
    )
    spacings = clip_spacings(studies, 3, 1)
    assert spacings == (
        Spacing(frames=5, share=0.6), Spacing(frames=1, share=0.2), Spacing(frames=10, share=0.2),
    )  # fmt: skip
    # With every second stored frame: 10, 10, 10 and 15 apart, and 101 after 100.
    wide = clip_spacings(studies, 3, 2)
    assert {s.frames: s.share for s in wide} == pytest.approx({10: 0.6, 15: 0.2, 1: 0.2})
    assert clip_spacings(studies, 1, 1) == ()
    assert clip_spacings(Samples([]), 3, 1) == ()


@given(
    frames=st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True),
    stride=st.integers(1, 12),
    data=st.data(),
)
def test_the_commonest_spacing_that_a_study_offers(frames, stride, data):
    shares = [data.draw(st.integers(1, 20)) / 20 for _ in frames]
    spacings = [Spacing(frames=f, share=s) for f, s in zip(frames, shares, strict=True)]
    offered = {f: s for f, s in zip(frames, shares, strict=True) if f in range(0, 500, stride)}
    if not offered:
        with pytest.raises(ConfigError, match=f"are {stride} apart, so none are"):
            trained_step(spacings, stride)
        return
    step = trained_step(spacings, stride)
    assert step * stride in offered
    assert offered[step * stride] == max(offered.values())


def test_galar_and_the_challenge():
    """58 of 80 training studies are stored at every fifth frame, test studies at every frame."""
    spacings = (Spacing(frames=5, share=0.7), Spacing(frames=1, share=0.3))
    assert trained_step(spacings, 1) == 5
    assert trained_step(spacings, 5) == 1


def test_a_step_scores_every_nth_frame_as_if_only_those_were_stored():
    net, embeddings = network(), stored(41)
    wide = score_study(net, embeddings, step=5)
    fifth = stored(41)
    fifth = type(fifth)(
        fifth.record, fifth.frames[::5], np.arange(9, dtype=np.int32), fifth.features[::5]
    )
    np.testing.assert_allclose(wide.values[::5], score_study(net, fifth).values, atol=1e-6)
    assert np.abs(wide.values - score_study(net, embeddings).values).max() > 1e-3
    np.testing.assert_array_equal(
        score_study(net, embeddings, step=1).values, score_study(net, embeddings).values
    )
