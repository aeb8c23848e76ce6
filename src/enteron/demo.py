"""The demonstrations: one study read with the model in the box; and the whole system.

The first draws a study and reads it. The second draws studies, trains, calibrates, and reads a
device that training never saw. Nothing here is special: it calls what the commands call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from enteron.calibration import Calibration
from enteron.datasets.submission import read_truth
from enteron.decoding import PRESETS, DecodedEvent, DecodeOptions, decode
from enteron.decoding.events import to_annotation
from enteron.files import make_folder
from enteron.fitting.calibrate import calibrate_model
from enteron.fitting.frames import label_rows
from enteron.folders.model import load_calibration
from enteron.folders.reading import Reading
from enteron.labels import REGIONS
from enteron.locks import folder_lock
from enteron.metrics.evaluation import Evaluation, evaluate
from enteron.options import Options
from enteron.phantom.dataset import TRUTH, PhantomOptions, StudyPlan, frames_to_make, make_studies
from enteron.priors import load_priors
from enteron.progress import Progress
from enteron.reading import Reader, ReadOptions
from enteron.types import Annotation, Scores, Unit

SEEN, UNSEEN, MODEL, READINGS = "seen", "unseen", "model", "readings"
STUDIES, READING = "studies", "reading"
EXAMPLE_FRAMES = 240
# Chosen by its timeline alone, before it was read: five regions, all landmarks, three findings, as
# long as real studies are. Other seeds may draw studies with next to no small intestine.
EXAMPLE_SEED = 14


def read_example(
    out: Path,
    progress: Progress,
    *,
    seed: int = EXAMPLE_SEED,
    options: ReadOptions | None = None,
) -> Reading:
    """Draw a NaviCam study and read it with the model in the box.

    The page compares the reading with what was drawn. A second call keeps what the first one made.
    """
    plan = PhantomOptions(frames=EXAMPLE_FRAMES, seed=seed, rarity=0.3, device="navicam")
    make_folder(out)
    with folder_lock(out):
        with progress.task("Drawing a study", frames_to_make(out / STUDIES, 1, plan)) as advance:
            for frames in make_studies(out / STUDIES, 1, plan):
                advance(frames)
        study = StudyPlan(1, plan, load_priors())
        (truth,) = _truths(out / STUDIES)
        reader = Reader(options=options)
        return reader.read(
            out / STUDIES / study.folder, out / READING, truth=truth, progress=progress
        )


class DemoOptions(Options):
    """How much is drawn; by default two cores need some minutes."""

    seed: int = Field(default=7, ge=0)
    """Seed of everything that is drawn and trained."""

    studies: int = Field(default=14, ge=6)
    """PillCam and Olympus studies to train, validate and calibrate on."""

    frames: int = Field(default=400, ge=50)
    """Frames of each of them."""

    validation: float = Field(default=0.35, gt=0, lt=1)
    """Share of them that does not train but calibrates."""

    unseen: int = Field(default=8, ge=2)
    """NaviCam studies to read: a device that training never sees."""

    unseen_frames: int = Field(default=400, ge=50)
    """Frames of each of them."""

    rarity: float = Field(default=1.0, ge=0)
    """1: landmarks and findings occur in as many studies as in Galar; below 1 in more."""

    def seen_plan(self) -> PhantomOptions:
        """Studies of the devices that training sees."""
        return PhantomOptions(frames=self.frames, seed=self.seed, rarity=self.rarity)

    def unseen_plan(self) -> PhantomOptions:
        """Studies of the device that training does not see, from another seed."""
        return PhantomOptions(
            frames=self.unseen_frames, seed=self.seed + 1, rarity=self.rarity, device="navicam"
        )


@dataclass(frozen=True)
class DecoderResult:
    """One decoder on the unseen studies."""

    name: str
    evaluation: Evaluation
    region_events: float  # per study


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration ends with."""

    reading: Reading  # of the study whose page is shown
    decoders: tuple[DecoderResult, ...]
    shortening: tuple[float, float]  # least and most of the unseen studies


def run_demo(out: Path, options: DemoOptions, progress: Progress) -> DemoResult:
    """Run everything into a folder; what an earlier run completed is kept."""
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        return _run_demo(out, options, progress)


