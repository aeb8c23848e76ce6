"""Reviewed events as JSON and CSV."""

import csv
import io
from importlib.metadata import version
from typing import Any, Final

from enteron.decoding.events import DecodedEvent
from enteron.files import json_text
from enteron.folders.reading import event_times
from enteron.review.cest import TERMS
from enteron.review.exports.reviewed import Reviewed, event_rows_of
from enteron.review.state import ReviewEvent
from enteron.review.summary import NOTICE

COLUMNS: Final[tuple[str, ...]] = (
    "study",
    "id",
    "label",
    "cest",
    "start",
    "stop",
    "start_time",
    "stop_time",
    "decision",
    "origin",
    "machine_label",
    "machine_start",
    "machine_stop",
    "score",
    "region",
    "transit_share",
    "tertile",
    "saurin",
    "reason",
    "by",
    "at",
    "notice",
)


def review_json(study: Reviewed) -> bytes:
    """Everything that was decided, with what follows from it."""
    state = study.state
    content: dict[str, Any] = {
        "notice": NOTICE,
        "made_by": f"enteron {version('enteron')}",
        "study": study.study,
        "status": state.status,
        "unit": str(state.unit),
        "reading": state.reading,
        "record": str(study.head),
        "signatures": [s.model_dump(mode="json") for s in state.signatures],
        "events": [_row(event, study) for event in event_rows_of(list(state.events.values()))],
        "dismissed": [d.model_dump(mode="json") for d in state.dismissed],
        "landmarks": {n: mark.model_dump(mode="json") for n, mark in state.landmarks.items()},
        "measures": study.summary.measures.table(),
        "scores": {
            name: None
            if score is None
            else {"value": score.value, "parameters": score.model_dump(mode="json")}
            for name, score in (
                ("lewis", state.lewis),
                ("cecdai", state.cecdai),
                ("koda", state.koda),
            )
        },
        "report": state.report,
        "comments": [remark.model_dump(mode="json") for remark in state.comments],
        "viewed": state.viewed,
        "viewed_slowly": state.viewed_slowly,
        "reading_time": {user: spent.model_dump() for user, spent in state.times.items()},
    }
    return (json_text(content, indent=1) + "\n").encode()


def events_csv(study: Reviewed) -> bytes:
    """A row per event, decided or not."""
    text = io.StringIO()
    writer: csv.DictWriter[str] = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for event in event_rows_of(list(study.state.events.values())):
        row = {name: _cell(value) for name, value in _row(event, study).items()}
        writer.writerow({**row, "study": study.study, "notice": NOTICE})
    return text.getvalue().encode()


def _cell(value: object) -> object:
    """A cell of a table; a text that a spreadsheet would take for a formula is quoted."""
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def _row(event: ReviewEvent, study: Reviewed) -> dict[str, Any]:
    found = next((f for f in study.summary.findings if f.id == event.id), None)
    scores = study.reading.scores
    times = event_times(DecodedEvent(event.start, event.stop, event.label), scores)
    if times is None:
        seconds, end = study.clock.seconds(event.start), study.clock.end_seconds(event.stop)
        times = [None, None] if seconds is None or end is None else [seconds, end]
    term = TERMS.get(event.label)
    said = event.machine
    return {
        "id": event.id,
        "label": event.label,
        "cest": None if term is None else f"{term.heading}: {term.term}",
        "start": event.start,
        "stop": event.stop,
        "start_time": times[0],
        "stop_time": times[1],
        "decision": event.decision,
        "origin": event.origin,
        "machine_label": None if said is None else said.label,
        "machine_start": None if said is None else said.start,
        "machine_stop": None if said is None else said.stop,
        "score": event.score,
        "region": event.region if found is None else found.region,
        "transit_share": None if found is None else found.transit_share,
        "tertile": None if found is None else found.tertile,
        "saurin": event.saurin,
        "reason": event.reason,
        "by": event.by,
        "at": event.at,
    }
