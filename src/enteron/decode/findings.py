"""Findings: candidate stretches, their persistence, and the limits on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.calibration import Calibration
from enteron.decode.evidence import mean_log_odds, median
from enteron.decode.options import FindingOptions, scaled_rows
from enteron.labels import COLUMN, FINDINGS
from enteron.priors import Priors
from enteron.runs import Runs, hysteresis, means

DEFAULT_LOW = 0.7  # the paper: l_c = 0.7 h_c


@dataclass(frozen=True)
class Candidate:
    """A stretch of rows that may be an event."""

    label: str
    start: int
    stop: int
    mean: float  # mean probability over the stretch
    peak: float  # largest probability in it
    persistence: float  # the paper's S

    @property
    def duration(self) -> int:
        """The paper's d = t_e - t_s with both ends inclusive: 0 for a single row."""
        return self.stop - 1 - self.start


def smoothed_findings(
    p: NDArray[np.float32], options: FindingOptions, windows: Mapping[str, int]
) -> NDArray[np.float32]:
    """(rows, 9): the columns of the findings, smoothed (paper stage 1).

    `windows` are the rows of each label's mean, used where the options name no median.
    """
    columns = [COLUMN[label] for label in FINDINGS]
    if options.window is not None:
        return median(p[:, columns], options.window)
    smoothed = np.empty((p.shape[0], len(FINDINGS)), dtype=np.float32, order="F")
    for position, label in enumerate(FINDINGS):
        column = np.ascontiguousarray(p[:, columns[position]])
        smoothed[:, position] = mean_log_odds(column, windows[label])
    return smoothed


def median_run(label: str, priors: Priors) -> int:
    """Half of the label's runs last longer; in rows, rounded down to an odd number."""
    rows = max(1, int(priors.run_lengths(label).quantile(0.5)))
    return rows if rows % 2 else rows - 1


def persistence(
    mean: NDArray[np.float64], spans: Runs, shortening: float = 1.0
) -> NDArray[np.float64]:
    """S = mean probability x ln(1 + d), d = t_e - t_s inclusive (paper stage 3, decision 29).

    d counts rows of a full-length study.
    """
    return mean * np.log1p((spans[:, 1] - 1 - spans[:, 0]) * shortening)


def candidates(
    label: str, p: NDArray[np.float32], threshold: float, low: float, shortening: float = 1.0
) -> list[Candidate]:
    """What hysteresis finds in one smoothed and gated column (paper stage 3).

    `low` is the lower threshold as a share of the upper one.
    """
    spans = hysteresis(p, threshold, low * threshold)
    if not len(spans):
        return []
    mean = means(p, spans)
    peak = np.maximum.reduceat(p, spans.ravel()[:-1] if spans[-1, 1] == p.size else spans.ravel())
    score = persistence(mean, spans, shortening)
    return [
        Candidate(label, int(a), int(b), float(m), float(top), float(s))
        for (a, b), m, top, s in zip(spans, mean, peak[::2], score, strict=True)
    ]


def select(
    found: list[Candidate], options: FindingOptions, priors: Priors, shortening: float = 1.0
) -> list[Candidate]:
    """What remains after the limits, by persistence (paper stage 3), then by time and label."""
    kept = [c for c in found if _passes(c, options, priors, shortening)]
    kept.sort(key=lambda c: (-c.persistence, c.start, COLUMN[c.label]))
    return kept if options.most is None else kept[: options.most]


def _passes(
    candidate: Candidate, options: FindingOptions, priors: Priors, shortening: float
) -> bool:
    if options.persistence is not None and candidate.persistence < options.persistence:
        return False
    if options.longest is not None and (candidate.duration * shortening > options.longest):
        return False
    if options.floor is None:
        return True
    shortest = priors.run_lengths(candidate.label).quantile(options.floor)
    return candidate.stop - candidate.start >= scaled_rows(int(shortest), shortening)


def log_odds(p: float) -> float:
    """Log-odds of a probability, finite for 0 and 1."""
    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))


def event_confidence(candidate: Candidate, calibration: Calibration) -> float:
    """Probability that the event touches a true one, learnt on held-out studies from its peak.

    Without a fitted calibration it is the mean probability of the event's rows.
    """
    rule = calibration.events.get(candidate.label)
    if rule is None:
        return candidate.mean
    return 1 / (1 + math.exp(-(rule.intercept + rule.slope * log_odds(candidate.peak))))
