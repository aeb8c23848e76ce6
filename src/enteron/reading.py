"""From a study and a model to a reading: encode, score, decode, choose pictures, write the page.

Every stage leaves a file and ends by writing `run.json`, so a killed run resumes at the first
unfinished stage and ends with the same files.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from enteron.calibration import Calibration, FrameCalibration
from enteron.datasets.galar import find_studies
from enteron.datasets.submission import write_submission
from enteron.decoding import DecodedEvent, DecodeOptions, decode, preset
from enteron.decoding.options import require_fitted
from enteron.decoding.pipeline import decision_thresholds, frame_calibration
from enteron.errors import StudyError
from enteron.folders.label_studio import write_label_studio
from enteron.folders.model import (
    CALIBRATION,
    load_calibration,
    load_model,
    model_priors,
    read_record,
)
from enteron.folders.reading import (
    EMBEDDINGS,
    SCORES,
    SUBMISSION,
    MissingEnd,
    ModelFacts,
    Reading,
    Redundant,
    RunRecord,
    RuntimeFacts,
    State,
    Unreadable,
    package_versions,
    scaling_note,
    write_events,
)
from enteron.folders.scores import write_scores
from enteron.options import Options
from enteron.progress import Progress, SilentProgress
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import Study, open_study
from enteron.study.folder import is_image_name
from enteron.types import Annotation, Scores

if TYPE_CHECKING:
    from enteron.folders.model import ModelRecord
    from enteron.inference.embed import Embeddings
    from enteron.inference.encoder import Encoder, ImageBatch
    from enteron.inference.score import ProbeEffect
    from enteron.model.network import Network
    from enteron.model.preprocessing import Preprocessing

_TRIAL_FRAMES = 4  # frames of the study on which runtimes are compared
_MOST_LISTED = 100  # unreadable frames that run.json lists; all of them are counted
_PACKAGES = ("enteron", "torch", "numpy", "scipy", "polars", "opencv-python-headless", "av")

PresetName = Literal["paper", "transit", "challenge", "clinical"]


class ReadOptions(Options):
    """How a study is read."""

    preset: PresetName = "transit"
    """How scores become events."""

    tta: bool = True
    """Score each clip and its mirror image; without it the encoder has half of the work."""

    runtime: str | None = None
    """Runtime of the encoder: `exact`, `auto` or a name. None: what suits the model."""

    redundancy: float | None = Field(default=None, ge=0)
    """Frames nearer than this (grey levels) to the last encoded frame take its embedding."""

    mask_text: bool = True
    """Remove what the recorder wrote into the pictures of the report."""


def read(
    study: Path | str | Study,
    *,
    model: Path | str,
    out: Path | str | None = None,
    options: ReadOptions | None = None,
    preset: PresetName | None = None,
    truth: Annotation | None = None,
    progress: Progress | None = None,
) -> Reading:
    """Read one study (a folder of frames, or a video) with a model folder.

    Files go to `out`, or to `<study>-reading` in the current folder. A killed reading resumes when
    it is called again. `preset` is short for `ReadOptions(preset=...)`.
    """
    options = _read_options(options, preset)
    return Reader(model, options).read(study, out, truth=truth, progress=progress)


def read_all(
    root: Path | str,
    *,
    model: Path | str,
    out: Path | str | None = None,
    options: ReadOptions | None = None,
    preset: PresetName | None = None,
    progress: Progress | None = None,
) -> list[Reading]:
    """Read every study under a root, one folder each, and write a submission of all of them."""
    root = Path(root)
    folder = Path(f"{root.resolve().name}-reading") if out is None else Path(out)
    reader = Reader(model, _read_options(options, preset))
    readings = [
        reader.read(open_study(path, study_id=name), folder / name, progress=progress)
        for name, path in studies_under(root)
    ]
    write_joint_submission(readings, folder)
    return readings


def _read_options(options: ReadOptions | None, preset: PresetName | None) -> ReadOptions:
    options = ReadOptions() if options is None else options
    return options if preset is None else options.model_copy(update={"preset": preset})


class Reader:
    """A loaded model that reads one study after the other."""

    def __init__(self, model: Path | str, options: ReadOptions | None = None) -> None:
        model = Path(model)
        self.options = ReadOptions() if options is None else options
        self.decoding: DecodeOptions = preset(self.options.preset)
        read_record(model)  # report what is wrong with the folder before loading the weights
        calibrated = (model / CALIBRATION).exists()
        self.calibration: Calibration | None = load_calibration(model) if calibrated else None
        self.priors = model_priors(model)
        # Refuse a preset that was never fitted now, not after hours of encoding.
        require_fitted(self.decoding, self.calibration or Calibration())
        loaded = load_model(model)
        self.network: Network = loaded[0]
        self.record: ModelRecord = loaded[1]
        self.runtime_reason = ""  # why the runtime was chosen
        self._encoders: dict[str, Encoder] = {}

    def read(
        self,
        study: Path | str | Study,
        out: Path | str | None = None,
        *,
        truth: Annotation | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """Read one study, from its frames to the page."""
        opened = study if isinstance(study, Study) else open_study(study)
        folder = Path(f"{opened.id}-reading") if out is None else Path(out)
        with opened:
            run = _ReadingRun(self, opened, folder, truth, progress or SilentProgress())
            return run.execute()

    def encoder(self, study: Study, earlier_runtime: str | None) -> "Encoder":
        """The encoder that the options ask for; a resumed run keeps the runtime it started with."""
        from enteron.inference.runtimes import choose, default_runtime, make_encoder

        backbone = self.network.backbone
        runtime = self.options.runtime or default_runtime(backbone)
        if runtime == "auto" and "auto" not in self._encoders and earlier_runtime is not None:
            runtime, self.runtime_reason = earlier_runtime, "as in the run that is resumed"
        if runtime not in self._encoders and runtime == "auto":
            images = _trial_images(study, backbone.spec.preprocessing)
            choice = choose(backbone, samples=images)
            self._encoders[runtime], self.runtime_reason = choice.encoder, choice.reason
        elif runtime not in self._encoders:
            self._encoders[runtime] = make_encoder(backbone, runtime)
        return self._encoders[runtime]

    @property
    def frame_calibration(self) -> FrameCalibration | None:
        """The calibration that the decoder applies to scores; None for an uncalibrated model."""
        if self.calibration is None:
            return None
        return frame_calibration(self.decoding, self.calibration)


def _trial_images(study: Study, preprocessing: "Preprocessing") -> "ImageBatch | None":
    """A few frames spread over the study; None when none of them can be read."""
    import numpy as np

    from enteron.inference.pictures import prepare_frame

    rows = np.linspace(0, len(study) - 1, 2 + _TRIAL_FRAMES).astype(int)[1:-1]
    prepared = [prepare_frame(study.frame(int(study.numbers[row])), preprocessing) for row in rows]
    images = [frame.image for frame in prepared if frame.image is not None]
    return np.stack(images) if images else None


@dataclass
class _ReadingRun:
    """One study on its way through the stages."""

    reader: Reader
    study: Study
    folder: Path
    truth: Annotation | None
    progress: Progress
    timings: dict[str, float] = field(default_factory=dict)
    embeddings: "Embeddings | None" = None
    scores: Scores | None = None
    effect: "ProbeEffect | None" = None

    def execute(self) -> Reading:
        """Run all stages."""
        _claim_folder(self.folder, self.study.id)
        self._save_record("started")
        with self._stage("embed", "embedded"):
            self.embeddings = self._embed()
        with self._stage("score", "scored"):
            self.scores = self._score(self.embeddings)
        with self._stage("decode", "decoded"):
            events = self._decode(self.scores)
        with self._stage("pictures", "illustrated"):
            self._save_pictures(self.scores, events)
        with self._stage("report", "finished"):  # the page is made from the files alone
            text = not self.reader.options.mask_text
            write_report(self.folder, truth=self.truth, device_text=text)
        return Reading(self.folder, self.scores, tuple(events), self._record("finished"))

    def _embed(self) -> "Embeddings":
        from enteron.inference.embed import FLIPPED, PLAIN, EmbedOptions, embed_study
        from enteron.inference.store import started_key

        path = self.folder / EMBEDDINGS
        earlier = started_key(path)
        encoder = self.reader.encoder(self.study, earlier and earlier.runtime)
        options = EmbedOptions(redundancy=self.reader.options.redundancy)
        views = (PLAIN, FLIPPED) if self.reader.options.tta else (PLAIN,)
        with self.progress.task("Encoding frames", len(self.study)) as advance:
            return embed_study(self.study, encoder, path, options, advance, views=views)

    def _score(self, embeddings: "Embeddings") -> Scores:
        from enteron.inference.score import probe_effect, score_study

        flips = self.reader.options.tta
        with self.progress.task("Scoring", len(self.study)) as advance:
            scores = score_study(
                self.reader.network,
                embeddings,
                flips=flips,
                times=self.study.times(),
                frames_per_row=self.study.frames_per_row,
                advance=advance,
            )
        write_scores(self.folder / SCORES, scores)
        self.effect = probe_effect(self.reader.network, embeddings, scores, flips=flips)
        return scores

    def _decode(self, scores: Scores) -> list[DecodedEvent]:
        options = self.reader.decoding
        events = decode(scores, options, self.reader.priors, self.reader.calibration)
        write_events(self.folder, scores, events, cut=options.cut)
        write_label_studio(self.folder, scores, events, rate=self._rate, axis=self.study.axis)
        return events

    def _save_pictures(self, scores: Scores, events: Sequence[DecodedEvent]) -> None:
        chosen = choose_pictures(scores, events)
        mask_text = self.reader.options.mask_text
        with self.progress.task("Choosing pictures", len(chosen.frames)):
            save_pictures(self.study, chosen, self.folder, mask_text=mask_text)

    @property
    def _rate(self) -> float | None:
        return None if self.study.rate is None else float(self.study.rate)

    @contextmanager
    def _stage(self, name: str, state: State) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings[name] = round(time.perf_counter() - start, 3)
        self._save_record(state)

    def _save_record(self, state: State) -> None:
        self._record(state).save(self.folder)

    def _record(self, state: State) -> RunRecord:
        """What is known of the run so far."""
        reader, study, scores = self.reader, self.study, self.scores
        unreadable = study.unreadable
        return RunRecord(
            study=study.id,
            state=state,
            command=f"enteron read {study.id} --preset {reader.options.preset}",
            rows=len(study),
            scored=None if scores is None else len(scores.axis),
            stride=study.axis.step if scores is None else scores.axis.step,
            gaps=None if scores is None else int(scores.axis.gaps().size),
            rate=self._rate,
            rate_note=None if self._rate is None else "from the video",
            notes=study.notes,
            missing=self._missing(),
            unreadable=Unreadable(
                count=len(unreadable),
                frames=tuple(sorted(unreadable)[:_MOST_LISTED]),
                reasons=dict(Counter(unreadable.values()).most_common(20)),
            ),
            redundant=self._redundant(),
            model=ModelFacts(
                backbone=reader.record.backbone.name,
                hash=reader.record.weights_hash[:16],
                trained_on=reader.record.training,
                results=reader.record.results,
                calibrated=reader.calibration is not None,
                split=reader.record.split_hash,
            ),
            runtime=RuntimeFacts(
                name=None if self.embeddings is None else self.embeddings.key.runtime,
                why=reader.runtime_reason or None,
                tta=reader.options.tta,
            ),
            preset=reader.options.preset,
            options=reader.decoding,
            frame_calibration=reader.frame_calibration,
            thresholds=decision_thresholds(reader.decoding, reader.calibration or Calibration()),
            scaling=None if scores is None else scaling_note(scores),
            versions=package_versions(*_PACKAGES),
            timings=dict(self.timings),
        )

    def _missing(self) -> MissingEnd | None:
        missing = self.study.missing
        if missing is None:
            return None
        seconds = None if missing.seconds is None else round(missing.seconds, 3)
        return MissingEnd(frames=missing.frames, seconds=seconds, sentence=missing.sentence)

    def _redundant(self) -> Redundant | None:
        limit, embeddings, effect = self.reader.options.redundancy, self.embeddings, self.effect
        if limit is None or embeddings is None:
            return None
        return Redundant(
            count=embeddings.redundant,
            share=round(embeddings.redundant / len(embeddings), 4),
            limit=limit,
            probed=0 if effect is None else effect.frames,
            mean_difference=None if effect is None else round(effect.mean, 6),
            largest_difference=None if effect is None else round(effect.largest, 6),
        )


def _claim_folder(folder: Path, study: str) -> None:
    """Create the folder, or check that it holds an earlier reading of the same study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"'{folder.name}' is a file", "give a folder for the reading")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"cannot create folder '{folder.name}' ({error.strerror})",
            "give a path that you may write to",
        ) from error
    record = RunRecord.load(folder)
    if record is not None and record.study != study:
        raise StudyError(
            f"'{folder.name}' holds the reading of study {record.study}, not of {study}",
            "give another folder",
        )


def write_joint_submission(readings: Sequence[Reading], out: Path) -> Path:
    """Write the official file of several readings."""
    path = out / SUBMISSION
    write_submission(path, [reading.annotation for reading in readings])
    return path


def studies_under(path: Path) -> list[tuple[str, Path]]:
    """(id, path) of each study: the path itself, or those of a root that holds several."""
    if not path.is_dir():
        return [(path.stem, path)]
    if any(is_image_name(entry.name) for entry in path.iterdir()):
        return [(path.resolve().name, path)]
    entries = find_studies(path).values()
    studies = [(entry.id, entry.images) for entry in entries if entry.images is not None]
    if not studies:
        raise StudyError(
            f"'{path.name}' holds neither frames nor videos",
            "give a folder of PNG or JPEG frames, a video, or a folder with several of them",
        )
    return studies
