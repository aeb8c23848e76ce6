"""Options of a training, and the packaged recipes that set them.

Defaults are the paper's numbers. Each option is explained where it is declared.
"""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from enteron.model.options import ModelOptions
from enteron.options import Options, make_options, read_toml, without_defaults

Regime = Literal["full", "frozen"]
SoftTargets = Literal["joint", "separate"]
Precision = Literal["fp32", "bf16", "fp16"]


class DataOptions(Options):
    """Which frames of which studies train and validate."""

    stride: int = Field(default=5, ge=1)
    """Every how many-th labelled frame is a sample. The other frames of its clip are its stored
    neighbours, whatever the stride."""
    validation: float = Field(default=0.15, gt=0, lt=1)
    """Share of the studies that validate, if no split file is given."""
    stratified: bool = True
    """Whether studies change sides where a label that two studies show would be missing from
    training or validation; a split that lacks nothing stays as the seed makes it."""
    keep_squares: bool = False
    """Whether the full regime stores resized images beside the features, so that none is decoded
    twice: validation images as they are used (150 kB at 224 pixels), training images in squares
    large enough for the smallest crop (250 kB, 288 pixels)."""
    test: float = Field(default=0.0, ge=0, lt=1)
    """Share of the studies that neither train nor validate, if no split file is given."""


class SamplerOptions(Options):
    """Which samples an epoch draws."""

    balanced: bool = True
    """True: with replacement, frames of rare labels more often (decision 15). False: a shuffle."""
    samples: int | None = Field(default=None, ge=1)
    """Draws per epoch; None: as many as there are samples."""
    shares: tuple[float, ...] | None = None
    """How often each of several data roots is drawn, relative to the others, in the order in which
    they are given; None: in proportion to their samples."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.shares is not None and not all(0 < share < float("inf") for share in self.shares):
            raise ValueError("shares are numbers above 0")
        return self


class AugmentationOptions(Options):
    """Random changes of a clip, drawn once for all its frames (paper, section 2.6; decision 14)."""

    enabled: bool = True
    """Whether the full regime augments its clips. The frozen regime stores augmented `views`."""
    scale: tuple[float, float] = (0.7, 1.0)
    """Smallest and largest share of the area that a random crop keeps."""
    ratio: tuple[float, float] = (0.9, 1.1)
    """Smallest and largest ratio of width to height of that crop."""
    horizontal: float = Field(default=0.5, ge=0, le=1)
    """Probability of a left-right flip."""
    vertical: float = Field(default=0.3, ge=0, le=1)
    """Probability of a top-bottom flip."""
    brightness: float = Field(default=0.3, ge=0)
    """Largest relative change."""
    contrast: float = Field(default=0.3, ge=0)
    """Largest relative change."""
    saturation: float = Field(default=0.2, ge=0)
    """Largest relative change."""
    hue: float = Field(default=0.05, ge=0, le=0.5)
    """Largest shift, as a share of the colour circle."""
    grayscale: float = Field(default=0.05, ge=0, le=1)
    """Probability of removing all colour."""
    rotation: float = Field(default=15.0, ge=0, le=180)
    """Largest rotation in degrees."""
    erasing: float = Field(default=0.2, ge=0, le=1)
    """Probability of blanking a rectangle."""
    erased: tuple[float, float] = (0.02, 0.15)
    """Smallest and largest share of the area that the rectangle covers."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        for name in ("scale", "ratio", "erased"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} goes from a positive number to one that is not smaller")
        if max(*self.scale, *self.erased) > 1:
            raise ValueError("scale and erased are shares of the area, at most 1")
        return self


class LossOptions(Options):
    """The objective (paper, sections 2.4 to 2.7)."""

    classification: float = Field(default=1.0, ge=0)
    """Weight of the asymmetric focal loss."""
    contrastive: float = Field(default=0.4, ge=0)
    """Weight of the contrastive path's cross-entropy."""
    orthogonality: float = Field(default=0.01, ge=0)
    """Weight of the overlap between anatomy and pathology weights."""
    angular: float = Field(default=0.05, ge=0)
    """Weight of the angular separation of the prototypes."""
    gamma_positive: float = Field(default=1.0, ge=0)
    """Focusing exponent of positives: the larger, the less a well classified positive counts."""
    gamma_negative: float = Field(default=4.0, ge=0)
    """Focusing exponent of negatives. Both exponents and the margin at 0 give cross-entropy."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Negatives below this probability have no loss."""
    largest_weight: float = Field(default=50.0, ge=1)
    """Largest weight of a rare label's positives, in the contrastive loss (decision 11)."""
    weighted_classification: bool = False
    """Whether positives have these weights in the classification loss too, as in the authors'
    earlier submission (decision 32)."""
    smoothing: float = Field(default=0.05, ge=0, lt=0.5)
    """Label smoothing, in the classification loss only (decision 12)."""
    soft_targets: SoftTargets = "joint"
    """The focusing weight of targets between 0 and 1 (smoothing, mixup). `joint`: one weight, as in
    the reference implementation of the asymmetric loss; `separate`: one for each term, whose
    minimum for a smoothed negative lies at a probability of .42 (decision 12)."""


