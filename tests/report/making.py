"""Reading folders for the tests: a study of drawn frames, its scores, events, run and pictures."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import polars as pl

from enteron.decoding.events import DecodedEvent
from enteron.folders.identity import ReadingIdentity, scores_hash
from enteron.folders.reading import RunRecord, write_events
from enteron.labels import COLUMN, LABELS
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import open_study
from enteron.types import FrameAxis, Scores, Unit

EVENTS = (
    DecodedEvent(0, 20, "mouth", 0.9, "mouth", None, 0.9),
    DecodedEvent(20, 40, "esophagus", 0.8, "esophagus", 0.9, 0.9),
    DecodedEvent(40, 120, "stomach", 0.95, "stomach", 0.9, 0.8),
    DecodedEvent(112, 120, "pylorus", 0.7, "stomach"),
    DecodedEvent(120, 320, "small intestine", 0.99, "small intestine", 0.8, 0.7),
    DecodedEvent(320, 400, "colon", 0.97, "colon", 0.7, None),
    DecodedEvent(150, 161, "blood", 0.91, "small intestine"),
    DecodedEvent(200, 230, "erosion", 0.62, "small intestine"),
    DecodedEvent(350, 351, "polyp", 0.41, "colon"),
)
"""Five regions, one landmark and three findings in 400 frames."""

RUN: dict[str, Any] = {
    "command": "enteron read /patients/Jane_Doe/study --model /models/lite",
    "rate": 2.0,
    "rate_note": "measured",
    "unreadable": {"count": 2, "frames": [5, 77], "reasons": {"the file is empty": 2}},
    "redundant": {"count": 40, "share": 0.1},
    "model": {
        "backbone": "lite",
        "hash": "0123456789abcdef",
        "trained_on": {"studies": 16, "frames": 16000},
        "results": {"macro_ap": 0.5},
        "calibrated": True,
    },
    "runtime": {"name": "onnx", "why": "fastest here", "views": "flip"},
    "preset": "transit",
    "options": {"cut": False},
    "versions": {"enteron": "0"},
    "timings": {"embed": 1.5},
}


def scores_for(
    events: Sequence[DecodedEvent],
    frames: Sequence[int] | np.ndarray = range(400),
    study: str = "s1",
    times: np.ndarray | None = None,
) -> Scores:
    """Scores that are high where an event is, highest in its middle."""
    axis = FrameAxis(np.asarray(frames))
    values = np.random.default_rng(0).uniform(0, 0.1, (len(axis), len(LABELS)))
    for event in events:
        rows = np.flatnonzero((axis.frames >= event.start) & (axis.frames < event.stop))
        bump = 0.75 + 0.2 * np.sin(np.pi * (np.arange(rows.size) + 0.5) / max(rows.size, 1))
        values[rows, COLUMN[event.label]] = bump
    return Scores(study, axis, values.astype(np.float32), times)


def capsule_frame(number: int, size: int = 96) -> np.ndarray:
    """A round picture on black, its tone different from frame to frame."""
    frame = np.zeros((size, size, 3), np.uint8)
    tone = (150 + number * 7 % 90, 90 + number * 5 % 60, 70 + number * 3 % 50)
    cv2.circle(frame, (size // 2, size // 2), round(0.46 * size), tone, -1)
    cv2.circle(frame, (20 + number % (size - 40), size // 2), size // 9, (60, 20, 20), -1)
    # Tissue is nowhere flat; what is flat counts as a title card and is not shown.
    rng = np.random.default_rng(number)
    shade = cv2.resize(rng.uniform(0.6, 1.1, (6, 6)), (size, size), interpolation=cv2.INTER_CUBIC)
    lit = frame * shade[..., None] + rng.normal(0, 6, (size, size, 1))
    return np.where(frame > 0, np.clip(lit, 1, 255), 0).astype(np.uint8)


def write_frames(folder: Path, numbers: Sequence[int] | np.ndarray, size: int = 96) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        bgr = cv2.cvtColor(capsule_frame(int(number), size), cv2.COLOR_RGB2BGR)
        data = cv2.imencode(".png", bgr)[1].tobytes()
        (folder / f"frame_{int(number):06d}.png").write_bytes(data)
    return folder


def write_folder(
    folder: Path,
    events: Sequence[DecodedEvent] = EVENTS,
    scores: Scores | None = None,
    run: dict[str, Any] | None = RUN,
    *,
    pictures: bool = False,
    unit: Unit = Unit.FRAME,
) -> Path:
    """A reading folder as `enteron read` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    scores = scores_for(events) if scores is None else scores
    number = "frame" if unit is Unit.FRAME else "index"
    table: dict[str, Any] = {number: scores.axis.frames}
    table |= {label: scores.column(label) for label in LABELS}
    if scores.times is not None:
        table["time"] = scores.times
    pl.DataFrame(table).write_parquet(folder / "scores.parquet")
    counted = replace(scores, axis=FrameAxis(scores.axis.frames, unit))
    identity = ReadingIdentity(study=scores.study, scores=scores_hash(counted))
    write_events(folder, counted, events, identity)
    if run is not None:
        facts = {"study": scores.study, "rows": len(scores.axis), "identity": identity}
        RunRecord.parse({"state": "finished", **run, **facts}).save(folder)
    if pictures:
        choice = choose_pictures(scores, events)
        frames = write_frames(folder / "frames", scores.axis.frames)
        save_pictures(open_study(frames, study_id=scores.study), choice, folder)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
