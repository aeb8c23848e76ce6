"""How far confidences can be trusted, as values that `calibration.json` stores.

Calibrators turn the confidence of an event into the probability that it is true; reliability tables
show whether they do. A `Guarantee` is a promised recall of lesions with the studies that it was
fitted on, described such that a new study can be compared with them. `enteron.fitting` fits all of
it on studies that did not train the model.
"""

from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.special import expit, logit

from enteron.options import Options

Floats = NDArray[np.float64]

EDGE: Final = 1e-6
"""Confidences nearer to 0 or 1 are moved here before a logarithm is taken."""


# ---- Reliability


class ReliabilityBin(Options):
    """Events whose confidence lies in [low, high); the last bin includes 1."""

    low: float
    high: float
    events: int = Field(ge=1)
    confidence: float  # mean
    true_share: float  # of the events that show a lesion
    interval: tuple[float, float]  # Wilson's, of the true share


class EventReliability(Options):
    """How well confidences agree with the share of true events; empty bins are left out."""

    events: int
    ece: float = Field(ge=0)  # expected calibration error: mean |confidence - share|, by events
    log_loss: float = Field(ge=0)
    bins: tuple[ReliabilityBin, ...]


# ---- Calibrators


def log_odds_of(confidence: ArrayLike) -> Floats:
    """Log-odds of confidences, finite for 0 and 1."""
    values = np.asarray(confidence, dtype=np.float64)
    return np.asarray(logit(np.clip(values, EDGE, 1 - EDGE)))


class LogisticCalibrator(Options):
    """Log-odds of truth = intercept + slope * log-odds of confidence."""

    method: Literal["logistic"] = "logistic"
    intercept: float
    slope: float = Field(ge=0)

    def probability(self, confidence: ArrayLike) -> Floats:
        return expit(self.intercept + self.slope * log_odds_of(confidence))


class IsotonicCalibrator(Options):
    """A rising curve through knots, linear in between, constant beyond the first and the last.

    Probabilities stay between 1 / (n + 2) and (n + 1) / (n + 2) (Laplace), since n events cannot
    show that something never or always happens.
    """

    method: Literal["isotonic"] = "isotonic"
    knots: tuple[float, ...]
    values: tuple[float, ...]
    events: int = Field(ge=1)  # n

    def probability(self, confidence: ArrayLike) -> Floats:
        curve = np.interp(np.asarray(confidence, dtype=np.float64), self.knots, self.values)
        lowest = 1 / (self.events + 2)
        return np.clip(curve, lowest, 1 - lowest)


class VennAbersCalibrator(Options):
    """Two step functions: isotonic fits with the new event counted as false (p0), as true (p1).

    One of the two is a calibrated probability, without assumptions but exchangeability of events
    (Vovk, Petej and Fedorova, "Large-scale probabilistic predictors with and without guarantees of
    validity", 2015). `probability` merges them such that the worst log-loss is least.
    """

    method: Literal["venn-abers"] = "venn-abers"
    lower_knots: tuple[float, ...]  # p0 steps up at these; 0 below the first
    lower_values: tuple[float, ...]
    upper_knots: tuple[float, ...]  # p1 steps up above these; 1 above the last
    upper_values: tuple[float, ...]

    def bracket(self, confidence: ArrayLike) -> tuple[Floats, Floats]:
        """p0 and p1 of each event."""
        values = np.asarray(confidence, dtype=np.float64)
        below = np.searchsorted(self.lower_knots, values, side="right")
        above = np.searchsorted(self.upper_knots, values, side="left")
        return (
            np.append(0.0, self.lower_values)[below],
            np.append(self.upper_values, 1.0)[above],
        )

    def probability(self, confidence: ArrayLike) -> Floats:
        p0, p1 = self.bracket(confidence)
        return p1 / (1 - p0 + p1)


Calibrator = Annotated[
    LogisticCalibrator | IsotonicCalibrator | VennAbersCalibrator, Field(discriminator="method")
]
Method = Literal["logistic", "isotonic", "venn-abers"]


# ---- A promised recall


