"""How far to believe an event."""

import math

from enteron.calibration.value import Calibration
from enteron.decode.findings import Candidate


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
