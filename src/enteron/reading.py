"""From a study and a model to a reading: encode, score, decode, choose pictures, write the page.

Every stage leaves a file and ends by writing `run.json`, so a killed run resumes at the first
unfinished stage and ends with the same files.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, JsonValue

from enteron.appearance import Appearance, Likeness, compare
from enteron.calibration import Calibration, FrameCalibration, with_or_without_context
from enteron.datasets.galar import only_path, read_challenge_file, search_root
from enteron.datasets.submission import write_submission
from enteron.decoding import DecodedEvent, DecodeOptions, decode, preset
from enteron.decoding.options import require_fitted
from enteron.decoding.pipeline import decision_thresholds, event_context, frame_calibration
from enteron.decoding.suspicious import SuspicionOptions
from enteron.errors import ConfigError, EnteronError, StudyError, quantity
from enteron.files import make_folder, make_subfolder
from enteron.folders.identity import ReadingIdentity, decoding_hash, file_hashes, scores_hash
from enteron.folders.label_studio import write_label_studio
from enteron.folders.model import (
    CALIBRATION,
    COARSE,
    CoarseModel,
    calibration_hash,
    decoding_priors,
    default_model,
    load_appearance,
    load_calibration,
    load_coarse,
    open_model,
    read_record,
)
from enteron.folders.reading import (
    EMBEDDINGS,
    EVENTS,
    EVENTS_TABLE,
    LABEL_STUDIO,
    REPORT,
    SCORES,
    SUBMISSION,
    CoarseFacts,
    MissingEnd,
    ModelFacts,
    PlanFacts,
    Reading,
    Redundant,
    RunRecord,
    RuntimeFacts,
    State,
    Unreadable,
    package_versions,
    require_folder_of,
    scaling_note,
    write_events,
)
from enteron.folders.scores import write_scores
from enteron.folders.statistics import STATISTICS, measure_statistics, write_statistics
from enteron.folders.studies_table import (
    STUDIES_TABLE,
    StudyRow,
    study_row,
    write_studies_table,
)
from enteron.folders.suspicious import SUSPICIOUS, suspicious_frames, write_suspicious
from enteron.ids import natural_key, neutral_id
from enteron.inference.accelerator import Accelerator
from enteron.inference.coarse_to_fine import (
    CHUNK,
    CoarseOptions,
    CoarsePolicy,
    is_dense,
    require_dense,
)
from enteron.inference.spacing import NeighbourStep, trained_step
from enteron.inference.views import ViewSet
from enteron.locks import folder_lock
from enteron.options import Options
from enteron.profile import STOPWATCH, Part, Profile, since, timed
from enteron.progress import Progress, SilentProgress
from enteron.report import write_report
from enteron.report.pictures import INDEX, PICTURES, choose_pictures, save_pictures
from enteron.study import Study, open_study
from enteron.study.ignored import Ignored
from enteron.study.naming import default_id, own_name
from enteron.types import Annotation, Scores

if TYPE_CHECKING:
    from enteron.folders.model import ModelRecord
    from enteron.inference.budget import Speed
    from enteron.inference.coarse_to_fine import CoarseEstimate
    from enteron.inference.embed import Embeddings, StudyEmbedding
    from enteron.inference.encoder import Encoder, ImageBatch
    from enteron.inference.score import ProbeEffect
    from enteron.model.preprocessing import Preprocessing

_TRIAL_FRAMES = 4  # frames of the study on which runtimes are compared
_MOST_LISTED = 100  # unreadable frames that run.json lists; all of them are counted
_STAGE_FILES: dict[State, tuple[str, ...]] = {
    "scored": (SCORES,),
    "decoded": (EVENTS, EVENTS_TABLE, SUBMISSION, SUSPICIOUS, STATISTICS, *LABEL_STUDIO),
    "illustrated": (f"{PICTURES}/{INDEX}",),
    "finished": (REPORT,),
}
_PACKAGES = (
    "enteron",
    "onnxruntime",
    "torch",
    "numpy",
    "scipy",
    "polars",
    "opencv-python-headless",
    "av",
)

PresetName = Literal["paper", "gap-merge", "transit", "challenge", "clinical"]


class ReadOptions(Options):
    """How a study is read."""

    preset: PresetName = "transit"
    """How scores become events."""

    decoding: DecodeOptions | None = None
    """Options of the decoder in place of a preset."""

    views: ViewSet = "flip"
    """Mirrored and turned copies of each frame whose scores are averaged; `none` has half of the
    work of `flip`, `flips` twice as much, `d4` four times."""

    neighbour_step: NeighbourStep = "stored"
    """Which frames form a clip: `stored` neighbours (decision 1), or those as far apart as in most
    of the model's training clips, as far as the study offers them."""

    context: bool = True
    """Whether scores are refined by those around them in time, where the calibration does so."""

    runtime: str | None = None
    """Runtime of the encoder: `exact`, `auto` or a name. None: what suits model and machine."""

    accelerator: Accelerator = "auto"
    """`auto`: a CUDA card if there is one. A runtime that is named decides itself."""

    threads: int | None = Field(default=None, ge=1)
    """Threads of the encoder. None: one for every core that the process may use."""

    redundancy: float | None = Field(default=None, ge=0)
    """Frames nearer than this (grey levels) to the last encoded frame take its embedding."""

    coarse: CoarseOptions | None = None
    """Encode some frames, and others where these leave it open what lies between. None: all."""

    mask_text: bool = True
    """Make pictures black outside the field of view, where recorders write, and leave out title
    cards."""

    device: str | None = None
    """Capsule system of the study, if known: a promised recall holds for some only."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Importance of findings in the list of suspicious frames; 1 where a finding is not named."""