class Signatures(Options):
    """Fitted studies as points: near ones look alike. Nothing of a patient can be read from them.

    A point is a random projection, the same for every study, of the mean embedding of a study.
    """

    encoder: str  # hash of the weights that made the embeddings; others cannot be compared
    points: tuple[tuple[float, ...], ...]  # (studies, dimensions)


class StudyStatistics(Options):
    """What a study looks like to the model, as a few numbers: for noticing that studies change."""

    brightness: float | None = Field(default=None, ge=0, le=255)  # mean luminance of some frames
    scores: dict[str, Annotated[float, Field(ge=0, le=1)]]  # mean of each label's raw scores
    signature: tuple[float, ...] = Field(max_length=1024)  # see `study_signature`
    encoder: str  # hash of the weights that made the embeddings


class Reference(Options):
    """The studies of a calibration, each as its statistics; their order tells nothing."""

    studies: tuple[StudyStatistics, ...] = Field(max_length=100_000)


class Guarantee(Options):
    """A list of pictures that keeps the expected share of missed lesions at or below `alpha`."""

    alpha: float = Field(gt=0, lt=1)  # promised: at most this share of a study's lesions is missed
    threshold: float  # pictures of at least this suspicion are shown
    studies: int = Field(ge=1)  # with lesions, which it was fitted on
    without_lesions: int = Field(default=0, ge=0)  # further studies, which count for the cost only
    bound: float = Field(ge=0, le=1)  # n / (n + 1) * missed + 1 / (n + 1), at most alpha
    missed: float = Field(ge=0, le=1)  # mean share of missed lesions in the fitted studies
    events_per_study: float | None = None  # pictures at the threshold, over all fitted studies
    minutes_per_study: float | None = None  # to look at them
    devices: dict[str, int] = Field(default_factory=dict)  # fitted studies by capsule system
    fingerprint: str = ""  # hash of the ids of the fitted studies, which are not stored
    signatures: Signatures | None = None  # None: fitted without embeddings

    @property
    def recall(self) -> float:
        """The promised recall."""
        return 1 - self.alpha


DIMENSIONS: Final = 32
"""Of a study's signature: enough to tell capsules apart, few enough for a small file."""


def study_signature(features: NDArray[np.floating]) -> NDArray[np.float64]:
    """The signature of a study from its embeddings (rows, n): see `Signatures`."""
    rows = np.unique(np.linspace(0, len(features) - 1, min(4096, len(features))).astype(np.int64))
    sample = np.asarray(features[rows], np.float64)
    sample = sample[np.isfinite(sample).all(axis=1)]
    sample /= np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-12)
    projection = np.random.default_rng(0).normal(size=(sample.shape[1], DIMENSIONS))
    return np.round(sample.mean(axis=0) @ projection / np.sqrt(DIMENSIONS), 5)


def strangeness(points: ArrayLike) -> Floats:
    """(studies,) distance of each study from the nearest other one.

    The nearest, not the mean: studies of two capsules are two clouds.
    """
    table = np.asarray(points, dtype=np.float64)
    distances = np.sqrt(((table[:, None] - table[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    return distances.min(axis=1)


def likeness(signatures: Signatures, point: ArrayLike) -> float:
    """Conformal p-value of a new study: small where it is unlike the fitted ones.

    All studies, the new one included, are compared with all others, so that the p-value is valid if
    the new study is exchangeable with the fitted ones.
    """
    values = strangeness([*signatures.points, tuple(np.asarray(point, np.float64).tolist())])
    return conformal_p_value(values[:-1], float(values[-1]))


def conformal_p_value(fitted: ArrayLike, value: float) -> float:
    """How unusual a new study is among the fitted ones: a valid p-value if it is exchangeable.

    `fitted` and `value` measure strangeness, higher is stranger: the distance of a study's
    embeddings from the rest, for example, computed for each fitted study as if it were the new one.
    The new study counts among those that are at least as strange, so p is at least 1 / (n + 1).
    """
    values = np.asarray(fitted, dtype=np.float64)
    return float((1 + (values >= value).sum()) / (values.size + 1))
