"""A study and a model to a reading: embed, score, decode, pictures, report.

Every stage leaves a file, so a killed run goes on where it was and ends with the same files.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field

from enteron.calibration import Calibration
from enteron.datasets.galar import find_studies
from enteron.datasets.submission import write_submission
from enteron.decode import DecodedEvent, DecodeOptions, decode, preset
from enteron.decode.events import to_annotation
from enteron.decode.options import require_fitted
from enteron.errors import StudyError
from enteron.folders.label_studio import write_label_studio
from enteron.folders.model import CALIBRATION, load_calibration
from enteron.folders.reading import read_run, write_reading, write_run
from enteron.folders.scores import write_scores
from enteron.options import Options
from enteron.phantom.time_scale import frames_per_row_of
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import Study, open_study
from enteron.study.folder import is_image_name
from enteron.types import Annotation, Scores, Unit

if TYPE_CHECKING:
    from enteron.folders.model import ModelRecord
    from enteron.inference.encoder import Encoder, ImageBatch
    from enteron.inference.score import ProbeEffect
    from enteron.inference.store import Embeddings
    from enteron.model.network import Network
    from enteron.model.preprocessing import Preprocessing


_PACKAGES = ("enteron", "torch", "numpy", "scipy", "polars", "opencv-python-headless", "av")
_MOST_NAMED = 100  # unreadable frames that are named; all of them are counted


def run_facts(
    study: Study,
    reader: "Reader",
    embeddings: "Embeddings",
    scores: Scores,
    effect: "ProbeEffect | None",
) -> dict[str, Any]:
    """What `run.json` tells; no place on this machine, nothing of a patient but the id."""
    asked, record = reader.asked, reader.record
    unreadable = study.unreadable
    redundant = None
    if asked.redundancy is not None:
        redundant = {
            "count": embeddings.redundant,
            "share": round(embeddings.redundant / len(embeddings), 4),
            "limit": asked.redundancy,
            "probed": 0 if effect is None else effect.frames,
            "mean_difference": None if effect is None else round(effect.mean, 6),
            "largest_difference": None if effect is None else round(effect.largest, 6),
        }
    return {
        "command": f"enteron read {study.id} --preset {asked.preset}",
        "study": study.id,
        "state": "finished",
        "unit": str(Unit.FRAME),
        "rows": len(embeddings),
        "scored": len(scores.axis),
        "stride": scores.axis.step,
        "gaps": int(scores.axis.gaps().size),
        "rate": None if study.rate is None else float(study.rate),
        "rate_note": None if study.rate is None else "from the video",
        "notes": list(study.notes),
        "unreadable": {
            "count": len(unreadable),
            "frames": sorted(unreadable)[:_MOST_NAMED],
            "reasons": dict(Counter(unreadable.values()).most_common(20)),
        },
        "redundant": redundant,
        "model": {
            "backbone": record.backbone.name,
            "hash": record.weights_hash[:16],
            "trained_on": record.training,
            "results": record.results,
            "calibrated": reader.calibration is not None,
            "split": record.split_hash,
        },
        "runtime": {
            "name": embeddings.key.runtime,
            "why": reader.why or None,
            "tta": asked.tta,
        },
        "preset": asked.preset,
        "frame_calibration": _frame_calibration(reader),
        "options": reader.decoding.model_dump(),
        "scaling": scaling_note(scores),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _frame_calibration(reader: "Reader") -> dict[str, Any] | None:
    """What the decoder did to scores first, so that the page shows what it saw."""
    if reader.calibration is None:
        return None
    used = getattr(reader.calibration, reader.decoding.calibration)
    return {"temperature": used.temperature, "bias": used.bias}


def scaling_note(scores: Scores) -> str | None:
    """Said wherever decoder constants were divided."""
    if scores.shortening == 1.0:
        return None
    return (
        f"a shortened study: a row stands for {scores.row_frames:.0f} original frames, so "
        f"constants counted in rows are divided by {scores.shortening:.1f}, for every decoder alike"
    )


EMBEDDINGS = "embeddings.npy"
SCORES = "scores.parquet"
_SAMPLES = 4  # pictures of a study on which runtimes are compared

PresetName = Literal["paper", "transit", "challenge", "clinical"]


class ReadOptions(Options):
    """How a study is read."""

    preset: PresetName = "transit"
    """How scores become events."""

    tta: bool = True
    """Score each clip and its mirror image; without it, half of the encoder's work is saved."""

    runtime: str | None = None
    """What runs the encoder; `exact`, `auto` or a name. None: what suits the model."""

    redundancy: float | None = Field(default=None, ge=0)
    """Frames nearer than this (grey levels) to the last encoded frame take its embedding."""

    mask_text: bool = True
    """Remove what the recorder wrote into the pictures of the report."""


