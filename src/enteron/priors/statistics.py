"""The priors: statistics of annotated studies, as one frozen value and one JSON file.

In this order: sizes (run lengths, counts) and bursts of runs; how the presences of labels are
correlated; the blocks of the file, each with the source and the unit of its figures; reading and
writing the file.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, model_validator

from enteron.errors import ConfigError, shown
from enteron.files import RECORD_LIMIT, json_text, parse_json, read_json_object, write_text
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.options import Options, make_options
from enteron.runs import Runs

LEVELS: Final = (
    *(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    *(0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0),
)
"""Levels of the stored quantiles; denser above, where sizes differ by orders of magnitude."""

MAX_CORRELATION: Final = 0.98
"""Bound of a fitted correlation: at 1 two labels would be the same."""

LARGEST_COUNT: Final = 10**12
"""Bound of a count or duration in a file: more rows or frames than any dataset has."""

LARGEST_SIZE: Final = 1e7
"""Bound of a run, a gap or a number of runs in a file: some hundred times a study."""

LEAST_LOG_SD: Final = 0.05
"""Decoding takes no smaller spread of log durations: those of a single study have none."""

MIN_STANDARD_ERRORS: Final = 2.0
"""A correlation below so many standard errors is indistinguishable from none and taken as 0."""

_NORMAL: Final = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)  # quadrature on [-1, 1]


Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Sizes(Options):
    """Sizes of n things: the share that is exactly 1, and the distribution of the others.

    The log-normal figures describe the others for a model that wants two numbers. `draw` uses the
    quantiles, since real sizes have heavier tails than a log-normal.
    """

    n: Count
    single: Probability  # share of sizes that are exactly 1
    log_mean: float = Field(ge=0, le=20)  # mean of the natural log of the sizes above 1
    log_sd: float = Field(ge=0, le=10)  # its standard deviation
    quantiles: tuple[float, ...]  # of the sizes above 1 at LEVELS; k is spread over k-.5 to k+.5

    @model_validator(mode="after")
    def _check(self) -> "Sizes":
        if len(self.quantiles) != len(LEVELS):
            raise ValueError(f"quantiles must be {len(LEVELS)} numbers")
        if any(b < a for a, b in zip(self.quantiles, self.quantiles[1:], strict=False)):
            raise ValueError("quantiles must not fall")
        if self.quantiles[0] < 1.5:
            raise ValueError("quantiles are of sizes above 1, so none is below 1.5")
        if self.quantiles[-1] > LARGEST_SIZE:
            raise ValueError(f"quantiles must not exceed {LARGEST_SIZE:,.0f}")
        return self

    @property
    def spread(self) -> float:
        """Standard deviation of the log sizes for a density, which needs one above 0."""
        return max(self.log_sd, LEAST_LOG_SD)

    def draw(self, count: int, rng: np.random.Generator, factor: float = 1.0) -> NDArray[np.int64]:
        """`count` sizes times the factor, each at least 1."""
        # One uniform number decides both: below `single` the size is 1, above it gives the level.
        u = rng.random(count)
        level = (u - self.single) / max(1 - self.single, 1e-12)
        above = np.exp(np.interp(level, LEVELS, np.log(self.quantiles)))
        # Clipped, since 1.5 itself may round to 1 or to 2.
        above = np.maximum(np.rint(above), 2)
        return scale_sizes(np.where(u < self.single, 1, above), factor)

    def quantile(self, level: float) -> float:
        """The size below which the share `level` of all sizes lies, those of 1 included."""
        if level <= self.single:
            return 1.0
        rest = (level - self.single) / (1 - self.single)
        return float(np.exp(np.interp(rest, LEVELS, np.log(self.quantiles))))


def scale_sizes(sizes: ArrayLike, factor: float) -> NDArray[np.int64]:
    """Sizes times the factor; a size of 1 stays 1, and a larger one stays at least 2."""
    scaled = np.maximum(np.rint(np.asarray(sizes) * factor), 2)
    return np.where(np.asarray(sizes) == 1, 1, scaled).astype(np.int64)


def fit_sizes(values: ArrayLike, weights: ArrayLike | None = None) -> Sizes:
    """The distribution of the values, which are whole numbers from 1; equal weights by default."""
    sizes = np.asarray(values, dtype=np.int64)
    weight = np.ones(sizes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    above_one = sizes > 1
    if not above_one.any():
        # Nothing above 1 was seen: 2 is the nearest size that could have been.
        two = tuple(1.5 + level for level in LEVELS)
        single = 1.0 if sizes.size else 0.0
        return Sizes(n=sizes.size, single=single, log_mean=math.log(2), log_sd=0, quantiles=two)
    larger, share = sizes[above_one], weight[above_one] / weight[above_one].sum()
    logs = np.log(larger)
    mean = float(share @ logs)
    # Unbiased for equal weights: one minus the sum of squares is then (n - 1) / n.
    freedom = 1 - float(share @ share)
    sd = math.sqrt(float(share @ (logs - mean) ** 2) / freedom) if larger.size > 1 else 0.0
    return Sizes(
        n=sizes.size,
        single=round(float(weight[~above_one].sum() / weight.sum()), 4),
        log_mean=round(mean, 4),
        log_sd=round(sd, 4),
        quantiles=tuple(round_significant(q) for q in _spread_quantiles(larger, share)),
    )


def _spread_quantiles(values: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles with each whole number k spread evenly over [k - 0.5, k + 0.5).

    So that rounding a value interpolated between two quantiles returns k as often as it was seen.
    """
    sizes, index = np.unique(values, return_inverse=True)
    shares = np.bincount(index, weights=share)
    cumulated = np.cumsum(shares)
    level = np.column_stack([cumulated - shares, cumulated]).ravel()
    edge = np.column_stack([sizes - 0.5, sizes + 0.5]).ravel()
    # Between two sizes nothing was seen and the level is constant, but `interp` needs it to rise.
    return np.interp(LEVELS, level + 1e-12 * np.arange(level.size), edge)


