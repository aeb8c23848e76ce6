"""Scores of several studies: a file of scores, a reading, a folder of either."""

from collections.abc import Iterable
from pathlib import Path

from enteron.errors import EnteronError
from enteron.folders.scores import (
    SCORES,
    SUFFIXES,
    find_score_files,
    read_score_metadata,
    read_scores,
)
from enteron.types import Scores


def read_frame_scores(path: Path) -> dict[str, Scores]:
    """Read the scores of one study or several, by study id."""
    if not path.is_dir():
        return _by_study([path])
    if (path / SCORES).is_file():
        return _by_study([path / SCORES])
    inside = list(path.iterdir())
    if any(file.suffix.lower() in SUFFIXES or (file / SCORES).is_file() for file in inside):
        return _by_study(find_score_files(path).values())
    raise EnteronError(
        f"the folder '{path.name}' holds no scores",
        "give a file of scores, the folder of a reading, or a folder of readings or of score files",
    )


def _by_study(files: Iterable[Path]) -> dict[str, Scores]:
    scores: dict[str, Scores] = {}
    for file in files:
        # The scores of a study lie in a file that is named after it, or name it themselves.
        read = read_scores(file, read_score_metadata(file).study or file.stem)
        if read.study in scores:
            raise EnteronError(
                f"there are two files of scores of study {read.study}", "keep one of them"
            )
        scores[read.study] = read
    return scores
