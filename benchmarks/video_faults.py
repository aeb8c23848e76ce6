"""Damaged videos: frames under a wrong number, pictures that are not the recorded ones, caution.

Videos whose frames carry their own number are damaged in 200 ways: spans deleted, zeroed,
overwritten, repeated, moved or swapped, bits flipped, files cut off. Each is read as a study, and
every readable frame is compared with the undamaged video. `lost to caution` are frames that FFmpeg
decodes well and the study does not show.

    enteron bench video_faults             200 damaged videos in MP4, MKV, AVI, MPG and TS, and 30
                                           in other containers
    enteron bench video_faults 500 1000    500 of them, from seed 1,000 on
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.study.mutated_videos import (
    BASES,
    LOW_PSNR,
    OTHER_BASES,
    BaseVideo,
    Outcome,
    Picture,
    decoded_pictures,
    examine,
    mutated,
    write_base,
)

MUTATIONS = 200
HANGS = 60.0  # seconds; reading one of these videos takes less than one


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MUTATIONS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("undamaged", flush=True)
        undamaged(folder, (*BASES, *OTHER_BASES))
        print(f"\n{count} damaged videos, seeds {first} to {first + count - 1}", flush=True)
        show(run(folder, BASES, range(first, first + count)))
        others = range(first, first + max(3, count * 3 // 20))
        print(f"\n{len(others)} damaged videos in other containers", flush=True)
        show(run(folder, OTHER_BASES, others))


def undamaged(folder: Path, bases: Sequence[BaseVideo]) -> None:
    """Every frame of an undamaged video is readable under its number."""
    for base in bases:
        path = write_base(folder, base)
        outcome = examine(path, list(decoded_pictures(path)), base.kind, "none", caution=False)
        exact = outcome.readable == base.frames and not outcome.wrong and not outcome.poor
        print(
            f"  {base.name:12} {base.kind:18} {'all exact' if exact else 'NOT EXACT'}", flush=True
        )


def run(folder: Path, bases: Sequence[BaseVideo], seeds: range) -> list[Outcome]:
    originals: dict[str, list[Picture]] = {}
    outcomes: list[Outcome] = []
    by_base = sorted(seeds, key=lambda seed: seed % len(bases))
    for seed in by_base:  # one video after the other: its pictures are held in memory
        base = bases[seed % len(bases)]
        if base.name not in originals:
            originals = {base.name: list(decoded_pictures(folder / base.name))}
        data, mutation = mutated((folder / base.name).read_bytes(), seed)
        path = folder / f"damaged{Path(base.name).suffix}"
        path.write_bytes(data)
        start = time.perf_counter()
        outcome = examine(path, originals[base.name], base.kind, f"seed {seed}: {mutation}")
        if time.perf_counter() - start > HANGS:
            outcome.failure = outcome.failure or f"took longer than {HANGS:g} s"
        outcomes.append(outcome)
    return outcomes


def show(outcomes: Sequence[Outcome]) -> None:
    head = (
        "files",
        "frames",
        "readable",
        "unreadable",
        "wrong",
        "poor",
        "poor %",
        "caution",
        "refused",
    )
    print(f"{'':18}" + "".join(f"{name:>11}" for name in head))
    for kind in [*dict.fromkeys(outcome.kind for outcome in outcomes), "all"]:
        rows = [outcome for outcome in outcomes if kind in (outcome.kind, "all")]
        readable = sum(row.readable for row in rows)
        poor = sum(len(row.poor) for row in rows)
        cells = (
            len(rows),
            sum(row.frames for row in rows),
            readable,
            sum(row.unreadable for row in rows),
            sum(len(row.wrong) for row in rows),
            poor,
            f"{100 * poor / max(1, readable):.2f}",
            sum(row.lost for row in rows),
            sum(bool(row.refusal) for row in rows),
        )
        print(f"{kind:18}" + "".join(f"{cell:>11}" for cell in cells))
    recoverable = sum(row.recoverable for row in outcomes if not row.refusal)
    lost = sum(row.lost for row in outcomes if not row.refusal)
    print(
        f"wrong: readable under another number; poor: readable below {LOW_PSNR:g} dB; caution: "
        f"frames that decode well and were not shown, {100 * lost / max(1, recoverable):.1f} % of "
        f"those in videos that were not refused"
    )
    cut = sum(bool(row.missing) for row in outcomes)
    print(
        f"told to be cut off: {cut}; other exceptions or hangs: "
        f"{sum(bool(row.failure) for row in outcomes)}"
    )
    refusals = Counter(row.refusal.split(" (")[0].split(";")[0] for row in outcomes if row.refusal)
    for sentence, times in refusals.most_common():
        print(f"  refused {times:3}: {sentence}")
    for row in outcomes:
        if row.failure or row.wrong:
            print(f"  {row.kind}, {row.mutation}: {row.failure or row.wrong[:5]}")


if __name__ == "__main__":
    main()