def round_significant(value: float, digits: int = 4) -> float:
    """The value with so many significant digits, which keeps the file readable."""
    return float(f"{value:.{digits}g}")


def split_bursts(runs: Runs, gap: int) -> list[Runs]:
    """The runs, cut where more than `gap` rows lie between them."""
    if not len(runs):
        return []
    apart = runs[1:, 0] - runs[:-1, 1]
    return np.split(runs, np.flatnonzero(apart > gap) + 1)


def latent_threshold(share: float) -> float:
    """The value below which a standard Gaussian lies with probability `share`."""
    if share <= 0:
        return -np.inf
    return np.inf if share >= 1 else _NORMAL.inv_cdf(share)


def joint_probability(share_a: float, share_b: float, correlation: float) -> float:
    """Probability that two labels are both present, given the correlation of their Gaussians."""
    if min(share_a, share_b) <= 0:
        return 0.0
    if max(share_a, share_b) >= 1:
        return min(share_a, share_b)
    h, k = latent_threshold(share_a), latent_threshold(share_b)
    # Plackett: d/dr of the bivariate normal integral is its density; substituted r = sin(angle).
    half = np.arcsin(correlation) / 2
    angle = half * (_NODES + 1)
    density = np.exp(-(h * h + k * k - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2))
    return share_a * share_b + float(half * (_WEIGHTS @ density) / (2 * np.pi))


