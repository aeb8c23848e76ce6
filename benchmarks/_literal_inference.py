"""The paper's inference, literally: six passes of the backbone for every frame of a study.

Written from the paper and its decisions. It uses the model and its preprocessing, but nothing of
`enteron.inference` and not `window_rows`. For frame t the files of t - 2, t - 1 and t are read and
preprocessed, the clip and its mirror image go through the network, and the two sigmoids are
averaged. Clips are batched as by the authors' data loader, so that the baseline is not slow for
want of batching.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from enteron.model.network import Network
from enteron.model.preprocessing import Preprocessing

BATCH = 8  # clips; 48 images a step with the mirror images


def literal_probabilities(
    network: Network,
    folder: Path,
    temperature: float | None = None,
    frames: int | None = None,
    first: int = 0,
) -> NDArray[np.float32]:
    """Probabilities (n, 17) of all files of a folder, or of `frames` files from `first` on."""
    files = sorted(folder.iterdir())
    last = len(files) if frames is None else first + frames
    network.eval()
    parts = []
    for start in range(first, last, BATCH):
        clips = torch.stack(
            [_clip(files, t, network) for t in range(start, min(start + BATCH, last))]
        )
        with torch.inference_mode():
            plain = torch.sigmoid(network(clips).logits)
            mirrored = torch.sigmoid(network(clips.flip(-1)).logits)
        parts.append((plain + mirrored) / 2)
    probabilities = torch.cat(parts)
    if temperature is not None:  # on the log-odds of the mean (decision 19)
        probabilities = torch.sigmoid(torch.logit(probabilities.double()) / temperature).float()
    return probabilities.numpy()


def _clip(files: list[Path], t: int, network: Network) -> torch.Tensor:
    """Frames t - 2, t - 1 and t, clamped at the first, each read from its file (decision 1)."""
    step = network.options.neighbour_step
    rows = [t - back * step for back in reversed(range(network.options.frames))]
    preprocessing = network.backbone.spec.preprocessing
    return torch.stack([_image(files[max(row, 0)], preprocessing) for row in rows])


def _image(file: Path, preprocessing: Preprocessing) -> torch.Tensor:
    """One file, read by Pillow and preprocessed for the backbone: (3, size, size)."""
    picture = np.array(Image.open(file).convert("RGB"))  # (height, width, 3)
    return preprocessing.apply(picture)
