"""Is a study like those that a promise was fitted on? p-values of signatures."""

import numpy as np
import pytest

from enteron.confidence import DIMENSIONS, Signatures, likeness, strangeness, study_signature


def features(rng, rows=200, shift=0.0):
    """Embeddings of a study: around the mean of its device."""
    return rng.normal(size=(rows, 64)) * 0.5 + np.linspace(1, 2, 64) + shift * np.sin(np.arange(64))


def test_signatures_tell_devices_apart():
    rng = np.random.default_rng(0)
    points = tuple(tuple(study_signature(features(rng)).tolist()) for _ in range(24))
    fitted = Signatures(encoder="x", points=points)
    assert len(points[0]) == DIMENSIONS
    same = [likeness(fitted, study_signature(features(rng))) for _ in range(20)]
    other = [likeness(fitted, study_signature(features(rng, shift=1.0))) for _ in range(20)]
    assert other == [1 / 25] * 20  # stranger than every fitted study
    assert np.mean(np.array(same) <= 0.05) < 0.2
    #  Two devices are two clouds: a study of either is not strange.
    both = tuple(
        tuple(study_signature(features(rng, shift=s)).tolist()) for s in (0, 1) for _ in range(12)
    )
    mixed = Signatures(encoder="x", points=both)
    assert likeness(mixed, study_signature(features(rng, shift=1.0))) > 0.05


def test_p_values_of_exchangeable_studies_are_uniform():
    rng = np.random.default_rng(0)
    p = []
    for _ in range(400):
        points = rng.normal(size=(20, 4))
        fitted = Signatures(encoder="x", points=tuple(map(tuple, points[:-1].tolist())))
        p.append(likeness(fitted, points[-1]))
    for level in (0.05, 0.1, 0.5):
        assert np.mean(np.array(p) <= level) <= level + 3 * np.sqrt(level / 400)


def test_strangeness_is_the_distance_to_the_nearest_other():
    points = [[0.0, 0.0], [3.0, 4.0], [3.0, 4.5]]
    assert strangeness(points) == pytest.approx([5.0, 0.5, 0.5])


def test_unreadable_frames_do_not_count():
    rng = np.random.default_rng(1)
    with_holes = features(rng)
    whole = study_signature(with_holes)
    with_holes = np.concatenate([with_holes, np.full((50, 64), np.nan)])
    np.testing.assert_allclose(study_signature(with_holes), whole, atol=1e-4)
