"""The paper's inference, literally: six passes of the backbone for every frame of a study.

Written from the paper and its decisions, with nothing of `enteron.inference` or of `window_rows`;
only the model and its preprocessing are enteron's. For frame t the files of t - 2, t - 1 and t are
read and preprocessed, the clip and its mirror image go through the whole network, and the two
sigmoids are averaged. Clips are batched as the authors' data loader would, so that the baseline is
no slower than it must be.
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
    """Probabilities (n, 17) of `frames` files of a folder from the `first` on, or of all."""
    files = sorted(folder.iterdir())
    last = len(files) if frames is None else first + frames
    network.eval()
    found = []
    for start in range(first, last, BATCH):
        clips = torch.stack(
            [_clip(files, t, network) for t in range(start, min(start + BATCH, last))]
        )
        with torch.inference_mode():
            plain = torch.sigmoid(network(clips).logits)
            mirrored = torch.sigmoid(network(clips.flip(-1)).logits)
        found.append((plain + mirrored) / 2)
    probabilities = torch.cat(found)
    if temperature is not None:  # on the log-odds of the mean (decision 19)
        probabilities = torch.sigmoid(torch.logit(probabilities.double()) / temperature).float()
    return probabilities.numpy()


def _clip(files: list[Path], t: int, network: Network) -> torch.Tensor:
    """Frames t - 2, t - 1 and t, clamped at the first, each read from its file (decision 1)."""
    step = network.options.neighbour_step
    times = [t - back * step for back in reversed(range(network.options.frames))]
    preprocessing = network.backbone.spec.preprocessing
    return torch.stack([_image(files[max(time, 0)], preprocessing) for time in times])


def _image(file: Path, preprocessing: Preprocessing) -> torch.Tensor:
    """One file, read by Pillow and made into what the backbone wants: (3, size, size)."""
    picture = np.array(Image.open(file).convert("RGB"))  # (height, width, 3)
    return preprocessing.apply(torch.from_numpy(picture).permute(2, 0, 1)[None])[0]
