"""Context: the time it takes on the longest study of Galar, and whether blocks change anything."""

import argparse
import resource
import statistics
import time
from pathlib import Path

import numpy as np

from enteron.context import Context
from enteron.folders.scores import read_scores
from enteron.labels import LABELS
from enteron.types import FrameAxis, Scores

ROWS = 161_025  # the longest study
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, help="scores.parquet of a reading of every frame")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    values = rng.random((ROWS, len(LABELS))).astype(np.float32)
    where = np.arange(ROWS, dtype=np.float64)
    context = Context(regions=(0.0,) * 7, landmarks=(0.0,) * 7, findings=(0.0,) + (1.0,) * 6)
    whole = context.refine(values, where)  # compiles the kernels
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        context.refine(values, where)
        seconds.append(time.perf_counter() - start)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{ROWS:,} rows: {statistics.median(seconds):.2f} s, median of {ROUNDS}; ", end="")
    print(f"memory beyond the first run {more / 1024:.0f} MB")
    if options.scores is not None:
        thinned(read_scores(options.scores), context)
    for block in (1000, 4096, 65_536, ROWS):
        difference = np.abs(context.refine(values, where, block) - whole).max()
        print(f"blocks of {block:,} rows: largest difference {difference:.1e}")


def thinned(scores: Scores, context: Context) -> None:
    """How far refined scores move where only every second or fifth frame is there."""
    refined = context.refined(scores)
    for step in (2, 5):
        rows = slice(None, None, step)
        rest = Scores(scores.study, FrameAxis(scores.axis.frames[rows]), scores.values[rows])
        fewer = context.refined(rest)
        shown = np.maximum(fewer, refined[rows]) > 0.1
        difference = np.abs(fewer - refined[rows])[shown]
        print(
            f"every {step} frames of {len(scores.axis):,}: differences where either is above .1, "
            f"95th percentile {np.quantile(difference, 0.95):.4f}, largest {difference.max():.3f}"
        )


if __name__ == "__main__":
    main()
