"""Coarse to fine: which frames of a chunk to encode, so that most others need not be.

Every `stride`-th frame is encoded first. Then, again and again, the middle of every gap between two
encoded neighbours in which something is likely to be that neither of them shows: a finding that
appears or disappears, or a border of regions. How likely that is comes from an estimate, fitted on
full readings of other studies (`enteron.fitting.coarse`) and stored with the model: the probability
that a frame inside the gap crosses the level of a finding, given how far the scores of both
neighbours are from that level, how much the two pictures differ, and how far apart they are. A gap
stays closed once that probability, over all labels together, is below a limit. At a limit of 0
every frame is encoded.

What counts is what decoders see. Where scores are refined by those around them first
(`enteron.context`), so are these, with frames that are not encoded as their nearest: a mean moves
less from frame to frame than what it is made of. A region is decided by many frames, so that one
that points elsewhere is no border. A landmark is looked for at borders only.

A frame that is not encoded takes the features of the nearest encoded one (of two, the later: clips
look back, so that a frame on the coarse grid is compared with itself rather than with a stranger).

Everything here is a function of scores and embeddings of one chunk. So a resumed run repeats what
the killed one did, chunks do not depend on each other, and benchmarks can replay any policy from
the stored embeddings of a full reading (`looked_at`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.ndimage import uniform_filter1d

from enteron.context import Context, log_odds, time_means
from enteron.errors import ConfigError
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.options import Options, Sha256
from enteron.runs import scaled_window
from enteron.types import STORED_EVERY

WATCHED: Final = (*LANDMARKS, *FINDINGS)
"""Labels that may appear and disappear between two frames."""

CHUNK: Final = 512
"""Frames of a chunk: all of them wait in memory, resized, for a decision."""

DEFAULT_STRIDE: Final = 8
DEFAULT_LIMIT: Final = 0.02
STRIDES: Final = (2, 4, 8, 16)

_LARGEST = 1000.0
_CLIP = 12.0  # log-odds from a level beyond which a score says nothing more
_NEAREST = 1e-4  # cosine distance: below it pictures count as equal

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Coefficients = Annotated[tuple[Number, ...], Field(min_length=5, max_length=5)]
"""Of `gap_terms`: constant, higher margin, lower margin, difference of pictures, length of gap."""


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
        shortening = max(1.0, row_frames / STORED_EVERY)
        for label, window in self.windows.items():
            rows = scaled_window(window, shortening)
            if rows > 1:  # a mean of one would round
                column = np.ascontiguousarray(result[:, COLUMN[label]])
                result[:, COLUMN[label]] = uniform_filter1d(column, rows, mode="nearest")
        return result


class WatchedLabel(Options):
    """A label's level, and how much more often than others it crosses it."""

    level: Number
    """Log-odds of the score, after context, from which on a frame counts as showing the label."""
    appears: Number = 0.0
    """Added to the log-odds that it appears in a gap."""
    disappears: Number = 0.0
    """Added to the log-odds that it disappears in a gap."""


class CoarseEstimate(Options):
    """`coarse.json` of a model folder: what lies between two frames, fitted on full readings."""

    version: int = Field(default=1, ge=1, le=1)
    weights: Sha256
    """SHA-256 of the model's weights, whose scores were fitted."""
    calibration: Sha256 | None = None
    """SHA-256 of the calibration whose thresholds became levels."""
    refinement: Refinement = Refinement()
    """What is made of scores before they meet the levels."""
    labels: dict[str, WatchedLabel]
    """By landmark or finding; labels that are never reported are missing."""
    appears: Coefficients
    """Log-odds that a frame of a gap is above the level, both of whose ends are below."""
    disappears: Coefficients
    """Log-odds that a frame of a gap is below the level, both of whose ends are above."""
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
) -> NDArray[np.float64]:
    """(..., 5) terms of the estimate.

    `high` and `low`: log-odds of both ends above the level, the larger and the smaller; the cosine
    `difference` of their pictures' embeddings; `frames` of the recording from one to the other.
    """
    high, low, difference, frames = np.broadcast_arrays(
        np.clip(high, -_CLIP, _CLIP),
        np.clip(low, -_CLIP, _CLIP),
        np.log(np.maximum(difference, _NEAREST)),
        np.log2(np.maximum(frames, 1.0)),
    )
    terms = np.stack([np.ones_like(high), high, low, difference, frames], axis=-1)
    return terms.astype(np.float64)


