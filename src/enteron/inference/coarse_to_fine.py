"""Coarse to fine: which frames of a chunk to encode, so that most others need not be.

Every `stride`-th frame is encoded first. All others are looked at by a network that costs a
fiftieth of the encoder and guesses what the model would say of them (`enteron.inference.glance`).
Its guesses are wrong by what they are wrong by at the encoded frames around: corrected by that,
they are what is expected of every frame. Then, again and again, a frame is encoded in every gap
between two encoded neighbours in which something is likely to be that neither of them shows: a
finding that appears or disappears, a picture that would stand for an event, or a border of regions.
How likely that is comes from an estimate, fitted on full readings of other studies
(`enteron.fitting.coarse`) and stored with the model. A gap stays closed once that probability, over
all labels together, is below a limit. At a limit of 0 every frame is encoded.

What counts is what decoders see. Where scores are refined by those around them first
(`enteron.context`), so are these: a mean moves less from frame to frame than what it is made of. A
region is decided by many frames, so that one that points elsewhere is no border. A landmark is
looked for at borders only.

A frame that is not encoded takes the features and the scores of the nearest encoded one, of two the
later. Clips are made of encoded frames only: in the place of a neighbour that is not, the frame is
compared with itself rather than with a stranger (`enteron.inference.score`).

Everything here is a function of scores, guesses and embeddings of one chunk. So a resumed run
repeats what the killed one did, chunks do not depend on each other, and benchmarks can replay any
policy from the stored embeddings of a full reading (`looked_at`).
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.ndimage import uniform_filter1d
from scipy.special import ndtr

from enteron.context import Context, log_odds, time_means
from enteron.errors import ConfigError
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.options import Options, Sha256
from enteron.runs import runs_of, scaled_window
from enteron.types import STORED_EVERY

WATCHED: Final = (*LANDMARKS, *FINDINGS)
"""Labels that may appear and disappear between two frames."""

CHUNK: Final = 512
"""Frames of a chunk: all of them wait in memory, resized, for a decision."""

DEFAULT_STRIDE: Final = 24
DEFAULT_LIMIT: Final = 0.01
STRIDES: Final = (2, 4, 8, 16)

_LARGEST = 1000.0
_CLIP = 12.0  # log-odds from a level beyond which a score says nothing more
_DOUBT = 3.0  # deviations from a threshold beyond which an event is beyond doubt
_CLIP_ROWS = 2  # that the scores of a row depend on, beside its own
_NEAREST = 1e-4  # cosine distance: below it pictures count as equal

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
TERMS: Final = 6
Coefficients = Annotated[tuple[Number, ...], Field(min_length=TERMS, max_length=TERMS)]
"""Of `gap_terms`: constant, higher margin, lower margin, difference of pictures, length of gap,
margin that is expected inside."""


# ---- the estimate


class Refinement(Options):
    """What decoders make of scores before they meet thresholds."""

    context: Context | None = None
    """The calibration's."""
    windows: dict[str, Annotated[int, Field(ge=1, le=1001)]] = Field(default_factory=dict)
    """Rows of a full-length study over which log-odds are averaged then, by label; odd."""

    def refined(
        self, scored: NDArray[np.floating], where: NDArray[np.float64], row_frames: float
    ) -> NDArray[np.floating]:
        """(rows, 17) log-odds; `scored` (rows, 17) are those before.

        `where` (rows,) they lie in time and `row_frames`, from one to the next, count frames of the
        recording.
        """
        result = np.array(scored)
        if self.context is not None:
            result = log_odds(self.context.refine(_sigmoid(scored).astype(np.float32), where))
        for label in self.windows:
            rows = self.window(label, row_frames)
            if rows > 1:  # a mean of one would round
                column = np.ascontiguousarray(result[:, COLUMN[label]])
                result[:, COLUMN[label]] = uniform_filter1d(column, rows, mode="nearest")
        return result

    def window(self, label: str, row_frames: float) -> int:
        """Rows of this study over which a label's log-odds are averaged."""
        return scaled_window(self.windows.get(label, 1), max(1.0, row_frames / STORED_EVERY))

    def reach(self, label: str, row_frames: float) -> int:
        """Rows whose pictures a mean depends on: those of the clips at its ends, too."""
        return self.window(label, row_frames) + _CLIP_ROWS


