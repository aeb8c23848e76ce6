"""`statistics.json` of a reading: a few numbers that tell whether a study looks like others.

They are what a drift watch compares with the studies of the calibration. Nothing of a patient can
be read from them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from enteron.confidence import StudyStatistics, study_signature
from enteron.errors import EnteronError
from enteron.files import RECORD_LIMIT, read_text, write_text
from enteron.labels import LABELS
from enteron.options import parse_json_options
from enteron.study.study import Study
from enteron.types import Scores

if TYPE_CHECKING:
    from enteron.inference.store import Embeddings

STATISTICS: Final = "statistics.json"
_SAMPLED: Final = 16  # frames whose brightness is measured, spread evenly over the study
_DIGITS: Final = 6


def measure_statistics(study: Study, scores: Scores, embeddings: "Embeddings") -> StudyStatistics:
    """The statistics of a study that was scored; reads a few of its frames again."""
    return StudyStatistics(
        brightness=mean_brightness(study),
        scores={
            label: round(float(scores.values[:, column].mean(dtype=np.float64)), _DIGITS)
            for column, label in enumerate(LABELS)
        },
        signature=tuple(study_signature(embeddings.appearance).tolist()),
        encoder=embeddings.key.backbone,
    )


def mean_brightness(study: Study) -> float | None:
    """Mean luminance (0 to 255) of some frames of a study; None when none of them can be read."""
    rows = np.unique(np.linspace(0, len(study) - 1, _SAMPLED).astype(np.int64)).tolist()
    images = [study.frame(int(study.numbers[row])).image for row in rows]
    weights = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    values = [
        float((image.mean(axis=(0, 1)) * weights).sum()) for image in images if image is not None
    ]
    return round(float(np.mean(values)), 3) if values else None


def write_statistics(folder: Path, statistics: StudyStatistics) -> None:
    """Write the file."""
    write_text(folder / STATISTICS, statistics.model_dump_json(indent=1) + "\n")


def read_statistics(folder: Path) -> StudyStatistics | None:
    """The statistics of a reading; None where it has none, or damaged ones."""
    path = folder / STATISTICS
    if not path.is_file():
        return None
    try:
        text = read_text(path, RECORD_LIMIT, "read the study again")
        return parse_json_options(StudyStatistics, text, STATISTICS, "read the study again")
    except EnteronError:
        return None
