"""The priors as one frozen value; every block says where its figures come from and their unit."""

import json
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

from enteron.errors import ConfigError
from enteron.files import write_text
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.options import Options, parse_json_options

LEVELS: Final = (
    *(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    *(0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0),
)
"""Levels of the stored quantiles; denser above, where sizes differ by orders of magnitude."""


class Sizes(Options):
    """Sizes of n things: the share that is exactly 1, and the distribution of the others.

    The log-normal figures describe the others for a model that wants two numbers. `draw` uses the
    quantiles, since real sizes have heavier tails than a log-normal.
    """

    n: int = Field(ge=0)
    single: float = Field(ge=0, le=1)  # share of sizes that are exactly 1
    log_mean: float  # mean of the natural log of the sizes above 1
    log_sd: float = Field(ge=0)  # its standard deviation
    quantiles: tuple[float, ...]  # of the sizes above 1 at LEVELS; k is spread over k-.5 to k+.5

    @model_validator(mode="after")
    def _check(self) -> "Sizes":
        if len(self.quantiles) != len(LEVELS):
            raise ValueError(f"quantiles must be {len(LEVELS)} numbers")
        if any(b < a for a, b in zip(self.quantiles, self.quantiles[1:], strict=False)):
            raise ValueError("quantiles must not fall")
        if self.quantiles[0] < 1.5:
            raise ValueError("quantiles are of sizes above 1, so none is below 1.5")
        return self

    def draw(self, count: int, rng: np.random.Generator, factor: float = 1.0) -> NDArray[np.int64]:
        """`count` sizes times the factor, each at least 1."""
        # One uniform number decides both: below `single` it is a 1, above it is the level.
        u = rng.random(count)
        level = (u - self.single) / max(1 - self.single, 1e-12)
        above = np.exp(np.interp(level, LEVELS, np.log(self.quantiles)))
        # Clipped since rounding 1.5 itself goes either way.
        above = np.maximum(np.rint(above), 2)
        return shrunk(np.where(u < self.single, 1, above), factor)

    def quantile(self, level: float) -> float:
        """The size below which the share `level` of all sizes lies, those of 1 included."""
        if level <= self.single:
            return 1.0
        rest = (level - self.single) / (1 - self.single)
        return float(np.exp(np.interp(rest, LEVELS, np.log(self.quantiles))))


def shrunk(sizes: ArrayLike, factor: float) -> NDArray[np.int64]:
    """Sizes times the factor; what was one row stays one, and what was more stays more."""
    scaled = np.maximum(np.rint(np.asarray(sizes) * factor), 2)
    return np.where(np.asarray(sizes) == 1, 1, scaled).astype(np.int64)


def fit_sizes(values: ArrayLike, weights: ArrayLike | None = None) -> Sizes:
    """The distribution of the values, which are whole numbers from 1; equal weights by default."""
    sizes = np.asarray(values, dtype=np.int64)
    weight = np.ones(sizes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    more = sizes > 1
    if not more.any():
        # Nothing above 1 was seen: 2 is the nearest size that could have been.
        two = tuple(1.5 + level for level in LEVELS)
        single = 1.0 if sizes.size else 0.0
        return Sizes(n=sizes.size, single=single, log_mean=math.log(2), log_sd=0, quantiles=two)
    above, share = sizes[more], weight[more] / weight[more].sum()
    logs = np.log(above)
    mean = float(share @ logs)
    # Unbiased for equal weights: one minus the sum of squares is then (n - 1) / n.
    freedom = 1 - float(share @ share)
    spread = math.sqrt(float(share @ (logs - mean) ** 2) / freedom) if above.size > 1 else 0.0
    return Sizes(
        n=sizes.size,
        single=round(float(weight[~more].sum() / weight.sum()), 4),
        log_mean=round(mean, 4),
        log_sd=round(spread, 4),
        quantiles=tuple(significant(q) for q in _spread_quantiles(above, share)),
    )


def _spread_quantiles(values: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles with each whole number k spread evenly over [k - 0.5, k + 0.5).

    So that rounding a value interpolated between two quantiles returns k as often as it was seen.
    """
    whole, which = np.unique(values, return_inverse=True)
    each = np.bincount(which, weights=share)
    reached = np.cumsum(each)
    level = np.column_stack([reached - each, reached]).ravel()
    edge = np.column_stack([whole - 0.5, whole + 0.5]).ravel()
    # Between two values nothing was seen, so the level stands still; `interp` wants it to rise.
    return np.interp(LEVELS, level + 1e-12 * np.arange(level.size), edge)


def significant(value: float, digits: int = 4) -> float:
    """The value with so many significant digits: enough, and the file stays readable."""
    return float(f"{value:.{digits}g}")


Table = dict[str, dict[str, float]]
"""A sparse matrix of figures by two labels; a pair that is missing is 0."""


def _named(*known: str) -> AfterValidator:
    def check(table: dict[str, object]) -> dict[str, object]:
        for missing in sorted(set(known) - set(table)):
            raise ValueError(f"'{missing}' is missing")
        for unknown in sorted(set(table) - set(known)):
            raise ValueError(f"'{unknown}' does not belong here")
        return table

    return AfterValidator(check)


def _of_labels(table: Table) -> Table:
    for name in [*table, *(name for row in table.values() for name in row)]:
        if name not in LABELS:
            raise ValueError(f"'{name}' is not one of the 17 labels")
    return table


LabelTable = Annotated[Table, AfterValidator(_of_labels)]


class Block(Options):
    """Figures with their origin."""

    source: str = Field(min_length=1)
    unit: str = Field(min_length=1)


class Share(Options):
    """`count` of `n`."""

    count: int = Field(ge=0)
    n: int = Field(ge=1)

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


class Presence(Block):
    """Which labels a study shows."""

    labels: Annotated[dict[str, BestShare], _named(*LABELS)]
    # Correlation of the Gaussian variable behind each label's presence: regions among themselves;
    # landmarks and findings among themselves, over the studies in which both are possible.
    latent: LabelTable


class LogNormal(Options):
    """Natural log of a duration in original frames."""

    n: int = Field(ge=0)
    log_mean: float
    log_sd: float = Field(ge=0)
    median: float = Field(gt=0)  # of the durations themselves, not exp(log_mean)


class PublishedDuration(Options):
    """What is known of a duration over more studies."""

    n: int
    median: float
    log_sd: float


class Duration(Options):
    """Total stay in a region, given that the study shows it."""

    fitted: LogNormal
    published: PublishedDuration | None = None


class BackSteps(Block):
    """Steps back to an earlier region: of the two stays around one, the shorter and the longer."""

    studies: BestShare  # studies with at least one
    steps: int = Field(ge=0)  # in all, in the fitted studies
    published_steps: int | None = Field(default=None, ge=0)  # in all, in the published studies
    shorter: LogNormal
    longer: LogNormal
    early: Share  # steps in which the shorter stay is the one in the later region
    borders: dict[str, Share]  # by the later region: studies whose steps cross its entry

    @property
    def mean_steps(self) -> float:
        """Steps per study that has any."""
        steps = self.steps if self.published_steps is None else self.published_steps
        return steps / max(self.studies.used.count, 1)


class Regions(Block):
    """How long a capsule stays where."""

    durations: Annotated[dict[str, Duration], _named(*REGIONS)]
    correlation: LabelTable  # of log durations, over the studies that show both
    without: Share  # rows without any region


class Landmark(Options):
    """Runs of a landmark around the change of region that it marks.

    The main run is the one nearest to the change: it ends there, starts there, lies across it, or
    lies before or after it at a distance.
    """

    needs: tuple[str, ...]  # regions that every study with the landmark shows
    runs: Sizes  # per study that shows it
    lengths: Sizes  # rows
    main: Annotated[dict[str, Share], _named("ends", "starts", "across", "before", "after")]
    distance: Sizes  # rows between a main run that lies before or after, and the change
    gaps: Sizes  # rows between neighbouring runs
    others_before: Share  # of the further runs, those before the main run
    published_ends: Share | None = None  # studies with a run that ends where the region does


class Landmarks(Block):
    """The three landmarks."""

    labels: Annotated[dict[str, Landmark], _named(*LANDMARKS)]


class Finding(Options):
    """Runs of one finding, in bursts."""

    bursts: Sizes  # per study that shows the finding
    runs: Sizes  # per burst, each study weighing the same
    lengths: Sizes  # rows per run
    gaps_inside: Sizes  # rows between the runs of a burst
    gaps_between: Sizes  # rows between bursts
    rows: float = Field(ge=0)  # mean per study that shows the finding
    # Odds of a row of the finding to lie in each region, to be multiplied by the root of the
    # region's rows in the study at hand.
    region: Annotated[dict[str, float], _named(*REGIONS)]


class Findings(Block):
    """The nine findings."""

    burst_gap: int = Field(ge=1)  # a longer gap, in rows, ends a burst
    labels: Annotated[dict[str, Finding], _named(*FINDINGS)]


class Together(Options):
    """How often b is seen on a's rows."""

    studies: int = Field(ge=0)  # that show both
    share: float = Field(ge=0, le=1)  # mean over those studies of the share of a's rows with b
    sd: float = Field(ge=0)  # of that share between studies


class Cooccurrence(Block):
    """Findings on the same rows."""

    pooled: LabelTable  # [a][b] = P(b | a) over all rows of all studies
    both: dict[str, dict[str, Together]]  # [a][b], over the studies that show both


class GivenRegion(Block):
    """P(landmark or finding | region)."""

    frames: dict[str, int]  # original frames of each region
    shares: Annotated[dict[str, dict[str, float]], _named(*REGIONS)]


class Priors(Options):
    """Everything that was measured."""

    source: str = Field(min_length=1)
    studies: int = Field(ge=1)
    rows: int = Field(ge=1)
    strides: dict[str, int]  # original frames per stored row -> number of studies
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
        name = PACKAGED
        text = resources.files("enteron").joinpath(PACKAGED).read_text(encoding="utf-8")
    else:
        name = path.name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"priors {name} cannot be read ({error})",
                "make them with `enteron priors fit`, or give no file to use the packaged ones",
            ) from error
    return parse_json_options(Priors, text, name, "make it again with `enteron priors fit`")


def save_priors(priors: Priors, path: Path) -> None:
    """Write them so that the same priors are the same bytes, and never half a file."""
    write_text(path, to_json(priors))


def to_json(priors: Priors) -> str:
    """Sorted and indented, with each list and each small object of numbers on one line."""
    text = json.dumps(priors.model_dump(exclude_none=True), indent=1, sort_keys=True)
    text = re.sub(r"\[[^\[\]{}]*\]", _one_line, text)
    return re.sub(r"\{[^\[\]{}]*\}", _one_line, text) + "\n"


def _one_line(match: re.Match[str]) -> str:
    whole = match.group()
    line = re.sub(r"\s*\n\s*", " ", whole)
    # Prose would only grow longer than the screen; keep its lines.
    return whole if '"source"' in whole else line


STRONGEST: Final = 0.98
"""Bound of a correlation: 1 would make two labels one."""

NOTICEABLE: Final = 2.0
"""A correlation counts from so many standard errors; weaker ones cannot be told from none."""

_NORMAL: Final = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


def threshold(share: float) -> float:
    """The value below which a standard Gaussian lies with probability `share`."""
    if share <= 0:
        return -np.inf
    return np.inf if share >= 1 else _NORMAL.inv_cdf(share)


def both(share_a: float, share_b: float, correlation: float) -> float:
    """Probability that both of two labels are present."""
    if min(share_a, share_b) <= 0:
        return 0.0
    if max(share_a, share_b) >= 1:
        return min(share_a, share_b)
    h, k = threshold(share_a), threshold(share_b)
    # Plackett: d/dr of the bivariate normal integral is its density; substituted r = sin(angle).
    half = np.arcsin(correlation) / 2
    angle = half * (_NODES + 1)
    density = np.exp(-(h * h + k * k - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2))
    return share_a * share_b + float(half * (_WEIGHTS @ density) / (2 * np.pi))


def latent_correlation(share_a: float, share_b: float, together: float) -> float:
    """The correlation at which both are present with probability `together`."""
    low, high = -STRONGEST, STRONGEST
    for _ in range(40):
        middle = (low + high) / 2
        if both(share_a, share_b, middle) < together:
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
            seen = possible[:, a] & possible[:, b]
            first, second = present[seen, a], present[seen, b]
            spread = float(first.std() * second.std()) if seen.any() else 0.0
            if spread == 0:
                continue
            together = float(np.mean(first & second))
            phi = (together - first.mean() * second.mean()) / spread
            if abs(phi) * np.sqrt(seen.sum()) >= NOTICEABLE:
                found = latent_correlation(float(first.mean()), float(second.mean()), together)
                matrix[a, b] = matrix[b, a] = found
    return proper_correlation(matrix)


def proper_correlation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with negative eigenvalues raised: pairs fitted one by one may contradict."""
    values, vectors = np.linalg.eigh(matrix)
    # Above 0 by enough to survive rounding to three decimals.
    mended = (vectors * np.maximum(values, 0.015)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(mended))
    return mended * scale * scale[:, None]


def to_table(matrix: NDArray[np.float64], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The part below the diagonal, without what rounds to 0."""
    table: dict[str, dict[str, float]] = {}
    for a, name in enumerate(names):
        row = {names[b]: round(float(matrix[a, b]), 3) for b in range(a)}
        row = {other: value for other, value in row.items() if value != 0}
        if row:
            table[name] = row
    return table


def from_table(table: dict[str, dict[str, float]], names: Sequence[str]) -> NDArray[np.float64]:
    """The symmetric matrix (k, k) of a table, with ones on the diagonal."""
    place = {name: i for i, name in enumerate(names)}
    matrix = np.eye(len(names))
    for a, row in table.items():
        for b, value in row.items():
            if a in place and b in place:
                matrix[place[a], place[b]] = matrix[place[b], place[a]] = value
    return matrix