def read_settings(options: ReadOptions) -> dict[str, JsonValue]:
    """The options that files of a reading depend on, except those of decoding, for run.json.

    Threads and the processor are not among them: they are the machine's.
    """
    others = {"preset", "decoding", "accelerator", "threads"}
    if options.context:  # as in readings of before there was context
        others.add("context")
    if options.coarse is None:  # as in files of versions before
        others.add("coarse")
    return options.model_dump(mode="json", exclude=others)


def read(
    study: Path | str | Study,
    *,
    model: Path | str | None = None,
    out: Path | str | None = None,
    options: ReadOptions | None = None,
    preset: PresetName | None = None,
    study_id: str | None = None,
    truth: Annotation | None = None,
    progress: Progress | None = None,
) -> Reading:
    """Read one study (a folder of frames, or a video) with a model folder.

    Without `model` the one in the package is used. Files go to `out`, or to `<id>-reading` in the
    current folder. A killed reading resumes when it is called again. `preset` is short for
    `ReadOptions(preset=...)`. Without `study_id` the id is derived from the content of the study,
    unless its name is an id of a known dataset.
    """
    reader = Reader(model, _read_options(options, preset))
    if not isinstance(study, Study):
        study = open_study(study, study_id=study_id)
    elif study_id is not None:
        raise StudyError("the study is open and has an id", "leave out study_id")
    return reader.read(study, out, truth=truth, progress=progress)


def read_all(
    root: Path | str,
    *,
    model: Path | str | None = None,
    out: Path | str | None = None,
    options: ReadOptions | None = None,
    preset: PresetName | None = None,
    keep_names: bool = False,
    progress: Progress | None = None,
) -> list[Reading]:
    """Read every study under a root, one folder each, and write a submission of all of them.

    Without `model` the one in the package is used. A study that cannot be read does not stop the
    others: `StudiesNotReadError` is raised at the end, holds the readings of the others, and no
    submission is written. `keep_names` makes ids of the names of folders and files.
    """
    progress = progress or SilentProgress()
    found = studies_under(Path(root), keep_names=keep_names)
    for sentence in found.ignored.sentences():
        progress.message(f"Ignored: {sentence}.")
    folder = found.default_folder if out is None else Path(out)
    reader = Reader(model, _read_options(options, preset))
    readings: list[Reading] = []
    failures: dict[str, EnteronError] = {}
    make_folder(folder)
    with folder_lock(folder):
        for study, result in read_each(reader, found.studies, folder, {}, progress):
            if isinstance(result, Reading):
                readings.append(result)
            else:
                failures[study.name] = result
        if failures:
            raise StudiesNotReadError(readings, failures)
        write_joint_submission(readings, folder)
    return readings


