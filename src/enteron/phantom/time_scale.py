"""How far synthetic studies are shortened: written beside them, found again when they are read."""

import json
from collections.abc import Mapping
from pathlib import Path

from enteron.errors import StudyError
from enteron.files import write_text

FILE = "frames_per_row.json"
_LEVELS = 4  # folders above a study's own in which the file is looked for


def write_frames_per_row(root: Path, studies: Mapping[str, float]) -> None:
    """Write, for every study, how many original frames a row stands for."""
    content = {study: round(frames, 3) for study, frames in studies.items()}
    write_text(root / FILE, json.dumps(content, indent=1) + "\n")


def read_frames_per_row(root: Path) -> dict[str, float]:
    """What a root of synthetic studies says; empty for any other root."""
    try:
        content = json.loads((root / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StudyError(f"'{FILE}' cannot be read", "run `enteron phantom` again") from error
    if not isinstance(content, dict) or not all(
        isinstance(frames, int | float) and frames > 0 for frames in content.values()
    ):
        raise StudyError(
            f"'{FILE}' is not a table of studies and numbers", "run `enteron phantom` again"
        )
    return {str(study): float(frames) for study, frames in content.items()}


def frames_per_row_of(path: Path, study: str) -> float | None:
    """Of a study in a folder or a video, if it is a synthetic one within its root."""
    for folder in list(path.resolve().parents)[:_LEVELS]:
        if (folder / FILE).is_file():
            return read_frames_per_row(folder).get(study)
    return None
