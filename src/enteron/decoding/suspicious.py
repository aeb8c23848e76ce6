"""The frames to look at first: a ranked list that shows the most lesions in the fewest pictures.

The suspicion of a frame is the number of lesions that it is expected to show and that no picture
further up the list shows. Without other pictures that is the sum over findings of the calibrated
probability, smoothed over a few rows and weighted as the options say. A listed picture multiplies
the suspicion of every other frame by 1 - exp(-distance / reach), the probability that the other
frame does not show the same lesion. The next picture is always the frame of highest suspicion. So
suspicion never rises along the list, and to show everything down to a threshold is to show the
beginning of the list.

With embeddings, frames that look like a listed picture are folded into it, so that a stall of the
capsule does not fill the page. Two frames look alike when they are nearer to each other than a
tenth of the distance at which frames of the study usually lie.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from enteron.calibration import Calibration, calibrated
from enteron.decoding.events import DecodedEvent, DecodedRun
from enteron.decoding.evidence import running_mean_log_odds
from enteron.decoding.findings import gate
from enteron.errors import EnteronError
from enteron.labels import FINDINGS, LABELS, REGIONS
from enteron.options import Options
from enteron.priors import Priors, load_priors
from enteron.runs import scaled_window
from enteron.types import Scores

_FIRST_FINDING: Final = len(LABELS) - len(FINDINGS)  # findings are the last columns
_BLOCK: Final = 1024  # rows whose highest suspicion is kept up to date
_FAR: Final = 5.0  # reaches beyond which a listed picture has no effect: exp(-5) is below 1 %
_MOST_FOLDED: Final = 20_000  # frames that are folded; beyond, more of them would only cost time


def _known_findings(weights: dict[str, float]) -> dict[str, float]:
    for finding in weights:
        if finding not in FINDINGS:
            raise ValueError(f"'{finding}' is not a finding; they are {', '.join(FINDINGS)}")
    return weights


class SuspicionOptions(Options):
    """How frames are ranked. Chosen on half of the studies of `enteron bench top_frames`."""

    most: int = Field(default=300, ge=1)
    """Pictures in the list."""

    window: int = Field(default=3, ge=1)
    """Rows of a full-length study over which log-odds are averaged; odd."""

    reach: float = Field(default=100.0, gt=0)
    """Original frames over which a frame is likely to show the same lesion as another."""

    weights: Annotated[
        dict[str, Annotated[float, Field(ge=0, le=1000)]], AfterValidator(_known_findings)
    ] = Field(default_factory=dict)
    """Importance of findings; 1 where a finding is not named, 0 leaves it out."""


@dataclass(frozen=True, slots=True)
class SuspiciousFrame:
    """One picture of the list."""

    frame: int
    suspicion: float  # expected number of lesions that it adds to those further up the list
    label: str  # the finding that contributes most
    confidence: float  # calibrated probability that the frame shows it
    region: str | None = None
    event: int | None = None  # number of the event of this finding that the frame lies in
    similar: int = 0  # frames that look like this one and are left out


@dataclass(frozen=True)
class Ranking:
    """Rows of a study in the order in which they should be looked at."""

    rows: NDArray[np.int64]
    suspicion: NDArray[np.float64]  # never rises
    similar: NDArray[np.int64]  # rows folded into each


def finding_probabilities(
    scores: Scores,
    regions: Sequence[DecodedRun],
    priors: Priors,
    calibration: Calibration,
    window: int = SuspicionOptions().window,
) -> NDArray[np.float64]:
    """(rows, 9) calibrated probabilities of the findings, gated by region and smoothed."""
    gated = gate(calibrated(scores, calibration.likelihood), regions, priors)
    rows = scaled_window(window, scores.shortening)
    columns = [
        running_mean_log_odds(np.ascontiguousarray(gated[:, column]), rows)
        for column in range(_FIRST_FINDING, len(LABELS))
    ]
    return np.column_stack(columns).astype(np.float64)


def rank_rows(
    p: NDArray[np.float64],
    scores: Scores,
    options: SuspicionOptions,
    *,
    features: NDArray[np.floating] | None = None,
    least: float = 0.0,
    most: int | None = None,
) -> Ranking:
    """Rank rows by `finding_probabilities`; those whose suspicion is below `least` are left out.

    `features` (rows, n) are embeddings of the rows. `most` replaces that of the options.
    """
    # Original frames, so that a shortened study or one with every fifth frame stored is the same.
    position = scores.axis.frames * (scores.row_frames / scores.axis.step)
    duplicates = None if features is None else _Duplicates(features, len(scores.axis))
    suspicion = p @ _weights(options)
    if scores.encoded is not None:
        suspicion[~scores.encoded] = 0.0  # nobody has seen it: its neighbour is the one to look at
    return _rank(
        suspicion,
        position.astype(np.float64),
        options.reach,
        options.most if most is None else most,
        least,
        duplicates,
    )


def _rank(
    suspicion: NDArray[np.float64],
    position: NDArray[np.float64],
    reach: float,
    most: int,
    least: float,
    duplicates: "_Duplicates | None",
) -> Ranking:
    """Take the row of highest suspicion again and again; `position` is in original frames."""
    blocks = -(-suspicion.size // _BLOCK)
    left = np.full(blocks * _BLOCK, -1.0)  # what is left of each row's suspicion; -1: used
    left[: suspicion.size] = suspicion
    table = left.reshape(blocks, _BLOCK)
    highest = table.max(axis=1)
    rows: list[int] = []
    values: list[float] = []
    similar: list[int] = []
    folded = 0
    # Most rows have neighbours at the same distances, whose factors are computed once.
    step = float(np.diff(position).min()) if position.size > 1 else 1.0
    wide = int(_FAR * reach / step) + 1
    kernel = _other_lesion(np.abs(np.arange(-wide, wide + 1)) * step, reach)
    while len(rows) < most:
        block = int(highest.argmax())
        if highest[block] < least or highest[block] <= 0:
            break
        row = block * _BLOCK + int(table[block].argmax())
        if duplicates is not None and folded < _MOST_FOLDED:
            twin = duplicates.listed_twin(row)
            if twin is not None:
                similar[twin] += 1
                folded += 1
                left[row] = -1.0
                highest[block] = table[block].max()
                continue
            duplicates.add(row)
        rows.append(row)
        values.append(float(left[row]))
        similar.append(0)
        first, last = max(row - wide, 0), min(row + wide + 1, position.size)
        distance = np.abs(position[first:last] - position[row])
        if distance[0] + distance[-1] <= (last - 1 - first) * step * (1 + 1e-9):  # no gap
            left[first:last] *= kernel[wide - (row - first) : wide + (last - row)]
        else:
            left[first:last] *= _other_lesion(distance, reach)
        left[row] = -1.0  # and whatever else is listed stays below 0
        touched = slice(first // _BLOCK, (last - 1) // _BLOCK + 1)
        highest[touched] = table[touched].max(axis=1)
    return Ranking(np.array(rows, np.int64), np.array(values), np.array(similar, np.int64))


def _other_lesion(distance: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Probability that a frame so far from a listed one does not show the same lesion."""
    return np.where(distance <= _FAR * reach, -np.expm1(-distance / reach), 1.0)