class StudiesNotReadError(StudyError):
    """Some studies of a root could not be read."""

    def __init__(self, readings: list[Reading], failures: dict[str, EnteronError]) -> None:
        self.readings = readings
        self.failures = failures
        """What is wrong with each study, by the name of its folder or file."""
        total = len(readings) + len(failures)
        reasons = " ".join(f"{name}: {error}" for name, error in failures.items())
        super().__init__(
            f"{len(failures)} of {quantity(total, 'study', 'studies')} "
            f"{'was' if len(failures) == 1 else 'were'} not read, so no {SUBMISSION} of all of "
            f"them was written. {reasons.rstrip('.')}",
            "mend them or move them away, and run again",
        )


def read_each(
    reader: "Reader",
    studies: Sequence["FoundStudy"],
    folder: Path,
    truths: Mapping[str, Annotation],
    progress: Progress,
) -> Iterator[tuple["FoundStudy", "Reading | EnteronError"]]:
    """Read several studies into folders named by their ids; one that fails yields its error."""
    # The joint files stand for all studies: they are there only after a run that read them all.
    for name in (SUBMISSION, STUDIES_TABLE):
        (folder / name).unlink(missing_ok=True)
    for number, study in enumerate(studies, 1):
        progress.message(f"Reading study {number} of {len(studies)}: {study.name}")
        try:
            opened = study.open()
            for sentence in opened.ignored.sentences():
                progress.message(f"Ignored: {sentence}.")
            truth = truths.get(opened.id)
            target = make_subfolder(folder, opened.id)
            result = reader.read(opened, target, truth=truth, progress=progress)
        except EnteronError as error:
            result = error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            result = StudyError(f"the study cannot be read ({reason})", "check its files")
        yield study, result


def _read_options(options: ReadOptions | None, preset: PresetName | None) -> ReadOptions:
    options = ReadOptions() if options is None else options
    return options if preset is None else options.model_copy(update={"preset": preset})


