"""Probability curves for the page: 8 bits each, with the frame of every row, in little space."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from enteron.report.clock import Clock
from enteron.types import FrameAxis, Scores

MOST_ROWS: Final = 160_000
"""Rows that are embedded one by one; longer studies as minimum and maximum of a few rows each.
The page builds coarser levels from these, so that drawing takes the same time at any zoom."""

KNOTS: Final = 2_000  # of times that do not follow a constant rate
TOLERANCE: Final = 0.05  # seconds by which a constant rate may miss a stated time


@dataclass(frozen=True)
class Curves:
    """Scores of a study in 8 bits: (17, buckets) of the least and greatest value per bucket."""

    bucket: int  # rows per bucket
    low: NDArray[np.uint8]
    high: NDArray[np.uint8]

    @property
    def full(self) -> bool:
        """Every row is there by itself."""
        return self.bucket == 1


def quantised(scores: Scores, most_rows: int = MOST_ROWS) -> Curves:
    """Scores as whole numbers from 0 to 255; with more rows than allowed, in buckets of rows."""
    values = np.rint(scores.values.T * 255).astype(np.uint8)  # (17, rows)
    rows = values.shape[1]
    bucket = -(-rows // most_rows)
    if bucket == 1:
        return Curves(1, values, values)
    padded = np.pad(values, ((0, 0), (0, -rows % bucket)), mode="edge")
    grouped = padded.reshape(len(values), -1, bucket)
    return Curves(bucket, grouped.min(axis=2), grouped.max(axis=2))


def curve_data(scores: Scores, clock: Clock) -> dict[str, Any]:
    """What the page's script needs to draw curves and to tell frame and time under the cursor."""
    curves = quantised(scores)
    axis = scores.axis
    return {
        "rows": len(axis),
        "bucket": curves.bucket,
        "high": b64encode(curves.high.tobytes()).decode(),
        "low": None if curves.full else b64encode(curves.low.tobytes()).decode(),
        "step": axis.step,
        "first": int(axis.frames[0]),
        "end": clock.end,
        "runs": frame_runs(axis),
        "times": time_knots(clock),
    }


def frame_runs(axis: FrameAxis) -> list[tuple[int, int]]:
    """(row, frame) wherever a row does not follow its predecessor by exactly one step."""
    rows = np.concatenate(([0], np.flatnonzero(np.diff(axis.frames) != axis.step) + 1))
    return list(zip(rows.tolist(), axis.frames[rows].tolist(), strict=True))


def time_knots(clock: Clock) -> list[tuple[float, float]] | None:
    """(frame, seconds) between which time runs evenly; two of them for a constant rate."""
    if not clock.known:
        return None
    frames = clock.axis.frames
    ends = [int(frames[0]), clock.end]
    if clock.times is not None and len(frames) > 1:
        straight = np.interp(frames, frames[[0, -1]], clock.times[[0, -1]])
        if np.abs(straight - clock.times).max() > TOLERANCE:
            places = np.unique(np.linspace(0, len(frames) - 1, KNOTS).round().astype(int))
            return [(int(frames[row]), round(float(clock.times[row]), 2)) for row in places]
    return [(frame, round(clock.seconds(frame) or 0.0, 3)) for frame in ends]