class _Duplicates:
    """Listed pictures, and whether another row looks like one of them."""

    def __init__(self, features: NDArray[np.floating], rows: int) -> None:
        if features.shape[0] != rows:
            raise EnteronError(
                f"there are embeddings of {features.shape[0]} frames and scores of {rows}",
                "give the embeddings that the scores were made from",
            )
        self._features = features
        self._limit = ALIKE * _usual_distance(features)
        self._listed = np.empty((0, features.shape[1]), np.float32)
        self._count = 0

    def listed_twin(self, row: int) -> int | None:
        """Position in the list of the picture that this row looks like, or None."""
        if not self._count:
            return None
        similarity = self._listed[: self._count] @ _unit(self._features[row])
        nearest = int(similarity.argmax())
        return nearest if 1 - similarity[nearest] < self._limit else None

    def add(self, row: int) -> None:
        if self._count == len(self._listed):
            more = np.empty((max(64, self._count), self._listed.shape[1]), np.float32)
            self._listed = np.concatenate([self._listed, more])
        self._listed[self._count] = _unit(self._features[row])
        self._count += 1


def _unit(vector: NDArray[np.floating]) -> NDArray[np.float32]:
    vector = np.asarray(vector, np.float32)
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


ALIKE: Final = 0.1
"""Share of the usual distance of two frames below which they look alike."""

_PAIRS: Final = 2000  # from which the usual distance is estimated


def _usual_distance(features: NDArray[np.floating]) -> float:
    """Cosine distance that nine in ten pairs of frames do not exceed.

    Not the median: in half of a study, or more, the capsule may lie still.
    """
    rng = np.random.default_rng(0)
    pairs = rng.integers(len(features), size=(_PAIRS, 2))
    first, second = (
        np.stack([_unit(features[row]) for row in column.tolist()]) for column in pairs.T
    )
    return float(np.quantile(1 - (first * second).sum(axis=1), 0.9))


