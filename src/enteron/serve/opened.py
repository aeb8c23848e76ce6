"""One reading as the pages need it: facts as JSON, curves as bytes, pictures on demand."""

import asyncio
import gzip
import threading
from collections import OrderedDict
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from enteron.errors import EnteronError
from enteron.files import json_text
from enteron.folders.reading import Reading, load_reading
from enteron.folders.suspicious import read_suspicious
from enteron.folders.trust import cautions, learnt_from, not_looked_for
from enteron.labels import COLUMN, LABELS, LANDMARKS, REGIONS
from enteron.report.clock import Clock
from enteron.report.page import calibrated_scores
from enteron.report.suspicious import promise_note
from enteron.report.timeline import (
    MOST_GAPS,
    MOST_TICKS,
    frame_runs,
    quantised,
    time_knots,
)
from enteron.review.actions import Open
from enteron.review.store import opening
from enteron.serve.catalogue import Catalogue, Entry
from enteron.serve.pictures import PictureCache, StudyPictures
from enteron.types import longest

MOST_OPEN: Final = 12  # readings in memory; the least recently used one is closed first
MOST_LISTED: Final = 300  # suspicious frames


class OpenedReading:
    """A reading in memory."""

    def __init__(
        self, entry: Entry, catalogue: Catalogue, cache: PictureCache, *, device_text: bool
    ) -> None:
        self.reading: Reading = load_reading(entry.folder)
        self.stamp = entry.finished
        self.clock = Clock.of(self.reading.scores, self.reading.run)
        self.opening: Open = opening(self.reading)
        self.pictures = StudyPictures(self.reading, catalogue, cache, device_text=device_text)
        self.frames = self.reading.stored_axis.frames
        self.turn = asyncio.Lock()  # one batch after the other
        curves = quantised(calibrated_scores(self.reading))
        self._bucket = curves.bucket
        parts = [curves.high] if curves.full else [curves.high, curves.low]
        self.curves: bytes = gzip.compress(b"".join(part.tobytes() for part in parts), 3)
        self.facts: bytes = gzip.compress(json_text(self._facts()).encode(), 3)

    def position(self, frame: int) -> int:
        """The place of a frame on the axis of the page; frames that are not there are refused."""
        position = int(np.searchsorted(self.frames, frame))
        if position == len(self.frames) or self.frames[position] != frame:
            raise EnteronError(f"the study has no frame {frame}", "give one of its frames")
        return position

    def _facts(self) -> dict[str, Any]:
        reading, clock = self.reading, self.clock
        run, axis, stored = reading.run, reading.scores.axis, reading.stored_axis
        listed = read_suspicious(reading.folder, reading.study)
        unreadable = run.unreadable_frames
        return {
            "study": reading.study,
            "word": clock.word,
            # Positions on the page's own axis: every frame of the study, unreadable ones included.
            "frames": {
                "count": len(stored),
                "step": stored.step,
                "runs": frame_runs(stored),
                "first": int(stored.frames[0]),
                "end": int(stored.ends()[-1]),
            },
            "curves": {
                "rows": len(axis),
                "bucket": self._bucket,
                "step": axis.step,
                "first": int(axis.frames[0]),
                "end": clock.end,
                "runs": frame_runs(axis),
                "times": time_knots(clock),
                "word": clock.word,
            },
            "labels": [
                {"label": label, "column": COLUMN[label], "kind": _kind(label)} for label in LABELS
            ],
            "events": [[event.label, event.start, event.stop] for event in reading.events],
            "gaps": longest(list(reading.gaps), MOST_GAPS),
            "unreadable": unreadable[:MOST_TICKS],
            "suspicious": []
            if listed is None
            else [frame.model_dump(mode="json") for frame in listed.frames[:MOST_LISTED]],
            "calibrated": None if listed is None else listed.calibrated,
            "promise": None
            if listed is None or listed.promise is None
            else asdict(promise_note(listed.promise)),
            "cautions": cautions(run),
            "unlike": run.is_unlike,
            "notes": self._notes(),
            "rate": run.rate,
            "rate_assumed": run.rate_assumed,
        }

    def _notes(self) -> list[str]:
        """What whoever reads the study has to know about the reading."""
        run = self.reading.run
        notes = [note[:1].upper() + note[1:] for note in run.notes]
        about = (learnt_from(run.model), not_looked_for(run.model))
        notes += [said for said in about if said is not None]
        if run.training_note is not None:
            notes.append(run.training_note[:1].upper() + run.training_note[1:])
        if run.missing is not None and run.missing.sentence:
            notes.append(run.missing.sentence[:1].upper() + run.missing.sentence[1:])
        if run.is_calibrated is False:
            notes.append("The confidences were not calibrated: they only rank events")
        return [note.rstrip(".") + "." for note in notes]

    def close(self) -> None:
        """End background work."""
        self.pictures.close()


def _kind(label: str) -> str:
    if label in REGIONS:
        return "region"
    return "landmark" if label in LANDMARKS else "finding"


class OpenedReadings:
    """The readings that are in use."""

    def __init__(self, catalogue: Catalogue, *, device_text: bool = False) -> None:
        self._catalogue, self._device_text = catalogue, device_text
        self._cache = PictureCache()
        self._opened: OrderedDict[str, OpenedReading] = OrderedDict()
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}

    def get(self, study: str) -> OpenedReading | None:
        """The reading of a study, opened if it was not; None where there is none."""
        entry = self._catalogue.entry(study)
        if entry is None:
            return None
        with self._lock:
            opened = self._opened.get(study)
            if opened is not None and opened.stamp == entry.finished:
                self._opened.move_to_end(study)
                return opened
            waiting = self._opening.setdefault(study, threading.Lock())
        with waiting:  # two people open one study at once: it is loaded once
            with self._lock:
                opened = self._opened.get(study)
            if opened is not None and opened.stamp == entry.finished:
                return opened
            fresh = OpenedReading(
                entry, self._catalogue, self._cache, device_text=self._device_text
            )
            self._cache.forget(study)
            closed: list[OpenedReading] = [] if opened is None else [opened]
            with self._lock:
                self._opened[study] = fresh
                self._opened.move_to_end(study)
                while len(self._opened) > MOST_OPEN:
                    closed.append(self._opened.popitem(last=False)[1])
            for other in closed:
                threading.Thread(target=other.close, daemon=True).start()
            return fresh

    def close(self) -> None:
        """End all background work."""
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
        for reading in opened:
            reading.close()
