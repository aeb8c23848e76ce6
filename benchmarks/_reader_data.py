"""Readings for the benchmarks and the pictures of the reader, with scores simulated from labels."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit

from enteron.datasets.galar import find_studies
from enteron.decoding import PRESETS, DecodedEvent, decode
from enteron.folders.identity import ReadingIdentity, scores_hash
from enteron.folders.reading import RunRecord, write_events
from enteron.folders.suspicious import suspicious_frames, write_suspicious
from enteron.labels import COLUMN, LABELS
from enteron.priors import load_priors
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import Study
from enteron.study.content import read_content
from enteron.types import Scores


def simulated_scores(study: str, study_frames: Study, labels: np.ndarray, rate: float) -> Scores:
    """Scores that follow labels, with noise; times at a constant rate."""
    rng = np.random.default_rng(11)
    noise = gaussian_filter1d(rng.normal(0, 5, labels.shape), 4, axis=0)
    log_odds = np.where(labels, 3.4, -4.2) + noise + rng.normal(0, 0.5, labels.shape)
    values = expit(gaussian_filter1d(log_odds, 1.0, axis=0)).astype(np.float32)
    times = np.arange(len(labels)) / rate
    return Scores(study, study_frames.axis, values, times)


def write_reading(
    folder: Path,
    study: Study,
    scores: Scores,
    *,
    events: list[DecodedEvent] | None = None,
    rate: float,
    pictures: bool = True,
    content: bool = True,
) -> Path:
    """A finished reading of a study, as `enteron read` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {label: scores.values[:, column] for label, column in COLUMN.items()}
    table = {"frame": scores.axis.frames, "time": scores.times, **columns}
    pl.DataFrame(table).write_parquet(folder / "scores.parquet")
    decoded = list(decode(scores, PRESETS["transit"])) if events is None else events
    files = study.files()
    per_row = len(files) == len(study)
    found = read_content(study.numbers, files, per_row=per_row) if content else None
    identity = ReadingIdentity(
        study=study.id,
        scores=scores_hash(scores),
        content=None if found is None else found.hash,
    )
    write_events(folder, scores, decoded, identity)
    write_suspicious(folder, scores, decoded, load_priors(), None)
    facts = {
        "study": study.id,
        "state": "finished",
        "identity": identity,
        "rows": len(study),
        "rate": rate,
        "rate_note": "given",
        "model": {"backbone": "simulated", "calibrated": True},
        "notes": ["a synthetic study, with scores simulated from its truth"],
    }
    RunRecord.parse(facts).save(folder)
    if pictures:
        choice = choose_pictures(scores, decoded, suspicious_frames(folder))
        save_pictures(study, choice, folder, content=found)
    return folder


def phantom_labels(root: Path, study: Study) -> np.ndarray:
    """(frames, 17) truth of a study that `enteron phantom` drew."""
    return find_studies(root)[study.id].join(study).values


def link_frames(pictures: list[bytes], folder: Path, count: int) -> Path:
    """A folder of many frames out of a few pictures; hard links, so that it takes little space."""
    folder.mkdir(parents=True, exist_ok=True)
    originals = folder.parent / f".{folder.name}-originals"
    originals.mkdir(exist_ok=True)
    sources: list[str] = []
    for index, content in enumerate(pictures):
        path = originals / f"{index}.jpg"
        path.write_bytes(content)
        sources.append(str(path))
    for number in range(count):
        # File systems allow 65,000 links to a file.
        os.link(sources[number % len(sources)], f"{folder}/frame_{number:06d}.jpg")
    return folder


def transit_labels(count: int, findings: int = 60) -> np.ndarray:
    """(count, 17) labels of a study: regions in their order, and short findings."""
    labels = np.zeros((count, len(LABELS)), bool)
    borders = [0.0, 0.002, 0.004, 0.12, 0.72, 1.0]
    for region, (first, last) in enumerate(pairwise(borders)):
        labels[int(first * count) : int(last * count), region] = True
    rng = np.random.default_rng(5)
    for _ in range(findings):
        start = int(rng.uniform(0.13, 0.95) * count)
        column = int(rng.integers(8, len(LABELS)))
        labels[start : start + int(rng.integers(4, 60)), column] = True
    return labels
