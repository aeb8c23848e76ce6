"""From label rows to truth events, cut wherever the set of labels changes."""

from typing import overload

import numpy as np
from numpy.typing import NDArray

from enteron.errors import UnitError
from enteron.galar.table import LabelTable
from enteron.labels import LABELS
from enteron.types import Annotation, FrameUnit, IndexUnit, Segment, Unit

_BITS = 1 << np.arange(len(LABELS), dtype=np.int64)


@overload
def truth_events(table: LabelTable, unit: FrameUnit) -> Annotation[FrameUnit]: ...
@overload
def truth_events(table: LabelTable, unit: IndexUnit) -> Annotation[IndexUnit]: ...
def truth_events(table: LabelTable, unit: Unit) -> Annotation[FrameUnit] | Annotation[IndexUnit]:
    """The official truth of a study: one segment per run of an identical label set.

    Rows without any label make segments too, with an empty set, as in the official files.

    In frames a row holds up to the next stored frame, so that a study stored at every fifth frame
    has the same overlaps in both units. A hole in the numbering ends a run: nothing is known there.
    """
    if unit is Unit.FRAME:
        starts, stops = table.axis.frames, table.axis.ends()
        return Annotation(table.study, Unit.FRAME, _segments(table.values, starts, stops))
    if unit is Unit.INDEX:
        segments = _segments(table.values, table.index, table.index + 1)
        return Annotation(table.study, Unit.INDEX, segments)
    raise UnitError(f"'{unit}' is not a unit of events", "use 'frame' or 'index'")


def _segments(
    values: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[Segment, ...]:
    sets = values @ _BITS
    changes = (np.diff(sets) != 0) | (starts[1:] != stops[:-1])
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    last = np.concatenate((first[1:], [sets.size])) - 1
    names: dict[int, tuple[str, ...]] = {}
    segments: list[Segment] = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        code = int(sets[begin])
        if code not in names:
            names[code] = _named(values[begin])
        segments.append(Segment(int(starts[begin]), int(stops[end]), names[code]))
    return tuple(segments)


def _named(row: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(label for label, on in zip(LABELS, row, strict=True) if on)
