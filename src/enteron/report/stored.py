"""A reading as it lies on disk: scores, events, run and pictures, checked against each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from enteron.decode.events import DecodedEvent
from enteron.decode.reading_folder import EventsFile, read_events_file
from enteron.decode.score_file import read_scores
from enteron.errors import EnteronError
from enteron.report.gaps import Gap, gaps_of
from enteron.report.run import RunFacts
from enteron.types import FrameAxis, Scores, Unit

SCORES = "scores.parquet"
MIXED = "the files of two readings were mixed: read one of the studies into a new folder"
REMEDY = "run `enteron read` again, which writes all files of a reading"


@dataclass(frozen=True)
class StoredReading:
    """What `enteron read` left in a folder, as far as the page needs it."""

    folder: Path
    unit: Unit
    scores: Scores
    events: tuple[DecodedEvent, ...]  # in file order; their place is their number on the page
    run: RunFacts

    @property
    def study(self) -> str:
        return self.scores.study

    @cached_property
    def stored_axis(self) -> FrameAxis:
        """All frames of the study, unreadable ones included as far as they are named."""
        bad = () if self.run.unreadable is None else self.run.unreadable.frames
        return FrameAxis(np.union1d(self.scores.axis.frames, np.array(bad, np.int64)))

    @cached_property
    def gaps(self) -> list[Gap]:
        """Stretches of frame numbers that the study does not contain."""
        bad = () if self.run.unreadable is None else self.run.unreadable.frames
        return gaps_of(self.scores.axis, bad, self.run.unnamed)


def load_reading(folder: Path, scores_file: Path | None = None) -> StoredReading:
    """The reading of a folder; files that are missing, damaged or of two studies are refused.

    Scores lie in the folder unless a file is named: `enteron decode` leaves them where they were.
    """
    if not folder.is_dir():
        raise EnteronError(f"'{folder.name}' is not a folder", "give the folder of a reading")
    if not (folder / "events.json").is_file():
        raise EnteronError(f"'{folder.name}' is not a reading: it has no events.json", REMEDY)
    if scores_file is None:
        scores_file = folder / SCORES
        if not scores_file.is_file():
            raise EnteronError(
                f"'{folder.name}' has no {SCORES}", "name the file that was decoded with --scores"
            )
    stored = read_events_file(folder / "events.json")
    run = _run(folder / "run.json")
    scores = _scores(scores_file, stored, run)
    _agree(stored.study, stored.events, scores, run)
    return StoredReading(folder, stored.unit, scores, stored.events, run)


def _scores(path: Path, stored: EventsFile, run: RunFacts) -> Scores:
    """Scores counted as the events are: rows become frames if they did so while decoding."""
    stride = run.stride if stored.unit is Unit.FRAME else None
    read = read_scores(path, None, stride)
    # A file that does not say whose scores it holds goes by its own name.
    if read.scores.study not in (stored.study, path.stem):
        raise EnteronError(
            f"{path.name} holds scores of study {read.scores.study}, events.json events of study "
            f"{stored.study}",
            MIXED,
        )
    if read.unit is not stored.unit:
        raise EnteronError(
            f"{path.name} counts in '{read.unit}', events.json in '{stored.unit}'", MIXED
        )
    times = read.scores.times
    if times is not None and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise EnteronError(
            f"the times in {path.name} have holes or go back", "correct the column or leave it out"
        )
    return replace(read.scores, study=stored.study)


def _run(path: Path) -> RunFacts:
    """`run.json`, or nothing known about the run."""
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return RunFacts()
    except (OSError, ValueError) as error:
        raise EnteronError(f"run.json cannot be read ({error})", REMEDY) from error
    return RunFacts.from_json(table)


def _agree(study: str, events: Sequence[DecodedEvent], scores: Scores, run: RunFacts) -> None:
    """Events, scores and run are of one study, or it is an error."""
    if run.study is not None and run.study != study:
        raise EnteronError(f"events.json is of study {study}, run.json of study {run.study}", MIXED)
    rows = len(scores.axis)
    expected = run.rows if run.scored is None else run.scored
    if expected is not None and expected != rows:
        raise EnteronError(
            f"the scores have {rows} rows where run.json of study {study} has {expected}", MIXED
        )
    first, last = int(scores.axis.frames[0]), int(scores.axis.ends()[-1])
    for event in events:
        if event.start < first or event.stop > last:
            raise EnteronError(
                f"the event '{event.label}' at {event.start} to {event.stop} lies outside the "
                f"scores, which go from {first} to {last}",
                MIXED,
            )


def rows_of(event: DecodedEvent, scores: Scores) -> range:
    """The rows that an event covers: at least one."""
    start, stop = np.searchsorted(scores.axis.frames, (event.start, event.stop))
    row = min(int(start), len(scores.axis) - 1)
    return range(row, max(int(stop), row + 1))
