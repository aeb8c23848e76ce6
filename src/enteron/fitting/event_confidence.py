"""Event confidences that are true: of events with 0.8, eight in ten show a lesion.

Reliability tables show whether they are. Three calibrators mend them: logistic (two numbers, the
default), isotonic (any rising curve) and inductive Venn-Abers (two isotonic fits, which bracket a
calibrated probability whatever the distribution). Which one is chosen by log-loss on studies that
did not fit it.

Events of one study are alike, so folds are made of studies, and Wilson's intervals, which take
events as independent, are somewhat too narrow.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from enteron.confidence import (
    EDGE,
    Calibrator,
    EventReliability,
    Floats,
    IsotonicCalibrator,
    LogisticCalibrator,
    Method,
    ReliabilityBin,
    VennAbersCalibrator,
    log_odds_of,
)
from enteron.errors import EnteronError
from enteron.fitting.events import fit_logistic
from enteron.labels import FINDINGS
from enteron.metrics.intervals import wilson_interval
from enteron.options import Options

Flags = NDArray[np.bool_]

BINS: Final = 10


def reliability(
    confidence: ArrayLike, is_true: ArrayLike, bins: int = BINS, level: float = 0.95
) -> EventReliability:
    """Compare confidences with outcomes in bins of equal width."""
    values, outcomes = _checked(confidence, is_true)
    edges = np.linspace(0, 1, bins + 1)
    # Decimal edges such as 0.3 belong to the bin that they start, whatever their last bit.
    index = np.minimum((values * bins + 1e-9).astype(np.int64), bins - 1)
    table: list[ReliabilityBin] = []
    for position in np.unique(index).tolist():
        inside = index == position
        count, true = int(inside.sum()), int(outcomes[inside].sum())
        table.append(
            ReliabilityBin(
                low=float(edges[position]),
                high=float(edges[position + 1]),
                events=count,
                confidence=float(values[inside].mean()),
                true_share=true / count,
                interval=wilson_interval(true, count, level),
            )
        )
    error = sum(b.events * abs(b.confidence - b.true_share) for b in table)
    return EventReliability(
        events=values.size,
        ece=error / max(values.size, 1),
        log_loss=float(log_losses(values, outcomes).mean()) if values.size else 0.0,
        bins=tuple(table),
    )


def log_losses(probability: ArrayLike, is_true: ArrayLike) -> Floats:
    """-log of the probability that was given to what happened, per event."""
    p = np.clip(np.asarray(probability, dtype=np.float64), EDGE, 1 - EDGE)
    return -np.log(np.where(np.asarray(is_true, dtype=bool), p, 1 - p))


def fit_logistic_calibrator(confidence: ArrayLike, is_true: ArrayLike) -> LogisticCalibrator:
    """The logistic curve of `fit_logistic`: with priors, so that one event is enough."""
    values, outcomes = _checked(confidence, is_true)
    intercept, slope = fit_logistic(log_odds_of(values), outcomes)
    return LogisticCalibrator(intercept=intercept, slope=slope)


def fit_isotonic_calibrator(confidence: ArrayLike, is_true: ArrayLike) -> IsotonicCalibrator:
    """The rising curve nearest to the outcomes in squares."""
    values, outcomes = _checked(confidence, is_true, at_least=1)
    knots, curve = isotonic_regression(values, outcomes.astype(np.float64))
    # Inside a constant stretch interpolation needs no knots.
    needed = np.ones(knots.size, dtype=bool)
    needed[1:-1] = (np.diff(curve)[:-1] > 0) | (np.diff(curve)[1:] > 0)
    return IsotonicCalibrator(
        knots=tuple(knots[needed].tolist()),
        values=tuple(curve[needed].tolist()),
        events=values.size,
    )


def isotonic_regression(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The distinct x, rising, and the rising values nearest to y there (pool adjacent violators).

    Equal x are one point at the mean of their y, with their number as its weight.
    """
    knots, position = np.unique(x, return_inverse=True)
    weights = np.bincount(position).tolist()
    sums = np.bincount(position, y).tolist()
    pooled: list[tuple[float, int, int]] = []  # sum of y, weight, points of each block
    for total, weight in zip(sums, weights, strict=True):
        block = (total, weight, 1)
        # A block that is not above the one before it is pooled with it.
        while pooled and pooled[-1][0] * block[1] >= block[0] * pooled[-1][1]:
            before = pooled.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
        pooled.append(block)
    means = [total / weight for total, weight, _ in pooled]
    return knots, np.repeat(means, [points for _, _, points in pooled])


