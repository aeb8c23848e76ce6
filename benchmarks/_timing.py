"""Timing for the benchmarks."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 5


def timed(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median seconds of `rounds` runs."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
