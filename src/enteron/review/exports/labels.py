"""Reviewed studies as labels of frames, for the next model: present, absent or unknown.

They are written as `frames.csv` of the layout `table` (docs/data.md), which `enteron train` and
`enteron calibrate` read, and which can say "unknown"; Galar's own label files cannot. What nobody
looked at is unknown, never absent:

- a label is present where a confirmed event has it;
- it is absent where an event with it was rejected, relabelled or trimmed away, and in frames for
  which it was dismissed;
- a finding is also absent in frames that were looked at slowly before the report was signed, unless
  the model reported it there and nobody decided about that;
- a region is known between two landmarks that a person decided about, and from the caecum on;
- everything else is unknown.
"""

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.review.exports.reviewed import Reviewed
from enteron.review.measures import CAECAL, DUODENAL, GASTRIC
from enteron.review.state import Interval, ReviewState
from enteron.types import FrameLabels, Unit


def frame_labels(state: ReviewState, frames: NDArray[np.int64]) -> FrameLabels:
    """The 17 labels of a study's frames as far as the review knows them."""
    present = np.zeros((frames.size, len(LABELS)), dtype=np.bool_)
    absent, undecided = np.zeros_like(present), np.zeros_like(present)
    for event in state.events.values():
        said = event.machine
        if said is not None and event.decision != "open":
            absent[_rows(frames, (said.start, said.stop)), COLUMN[said.label]] = True
        if event.decision == "open":
            undecided[_rows(frames, (event.start, event.stop)), COLUMN[event.label]] = True
        elif event.decision == "rejected":
            absent[_rows(frames, (event.start, event.stop)), COLUMN[event.label]] = True
        else:
            rows = _rows(frames, (event.start, event.stop))
            present[rows, COLUMN[event.label]] = True
            if event.label in REGIONS:  # a frame shows one region
                absent[rows, : len(REGIONS)] = True
    for dismissed in state.dismissed:
        rows = _rows(frames, (dismissed.frame, dismissed.frame + 1))
        absent[rows, COLUMN[dismissed.label]] = True
    if state.signatures:
        looked_at = np.zeros(frames.size, dtype=np.bool_)
        for interval in state.viewed_slowly:
            looked_at[_rows(frames, interval)] = True
        columns = [COLUMN[label] for label in FINDINGS]
        absent[:, columns] |= looked_at[:, None] & ~undecided[:, columns]
    _add_regions(state, frames, present, absent)
    return FrameLabels(present, present | absent)


def _add_regions(
    state: ReviewState,
    frames: NDArray[np.int64],
    present: NDArray[np.bool_],
    absent: NDArray[np.bool_],
) -> None:
    """Regions by landmarks that a person decided about; they outweigh events of regions."""
    marks = {name: mark.frame for name, mark in state.landmarks.items() if mark.decided}
    gastric, duodenal, caecal = (marks.get(name) for name in (GASTRIC, DUODENAL, CAECAL))
    known = [
        ("stomach", gastric, duodenal),
        ("small intestine", duodenal, caecal),
        ("colon", caecal, state.end),
    ]
    for region, start, stop in known:
        if start is None or stop is None or start >= stop:
            continue
        rows = _rows(frames, (start, stop))
        present[rows, : len(REGIONS)] = False
        absent[rows, : len(REGIONS)] = True
        present[rows, COLUMN[region]] = True


def _rows(frames: NDArray[np.int64], interval: Interval) -> slice:
    start, stop = np.searchsorted(frames, interval).tolist()
    return slice(start, stop)


def labels_csv(studies: Sequence[Reviewed]) -> bytes:
    """`frames.csv` of several studies: a row per frame of which something is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("study", "frame", *LABELS))
    rows = 0
    for study in studies:
        for row in _table_rows(study):
            writer.writerow(row)
            rows += 1
    if not rows:
        raise EnteronError(
            "the reviews say nothing about any frame", "confirm or reject events, or sign a study"
        )
    return text.getvalue().encode()


def _table_rows(study: Reviewed) -> Iterable[tuple[object, ...]]:
    if study.state.unit is not Unit.FRAME:
        raise EnteronError(
            f"the reading of study {study.study} counts rows, not frames",
            "read the study itself with `enteron read`, and review that",
        )
    frames = study.reading.scores.axis.frames
    labels = frame_labels(study.state, frames)
    cells = np.where(labels.known, np.where(labels.present, "1", "0"), "")
    for row in np.flatnonzero(labels.informative).tolist():
        yield (study.study, int(frames[row]), *cells[row].tolist())
