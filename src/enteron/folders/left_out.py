"""Findings of training studies as models see them that did not see the study.

`training/left-out/` of a model folder has a file of scores per study. Calibration uses them in
place of the model's own scores, which would be too good: these studies trained the model.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.folders.scores import find_score_files, read_scores, write_scores
from enteron.labels import ANATOMY, LABELS
from enteron.types import FrameAxis, Scores

LEFT_OUT = "left-out"

_NOTHING_SAID = 0.5  # of anatomy, which left-out models say nothing about


def write_left_out(
    folder: Path, study: str, frames: NDArray[np.int64], findings: NDArray[np.floating]
) -> None:
    """Write the probabilities (frames, 9) of a study's findings into the folder."""
    values = np.full((len(frames), len(LABELS)), _NOTHING_SAID, np.float32)
    values[:, len(ANATOMY) :] = findings
    write_scores(folder / f"{study}.parquet", Scores(study, FrameAxis(frames), values))


def read_left_out(folder: Path) -> dict[str, Scores]:
    """By study, the scores of the frames that were left out; only those of findings mean anything.

    Empty where no study was left out.
    """
    if not folder.is_dir():
        return {}
    return {study: read_scores(path, study) for study, path in find_score_files(folder).items()}
