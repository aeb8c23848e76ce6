"""Fitting a glance (`enteron.inference.glance`): small pictures, and what the model says of them.

The network imitates the model, which needs no labels: whatever the model says of a picture is right
here. High scores are rare and decide what is encoded, so they weigh more. How far guesses can be
trusted is estimated afterwards, with everything else that lies between two frames
(`enteron.fitting.coarse`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import LabelError, quantity
from enteron.inference.glance import CHANNELS, LARGEST, Glance
from enteron.labels import LABELS
from enteron.options import Options
from enteron.progress import Progress, SilentProgress

if TYPE_CHECKING:
    import torch

LEAST_FRAMES: Final = 32


class GlanceFit(Options):
    """How a glance is fitted."""

    steps: int = Field(default=2500, ge=1)
    batch: int = Field(default=128, ge=2)
    rate: float = Field(default=6e-3, gt=0)
    """Largest learning rate, of a single cycle."""
    decay: float = Field(default=1e-3, ge=0)
    brightness: float = Field(default=0.1, ge=0, lt=0.3)
    """Deviation of random factors on red, green and blue, by which patients and capsules differ."""
    tail: float = Field(default=1.0, ge=0)
    """How much more a score counts with every deviation that it lies above the label's mean."""
    seed: int = 0


@dataclass(frozen=True)
class SmallStudy:
    """A study as a glance sees it, and what the model says of its frames."""

    pictures: NDArray[np.uint8]  # (n, 56, 56, 3)
    log_odds: NDArray[np.floating]  # (n, 17)


def fit_glance(
    studies: Sequence[SmallStudy],
    options: GlanceFit | None = None,
    progress: Progress | None = None,
) -> Glance:
    """Fit the network. Needs torch."""
    import torch

    options = GlanceFit() if options is None else options
    progress = SilentProgress() if progress is None else progress
    lengths = [len(study.pictures) for study in studies]
    targets = np.concatenate([study.log_odds for study in studies]).clip(-LARGEST, LARGEST)
    if sum(lengths) < LEAST_FRAMES:
        raise LabelError(
            f"{quantity(sum(lengths), 'frame')} cannot show what the model sees in small pictures",
            "give readings of whole studies",
        )
    mean = targets.mean(axis=0)
    spread = np.maximum(targets.std(axis=0), 1e-3)
    standard = torch.from_numpy(((targets - mean) / spread).astype(np.float32))
    rng = np.random.default_rng(options.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        network = _network()
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=options.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.rate, total_steps=options.steps
    )
    starts = np.cumsum([0, *lengths])
    network.train()
    with progress.task("Learning to glance", options.steps, "steps") as advance:
        for _ in range(options.steps):
            rows = np.sort(rng.integers(starts[-1], size=options.batch))
            pieces = np.split(rows, np.searchsorted(rows, starts[1:-1]))
            pictures = np.concatenate(
                [
                    study.pictures[piece - start]
                    for study, piece, start in zip(studies, pieces, starts[:-1], strict=True)
                ]
            )
            wanted = standard[rows]
            weight = 1 + options.tail * wanted.clamp(0, 4)
            error = network(_inputs(pictures, options.brightness, rng)) - wanted
            optimiser.zero_grad()
            (weight * error**2).mean().backward()
            optimiser.step()
            schedule.step()
            advance(1)
    return _folded(network.eval(), mean, spread)


def left_out_guesses(
    studies: Sequence[SmallStudy],
    groups: Sequence[Sequence[int]],
    options: GlanceFit | None = None,
    progress: Progress | None = None,
) -> list[NDArray[np.float32]]:
    """(n, 17) guesses for every study by a glance that has not seen it: its group is left out.

    A single study is halved, and each half is left out in turn. Studies of no group are always
    learnt from, and get no guesses; they come last.
    """
    if len(studies) == 1:
        whole, half = studies[0], len(studies[0].pictures) // 2
        parts = [
            SmallStudy(whole.pictures[piece], whole.log_odds[piece])
            for piece in (slice(half), slice(half, None))
        ]
        return [np.concatenate(left_out_guesses(parts, [[0], [1]], options, progress))]
    guesses: dict[int, NDArray[np.float32]] = {}
    for group in groups:
        others = [study for number, study in enumerate(studies) if number not in group]
        glance = fit_glance(others, options, progress)
        guesses |= {number: glance.log_odds(studies[number].pictures) for number in group}
    return [guesses[number] for number in sorted(guesses)]


def _network() -> "torch.nn.Module":
    """The network of `Glance`, with normalisation."""
    from torch import nn

    class Pooled(nn.Module):
        def forward(self, values: "torch.Tensor") -> "torch.Tensor":
            import torch

            return torch.cat([values.mean((2, 3)), values.amax((2, 3))], dim=1)

    layers: list[nn.Module] = []
    for before, after in pairwise(CHANNELS):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, Pooled(), nn.Linear(2 * CHANNELS[-1], len(LABELS)))


def _inputs(
    pictures: NDArray[np.uint8], brightness: float, rng: np.random.Generator
) -> "torch.Tensor":
    """(n, 3, 56, 56) of small pictures, turned over and recoloured at random."""
    import torch

    turned = pictures
    if rng.random() < 0.5:
        turned = turned[:, :, ::-1]
    if rng.random() < 0.5:
        turned = turned[:, ::-1]
    factors = 1 + brightness * rng.standard_normal((len(pictures), 1, 1, 3)).clip(-3, 3)
    coloured = (turned * factors.astype(np.float32)).clip(0, 255)
    return torch.from_numpy(np.ascontiguousarray((coloured / 127.5 - 1).transpose(0, 3, 1, 2)))


def _folded(
    network: "torch.nn.Module", mean: NDArray[np.float64], spread: NDArray[np.float64]
) -> Glance:
    """The tensors of a glance: normalisation and the targets' scale are folded into the layers."""
    from torch import nn

    tensors: dict[str, NDArray[np.float32]] = {}
    modules = list(network.children())

    def numbers(tensor: "torch.Tensor | None") -> NDArray[np.float64]:
        assert tensor is not None
        return tensor.detach().double().numpy()

    for layer in range(len(CHANNELS) - 1):
        convolution, norm = modules[3 * layer], modules[3 * layer + 1]
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        factor = numbers(norm.weight) / np.sqrt(numbers(norm.running_var) + norm.eps)
        weight = numbers(convolution.weight).transpose(2, 3, 1, 0) * factor
        bias = (numbers(convolution.bias) - numbers(norm.running_mean)) * factor
        tensors[f"convolution.{layer}.weight"] = np.ascontiguousarray(weight, np.float32)
        tensors[f"convolution.{layer}.bias"] = (bias + numbers(norm.bias)).astype(np.float32)
    output = modules[-1]
    assert isinstance(output, nn.Linear)
    weight = numbers(output.weight).T * spread
    tensors["output.weight"] = np.ascontiguousarray(weight, np.float32)
    tensors["output.bias"] = (numbers(output.bias) * spread + mean).astype(np.float32)
    return Glance(tensors)
