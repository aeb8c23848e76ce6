"""The whole story on synthetic studies: draw, train, calibrate, read what training never saw.

Nothing here is special to the demonstration: it calls what the commands call.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from pydantic import Field

from enteron.calibration import Calibration
from enteron.datasets.submission import read_truth
from enteron.decode import PRESETS, DecodedEvent, decode
from enteron.decode.events import to_annotation
from enteron.decode.gap_merge import gap_merge
from enteron.fitting.calibrate import calibrate_model
from enteron.folders.model import load_calibration
from enteron.metrics.evaluation import Evaluation, evaluate
from enteron.options import Options
from enteron.phantom.dataset import TRUTH, PhantomOptions, StudyPlan, frames_to_make, make_studies
from enteron.priors import load_priors
from enteron.reading import Reader, Reading, ReadOptions
from enteron.types import Annotation, Scores, Unit

if TYPE_CHECKING:
    from enteron.training.company import Company


SEEN, UNSEEN, MODEL, READINGS = "seen", "unseen", "model", "readings"


class DemoOptions(Options):
    """How much is drawn; chosen so that two cores need some minutes."""

    seed: int = Field(default=7, ge=0)
    """Of everything that is drawn and trained."""

    studies: int = Field(default=14, ge=6)
    """PillCam and Olympus studies to train, validate and calibrate on (two at least)."""

    frames: int = Field(default=400, ge=50)
    """Of each of them."""

    validation: float = Field(default=0.35, gt=0, lt=1)
    """Share of them that is not trained on, but calibrated on."""

    unseen: int = Field(default=8, ge=2)
    """NaviCam studies, a device that training never saw."""

    unseen_frames: int = Field(default=400, ge=50)
    """Of each of them."""

    rarity: float = Field(default=1.0, ge=0)
    """1: landmarks and findings are in as many studies as in Galar; below 1 in more."""

    def seen_plan(self) -> PhantomOptions:
        """Studies of the devices that training sees."""
        return PhantomOptions(frames=self.frames, seed=self.seed, rarity=self.rarity)

    def unseen_plan(self) -> PhantomOptions:
        """Studies of the device that it does not, from another seed."""
        return PhantomOptions(
            frames=self.unseen_frames, seed=self.seed + 1, rarity=self.rarity, device="navicam"
        )


class Narrator(Protocol):
    """Whoever tells the story."""

    def chapter(self, title: str) -> None:
        """What comes next."""
        ...

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Long work, as for a reading."""
        ...

    def company(self) -> "AbstractContextManager[Company]":
        """Who watches the training."""
        ...

    def counted(self, sizes: Iterator[int], total: int, what: str) -> None:
        """Go through pieces of long work."""
        ...


@dataclass(frozen=True)
class Row:
    """One decoder on the unseen studies."""

    name: str
    evaluation: Evaluation
    region_events: float  # a study


@dataclass(frozen=True)
class Told:
    """How the story ends."""

    reading: Reading  # of the study whose page is shown
    rows: tuple[Row, ...]
    shortening: tuple[float, float]  # least and most of the unseen studies


def demonstrate(out: Path, options: DemoOptions, narrator: Narrator) -> Told:
    """Everything, into a folder; what is there already is not made again."""
    seen, unseen, model = out / SEEN, out / UNSEEN, out / MODEL
    narrator.chapter("Drawing synthetic studies")
    for root, count, plan in (
        (seen, options.studies, options.seen_plan()),
        (unseen, options.unseen, options.unseen_plan()),
    ):
        total = frames_to_make(root, count, plan)
        narrator.counted(make_studies(root, count, plan), total, f"Drawing {root.name} studies")
    narrator.chapter("Training on PillCam and Olympus studies")
    _train(seen, model, options, narrator)
    narrator.chapter("Calibrating on studies that did not train")
    calibrate_model(model, seen)
    narrator.chapter("Reading NaviCam studies, a device that training never saw")
    readings = _read(unseen, out / READINGS, model, options, narrator)
    rows = compare(readings, _truths(unseen), load_calibration(model))
    factors = [reading.scores.shortening for reading in readings]
    return Told(_shown(readings), rows, (min(factors), max(factors)))


def _train(data: Path, model: Path, options: DemoOptions, narrator: Narrator) -> None:
    from enteron.training.options import recipe
    from enteron.training.plan import Request, is_begun, is_finished, make_plan
    from enteron.training.run import teach

    if is_finished(model):
        return
    lite = recipe("lite", seed=options.seed, data={"validation": options.validation})
    with narrator.company() as company:
        request = Request(data, model, lite, resume=is_begun(model))
        teach(make_plan(request, company), company)


def _read(
    root: Path, out: Path, model: Path, options: DemoOptions, narrator: Narrator
) -> list[Reading]:
    reader = Reader(model, ReadOptions())
    truths = {truth.study: truth for truth in _truths(root)}
    plan = options.unseen_plan()
    readings: list[Reading] = []
    for number in range(1, options.unseen + 1):
        study = StudyPlan(number, plan, load_priors())
        readings.append(
            reader.read(
                root / study.folder, out / study.id, truth=truths[study.id], progress=narrator
            )
        )
    return readings


def _truths(root: Path) -> list[Annotation]:
    return read_truth(root / TRUTH, Unit.FRAME)


def _shown(readings: Sequence[Reading]) -> Reading:
    """The study with most kinds of events: the one with most to see on its page."""
    return max(readings, key=lambda reading: (len(reading.counts), len(reading.events)))


def compare(
    readings: Sequence[Reading], truths: list[Annotation], calibration: Calibration
) -> tuple[Row, ...]:
    """Decoders on the same scores, between an empty file and the truth through our decoder."""
    from enteron.fitting.labelled import label_rows
    from enteron.labels import REGIONS

    by_study = {truth.study: truth for truth in truths}
    priors = load_priors()

    def known(reading: Reading) -> Scores:
        scores = reading.scores
        values = label_rows(scores, by_study[reading.study]).astype(np.float32)
        return Scores(scores.study, scores.axis, values, None, scores.frames_per_row)

    def by_preset(name: str) -> Callable[[Reading], list[DecodedEvent]]:
        return lambda reading: decode(reading.scores, PRESETS[name], priors, calibration)

    decoders: list[tuple[str, Callable[[Reading], list[DecodedEvent]], bool]] = [
        ("empty file", lambda reading: [], False),
        ("gap merge", lambda reading: gap_merge(reading.scores, calibration), False),
        ("paper", by_preset("paper"), False),
        ("transit", by_preset("transit"), False),
        ("challenge", by_preset("challenge"), True),
        ("oracle", lambda reading: decode(known(reading), PRESETS["transit"], priors), False),
    ]
    rows: list[Row] = []
    for name, predict, cut in decoders:
        found = [predict(reading) for reading in readings]
        predictions: list[Annotation] = [
            to_annotation(reading.study, Unit.FRAME, events, cut=cut)
            for reading, events in zip(readings, found, strict=True)
        ]
        own = [by_study[reading.study] for reading in readings]
        events = [sum(event.label in REGIONS for event in study) for study in found]
        rows.append(Row(name, evaluate(own, predictions), float(np.mean(events))))
    return tuple(rows)
