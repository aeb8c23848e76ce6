"""Resizing of pictures on one core: the compiled kernel against torch's and Pillow's resize."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from benchmarks._timing import ROUNDS, timed
from enteron.model.resampling import resize

SIDES = (336, 512, 576)  # of pictures of PillCam, Olympus, and NaviCam
SIZE = 224
REPEATS = 20


def main() -> None:
    torch.set_num_threads(1)
    print(f"to {SIZE} pixels, bicubic, one picture, one core; medians of {ROUNDS} runs\n")
    print("| side | kernel | torch | Pillow | kernel = Pillow | torch: pixels that differ |")
    print("|---:|---:|---:|---:|---|---:|")
    for side in SIDES:
        picture = _picture(side)
        ways = {"kernel": by_kernel, "torch": by_torch, "Pillow": by_pillow}
        images = {name: way(picture) for name, way in ways.items()}
        seconds = {name: timed(partial(_repeat, way, picture)) for name, way in ways.items()}
        times = " | ".join(f"{1000 * value / REPEATS:.2f} ms" for value in seconds.values())
        same = np.array_equal(images["kernel"], images["Pillow"])
        other = (images["torch"] != images["Pillow"]).mean()
        print(f"| {side} | {times} | {'every byte' if same else 'NO'} | {100 * other:.2f} % |")


def by_kernel(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(resize(picture, SIZE, SIZE, "bicubic").transpose(2, 0, 1))


def by_torch(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pictures = torch.from_numpy(picture).permute(2, 0, 1)[None]
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    resized = functional.interpolate(
        pictures, size=(SIZE, SIZE), mode="bicubic", antialias=True, align_corners=False
    )
    return resized[0].contiguous().numpy()


def by_pillow(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    resized = Image.fromarray(picture).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def _repeat(way: object, picture: NDArray[np.uint8]) -> None:
    assert callable(way)
    for _ in range(REPEATS):
        way(picture)


def _picture(side: int) -> NDArray[np.uint8]:
    """Soft structure with noise, as a frame has."""
    rng = np.random.default_rng(side)
    coarse = rng.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))
    return np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
