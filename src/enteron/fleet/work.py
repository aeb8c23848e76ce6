"""One study of a fleet: kept if it is read already, else read, or failed with a sentence."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from enteron.calibration import Calibration
from enteron.decoding import preset
from enteron.decoding.options import require_fitted
from enteron.errors import EnteronError, ModelError, StudyError
from enteron.files import make_subfolder
from enteron.fleet import FLEET
from enteron.fleet.ledger import Ledger
from enteron.fleet.remote import local_copy
from enteron.fleet.task import Task
from enteron.folders.identity import decoding_hash
from enteron.folders.model import (
    CALIBRATION,
    calibration_hash,
    decoding_priors,
    load_calibration,
    read_record,
)
from enteron.folders.reading import EMBEDDINGS, RunRecord
from enteron.ids import is_dataset_id
from enteron.inference.store import open_embeddings, read_stamps
from enteron.locks import FolderInUseError, folder_lock
from enteron.options import Options
from enteron.progress import Advance
from enteron.reading import FoundStudy, Reader, ReadOptions, read_settings
from enteron.study import Study
from enteron.study.content import file_stamps, read_content, sampled_hash, stamp_tokens
from enteron.study.naming import default_id, own_name

Status = Literal["read", "kept", "other", "busy", "full", "failed", "lost"]
"""`kept`: a finished reading was there. `other`: one of another model or of other options was.
`busy`: another run works on it. `full`: the disk is. `lost`: the worker ended before the study did.
"""

EXACT_RUNTIMES = frozenset({"torch", "onnx", "openvino", "cuda"})
"""fp32: they differ by rounding only, and any of them serves where no runtime is named."""


class Assignment(Options):
    """How a fleet reads its studies: the same for every worker."""

    model: str
    """Model folder, where the worker is."""
    options: ReadOptions
    out: str
    """Folder of the readings."""
    attempts: int = 2
    """After so many failures a study is quarantined."""
    replace: bool = False
    """Read again what was read with another model or with other options."""
    keep_embeddings: bool = True
    """Whether `embeddings.npy`, most of a reading's size, stays when a reading is finished."""


class Outcome(Options):
    """What became of a study."""

    key: str
    status: Status
    study: str | None = None
    sentence: str | None = None
    """For the terminal of whoever started the run: it may name the study's file."""
    frames: int = 0
    encoded: int = 0
    """Frames that this run encoded; the others were encoded by an earlier one."""
    seconds: float = 0.0
    attempts: int = 0
    quarantined: bool = False


# ---- what is finished


@dataclass(frozen=True)
class ExpectedReading:
    """What a finished reading must have been made of; made from small files, without weights."""

    model: str
    calibration: str | None
    decoding: str
    options: ReadOptions

    @classmethod
    def of(cls, model: Path, options: ReadOptions) -> "ExpectedReading":
        """As `Reader` would make it."""
        record = read_record(model)
        calibrated = (model / CALIBRATION).exists()
        calibration = load_calibration(model) if calibrated else Calibration()
        decoding = options.decoding or preset(options.preset)
        require_fitted(decoding, calibration)  # before any study is opened
        return cls(
            model=record.weights_hash,
            calibration=calibration_hash(model) if calibrated else None,
            decoding=decoding_hash(decoding, decoding_priors(calibration, model)),
            options=options,
        )

    def matches(self, record: RunRecord) -> bool:
        """Whether a reading was made, or begun, with this model and these options."""
        identity = record.identity
        if identity is None or record.combination is not None:
            return False
        made_of = (identity.model, identity.calibration, identity.decoding)
        if made_of != (self.model, self.calibration, self.decoding):
            return False
        expected = read_settings(self.options)
        if {**record.settings, "runtime": None} != {**expected, "runtime": None}:
            return False
        return self._fits_runtime(record)

    def _fits_runtime(self, record: RunRecord) -> bool:
        name = None if record.runtime is None else record.runtime.name
        asked = self.options.runtime
        if name is None or asked == "auto":
            return True  # not yet known, or chosen by trial
        if asked is None:
            return name in EXACT_RUNTIMES
        return name == ("torch" if asked == "exact" else asked)


def is_complete(folder: Path, record: RunRecord) -> bool:
    """Whether the last stage was reached and every file of the run is there."""
    return record.state == "finished" and all((folder / name).is_file() for name in record.files)