def crossing_probabilities(
    estimate: CoarseEstimate,
    log_odds: NDArray[np.floating],
    difference: NDArray[np.floating],
    frames: NDArray[np.floating],
) -> NDArray[np.float64]:
    """(gaps, labels of the estimate): probability that a frame of the gap crosses the level.

    `log_odds` (gaps + 1, 17) are those of the encoded rows. Between a row above the level and one
    below there is a crossing for certain.
    """
    result = np.empty((len(difference), len(estimate.labels)))
    for position, (label, watched) in enumerate(estimate.labels.items()):
        margin = log_odds[:, COLUMN[label]].astype(np.float64) - watched.level
        high, low = np.maximum(margin[:-1], margin[1:]), np.minimum(margin[:-1], margin[1:])
        terms = gap_terms(high, low, difference, frames)
        appears = _sigmoid(terms @ np.array(estimate.appears) + watched.appears)
        disappears = _sigmoid(terms @ np.array(estimate.disappears) + watched.disappears)
        result[:, position] = np.where(high < 0, appears, np.where(low >= 0, disappears, 1.0))
    return result


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

    border: int = Field(default=2, ge=1, le=64)
    """Rows of a gap between two regions that is not looked into any more."""

    region_frames: float = Field(default=30.0, ge=0, le=10_000)
    """Original frames each way over which the scores of regions are averaged to find borders;
    0: a single frame that points to another region is one."""

    landmark_rows: int | None = Field(default=50, ge=0, le=1000)
    """Rows from a border of regions within which landmarks count, as for decoders; None: in all."""


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

    def refined(
        self,
        rows: NDArray[np.int64],
        scored: NDArray[np.floating],
        source: NDArray[np.int64],
        numbers: NDArray[np.int64],
        step: int,
    ) -> NDArray[np.floating]:
        """(rows, 17) log-odds of the encoded `rows` as decoders see them; `scored`: those before.

        Frames that are not encoded count as their `source`; unreadable ones, -1, do not count.
        """
        shown = np.flatnonzero(source >= 0)
        filled = scored[np.searchsorted(rows, source[shown])]
        where = numbers[shown].astype(np.float64) * (self.row_frames / step)
        refined = self.estimate.refinement.refined(filled, where, self.row_frames)
        return refined[np.searchsorted(shown, rows)]

    def risks(
        self,
        rows: NDArray[np.int64],
        log_odds: NDArray[np.floating],
        embeddings: NDArray[np.floating],
    ) -> NDArray[np.float64]:
        """(gaps,) probability that something is between two encoded rows that neither shows.

        `log_odds` (rows, 17) and `embeddings` (rows, 512) are those of the encoded `rows`.
        """
        if rows.size < 2:
            return np.empty(0)
        frames = np.diff(rows) * self.row_frames
        p = crossing_probabilities(self.estimate, log_odds, differences(embeddings), frames)
        borders = self._borders(rows, log_odds)
        if self.options.landmark_rows is not None:
            near = _near(rows, borders, self.options.landmark_rows)
            for position, label in enumerate(self.estimate.labels):
                if label in LANDMARKS:
                    p[~near, position] = 0.0
        risk = 1 - np.prod(1 - p, axis=1)
        between = borders & (np.diff(rows) > self.options.border)
        return np.where(between, 1.0, risk)

    def _borders(
        self, rows: NDArray[np.int64], log_odds: NDArray[np.floating]
    ) -> NDArray[np.bool_]:
        """(gaps,) whether the region changes between two encoded rows."""
        scores = log_odds[:, : len(REGIONS)].astype(np.float32)
        if self.options.region_frames:
            where = rows.astype(np.float64) * self.row_frames
            scores = time_means(scores, where, [self.options.region_frames])[:, 0]
        regions = scores.argmax(axis=1)
        return regions[1:] != regions[:-1]

    def next_rows(
        self, rows: NDArray[np.int64], risks: NDArray[np.float64], open_rows: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Rows to encode next: the middle of every gap whose risk is at least the limit.

        `open_rows` (chunk,) are those that have not been tried. Of these the one nearest to the
        middle is taken, and the earlier of two.
        """
        chosen: list[int] = []
        for index in np.flatnonzero(risks >= self.options.limit).tolist():
            start, stop = int(rows[index]), int(rows[index + 1])
            inside = start + 1 + np.flatnonzero(open_rows[start + 1 : stop])
            if inside.size:
                distance = np.abs(2 * inside - (start + stop))
                chosen.append(int(inside[distance.argmin()]))
        return np.array(chosen, np.int64)


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
    everyone = np.arange(count)
    after = np.minimum(np.searchsorted(rows, everyone), rows.size - 1)
    before = np.maximum(after - 1, 0)
    closer = np.abs(rows[before] - everyone) < np.abs(rows[after] - everyone)
    return np.where(closer, rows[before], rows[after])


# ---- one chunk

Look = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Encode these rows of the chunk; which of them could be read."""

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
    look: Look,
    judge: Judge,
    readable: NDArray[np.bool_] | None = None,
) -> LookedAt:
    """Look at a chunk of frames with these `numbers`, coarse first, until nothing is expected.

    `readable` (chunk,) says which frames can be read, where that is known before they are asked
    for: those of a video, which are all decoded.
    """
    count = numbers.size
    usable = np.ones(count, np.bool_) if readable is None else readable.copy()
    untried = usable.copy()
    encoded = np.zeros(count, np.bool_)
    risks = np.empty(0)
    rows = np.empty(0, np.int64)
    asked = policy.first_rows(numbers, step)
    asked = asked[untried[asked]]
    while True:
        while asked.size:
            untried[asked] = False
            could = look(asked)
            encoded[asked[could]] = True
            failed = asked[~could]
            usable[failed] = False
            # In the place of an unreadable frame of the grid, its neighbours.
            beside = np.unique(np.concatenate([failed - 1, failed + 1]))
            beside = beside[(beside >= 0) & (beside < count)]
            asked = beside[untried[beside]]
        rows = np.flatnonzero(encoded)
        if not rows.size:
            rest = np.flatnonzero(untried)
            if not rest.size:
                break
            asked = rest[:1]
            continue
        source = _sources(rows, usable)
        scored, embeddings = judge(rows, source)
        refined = policy.refined(rows, scored, source, numbers, step)
        risks = policy.risks(rows, refined, embeddings)
        # Before the first encoded row and after the last one there is no second neighbour.
        outside = np.flatnonzero(untried)
        outside = outside[(outside < rows[0]) | (outside > rows[-1])]
        asked = np.union1d(policy.next_rows(rows, risks, untried), outside)
        if not asked.size:
            break
    source = _sources(rows, usable)
    closed = np.array(
        [untried[start + 1 : stop].any() for start, stop in pairwise(rows.tolist())],
        np.bool_,
    )
    return LookedAt(rows, source, float(risks[closed].sum()) if rows.size > 1 else 0.0)


def _sources(rows: NDArray[np.int64], usable: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(chunk,) the nearest encoded row; -1 where a frame cannot be read."""
    if not rows.size:
        return np.full(usable.size, -1, np.int64)
    return np.where(usable, nearest_rows(rows, usable.size), -1)


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
