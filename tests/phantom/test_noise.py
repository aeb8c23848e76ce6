import numpy as np

from enteron.phantom.motion import wander
from enteron.phantom.wall import branching_lines, fractal_noise, look_up, smooth_noise, wrapped_blur


def seam(tile: np.ndarray) -> float:
    """Step across the tile's edges over the usual step inside it."""
    inside = np.abs(np.diff(tile, axis=0)).mean() + np.abs(np.diff(tile, axis=1)).mean()
    edge = np.abs(tile[0] - tile[-1]).mean() + np.abs(tile[:, 0] - tile[:, -1]).mean()
    return float(edge / inside)


def test_tiles_have_no_seam() -> None:
    rng = np.random.default_rng(1)
    for tile in (
        smooth_noise(rng, (128, 256), (8, 16)),
        fractal_noise(rng, (128, 128), (4, 4), 4),
        branching_lines(rng, (256, 256), 30, 200, 3.0, 0.0),
        wrapped_blur(rng.random((64, 64), dtype=np.float32), 2.0),
    ):
        assert seam(tile) < 1.6


def test_look_up_interpolates_and_wraps() -> None:
    tile = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = np.array([0.5, 3.5, -0.5, 1.0], np.float32)
    y = np.array([0.0, 0.0, 0.0, 4.0], np.float32)
    # Row 0 is 0 1 2 3: halfway 0-1, halfway 3-0 twice, and row 4 is row 0 again.
    assert look_up(tile, x, y).tolist() == [0.5, 1.5, 1.5, 1.0]


def test_wander_is_smooth_and_still_where_its_place_is() -> None:
    place = np.concatenate([np.linspace(0, 50, 500), np.full(500, 50.0)])
    path = wander(np.random.default_rng(3), place, 2.0)
    assert 0.5 < path[:500].std() < 1.5
    assert np.abs(np.diff(path)).max() < 0.5
    assert np.ptp(path[500:]) == 0
