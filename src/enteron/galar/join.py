"""Labels meet images: joined on the frame number, never on the row number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.errors import LabelError
from enteron.galar.table import LabelTable

# Galar's own files reach more than 99 %. A join on the wrong column reaches about 20 %.
REQUIRED_COVERAGE = 0.99


@dataclass(frozen=True)
class Join:
    """Which label row belongs to which image, and what found no partner."""

    study: str
    frames: NDArray[np.int64]  # numbers that have both an image and a label row, ascending
    values: NDArray[np.bool_]  # (frames, 17) labels of those
    labels_without_image: NDArray[np.int64]  # frame numbers
    images_without_label: NDArray[np.int64]  # frame numbers

    @property
    def coverage(self) -> float:
        """Share of label rows that have an image."""
        return self.frames.size / (self.frames.size + self.labels_without_image.size)


def join_labels(table: LabelTable, images: NDArray[np.int64]) -> Join:
    """Join a study's labels with its image numbers, whatever the coverage."""
    rows = table.axis.frames
    frames, row, _ = np.intersect1d(rows, images, assume_unique=True, return_indices=True)
    return Join(
        study=table.study,
        frames=frames,
        values=table.values[row],
        labels_without_image=np.setdiff1d(rows, images, assume_unique=True),
        images_without_label=np.setdiff1d(images, rows, assume_unique=True),
    )


def require_fit(join: Join, table: LabelTable, images: NDArray[np.int64]) -> None:
    """Refuse labels that do not fit their images, with both numbers and a guess at the mistake."""
    if join.coverage >= REQUIRED_COVERAGE:
        return
    remedy = "give the labels of this study, or fetch the images that are missing"
    if np.isin(table.index, images).mean() >= REQUIRED_COVERAGE:
        remedy = (
            "its 'index' does fit: were the images renumbered by row? their names must carry "
            "the number of the 'frame' column"
        )
    raise LabelError(
        f"the labels of study {table.study} do not fit its images: {join.frames.size} of "
        f"{len(table)} label rows have an image ({span(table.axis.frames)} in the labels, "
        f"{span(images)} in the images; {join.labels_without_image.size} rows without, "
        f"the first is frame {join.labels_without_image[0]})",
        remedy,
    )


def span(numbers: NDArray[np.int64]) -> str:
    """Frame numbers in a few words: 'frames 0 to 500 in steps of 5'."""
    if numbers.size == 0:
        return "no frames"
    if numbers.size == 1:
        return f"frame {numbers[0]}"
    step = int(np.median(np.diff(numbers)))
    steps = f" in steps of {step}" if step > 1 else ""
    return f"frames {numbers[0]} to {numbers[-1]}{steps}"