class WatchedLabel(Options):
    """A label's level, and how much more often than others it crosses it."""

    level: Number
    """Log-odds of the score, as decoders see it, from which on a frame begins an event."""
    floor: Number
    """Log-odds from which on a frame belongs to the event beside it; at most the level."""
    stake: Annotated[float, Field(gt=0, le=1)] = 1.0
    """How likely it is that an event which just reaches the level is a true one."""
    appears: Number = 0.0
    """Added to the log-odds that it appears in a gap."""
    disappears: Number = 0.0
    """Added to the log-odds that it disappears in a gap."""
    tops: Number = 0.0
    """Added to the log-odds that a frame of a gap would stand for the event."""
    threshold: Number | None = None
    """Level of events, where there are any: that of the list may be lower."""
    doubt: Annotated[float, Field(ge=0, le=_LARGEST)] = 0.0
    """Mean square by which what is expected of a row, as decoders would see it, is wrong near the
    threshold where none of the rows that it is made of is encoded. 0: not known, and no event is
    looked at again."""


class CoarseEstimate(Options):
    """`coarse.json` of a model folder: what lies between two frames, fitted on full readings."""

    version: int = Field(default=2, ge=2, le=2)
    weights: Sha256
    """SHA-256 of the model's weights, whose scores were fitted."""
    calibration: Sha256 | None = None
    """SHA-256 of the calibration whose thresholds became levels."""
    glance: Sha256
    """SHA-256 of the file of the glance whose guesses were fitted."""
    refinement: Refinement = Refinement()
    """What is made of scores before they meet the levels."""
    labels: dict[str, WatchedLabel]
    """By landmark or finding; labels that are never reported are missing."""
    appears: Coefficients
    """Log-odds that a frame of a gap is above the level, both of whose ends are below."""
    disappears: Coefficients
    """Log-odds that a frame of a gap is below the level, both of whose ends are above."""
    tops: Coefficients
    """Log-odds that a frame of a gap, one of whose ends is above the level, has a higher score than
    every encoded frame of that run. Margins are those of single frames from the highest of these.
    """
    studies: int = Field(ge=1, le=10**9)
    """Studies of the fit."""
    rows: int = Field(ge=1, le=10**12)
    """Their frames."""
    densest: float = Field(gt=0, le=10**6)
    """Frames of the recording from one stored frame to the next, in the densest of them."""
    sparsest: float = Field(gt=0, le=10**6)
    """And in the sparsest: in studies stored more sparsely, neighbours are less alike."""

    @property
    def hash(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def gap_terms(
    high: NDArray[np.floating],
    low: NDArray[np.floating],
    difference: NDArray[np.floating],
    frames: NDArray[np.floating],
    inside: NDArray[np.floating],
) -> NDArray[np.float64]:
    """(..., 6) terms of the estimate.

    `high` and `low`: log-odds of both ends above the level, the larger and the smaller; the cosine
    `difference` of their pictures' embeddings; `frames` of the recording from one to the other;
    what is expected of the frame `inside` that is most likely to be beyond.
    """
    terms = np.broadcast_arrays(
        np.ones(()),
        np.clip(high, -_CLIP, _CLIP),
        np.clip(low, -_CLIP, _CLIP),
        np.log(np.maximum(difference, _NEAREST)),
        np.log2(np.maximum(frames, 1.0)),
        np.clip(inside, -_CLIP, _CLIP),
    )
    return np.stack(terms, axis=-1).astype(np.float64)


def expected_log_odds(
    guesses: NDArray[np.floating], rows: NDArray[np.int64], scored: NDArray[np.floating]
) -> NDArray[np.floating]:
    """(n, 17) what is expected of all rows, whose `rows` were `scored`.

    Guesses (n, 17) are corrected by what they are wrong by at the encoded rows before and after, in
    proportion to the distance.
    """
    everyone = np.arange(len(guesses))
    wrong = scored - guesses[rows]
    return guesses + np.stack([np.interp(everyone, rows, column) for column in wrong.T], axis=1)


@dataclass(frozen=True)
class Gaps:
    """The gaps between encoded rows that have rows inside: what is seen there, what is expected.

    Decoders see frames that are not encoded as the nearest one that is; what is expected of them is
    the glance's guess, corrected.
    """

    rows: NDArray[np.int64]  # (m,) encoded
    open: NDArray[np.int64]  # (gaps,) a gap begins at rows[open]
    scored: NDArray[np.floating]  # (m, 17) log-odds of the encoded rows, as the model gives them
    expected: NDArray[np.floating]  # (n, 17) of all rows, as the model would give them
    refined: NDArray[np.floating]  # (n, 17) of all rows, as decoders would see them
    borrowed: NDArray[np.floating]  # (n, 17) of all rows, as decoders see them now
    difference: NDArray[np.float64]  # (gaps,) of the embeddings of both ends
    frames: NDArray[np.float64]  # (gaps,) of the recording

    @property
    def seen(self) -> NDArray[np.floating]:
        """(m, 17) of the encoded rows, as decoders see them now."""
        return self.borrowed[self.rows]

    def unencoded_share(self, window: int) -> NDArray[np.float64]:
        """(n,) share of the rows that are not encoded, among those within a window of each row."""
        unencoded = np.ones(len(self.refined))
        unencoded[self.rows] = 0
        return uniform_filter1d(unencoded, window, mode="nearest")

    @cached_property
    def _inside(self) -> NDArray[np.int64]:
        """Every other piece of `reduceat` is the inside of a gap."""
        return np.column_stack([self.rows[self.open] + 1, self.rows[self.open + 1]]).ravel()

    @cached_property
    def _whole(self) -> NDArray[np.int64]:
        """Every other piece of `reduceat` is a gap with both ends, of values and one more."""
        return np.column_stack([self.rows[self.open], self.rows[self.open + 1] + 1]).ravel()

    def most_inside(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """(gaps,) the largest of `values` (n,) inside of each gap."""
        return np.maximum.reduceat(values, self._inside)[::2]

    def most(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """(gaps,) the largest of `values` (n,) inside of each gap and at its ends."""
        return np.maximum.reduceat(np.append(values, -np.inf), self._whole)[::2]

    def least(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """(gaps,) the smallest of `values` (n,) inside of each gap and at its ends."""
        return -self.most(-values)

    def of_label(self, column: int, level: float, floor: float) -> "LabelGaps":
        """The gaps as they are for one label."""
        ends = self.borrowed[self.rows, column]
        scored = self.scored[:, column].astype(np.float64)
        within = ends >= floor
        run = np.cumsum(within & np.diff(within, prepend=np.bool_(False))) - 1
        peak, best = np.full(run.max() + 2, -np.inf), np.full(run.max() + 2, -np.inf)
        np.maximum.at(peak, run[within], ends[within])
        np.maximum.at(best, run[within], scored[within])
        shown = within & (peak[run] >= level)
        top = np.where(shown, best[run], -np.inf)
        first, second = self.open, self.open + 1
        high, low = np.maximum(ends[first], ends[second]), np.minimum(ends[first], ends[second])
        topped = np.maximum(top[first], top[second])
        finite = np.where(np.isfinite(topped), topped, 0.0)
        start, stop = scored[first] - finite, scored[second] - finite
        between = (self.difference, self.frames)
        refined = self.refined[:, column]
        most, least = self.most(refined), self.least(refined)
        single = self.most_inside(self.expected[:, column])
        return LabelGaps(
            shown[first].astype(np.int8) + shown[second],
            gap_terms(high - level, low - level, *between, most - level),
            gap_terms(high - floor, low - floor, *between, least - floor),
            gap_terms(np.maximum(start, stop), np.minimum(start, stop), *between, single - finite),
            finite,
        )


@dataclass(frozen=True)
class LabelGaps:
    """What ends of gaps show of a label, and the terms (gaps, 6) of what may be inside.

    An end shows the label if it lies in a run of encoded rows above its floor, one of which reaches
    its level.
    """

    shown: NDArray[np.int8]  # (gaps,) ends that show it: 0, 1 or 2
    appears: NDArray[np.float64]  # that a row, ends included, reaches the level
    disappears: NDArray[np.float64]  # that one is below the floor
    tops: NDArray[np.float64]  # that the score of a row inside is above `best`
    best: NDArray[np.float64]  # (gaps,) highest score in the runs that the ends lie in


def _chance(
    terms: NDArray[np.float64], coefficients: tuple[float, ...], own: float
) -> NDArray[np.floating]:
    """(gaps,) probabilities of one of the estimate's curves, for a label with a constant."""
    return _sigmoid(terms @ np.array(coefficients) + own)


def _sigmoid(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return 1 / (1 + np.exp(-np.clip(x, -500, 500)))


# ---- the policy


class CoarseOptions(Options):
    """How thoroughly a study is looked at."""

    stride: int = Field(default=DEFAULT_STRIDE, ge=1, le=64)
    """Every how many-th frame is encoded first."""

    limit: float = Field(default=DEFAULT_LIMIT, ge=0, le=1)
    """Probability that something crosses its level in a gap, from which on the gap is looked into.
    0: every frame is encoded."""

    edge: int = Field(default=2, ge=1, le=64)
    """Rows of a gap at the edge of a finding or landmark that is not looked into any more."""

    border: int = Field(default=2, ge=1, le=64)
    """Rows of a gap between two regions that is not looked into any more."""

    region_frames: float = Field(default=30.0, ge=0, le=10_000)
    """Original frames each way over which the scores of regions are averaged to find borders;
    0: a single frame that points to another region is one."""

    landmark_rows: int | None = Field(default=50, ge=0, le=1000)
    """Rows from a border of regions within which landmarks count, as for decoders; None: in all."""


@dataclass(frozen=True)
class GapRisks:
    """How likely it is that a gap hides something, and where in it."""

    risk: NDArray[np.float64]  # (gaps,)
    next: NDArray[np.int64]  # (gaps,) the row to encode if the gap is looked into


@dataclass(frozen=True)
class CoarsePolicy:
    """The decisions, as a function of what the encoded frames show."""

    options: CoarseOptions
    estimate: CoarseEstimate
    row_frames: float = 1.0  # frames of the recording from one row to the next

    @property
    def key(self) -> str:
        """What decisions depend on, for the key of a store."""
        text = f"{self.options.model_dump_json()} {self.estimate.hash} {self.row_frames:g}"
        return hashlib.sha256(text.encode()).hexdigest()

    def first_rows(self, numbers: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        """The coarse grid: every `stride`-th row, and both ends of every piece without a gap.

        `step` is the distance of frame numbers where nothing is missing.
        """
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 10 * step) > step)
        stops = np.append(starts[1:], numbers.size)
        grid = [
            np.append(np.arange(start, stop, self.options.stride), stop - 1)
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        return np.unique(np.concatenate(grid))

    def gaps(
        self,
        rows: NDArray[np.int64],
        scored: NDArray[np.floating],
        embeddings: NDArray[np.floating],
        guesses: NDArray[np.floating],
        where: NDArray[np.float64],
    ) -> Gaps:
        """What is known of the gaps between encoded `rows`.

        `scored` (rows, 17) and `embeddings` (rows, 512) are theirs; `guesses` (n, 17) and `where`
        (n,) they lie in time, in frames of the recording, are of all rows.
        """
        refine = self.estimate.refinement.refined
        borrowed = refine(scored[nearest_positions(rows, where.size)], where, self.row_frames)
        expected = expected_log_odds(guesses, rows, scored)
        refined = refine(expected, where, self.row_frames)
        gaps = np.flatnonzero(np.diff(rows) > 1)
        frames = np.diff(rows)[gaps] * self.row_frames
        difference = differences(embeddings)[gaps]
        return Gaps(rows, gaps, scored, expected, refined, borrowed, difference, frames)

    def risks(self, gaps: Gaps) -> GapRisks:
        """How likely it is that something is in a gap that neither end shows."""
        start, stop = gaps.rows[gaps.open], gaps.rows[gaps.open + 1]
        length = stop - start
        borders = self._borders(gaps)
        near = None
        if self.options.landmark_rows is not None:
            near = _near(gaps.rows, borders, self.options.landmark_rows)[gaps.open]
        nothing = np.ones(gaps.open.size)  # probability that the gap hides nothing
        # The largest single chance decides where to look: at the frame behind it, or halfway.
        worst, target = np.zeros(gaps.open.size), (start + stop) // 2
        for label, watched in self.estimate.labels.items():
            column = COLUMN[label]
            of_label = gaps.of_label(column, watched.level, watched.floor)
            none, both = of_label.shown == 0, of_label.shown == 2
            appears = np.where(
                none, _chance(of_label.appears, self.estimate.appears, watched.appears), 0
            )
            vanishes = np.where(
                both, _chance(of_label.disappears, self.estimate.disappears, watched.disappears), 0
            )
            tops = np.where(none, 0, _chance(of_label.tops, self.estimate.tops, watched.tops))
            edge = np.where((of_label.shown == 1) & (length > self.options.edge), 1.0, 0.0)
            values = gaps.expected[:, column]
            for chance, inside in (
                (edge, None),
                (appears, values),
                (vanishes, -values),
                (tops, values),
            ):
                if label in LANDMARKS and near is not None:
                    chance = np.where(near, chance, 0)
                chance = watched.stake * chance
                nothing *= 1 - chance
                # Far below the limit it does not matter where: most gaps are skipped here.
                notable = np.maximum(worst, self.options.limit / 10)
                for gap in np.flatnonzero(chance > notable).tolist():
                    worst[gap] = chance[gap]
                    if inside is None:
                        target[gap] = (start[gap] + stop[gap]) // 2
                    else:
                        target[gap] = start[gap] + 1 + inside[start[gap] + 1 : stop[gap]].argmax()
            for gap, chance, row in self._doubtful(gaps, label, watched):
                nothing[gap] *= 1 - watched.stake * chance
                if watched.stake * chance > worst[gap]:
                    worst[gap], target[gap] = watched.stake * chance, row
        between = borders[gaps.open] & (length > self.options.border)
        target = np.where(between, (start + stop) // 2, target)
        return GapRisks(np.where(between, 1.0, 1 - nothing), target)

    def _doubtful(
        self, gaps: Gaps, label: str, watched: WatchedLabel
    ) -> Iterator[tuple[int, float, int]]:
        """Gaps within the mean that decides on an event, with the chance that it decides wrongly.

        An event is there or not by the mean over a window of rows. As long as some of them are
        borrowed, what decoders see may lie on the other side of the threshold than what the full
        reading has, though no gap hides anything by itself. The row of a gap that is nearest to the
        peak is the one to encode next.
        """
        if watched.threshold is None or not watched.doubt:
            return
        column, threshold = COLUMN[label], watched.threshold
        window = self.estimate.refinement.reach(label, self.row_frames)
        expected, seen = gaps.refined[:, column], gaps.borrowed[:, column]
        share = gaps.unencoded_share(window)
        reach = _DOUBT * np.sqrt(watched.doubt)
        starts, stops = gaps.rows[gaps.open], gaps.rows[gaps.open + 1]
        for start, stop in runs_of(np.maximum(expected, seen) >= threshold - reach).tolist():
            is_seen = seen[start:stop].max() >= threshold
            peaks = {start + int(values[start:stop].argmax()) for values in (expected, seen)}
            for peak in peaks:
                if not share[peak]:
                    continue
                above = (expected[peak] - threshold) / np.sqrt(watched.doubt * share[peak])
                chance = float(ndtr(-above if is_seen else above))
                first, last = peak - window // 2, peak + window // 2
                for gap in np.flatnonzero((starts < last) & (stops > first)).tolist():
                    row = min(max(peak, int(starts[gap]) + 1), int(stops[gap]) - 1)
                    if first <= row <= last:
                        yield gap, chance, row

    def _borders(self, gaps: Gaps) -> NDArray[np.bool_]:
        """(rows - 1,) whether the region changes between two encoded rows."""
        scores = gaps.seen[:, : len(REGIONS)].astype(np.float32)
        if self.options.region_frames:
            where = gaps.rows.astype(np.float64) * self.row_frames
            scores = time_means(scores, where, [self.options.region_frames])[:, 0]
        regions = scores.argmax(axis=1)
        return regions[1:] != regions[:-1]


def _near(rows: NDArray[np.int64], borders: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """(gaps,) whether a gap lies within `reach` rows of one that is a border."""
    places = np.flatnonzero(borders)
    near = np.zeros(borders.size, np.bool_)
    for start, stop in zip(rows[places].tolist(), rows[places + 1].tolist(), strict=True):
        near |= (rows[1:] >= start - reach) & (rows[:-1] <= stop + reach)
    return near


def differences(embeddings: NDArray[np.floating]) -> NDArray[np.float64]:
    """(rows - 1,) cosine distance of each embedding from the next."""
    vectors = np.asarray(embeddings, np.float64)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    cosine = (vectors[1:] * vectors[:-1]).sum(axis=1) / (lengths[1:] * lengths[:-1])
    return 1 - cosine


def nearest_rows(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(count,) for every row the nearest of `rows` (ascending); of two equally near the later."""
    return rows[nearest_positions(rows, count)]


def nearest_positions(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(count,) positions in `rows` of `nearest_rows`."""
    everyone = np.arange(count)
    after = np.minimum(np.searchsorted(rows, everyone), rows.size - 1)
    before = np.maximum(after - 1, 0)
    closer = np.abs(rows[before] - everyone) < np.abs(rows[after] - everyone)
    return np.where(closer, before, after)


# ---- one chunk

Look = Callable[[NDArray[np.int64]], None]
"""Encode these rows of the chunk."""

Judge = Callable[
    [NDArray[np.int64], NDArray[np.int64]], tuple[NDArray[np.floating], NDArray[np.floating]]
]
"""Log-odds (n, 17) and embeddings (n, 512) of the rows (n,) that are encoded; the second argument
is `LookedAt.source` so far, from which clips are made."""


@dataclass(frozen=True)
class LookedAt:
    """The end of a chunk."""

    rows: NDArray[np.int64]  # that were encoded
    source: NDArray[np.int64]  # (chunk,) the row whose features each row takes; -1: unreadable
    missed: float  # expected number of gaps with something in them that no encoded frame shows


def looked_at(
    policy: CoarsePolicy,
    numbers: NDArray[np.int64],
    step: int,
    clip: NDArray[np.int64],
    guesses: NDArray[np.floating],
    look: Look,
    judge: Judge,
) -> LookedAt:
    """Look at a chunk of frames with these `numbers`, coarse first, until nothing is expected.

    `clip`: how many rows before a row those are that it is scored with. `guesses` (chunk, 17) are
    those of the glance; NaN where a frame cannot be read.
    """
    usable = np.flatnonzero(~np.isnan(guesses[:, 0]))
    if not usable.size:
        return LookedAt(usable, np.full(numbers.size, -1, np.int64), 0.0)
    where = numbers[usable].astype(np.float64) * (policy.row_frames / step)
    encoded = np.zeros(usable.size, np.bool_)
    asked = with_clips(_positions(policy.first_rows(numbers, step), usable), clip)
    while True:
        look(usable[asked])
        encoded[asked] = True
        rows = np.flatnonzero(encoded)
        source = np.full(numbers.size, -1, np.int64)
        source[usable] = usable[nearest_rows(rows, usable.size)]
        scored, embeddings = judge(usable[rows], source)
        gaps = policy.gaps(rows, scored, embeddings, guesses[usable], where)
        if not gaps.open.size:
            return LookedAt(usable[rows], source, 0.0)
        risks = policy.risks(gaps)
        asked = np.unique(risks.next[risks.risk >= policy.options.limit])
        if not asked.size:
            return LookedAt(usable[rows], source, float(risks.risk.sum()))
        asked = with_clips(asked, clip)
        asked = asked[~encoded[asked]]


def with_clips(rows: NDArray[np.int64], clip: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows, ascending, and those that they are scored with: all that lie `clip` rows before them.

    Without these a row would get another score than in a reading of every frame, and what was
    decided by it would be wrong.
    """
    return np.unique(np.maximum(rows[:, None] - clip, 0))


def _positions(grid: NDArray[np.int64], usable: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions in `usable` of the rows of the grid, or of the nearest rows on both sides."""
    after = np.minimum(np.searchsorted(usable, grid), usable.size - 1)
    before = np.maximum(np.searchsorted(usable, grid, side="right") - 1, 0)
    return np.unique(np.concatenate([before, after]))


def is_dense(estimate: CoarseEstimate, row_frames: float) -> bool:
    """Whether a study is stored about as densely as those of the estimate."""
    return row_frames <= 2 * estimate.sparsest


def require_dense(estimate: CoarseEstimate, row_frames: float) -> None:
    """Refuse a study stored more sparsely than those of the estimate."""
    if not is_dense(estimate, row_frames):
        raise ConfigError(
            f"frames of this study are {row_frames:.0f} frames of the recording apart, and those "
            f"from which it was learnt what lies between two frames at most "
            f"{estimate.sparsest:.0f}",
            "read every frame: leave out --coarse and --minutes",
        )
