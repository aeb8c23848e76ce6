"""The rows of the catalogue: what a reading folder says, as columns."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from enteron.decoding import DecodedEvent
from enteron.errors import EnteronError
from enteron.fleet.catalogue import COLUMN_NAMES
from enteron.folders.reading import EMBEDDINGS, EVENTS, RUN, RunRecord, read_events_file
from enteron.folders.statistics import read_statistics
from enteron.labels import FINDINGS, REGIONS
from enteron.types import Unit


def study_rows(folder: Path, stamp: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a reading folder, and the rows of its events; damage becomes a row too."""
    row: dict[str, Any] = {"study": folder.name, "folder": folder.name, "stamp": stamp}
    try:
        record = RunRecord.load(folder) or RunRecord()
        row |= _record_columns(folder, record)
        if record.state != "finished":
            stage = record.state or "started"
            return {**row, "state": "unfinished", "reason": f"after the stage '{stage}'"}, []
        stored = read_events_file(folder / EVENTS)
        events = [
            {
                "study": row["study"],
                "folder": folder.name,
                "number": number,
                "label": event.label,
                "start": event.start,
                "stop": event.stop,
                "frames": event.stop - event.start,
                "confidence": event.score,
                "region": event.region,
                "device": row["device"],
                "month": row["month"],
            }
            for number, event in enumerate(stored.events)
        ]
        rate = record.rate if stored.unit is Unit.FRAME else None
        row |= _event_columns(stored.events, rate, cut_off=record.missing is not None)
        row |= _statistics_columns(folder)
    except EnteronError as error:
        return {**row, "state": "damaged", "reason": str(error)}, []
    return {**row, "state": "finished"}, events


def _record_columns(folder: Path, record: RunRecord) -> dict[str, Any]:
    identity = record.identity
    calibration = None if identity is None else identity.calibration
    device = record.settings.get("device")
    return {
        "study": record.study or folder.name,
        "month": _month(folder),
        "device": device if isinstance(device, str) else None,
        "frames": record.rows,
        "unreadable": None if record.unreadable is None else record.unreadable.count,
        "rate": record.rate,
        "cut_off": record.missing is not None,
        "seconds": round(sum(record.timings.values()), 3),
        "preset": record.preset,
        "runtime": None if record.runtime is None else record.runtime.name,
        "model": None if record.model is None else record.model.hash,
        "calibration": None if calibration is None else calibration[:16],
        "version": record.versions.get("enteron"),
    }


def _month(folder: Path) -> str | None:
    """The month in which a study was read: the date of recording is a patient's."""
    for name in (EMBEDDINGS, EVENTS, RUN):
        with suppress(OSError):
            return time.strftime("%Y-%m", time.gmtime((folder / name).stat().st_mtime))
    return None


def _event_columns(
    events: Sequence[DecodedEvent], rate: float | None, *, cut_off: bool
) -> dict[str, Any]:
    columns: dict[str, Any] = {"events": len(events), "complete": False}
    for label, name in COLUMN_NAMES.items():
        confidences = [event.score or 0.0 for event in events if event.label == label]
        columns[name] = max(confidences, default=None)
        columns[f"{name}_events"] = len(confidences)
    for region in REGIONS:
        frames = sum(event.stop - event.start for event in events if event.label == region)
        columns[f"{COLUMN_NAMES[region]}_frames"] = frames
    findings = [event for event in events if event.label in FINDINGS]
    columns["findings"] = len(findings)
    best = max(findings, key=lambda event: event.score or 0.0, default=None)
    columns["finding"] = None if best is None else best.label
    columns["confidence"] = None if best is None else best.score
    entries = {
        region: min((event.start for event in events if event.label == region), default=None)
        for region in REGIONS
    }
    columns["complete"] = entries["colon"] is not None
    if not columns["complete"] and cut_off:
        columns["complete"] = None  # the colon may lie in the end that is missing
    first = min((event.start for event in events), default=0)
    for name, region, following in (
        ("gastric", "stomach", "small intestine"),
        ("small_bowel", "small intestine", "colon"),
    ):
        start, stop = entries[region], entries[following]
        # A recording that begins inside the region does not show how long the stage was.
        if start is not None and stop is not None and first < start < stop:
            columns[f"{name}_frames"] = stop - start
            columns[f"{name}_minutes"] = None if rate is None else (stop - start) / rate / 60
    return columns


def _statistics_columns(folder: Path) -> dict[str, Any]:
    statistics = read_statistics(folder)
    if statistics is None:
        return {}
    means = {f"{COLUMN_NAMES[label]}_mean": value for label, value in statistics.scores.items()}
    return {
        "brightness": statistics.brightness,
        "encoder": statistics.encoder,
        "signature": list(statistics.signature),
        **means,
    }