class Progress(Protocol):
    """Whoever watches a reading."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of so many frames; the value it gives hears how many are done."""
        ...


class Silent:
    """Nobody watches."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda done: None


@dataclass(frozen=True)
class Reading:
    """What was found in a study."""

    study: str
    folder: Path
    scores: Scores  # of every readable frame, as the model gave them
    events: list[DecodedEvent]
    run: dict[str, Any]  # as in run.json
    redundancy: "ProbeEffect | None" = None  # what skipping redundant frames did to scores

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @property
    def annotation(self) -> Annotation:
        """The events as the official file holds them."""
        return to_annotation(self.study, Unit.FRAME, self.events, cut=self.cut)

    @property
    def cut(self) -> bool:
        """Whether the official file is cut at every change of the label set."""
        return self.run["options"]["cut"]

    @property
    def counts(self) -> dict[str, int]:
        """Events by label, the commonest first."""
        return dict(Counter(event.label for event in self.events).most_common())

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        return self.run["timings"]


def read(
    study: Path | str | Study,
    *,
    model: Path | str,
    out: Path | str | None = None,
    options: ReadOptions | None = None,
    truth: Annotation | None = None,
    progress: Progress | None = None,
) -> Reading:
    """Read a folder of frames or a video with a model folder; the files go to `out`.

    Without `out` they go to `<study>-reading` in the present folder.
    """
    return Reader(Path(model), options).read(study, out, truth=truth, progress=progress)


class Reader:
    """A model that is ready to read one study after the other."""

    def __init__(self, model: Path, options: ReadOptions | None = None) -> None:
        from enteron.folders.model import load_model, read_record

        self.asked = ReadOptions() if options is None else options
        self.decoding: DecodeOptions = preset(self.asked.preset)
        read_record(model)  # what is wrong with the folder, before the weights are read
        fitted = (model / CALIBRATION).exists()
        self.calibration: Calibration | None = load_calibration(model) if fitted else None
        # Now, and not after hours of encoding.
        require_fitted(self.decoding, self.calibration or Calibration())
        loaded = load_model(model)
        self.network: Network = loaded[0]
        self.record: ModelRecord = loaded[1]
        self.why = ""  # the runtime was chosen
        self._encoders: dict[str, Encoder] = {}

    def read(
        self,
        study: Path | str | Study,
        out: Path | str | None = None,
        *,
        truth: Annotation | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """One study, from its frames to the report."""
        opened = study if isinstance(study, Study) else open_study(study)
        scale = None if isinstance(study, Study) else frames_per_row_of(Path(study), opened.id)
        return self.read_opened(opened, out, scale, truth=truth, progress=progress)

    def read_opened(
        self,
        opened: Study,
        out: Path | str | None,
        scale: float | None,
        *,
        truth: Annotation | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """The same; `scale` tells how many original frames a row of a shortened study is for."""
        folder = Path(f"{opened.id}-reading") if out is None else Path(out)
        with opened:
            work = _Work(self, opened, folder, scale, truth, progress or Silent())
            return work.done()

    def encoder(self, study: Study, started: str | None) -> "Encoder":
        """The encoder that the options ask for; an unfinished run goes on with the one it had."""
        from enteron.inference.runtimes import choose, default_runtime, make_encoder

        backbone = self.network.backbone
        wanted = self.asked.runtime or default_runtime(backbone)
        if wanted == "auto" and "auto" not in self._encoders and started is not None:
            wanted, self.why = started, "as in the run that is continued"
        if wanted not in self._encoders and wanted == "auto":
            choice = choose(backbone, samples=_samples(study, backbone.spec.preprocessing))
            self._encoders[wanted], self.why = choice.encoder, choice.reason
        elif wanted not in self._encoders:
            self._encoders[wanted] = make_encoder(backbone, wanted)
        return self._encoders[wanted]


def _samples(study: Study, preprocessing: "Preprocessing") -> "ImageBatch | None":
    """A few pictures of the study itself, spread over it; none when those cannot be read."""
    import numpy as np

    from enteron.inference.pictures import prepare_frame

    rows = np.linspace(0, len(study) - 1, 2 + _SAMPLES).astype(int)[1:-1]
    frames = [prepare_frame(study.frame(int(study.numbers[r])), preprocessing) for r in rows]
    images = [frame.image for frame in frames if frame.image is not None]
    return np.stack(images) if images else None


@dataclass
class _Work:
    """One study on its way through the stages."""

    reader: Reader
    study: Study
    folder: Path
    frames_per_row: float | None
    truth: Annotation | None
    progress: Progress
    timings: dict[str, float] = field(default_factory=dict)

    def done(self) -> Reading:
        """All stages."""
        _require_own(self.folder, self.study.id)
        write_run(self.folder, {"study": self.study.id, "state": "begun"})
        with self._timed("embed"):
            embeddings = self._embedded()
        with self._timed("score"):
            scores, effect = self._scored(embeddings)
        options = self.reader.decoding
        with self._timed("decode"):
            events = decode(scores, options, None, self.reader.calibration)
            write_reading(self.folder, scores, Unit.FRAME, events, cut=options.cut)
            rate = None if self.study.rate is None else float(self.study.rate)
            write_label_studio(self.folder, scores, events, rate=rate, axis=self.study.axis)
        with self._timed("pictures"):
            chosen = choose_pictures(scores, events)
            with self.progress.stage("pictures", len(chosen.frames)):
                save_pictures(
                    self.study, chosen, self.folder, mask_text=self.reader.asked.mask_text
                )
        run = run_facts(self.study, self.reader, embeddings, scores, effect)
        run["timings"] = self._seconds()
        write_run(self.folder, run)  # the page is made from files alone, this one included
        with self._timed("report"):
            write_report(self.folder, truth=self.truth, device_text=not self.reader.asked.mask_text)
        run["timings"] = self._seconds()
        write_run(self.folder, run)
        return Reading(self.study.id, self.folder, scores, events, run, effect)

    def _embedded(self) -> "Embeddings":
        from enteron.inference.embed import FLIPPED, PLAIN, EmbedOptions, embed_study
        from enteron.inference.store import started_key

        path = self.folder / EMBEDDINGS
        started = started_key(path)
        encoder = self.reader.encoder(self.study, started and started.runtime)
        options = EmbedOptions(redundancy=self.reader.asked.redundancy)
        views = (PLAIN, FLIPPED) if self.reader.asked.tta else (PLAIN,)
        with self.progress.stage("embed", len(self.study)) as advance:
            return embed_study(self.study, encoder, path, options, advance, views=views)

    def _scored(self, embeddings: "Embeddings") -> "tuple[Scores, ProbeEffect | None]":
        from enteron.inference.score import probe_effect, score_study

        flips = self.reader.asked.tta
        with self.progress.stage("score", len(self.study)) as advance:
            scores = score_study(
                self.reader.network,
                embeddings,
                flips=flips,
                times=self.study.times(),
                frames_per_row=self.frames_per_row,
                advance=advance,
            )
        write_scores(self.folder / SCORES, scores)
        return scores, probe_effect(self.reader.network, embeddings, scores, flips=flips)

    def _seconds(self) -> dict[str, float]:
        return {name: round(seconds, 3) for name, seconds in self.timings.items()}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.timings[stage] = time.perf_counter() - begin


def _require_own(folder: Path, study: str) -> None:
    """A folder that is new, or holds a reading of this very study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"'{folder.name}' is a file", "give a folder for the reading")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"'{folder.name}' cannot be made a folder ({error.strerror})",
            "give a place that you may write to",
        ) from error
    found = read_run(folder)
    if found is not None and found.get("study") != study:
        raise StudyError(
            f"'{folder.name}' holds the reading of study {found.get('study')}, not of {study}",
            "give another folder",
        )


def write_together(readings: Sequence[Reading], out: Path) -> Path:
    """One official file of several readings, for the challenge."""
    path = out / "submission.json"
    write_submission(path, [reading.annotation for reading in readings])
    return path


def studies_under(path: Path) -> list[tuple[str, Path]]:
    """(id, place) of what a person points at: one study, or a root with several."""
    if not path.is_dir() or any(is_image_name(entry.name) for entry in path.iterdir()):
        return [(open_study(path).id, path)]
    found = [(entry.id, entry.images) for entry in find_studies(path).values()]
    studies = [(name, images) for name, images in found if images is not None]
    if not studies:
        raise StudyError(
            f"'{path.name}' holds neither frames nor videos",
            "give a folder of PNG or JPEG frames, a video, or a folder with several of them",
        )
    return studies