class OptimiserOptions(Options):
    """AdamW with two parameter groups (paper, section 2.7; decisions 16 and 18)."""

    backbone_rate: float = Field(default=9e-5, gt=0)
    """Largest learning rate of the image trunk and its projection."""
    head_rate: float = Field(default=3e-4, gt=0)
    """Largest learning rate of everything else."""
    decay: float = Field(default=5e-4, ge=0)
    """Weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the two moment estimates."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""


class ScheduleOptions(Options):
    """One cycle of the learning rate, set at every step (decision 16)."""

    rise: float = Field(default=0.15, ge=0, lt=1)
    """Share of all steps in which the rate rises; then it falls. Both along a cosine."""
    start: float = Field(default=10.0, ge=1)
    """The first rate is the largest divided by this."""
    end: float = Field(default=100.0, ge=1)
    """The last rate is the first divided by this."""


class PatchOptions(Options):
    """How local evidence is fitted, where the model has it."""

    frames: int = Field(default=16_000, ge=2)
    """Frames at most, one half with boxes and one half without findings, in equal parts of the
    studies and evenly over each; 46 kB of memory each."""
    steps: int = Field(default=1500, ge=1)
    """Steps of the optimiser."""
    batch: int = Field(default=64, ge=2)
    """Frames per step: one half with lesions, one half without."""
    rate: float = Field(default=3e-3, gt=0)
    """Largest learning rate; it falls along a cosine."""
    decay: float = Field(default=3e-2, ge=0)
    """Weight decay."""
    covered: float = Field(default=0.25, gt=0, le=1)
    """A patch shows a finding if a box covers more than this share of it; patches that are covered
    less, but not free, are unknown."""
    positive_weight: float = Field(default=8.0, gt=0)
    """Weight of a patch with a lesion; one without counts 1."""
    folds: int = Field(default=4, ge=2)
    """Where findings come from evidence alone: groups of studies that are left out in turn, so that
    every training frame also has the evidence of a layer that did not see its study. Scales of
    evidence are fitted on it, and calibration uses it."""


class TrainingOptions(Options):
    """A training; the paper's by default."""

    regime: Regime = "full"
    """`full` trains the backbone and the head. `frozen` leaves the backbone as it was pretrained,
    stores its features once and trains the head on them."""
    model: ModelOptions = ModelOptions()
    """The network."""
    data: DataOptions = DataOptions()
    """Frames and studies."""
    sampler: SamplerOptions = SamplerOptions()
    """What an epoch draws."""
    augmentation: AugmentationOptions = AugmentationOptions()
    """Random changes of the images."""
    views: int = Field(default=0, ge=0)
    """Augmented copies of every study that the frozen regime stores beside the plain one."""
    mixup: float = Field(default=0.3, ge=0)
    """Alpha of temporal mixup (decision 13); 0: no mixup."""
    losses: LossOptions = LossOptions()
    """The objective."""
    optimiser: OptimiserOptions = OptimiserOptions()
    """AdamW."""
    schedule: ScheduleOptions = ScheduleOptions()
    """The learning rate over the steps."""
    ema: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the exponential moving average of weights and buffers (decision 17); 0: none."""
    ema_rise: bool = False
    """Whether the decay rises to `ema` as (1 + t) / (10 + t) over steps t. Otherwise the average
    of a short training consists mostly of its random initial weights."""
    epochs: int = Field(default=5, ge=1)
    """Number of epochs."""
    patience: int | None = Field(default=None, ge=1)
    """Epochs without a better validation after which training stops; None: it never stops early."""
    batch: int = Field(default=128, ge=2)
    """Clips per backward pass, over all processes together."""
    accumulate: int = Field(default=1, ge=1)
    """Backward passes per step of the optimiser."""
    precision: Precision = "fp16"
    """Precision of the forward pass on a GPU; fp16 scales gradients. A CPU always uses fp32."""
    workers: int = Field(default=8, ge=0)
    """Processes that read images, per training process; 0: the training process reads itself."""
    checkpoint_steps: int = Field(default=500, ge=1)
    """Steps between checkpoints, besides the one after every epoch."""
    seed: int = Field(default=42, ge=0)
    """Seed of everything random."""
    patches: PatchOptions = PatchOptions()
    """Fitting local evidence, which comes before the head; only with `local_evidence`."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "patches")

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        if self.regime == "full" and self.model.local_evidence:
            raise ValueError("local evidence is taught on a frozen backbone: set regime to frozen")
        if self.regime == "full" and self.views:
            raise ValueError("views belong to the frozen regime; full augments every clip anew")
        if not (self.losses.classification or self.losses.contrastive):
            raise ValueError("classification and contrastive are both 0: nothing would be learnt")
        return self


RecipeName = Literal["paper", "lite", "prior", "default"]


def recipe(name: RecipeName, changes: Path | None = None, **overrides: Any) -> TrainingOptions:
    """A packaged recipe; a TOML file overrides the options it names, then `overrides` do."""
    text = (files("enteron") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    table, source = tomllib.loads(text), f"{name}.toml"
    if changes is not None:
        table, source = _merge(table, read_toml(changes)), changes.name
    return make_options(TrainingOptions, _merge(table, overrides), source)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` applied; nested tables are merged, other values are replaced."""
    merged = dict(base)
    for name, value in changes.items():
        current = merged.get(name)
        if isinstance(value, dict) and isinstance(current, dict):
            value = _merge(current, value)
        merged[name] = value
    return merged
