"""A finished reading with pictures, and a review of it, for the tests of exports and commands."""

from pathlib import Path

import cv2
import numpy as np

from enteron.decoding.events import DecodedEvent
from enteron.folders.identity import ReadingIdentity, scores_hash
from enteron.folders.reading import Reading, RunRecord, load_reading, write_events
from enteron.folders.scores import write_scores
from enteron.labels import COLUMN, LABELS
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.review.actions import (
    Add,
    Confirm,
    ConfirmLandmark,
    EditReport,
    Grade,
    MoveLandmark,
    Reject,
    Relabel,
    SetScore,
    Sign,
    Time,
    Viewed,
)
from enteron.review.scores import Lewis, Saurin, Tertile, Ulcers
from enteron.review.store import ReviewStore, opening
from enteron.study import open_study
from enteron.types import FrameAxis, Scores

FRAMES = 600
# Small bowel from 100 to 500, one frame a second.
EVENTS = (
    DecodedEvent(0, 100, "stomach", 0.95),
    DecodedEvent(100, 500, "small intestine", 0.9, None, 0.8, 0.7),
    DecodedEvent(500, 600, "colon", 0.9, None, 0.6),
    DecodedEvent(120, 130, "ulcer", 0.9, "small intestine"),
    DecodedEvent(200, 210, "angiectasia", 0.8, "small intestine"),
    DecodedEvent(300, 305, "erosion", 0.7, "small intestine"),
    DecodedEvent(350, 360, "polyp", 0.6, "small intestine"),
    DecodedEvent(400, 410, "blood", 0.5, "small intestine"),
    DecodedEvent(450, 460, "erythema", 0.4, "small intestine"),
)


def write_study(root: Path, study: str = "7", seed: int = 0) -> Path:
    """Frames that look like a gut: eight blurred reddish pictures, over and over."""
    random = np.random.default_rng(seed)
    folder = root / study
    folder.mkdir(parents=True)
    y, x = np.mgrid[-1:1:96j, -1:1:96j]
    inside = np.hypot(x, y) < 0.95
    pictures: list[bytes] = []
    for _ in range(8):
        noise = cv2.GaussianBlur(random.normal(0, 60, (96, 96)).astype(np.float32), (0, 0), 4)
        shade = 1 - 0.5 * np.hypot(x - random.uniform(-0.3, 0.3), y)
        image = np.array([60, 85, 165]) * shade[..., None] + noise[..., None] * 3
        image = np.clip(image, 12, 250) * inside[..., None]
        pictures.append(cv2.imencode(".jpg", image.astype(np.uint8))[1].tobytes())
    for number in range(FRAMES):
        (folder / f"frame_{number:06d}.jpg").write_bytes(pictures[number % 8])
    return folder


def write_reading(folder: Path, frames: Path, study: str = "7") -> Reading:
    """What `enteron read` leaves, with scores that the events are made of."""
    folder.mkdir(parents=True)
    values = np.full((FRAMES, len(LABELS)), 0.01, dtype=np.float32)
    for event in EVENTS:
        values[event.start : event.stop, COLUMN[event.label]] = event.score
    scores = Scores(study, FrameAxis(np.arange(FRAMES)), values, np.arange(FRAMES, dtype=float))
    identity = ReadingIdentity(study=study, scores=scores_hash(scores))
    write_scores(folder / "scores.parquet", scores)
    write_events(folder, scores, EVENTS, identity)
    with open_study(frames, study_id=study) as opened:
        save_pictures(opened, choose_pictures(scores, EVENTS), folder)
    RunRecord(study=study, state="finished", identity=identity, rows=FRAMES, rate=1.0).save(folder)
    return load_reading(folder)


ACTIONS = (
    Confirm(event="m3"),
    Confirm(event="m4"),
    Confirm(event="m5"),
    Reject(event="m6", reason="a fold"),
    Reject(event="m7"),
    Relabel(event="m8", label="erosion"),
    Add(label="lymphangioectasis", start=480, stop=490),
    Grade(event="m4", saurin=Saurin.P2),
    ConfirmLandmark(landmark="first gastric image"),
    ConfirmLandmark(landmark="first duodenal image"),
    MoveLandmark(landmark="first caecal image", frame=520),
    SetScore(
        score=Lewis(
            tertiles=(
                Tertile(ulcers=Ulcers(count="single", extent="short", size="under a quarter")),
                Tertile(),
                Tertile(),
            )
        )
    ),
    EditReport(field="conclusion", text="One ulcer, one angiectasia. Grüße."),
    Viewed(intervals=((100, 340),), rate=10),
    Viewed(intervals=((340, 500),), rate=30),
    Time(active=203.5, idle=20),
)


def review(store: ReviewStore, reading: Reading, *, sign: bool = True, user: str = "anna") -> None:
    machine = opening(reading)
    for action in (*ACTIONS, *((Sign(),) if sign else ())):
        version = store.state(reading.study, machine).version
        store.append(reading.study, user, action, expected=version, opening=machine)
