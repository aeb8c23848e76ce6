"""Options of decoding, the presets, and their scaling to a study with fewer rows.

Each preset is one value of `DecodeOptions`. Constants counted in rows (windows, tau, margin, near,
longest, shortest, gap) mean rows of a full-length study, in which a row stands for about five
original frames. Synthetic studies may be drawn with fewer rows; `scaled_for` brings the constants
to the rows of the study at hand, once, before decoding starts.
"""

import math
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from enteron.calibration import LARGEST_WINDOW, Calibration, Kappa
from enteron.errors import ConfigError, nearest
from enteron.options import Options
from enteron.runs import scaled_rows, scaled_window
from enteron.types import Scores

DEFAULT_KAPPA: Final = 0.3
"""Weight of a row where neither the options nor the calibration have one."""

DEFAULT_LOW: Final = 0.7
"""Lower threshold as a share of the upper one, in the same case; the paper: l_c = 0.7 h_c."""


def _odd(window: int) -> int:
    if window % 2 == 0:
        raise ValueError("window of a median must be odd, so that it has a middle")
    return window


# Upper bounds keep a mistyped file from asking for hours of work or for numbers without meaning.
LARGEST_ROWS: Final = 10**7
"""Rows that an option may name: some hundred times a study."""

OddRows = Annotated[int, Field(ge=1, le=LARGEST_WINDOW), AfterValidator(_odd)]


class StateMachineOptions(Options):
    """The paper's forward-only state machine (stage 2)."""

    window: OddRows = 51
    """Median filter of regions and landmarks before it, in rows; odd."""

    tau: int = Field(default=200, ge=1, le=LARGEST_ROWS)
    """Consecutive rows that must point forward before the state changes."""

    strict: bool = False
    """Count the rows of each candidate state separately. In the paper's text the counter keeps
    running while the candidate changes between forward states (decision 23)."""

    backdate: bool = False
    """Start the new state at the first row of the confirming run, not at its last (decision 24)."""


class SemiMarkovOptions(Options):
    """Regions as ordered intervals whose durations follow measured distributions."""

    kappa: Kappa | None = None
    """Weight of one row's evidence. Below 1, since errors of neighbouring rows are correlated.
    None: as fitted for the model, or 0.3."""

    clip: float = Field(default=6.0, ge=0.01, le=100)
    """Largest log-odds, relative to the base rate, that one row may contribute."""

    stride: int | None = Field(default=None, ge=1, le=100_000)
    """Original frames per row, the unit of durations; None: from the frame numbers."""

    cells: int = Field(default=160, ge=2, le=500)
    """Number of cells of the coarse grid over the study."""

    margin: int = Field(default=25, ge=0, le=250)
    """Rows: the confidence of an onset is the posterior that it lies at most this far away."""

    dense: int = Field(default=400, ge=0, le=2000)
    """Every row up to this one is on the grid: mouth and esophagus last about ten rows."""


class LandmarkOptions(Options):
    """Landmarks: z-line, pylorus, ileocecal valve."""

    method: Literal["hysteresis", "transition"] = "hysteresis"
    """`hysteresis` as in the paper; `transition` weighs the evidence around a change of region."""

    near: int = Field(default=50, ge=0, le=1000)
    """Rows: largest distance from an adjacent region (or from the change of region)."""

    believed: float = Field(default=0.5, ge=0, le=1)
    """`transition` emits a landmark whose posterior probability reaches this, if its evidence is
    positive."""


class FindingOptions(Options):
    """Findings: hysteresis on smoothed scores, then limits, then a ranking."""

    window: OddRows | None = 25
    """Median filter in rows, odd. None: mean of log-odds over the label's median run length."""

    low: float | None = Field(default=0.7, gt=0, le=1)
    """Lower threshold as a share of the upper one; None: as fitted for the model, or 0.7."""

    threshold: Literal["frames", "events", "clinical"] = "frames"
    """Which of the calibration's thresholds is the upper one."""

    floor: float | None = Field(default=None, ge=0, lt=1)
    """Drop events shorter than this quantile of the label's run lengths; None: drop none."""

    persistence: float | None = Field(default=2.0, ge=0, le=1e6)
    """Drop events with a smaller persistence score (paper stage 3); None: drop none."""

    longest: int | None = Field(default=3000, ge=0, le=LARGEST_ROWS)
    """Drop events with a longer duration in rows; None: drop none."""

    most: int | None = Field(default=40, ge=0, le=LARGEST_ROWS)
    """Keep this many events a study, over all labels, by persistence; None: all."""

    rank: Literal["persistence", "confidence"] = "confidence"
    """Order and score of the events. `persistence`: by the paper's S, scored by mean probability.
    `confidence`: scored and ordered by the probability that the event is true, with a confidence
    for each of its ends."""


class GapMergeOptions(Options):
    """The prior submission's decoder (decision 32), the same for every label."""

    window: OddRows = 7
    """Median of each label's thresholded column, in rows; odd."""

    shortest: int = Field(default=3, ge=1, le=LARGEST_ROWS)
    """Drop runs of fewer rows, before gaps are closed."""

    gap: int = Field(default=5, ge=0, le=LARGEST_ROWS)
    """Join runs of a label with at most this many rows between them: 5 in v3.1, 15 in the paper's
    text."""


