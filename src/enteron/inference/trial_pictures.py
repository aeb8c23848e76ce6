"""Pictures to try a runtime on where no study is at hand: synthetic ones of every region."""

import numpy as np
import torch

from enteron.inference.encoder import Squares
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.model.preprocessing import Preprocessing
from enteron.phantom.film import Film

_SEED = 20261116
_APART = 5000  # frames between two samples: the capsule has moved on


def phantom_squares(preprocessing: Preprocessing, count: int) -> Squares:
    """Squares (count, 3, size, size) of a synthetic study, the regions in their order."""
    labels = np.zeros((count, len(LABELS)), np.bool_)
    for row in range(count):
        labels[row, COLUMN[REGIONS[row * len(REGIONS) // count]]] = True
    film = Film(labels, "olympus", _SEED, _APART * np.arange(count), stalls=0)
    pictures = np.stack([film.frame(row) for row in range(count)]).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(preprocessing.square(torch.from_numpy(pictures)).numpy())
