"""A small data root with stored features, so that no encoder has to run."""

from pathlib import Path

import numpy as np

from enteron.datasets.galar import find_studies
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Features, ImageBatch
from enteron.model.preprocessing import Preprocessing
from tests.making import write_frames, write_labels
from tests.training.making import some_labels

STUDIES = ("1", "2", "3", "4")
FRAMES = 40


def write_root(root: Path, frames: int = FRAMES) -> Path:
    """Four studies in Galar's layout, every fifth frame stored."""
    for number, study in enumerate(STUDIES):
        write_frames(root / study, range(0, 5 * frames, 5), size=32 + 2 * number)
        write_labels(root / "Labels" / f"{study}.csv", some_labels(frames, number), step=5)
    return root


class LookupEncoder:
    """Stands in for an encoder: features that follow from the study's labels."""

    runtime = "onnx"
    batch = 16
    width = 512

    def __init__(self, backbone_hash: str, preprocessing: Preprocessing) -> None:
        self.backbone_hash, self.preprocessing = backbone_hash, preprocessing

    def encode(self, images: ImageBatch) -> Features:
        coarse = images[:, :, ::28, ::28].reshape(len(images), -1).astype(np.float32)
        mixing = np.random.default_rng(3).normal(size=(coarse.shape[1], 512))
        return (coarse @ mixing / 255).astype(np.float32)


def store_features(root: Path, folder: Path, encoder: LookupEncoder) -> Path:
    """Features of every study, under the key that training expects."""
    folder.mkdir()
    for study, entry in find_studies(root).items():
        embed_study(entry.open(), encoder, folder / f"{study}.npy", EmbedOptions())
    return folder
