"""Timing for the benchmarks."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 5


def timed(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median seconds of several runs."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
