"""enteron: an open reader for video capsule endoscopy.

    reading = enteron.read("study.mp4", model="model")
    figures = enteron.evaluate("truth.json", reading)

Whatever is slow to import is imported when it is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enteron.metrics.evaluation import Evaluation
    from enteron.reading import Reading, ReadOptions
    from enteron.study import Study
    from enteron.types import Annotation

__all__ = ["__version__", "evaluate", "read"]
__version__ = "0.1.0"


def read(
    study: "Path | str | Study",
    *,
    model: Path | str,
    out: Path | str | None = None,
    options: "ReadOptions | None" = None,
) -> "Reading":
    """Read a study (a folder of frames, or a video) with a model folder.

    Files go to `out`, or to a folder `<study>-reading` here; a killed reading goes on when it is
    called again.
    """
    from enteron import reading

    return reading.read(study, model=model, out=out, options=options)


def evaluate(
    truth: "Path | str | list[Annotation]",
    prediction: "Path | str | Reading | list[Annotation]",
) -> "Evaluation":
    """Compare predicted events with true ones: the official score, and what it hides.

    Truth: an official JSON, a folder of Galar labels, or annotations. Prediction: an official
    JSON, a reading, or annotations. Of a truth with more studies, a reading's own is taken.
    """
    from enteron.datasets.submission import read_events, read_truth
    from enteron.metrics.evaluation import evaluate as compare
    from enteron.reading import Reading
    from enteron.types import Unit

    known = truth if isinstance(truth, list) else read_truth(Path(truth), Unit.FRAME)
    if isinstance(prediction, Reading):
        known = [annotation for annotation in known if annotation.study == prediction.study]
        return compare(known, [prediction.annotation])
    if isinstance(prediction, Path | str):
        return compare(known, read_events(Path(prediction), Unit.FRAME))
    return compare(known, prediction)
