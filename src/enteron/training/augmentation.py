"""Random changes of pictures, one draw for all frames of a clip (decision 14)."""

import torch

from enteron.model import torchvision_operators
from enteron.training.options import AugmentationOptions


class Augmentation:
    """Crop, flips, rotation, colours, grey, erasing, on square pictures of bytes."""

    def __init__(self, options: AugmentationOptions, size: int) -> None:
        torchvision_operators.declare()
        from torchvision.transforms import v2

        steps = [
            v2.RandomResizedCrop(size, scale=options.scale, ratio=options.ratio, antialias=True),
            v2.RandomHorizontalFlip(options.horizontal),
            v2.RandomVerticalFlip(options.vertical),
            v2.RandomRotation(options.rotation, interpolation=v2.InterpolationMode.BILINEAR),  # pyright: ignore[reportArgumentType]
            v2.ColorJitter(
                brightness=options.brightness,
                contrast=options.contrast,
                saturation=options.saturation,
                hue=options.hue,
            ),
            v2.RandomGrayscale(options.grayscale),
            v2.RandomErasing(options.erasing, scale=options.erased),
        ]
        self._steps = v2.Compose(steps)
        self._made_of = (options, size)

    def __reduce__(self) -> tuple[type["Augmentation"], tuple[AugmentationOptions, int]]:
        # A worker makes its own: torchvision's classes cannot be imported before `declare`.
        return type(self), self._made_of

    def __call__(self, pictures: torch.Tensor, seed: int) -> torch.Tensor:
        """Pictures (n, 3, size, size), uint8, all changed by the draw that the seed decides."""
        # Given several pictures in one tensor, torchvision draws once for all of them.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self._steps(pictures)
