"""The id that a study gets when none is given: its own name, or one made from its content.

Names of files may be names of patients. A name is kept only where it is an id of a known dataset
(`enteron.ids.is_dataset_id`), or where somebody asks for it.
"""

import os
from pathlib import Path

from enteron.errors import StudyError
from enteron.files import NO_LIMIT, open_file
from enteron.ids import is_dataset_id, neutral_id, require_study_id
from enteron.study.folder import FrameFolder

_SAMPLE = 1 << 16  # bytes that are read at three places of a video


def default_id(path: Path, *, keep_name: bool = False) -> str:
    """The id of the study at a path; the same for the same content, wherever it lies."""
    name = own_name(path)
    if keep_name:
        return require_study_id(name, "the study's name", StudyError)
    return name if is_dataset_id(name) else neutral_id(content_samples(path))


def own_name(path: Path) -> str:
    """The name of a study that lies at a path."""
    if path.name in ("", "..") and path.is_dir():  # Path(".") has no name
        path = path.resolve()
    return study_name(path.name if path.is_dir() else path.stem)


def study_name(name: str) -> str:
    """A study's own name, from that of its folder or file: 'recording_12' is study 12."""
    return name.strip().removeprefix("recording_")


def content_samples(path: Path) -> list[bytes]:
    """Bytes that tell a study from others: frame numbers and three files, or parts of a video.

    To identify a study by all of its content, this is the function to replace.
    """
    if path.is_dir():
        folder = FrameFolder(path, own_name(path), None)
        rows = sorted({0, len(folder) // 2, len(folder) - 1})
        return [folder.numbers.tobytes(), *(folder.file_content(row) for row in rows)]
    remedy = "give a file that you may read"
    with open_file(path, NO_LIMIT, remedy, source=f"'{path.name}'", error=StudyError) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            samples = [size.to_bytes(8)]
            for start in (0, size // 2, max(0, size - _SAMPLE)):
                file.seek(start)
                samples.append(file.read(_SAMPLE))
        except OSError as error:
            raise StudyError(f"'{path.name}' cannot be read ({error.strerror})", remedy) from error
    return samples
