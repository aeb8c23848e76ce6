"""Decoded events, the confidence of their ends, and their form in the official file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.decoding.options import DecodeOptions
from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Event, Segment, Unit, check_confidence


@dataclass(frozen=True, order=True, slots=True)
class DecodedEvent(Event):
    """One label over the frames [start, stop); `score` is the decoder's confidence in the event."""

    region: str | None = None  # where most of the event lies; None where no region was decoded
    onset: float | None = None  # posterior probability that it starts here, within a margin
    end: float | None = None  # and that it ends here

    def __post_init__(self) -> None:
        Event.__post_init__(self)  # `super()` does not find it in a class with slots
        check_confidence(self.onset, f"the onset of event '{self.label}' at {self.start}")
        check_confidence(self.end, f"the end of event '{self.label}' at {self.start}")


@dataclass(frozen=True)
class DecodedRun:
    """One label over the rows [start, stop): an event before rows become frames."""

    label: str
    start: int
    stop: int
    score: float
    onset: float | None = None
    end: float | None = None


def edge_confidence(
    evidence: NDArray[np.floating],
    edges: NDArray[np.int64],
    kappa: float,
    margin: int = 2,
    reach: int = 8,
) -> NDArray[np.float64]:
    """Probability that each edge of an event lies within `margin` rows of its decoded row.

    A local change-point posterior: every row within `reach` of the edge has the weight
    exp(kappa * the evidence on its inner side). `edges` are rows at which events start; for ends
    pass the negated evidence, since the rows after an end must be evidence against the label.
    """
    total = np.concatenate(([0.0], np.cumsum(evidence, dtype=np.float64))) * kappa
    rows = edges[:, None] + np.arange(-reach, reach + 1)[None, :]
    outside = (rows < 0) | (rows > evidence.size)
    # An event that starts at row b gains the evidence from b on: total[end] - total[b].
    weight = np.where(outside, -np.inf, -total[np.clip(rows, 0, evidence.size)])
    weight = np.exp(weight - weight.max(axis=1, keepdims=True))
    near = weight[:, reach - margin : reach + margin + 1].sum(axis=1)
    return near / weight.sum(axis=1)


def to_annotation(
    study: str,
    unit: Unit,
    events: Sequence[DecodedEvent],
    options: DecodeOptions | None = None,
) -> Annotation:
    """The segments of the official file, cut and ordered as the options say.

    Without options they are the events in their order.
    """
    annotation = (
        Annotation(study, unit, tuple(cut_at_changes(events)))
        if options is not None and options.cut
        else Annotation.from_events(study, unit, events)
    )
    if options is None or options.order == "rank":
        return annotation
    return Annotation(study, unit, tuple(sorted(annotation.segments, key=lambda s: s.start)))


def cut_at_changes(events: Sequence[DecodedEvent]) -> list[Segment]:
    """Pieces between neighbouring changes of the label set, the most confident first.

    The truth is cut wherever any label starts or ends. A piece is right only if its whole label
    set is, so its confidence is the product of its events' scores; equal ones stay in time order.
    """
    edges = np.unique([(event.start, event.stop) for event in events])
    if not edges.size:
        return []
    confidence = np.zeros((edges.size - 1, len(LABELS)))
    for event in events:
        first, last = np.searchsorted(edges, (event.start, event.stop))
        column = confidence[first:last, COLUMN[event.label]]
        # 0 means that the label is absent, so an event without confidence is written as 1e-9.
        np.maximum(column, max(event.score or 0.0, 1e-9), out=column)
    present = confidence > 0
    product = np.where(present, confidence, 1.0).prod(axis=1)
    pieces = _join_equal(edges, present, product)
    pieces.sort(key=lambda piece: (-piece[0], piece[1].start))
    return [segment for _, segment in pieces]


def _join_equal(
    edges: NDArray[np.int64], present: NDArray[np.bool_], product: NDArray[np.float64]
) -> list[tuple[float, Segment]]:
    """Pieces with their confidence: neighbours with the same label set become one piece.

    A joined piece has the lowest confidence of its parts; pieces without labels are left out.
    """
    pieces: list[tuple[float, Segment]] = []
    first = 0
    for position in range(len(present)):
        changes = position + 1 == len(present) or (present[position + 1] != present[position]).any()
        if changes:
            labels = tuple(LABELS[c] for c in np.flatnonzero(present[position]))
            if labels:
                segment = Segment(int(edges[first]), int(edges[position + 1]), labels)
                pieces.append((float(product[first : position + 1].min()), segment))
            first = position + 1
    return pieces
