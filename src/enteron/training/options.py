"""What a training is: every number of the paper as a default, each explained where it is set."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from enteron.model.options import ModelOptions
from enteron.options import Options, make_options, read_toml

Regime = Literal["full", "frozen"]
Precision = Literal["fp32", "bf16", "fp16"]


class DataOptions(Options):
    """Which frames of which studies train and validate."""

    stride: int = Field(default=5, ge=1)
    """Every how many-th labelled row is a sample; a sample's neighbours are stored frames still."""
    validation: float = Field(default=0.15, gt=0, lt=1)
    """Share of the studies that validate, where no split is given."""
    keep_squares: bool = False
    """Whether the full regime keeps decoded pictures beside its features (150 kB each at 224), so
    that no picture is decoded twice."""
    test: float = Field(default=0.0, ge=0, lt=1)
    """Share of the studies that are put aside, where no split is given."""


class SamplerOptions(Options):
    """Which samples an epoch draws."""

    balanced: bool = True
    """Frames of rare labels more often, with replacement (decision 15); off is a shuffle."""
    samples: int | None = Field(default=None, ge=1)
    """Draws of an epoch; none means as many as there are samples."""


class AugmentationOptions(Options):
    """Random changes of a clip, one draw for all its frames (paper, section 2.6; decision 14)."""

    enabled: bool = True
    """Whether the full regime changes its clips. The frozen regime stores changed `views`."""
    scale: tuple[float, float] = (0.7, 1.0)
    """Share of the area that a random crop keeps, least and most."""
    ratio: tuple[float, float] = (0.9, 1.1)
    """Width to height of that crop."""
    horizontal: float = Field(default=0.5, ge=0, le=1)
    """Chance of exchanging left and right."""
    vertical: float = Field(default=0.3, ge=0, le=1)
    """Chance of exchanging top and bottom."""
    brightness: float = Field(default=0.3, ge=0)
    """Largest relative change."""
    contrast: float = Field(default=0.3, ge=0)
    """Largest relative change."""
    saturation: float = Field(default=0.2, ge=0)
    """Largest relative change."""
    hue: float = Field(default=0.05, ge=0, le=0.5)
    """Largest turn of the colour circle, 1 being all of it."""
    grayscale: float = Field(default=0.05, ge=0, le=1)
    """Chance of losing all colour."""
    rotation: float = Field(default=15.0, ge=0, le=180)
    """Largest turn in degrees."""
    erasing: float = Field(default=0.2, ge=0, le=1)
    """Chance of blanking a rectangle."""
    erased: tuple[float, float] = (0.02, 0.15)
    """Share of the area that it covers, least and most."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
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
    """Weight of the overlap of anatomy and pathology weights."""
    angular: float = Field(default=0.05, ge=0)
    """Weight of the prototypes' likeness to each other."""
    gamma_positive: float = Field(default=1.0, ge=0)
    """How much a positive that is already right counts less."""
    gamma_negative: float = Field(default=4.0, ge=0)
    """The same for negatives. Both gammas and the margin at 0 make plain cross-entropy."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Negatives below this probability cost nothing."""
    smoothing: float = Field(default=0.05, ge=0, lt=0.5)
    """Label smoothing, inside the classification loss only (decision 12)."""


class OptimiserOptions(Options):
    """AdamW in two groups (paper, section 2.7; decisions 16 and 18)."""

    backbone_rate: float = Field(default=9e-5, gt=0)
    """Largest learning rate of the image trunk and its projection."""
    head_rate: float = Field(default=3e-4, gt=0)
    """Largest learning rate of everything else."""
    decay: float = Field(default=5e-4, ge=0)
    """Weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the two moments."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""


class ScheduleOptions(Options):
    """One cycle of the learning rate, set at every step (decision 16)."""

    rise: float = Field(default=0.15, ge=0, lt=1)
    """Share of all steps in which the rate rises; then it falls, both along a cosine."""
    start: float = Field(default=10.0, ge=1)
    """The first rate is the largest divided by this."""
    end: float = Field(default=100.0, ge=1)
    """The last rate is the first divided by this."""


class TrainingOptions(Options):
    """The paper's training by default."""

    regime: Regime = "full"
    """`full` trains the backbone too; `frozen` stores its features once and trains the rest."""
    model: ModelOptions = ModelOptions()
    """The network."""
    data: DataOptions = DataOptions()
    """Frames and studies."""
    sampler: SamplerOptions = SamplerOptions()
    """What an epoch draws."""
    augmentation: AugmentationOptions = AugmentationOptions()
    """Random changes of the pictures."""
    views: int = Field(default=0, ge=0)
    """Augmented copies of every study that the frozen regime stores beside the plain one."""
    mixup: float = Field(default=0.3, ge=0)
    """Alpha of temporal mixup (decision 13); 0 is without."""
    losses: LossOptions = LossOptions()
    """The objective."""
    optimiser: OptimiserOptions = OptimiserOptions()
    """AdamW."""
    schedule: ScheduleOptions = ScheduleOptions()
    """The learning rate over the steps."""
    ema: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the moving average of weights and buffers (decision 17); 0 is without."""
    ema_rise: bool = False
    """Whether the decay rises to that as (1 + t) / (10 + t) over steps t: a short training's
    average would otherwise be mostly its random start."""
    epochs: int = Field(default=5, ge=1)
    """Times that an epoch's draws are made."""
    patience: int | None = Field(default=None, ge=1)
    """Epochs without a better validation after which training stops; none means never."""
    batch: int = Field(default=128, ge=2)
    """Clips of one backward pass, over all processes together."""
    accumulate: int = Field(default=1, ge=1)
    """Backward passes of one step."""
    precision: Precision = "fp16"
    """Of a GPU's forward pass, fp16 with scaled gradients. A CPU always computes in fp32."""
    workers: int = Field(default=8, ge=0)
    """Processes that read pictures, for each training process; 0 reads in the same one."""
    checkpoint_steps: int = Field(default=500, ge=1)
    """Steps between checkpoints, besides the one after every epoch."""
    seed: int = Field(default=42, ge=0)
    """Everything random follows from it."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.regime == "full" and self.views:
            raise ValueError("views belong to the frozen regime; full augments every clip anew")
        if not (self.losses.classification or self.losses.contrastive):
            raise ValueError("classification and contrastive are both 0: nothing would be learnt")
        return self


RecipeName = Literal["paper", "lite"]


def recipe(name: RecipeName, changes: Path | None = None, **more: Any) -> TrainingOptions:
    """A recipe; a TOML file overrides what it names, and `more` overrides single options."""
    text = (files("enteron") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    table, source = tomllib.loads(text), f"{name}.toml"
    if changes is not None:
        table, source = _merged(table, read_toml(changes)), changes.name
    return make_options(TrainingOptions, _merged(table, more), source)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One table over another; tables inside are merged in turn, everything else is replaced."""
    made = dict(below)
    for name, value in above.items():
        inner = made.get(name)
        if isinstance(value, dict) and isinstance(inner, dict):
            value = _merged(inner, value)
        made[name] = value
    return made
