"""Context: what the scores around a frame, or around an event, say of it.

A network sees a frame, or three. A finding comes in bursts, and a region lasts for minutes or
hours, so what lies around a frame says much about it. A `Context` adds to the log-odds of a frame
the means of the log-odds around it, at several scales from seconds to hours, with weights that
regions, landmarks and findings each share: some twenty numbers, few enough to be fitted on a
handful of studies (`enteron.fitting.context`) and to hold for a capsule that none of them shows.

Time is counted in original frames, not in rows. The mean at scale tau weights a frame at a distance
d by exp(-d / tau). A study that is stored at every frame and the same one stored at every fifth
have nearly the same means, and gaps and unreadable frames need no rule of their own.

A mean blurs what is short, and a lesion is. So events of findings are looked for in the scores as
they are, and an `EventContext` says how likely each is a true one, by the same means around its
picture and by its region: a lesion stands out from the seconds around it, in minutes and hours that
have others.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import expit

from enteron.kernels import compiled
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.options import Options
from enteron.types import Scores

GROUPS: Final = {
    "regions": slice(0, len(REGIONS)),
    "landmarks": slice(len(REGIONS), len(REGIONS) + len(LANDMARKS)),
    "findings": slice(len(LABELS) - len(FINDINGS), len(LABELS)),
}
"""Columns of the labels that share weights."""

SCALES: Final = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""In original frames: at three a second from ten seconds to an hour, each way."""

LARGEST_LOG_ODDS: Final = 10.0
"""A score nearer to 0 or 1 is no stronger evidence: columns that were thresholded have both."""

LARGEST_WEIGHT: Final = 20.0

HIGHEST: Final = 0.01
"""Share of a study's frames whose scores say whether it shows a finding at all."""

_BLOCK = 4096  # rows whose means are computed at a time: flat memory, the same result


def require_scales(scales: Sequence[float]) -> None:
    """Raise `ValueError` for scales that no fit gives."""
    if not all(0 < scale <= 1e9 for scale in scales) or list(scales) != sorted(set(scales)):
        raise ValueError("scales ascend and are above 0")


class Context(Options):
    """Refined log-odds: the mean of the frame's, with a weight of 1 + weights[0], and of the means
    around it, with weights[k]. A mean and not a sum, so that what was far from 0 and 1 stays so.
    """

    scales: tuple[float, ...] = Field(default=SCALES, min_length=1, max_length=32)
    """Of the means, in original frames, ascending."""
    regions: tuple[float, ...]
    """Weight of the frame itself, beside the one that it has, and of each mean."""
    landmarks: tuple[float, ...]
    findings: tuple[float, ...]
    study: float = Field(default=0.0, ge=0, le=LARGEST_WEIGHT)
    """Of findings: weight of the log-odds that one frame in a hundred of the study exceeds. It says
    whether the study shows the finding at all, which regions of a study leave no doubt of."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require_scales(self.scales)
        for group in GROUPS:
            weights = self.weights(group)
            if len(weights) != 1 + len(self.scales):
                raise ValueError(f"{group} has {len(weights)} weights, not {1 + len(self.scales)}")
            if not all(0 <= weight <= LARGEST_WEIGHT for weight in weights):
                raise ValueError(f"the weights of {group} are not all from 0 to {LARGEST_WEIGHT:g}")
        return self

    @property
    def used_for(self) -> tuple[str, ...]:
        """The groups that have weights."""
        used = [group for group in GROUPS if any(self.weights(group))]
        return tuple(used if self.study == 0 or "findings" in used else [*used, "findings"])

    def weights(self, group: str) -> tuple[float, ...]:
        """The weights of one of `GROUPS`."""
        return getattr(self, group)

    @property
    def table(self) -> NDArray[np.float32]:
        """(17, 1 + scales) the weights of every label."""
        table = np.zeros((len(LABELS), 1 + len(self.scales)), np.float32)
        for group, columns in GROUPS.items():
            table[columns] = self.weights(group)
        return table

    def refined(self, scores: Scores) -> NDArray[np.float32]:
        """(rows, 17) refined probabilities of a study's scores."""
        return self.refine(scores.values, positions(scores))

    def refine(
        self,
        probabilities: NDArray[np.float32],
        where: NDArray[np.float64],
        block: int = _BLOCK,
    ) -> NDArray[np.float32]:
        """(rows, 17) refined probabilities; `where` (rows,) they lie in time, in original frames.

        `block`: rows at a time. The result does not depend on it.
        """
        odds = log_odds(probabilities)
        weights = self.table
        total = 1 + weights.sum(axis=1)
        total[GROUPS["findings"]] += self.study
        highest = self._highest(odds)
        refined = np.empty_like(odds)
        means = TimeMeans(odds, where, self.scales, block)
        for index in range(len(means)):
            rows = slice(index * block, (index + 1) * block)
            around = (means.means(index) * weights[:, 1:].T).sum(axis=1)
            refined[rows] = (odds[rows] * (1 + weights[:, 0]) + around + highest) / total
        return expit(refined).astype(np.float32)

    def _highest(self, odds: NDArray[np.float32]) -> NDArray[np.float32]:
        """(17,) what the whole study adds to every frame."""
        added = np.zeros(odds.shape[1], np.float32)
        if self.study:
            added[GROUPS["findings"]] = self.study * highest_odds(odds[:, GROUPS["findings"]])
        return added