class Reader:
    """A loaded model that reads one study after the other; without a folder, the package's."""

    def __init__(
        self,
        model: Path | str | None = None,
        options: ReadOptions | None = None,
        *,
        minutes: float | None = None,
        profile: bool = False,
    ) -> None:
        """With `minutes` every study is planned to take no longer; `options` that are set stay.

        `profile` measures the machine's peak and adds where time went to run.json.
        """
        self.minutes, self.profile = minutes, profile
        self.plan: PlanFacts | None = None  # of the study that is being read
        self.is_default = model is None
        model = default_model() if model is None else Path(model)
        self.folder = model
        self.options = ReadOptions() if options is None else options
        given = self.options.decoding
        self.decoding: DecodeOptions = preset(self.options.preset) if given is None else given
        read_record(model)  # report what is wrong with the folder before loading the weights
        calibrated = (model / CALIBRATION).exists()
        self.calibration: Calibration | None = None
        if calibrated:
            self.calibration = with_or_without_context(
                load_calibration(model), self.options.context
            )
        self.calibration_hash = calibration_hash(model) if calibrated else None
        self.priors = decoding_priors(self.calibration or Calibration(), model)
        self.appearance: Appearance | None = load_appearance(model)
        # Refuse a preset that was never fitted now, not after hours of encoding.
        require_fitted(self.decoding, self.calibration or Calibration())
        self.model = open_model(model)
        self.record = self.model.record
        _require_spacings(self.options, self.record)
        self.coarse: CoarseModel | None = _coarse_model(self.options, model, self.record)
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
        make_folder(folder)
        progress = progress or SilentProgress()
        with opened, folder_lock(folder):
            reader = self
            if self.minutes is not None:
                reader = self._planned(opened, folder, self.minutes, progress)
            return _ReadingRun(reader, opened, folder, truth, progress).execute()

    def _planned(self, study: Study, folder: Path, minutes: float, progress: Progress) -> "Reader":
        """The reader with the options that a time allows; it says what it is going to do.

        A run that is resumed keeps its plan.
        """
        earlier = RunRecord.load(folder)
        known = None if earlier is None else earlier.plan
        reader = copy(self)
        if known is not None and earlier is not None and earlier.study == study.id:
            plan = known
            coarse = earlier.settings.get("coarse")
            options = None if coarse is None else CoarseOptions.model_validate(coarse)
            progress.message(f"Plan of the run that is resumed: {plan.sentence}.")
        else:
            plan, options = self._make_plan(study, minutes)
            progress.message(f"Plan for {minutes:g} minutes: {plan.sentence}.")
        reader.plan = plan
        changes = {"views": plan.views, "coarse": options, "runtime": plan.runtime}
        reader.options = self.options.model_copy(update=changes)
        reader.coarse = _coarse_model(reader.options, self.folder, self.record)
        return reader

    def _make_plan(self, study: Study, minutes: float) -> tuple[PlanFacts, CoarseOptions | None]:
        """Measure a few frames and choose the most thorough setting that fits."""
        from enteron.inference.budget import SETTINGS, choose_setting, describe

        measured = copy(self)
        if self.options.runtime is None:  # the fastest that sees the same
            measured.options = self.options.model_copy(update={"runtime": "auto"})
        encoder = measured.encoder(study, None)
        self.runtime_reason = measured.runtime_reason
        speed = _measure_speed(study, encoder)
        coarse = self._may_be_coarse(study)
        settings = [setting for setting in SETTINGS if coarse or setting.coarse is None]
        setting, seconds = choose_setting(minutes, len(study), speed, settings)
        sentence = describe(setting, seconds, encoder.runtime)
        plan = PlanFacts(
            minutes=minutes,
            runtime=encoder.runtime,
            views=setting.views,
            stride=setting.stride,
            share=setting.share,
            seconds=round(seconds, 1),
            kept=setting.kept,
            sentence=sentence,
        )
        return plan, setting.coarse

    def _may_be_coarse(self, study: Study) -> bool:
        """Whether this model knows what lies between two frames of such a study."""
        if self.options.runtime == "exact" or not (self.folder / COARSE).exists():
            return False
        estimate = load_coarse(self.folder, self.record).estimate
        return is_dense(estimate, _row_frames(study)) and _fits_context(estimate, self.options)

    def encoder(self, study: Study, earlier_runtime: str | None) -> "Encoder":
        """The encoder that the options ask for; a resumed run keeps the runtime it started with."""
        from enteron.inference.runtimes import choose, default_runtime, make_encoder

        backbone = self.model.backbone
        accelerator = self.options.accelerator
        runtime = self.options.runtime or default_runtime(backbone, accelerator)
        if runtime == "auto" and "auto" not in self._encoders and earlier_runtime is not None:
            runtime, self.runtime_reason = earlier_runtime, "as in the run that is resumed"
        if runtime not in self._encoders and runtime == "auto":
            images = _trial_images(study, backbone.spec.preprocessing)
            choice = choose(
                backbone,
                samples=images,
                accelerator=accelerator,
                threads=self.options.threads,
            )
            self._encoders[runtime], self.runtime_reason = choice.encoder, choice.reason
        elif runtime not in self._encoders:
            threads = self.options.threads
            self._encoders[runtime] = make_encoder(backbone, runtime, threads=threads)
        return self._encoders[runtime]

    def embedding(self, study: Study, folder: Path) -> "StudyEmbedding":
        """The embedding of a study into its reading folder, as `read` computes it."""
        from enteron.inference.embed import EmbedOptions, StudyEmbedding
        from enteron.inference.store import started_key
        from enteron.inference.views import VIEW_SETS

        path = folder / EMBEDDINGS
        earlier = started_key(path)
        encoder = self.encoder(study, earlier and earlier.runtime)
        views = VIEW_SETS[self.options.views]
        if self.coarse is None or self.options.coarse is None:
            options = EmbedOptions(redundancy=self.options.redundancy)
            return StudyEmbedding(study, encoder, path, options, views=views)
        from enteron.inference.coarse_chunks import CoarseReading

        row_frames = _row_frames(study)
        require_dense(self.coarse.estimate, row_frames)
        policy = CoarsePolicy(self.options.coarse, self.coarse.estimate, row_frames)
        step = self.clip_step(study)
        coarse = CoarseReading(policy, self.coarse.glance, self.model.head, step)
        options = EmbedOptions(chunk=CHUNK)
        return StudyEmbedding(study, encoder, path, options, views=views, coarse=coarse)

    def clip_step(self, study: Study) -> int | None:
        """Stored frames between those of a clip, where the training's spacing was asked for."""
        if self.options.neighbour_step == "stored":
            return None
        return trained_step(self.record.spacings, study.axis.step)

    @property
    def frame_calibration(self) -> FrameCalibration | None:
        """The calibration that the decoder applies to scores; None for an uncalibrated model."""
        if self.calibration is None:
            return None
        return frame_calibration(self.decoding, self.calibration)