def rank_suspicious(
    scores: Scores,
    events: Sequence[DecodedEvent],
    priors: Priors | None = None,
    calibration: Calibration | None = None,
    options: SuspicionOptions | None = None,
    features: NDArray[np.floating] | None = None,
) -> list[SuspiciousFrame]:
    """The list of one study. `events` give the regions, and the events that pictures belong to."""
    priors = load_priors() if priors is None else priors
    calibration = Calibration() if calibration is None else calibration
    options = SuspicionOptions() if options is None else options
    p = finding_probabilities(
        scores, region_runs(events, scores), priors, calibration, options.window
    )
    ranking = rank_rows(p, scores, options, features=features)
    return describe(ranking, p, scores, events, calibration, options)


def region_runs(events: Sequence[DecodedEvent], scores: Scores) -> list[DecodedRun]:
    """The regions among the events, in rows."""
    frames = scores.axis.frames
    runs: list[DecodedRun] = []
    for event in events:
        if event.label in REGIONS:
            start, stop = np.searchsorted(frames, (event.start, event.stop))
            runs.append(DecodedRun(event.label, int(start), int(stop), event.score or 0.0))
    return runs


def leading_findings(p: NDArray[np.float64], options: SuspicionOptions) -> NDArray[np.int64]:
    """(pictures,) position in FINDINGS of what makes each picture suspicious."""
    return (p * _weights(options)).argmax(axis=1)


def _weights(options: SuspicionOptions) -> NDArray[np.float64]:
    return np.array([options.weights.get(finding, 1.0) for finding in FINDINGS])


def picture_confidence(
    probability: NDArray[np.float64], finding: NDArray[np.int64], calibration: Calibration
) -> NDArray[np.float64]:
    """Probability that each picture shows its leading finding.

    Pictures are chosen because they are suspicious, so their frames' probabilities are too high;
    the calibration corrects that where it was fitted.
    """
    confidence = np.clip(probability, 0.0, 1.0)
    for column in np.unique(finding).tolist():
        calibrator = calibration.pictures.get(FINDINGS[column])
        if calibrator is not None:
            chosen = finding == column
            confidence[chosen] = calibrator.probability(confidence[chosen])
    return confidence


def picture_runs(
    ranking: Ranking,
    p: NDArray[np.float64],
    low: float,
    calibration: Calibration,
    options: SuspicionOptions,
) -> list[DecodedRun]:
    """An event around each picture, in the order of the list.

    It reaches as far as the probability of its finding is at least `low` times that of the picture,
    and not beyond the middle between two pictures of the same finding.
    """
    leading = leading_findings(p[ranking.rows], options)
    confidence = picture_confidence(p[ranking.rows, leading], leading, calibration)
    runs: list[DecodedRun] = [DecodedRun("", 0, 0, 0.0)] * ranking.rows.size
    for column in np.unique(leading).tolist():
        values = p[:, column]
        positions = np.flatnonzero(leading == column)
        positions = positions[np.argsort(ranking.rows[positions])]
        rows = ranking.rows[positions]
        middles = (rows[:-1] + rows[1:] + 1) // 2
        starts, stops = np.append(0, middles), np.append(middles, len(values))
        for position, row, first, last in zip(
            positions.tolist(), rows.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            below = values[first:last] < low * values[row]
            before = np.flatnonzero(below[: row - first])
            after = np.flatnonzero(below[row - first :])
            start = first + int(before[-1]) + 1 if before.size else first
            stop = row + int(after[0]) if after.size else last
            score = float(confidence[position])
            runs[position] = DecodedRun(FINDINGS[column], start, stop, score)
    return runs


def describe(
    ranking: Ranking,
    p: NDArray[np.float64],
    scores: Scores,
    events: Sequence[DecodedEvent],
    calibration: Calibration,
    options: SuspicionOptions,
) -> list[SuspiciousFrame]:
    """What each picture of a ranking shows most likely, how likely, and where it lies."""
    leading = leading_findings(p[ranking.rows], options)
    confidence = picture_confidence(p[ranking.rows, leading], leading, calibration)
    suspects: list[SuspiciousFrame] = []
    regions = [event for event in events if event.label in REGIONS]
    numbered = [(number, event) for number, event in enumerate(events) if event.label in FINDINGS]
    for position, row in enumerate(ranking.rows.tolist()):
        frame = int(scores.axis.frames[row])
        label = FINDINGS[int(leading[position])]
        suspects.append(
            SuspiciousFrame(
                frame,
                float(ranking.suspicion[position]),
                label,
                float(confidence[position]),
                next((e.label for e in regions if e.start <= frame < e.stop), None),
                next(
                    (n for n, e in numbered if e.label == label and e.start <= frame < e.stop), None
                ),
                int(ranking.similar[position]),
            )
        )
    return suspects
