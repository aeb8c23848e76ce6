"""Random changes of pictures, one draw for all frames of a clip (decision 14)."""

from collections.abc import Callable

import torch

from enteron.model import torchvision_operators
from enteron.training.options import AugmentationOptions
from enteron.training.pixels import COLOURS, coloured, turned


class Augmentation:
    """Crop, flips, rotation, colours, grey, erasing, on square pictures of bytes.

    Transforms and draws are torchvision's; the two that take longest have kernels of our own.
    """

    def __init__(self, options: AugmentationOptions, size: int) -> None:
        torchvision_operators.declare()
        from torchvision.transforms import v2

        rotation = v2.RandomRotation(options.rotation)  # pyright: ignore[reportArgumentType]
        jitter = v2.ColorJitter(
            brightness=options.brightness,
            contrast=options.contrast,
            saturation=options.saturation,
            hue=options.hue,
        )

        def turn(pictures: torch.Tensor) -> torch.Tensor:
            drawn = rotation.make_params([pictures])
            return torch.from_numpy(turned(pictures.numpy(), drawn["angle"]))

        def colour(pictures: torch.Tensor) -> torch.Tensor:
            drawn = jitter.make_params([pictures])
            factors = [drawn[f"{name}_factor"] for name in COLOURS]
            order = [int(kind) for kind in drawn["fn_idx"]]
            changes = [(kind, factors[kind]) for kind in order if factors[kind] is not None]
            return torch.from_numpy(coloured(pictures.numpy(), changes))

        self._steps: list[Callable[[torch.Tensor], torch.Tensor]] = [
            v2.RandomResizedCrop(size, scale=options.scale, ratio=options.ratio, antialias=True),
            v2.RandomHorizontalFlip(options.horizontal),
            v2.RandomVerticalFlip(options.vertical),
            turn,
            colour,
            v2.RandomGrayscale(options.grayscale),
            v2.RandomErasing(options.erasing, scale=options.erased),
        ]
        self._made_of = (options, size)

    def __reduce__(self) -> tuple[type["Augmentation"], tuple[AugmentationOptions, int]]:
        # A worker makes its own: torchvision's classes cannot be imported before `declare`.
        return type(self), self._made_of

    def __call__(self, pictures: torch.Tensor, seed: int) -> torch.Tensor:
        """Pictures (n, 3, size, size), uint8, all changed by the draw that the seed decides."""
        # Given several pictures in one tensor, torchvision draws once for all of them.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            for step in self._steps:
                pictures = step(pictures)
            return pictures