def _row_frames(study: Study) -> float:
    """Frames of the recording from one stored frame to the next."""
    return float(study.frames_per_row or study.axis.step)


def _require_spacings(options: ReadOptions, record: "ModelRecord") -> None:
    """Refuse spacings of the training where they are unknown, or not to be used."""
    if options.neighbour_step == "stored":
        return
    remedy = "leave out --neighbour-step, to compare stored neighbours"
    if options.preset == "paper" and options.decoding is None:
        raise ConfigError("the preset 'paper' compares stored neighbours (decision 1)", remedy)
    if record.options.frames == 1:
        raise ConfigError("the model looks at single frames, so there are no neighbours", remedy)
    if not record.spacings:
        raise ConfigError(
            "the model does not say how far apart the frames of its training clips were", remedy
        )


_MEASURED_FRAMES = 64  # of the study, in a row: those of a video are decoded in order


def _measure_speed(study: Study, encoder: "Encoder") -> "Speed":
    """Seconds a picture takes, from a stretch in the middle of the study."""
    from itertools import islice

    from enteron.inference.budget import Speed
    from enteron.inference.pictures import prepared_frames, study_fields

    preprocessing = encoder.preprocessing
    fields = study_fields(study, preprocessing)
    count = min(_MEASURED_FRAMES, len(study))
    first = (len(study) - count) // 2
    known = dict(study.unreadable)
    stream = prepared_frames(study, first, preprocessing, fields, stop=first + count)
    frames = list(islice(stream, 1))  # opening, seeking and compiling are not counted
    start = time.perf_counter()
    frames += list(stream)
    picture = (time.perf_counter() - start) / max(count - 1, 1)
    study.unreadable.clear()
    study.unreadable.update(known)
    images = [frame.image for frame in frames if frame.image is not None]
    if not images:
        raise StudyError(
            f"no frame in the middle of study {study.id} can be read", "copy the study again"
        )
    batch = np.stack(images)
    encoder.encode(batch[: encoder.batch])
    start = time.perf_counter()
    for part in range(0, len(batch), encoder.batch):
        encoder.encode(batch[part : part + encoder.batch])
    encode = (time.perf_counter() - start) / len(batch)
    return Speed(picture, encode)


def _coarse_model(options: ReadOptions, model: Path, record: "ModelRecord") -> CoarseModel | None:
    """What lies between two frames, where some are to be left out; contradictions are refused."""
    if options.coarse is None:
        return None
    remedy = "leave out --coarse and --minutes"
    if options.runtime == "exact":
        raise ConfigError("the runtime 'exact' looks at every frame", remedy)
    if options.redundancy is not None:
        raise ConfigError(
            "--coarse already leaves out frames that look like their neighbours",
            "leave out --skip-redundant",
        )
    coarse = load_coarse(model, record)
    if not _fits_context(coarse.estimate, options):
        raise ConfigError(
            "what this model expects between two frames holds for scores with context only",
            f"leave out --no-context, or {remedy}",
        )
    return coarse


def _fits_context(estimate: "CoarseEstimate", options: ReadOptions) -> bool:
    """Whether scores meet the levels as they did in the fit: means move less than single frames."""
    return options.context or estimate.refinement.context is None


