"""Events as the official file wants them: cut where the label set changes, surest first."""

from collections.abc import Sequence

import numpy as np

from enteron.decode.events import DecodedEvent
from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment, U


def to_annotation(
    study: str, unit: U, events: Sequence[DecodedEvent], *, cut: bool
) -> Annotation[U]:
    """The study's segments in the order of their rank."""
    if cut:
        return Annotation(study, unit, tuple(cut_at_changes(events)))
    return Annotation.from_events(study, unit, events)


def cut_at_changes(events: Sequence[DecodedEvent]) -> list[Segment]:
    """Pieces between neighbouring changes of the label set, the surest first.

    The truth is cut wherever any label begins or ends. A piece is right only if its whole label
    set is, so its certainty is the product of its events' scores; equal ones keep their time.
    """
    edges = np.unique([(event.start, event.stop) for event in events])
    if not edges.size:
        return []
    certainty = np.zeros((edges.size - 1, len(LABELS)))
    for event in events:
        first, last = np.searchsorted(edges, (event.start, event.stop))
        column = certainty[first:last, COLUMN[event.label]]
        # Nothing certain is written as 0, which would read as absence.
        np.maximum(column, max(event.score or 0.0, 1e-9), out=column)
    shown = certainty > 0
    product = np.where(shown, certainty, 1.0).prod(axis=1)
    pieces = _joined(edges, shown, product)
    pieces.sort(key=lambda piece: (-piece[0], piece[1].start))
    return [segment for _, segment in pieces]


def _joined(
    edges: np.ndarray, shown: np.ndarray, product: np.ndarray
) -> list[tuple[float, Segment]]:
    """Neighbouring pieces with the same label set are one; pieces without labels are none."""
    pieces: list[tuple[float, Segment]] = []
    begin = 0
    for position in range(len(shown)):
        last = position + 1 == len(shown) or (shown[position + 1] != shown[position]).any()
        if last:
            labels = tuple(LABELS[c] for c in np.flatnonzero(shown[position]))
            if labels:
                segment = Segment(int(edges[begin]), int(edges[position + 1]), labels)
                pieces.append((float(product[begin : position + 1].min()), segment))
            begin = position + 1
    return pieces
