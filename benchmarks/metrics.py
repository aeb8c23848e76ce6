"""Speed of the official score: enteron against a literal implementation of its text.

Uses the real event annotation where `../shared` has it, and synthetic events elsewhere.
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
REAL_EVENTS = ROOT.parent / "shared" / "galar" / "events-60.json"
PREDICTED_EVENTS = 20_000


def main() -> None:
    truth = json.loads(REAL_EVENTS.read_text()) if REAL_EVENTS.exists() else synthetic_truth()
    prediction = synthetic_prediction(truth, PREDICTED_EVENTS)
    events = sum(len(video["events"]) for video in truth["videos"])
    source = "real annotation" if REAL_EVENTS.exists() else "synthetic (there is no ../shared)"
    print(f"{len(truth['videos'])} studies, {events} true events: {source}")
    print(f"{PREDICTED_EVENTS} predicted events, tIoU {THRESHOLDS}, medians of {ROUNDS} runs\n")

    texts = json.dumps(truth), json.dumps(prediction)
    annotations = [parse_events(text, Unit.INDEX) for text in texts]

    def score() -> list[float]:
        spans = [flatten(study.segments for study in studies) for studies in annotations]
        return [s.map for s in temporal_scores(spans[0], spans[1], len(annotations[0]))]

    def literal_score() -> list[float]:
        return [temporal_map(truth, prediction, threshold)[0] for threshold in THRESHOLDS]

    seconds, literal_seconds = timed(score), timed(literal_score)
    evaluate_seconds = timed(lambda: summarise(evaluate(annotations[0], annotations[1])))
    command_seconds = timed(lambda: run_command(*texts), rounds=3)
    difference = max(abs(a - b) for a, b in zip(score(), literal_score(), strict=True))
    ratio = literal_seconds / seconds
    print(f"scoring, literal           {1000 * literal_seconds:9.1f} ms")
    print(f"scoring, enteron           {1000 * seconds:9.1f} ms   {ratio:6.1f} times faster")
    print(f"every metric and interval  {1000 * evaluate_seconds:9.1f} ms")
    print(f"enteron evaluate, start-up and files included  {command_seconds:.2f} s")
    print(f"largest difference of the two scores: {difference:.1e}")


def run_command(truth: str, prediction: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth.json").write_text(truth)
        (folder / "prediction.json").write_text(prediction)
        command = [sys.executable, "-m", "enteron", "evaluate", "truth.json", "prediction.json"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def synthetic_truth(studies: int = 60, pieces: int = 280) -> dict[str, Any]:
    """Studies of five regions, cut at every change of label as real truth is."""
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


def synthetic_prediction(truth: dict[str, Any], count: int) -> dict[str, Any]:
    """Copies of true events with moved ends, one in five with another label; as many per study."""
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