def _trial_images(study: Study, preprocessing: "Preprocessing") -> "ImageBatch | None":
    """A few frames spread over the study; None when none of them can be read."""
    from enteron.inference.pictures import prepare_frame, study_fields

    rows = np.linspace(0, len(study) - 1, 2 + _TRIAL_FRAMES).astype(int)[1:-1]
    fields = study_fields(study, preprocessing)
    prepared = [
        prepare_frame(study.frame(int(study.numbers[row])), preprocessing, fields) for row in rows
    ]
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
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of the files of finished stages
    embedding: "StudyEmbedding | None" = None
    embeddings: "Embeddings | None" = None
    scores: Scores | None = None
    effect: "ProbeEffect | None" = None
    likeness: Likeness | None = None
    images: int = 0  # pictures that this run has encoded, every view counted
    began: float = field(default_factory=time.perf_counter)
    before: dict[Part, float] = field(default_factory=STOPWATCH.seconds)

    def execute(self) -> Reading:
        """Run all stages. Whatever an earlier run left is refused before anything is written."""
        from enteron.inference.embed import EmbedTimes

        require_folder_of(self.folder, self.study.id)
        _ = self._trained_step  # refuse a study that does not offer it before hours of encoding
        with self._stage("embed", "embedded"):
            self.embedding = self.reader.embedding(self.study, self.folder)
            self.embedding.check()
            self._save_record("started")
            with self.progress.task("Encoding frames", len(self.study)) as advance:
                times = EmbedTimes()
                self.embeddings = self.embedding.run(advance, times)
                self.images = times.encoded
        with self._stage("score", "scored"):
            self.likeness = self._likeness(self.embeddings)
            self.scores = self._score(self.embeddings)
        with self._stage("decode", "decoded"), timed("decode events"):
            events = self._decode(self.scores)
        with self._stage("pictures", "illustrated"), timed("pictures"):
            self._save_pictures(self.scores, events)
        with self._stage("report", "finished"), timed("page"):  # made from the files alone
            text = not self.reader.options.mask_text
            write_report(self.folder, truth=self.truth, device_text=text, unfinished=True)
        return Reading(self.folder, self.scores, tuple(events), self._record("finished"))

    def _score(self, embeddings: "Embeddings") -> Scores:
        from enteron.inference.score import probe_effect, score_study

        views, step = self.reader.options.views, self._trained_step
        with self.progress.task("Scoring", len(self.study)) as advance:
            scores = score_study(
                self.reader.model.head,
                embeddings,
                views=views,
                step=step,
                times=self.study.times(),
                frames_per_row=self.study.frames_per_row,
                advance=advance,
            )
        write_scores(self.folder / SCORES, scores, self._identity(scores))
        self.effect = probe_effect(
            self.reader.model.head, embeddings, scores, views=views, step=step
        )
        return scores

    def _likeness(self, embeddings: "Embeddings") -> Likeness | None:
        """Whether the study looks like those that the model knows; None where nobody measured."""
        if self.reader.appearance is None:
            return None
        encoder = embeddings.key.backbone
        return compare(self.reader.appearance, embeddings.appearance, encoder)

    @property
    def _trained_step(self) -> int | None:
        """Stored frames between those of a clip, where the training's spacing was asked for."""
        return self.reader.clip_step(self.study)

    def _decode(self, scores: Scores) -> list[DecodedEvent]:
        options = self.reader.decoding
        events = decode(scores, options, self.reader.priors, self.reader.calibration)
        identity = self._identity(scores)
        write_events(self.folder, scores, events, identity, options)
        write_suspicious(
            self.folder,
            scores,
            events,
            self.reader.priors,
            self.reader.calibration,
            embeddings=self.embeddings,
            device=self.reader.options.device,
            options=SuspicionOptions(weights=self.reader.options.weights),
        )
        assert self.embeddings is not None
        statistics = measure_statistics(self.study, scores, self.embeddings)
        write_statistics(self.folder, statistics)
        write_label_studio(
            self.folder,
            scores,
            events,
            rate=self._rate,
            axis=self.study.axis,
            identity=identity,
        )
        return events

    def _save_pictures(self, scores: Scores, events: Sequence[DecodedEvent]) -> None:
        assert self.embedding is not None
        assert self.embeddings is not None
        chosen = choose_pictures(scores, events, suspicious_frames(self.folder))
        mask_text = self.reader.options.mask_text
        content = self.embeddings.content
        with self.progress.task("Choosing pictures", len(chosen.frames)):
            save_pictures(self.study, chosen, self.folder, mask_text=mask_text, content=content)
        if not self.study.random_access:  # the frames of a folder were compared one by one
            self.embedding.require_unchanged()

    @property
    def _rate(self) -> float | None:
        return None if self.study.rate is None else float(self.study.rate)

    @contextmanager
    def _stage(self, name: str, state: State) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings[name] = round(time.perf_counter() - start, 3)
        self.files |= file_hashes(self.folder, _STAGE_FILES.get(state, ()))
        self._save_record(state)

    def _identity(self, scores: Scores | None) -> ReadingIdentity:
        """What the files of this run belong to, as far as it is known."""
        reader, embeddings = self.reader, self.embeddings
        return ReadingIdentity(
            study=self.study.id,
            content=None if embeddings is None else embeddings.record.content,
            model=reader.record.weights_hash,
            calibration=reader.calibration_hash,
            decoding=decoding_hash(reader.decoding, reader.priors),
            scores=None if scores is None else scores_hash(scores),
        )

    def _save_record(self, state: State) -> None:
        self._record(state).save(self.folder)

    def _record(self, state: State) -> RunRecord:
        """What is known of the run so far."""
        reader, study, scores = self.reader, self.study, self.scores
        unreadable = study.unreadable
        return RunRecord(
            study=study.id,
            state=state,
            identity=self._identity(scores),
            files=dict(self.files),
            command=f"enteron read {study.id} {self._how_decoded}",
            rows=len(study),
            scored=None if scores is None else len(scores.axis),
            stride=study.axis.step if scores is None else scores.axis.step,
            gaps=None if scores is None else int(scores.axis.gaps().size),
            rate=self._rate,
            rate_note=None if self._rate is None else "from the video",
            notes=study.notes,
            ignored=tuple(study.ignored.counts()),
            missing=self._missing(),
            unreadable=Unreadable(
                count=len(unreadable),
                frames=tuple(sorted(unreadable)[:_MOST_LISTED]),
                reasons=dict(Counter(unreadable.values()).most_common(20)),
            ),
            redundant=self._redundant(),
            coarse=self._coarse(),
            plan=reader.plan,
            model=ModelFacts(
                name=reader.record.name,
                default=reader.is_default,
                sources=reader.record.sources,
                backbone=reader.record.backbone.name,
                hash=reader.record.weights_hash[:16],
                trained_on=reader.record.training,
                results=reader.record.results,
                unproven=(reader.calibration or Calibration()).unproven,
                calibrated=reader.calibration is not None,
                calibrated_on_training=(reader.calibration or Calibration()).training_studies,
                split=reader.record.split_hash,
            ),
            likeness=self.likeness,
            runtime=RuntimeFacts(
                name=None if self.embeddings is None else self.embeddings.key.runtime,
                why=reader.runtime_reason or None,
                views=reader.options.views,
                neighbour_step=self._trained_step,
            ),
            settings=read_settings(reader.options),
            preset=None if reader.options.decoding is not None else reader.options.preset,
            options=reader.decoding,
            frame_calibration=reader.frame_calibration,
            event_context=event_context(reader.decoding, reader.calibration or Calibration()),
            base_rates=(reader.calibration or Calibration()).rates,
            thresholds=decision_thresholds(reader.decoding, reader.calibration or Calibration()),
            scaling=None if scores is None else scaling_note(scores),
            versions=package_versions(*_PACKAGES),
            timings=dict(self.timings),
            profile=self._profile() if reader.profile and state == "finished" else None,
        )

    def _profile(self) -> Profile:
        """Where the time of this run went."""
        from enteron.inference.peak import gemm_peak, operations
        from enteron.inference.runtimes import usable_threads

        seconds = time.perf_counter() - self.began
        return Profile(
            seconds=round(seconds, 3),
            parts={str(part): spent for part, spent in since(self.before).items()},
            frames=len(self.study),
            images=self.images,
            threads=usable_threads(self.reader.options.threads),
            operations=operations(self.reader.record.backbone.trunk),
            peak=gemm_peak(),
        )

    @property
    def _how_decoded(self) -> str:
        options = self.reader.options
        return f"--preset {options.preset}" if options.decoding is None else "--config FILE"

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

    def _coarse(self) -> CoarseFacts | None:
        options, embeddings = self.reader.options.coarse, self.embeddings
        if options is None or embeddings is None or self.reader.coarse is None:
            return None
        readable = embeddings.source >= 0
        skipped = readable & ~embeddings.encoded
        borders = np.flatnonzero(np.diff(np.concatenate([[False], skipped, [False]])))
        encoded = int(embeddings.encoded.sum())
        return CoarseFacts(
            encoded=encoded,
            skipped=int(skipped.sum()),
            share=round(encoded / max(int(readable.sum()), 1), 4),
            longest=int(np.diff(borders)[::2].max(initial=0)),
            stride=options.stride,
            limit=options.limit,
            missed=embeddings.record.missed,
            studies=self.reader.coarse.estimate.studies,
        )


