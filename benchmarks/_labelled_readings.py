"""Readings of labelled studies, for the benchmarks of lesions."""

from dataclasses import dataclass
from pathlib import Path

from enteron.calibration import Calibration
from enteron.datasets.submission import read_truth
from enteron.errors import EnteronError
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.folders.reading import SCORES, load_reading
from enteron.types import Annotation, Unit


@dataclass(frozen=True)
class LabelledReading:
    """A reading folder, its scores with the truth by row, and its calibration of frames."""

    folder: Path
    truth: Annotation
    labelled: LabelledStudy
    calibration: Calibration


def read_labelled(root: Path, truth: Path | None) -> list[LabelledReading]:
    """Every reading under a root, in the order of the folders' names."""
    if truth is None:
        raise EnteronError(f"the readings in '{root.name}' need a truth", "give it as --help says")
    truths = {annotation.study: annotation for annotation in read_truth(truth, Unit.FRAME)}
    readings: list[LabelledReading] = []
    for folder in sorted(path for path in root.iterdir() if (path / SCORES).is_file()):
        reading = load_reading(folder)
        scores, frames = reading.scores, reading.run.frame_calibration
        readings.append(
            LabelledReading(
                folder,
                truths[reading.study],
                LabelledStudy(scores, label_rows(scores, truths[reading.study])),
                Calibration() if frames is None else Calibration(likelihood=frames),
            )
        )
    if not readings:
        raise EnteronError(f"'{root.name}' holds no readings", "give a folder of reading folders")
    return readings
