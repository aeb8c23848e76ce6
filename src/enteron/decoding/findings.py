"""Findings: smoothing, candidate runs by hysteresis, their persistence, limits and confidence.

Rows are those of the study at hand. `row_scale` says how many rows of a full-length study one of
them stands for, and is needed wherever a length is compared with full-length statistics.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration, log_odds, probability
from enteron.decoding.events import DecodedRun
from enteron.decoding.evidence import running_mean_log_odds, running_median
from enteron.decoding.options import FindingOptions
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARKS
from enteron.priors import Priors
from enteron.runs import Runs, hysteresis, means, scaled_rows


@dataclass(frozen=True)
class Candidate:
    """A run of rows that may be an event."""

    label: str
    start: int
    stop: int
    mean: float  # mean probability over the run
    peak: float  # largest probability in it
    persistence: float  # the paper's S

    @property
    def duration(self) -> int:
        """The paper's d = t_e - t_s with both ends inclusive: 0 for a single row."""
        return self.stop - 1 - self.start


def smooth_findings(
    p: NDArray[np.float32], options: FindingOptions, windows: Mapping[str, int]
) -> NDArray[np.float32]:
    """(rows, 9): the columns of the findings, smoothed (paper stage 1).

    `windows` are the rows of each label's mean, used where the options have no median window.
    """
    columns = [COLUMN[label] for label in FINDINGS]
    if options.window is not None:
        return running_median(p[:, columns], options.window)
    smoothed = np.empty((p.shape[0], len(FINDINGS)), dtype=np.float32, order="F")
    for position, label in enumerate(FINDINGS):
        column = np.ascontiguousarray(p[:, columns[position]])
        smoothed[:, position] = running_mean_log_odds(column, windows[label])
    return smoothed


def gate(
    p: NDArray[np.float32],
    regions: Iterable[DecodedRun],
    priors: Priors,
    factor: float = 0.3,
    implausible: float = 0.001,
) -> NDArray[np.float32]:
    """(rows, 17) probabilities times `factor` where P(label | region) < `implausible`.

    Paper stage 3: "anatomy gating attenuating predictions by 70 % in anatomically implausible
    regions"; which ones those are is decision 28. Rows without a decoded region are not changed.
    """
    if factor == 1:
        return p
    result = p.copy(order="K")
    for region in regions:
        shares = priors.given_region.shares[region.label]
        for column, label in enumerate(LABELS):
            gated = label in LANDMARKS or label in FINDINGS
            if gated and shares.get(label, 0.0) < implausible:
                result[region.start : region.stop, column] *= np.float32(factor)
    return result


_LEAST_SHARE = 1e-4  # of a region's frames: nothing is impossible where it was not seen


def finding_log_ratios(priors: Priors) -> dict[str, dict[str, float]]:
    """By region and finding the logarithm of P(finding | region) / P(finding)."""
    shares, frames = priors.given_region.shares, priors.given_region.frames
    total = max(sum(frames.values()), 1)
    ratios: dict[str, dict[str, float]] = {region: {} for region in shares}
    for label in FINDINGS:
        overall = sum(frames[region] * shares[region].get(label, 0.0) for region in shares) / total
        for region in shares:
            share = shares[region].get(label, 0.0)
            ratios[region][label] = math.log((share + _LEAST_SHARE) / (overall + _LEAST_SHARE))
    return ratios


def regions_at(rows: NDArray[np.int64], regions: Sequence[DecodedRun]) -> list[str | None]:
    """The region that each row lies in; None where there is none."""
    found: list[str | None] = [None] * rows.size
    for region in regions:
        for index in np.flatnonzero((rows >= region.start) & (rows < region.stop)).tolist():
            found[index] = region.label
    return found


def median_run_length(label: str, priors: Priors) -> int:
    """Median of the label's run lengths in full-length rows, rounded down to an odd number."""
    rows = max(1, int(priors.run_lengths(label).quantile(0.5)))
    return rows if rows % 2 else rows - 1


def persistence(
    mean: NDArray[np.float64], spans: Runs, row_scale: float = 1.0
) -> NDArray[np.float64]:
    """S = mean probability x ln(1 + d), d = t_e - t_s inclusive (paper stage 3, decision 29).

    d counts rows of a full-length study.
    """
    return mean * np.log1p((spans[:, 1] - 1 - spans[:, 0]) * row_scale)


def find_candidates(
    label: str, p: NDArray[np.float32], threshold: float, low: float, row_scale: float = 1.0
) -> list[Candidate]:
    """Candidates in one smoothed and gated column, by hysteresis (paper stage 3).

    `low` is the lower threshold as a share of the upper one.
    """
    spans = hysteresis(p, threshold, low * threshold)
    if not len(spans):
        return []
    mean = means(p, spans)
    peak = np.maximum.reduceat(p, spans.ravel()[:-1] if spans[-1, 1] == p.size else spans.ravel())
    score = persistence(mean, spans, row_scale)
    return [
        Candidate(label, int(a), int(b), float(m), float(top), float(s))
        for (a, b), m, top, s in zip(spans, mean, peak[::2], score, strict=True)
    ]


def select_candidates(
    candidates: list[Candidate], options: FindingOptions, priors: Priors, row_scale: float = 1.0
) -> list[Candidate]:
    """The candidates within the limits, by persistence (paper stage 3), then by time and label."""
    kept = [c for c in candidates if _is_within_limits(c, options, priors, row_scale)]
    kept.sort(key=lambda c: (-c.persistence, c.start, COLUMN[c.label]))
    return kept if options.most is None else kept[: options.most]


def _is_within_limits(
    candidate: Candidate, options: FindingOptions, priors: Priors, row_scale: float
) -> bool:
    if options.persistence is not None and candidate.persistence < options.persistence:
        return False
    if options.longest is not None and candidate.duration > options.longest:
        return False
    if options.floor is None:
        return True
    shortest = priors.run_lengths(candidate.label).quantile(options.floor)
    return candidate.stop - candidate.start >= scaled_rows(int(shortest), row_scale)


def event_confidence(candidate: Candidate, calibration: Calibration) -> float:
    """Probability that the event overlaps a true one, from its peak, by the fitted event rule.

    Without a fitted rule it is the mean probability of the event's rows.
    """
    rule = calibration.events.get(candidate.label)
    if rule is None:
        return candidate.mean
    if rule.curve is not None:
        return float(rule.curve.probability(candidate.peak))
    return probability(rule.intercept + rule.slope * log_odds(candidate.peak))
