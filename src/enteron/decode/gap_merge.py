"""Gap merge, the decoder of the authors' earlier submission: thresholds, then short gaps closed.

It is not a preset. Tables show it for comparison.
"""

import numpy as np

from enteron.calibration.calibration import Calibration, calibrated
from enteron.decode.events import DecodedEvent
from enteron.decode.options import scaled_rows
from enteron.labels import LABELS
from enteron.runs import runs_of
from enteron.types import Scores

GAP = 15  # rows of a full-length study that the earlier submission closed


def gap_merge(scores: Scores, calibration: Calibration) -> list[DecodedEvent]:
    """Events of every label whose probability reaches its threshold, the most confident first."""
    p = calibrated(scores, calibration.paper)
    frames, ends = scores.axis.frames, scores.axis.ends()
    gap = scaled_rows(GAP, scores.shortening)
    events: list[DecodedEvent] = []
    for column, label in enumerate(LABELS):
        threshold = calibration.paper.thresholds[label]
        if threshold is None:
            continue
        spans = runs_of(p[:, column] >= threshold)
        if not len(spans):
            continue
        starts_event = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > gap))
        first = np.flatnonzero(starts_event)
        last = np.append(first[1:], len(spans)) - 1
        for start, stop in zip(spans[first, 0], spans[last, 1], strict=True):
            score = float(p[start:stop, column].mean())
            events.append(DecodedEvent(int(frames[start]), int(ends[stop - 1]), label, score))
    return sorted(events, key=lambda event: -(event.score or 0.0))
