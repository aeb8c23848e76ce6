"""Drawn frames beside real ones: figures measured on 12,229 frames of Kvasir-Capsule.

The real figures are constants here; `enteron bench phantom_realism` computes them again.
"""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from enteron.labels import COLUMN
from enteron.phantom.film import Film

# Share (%) of neighbouring real frames that differ by less than 1, 2, 3 and 6 grey levels.
REAL_SHARES = {1: 0.7, 2: 7.4, 3: 14.3, 6: 37.0}
# Median side of the real boxes, as a share of the frame's.
REAL_SIDES = {"angiectasia": 0.18, "erythema": 0.17, "ulcer": 0.19}
STUDIES, PAIRS = 12, 10


def bowel(rows: int) -> NDArray[np.bool_]:
    labels = np.zeros((rows, 17), np.bool_)
    labels[:, COLUMN["small intestine"]] = True
    return labels


@pytest.fixture(scope="module")
def pairs() -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Neighbouring frames of small-bowel studies, reduced as the real ones were."""
    frames: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = []
    for study in range(STUDIES):
        film = Film(bowel(4000), "olympus", 8100 + study)
        for row in np.random.default_rng(study).integers(1, 4000, PAIRS):
            first, second = (
                np.asarray(
                    cv2.resize(film.frame(int(k)), (224, 224), interpolation=cv2.INTER_AREA),
                    np.uint8,
                )
                for k in (row - 1, row)
            )
            frames.append((first, second))
    return frames


def inside() -> NDArray[np.bool_]:
    across = (np.arange(224) + 0.5) * 2 / 224 - 1
    x, y = np.abs(np.meshgrid(across, across))
    return (np.maximum(x, y) < 0.97) & (x + y < 1.63)


def test_neighbouring_frames_differ_as_real_ones_do(pairs) -> None:
    def small(frame: NDArray[np.uint8]) -> NDArray[np.float64]:
        grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        return cv2.resize(grey, (64, 64), interpolation=cv2.INTER_AREA).astype(np.float64)

    differences = np.array([np.abs(small(a) - small(b)).mean() for a, b in pairs])
    shares = {limit: 100 * float((differences < limit).mean()) for limit in REAL_SHARES}
    # 120 pairs: chance alone moves a share of 37 % by 4 points.
    for limit, real in REAL_SHARES.items():
        assert abs(shares[limit] - real) < 10, shares
    assert 6 < np.median(differences) < 10.5


def test_the_small_bowel_has_the_light_and_colours_of_real_frames(pairs) -> None:
    lab = np.array(
        [
            cv2.cvtColor(frame.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)[inside()]
            for frame, _ in pairs
        ]
    )
    means, deviations = lab.mean(axis=1), lab.std(axis=1)
    # The recorder holds the exposure: 80 % of real frames have a mean L* of 46.9 to 49.7.
    assert ((means[:, 0] > 44) & (means[:, 0] < 53)).mean() > 0.8
    # Real medians: L* 48.5, a* 21.8, b* 39.1; spread of L* 8.4, of a* 3.7, of b* 4.8.
    np.testing.assert_allclose(np.median(means, axis=0), [48.5, 21.8, 39.1], atol=4)
    np.testing.assert_allclose(np.median(deviations, axis=0), [8.4, 3.7, 4.8], atol=1.6)


@pytest.mark.parametrize("label", list(REAL_SIDES))
def test_lesions_have_the_sizes_of_real_boxes(label: str) -> None:
    sides: list[float] = []
    for seed in range(12):
        marked = bowel(20)
        marked[5:15, COLUMN[label]] = True
        frames = [
            cv2.medianBlur(Film(rows, "olympus", 8300 + seed).frame(10), 5).astype(int)
            for rows in (marked, bowel(20))
        ]
        changed = (np.abs(frames[0] - frames[1]).max(axis=2) > 18).astype(np.uint8)
        changed = cv2.morphologyEx(changed, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        if changed.any():
            _, _, width, height = cv2.boundingRect(changed)
            sides.append(float(np.sqrt(width * height)) / 336)
    assert len(sides) >= 10
    assert REAL_SIDES[label] / 1.5 < np.median(sides) < REAL_SIDES[label] * 1.5, sides


def test_olympus_has_the_octagon_of_real_frames() -> None:
    frame = Film(bowel(3), "olympus", 4).frame(1).max(axis=2)
    # Real corners are cut 36.5 of 224 pixels from the corner along each side: 54.75 of 336.
    for corner in (frame, frame[:, ::-1], frame[::-1], frame[::-1, ::-1]):
        diagonal = np.array([corner[k, k] for k in range(60)])
        assert (diagonal[:26] == 0).all()
        assert (diagonal[31:] > 20).all()
    assert (frame[168, 3:-3] > 20).all()
