"""Studies: a folder of frames or a video, behind one interface."""

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.files import NO_LIMIT, open_file
from enteron.ids import require_study_id
from enteron.study.folder import FrameFolder
from enteron.study.naming import default_id
from enteron.study.study import Frame, Study

__all__ = ["VIDEO_SUFFIXES", "Frame", "Study", "open_study"]

VIDEO_SUFFIXES = (
    ".mp4", ".m4v", ".mov", ".3gp", ".3g2", ".avi", ".divx", ".mkv", ".webm", ".mpg", ".mpeg",
    ".m2p", ".vob", ".ts", ".m2ts", ".mts", ".m2t", ".wmv", ".asf", ".flv", ".f4v", ".ogv", ".dav",
    ".mxf", ".wtv", ".dcm", ".dicom",
)  # fmt: skip
"""File names that are taken for videos: containers that PyAV reads from a single file; DICOM."""


def open_study(
    path: Path | str,
    *,
    study_id: str | None = None,
    rate: Fraction | None = None,
    keep_name: bool = False,
    only: NDArray[np.int64] | None = None,
) -> Study:
    """Open a folder of frames or a video file as a study.

    Its id is `study_id`, or its name if that is an id of a known dataset or `keep_name` is set.
    Otherwise the id is derived from the content, since names of files may be names of patients.
    `rate` (frames per second) gives the frames of a folder their times; a video states its own.
    `only` are the frames of a folder that are asked for: others are left out and listed as ignored,
    and a note names those that are not there.
    """
    path = Path(path)
    _require_study(path, rate)
    if study_id is None:
        study_id = default_id(path, keep_name=keep_name)
    require_study_id(study_id, kind=StudyError)
    if path.is_dir():
        return FrameFolder(path, study_id, rate, only)
    if only is not None:
        raise StudyError(
            f"'{path.name}' is a video, of which all frames are read",
            "leave out the list of frames",
        )
    if path.suffix.lower() in (".dcm", ".dicom"):
        from enteron.study.dicom import open_dicom

        return open_dicom(path, study_id)
    # Importing PyAV takes a fifth of a second, and a folder of frames does not need it.
    from enteron.study.video import VideoFile

    return VideoFile(path, study_id)


def _require_study(path: Path, rate: Fraction | None) -> None:
    """Refuse what is neither a folder nor a video, by its name."""
    if path.is_dir():
        return
    if not path.exists():
        raise StudyError(
            f"there is no '{path.name}'", "give a folder of frames or a video file that exists"
        )
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise StudyError(
            f"'{path.name}' is neither a folder of frames nor a video",
            "give a folder, or a file ending in " + ", ".join(VIDEO_SUFFIXES),
        )
    _require_video_file(path)
    if rate is not None:
        raise StudyError(
            f"'{path.name}' is a video and has its own times", "leave out the frame rate"
        )


def _require_video_file(path: Path) -> None:
    """Refuse pipes, devices and playlists: FFmpeg would wait for them, or open what they name."""
    remedy = "give the video file itself"
    with open_file(path, NO_LIMIT, remedy, error=StudyError) as file:
        try:
            head = file.read(512)
        except OSError as failure:
            raise StudyError(
                f"'{path.name}' cannot be read from its disk ({(failure.strerror or '').lower()})",
                "check the disk or the connection to it, and copy the video again",
            ) from failure
    # Containers begin with sizes and codes, so with bytes that no text has.
    if head and not any(byte < 9 or 13 < byte < 32 or byte > 126 for byte in head):
        raise StudyError(f"'{path.name}' is a text file, not a video", remedy)