def latent_correlation(share_a: float, share_b: float, joint: float) -> float:
    """The correlation at which both labels are present with probability `joint`, by bisection."""
    low, high = -MAX_CORRELATION, MAX_CORRELATION
    for _ in range(40):
        middle = (low + high) / 2
        if joint_probability(share_a, share_b, middle) < joint:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def fit_latent(present: NDArray[np.bool_], possible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Correlations (k, k) behind the presences (studies, k), over studies where both can be."""
    k = present.shape[1]
    matrix = np.eye(k)
    for a in range(k):
        for b in range(a):
            usable = possible[:, a] & possible[:, b]
            first, second = present[usable, a], present[usable, b]
            spread = float(first.std() * second.std()) if usable.any() else 0.0
            if spread == 0:
                continue
            joint = float(np.mean(first & second))
            phi = (joint - first.mean() * second.mean()) / spread
            if abs(phi) * np.sqrt(usable.sum()) >= MIN_STANDARD_ERRORS:
                matrix[a, b] = matrix[b, a] = latent_correlation(
                    float(first.mean()), float(second.mean()), joint
                )
    return positive_definite(matrix)


def positive_definite(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The correlations with eigenvalues raised above 0: pairs fitted one by one may contradict."""
    values, vectors = np.linalg.eigh(matrix)
    # Above 0 by enough to survive rounding to three decimals.
    raised = (vectors * np.maximum(values, 0.015)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(raised))
    return raised * scale * scale[:, None]


PairTable = dict[str, dict[str, float]]
"""A sparse matrix of figures by two labels; a missing pair is 0."""


def correlation_to_table(matrix: NDArray[np.float64], labels: Sequence[str]) -> PairTable:
    """The part below the diagonal, without what rounds to 0."""
    table: PairTable = {}
    for a, label in enumerate(labels):
        row = {labels[b]: round(float(matrix[a, b]), 3) for b in range(a)}
        row = {other: value for other, value in row.items() if value != 0}
        if row:
            table[label] = row
    return table


def correlation_from_table(table: PairTable, labels: Sequence[str]) -> NDArray[np.float64]:
    """The symmetric matrix (k, k) of a table, with ones on the diagonal."""
    index = {label: i for i, label in enumerate(labels)}
    matrix = np.eye(len(labels))
    for a, row in table.items():
        for b, value in row.items():
            if a in index and b in index:
                matrix[index[a], index[b]] = matrix[index[b], index[a]] = value
    return matrix


def _keys(*names: str) -> AfterValidator:
    """Requires a table to have exactly these keys."""

    def check(table: dict[str, object]) -> dict[str, object]:
        for missing in sorted(set(names) - set(table)):
            raise ValueError(f"'{missing}' is missing")
        for unknown in sorted(set(table) - set(names)):
            raise ValueError(f"{shown(unknown)} does not belong here")
        return table

    return AfterValidator(check)


def _require_labels(table: PairTable) -> PairTable:
    for name in [*table, *(name for row in table.values() for name in row)]:
        if name not in LABELS:
            raise ValueError(f"{shown(name)} is not one of the 17 labels")
    return table


def _correlations(*groups: tuple[str, ...]) -> AfterValidator:
    """Requires the correlations within each group of labels to be possible at the same time."""

    def check(table: PairTable) -> PairTable:
        for group in groups:
            smallest = np.linalg.eigvalsh(correlation_from_table(table, group)).min()
            if smallest <= 1e-9:
                raise ValueError("correlations contradict each other or exceed 1")
        return table

    return AfterValidator(check)


def _among(names: tuple[str, ...]) -> AfterValidator:
    """Requires a table to have no keys but these."""

    def check(table: dict[str, object]) -> dict[str, object]:
        for unknown in sorted(set(table) - set(names)):
            raise ValueError(f"{shown(unknown)} does not belong here")
        return table

    return AfterValidator(check)


def _require_probabilities(table: PairTable) -> PairTable:
    for value in (value for row in table.values() for value in row.values()):
        if not 0 <= value <= 1:
            raise ValueError(f"{value} is not a share from 0 to 1")
    return table


def _require_region(name: str) -> str:
    if name not in REGIONS:
        raise ValueError(f"{shown(name)} is not a region")
    return name


LabelPairs = Annotated[PairTable, AfterValidator(_require_labels)]
Region = Annotated[str, AfterValidator(_require_region)]
Odds = Annotated[float, Field(ge=0, le=1e6)]


class Sourced(Options):
    """Figures with their origin."""

    source: str = Field(min_length=1)
    unit: str = Field(min_length=1)


class Share(Options):
    """`count` of `n`."""

    count: Count
    n: int = Field(ge=1, le=LARGEST_COUNT)

    @model_validator(mode="after")
    def _check(self) -> "Share":
        if self.count > self.n:
            raise ValueError(f"count {self.count} exceeds n {self.n}")
        return self

    @property
    def value(self) -> float:
        return self.count / self.n

    @property
    def smoothed(self) -> float:
        """Never 0 or 1 (Jeffreys), for models that take its logarithm."""
        return (self.count + 0.5) / (self.n + 1)

    @property
    def sampling_error(self) -> float:
        """Standard error of the share as an estimate, from the smoothed share."""
        return math.sqrt(self.smoothed * (1 - self.smoothed) / self.n)


class BestShare(Options):
    """A share as fitted here, and as published for more studies where that is known."""

    fitted: Share
    published: Share | None = None

    @property
    def used(self) -> Share:
        return self.fitted if self.published is None else self.published


class Presence(Sourced):
    """Which labels a study shows."""

    labels: Annotated[dict[str, BestShare], _keys(*LABELS)]
    # Correlation of the Gaussian variable behind each label's presence: regions among themselves;
    # landmarks and findings among themselves, over the studies in which both are possible.
    latent: Annotated[LabelPairs, _correlations(REGIONS, LANDMARKS + FINDINGS)]


class LogNormal(Options):
    """Natural log of a duration in original frames."""

    n: Count
    log_mean: float = Field(ge=-20, le=20)
    log_sd: float = Field(ge=0, le=10)
    median: float = Field(gt=0, le=LARGEST_COUNT)  # of the durations, not exp(log_mean)

    @property
    def spread(self) -> float:
        """Standard deviation of the log durations for a density, which needs one above 0."""
        return max(self.log_sd, LEAST_LOG_SD)


class PublishedDuration(Options):
    """What is known of a duration over more studies."""

    n: Count
    median: float = Field(gt=0, le=LARGEST_COUNT)
    log_sd: float = Field(ge=0, le=10)


class Duration(Options):
    """Total time in a region, given that the study shows it."""

    fitted: LogNormal
    published: PublishedDuration | None = None


class BackSteps(Sourced):
    """Steps back to an earlier region.

    Of the two intervals around a step, in the later and in the earlier region, one is the shorter.
    """

    studies: BestShare  # studies with at least one
    steps: Count  # in all, in the fitted studies
    published_steps: Count | None = None  # in all, in the published studies
    shorter: LogNormal
    longer: LogNormal
    early: Share  # steps in which the shorter interval is the one in the later region
    # By the later region: studies whose steps cross its entry.
    borders: Annotated[dict[str, Share], _among(REGIONS)]

    @property
    def mean_steps(self) -> float:
        """Steps per study that has any."""
        steps = self.steps if self.published_steps is None else self.published_steps
        return steps / max(self.studies.used.count, 1)


class Regions(Sourced):
    """How long a capsule stays in each region."""

    durations: Annotated[dict[str, Duration], _keys(*REGIONS)]
    # Of log durations, over the studies that show both regions.
    correlation: Annotated[LabelPairs, _correlations(REGIONS)]
    without: Share  # rows without any region


class Landmark(Options):
    """Runs of a landmark around the change of region that it marks.

    The main run is the one nearest to the change: it ends there, starts there, lies across it, or
    lies before or after it at a distance.
    """

    needs: tuple[Region, ...]  # regions that every study with the landmark shows
    runs: Sizes  # per study that shows it
    lengths: Sizes  # rows
    main: Annotated[dict[str, Share], _keys("ends", "starts", "across", "before", "after")]
    distance: Sizes  # rows between a main run that lies before or after, and the change
    gaps: Sizes  # rows between neighbouring runs
    others_before: Share  # of the further runs, those before the main run
    published_ends: Share | None = None  # studies with a run that ends where the region does


class Landmarks(Sourced):
    """The three landmarks."""

    labels: Annotated[dict[str, Landmark], _keys(*LANDMARKS)]


class Finding(Options):
    """Runs of one finding, in bursts."""

    bursts: Sizes  # per study that shows the finding
    runs: Sizes  # per burst, each study weighing the same
    lengths: Sizes  # rows per run
    gaps_inside: Sizes  # rows between the runs of a burst
    gaps_between: Sizes  # rows between bursts
    rows: float = Field(ge=0, le=LARGEST_COUNT)  # mean per study that shows the finding
    # Odds of a row of the finding to lie in each region, to be multiplied by the square root of
    # the region's rows in the study at hand.
    region: Annotated[dict[str, Odds], _keys(*REGIONS)]


class Findings(Sourced):
    """The nine findings."""

    burst_gap: int = Field(ge=1, le=int(LARGEST_SIZE))  # a longer gap, in rows, ends a burst
    labels: Annotated[dict[str, Finding], _keys(*FINDINGS)]


class Overlap(Options):
    """How often finding b is seen on the rows of finding a."""

    studies: Count  # that show both
    share: Probability  # mean over those studies of the share of a's rows with b
    sd: float = Field(ge=0, le=1)  # of that share between studies


class Cooccurrence(Sourced):
    """Findings on the same rows."""

    # [a][b] = P(b | a) over all rows of all studies
    pooled: Annotated[LabelPairs, AfterValidator(_require_probabilities)]
    # [a][b], over the studies that show both
    both: Annotated[dict[str, Annotated[dict[str, Overlap], _among(LABELS)]], _among(LABELS)]


class GivenRegion(Sourced):
    """P(landmark or finding | region)."""

    frames: Annotated[dict[str, Count], _keys(*REGIONS)]  # original frames of each region
    shares: Annotated[dict[str, Annotated[dict[str, Probability], _among(LABELS)]], _keys(*REGIONS)]


class Priors(Options):
    """Everything that was measured."""

    source: str = Field(min_length=1)
    studies: int = Field(ge=1, le=LARGEST_COUNT)
    rows: int = Field(ge=1, le=LARGEST_COUNT)
    # Original frames per stored row -> number of studies.
    strides: dict[str, Count] = Field(max_length=1000)
    presence: Presence
    regions: Regions
    back_steps: BackSteps
    landmarks: Landmarks
    findings: Findings
    cooccurrence: Cooccurrence
    given_region: GivenRegion

    def share(self, label: str) -> float:
        """Share of studies that show the label."""
        return self.presence.labels[label].used.value

    def run_lengths(self, label: str) -> Sizes:
        """Rows per run of a landmark or finding."""
        if label in LANDMARKS:
            return self.landmarks.labels[label].lengths
        return self.findings.labels[label].lengths


PACKAGED = "priors.json"


def load_priors(path: Path | None = None) -> Priors:
    """The priors in the file, or those that come with the package."""
    if path is None:
        text = resources.files("enteron").joinpath(PACKAGED).read_text(encoding="utf-8")
        return make_options(Priors, parse_json(text, PACKAGED), PACKAGED)
    table = read_json_object(
        path,
        "make them with `enteron priors fit`, or give no file to use the packaged ones",
        source=f"priors {path.name}",
        limit=RECORD_LIMIT,
        error=ConfigError,
    )
    return make_options(Priors, table, path.name)


def priors_hash(priors: Priors) -> str:
    """Identifies priors by their content, wherever they are stored."""
    return hashlib.sha256(priors_to_json(priors).encode()).hexdigest()


def save_priors(priors: Priors, path: Path) -> None:
    """Write the priors atomically; equal priors give the same bytes."""
    write_text(path, priors_to_json(priors))


def priors_to_json(priors: Priors) -> str:
    """Sorted and indented, with each list and each small object of numbers on one line."""
    text = json_text(priors.model_dump(exclude_none=True), indent=1, sort_keys=True)
    text = re.sub(r"\[[^\[\]{}]*\]", _one_line, text)
    return re.sub(r"\{[^\[\]{}]*\}", _one_line, text) + "\n"


def _one_line(match: re.Match[str]) -> str:
    text = match.group()
    # An object with prose would become longer than a screen is wide.
    return text if '"source"' in text else re.sub(r"\s*\n\s*", " ", text)
