"""The rule of silence: a label is emitted only where the official score is expected to gain."""

import math
from collections.abc import Sequence

from enteron.calibration.value import Calibration, Silence
from enteron.decode.confidence import log_odds
from enteron.decode.events import DecodedEvent


def worth_emitting(events: Sequence[DecodedEvent], calibration: Calibration) -> list[DecodedEvent]:
    """The events of those labels that are better emitted, in their order."""
    best: dict[str, float] = {}
    for event in events:
        best[event.label] = max(best.get(event.label, 0.0), event.score or 0.0)
    spoken = {label for label, score in best.items() if speaks(calibration.silence[label], score)}
    return [event for event in events if event.label in spoken]


def presence_given(statistics: Silence, best_score: float) -> float:
    """pi: probability that the study shows the label, given its surest event in this study."""
    x = statistics.intercept + statistics.slope * log_odds(best_score)
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def speaks(statistics: Silence, best_score: float) -> bool:
    """Emit if E[AP | present] > (1 - pi) / pi.

    Emitting is worth pi * E[AP], silence 1 - pi: an absent label scores 1 only if left out.
    """
    pi = presence_given(statistics, best_score)
    return pi * statistics.expected_ap > 1 - pi