def highest_odds(odds: NDArray[np.float32]) -> NDArray[np.float32]:
    """(labels,) log-odds (rows, labels) that one row in a hundred exceeds."""
    return np.quantile(odds, 1 - HIGHEST, axis=0).astype(np.float32)


EVENT_SCALES: Final = (100.0, 300.0, 1000.0, 3000.0)
"""Of the means around an event, in original frames: at three a second from half a minute to a
quarter of an hour, each way."""

LARGEST_COEFFICIENT: Final = 1000.0
Coefficient = Annotated[float, Field(ge=-LARGEST_COEFFICIENT, le=LARGEST_COEFFICIENT)]
Confidence = Annotated[float, Field(gt=0, lt=1)]
EVENT_TERMS: Final = 3
"""Terms of an event beside the means: its peak, its duration, its region."""


class EventContext(Options):
    """Log-odds that a run of high scores is a true event: a sum, with weights that all findings
    share and a constant for each.
    """

    scales: tuple[float, ...] = Field(default=EVENT_SCALES, min_length=1, max_length=32)
    """Of the means around the picture of an event, in original frames, ascending."""
    peak: Coefficient
    """Of the log-odds of the largest smoothed score."""
    duration: Coefficient
    """Of ln(1 + rows of a full-length study)."""
    region: Coefficient
    """Of ln P(finding | region) / P(finding), from the priors, at the picture."""
    around: tuple[Coefficient, ...]
    """Of each mean of the label's log-odds, at the picture."""
    constants: dict[str, Coefficient]
    """By finding. Those that are missing are never reported."""
    candidates: dict[str, Confidence]
    """By finding: the smoothed score from which on a run is looked at."""
    threshold: Confidence
    """Least confidence of an event: by F1 on left-out studies."""
    clinical: Confidence | None
    """The same within a budget of false alarms; None: every event costs more than that."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require_scales(self.scales)
        if len(self.around) != len(self.scales):
            raise ValueError(f"around has {len(self.around)} weights, not {len(self.scales)}")
        if set(self.constants) != set(self.candidates) or not set(self.constants) <= set(FINDINGS):
            raise ValueError("constants and candidates name the same findings")
        return self

    def confidence(self, labels: Sequence[str], terms: NDArray[np.floating]) -> NDArray[np.float64]:
        """(n,) probabilities of events of these findings, from their `event_terms`."""
        weights = np.array([self.peak, self.duration, self.region, *self.around])
        return expit(terms @ weights + [self.constants[label] for label in labels])


def event_terms(
    peaks: NDArray[np.floating],
    rows: NDArray[np.floating],
    region: NDArray[np.floating],
    around: NDArray[np.floating],
) -> NDArray[np.float64]:
    """(n, 3 + scales) what the confidence of an event is made of.

    `peaks` (n,): largest smoothed probability; `rows` (n,) of a full-length study; `region` (n,):
    how much more often the finding is there than elsewhere, as a logarithm; `around` (n, scales):
    means of log-odds.
    """
    return np.column_stack([log_odds(peaks), np.log1p(rows), region, around]).astype(np.float64)


class ContextGain(Options):
    """What a context was worth on studies that it was not fitted on, for a group of labels.

    Regions: share of frames in the right one. Landmarks and findings: mean AP of the labels.
    """

    without: float = Field(ge=0, le=1)
    with_context: float = Field(ge=0, le=1)

    @property
    def is_gain(self) -> bool:
        """Whether the group has weights."""
        return self.with_context > self.without


def positions(scores: Scores) -> NDArray[np.float64]:
    """(rows,) where frames lie in time, in original frames.

    In a study that was shortened a row stands for more of them than its frame numbers say.
    """
    frames = scores.axis.frames.astype(np.float64)
    return frames * (scores.row_frames / scores.axis.step)


def log_odds(probabilities: NDArray[np.floating]) -> NDArray[np.float32]:
    """Log-odds, at most ±10."""
    p = np.asarray(probabilities, np.float64)
    with np.errstate(divide="ignore"):
        odds = np.log(p) - np.log1p(-p)
    return np.clip(odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).astype(np.float32)


# ---- means over time


class TimeMeans:
    """Means around every row (n, channels) of a study, block by block.

    A weighted sum follows from that of the row before, `sum[i] = x[i] + exp(-d / tau) sum[i-1]`:
    one pass forward gives all sums over the past, one backward those over the future, and both have
    the row itself. Sums at the borders of blocks are kept from a first pass in each direction, so
    the means of a block are those of the whole study, however far that reaches.
    """

    def __init__(
        self,
        rows: NDArray[np.float32],
        where: NDArray[np.float64],
        scales: Sequence[float],
        block: int = _BLOCK,
    ) -> None:
        """`where` (n,): the position of each row in time, ascending."""
        self._rows = np.ascontiguousarray(rows, np.float32)
        self._scales = np.asarray(scales, np.float64)
        self._block = block
        self._steps = np.diff(np.asarray(where, np.float64))
        starts = list(range(0, len(self._rows), block))
        self._past = self._border_sums(starts, reverse=False)
        self._future = self._border_sums(starts, reverse=True)

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._past)

    def means(self, block: int) -> NDArray[np.float32]:
        """(rows of the block, scales, channels): the mean of those of the past and the future."""
        rows, before, after = self._slices(block * self._block)
        shape = (len(rows), self._scales.size, rows.shape[1])
        past, future = np.empty(shape, np.float32), np.empty(shape, np.float32)
        kernel = compiled(_running_means)
        kernel(rows, before, self._scales, self._past[block].copy(), past)
        kernel(rows[::-1], after[::-1], self._scales, self._future[block].copy(), future[::-1])
        return (past + future) * np.float32(0.5)

    def _slices(
        self, start: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
        """Rows of a block, and the distance of each to the row before it and after it."""
        stop = min(start + self._block, len(self._rows))
        steps = np.concatenate(([np.inf], self._steps[max(start - 1, 0) : stop], [np.inf]))
        steps = steps[0 if start == 0 else 1 :]  # at the ends of the study there is no other row
        count = stop - start
        return self._rows[start:stop], steps[:count], steps[1 : count + 1]

    def _border_sums(self, starts: list[int], *, reverse: bool) -> list[NDArray[np.float64]]:
        """For every block the sums (scales, channels + 1) up to it; the last are of the weights."""
        state = np.zeros((self._scales.size, self._rows.shape[1] + 1))
        states: list[NDArray[np.float64]] = []
        kernel, nothing = compiled(_running_sums), np.empty((0, 0, 0), np.float32)
        for start in reversed(starts) if reverse else starts:
            states.append(state.copy())
            rows, before, after = self._slices(start)
            if reverse:
                kernel(rows[::-1], after[::-1], self._scales, state, nothing)
            else:
                kernel(rows, before, self._scales, state, nothing)
        return states[::-1] if reverse else states


def means_at(
    rows: NDArray[np.float32],
    where: NDArray[np.float64],
    scales: Sequence[float],
    wanted: NDArray[np.int64],
) -> NDArray[np.float32]:
    """The means (wanted, scales, channels) of some rows; those of all are never held at once."""
    means = TimeMeans(rows, where, scales)
    result = np.empty((wanted.size, len(scales), rows.shape[1]), np.float32)
    for block in np.unique(wanted // _BLOCK).tolist():
        inside = wanted // _BLOCK == block
        result[inside] = means.means(block)[wanted[inside] - block * _BLOCK]
    return result


def time_means(
    rows: NDArray[np.float32], where: NDArray[np.float64], scales: Sequence[float]
) -> NDArray[np.float32]:
    """All means (n, scales, channels) at once."""
    return TimeMeans(rows, where, scales, max(len(rows), 1)).means(0)


def _running_means(
    rows: NDArray[np.float32],
    steps: NDArray[np.float64],
    scales: NDArray[np.float64],
    state: NDArray[np.float64],
    means: NDArray[np.float32],
) -> None:
    """Means (n, scales, channels) along rows; `state` (scales, channels + 1) is taken up."""
    channels = rows.shape[1]
    for index in range(rows.shape[0]):
        for scale in range(scales.size):
            decay = np.exp(-steps[index] / scales[scale])
            sums = state[scale]
            weight = decay * sums[channels] + 1.0
            sums[channels] = weight
            share = 1.0 / weight
            for channel in range(channels):
                total = decay * sums[channel] + rows[index, channel]
                sums[channel] = total
                means[index, scale, channel] = total * share


def _running_sums(
    rows: NDArray[np.float32],
    steps: NDArray[np.float64],
    scales: NDArray[np.float64],
    state: NDArray[np.float64],
    means: NDArray[np.float32],  # not used: both kernels are called alike
) -> None:
    """The state after all rows, without the means."""
    channels = rows.shape[1]
    for index in range(rows.shape[0]):
        for scale in range(scales.size):
            decay = np.exp(-steps[index] / scales[scale])
            sums = state[scale]
            sums[channels] = decay * sums[channels] + 1.0
            for channel in range(channels):
                sums[channel] = decay * sums[channel] + rows[index, channel]