def fit_venn_abers_calibrator(confidence: ArrayLike, is_true: ArrayLike) -> VennAbersCalibrator:
    """p0 and p1 for every possible confidence, in time n log n."""
    values, outcomes = _checked(confidence, is_true, at_least=1)
    knots, position = np.unique(values, return_inverse=True)
    weights = np.bincount(position)
    sums = np.bincount(position[outcomes], minlength=knots.size)
    upper = _with_a_true_event(weights.tolist(), sums.tolist())
    # A false event among outcomes y in this order is a true one among 1 - y in reverse order.
    mirrored = _with_a_true_event(weights[::-1].tolist(), (weights - sums)[::-1].tolist())
    lower = 1 - mirrored[::-1]
    first = np.append([True], np.diff(lower) > 0)
    last = np.append(np.diff(upper) > 0, [True])
    return VennAbersCalibrator(
        lower_knots=tuple(knots[first].tolist()),
        lower_values=tuple(lower[first].tolist()),
        upper_knots=tuple(knots[last].tolist()),
        upper_values=tuple(upper[last].tolist()),
    )


Point = tuple[int, int]


def _with_a_true_event(weights: list[int], sums: list[int]) -> Floats:
    """For each distinct x the isotonic value there when one true event is added at it.

    Algorithms 1 and 2 of Vovk et al. Isotonic values are slopes of the greatest convex minorant of
    the path of summed (weight, y). The added event is a step (1, 1), which is moved through the
    path from its beginning to its end, while a stack holds the minorant to the right of it.
    """

    def above_or_on(a: Point, b: Point, c: Point) -> bool:
        """Whether b lies on or above the line from a to c; x rises."""
        return (b[0] - a[0]) * (c[1] - a[1]) <= (b[1] - a[1]) * (c[0] - a[0])

    path: list[Point] = [(-1, -1), (0, 0)]
    for weight, total in zip(weights, sums, strict=True):
        path.append((path[-1][0] + weight, path[-1][1] + total))
    corners: list[Point] = []  # of the minorant, from right to left: the leftmost is the last
    for point in reversed(path):
        while len(corners) > 1 and above_or_on(point, corners[-1], corners[-2]):
            corners.pop()
        corners.append(point)
    slopes = np.empty(len(weights))
    before = path[0]  # where the added step starts
    for index, (weight, total) in enumerate(zip(weights, sums, strict=True)):
        left, right = corners[-1], corners[-2]
        slopes[index] = (right[1] - left[1]) / (right[0] - left[0])
        # Exchange the added step and the step of this x: the point between them moves.
        before = (before[0] + weight, before[1] + total)
        if not above_or_on(left, before, right):
            corners.pop()
            while len(corners) > 1 and above_or_on(before, corners[-1], corners[-2]):
                corners.pop()
            corners.append(before)
    return slopes


FIT: Final[dict[Method, Callable[[ArrayLike, ArrayLike], Calibrator]]] = {
    # From the simplest to the most flexible.
    "logistic": fit_logistic_calibrator,
    "isotonic": fit_isotonic_calibrator,
    "venn-abers": fit_venn_abers_calibrator,
}


class ConfidenceOptions(Options):
    """How a calibrator is chosen."""

    folds: int = Field(default=5, ge=2)  # of studies
    least_events: int = Field(default=50, ge=1)
    """Fewer events than this get the logistic calibrator: a curve with many steps needs more."""


class ConfidenceFit(Options):
    """The calibrator of one finding, and why it was chosen."""

    calibrator: Calibrator
    events: int
    studies: int
    log_loss: dict[Method, float] = Field(default_factory=dict)
    """Mean over events of studies that did not fit. Empty: too little data to compare."""
    before: EventReliability  # of the confidences as they came
    after: EventReliability | None = None  # calibrated by the chosen method, on held-out studies