def _run_demo(out: Path, options: DemoOptions, progress: Progress) -> DemoResult:
    seen, unseen, model = out / SEEN, out / UNSEEN, out / MODEL
    progress.message("\n1. Drawing synthetic studies")
    for root, count, plan in (
        (seen, options.studies, options.seen_plan()),
        (unseen, options.unseen, options.unseen_plan()),
    ):
        total = frames_to_make(root, count, plan)
        with progress.task(f"Drawing {root.name} studies", total) as advance:
            for frames in make_studies(root, count, plan):
                advance(frames)
    progress.message("\n2. Training on PillCam and Olympus studies")
    _train(seen, model, options, progress)
    progress.message("\n3. Calibrating on studies that did not train")
    calibrate_model(model, seen, progress=progress)
    progress.message("\n4. Reading NaviCam studies, a device that training never saw")
    readings = _read_unseen(unseen, out / READINGS, model, options, progress)
    decoders = compare_decoders(readings, _truths(unseen), load_calibration(model))
    factors = [reading.scores.shortening for reading in readings]
    return DemoResult(_most_varied(readings), decoders, (min(factors), max(factors)))


def _train(data: Path, model: Path, options: DemoOptions, progress: Progress) -> None:
    from enteron.training.options import recipe
    from enteron.training.plan import TrainingRequest, is_finished, is_started, make_plan
    from enteron.training.run import run_training

    if is_finished(model):
        return
    # The split of the seed alone: the figures in README and docs were measured with it.
    data_options = {"validation": options.validation, "stratified": False}
    lite = recipe("lite", seed=options.seed, data=data_options)
    request = TrainingRequest((data,), model, lite, resume=is_started(model))
    run_training(make_plan(request, progress), progress)


def _read_unseen(
    root: Path, out: Path, model: Path, options: DemoOptions, progress: Progress
) -> list[Reading]:
    reader = Reader(model, ReadOptions())
    truths = {truth.study: truth for truth in _truths(root)}
    plan = options.unseen_plan()
    readings: list[Reading] = []
    for number in range(1, options.unseen + 1):
        study = StudyPlan(number, plan, load_priors())
        truth = truths[study.id]
        reading = reader.read(root / study.folder, out / study.id, truth=truth, progress=progress)
        readings.append(reading)
    return readings


def _truths(root: Path) -> list[Annotation]:
    return read_truth(root / TRUTH, Unit.FRAME)


def _most_varied(readings: Sequence[Reading]) -> Reading:
    """The reading with most kinds of events, and so with most to see on its page."""
    return max(readings, key=lambda reading: (len(reading.counts), len(reading.events)))


def compare_decoders(
    readings: Sequence[Reading], truths: list[Annotation], calibration: Calibration
) -> tuple[DecoderResult, ...]:
    """Several decoders on the same scores, between an empty file and an oracle.

    The oracle is the default decoder on the true frame labels.
    """
    truth_of = {truth.study: truth for truth in truths}
    priors = load_priors()

    def true_scores(reading: Reading) -> Scores:
        scores = reading.scores
        values = label_rows(scores, truth_of[reading.study]).astype(np.float32)
        return Scores(scores.study, scores.axis, values, None, scores.frames_per_row)

    def with_preset(name: str) -> Callable[[Reading], list[DecodedEvent]]:
        return lambda reading: decode(reading.scores, PRESETS[name], priors, calibration)

    presets = ("gap-merge", "paper", "transit", "challenge")
    decoders: list[tuple[str, Callable[[Reading], list[DecodedEvent]], DecodeOptions | None]] = [
        ("empty file", lambda reading: [], None),
        *((name, with_preset(name), PRESETS[name]) for name in presets),
        ("oracle", lambda reading: decode(true_scores(reading), PRESETS["transit"], priors), None),
    ]
    results: list[DecoderResult] = []
    reference = [truth_of[reading.study] for reading in readings]
    for name, decode_reading, options in decoders:
        events_of = [decode_reading(reading) for reading in readings]
        predictions = [
            to_annotation(reading.study, Unit.FRAME, events, options)
            for reading, events in zip(readings, events_of, strict=True)
        ]
        regions = [sum(event.label in REGIONS for event in events) for events in events_of]
        evaluation = evaluate(reference, predictions)
        results.append(DecoderResult(name, evaluation, float(np.mean(regions))))
    return tuple(results)
