"""The report of a long study: 130,000 frames, several hundred events, with pictures.

Measures the seconds to write it, its size, and in Chromium the frame times while zooming.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._timing import timed
from enteron.decoding.events import DecodedEvent
from enteron.folders.identity import ReadingIdentity, scores_hash
from enteron.folders.reading import RunRecord, write_events
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.priors import load_priors
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import Frame, Study
from enteron.study.study import RGB
from enteron.types import FrameAxis, Scores
from tests.browser import Browser, chromium

PICTURES = 60  # distinct ones, which the study repeats
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=130_000)
    parser.add_argument("--events", type=int, default=400, help="findings")
    parser.add_argument("--keep", type=Path, help="keep the reading in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, arguments.frames, arguments.events)


def measure(folder: Path, frames: int, findings: int) -> None:
    scores, events = simulated_reading(frames, findings)
    columns = {label: scores.values[:, column] for column, label in enumerate(LABELS)}
    pl.DataFrame({"frame": scores.axis.frames, **columns}).write_parquet(folder / "scores.parquet")
    identity = ReadingIdentity(study="bench", scores=scores_hash(scores))
    write_events(folder, scores, events, identity)
    facts = {"study": "bench", "state": "finished", "identity": identity, "rows": frames}
    RunRecord.parse({**facts, "rate": 4.0, "rate_note": "as stated"}).save(folder)
    study = RepeatingStudy(frames)
    choice = choose_pictures(scores, events)
    begin = time.perf_counter()
    saved = save_pictures(study, choice, folder)
    seconds = time.perf_counter() - begin
    print(f"{frames:,} frames, {len(events)} events")
    print(f"pictures   {seconds:6.1f} s   {len(saved.frames)} saved")
    seconds = timed(lambda: write_report(folder), ROUNDS)
    size = (folder / "report.html").stat().st_size / 1e6
    verdict = "within" if seconds <= 20 and size <= 12 else "NOT within"
    print(f"report     {seconds:6.1f} s   {size:.1f} MB   {verdict} 20 s and 12 MB")
    if chromium() is None:
        print("Chromium is not installed: no frame times")
        return
    print_frame_times(folder / "report.html")


def print_frame_times(path: Path) -> None:
    """Print the times between animation frames while the view changes on each of them."""
    with Browser(timeout=120) as browser:
        begin = time.perf_counter()
        tab = browser.open(path)
        print(f"loading    {time.perf_counter() - begin:6.1f} s")
        tab.run("document.getElementById('more-curves').open = true")
        tab.run("document.getElementById('timeline').scrollIntoView({behavior: 'instant'})")
        tab.settle()
        zooming: list[float] = json.loads(tab.run(ZOOMING))
        drawing: list[float] = json.loads(tab.run(DRAWING))
    for name, values in (("frame time", zooming), ("drawing", drawing)):
        median, slow = statistics.median(values), float(np.quantile(values, 0.95))
        print(f"{name:10} {median:6.1f} ms  median, {slow:.1f} ms 95 %, {len(values)} frames")


ZOOMING = """new Promise((done) => {
  const times = []; let last = null, n = 0;
  const step = (now) => {
    if (last !== null) times.push(now - last);
    last = now;
    if (n++ === 240) { timeline.setView(0, 1); done(JSON.stringify(times)); return; }
    timeline.zoomAt(n < 120 ? 1.06 : 1 / 1.06, 0.1 + n / 300);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""

DRAWING = """(() => {
  const times = [];
  for (let n = 0; n < 120; n++) {
    timeline.setView(n / 240, 1 + n / 6);
    const begin = performance.now();
    timeline.draw();
    document.getElementById('tracks').getBoundingClientRect();
    times.push(performance.now() - begin);
  }
  timeline.setView(0, 1);
  return JSON.stringify(times);
})()"""


def simulated_reading(frames: int, findings: int) -> tuple[Scores, list[DecodedEvent]]:
    """Noisy scores with regions and findings, and the events that they were simulated from."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-5, 1.2, (frames, len(LABELS))).astype(np.float32)
    edges = np.array([0, 0.0005, 0.001, 0.08, 0.7, 1.0]) * frames
    events: list[DecodedEvent] = []
    for region, start, stop in zip(
        REGIONS, edges[:-1].astype(int), edges[1:].astype(int), strict=True
    ):
        log_odds[start:stop, COLUMN[region]] += 8
        events.append(DecodedEvent(int(start), int(stop), region, 0.97, region, 0.9, 0.9))
    for start in np.sort(rng.integers(frames // 100, frames - 400, findings)).tolist():
        label = FINDINGS[int(rng.integers(len(FINDINGS)))]
        stop = start + int(rng.lognormal(2.5, 1)) + 1
        log_odds[start:stop, COLUMN[label]] += 7
        score = float(rng.beta(4, 2))
        events.append(DecodedEvent(start, min(stop, frames), label, score, "small intestine"))
    values = (1 / (1 + np.exp(-log_odds))).astype(np.float32)
    return Scores("bench", FrameAxis(np.arange(frames)), values), events


class RepeatingStudy(Study):
    """A long study that repeats a few synthetic pictures."""

    def __init__(self, frames: int) -> None:
        super().__init__("bench", FrameAxis(np.arange(frames)), Fraction(4))
        options = PhantomOptions(frames=PICTURES, seed=5, device="navicam", rarity=0.0)
        film = StudyPlan(1, options, load_priors()).film()
        self._pictures: list[RGB] = [film.frame(row) for row in range(PICTURES)]

    def _stream(self, start: int) -> Iterator[Frame]:
        return (self._fetch(row) for row in range(start, len(self)))

    def _fetch(self, row: int) -> Frame:
        return Frame(row, self._time(row), self._pictures[row % PICTURES])


if __name__ == "__main__":
    main()
