"""The timeline: transit bar, landmarks and a lane per finding, annotated ones beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

from enteron.decode.events import DecodedEvent
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.report.clock import Clock
from enteron.report.gaps import Gap, longest
from enteron.report.run import RunFacts
from enteron.types import Annotation, FrameUnit


@dataclass(frozen=True)
class Mark:
    """A stretch of a lane; places are shares of the study's length."""

    at: float
    width: float
    said: str  # for a tooltip and for screen readers
    number: int | None = None  # of the event; None for annotation
    score: float | None = None
    label: str = ""

    @property
    def column(self) -> int:
        return COLUMN[self.label]


@dataclass(frozen=True)
class Lane:
    """What one row of the timeline shows."""

    name: str
    column: int  # of the label; the row's colour and curve
    marks: tuple[Mark, ...]
    truth: tuple[Mark, ...]


@dataclass(frozen=True)
class TimelinePanel:
    """All rows, in the order in which they stand."""

    transit: tuple[Mark, ...]
    transit_truth: tuple[Mark, ...]
    landmarks: tuple[Lane, ...]
    findings: tuple[Lane, ...]
    regions: tuple[Lane, ...]  # for their curves only
    gaps: tuple[Mark, ...]
    unreadable: tuple[Mark, ...]
    with_truth: bool
    word: str


MOST_TICKS = 400  # unreadable frames that get a tick of their own
MOST_GAPS = 400  # gaps that are drawn; all are counted under completeness


def timeline_panel(
    events: Sequence[DecodedEvent],
    clock: Clock,
    run: RunFacts,
    truth: Annotation[FrameUnit] | None,
    gaps: Sequence[Gap] = (),
) -> TimelinePanel:
    """Marks for every event, every annotated stretch, every gap and every unreadable frame."""
    place = _Place(clock)
    annotated = {} if truth is None else _merged(truth)
    marks = {label: [] for label in COLUMN}
    for number, event in enumerate(events):
        marks[event.label].append(place.event(number, event))

    def true(label: str) -> tuple[Mark, ...]:
        return tuple(place.annotated(label, *span) for span in annotated.get(label, ()))

    def lanes(labels: Sequence[str]) -> tuple[Lane, ...]:
        return tuple(
            Lane(label, COLUMN[label], tuple(marks[label]), true(label)) for label in labels
        )

    bad = () if run.unreadable is None else run.unreadable.frames[:MOST_TICKS]
    return TimelinePanel(
        transit=tuple(mark for label in REGIONS for mark in marks[label]),
        transit_truth=tuple(mark for label in REGIONS for mark in true(label)),
        landmarks=lanes(LANDMARKS),
        findings=lanes(FINDINGS),
        regions=lanes(REGIONS),
        gaps=tuple(
            place.mark(start, stop, f"{clock.word}s {start:,} to {stop - 1:,} are missing")
            for start, stop in longest(list(gaps), MOST_GAPS)
        ),
        unreadable=tuple(
            place.mark(frame, frame + 1, f"{clock.word} {frame:,} cannot be read") for frame in bad
        ),
        with_truth=truth is not None,
        word=clock.word,
    )


class _Place:
    """Frame numbers as shares of the study's length, within it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first = clock.first
        self.length = max(1, clock.end - self.first)

    def mark(self, start: int, stop: int, said: str) -> Mark:
        at = min(max((start - self.first) / self.length, 0.0), 1.0)
        end = min(max((stop - self.first) / self.length, at), 1.0)
        return Mark(round(at, 7), round(end - at, 7), said)

    def event(self, number: int, event: DecodedEvent) -> Mark:
        sure = "" if event.score is None else f", confidence {event.score:.2f}"
        mark = self.mark(event.start, event.stop, f"{event.label}, {self._span(event)}{sure}")
        return Mark(mark.at, mark.width, mark.said, number, event.score, event.label)

    def annotated(self, label: str, start: int, stop: int) -> Mark:
        said = f"annotated: {label}, {self.clock.at(start)} to {stop - 1:,}"
        mark = self.mark(start, stop, said)
        return Mark(mark.at, mark.width, mark.said, label=label)

    def _span(self, event: DecodedEvent) -> str:
        if len(event) == 1:
            return self.clock.at(event.start)
        return f"{self.clock.at(event.start)} to {event.stop - 1:,}"


def _merged(truth: Annotation[FrameUnit]) -> dict[str, list[tuple[int, int]]]:
    """Annotated stretches per label, those that touch joined: the file cuts them everywhere."""
    merged: dict[str, list[tuple[int, int]]] = {}
    for label, spans in truth.spans().items():
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(spans.tolist()):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((start, stop))
        merged[label] = joined
    return merged