def is_of_study(folder: Path, record: RunRecord, study: Study, neutral: bool) -> bool:
    """Whether a reading was made of the files that the study has now.

    `neutral`: the id was derived from the content, and so tells it already.
    """
    assert record.identity is not None
    files = study.files()
    path = folder / EMBEDDINGS
    if not path.is_file():
        if neutral:
            return record.rows == len(study)
        content = read_content(study.numbers, files, per_row=len(files) == len(study) > 0)
        return content.hash == record.identity.content
    now = time.time_ns()
    tokens = stamp_tokens(file_stamps(files), now)
    store = open_embeddings(path, check=False)
    if len(store.frames) != len(study) or not (store.frames == study.numbers).all():
        return False
    if store.content is not None and all(tokens) and read_stamps(path, store.content) == tokens:
        return True
    return store.key.samples == sampled_hash(files)


# ---- reading one study


def open_task(task: Task, study_id: str | None = None) -> Study:
    """Open the study of a task."""
    path = Path(task.path)
    if study_id is None:
        study_id = default_id(path, keep_name=task.keep_name)
    frame_list = None if task.frame_list is None else Path(task.frame_list)
    return FoundStudy(path, study_id, frame_list).open()


class StudyWorker:
    """Reads one study after the other; the model is loaded when the first one needs it."""

    def __init__(
        self, assignment: Assignment, load: Callable[[Path, ReadOptions], Reader] = Reader
    ) -> None:
        self.assignment = assignment
        self._load = load
        self._reader: Reader | None = None
        self._expected = ExpectedReading.of(Path(assignment.model), assignment.options)
        self._ledger = Ledger(Path(assignment.out))

    @property
    def reader(self) -> Reader:
        """The loaded model."""
        if self._reader is None:
            self._reader = self._load(Path(self.assignment.model), self.assignment.options)
        return self._reader

    def work(
        self,
        task: Task,
        on_frames: Advance | None = None,
        prepare: "Callable[[Reader, Study, Path], None] | None" = None,
    ) -> Outcome:
        """Read a study, or say why not. Failures are noted in the ledger.

        `prepare` may compute embeddings in its own way before the study is read.
        """
        start = time.perf_counter()
        progress = _FrameCount(on_frames or (lambda count: None))
        try:
            with self._ledger.claim(task.key):
                outcome = self._claimed(task, progress, prepare)
        except FolderInUseError as error:
            outcome = Outcome(key=task.key, status="busy", sentence=str(error))
        except EnteronError as error:  # of the ledger's own files
            status = "full" if is_full_disk(error) else "failed"
            outcome = Outcome(key=task.key, status=status, sentence=str(error))
        seconds = round(time.perf_counter() - start, 3)
        return outcome.model_copy(update={"seconds": seconds, "encoded": progress.encoded})

    def _claimed(
        self,
        task: Task,
        progress: "_FrameCount",
        prepare: "Callable[[Reader, Study, Path], None] | None",
    ) -> Outcome:
        failure = self._ledger.get(task.key)
        if failure is not None and failure.quarantined:  # by another run, meanwhile
            return Outcome(
                key=task.key,
                status="failed",
                study=failure.study,
                sentence=failure.sentence,
                attempts=failure.attempts,
                quarantined=True,
            )
        study_id: str | None = None
        try:
            study_id = self._ledger.remote_study(task)
            if study_id is not None and self._is_kept(study_id):
                return Outcome(key=task.key, status="kept", study=study_id)
            with local_copy(task) as local:
                study_id = default_id(Path(local.path), keep_name=task.keep_name)
                with open_task(local, study_id) as study:
                    outcome = self._read(local, study, study_id, progress, prepare)
        except FolderInUseError:
            raise
        except Exception as error:
            if is_full_disk(error):
                return Outcome(
                    key=task.key, status="full", study=study_id, sentence=failure_sentence(error)
                )
            return self._failed(task, study_id, failure_sentence(error))
        if outcome.status in ("read", "kept"):
            self._ledger.note_remote(task, study_id)
            self._ledger.forget(task.key)
        return outcome

    def _is_kept(self, study_id: str) -> bool:
        """Whether a study that was not fetched has a finished reading that fits."""
        folder = Path(self.assignment.out) / study_id
        record = RunRecord.load(folder)
        return record is not None and self._expected.matches(record) and is_complete(folder, record)

    def _failed(self, task: Task, study: str | None, sentence: str) -> Outcome:
        failure = self._ledger.add(task, study, sentence, self.assignment.attempts)
        return Outcome(
            key=task.key,
            status="failed",
            study=study,
            sentence=sentence,
            attempts=failure.attempts,
            quarantined=failure.quarantined,
        )

    def _read(
        self,
        task: Task,
        study: Study,
        study_id: str,
        progress: "_FrameCount",
        prepare: "Callable[[Reader, Study, Path], None] | None",
    ) -> Outcome:
        if study_id == FLEET:
            raise StudyError(
                f"'{FLEET}' is the folder of the fleet's own files",
                "rename the study, or leave out --keep-names",
            )
        folder = make_subfolder(Path(self.assignment.out), study_id)
        record = RunRecord.load(folder)
        frames = len(study)
        done = Outcome(key=task.key, status="read", study=study_id, frames=frames)
        if record is not None:
            neutral = not task.keep_name and not is_dataset_id(own_name(Path(task.path)))
            fits = self._expected.matches(record)
            same = fits and (
                record.state != "finished" or is_of_study(folder, record, study, neutral)
            )
            if same and is_complete(folder, record):
                return done.model_copy(update={"status": "kept"})
            if not same and not self.assignment.replace:
                what = "of other files" if fits else "of another model or with other options"
                return done.model_copy(
                    update={
                        "status": "other",
                        "sentence": f"'{folder.name}' holds a reading {what}; give --replace to "
                        "read the study again, or another folder.",
                    }
                )
            if not same:
                self._keep_usable_embeddings(study, folder)
        reader = self.reader
        if prepare is not None:
            with folder_lock(folder):
                prepare(reader, study, folder)
        reader.read(study, folder, progress=progress)
        if not self.assignment.keep_embeddings:
            remove_embeddings(folder)
        return done

    def _keep_usable_embeddings(self, study: Study, folder: Path) -> None:
        """Remove embeddings of a reading that is replaced, unless this model has the same ones."""
        with folder_lock(folder):
            try:
                self.reader.embedding(study, folder).check()
            except ModelError:
                remove_embeddings(folder)