def choose_calibrator(
    confidence: ArrayLike,
    is_true: ArrayLike,
    study: ArrayLike,
    options: ConfidenceOptions | None = None,
) -> ConfidenceFit:
    """The calibrator with the least held-out log-loss; logistic unless it is clearly worse.

    Clearly: by more than one standard error of the difference over studies.
    """
    options = ConfidenceOptions() if options is None else options
    values, outcomes = _checked(confidence, is_true, at_least=1)
    studies, position = np.unique(np.asarray(study), return_inverse=True)
    if position.size != values.size:
        raise EnteronError(
            f"{values.size} events have {position.size} studies", "give the study of each event"
        )
    before = reliability(values, outcomes)
    if studies.size < 2 or values.size < options.least_events:
        return ConfidenceFit(
            calibrator=fit_logistic_calibrator(values, outcomes),
            events=values.size,
            studies=studies.size,
            before=before,
        )
    held_out: dict[Method, Floats] = {
        method: held_out_probabilities(method, values, outcomes, position, options.folds)
        for method in FIT
    }
    losses: dict[Method, Floats] = {
        method: log_losses(p, outcomes) for method, p in held_out.items()
    }
    chosen = min(losses, key=lambda method: float(losses[method].mean()))
    gain = losses["logistic"] - losses[chosen]
    if gain.mean() <= _standard_error(gain, position):
        chosen = "logistic"
    return ConfidenceFit(
        calibrator=FIT[chosen](values, outcomes),
        events=values.size,
        studies=studies.size,
        log_loss={method: float(loss.mean()) for method, loss in losses.items()},
        before=before,
        after=reliability(held_out[chosen], outcomes),
    )


def choose_calibrators(
    confidence: ArrayLike,
    is_true: ArrayLike,
    finding: ArrayLike,
    study: ArrayLike,
    options: ConfidenceOptions | None = None,
) -> dict[str, ConfidenceFit]:
    """One fit per finding that has events; `finding` is the position in FINDINGS of each event."""
    values, outcomes = _checked(confidence, is_true)
    labels, studies = np.asarray(finding), np.asarray(study)
    return {
        FINDINGS[column]: choose_calibrator(
            values[labels == column], outcomes[labels == column], studies[labels == column], options
        )
        for column in np.unique(labels).tolist()
    }


def held_out_probabilities(
    method: Method, confidence: Floats, is_true: Flags, study: NDArray[np.int64], folds: int
) -> Floats:
    """For each event the probability by a calibrator fitted on the studies of the other folds.

    `study` counts from 0 without gaps. Studies are dealt to folds in turn, those with the most
    events first, so that folds are of similar size.
    """
    by_size = np.argsort(-np.bincount(study), kind="stable")
    fold = np.empty(by_size.size, dtype=np.int64)
    fold[by_size] = np.arange(by_size.size) % min(folds, by_size.size)
    probability = np.empty(confidence.size)
    for number in range(min(folds, by_size.size)):
        out = fold[study] == number
        calibrator = FIT[method](confidence[~out], is_true[~out])
        probability[out] = calibrator.probability(confidence[out])
    return probability


def _standard_error(values: Floats, study: NDArray[np.int64]) -> float:
    """Of the mean over events, with studies as the independent unit."""
    counts = np.bincount(study)
    residuals = np.bincount(study, values) - values.mean() * counts
    studies = counts.size
    variance = (residuals**2).sum() * studies / (studies - 1)
    return float(np.sqrt(variance) / values.size)


def _checked(confidence: ArrayLike, is_true: ArrayLike, at_least: int = 0) -> tuple[Floats, Flags]:
    values = np.asarray(confidence, dtype=np.float64)
    outcomes = np.asarray(is_true, dtype=bool)
    if values.shape != outcomes.shape or values.ndim != 1:
        raise EnteronError(
            f"confidences of shape {values.shape} do not fit outcomes of shape {outcomes.shape}",
            "give one of each per event",
        )
    if values.size < at_least:
        raise EnteronError("there are no events to fit on", "give at least one")
    if not ((values >= 0) & (values <= 1)).all():
        raise EnteronError("a confidence lies outside 0 to 1", "give probabilities")
    return values, outcomes
