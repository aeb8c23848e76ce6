"""What failed: attempts and quarantine, one small file per study, and claims.

A study that was read has no record here: its reading folder says that it is finished. Whoever works
on a study holds its claim, so that two runs over one folder share the work. Claims are locks that
vanish with their process (`enteron.locks`).
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import Field

from enteron.errors import ConfigError, EnteronError
from enteron.files import RECORD_LIMIT, make_folder, read_text, write_text
from enteron.fleet import FLEET
from enteron.fleet.task import Task, study_stamp
from enteron.locks import file_lock
from enteron.options import Options, parse_json_options

_FAILURES = "failures"
_CLAIMS = "claims"
_REMOTE = "remote"


class Failure(Options):
    """A study that could not be read, so far."""

    key: str
    study: str | None = None
    """Its id, where it could be opened."""
    attempts: int = Field(ge=1)
    quarantined: bool = False
    """Not tried again until somebody asks for it, or until its files change."""
    sentence: str
    """What is wrong and what to do about it; without names of files or folders."""
    at: str
    """When it failed last: date and time, UTC."""
    stamp: str | None = None
    """Hash of the sizes and times of its files."""

    @property
    def label(self) -> str:
        """How lists name it."""
        return self.study or f"unread-{self.key[:8]}"


class Ledger:
    """The failures in a folder of readings."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FLEET / _FAILURES
        self._claims = out / FLEET / _CLAIMS
        self._remote = out / FLEET / _REMOTE
        make_folder(self._folder)
        make_folder(self._claims)

    @contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """Hold the claim of a study; `FolderInUseError` when another run holds it."""
        path = self._claims / f"{key}.lock"
        with file_lock(path, "this study"):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)  # while it is held: the next one notices

    def get(self, key: str) -> Failure | None:
        """The failure of a study; None where it did not fail. A damaged record counts as none."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            text = read_text(path, RECORD_LIMIT, "delete it")
            return parse_json_options(Failure, text, path.name, "delete it")
        except (ConfigError, EnteronError):
            return None

    def all(self) -> list[Failure]:
        """Every failure, by key."""
        keys = sorted(path.stem for path in self._folder.glob("*.json"))
        return [failure for key in keys if (failure := self.get(key)) is not None]

    def add(self, task: Task, study: str | None, sentence: str, limit: int) -> Failure:
        """Note an attempt that failed; at the limit the study is quarantined."""
        before = self.get(task.key)
        attempts = 1 if before is None else before.attempts + 1
        failure = Failure(
            key=task.key,
            study=study or (None if before is None else before.study),
            attempts=attempts,
            quarantined=attempts >= limit,
            sentence=without_names(sentence, Path(task.path)),
            at=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
            stamp=_stamp(task),
        )
        write_text(self._path(task.key), failure.model_dump_json(indent=1) + "\n")
        return failure

    def note_remote(self, task: Task, study: str) -> None:
        """Note which reading belongs to a study at a URL, so that it need not be fetched again."""
        if task.stamp is not None:
            make_folder(self._remote)
            write_text(self._remote / task.key, f"{task.stamp} {study}\n")

    def remote_study(self, task: Task) -> str | None:
        """The id of a study at a URL whose listing is still the same; None where unknown."""
        path = self._remote / task.key
        if task.stamp is None or not path.is_file():
            return None
        stamp, _, study = read_text(path, 1000, "delete it").strip().partition(" ")
        return study if stamp == task.stamp else None

    def forget(self, key: str) -> None:
        """Remove the record: the study was read, or is to be tried again."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def is_changed(failure: Failure, task: Task) -> bool:
    """Whether the files of a study are others than when it failed: somebody mended it."""
    return failure.stamp is not None and _stamp(task) != failure.stamp


def _stamp(task: Task) -> str | None:
    if task.is_remote:
        return task.stamp
    with suppress(OSError):
        return study_stamp(Path(task.path))
    return None


# Files that enteron itself writes; any other name in a sentence may be a patient's.
_OWN_FILE = re.compile(
    r"(?:run|events|submission|suspicious|label-studio|calibration|model|study|priors)\.json"
    r"|scores\.parquet|embeddings\.npy(?:\.\w+)?|report\.html|events\.csv|model\.safetensors"
)


def without_names(sentence: str, path: Path) -> str:
    """A sentence without the names of a study's files and folders: those may be patients' names."""
    names = {path.name, path.stem, *path.parts[-4:]} - {"/", ""}
    for name in sorted(names, key=len, reverse=True):
        sentence = sentence.replace(f"'{name}'", "the study")
        if len(name) > 2:
            sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", "the study", sentence)

    def neutral(quoted: re.Match[str]) -> str:
        return quoted[0] if _OWN_FILE.fullmatch(quoted[1]) else "a file"

    return re.sub(r"'([^'\n]+\.\w{1,5})'", neutral, sentence)
