"""Small charts of the evaluation page as numbers: curves, dots and bars in a drawing of fixed size.

Templates turn them into SVG. All of them share one frame: WIDTH x HEIGHT with the plotting area
between the margins; y runs from 0 at the bottom to 1 at the top.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from enteron.confidence import EventReliability
from enteron.labels import COLUMN
from enteron.metrics.froc import Froc
from enteron.metrics.lesion_evaluation import curve_points

WIDTH: Final = 640
HEIGHT: Final = 340
LEFT: Final = 46
RIGHT: Final = 14
TOP: Final = 10
BOTTOM: Final = 42


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    position: float  # in units of the drawing
    text: str


@dataclass(frozen=True)
class Line:
    """A curve."""

    label: str  # a finding, or 'all findings'
    column: int | None  # selects the colour; None: the ink's
    points: str  # of an SVG polyline


@dataclass(frozen=True)
class Dot:
    """One study."""

    x: float
    y: float
    radius: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Curves and dots on common axes."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...] = ()
    dots: tuple[Dot, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def _x(value: float, most: float) -> float:
    """Positions of counts: logarithmic, with 0 at the left."""
    share = math.log2(1 + value) / math.log2(1 + most)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _count_ticks(most: float) -> tuple[Tick, ...]:
    values = [0.0, 0.5, *(float(2**power) for power in range(14))]
    return tuple(Tick(_x(value, most), f"{value:g}") for value in values if value <= most)


def _share_ticks() -> tuple[Tick, ...]:
    return tuple(Tick(_y(percent / 100), f"{percent} %") for percent in range(0, 101, 20))


def froc_chart(overall: Froc, findings: dict[str, Froc]) -> Chart:
    """Share of lesions found against false events per study, from no event shown to all."""
    most = max(1.0, float(overall.false_per_study[-1]))
    lines = [
        Line(finding, COLUMN[finding], _polyline(curve, most))
        for finding, curve in findings.items()
        if curve.lesions
    ]
    lines.append(Line("all findings", None, _polyline(overall, most)))
    return Chart(_count_ticks(most), _share_ticks(), lines=tuple(lines))


def _polyline(curve: Froc, most: float) -> str:
    points = [
        f"{_x(float(curve.false_per_study[i]), most)},{_y(float(curve.recall[i]))}"
        for i in curve_points(curve)
        if not math.isnan(curve.recall[i])
    ]
    return " ".join(points)


def study_chart(studies: Sequence[tuple[str, int, int, int]]) -> Chart:
    """A dot per study with lesions: (name, lesions, found, false events)."""
    most = max([1.0, *(1.2 * false for _, _, _, false in studies)])  # dots need some room
    largest = max((lesions for _, lesions, _, _ in studies), default=1)
    dots = [
        Dot(
            _x(false, most),
            _y(found / lesions),
            round(3.5 + 6.5 * math.sqrt(lesions / largest), 1),
            f"{name}: {found} of {lesions} lesions found, {false} false events",
        )
        for name, lesions, found, false in studies
        if lesions
    ]
    return Chart(_count_ticks(most), _share_ticks(), dots=tuple(dots))


# ---- Reliability: small squares, confidence to the right, share of true events upward

SIDE: Final = 150
EDGE: Final = 8


@dataclass(frozen=True)
class ReliabilityDot:
    """A bin of events."""

    x: float
    y: float
    low: float  # ends of the interval of the true share
    high: float
    radius: float
    text: str


@dataclass(frozen=True)
class ReliabilityChart:
    """One finding."""

    label: str
    column: int
    events: int
    error: float  # mean difference of confidence and share
    dots: tuple[ReliabilityDot, ...]
    side: int = SIDE
    edge: int = EDGE


def reliability_chart(label: str, result: EventReliability) -> ReliabilityChart:
    """Bins of confidence beside the share of true events in them."""

    def place(share: float) -> float:
        return round(EDGE + share * (SIDE - 2 * EDGE), 1)

    largest = max((b.events for b in result.bins), default=1)
    dots = tuple(
        ReliabilityDot(
            place(b.confidence),
            place(1 - b.true_share),
            place(1 - b.interval[0]),
            place(1 - b.interval[1]),
            round(2.5 + 4 * math.sqrt(b.events / largest), 1),
            f"confidence {b.confidence:.2f}: {b.true_share:.0%} of {b.events} events true",
        )
        for b in result.bins
    )
    return ReliabilityChart(label, COLUMN[label], result.events, result.ece, dots)