def remove_embeddings(folder: Path) -> None:
    """Remove the embeddings of a reading, finished or not."""
    for path in folder.glob(f"{EMBEDDINGS}*"):
        path.unlink(missing_ok=True)


class _FrameCount:
    """Counts frames as they are encoded: those of an earlier run come in the first call."""

    def __init__(self, on_frames: Advance) -> None:
        self._on_frames = on_frames
        self.encoded = 0

    def message(self, text: str) -> None:
        """Nobody listens."""

    @contextmanager
    def task(self, description: str, total: int, unit: str = "frames") -> Iterator[Advance]:
        """Only the encoding of frames counts."""
        calls = 0

        def advance(count: int) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                self.encoded += count
            self._on_frames(count)

        yield advance if description == "Encoding frames" else (lambda count: None)


# ---- sentences


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full_disk(error: BaseException) -> bool:
    """Whether a full disk, or a used-up quota, is behind an error."""
    seen = 0
    cause: BaseException | None = error
    while cause is not None and seen < 10:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        cause, seen = cause.__cause__ or cause.__context__, seen + 1
    return False


def failure_sentence(error: BaseException) -> str:
    """One sentence for whatever went wrong; of unforeseen errors only the kind is told."""
    if isinstance(error, EnteronError):
        return str(error)
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return str(StudyError(f"the study cannot be read ({reason})", "check its files"))
    if isinstance(error, MemoryError):
        remedy = "use fewer --workers, or a machine with more memory"
        return str(StudyError("the memory was not enough for the study", remedy))
    where = _position(error)
    return str(
        ModelError(
            f"reading failed ({type(error).__name__}{where}), an error in enteron",
            "please report it",
        )
    )


def _position(error: BaseException) -> str:
    """File and line inside enteron where an error was raised; no values."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        parts = Path(code.co_filename).parts
        if "enteron" in parts:
            inside = "/".join(parts[len(parts) - parts[::-1].index("enteron") :])
            place = f" at {inside}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
