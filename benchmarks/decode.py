"""Speed of decoding: a study of the test set's size, against the paper's loops.

161,025 rows x 17 labels, the frames of the three test studies, with simulated scores.
"""

import argparse
import time

import numpy as np

from benchmarks._simulation import simulate
from benchmarks._timing import timed
from enteron.calibration import unfitted_thresholds
from enteron.decoding import PRESETS, decode
from enteron.decoding.evidence import base_rates
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores
from tests.literal import decoding as literal

ROWS = 161_025
LENGTHS = (60, 90, 8_000, 92_875, 60_000)
ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-loops", action="store_true", help="skip the slow loops")
    arguments = parser.parse_args()
    priors = load_priors()
    scores = simulated_study()
    print(f"{ROWS:,} rows x {len(LABELS)} labels, medians of {ROUNDS} warm runs\n")
    seconds: dict[str, float] = {}
    for name, limit in (("paper", 0.5), ("transit", 1.0)):
        events = decode(scores, PRESETS[name], priors)
        seconds[name] = timed(lambda name=name: decode(scores, PRESETS[name], priors), ROUNDS)
        verdict = "within" if seconds[name] <= limit else "NOT within"
        print(f"{name:8} {seconds[name]:6.3f} s   {verdict} {limit} s   {len(events)} events")
    if arguments.no_loops:
        return
    columns = {label: scores.column(label).tolist() for label in LABELS}
    shares = priors.given_region.shares
    begin = time.perf_counter()
    loop_events = literal.decode(columns, unfitted_thresholds(), shares)
    loops = time.perf_counter() - begin
    events = {(e.label, e.start, e.stop) for e in decode(scores, PRESETS["paper"], priors)}
    print(f"loops    {loops:6.1f} s   one run, the paper's text frame by frame")
    print(f"paper is {loops / seconds['paper']:.0f} times as fast, with ", end="")
    print("the same events" if events == set(loop_events) else "OTHER EVENTS")


def simulated_study() -> Scores:
    """Five regions, and findings of 30 rows every 2,000."""
    truth = np.zeros((ROWS, len(LABELS)), dtype=bool)
    truth[np.arange(ROWS), np.repeat(np.arange(len(REGIONS)), LENGTHS)] = True
    for index, label in enumerate(FINDINGS):
        for start in range(10_000 + 200 * index, ROWS - 100, 2_000):
            truth[start : start + 30, COLUMN[label]] = True
    values = simulate(truth, 1, base_rates(load_priors()), 0)
    return Scores("bench", FrameAxis(np.arange(ROWS)), values)


if __name__ == "__main__":
    main()
