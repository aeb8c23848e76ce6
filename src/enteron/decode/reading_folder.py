"""The files of a reading that decoding makes: events for programs, for tables, for the score."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from enteron.decode.challenge import to_annotation
from enteron.decode.events import DecodedEvent
from enteron.errors import EnteronError, LabelError, nearest
from enteron.files import write_text
from enteron.galar.submission import write_submission
from enteron.labels import REGIONS
from enteron.types import Annotation, FrameUnit, Scores, Unit

FIELDS = ("label", "start", "stop", "score", "region", "onset", "end", "times")


def write_reading(
    folder: Path, scores: Scores, unit: Unit, events: Sequence[DecodedEvent], *, cut: bool
) -> None:
    """Write `events.json`, `events.csv` and `submission.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(event, scores) for event in events]
    content = {"study": scores.study, "unit": str(unit), "events": rows}
    write_text(folder / "events.json", _lines(content))
    write_text(folder / "events.csv", _csv(rows))
    # The official file counts frames. Scores that only know rows are written as they are, and
    # the command says so.
    annotation: Annotation[FrameUnit] = to_annotation(scores.study, Unit.FRAME, events, cut=cut)
    write_submission(folder / "submission.json", [annotation])


def write_run(folder: Path, run: dict[str, Any]) -> None:
    """Write `run.json`: what was done, with what."""
    write_text(folder / "run.json", json.dumps(run, indent=1, sort_keys=True) + "\n")


def read_run(folder: Path) -> dict[str, Any] | None:
    """`run.json` of a folder, or nothing where there is none."""
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EnteronError(
            f"run.json in '{folder.name}' cannot be read", "delete it, or give another folder"
        ) from error
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True)
class EventsFile:
    """What `events.json` holds."""

    study: str
    unit: Unit
    events: tuple[DecodedEvent, ...]  # in file order


def read_events_file(path: Path) -> EventsFile:
    """Read `events.json`; whatever is wrong in it is told with the event's number."""
    remedy = "decode the scores again"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EnteronError(f"{path.name} cannot be read ({error})", remedy) from error
    try:
        study, unit, rows = str(content["study"]), Unit(content["unit"]), list(content["events"])
    except (KeyError, TypeError, ValueError) as error:
        raise EnteronError(f"{path.name} has no study, unit and events", remedy) from error
    events = []
    for number, row in enumerate(rows, 1):
        try:
            score, onset, end = (
                None if row.get(name) is None else float(row[name])
                for name in ("score", "onset", "end")
            )
            start, stop = int(row["start"]), int(row["stop"])
            if row.get("region") not in (None, *REGIONS):
                raise LabelError(f"'{row['region']}' is not a region", nearest("", REGIONS))
            event = DecodedEvent(start, stop, row["label"], score, row.get("region"), onset, end)
        except EnteronError as error:
            problem = f"{path.name}, event {number}: {error.problem}"
            raise type(error)(problem, error.remedy) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnteronError(f"event {number} of {path.name} is damaged", remedy) from error
        events.append(event)
    return EventsFile(study, unit, tuple(events))


def _row(event: DecodedEvent, scores: Scores) -> dict[str, Any]:
    values = (
        event.label,
        event.start,
        event.stop,
        *(None if v is None else round(v, 4) for v in (event.score,)),
        event.region,
        *(None if v is None else round(v, 4) for v in (event.onset, event.end)),
        _times(event, scores),
    )
    return dict(zip(FIELDS, values, strict=True))


def _times(event: DecodedEvent, scores: Scores) -> list[float] | None:
    """Seconds of the first row, and of the row that follows the last (or of the last itself)."""
    if scores.times is None:
        return None
    rows = np.searchsorted(scores.axis.frames, (event.start, event.stop))
    return [round(float(scores.times[min(row, len(scores.axis) - 1)]), 3) for row in rows]


def _lines(content: dict[str, Any]) -> str:
    """JSON with an event per line."""
    events = ",\n".join(json.dumps(row) for row in content["events"])
    head = {name: value for name, value in content.items() if name != "events"}
    listed = f"[\n{events}\n]" if events else "[]"
    return json.dumps(head)[:-1] + f', "events": {listed}}}\n'


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    names = [*FIELDS[:-1], "start_time", "stop_time"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        times = row["times"] or ("", "")
        cells = {name: "" if row[name] is None else row[name] for name in FIELDS[:-1]}
        writer.writerow({**cells, "start_time": times[0], "stop_time": times[1]})
    return text.getvalue()
