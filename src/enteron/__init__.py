"""enteron: an open reader for video capsule endoscopy.

    reading = enteron.read("study.mp4", model="model")
    print(reading)
    print(enteron.evaluate("truth.json", reading))

`docs/api.md` shows every public name. Slow imports (torch, polars) happen where they are used.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enteron.calibration import Calibration
    from enteron.combination import CombineOptions, combine
    from enteron.datasets.layouts import open_dataset
    from enteron.decoding import DecodedEvent, DecodeOptions
    from enteron.folders.model import load_model
    from enteron.folders.reading import Reading
    from enteron.folders.reading import load_reading as load
    from enteron.metrics.evaluation import Evaluation
    from enteron.metrics.frame_evaluation import FrameEvaluation
    from enteron.priors import Priors
    from enteron.reading import Reader, ReadOptions, read, read_all
    from enteron.types import Annotation, Event, Scores

__all__ = [
    "Annotation",
    "CombineOptions",
    "DecodeOptions",
    "Evaluation",
    "Event",
    "ReadOptions",
    "Reader",
    "Reading",
    "Scores",
    "__version__",
    "combine",
    "decode",
    "evaluate",
    "evaluate_frames",
    "load",
    "load_model",
    "open_dataset",
    "read",
    "read_all",
]
__version__ = "0.1.0"

# Public names that live in modules with slow imports, by module and name there.
_LAZY = {
    "Annotation": ("enteron.types", "Annotation"),
    "CombineOptions": ("enteron.combination", "CombineOptions"),
    "DecodeOptions": ("enteron.decoding", "DecodeOptions"),
    "Evaluation": ("enteron.metrics.evaluation", "Evaluation"),
    "Event": ("enteron.types", "Event"),
    "ReadOptions": ("enteron.reading", "ReadOptions"),
    "Reader": ("enteron.reading", "Reader"),
    "Reading": ("enteron.folders.reading", "Reading"),
    "Scores": ("enteron.types", "Scores"),
    "combine": ("enteron.combination", "combine"),
    "load": ("enteron.folders.reading", "load_reading"),
    "load_model": ("enteron.folders.model", "load_model"),
    "open_dataset": ("enteron.datasets.layouts", "open_dataset"),
    "read": ("enteron.reading", "read"),
    "read_all": ("enteron.reading", "read_all"),
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'enteron' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def decode(
    scores: "Scores | Path | str",
    options: "DecodeOptions | str | None" = None,
    *,
    model: Path | str | None = None,
    calibration: "Calibration | None" = None,
    priors: "Priors | None" = None,
) -> "list[DecodedEvent]":
    """Turn scores of any model into events.

    `scores` is a value or a parquet or CSV file; `options` is a preset's name (`transit` by
    default) or a value. `model` is a model folder, or a `calibration.json`, whose calibration is
    applied first; without one, scores are taken as calibrated probabilities.
    """
    from enteron.decoding import decode as decode_scores
    from enteron.decoding import preset
    from enteron.errors import EnteronError
    from enteron.folders.model import decoding_priors, load_calibration, require_scored_by
    from enteron.folders.scores import read_score_metadata, read_scores

    if model is not None and calibration is not None:
        raise EnteronError("both a model and a calibration were given", "give one of them")
    file = None if hasattr(scores, "axis") else Path(scores)  # pyright: ignore[reportArgumentType]
    if file is not None:
        scores = read_scores(file)
    if isinstance(options, str):
        options = preset(options)
    if model is not None:
        calibration = load_calibration(Path(model))
        if file is not None:
            require_scored_by(calibration, read_score_metadata(file).model, Path(model), file)
        priors = decoding_priors(calibration, Path(model), priors)
    return decode_scores(scores, options, priors, calibration)  # pyright: ignore[reportArgumentType]


def evaluate(
    truth: "Path | str | list[Annotation]",
    prediction: "Path | str | Reading | list[Annotation]",
    *,
    rate: float | None = None,
) -> "Evaluation":
    """Compare predicted events with true ones: the official score, and what it hides.

    `truth` is an official JSON, a folder of Galar labels, or annotations. `prediction` is an
    official JSON, a reading, a reading folder or a folder of them, or annotations. Of a truth with
    more studies than a reading, only the reading's own is used, and hours follow from the
    reading's frame rate. `rate` (frames per second) overrides it; without either there are no rates
    per hour.
    """
    from enteron.datasets.submission import read_truth
    from enteron.folders.predictions import read_predictions
    from enteron.folders.reading import Reading
    from enteron.metrics.evaluation import EvaluationOptions
    from enteron.metrics.evaluation import evaluate as compare
    from enteron.types import Unit

    annotations = truth if isinstance(truth, list) else read_truth(Path(truth), Unit.FRAME)
    rates: dict[str, float] = {}
    only_predicted = False
    if isinstance(prediction, Path | str):
        predictions = read_predictions(Path(prediction), Unit.FRAME)
        prediction, rates = predictions.annotations, predictions.rates
    elif isinstance(prediction, Reading):
        only_predicted = True
        run = prediction.run
        if run.rate is not None and not run.rate_assumed and run.scaling is None:
            rates = {prediction.study: run.rate}
        prediction = [prediction.annotation]
    options = EvaluationOptions(rate=rate, only_predicted=only_predicted)
    return compare(annotations, prediction, options, rates=rates)


def evaluate_frames(
    truth: Path | str,
    scores: Path | str,
    *,
    specificity: float = 0.9,
    only_predicted: bool = False,
) -> "FrameEvaluation":
    """Compare scores of frames with their labels: AUC, AP and sensitivity over studies.

    `truth` is a labelled dataset of any layout, `scores` a file of scores, a reading, or a folder
    of either. Unknown labels are left out and counted.
    """
    from enteron.datasets.layouts import read_frame_truth
    from enteron.folders.frame_scores import read_frame_scores
    from enteron.metrics.frame_evaluation import evaluate_frames as compare

    return compare(
        read_frame_truth(Path(truth)),
        read_frame_scores(Path(scores)),
        specificity=specificity,
        only_predicted=only_predicted,
    )