def write_joint_submission(readings: Sequence[Reading], out: Path) -> Path:
    """Write the official file of several readings, and the table over studies beside it."""
    path = out / SUBMISSION
    write_studies_table(out / STUDIES_TABLE, [reading_row(reading) for reading in readings])
    write_submission(path, [reading.annotation for reading in readings])
    return path


def reading_row(reading: Reading) -> StudyRow:
    """A study in the table over studies."""
    unreadable = 0 if reading.run.unreadable is None else reading.run.unreadable.count
    return study_row(
        reading.annotation,
        frames=reading.run.rows,
        unreadable=unreadable,
        seconds=reading.seconds.values(),
    )


# ---- which studies to read


@dataclass(frozen=True)
class FoundStudy:
    """A study that is to be read."""

    path: Path
    id: str | None  # None where it cannot be opened, which is told when it is read
    frame_list: Path | None = None  # the challenge's CSV of the frames that it asks for

    def open(self) -> Study:
        """Open it; of a folder of frames, those that the challenge's file names."""
        if self.frame_list is None or not self.path.is_dir():
            study = open_study(self.path, study_id=self.id)
            if self.frame_list is not None:
                study.notes += (
                    "the challenge's file beside it names frames of a folder, so it was not used "
                    "for the video",
                )
            return study
        asked = read_challenge_file(self.frame_list).frames
        return open_study(self.path, study_id=self.id, only=asked)

    @property
    def name(self) -> str:
        """The name of its folder or file: for the terminal, never for a file."""
        return self.path.name or self.path.resolve().name


