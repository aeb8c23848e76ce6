"""What a study says about itself: `study.json` in a folder of frames, a comment in a video.

Only the study's own files are read, never those around it: a study that is copied elsewhere keeps
its metadata, and a study that lies beside others gets none of theirs.
"""

from pathlib import Path

from pydantic import Field

from enteron.errors import ConfigError, StudyError
from enteron.options import Options, parse_json_options

METADATA_FILE = "study.json"
COMMENT_PREFIX = "enteron:"
"""Start of a video's comment tag that holds metadata. Any other comment is the recorder's."""


class StudyMetadata(Options):
    """Facts about a study that its frames do not show."""

    frames_per_row: float | None = Field(default=None, gt=0)
    """Original frames that one stored frame stands for, in a synthetic study that is shorter than
    the transit it shows. None for a real study."""

    def to_json(self) -> str:
        return self.model_dump_json(exclude_none=True)

    def to_comment(self) -> str:
        """The metadata as the comment tag of a video."""
        return COMMENT_PREFIX + self.to_json()


def read_folder_metadata(folder: Path, study_id: str) -> StudyMetadata:
    """The metadata in a folder of frames; empty where there is no such file."""
    try:
        text = (folder / METADATA_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return StudyMetadata()
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(
            f"{METADATA_FILE} of study {study_id} cannot be read ({error})",
            "correct the file, or remove it",
        ) from error
    return _parse(text, f"{METADATA_FILE} of study {study_id}")


def read_comment_metadata(comment: str | None, study_id: str) -> StudyMetadata:
    """The metadata in a video's comment tag; empty where the comment is not ours."""
    if comment is None or not comment.startswith(COMMENT_PREFIX):
        return StudyMetadata()
    text = comment.removeprefix(COMMENT_PREFIX)
    return _parse(text, f"the comment in the video of study {study_id}")


def _parse(text: str, source: str) -> StudyMetadata:
    remedy = "correct it, or remove it"
    try:
        return parse_json_options(StudyMetadata, text, source, remedy)
    except ConfigError as error:
        raise StudyError(error.problem, error.remedy) from error
