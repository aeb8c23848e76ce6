"""The priors as one frozen value; every block says where its figures come from and their unit."""

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from enteron.config import Options
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors.sizes import Sizes

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
