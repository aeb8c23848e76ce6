"""The study behind a reading: found by its id, and compared with the files that were read.

Frames in files whose digests lie beside the reading are compared one by one, as they are shown;
otherwise, and for a video, all files are read once, and again when they change.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from enteron.errors import EnteronError
from enteron.files import RECORD_LIMIT, make_folder, read_json, write_json
from enteron.folders.reading import EMBEDDINGS, Reading
from enteron.inference.store import open_embeddings
from enteron.serve.catalogue import Catalogue
from enteron.serve.masking import Masking
from enteron.study import Study, open_study
from enteron.study.content import StudyContent, digest, file_stamps, read_content, stamp_tokens

CACHE_FOLDER: Final = ".enteron-serve"


@dataclass(frozen=True)
class Original:
    """A study whose frames are those that were read."""

    study: Study
    masking: Masking
    content: StudyContent | None  # to compare every frame with as it is shown; None: done already


class Memory:
    """What is remembered of a study between runs, in a folder of its own under ROOT."""

    def __init__(self, reading: Reading, root: Path, *, mask_text: bool) -> None:
        identity = reading.run.identity
        content = "" if identity is None else identity.content or ""
        text = f"{reading.study}\n{content}\n{mask_text}"
        self._folder = root / CACHE_FOLDER
        self._name = digest(text.encode()).hex()

    def path(self, suffix: str) -> Path:
        """A file of the study; its folder is made."""
        make_folder(self._folder)
        return self._folder / f"{self._name}.{suffix}"

    def load(self) -> dict[str, object]:
        """What `save` stored; nothing where that is not there or is damaged."""
        path = self._folder / f"{self._name}.json"
        with suppress(EnteronError):
            if path.is_file() and not path.is_symlink():
                record = read_json(path, limit=RECORD_LIMIT)
                return record if isinstance(record, dict) else {}
        return {}

    def save(self, stamps: str, masking: Masking) -> None:
        """Remember files that were compared, and the field of view."""
        with suppress(EnteronError):  # a read-only ROOT: compared again next time
            write_json(self.path("json"), {"stamps": stamps, **masking.to_record()})


def find_original(
    reading: Reading,
    catalogue: Catalogue,
    memory: Memory,
    *,
    mask_text: bool,
    on_check: Callable[[], None],
) -> Original | None:
    """The study of a reading; None where there is none of its id.

    `on_check` is called before files are compared, which takes a while. A study of this id with
    other frames is an error that says so.
    """
    candidates = catalogue.candidates(reading.study)
    problem: EnteronError | None = None
    for path in candidates:
        try:
            study = open_study(path, study_id=reading.study)
            if np.isin(reading.scores.axis.frames, study.numbers).all():
                on_check()
                return _checked(reading, study, memory, mask_text=mask_text)
        except EnteronError as error:
            problem = error
    if not candidates:
        return None
    raise problem or EnteronError(
        "no study of this id has the frames that were read",
        "give the folder of the study that was read with --studies",
    )


def _checked(reading: Reading, study: Study, memory: Memory, *, mask_text: bool) -> Original:
    """Make sure that these are the files that were read, then measure the field of view."""
    identity = reading.run.identity
    stated = None if identity is None else identity.content
    record = memory.load()
    stamps = hashlib.sha256("".join(_tokens(study)).encode()).hexdigest()
    content: StudyContent | None = None
    if stated is not None and record.get("stamps") != stamps:
        content = _stored_content(reading, stated)
        if content is None:
            files = study.files()
            read = read_content(study.numbers, files, per_row=len(files) == len(study))
            if read.hash != stated:
                raise EnteronError(
                    "the frames found are not those that were read",
                    "give the folder of the study that was read with --studies",
                )
    masking = Masking()
    if mask_text:
        masking = Masking.from_record(record) or Masking.of_study(study)
    if content is None:  # everything was compared, now or earlier
        memory.save(stamps if stated is not None else "", masking)
    return Original(study, masking, content)


def _stored_content(reading: Reading, stated: str) -> StudyContent | None:
    """Digests of every frame's file, from the embeddings beside the reading."""
    with suppress(EnteronError, OSError):
        embeddings = open_embeddings(reading.folder / EMBEDDINGS, check=False)
        content = embeddings.content
        if content is not None and content.per_row and content.hash == stated:
            return content
    return None


def _tokens(study: Study) -> list[str]:
    tokens = stamp_tokens(file_stamps(study.files()))
    # A file that was written just now has no token that could be trusted: never equal.
    return [token or os.urandom(8).hex() for token in tokens]
