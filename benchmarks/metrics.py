"""The official score: ours against a literal implementation of its text, on many studies.

Uses the real event annotation where `../shared` has it, and events made on the spot elsewhere.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import ROUNDS, timed
from enteron.datasets.submission import parse_events
from enteron.labels import LABELS, REGIONS
from enteron.metrics.evaluation import evaluate, summarise
from enteron.metrics.official import THRESHOLDS, flatten, temporal_scores
from enteron.types import Unit
from tests.literal.temporal import temporal_map

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "galar" / "events-60.json"
PREDICTED_EVENTS = 20_000


def main() -> None:
    truth = json.loads(REAL.read_text()) if REAL.exists() else made_truth()
    prediction = made_prediction(truth, PREDICTED_EVENTS)
    events = sum(len(video["events"]) for video in truth["videos"])
    origin = "real annotation" if REAL.exists() else "made on the spot (no ../shared here)"
    print(f"{len(truth['videos'])} studies, {events} true events: {origin}")
    print(f"{PREDICTED_EVENTS} predicted events, tIoU {THRESHOLDS}, medians of {ROUNDS} runs\n")

    texts = json.dumps(truth), json.dumps(prediction)
    ours = [parse_events(text, Unit.INDEX) for text in texts]

    def score() -> list[float]:
        spans = [flatten(a.segments for a in annotations) for annotations in ours]
        return [s.map for s in temporal_scores(spans[0], spans[1], len(ours[0]))]

    def literal() -> list[float]:
        return [temporal_map(truth, prediction, threshold)[0] for threshold in THRESHOLDS]

    fast, slow = timed(score), timed(literal)
    whole = timed(lambda: summarise(evaluate(ours[0], ours[1])))
    command = timed(lambda: run_command(*texts), rounds=3)
    difference = max(abs(a - b) for a, b in zip(score(), literal(), strict=True))
    print(f"scoring, literal           {1000 * slow:9.1f} ms")
    print(f"scoring, enteron           {1000 * fast:9.1f} ms   {slow / fast:6.1f} times faster")
    print(f"every figure and interval  {1000 * whole:9.1f} ms")
    print(f"enteron evaluate, start-up and files included  {command:.2f} s")
    print(f"largest difference of the two scores: {difference:.1e}")


def run_command(truth: str, prediction: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth.json").write_text(truth)
        (folder / "prediction.json").write_text(prediction)
        command = [sys.executable, "-m", "enteron", "evaluate", "truth.json", "prediction.json"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def made_truth(studies: int = 60, pieces: int = 280) -> dict[str, Any]:
    """Studies of five regions, cut by short findings as real truth is."""
    rng = np.random.default_rng(0)
    videos = []
    for study in range(studies):
        edges = np.unique(rng.integers(1, 50_000, size=pieces)).tolist()
        spans = list(zip([0, *edges[:-1]], edges, strict=True))
        events = []
        for number, (start, stop) in enumerate(spans):
            region = REGIONS[number * len(REGIONS) // len(spans)]
            extra = [str(rng.choice(LABELS[8:]))] if number % 2 else []
            events.append({"start": start, "end": stop - 1, "label": [region, *extra]})
        videos.append({"video_id": str(study), "events": events})
    return {"videos": videos}


def made_prediction(truth: dict[str, Any], count: int) -> dict[str, Any]:
    """Shaken copies of the truth's events and inventions, shared out evenly over the studies."""
    rng = np.random.default_rng(1)
    videos = []
    studies = truth["videos"]
    for number, video in enumerate(studies):
        share = count * (number + 1) // len(studies) - count * number // len(studies)
        last = max(event["end"] for event in video["events"])
        events = []
        for choice in rng.integers(len(video["events"]), size=share):
            event = video["events"][choice]
            length = event["end"] - event["start"] + 1
            start, stop = event["start"], event["end"]
            start = max(0, start + int(rng.normal(0, 0.2 * length)))
            stop = max(start, stop + int(rng.normal(0, 0.2 * length)))
            labels = event["label"] if rng.random() < 0.8 else [str(rng.choice(LABELS))]
            events.append({"start": start, "end": min(stop, max(start, last)), "label": labels})
        videos.append({"video_id": video["video_id"], "events": events})
    return {"videos": videos}


if __name__ == "__main__":
    main()
