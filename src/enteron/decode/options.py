"""Options of decoding. Each preset is one value of `DecodeOptions`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from enteron.calibration.calibration import Calibration
from enteron.errors import ConfigError, nearest
from enteron.options import Options


def _odd(window: int) -> int:
    if window % 2 == 0:
        raise ValueError("window of a median must be odd, so that it has a middle")
    return window


OddRows = Annotated[int, Field(ge=1), AfterValidator(_odd)]


class StateMachineOptions(Options):
    """The paper's forward-only state machine (stage 2)."""

    window: OddRows = 51
    """Median filter of regions and landmarks before it, in rows; odd."""

    tau: int = Field(default=200, ge=1)
    """Consecutive rows that must point forward before the state changes."""

    strict: bool = False
    """Count the rows for each candidate state on its own. The paper's text lets the counter run
    on while the candidate changes between forward states (decision 23)."""

    backdate: bool = False
    """Begin the new state at the first row of the confirming run, not at its last (decision 24)."""


class SemiMarkovOptions(Options):
    """Transit as ordered stays with known distributions of duration."""

    kappa: float | None = Field(default=None, gt=0)
    """Weight of one row's evidence. Below 1, since the errors of neighbouring rows are alike.
    None: as tuned for the model, or 0.3."""

    clip: float = Field(default=6.0, gt=0)
    """Largest log-odds, relative to the base rate, that one row may contribute."""

    stride: int | None = Field(default=None, ge=1)
    """Original frames per row, in which durations are known; None: the frame numbers tell."""

    cells: int = Field(default=160, ge=2)
    """The coarse grid divides the study into so many cells."""

    margin: int = Field(default=25, ge=0)
    """Rows: an onset's confidence is the posterior that it lies no further away."""

    dense: int = Field(default=400, ge=0)
    """Every row up to this one is on the grid: mouth and esophagus last about ten rows."""


class LandmarkOptions(Options):
    """Landmarks: z-line, pylorus, ileocecal valve."""

    method: Literal["hysteresis", "transition"] = "hysteresis"
    """`hysteresis` as in the paper; `transition` weighs the evidence around a change of region."""

    near: int = Field(default=50, ge=0)
    """Rows: how far from an adjacent region (or from the change of region) one may lie."""

    believed: float = Field(default=0.5, ge=0, le=1)
    """`transition` emits a landmark whose posterior reaches this, if its evidence is positive."""


class FindingOptions(Options):
    """Findings: hysteresis on smoothed scores, then what may be dropped."""

    window: OddRows | None = 25
    """Median filter in rows, odd. None: mean of log-odds over the label's median run."""

    low: float | None = Field(default=0.7, gt=0, le=1)
    """Lower threshold as a share of the upper one; None: as tuned for the model, or 0.7."""

    threshold: Literal["frames", "events", "clinical"] = "frames"
    """Which of the calibration's thresholds is the upper one."""

    floor: float | None = Field(default=None, ge=0, lt=1)
    """Drop events shorter than this quantile of the label's run lengths; None: drop none."""

    persistence: float | None = Field(default=2.0, ge=0)
    """Drop events with a smaller persistence score (paper stage 3); None: drop none."""

    longest: int | None = Field(default=3000, ge=0)
    """Drop events with a longer duration in rows; None: drop none."""

    most: int | None = Field(default=40, ge=0)
    """Keep so many a study, over all labels; None: all."""


class DecodeOptions(Options):
    """From scores to events."""

    calibration: Literal["paper", "likelihood"] = "likelihood"
    """Temperature by the paper's grid, or temperature and bias by likelihood."""

    device: str | None = None
    """Capsule system, for a temperature of its own."""

    anatomy: Literal["state machine", "semi-Markov"] = "semi-Markov"
    """How regions are found."""

    state_machine: StateMachineOptions = StateMachineOptions()
    semi_markov: SemiMarkovOptions = SemiMarkovOptions()
    landmarks: LandmarkOptions = LandmarkOptions()
    findings: FindingOptions = FindingOptions()

    gate: float = Field(default=0.3, ge=0, le=1)
    """Scores are multiplied by this where the region makes a label implausible; 1: no gating."""

    implausible: float = Field(default=0.001, ge=0, le=1)
    """A label is implausible in a region that shows it on a smaller share of frames."""

    silence: bool = False
    """Emit a label only where the expected official score is better for it."""

    cut: bool = False
    """Write the official file cut at every change of the label set, the most certain first."""


PAPER: Final = DecodeOptions(calibration="paper", anatomy="state machine")
"""Exactly as the paper writes it: for reproducing its results."""

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
"""The best events: durations and run lengths as measured, confidence for everything."""

CHALLENGE: Final = TRANSIT.model_copy(update={"silence": True, "cut": True})
"""For the official score: silent where silence is expected to score better."""

CLINICAL: Final = TRANSIT.model_copy(
    update={"findings": TRANSIT.findings.model_copy(update={"threshold": "clinical"})}
)
"""For a physician: findings within a budget of false alarms per hour."""

PRESETS: Final = {
    "paper": PAPER,
    "transit": TRANSIT,
    "challenge": CHALLENGE,
    "clinical": CLINICAL,
}


def preset(name: str) -> DecodeOptions:
    """The options of a preset."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'", nearest(name, PRESETS))
    return PRESETS[name]


_REMEDY = "give a model that `enteron calibrate` or `enteron tune` has seen, or use 'transit'"


def require_fitted(options: DecodeOptions, calibration: Calibration) -> None:
    """Refuse options that rest on something that was never fitted."""
    if options.findings.threshold == "clinical" and not calibration.events:
        raise ConfigError("thresholds for a budget of false alarms were never fitted", _REMEDY)
    if options.silence and not calibration.silence:
        raise ConfigError(
            "presence and expected AP of labels, for silence, were never fitted", _REMEDY
        )


def scaled_rows(rows: float, shortening: float) -> int:
    """So many rows of a full-length study, in rows of a shortened one; none stays none."""
    return max(1, round(rows / shortening)) if rows else 0


def scaled_window(rows: int, shortening: float) -> int:
    """The same for a window, which has a middle: an odd number of rows."""
    scaled = scaled_rows(rows, shortening)
    return scaled if scaled % 2 else max(1, scaled - 1)
