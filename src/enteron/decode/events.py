"""Events as a decoder makes them: with the region they lie in and how sure their ends are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Event, Segment, Unit


@dataclass(frozen=True, order=True, slots=True)
class DecodedEvent(Event):
    """One label over [start, stop); `score` is the decoder's confidence in the event."""

    region: str | None = None  # where most of the event lies; None where no region was decoded
    onset: float | None = None  # posterior probability that it begins here, within a margin
    end: float | None = None  # and that it ends here


def edge_confidence(
    evidence: NDArray[np.floating],
    edges: NDArray[np.int64],
    kappa: float,
    margin: int = 2,
    reach: int = 8,
) -> NDArray[np.float64]:
    """Probability that each edge of an event lies within `margin` rows of where it was put.

    A local change-point posterior: of all places within `reach` rows, each weighs
    exp(kappa * the evidence on its inner side). `edges` are rows at which the event begins; for
    ends pass the evidence negated, since what lies behind an end must speak against the label.
    """
    total = np.concatenate(([0.0], np.cumsum(evidence, dtype=np.float64))) * kappa
    places = edges[:, None] + np.arange(-reach, reach + 1)[None, :]
    outside = (places < 0) | (places > evidence.size)
    # An event that begins at row b gains the evidence from b on: total[end] - total[b].
    weight = np.where(outside, -np.inf, -total[np.clip(places, 0, evidence.size)])
    weight = np.exp(weight - weight.max(axis=1, keepdims=True))
    near = weight[:, reach - margin : reach + margin + 1].sum(axis=1)
    return near / weight.sum(axis=1)


def to_annotation(
    study: str, unit: Unit, events: Sequence[DecodedEvent], *, cut: bool
) -> Annotation:
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