@dataclass(frozen=True)
class FoundStudies:
    """The studies at a path, and what else lies there."""

    studies: tuple[FoundStudy, ...]
    ignored: Ignored

    @property
    def default_folder(self) -> Path:
        """Where readings go unless a folder is given; its name says nothing about a patient."""
        ids = sorted(study.id or "" for study in self.studies)
        if len(ids) == 1:
            return Path(f"{ids[0] or 'study'}-reading")
        digest = neutral_id(study.encode() for study in ids).removeprefix("study-")
        return Path(f"studies-{digest}-reading")


def studies_under(path: Path, *, keep_names: bool = False) -> FoundStudies:
    """The study at a path, or those of a root that holds several.

    An id is the study's own name where that is an id of a known dataset, or with `keep_names`;
    otherwise it is derived from the study's content.
    """
    if not path.is_dir():
        return FoundStudies((_found(path, keep_names),), Ignored())
    files = search_root(path)
    paths = [image for images in files.images.values() for image in images]
    without = sorted(set(files.templates) - set(files.images), key=natural_key)
    if without and paths:
        raise StudyError(
            f"study {without[0]} has a file of the challenge and no frames, so a submission would "
            "lack it",
            "add its folder of frames, or move its CSV file away",
        )
    if not paths:
        listed = "".join(f"; ignored {sentence}" for sentence in files.ignored.sentences())
        raise StudyError(
            f"'{path.name}' holds neither frames nor videos{listed}",
            "give a folder of PNG, JPEG, TIFF or BMP frames, a video, or a folder with several of "
            "them",
        )
    paths.sort(key=lambda study: natural_key(own_name(study)))
    lists = {
        image: frame_list
        for study, images in files.images.items()
        for image in images
        if (frame_list := only_path(files.templates.get(study, []), f"test file of study {study}"))
    }
    studies = tuple(_found(study, keep_names, lists.get(study)) for study in paths)
    path_of: dict[str, Path] = {}
    for study in studies:
        if study.id is None:
            continue
        other = path_of.setdefault(study.id, study.path)
        if other != study.path:
            first, second = (f"'{p.parent.name}/{p.name}'" for p in (other, study.path))
            raise StudyError(f"{first} and {second} are the same study", "keep one of them")
    return FoundStudies(studies, files.ignored)


def _found(path: Path, keep_name: bool, frame_list: Path | None = None) -> FoundStudy:
    if keep_name:
        return FoundStudy(path, default_id(path, keep_name=True), frame_list)
    try:
        return FoundStudy(path, default_id(path), frame_list)
    except StudyError:
        return FoundStudy(path, None, frame_list)