class DecodeOptions(Options):
    """From scores to events."""

    calibration: Literal["paper", "likelihood"] = "likelihood"
    """Temperature by the paper's grid, or temperature and bias by likelihood."""

    anatomy: Literal["state machine", "semi-Markov"] = "semi-Markov"
    """How regions are found."""

    gap_merge: GapMergeOptions | None = None
    """Decode every label on its own by the prior submission's gap merge; anatomy, landmarks,
    findings and gating are then not used. None: do not."""

    state_machine: StateMachineOptions = StateMachineOptions()
    semi_markov: SemiMarkovOptions = SemiMarkovOptions()
    landmarks: LandmarkOptions = LandmarkOptions()
    findings: FindingOptions = FindingOptions()

    gate: float = Field(default=0.3, ge=0, le=1)
    """Scores are multiplied by this where the region makes a label implausible; 1: no gating."""

    implausible: float = Field(default=0.001, ge=0, le=1)
    """A label is implausible in a region that shows it on a smaller share of frames."""

    silence: bool = False
    """Emit a label only where emitting it raises the expected official score."""

    cut: bool = False
    """Cut the official file at every change of the label set."""

    order: Literal["rank", "time"] = "rank"
    """Order of the official file, which is its ranking. `rank`: events as they are ranked, pieces
    by confidence. `time`: as they follow each other, as in v3.1."""

    @model_validator(mode="after")
    def _require_confidence(self) -> "DecodeOptions":
        """Silence and the order of pieces are computed from confidence."""
        if self.silence and self.gap_merge is not None:
            raise ConfigError(
                "the options contradict each other: silence = true needs the confidence of events, "
                "which [gap_merge] does not give",
                "leave out [gap_merge], or set silence = false",
            )
        for name, value in (("silence", self.silence), ("cut", self.cut)):
            if value and self.findings.rank != "confidence":
                raise ConfigError(
                    f"the options contradict each other: {name} = true needs the confidence of "
                    f"findings, which [findings] rank = '{self.findings.rank}' does not give",
                    f"set rank = 'confidence', or {name} = false",
                )
        return self


PAPER: Final = DecodeOptions(
    calibration="paper",
    anatomy="state machine",
    findings=FindingOptions(rank="persistence"),
)
"""Exactly as the paper describes it: for reproducing its results."""

GAP_MERGE: Final = DecodeOptions(
    calibration="paper", gap_merge=GapMergeOptions(), cut=True, order="time"
)
"""The decoder of the authors' prior submission (v3.1), to compare with."""

TRANSIT: Final = DecodeOptions(
    landmarks=LandmarkOptions(method="transition"),
    findings=FindingOptions(
        window=None,
        low=None,
        threshold="events",
        floor=0.1,
        persistence=None,
        longest=None,
        most=None,
    ),
)
"""The best events: durations and run lengths as measured, a confidence for every event."""

CHALLENGE: Final = DecodeOptions(
    landmarks=TRANSIT.landmarks, findings=TRANSIT.findings, silence=True, cut=True
)
"""For the official score: silent where silence is expected to score better."""

CLINICAL: Final = DecodeOptions(
    landmarks=TRANSIT.landmarks,
    findings=FindingOptions.model_validate(
        TRANSIT.findings.model_dump() | {"threshold": "clinical"}
    ),
)
"""For a physician: findings within a budget of false alarms, or with a promised recall where the
calibration has one."""

PRESETS: Final = {
    "paper": PAPER,
    "gap-merge": GAP_MERGE,
    "transit": TRANSIT,
    "challenge": CHALLENGE,
    "clinical": CLINICAL,
}


def preset(name: str) -> DecodeOptions:
    """The options of a preset."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'", nearest(name, PRESETS))
    return PRESETS[name]


_CALIBRATE_FIRST = (
    "give a model that was calibrated with `enteron calibrate` or `enteron tune`, "
    "or use the preset 'transit'"
)


def require_fitted(options: DecodeOptions, calibration: Calibration) -> None:
    """Refuse options that need something the calibration does not have."""
    is_fitted = calibration.events or calibration.guarantee is not None
    if options.findings.threshold == "clinical" and not is_fitted:
        raise ConfigError(
            "thresholds for a budget of false alarms were never fitted, and no recall was promised",
            _CALIBRATE_FIRST,
        )
    if options.silence and not calibration.silence:
        raise ConfigError(
            "presence and expected AP of labels, for silence, were never fitted", _CALIBRATE_FIRST
        )


def scaled_for(options: DecodeOptions, scores: Scores) -> DecodeOptions:
    """The options with every constant counted in rows brought to the rows of this study.

    The same options for a full-length study. What is no option but is measured in rows of a
    full-length study (run lengths of the priors, windows of the calibration, the duration in the
    persistence score) is scaled where it is used, by `scores.shortening`.
    """
    row_scale = scores.shortening
    if row_scale == 1:
        return options
    table = options.model_dump()
    machine, findings, merging = table["state_machine"], table["findings"], table["gap_merge"]
    machine["window"] = scaled_window(machine["window"], row_scale)
    machine["tau"] = scaled_rows(machine["tau"], row_scale)
    table["semi_markov"]["margin"] = scaled_rows(table["semi_markov"]["margin"], row_scale)
    table["landmarks"]["near"] = scaled_rows(table["landmarks"]["near"], row_scale)
    if findings["window"] is not None:
        findings["window"] = scaled_window(findings["window"], row_scale)
    if findings["longest"] is not None:
        findings["longest"] = _scaled_limit(findings["longest"], row_scale)
    if merging is not None:
        merging["window"] = scaled_window(merging["window"], row_scale)
        merging["shortest"] = scaled_rows(merging["shortest"], row_scale)
        merging["gap"] = scaled_rows(merging["gap"], row_scale)
    return DecodeOptions.model_validate(table)


def _scaled_limit(rows: int, row_scale: float) -> int:
    """The most rows that stand for no more than `rows` full-length ones."""
    limit = math.floor(rows / row_scale) + 1  # one more: the quotient may be rounded down
    while limit * row_scale > rows:
        limit -= 1
    return limit
