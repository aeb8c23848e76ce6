"""Twenty readers at once on one record of reviews, and the server killed ten times.

`enteron bench review_load [-- --readers 20 --minutes 10 --kills 10 --pause 1]`. Every reader acts
once a `pause` on average, on four studies. Printed: answers within 150 ms, actions that were
acknowledged and are not in the record, and whether the chain verifies. Waiting depends on what else
the machine does: the CPU that an answer takes, and how long 5 ms of CPU took meanwhile, are printed
beside it.
"""

import argparse
import tempfile
from pathlib import Path

from tests.review.many_readers import make_root, run_load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two actions")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = make_root(Path(name))
        outcome = run_load(
            root,
            readers=arguments.readers,
            seconds=60 * arguments.minutes,
            kills=arguments.kills,
            pause=arguments.pause,
            seed=arguments.seed,
        )
    within = sum(seconds < 0.15 for seconds in outcome.seconds) / max(1, len(outcome.seconds))
    print(f"{arguments.readers} readers, {arguments.minutes:g} minutes, {outcome.kills} kills -9")
    print(f"answers: {len(outcome.seconds):,}, within 150 ms: {within:.1%}")
    for share in (0.5, 0.95, 0.99):
        print(f"  {share:.0%} within {1000 * outcome.percentile(share):.0f} ms")
    each = outcome.server_seconds / max(1, len(outcome.seconds))
    print(f"CPU of the server per answer, its starts included: {1000 * each:.1f} ms")
    if outcome.slowness:
        median = sorted(outcome.slowness)[len(outcome.slowness) // 2]
        print(f"meanwhile 5 ms of CPU took {1000 * median:.0f} ms on this machine (median)")
    print(f"acknowledged actions: {len(outcome.acknowledged):,}, of these lost: {outcome.lost}")
    print(f"rows of the record: {outcome.rows:,}, chain: {outcome.problems or 'verifies'}")
    for answer, count in sorted(outcome.answers.items()):
        print(f"  {answer}: {count:,}")


if __name__ == "__main__":
    main()
