"""Draw the stored pictures on which runtimes are tried where no study is at hand.

`enteron bench trial_pictures` draws eight frames of a synthetic study and compares them with the
stored ones. `-- --write` replaces the file; then raise `_GRAPH_FORMAT` in
`enteron/inference/onnx_graph.py`, since the int8 graphs depend on the pictures.
"""

import argparse
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from enteron.inference import runtimes
from enteron.inference.encoder import ImageBatch
from enteron.labels import COLUMN, LABELS
from enteron.model.preprocessing import Preprocessing
from enteron.phantom.film import Film

STORED_REGIONS = (
    "mouth", "esophagus", "stomach", "stomach",
    "small intestine", "small intestine", "colon", "colon",
)  # fmt: skip
COLUMNS = 4  # pictures beside each other in the file
SEED = 20261116
SPACING = 5000  # frames between two pictures, so that the capsule has moved on


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="replace the stored file")
    arguments = parser.parse_args()
    images = phantom_images(Preprocessing(size=runtimes.STORED_SIZE), STORED_REGIONS)
    if arguments.write:
        content = mosaic_file(images)
        runtimes.TRIAL_FILE.write_bytes(content)
        print(f"written: {runtimes.TRIAL_FILE.name}, {len(content) / 1000:.0f} kB")
    difference = np.abs(runtimes.trial_images(Preprocessing()).astype(int) - images)
    print(f"drawn now against stored: grey levels differ by {difference.max()} at most")


def phantom_images(preprocessing: Preprocessing, regions: Sequence[str]) -> ImageBatch:
    """Images (n, 3, size, size) of a synthetic study that passes through these regions."""
    labels = np.zeros((len(regions), len(LABELS)), np.bool_)
    for row, region in enumerate(regions):
        labels[row, COLUMN[region]] = True
    film = Film(labels, "olympus", SEED, SPACING * np.arange(len(regions)), stalls=0)
    return np.stack([preprocessing.resize_and_crop(film.frame(row)) for row in range(len(regions))])


def mosaic_file(images: ImageBatch) -> bytes:
    """A lossless WebP with `COLUMNS` images to a row."""
    rows = images.transpose(0, 2, 3, 1).reshape(-1, COLUMNS, *images.shape[2:], 3)
    mosaic = np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
    content = io.BytesIO()
    Image.fromarray(mosaic).save(content, "WEBP", lossless=True, quality=100, method=6)
    return content.getvalue()


if __name__ == "__main__":
    main()
