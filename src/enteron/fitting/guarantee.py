"""A promised lesion recall: conformal risk control over studies.

Angelopoulos et al., "Conformal risk control" (2022). What is shown of a study is the list of
`enteron.decoding.suspicious` down to a threshold of suspicion. The loss of a study is the share of
its lesions that no shown picture lies in. If calibration studies and a new study are exchangeable,
the threshold chosen here keeps the expected loss of the new study at or below `alpha`. Studies are
the exchangeable unit: lesions of one study are alike. Only studies with lesions have a loss, so the
promise is about new studies with lesions.

The promise is an average over studies and over calibration sets. It says nothing about the worst
study, about one finding among several, or about a device that calibration did not see.

Where a promise is refused, the whole recording has to be read, which misses nothing. So refusing
after a look at the losses does not break the promise.

Suspicion rests on the temperature and the biases of frames, some ten numbers that are fitted on the
same studies. So the proof holds up to their error; `enteron bench guarantee` measures what is left.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from enteron.calibration import Calibration
from enteron.confidence import Calibrator, Guarantee, Signatures
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.decoding.options import TRANSIT
from enteron.decoding.pipeline import Decoder
from enteron.decoding.suspicious import (
    SuspicionOptions,
    finding_probabilities,
    leading_findings,
    rank_rows,
)
from enteron.errors import EnteronError
from enteron.fitting.event_confidence import choose_calibrators
from enteron.fitting.frames import LabelledStudy
from enteron.labels import FINDINGS
from enteron.metrics.lesions import ReadingSpeed, Recording, lesions_of
from enteron.metrics.top_frames import top_recall
from enteron.priors import Priors
from enteron.types import Unit

DESCRIBED: Final = 300
"""Pictures of each study from which the confidence of pictures is fitted."""

_ROUNDING = 1e-12  # alpha = 0.1 must be met by a bound of 0.1 that was computed in other steps


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


def require_enough(alpha: float, studies: int) -> None:
    """Refuse to promise more than so many studies with lesions allow."""
    needed = studies_needed(alpha)
    if studies < needed:
        raise EnteronError(
            f"{studies} studies with lesions cannot promise that at most {alpha:.3g} of the "
            "lesions are missed",
            f"give at least {needed} studies with lesions, or allow {1 / (studies + 1):.3g}",
        )


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
    signatures: Signatures | None = None,
) -> Guarantee:
    """The highest threshold at which the expected share of missed lesions is at most `alpha`.

    `thresholds` rise. `losses`, `events` and `minutes` are (studies, thresholds): the share of
    missed lesions (NaN for a study without lesions), events shown, minutes to look at them.
    """
    limits = np.asarray(thresholds, dtype=np.float64)
    table = np.asarray(losses, dtype=np.float64)
    _check(limits, table, studies, {"events": events, "minutes": minutes})
    has_lesions = ~np.isnan(table[:, 0])
    count = int(has_lesions.sum())
    require_enough(alpha, count)
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
        studies=count,
        without_lesions=len(studies) - count,
        bound=min(float(upper[chosen]), 1.0),
        missed=float(rising[:, chosen].mean()),
        events_per_study=_mean_cost(events, chosen),
        minutes_per_study=_mean_cost(minutes, chosen),
        devices={device: seen.count(device) for device in sorted(set(seen))},
        fingerprint=hashlib.sha256("\n".join(sorted(studies)).encode()).hexdigest()[:16],
        signatures=signatures,
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


# ---- The lists of fitted studies


@dataclass(frozen=True)
class ListedStudy:
    """The list of one study beside its lesions."""

    study: str
    suspicion: NDArray[np.float64]  # (pictures,) never rising
    detected_at: NDArray[np.float64]  # (lesions,) suspicion of the first picture in it; -inf: none
    finding: NDArray[np.int64]  # (described,) the leading finding of the first pictures
    probability: NDArray[np.float64]  # (described,) of that finding in the picture
    is_true: NDArray[np.bool_]  # (described,) whether the picture shows it

    def missed_share(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(thresholds,) share of the lesions that is not found; NaN without lesions."""
        if not self.detected_at.size:
            return np.full(thresholds.size, np.nan)
        missed = np.searchsorted(np.sort(self.detected_at), thresholds, side="left")
        return missed / self.detected_at.size

    def pictures(self, thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
        """(thresholds,) pictures with at least that suspicion."""
        return self.suspicion.size - np.searchsorted(self.suspicion[::-1], thresholds, side="left")


def list_study(
    study: LabelledStudy,
    calibration: Calibration,
    priors: Priors,
    options: SuspicionOptions | None = None,
    *,
    most: int | None = None,
) -> ListedStudy:
    """Rank the frames of a labelled study as `enteron read` will rank those of a new one.

    All of them, unless `most` ends the list early: a promise may need any of them.
    """
    options = SuspicionOptions() if options is None else options
    scores = study.scores
    regions = Decoder(scores, TRANSIT, priors, calibration).regions()[0]
    p = finding_probabilities(scores, regions, priors, calibration, options.window)
    depth = len(scores.axis) if most is None else most
    ranking = rank_rows(p, scores, options, most=depth)
    table = LabelTable(scores.study, scores.axis, np.arange(len(scores.axis)), study.truth)
    truth = truth_events(table, Unit.FRAME)
    lesions = lesions_of([truth], [Recording.from_scores(scores)])
    first_rank = top_recall(lesions, {scores.study: scores.axis.frames[ranking.rows]}).first_rank
    detected_at = np.append(ranking.suspicion, -np.inf)[first_rank - 1]
    rows = ranking.rows[:DESCRIBED]
    leading = leading_findings(p[rows], options)
    columns = leading + (study.truth.shape[1] - len(FINDINGS))
    return ListedStudy(
        scores.study,
        ranking.suspicion,
        detected_at,
        leading,
        p[rows, leading],
        study.truth[rows, columns],
    )


def fit_lists(
    studies: Sequence[LabelledStudy],
    calibration: Calibration,
    priors: Priors,
    *,
    lesion_recall: float | None = None,
    devices: Sequence[str | None] | None = None,
    signatures: Signatures | None = None,
) -> Calibration:
    """The calibration with what lists of suspicious frames need, and a promised recall if asked.

    These are the confidence of their pictures, and how far down a promise makes one look.
    """
    most = DESCRIBED if lesion_recall is None else None
    lists = [list_study(study, calibration, priors, most=most) for study in studies]
    guarantee = None
    if lesion_recall is not None:
        alpha = round(1 - lesion_recall, 9)
        guarantee = promise_recall(alpha, lists, devices=devices, signatures=signatures)
    fields = {**dict(calibration), "pictures": fit_pictures(lists), "guarantee": guarantee}
    return Calibration(**fields)


def fit_pictures(lists: Sequence[ListedStudy]) -> dict[str, Calibrator]:
    """By finding: the probability that a listed picture shows it."""
    fits = choose_calibrators(
        np.concatenate([np.clip(listed.probability, 0, 1) for listed in lists]),
        np.concatenate([listed.is_true for listed in lists]),
        np.concatenate([listed.finding for listed in lists]),
        np.repeat(np.arange(len(lists)), [listed.finding.size for listed in lists]),
    )
    return {finding: fit.calibrator for finding, fit in fits.items()}


def promise_recall(
    alpha: float,
    studies: Sequence[ListedStudy],
    *,
    devices: Sequence[str | None] | None = None,
    signatures: Signatures | None = None,
    speed: ReadingSpeed | None = None,
) -> Guarantee:
    """How far down the lists of new studies have to be looked at to miss at most `alpha`."""
    speed = ReadingSpeed() if speed is None else speed
    thresholds = thresholds_of(np.concatenate([study.detected_at for study in studies]))
    if not thresholds.size:
        raise EnteronError(
            "no lesion of the fitted studies is in the lists of suspicious frames",
            f"give at least {studies_needed(alpha)} studies with annotated findings",
        )
    pictures = np.stack([study.pictures(thresholds) for study in studies])
    return guarantee_recall(
        alpha,
        thresholds,
        np.stack([study.missed_share(thresholds) for study in studies]),
        [study.study for study in studies],
        events=pictures,
        minutes=pictures * speed.seconds_per_still / 60,
        devices=devices,
        signatures=signatures,
    )
