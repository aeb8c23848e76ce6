"""A promised lesion recall: conformal risk control over studies.

Angelopoulos et al., "Conformal risk control" (2022). The loss of a study at a threshold is the
share of its lesions that are missed when events of at least that confidence are shown. If
calibration studies and a new study are exchangeable, the threshold chosen here keeps the expected
loss of the new study at or below `alpha`. Studies are the exchangeable unit: lesions of one study
are alike. Only studies with lesions have a loss, so the promise is about new studies with lesions.

The promise is an average over studies and over calibration sets. It says nothing about the worst
study, about one finding among several, or about a device that calibration did not see.

Where a promise is refused, the whole recording has to be read, which misses nothing. So refusing
after a look at the losses does not break the promise.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from enteron.errors import EnteronError
from enteron.options import Options

_ROUNDING = 1e-12  # alpha = 0.1 must be met by a bound of 0.1 that was computed in other steps


class Guarantee(Options):
    """An operating point that keeps the expected share of missed lesions at or below `alpha`."""

    alpha: float = Field(gt=0, lt=1)  # promised: at most this share of a study's lesions is missed
    threshold: float  # events of at least this confidence are shown
    studies: tuple[str, ...]  # with lesions, which it was fitted on
    without_lesions: int = Field(default=0, ge=0)  # further studies, which count for the cost only
    bound: float = Field(ge=0, le=1)  # n / (n + 1) * missed + 1 / (n + 1), at most alpha
    missed: float = Field(ge=0, le=1)  # mean share of missed lesions in the fitted studies
    events_per_study: float | None = None  # shown at the threshold, over all fitted studies
    minutes_per_study: float | None = None  # to look at what is shown
    devices: dict[str, int] = Field(default_factory=dict)  # fitted studies by capsule system


def studies_needed(alpha: float) -> int:
    """The smallest number of studies with lesions for which `alpha` can be promised at all.

    The bound is at least 1 / (n + 1), which it reaches when the fitted studies miss nothing.
    """
    if not 0 < alpha < 1:
        raise EnteronError(
            f"a share of {alpha:g} missed lesions cannot be promised",
            "give a number between 0 and 1, such as 0.1 for a recall of 0.9",
        )
    return math.ceil(1 / alpha - 1 - 1e-9)


def thresholds_of(detected_at: ArrayLike) -> NDArray[np.float64]:
    """Thresholds worth trying, rising: the confidences at which lesions are found.

    `detected_at` is `LesionDetection.detected_at`. Losses change nowhere else, so that no threshold
    between these is better.
    """
    values = np.asarray(detected_at, dtype=np.float64)
    return np.unique(values[np.isfinite(values)])


def monotone(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """(studies, thresholds) losses that never fall as the threshold rises: the worst so far.

    Losses of event confidences never fall anyway. Those of a decoder that is run again at every
    threshold may: events merge, and their representatives move.
    """
    return np.maximum.accumulate(losses, axis=1)


def bounds(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """(thresholds,) n / (n + 1) * mean loss + 1 / (n + 1): the bound of the paper with B = 1."""
    studies = losses.shape[0]
    return (losses.sum(axis=0) + 1) / (studies + 1)


def guarantee_recall(
    alpha: float,
    thresholds: ArrayLike,
    losses: ArrayLike,
    studies: Sequence[str],
    *,
    events: ArrayLike | None = None,
    minutes: ArrayLike | None = None,
    devices: Sequence[str | None] | None = None,
) -> Guarantee:
    """The highest threshold at which the expected share of missed lesions is at most `alpha`.

    `thresholds` rise. `losses`, `events` and `minutes` are (studies, thresholds): the share of
    missed lesions (NaN for a study without lesions), events shown, minutes to look at them.
    """
    needed = studies_needed(alpha)
    limits = np.asarray(thresholds, dtype=np.float64)
    table = np.asarray(losses, dtype=np.float64)
    _check(limits, table, studies, {"events": events, "minutes": minutes})
    has_lesions = ~np.isnan(table[:, 0])
    count = int(has_lesions.sum())
    if count < needed:
        raise EnteronError(
            f"{count} studies with lesions cannot promise that at most {alpha:.3g} of the lesions "
            "are missed",
            f"give at least {needed} studies with lesions, or allow {1 / (count + 1):.3g}",
        )
    rising = monotone(table[has_lesions])
    upper = bounds(rising)
    feasible = np.flatnonzero(upper <= alpha + _ROUNDING)
    if not feasible.size:
        raise EnteronError(
            f"even at the lowest threshold {rising[:, 0].mean():.3g} of the lesions are missed on "
            f"average in {count} studies, so {alpha:.3g} cannot be promised",
            f"allow {upper[0]:.3g}, lower the thresholds of the events, or train a better model",
        )
    chosen = int(feasible[-1])
    seen = [d for d in devices or () if d is not None]
    return Guarantee(
        alpha=alpha,
        threshold=float(limits[chosen]),
        studies=tuple(s for s, has in zip(studies, has_lesions, strict=True) if has),
        without_lesions=len(studies) - count,
        bound=min(float(upper[chosen]), 1.0),
        missed=float(rising[:, chosen].mean()),
        events_per_study=_mean_cost(events, chosen),
        minutes_per_study=_mean_cost(minutes, chosen),
        devices={device: seen.count(device) for device in sorted(set(seen))},
    )


def _check(
    thresholds: NDArray[np.float64],
    losses: NDArray[np.float64],
    studies: Sequence[str],
    costs: dict[str, ArrayLike | None],
) -> None:
    if thresholds.ndim != 1 or not thresholds.size or (np.diff(thresholds) <= 0).any():
        raise EnteronError("the thresholds do not rise strictly", "sort them and remove duplicates")
    expected = (len(studies), thresholds.size)
    tables = {"losses": losses} | {
        name: np.asarray(table) for name, table in costs.items() if table is not None
    }
    for name, table in tables.items():
        if table.shape != expected:
            raise EnteronError(
                f"the {name} have shape {table.shape}, not {expected}",
                "give one row per study and one column per threshold",
            )
    unknown = np.isnan(losses)
    if (unknown.any(axis=1) != unknown.all(axis=1)).any():
        raise EnteronError(
            "a study has losses at some thresholds only",
            "give NaN at every threshold for a study without lesions, and nowhere else",
        )
    if ((losses < 0) | (losses > 1)).any():
        raise EnteronError(
            "a loss lies outside 0 to 1", "give the share of a study's lesions that is missed"
        )


def _mean_cost(cost: ArrayLike | None, chosen: int) -> float | None:
    return None if cost is None else float(np.asarray(cost, dtype=np.float64)[:, chosen].mean())


def conformal_p_value(fitted: ArrayLike, value: float) -> float:
    """How unusual a new study is among the fitted ones: a valid p-value if it is exchangeable.

    `fitted` and `value` measure strangeness, higher is stranger: the distance of a study's
    embeddings from the rest, for example, computed for each fitted study as if it were the new one.
    The new study counts among those that are at least as strange, so p is at least 1 / (n + 1).
    """
    strangeness = np.asarray(fitted, dtype=np.float64)
    return float((1 + (strangeness >= value).sum()) / (strangeness.size + 1))
