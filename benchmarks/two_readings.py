"""Two readings in one folder at random offsets, 50 times, half of them with one of the two killed.

`enteron bench two_readings [-- --rounds 50 --seed 1 --without-lock --real]`. In every round one
works, or is killed, and the other says why it does not; a last reading then ends with the bytes of
an undisturbed one. `--without-lock` shows what happens without the lock.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.two_readings import FRAMES, SAME, TwoReadings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-lock", action="store_true")
    parser.add_argument("--real", action="store_true", help="encode with a network, not a stub")
    arguments = parser.parse_args()
    outcomes: Counter[str] = Counter()
    failed = 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        game = TwoReadings(Path(name), lock=not arguments.without_lock, real=arguments.real)
        print(f"a study of {FRAMES} frames, read alone in {game.seconds:.1f} s")
        print(f"compared: {', '.join(SAME)}")
        for number in range(arguments.rounds):
            result = game.round(number, arguments.seed)
            outcomes[" + ".join(sorted(o.strip() for o in result.outcomes))] += 1
            failed += bool(result.problems)
            for problem in result.problems:
                print(f"round {number}: {problem.strip()}", flush=True)
    print(f"{arguments.rounds} rounds, {time.perf_counter() - start:.0f} s")
    for outcome, count in outcomes.most_common():
        print(f"{count:4}  {outcome}")
    print(f"rounds with anything wrong, or other bytes at the end: {failed}")


if __name__ == "__main__":
    # The server of processes imports this module by its name, not as `__main__`.
    from benchmarks import two_readings

    two_readings.main()
