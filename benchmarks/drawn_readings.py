"""Drawn studies read by a model that was trained on other drawn studies, for tables of lesions.

Draws studies, trains `lite`, calibrates it and reads: many short studies of the devices it was
trained on, as many of a device it never saw, and a few at full length. What is there already is
not made again. `guarantee` and `top_frames` make their tables of these readings; the commands are
printed at the end.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Group:
    """Studies that are drawn by one command."""

    name: str
    device: str
    studies: int
    frames: int
    seed: int


# Full length: Galar stores every fifth frame of most studies, some 10,000 rows of a recording.
TRAINING = Group("training", "mixed", 20, 500, 101)
READ = (
    Group("same", "mixed", 40, 300, 102),
    Group("navicam", "navicam", 20, 300, 103),
    Group("long", "olympus", 8, 5_000, 104),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "drawn")
    parser.add_argument("--only", choices=[group.name for group in READ], help="read only these")
    arguments = parser.parse_args()
    out: Path = arguments.out
    model = out / "model"
    if not (model / "calibration.json").exists():
        draw(TRAINING, out)
        enteron("train", out / TRAINING.name, "--out", model, "--preset", "lite", "--resume")
        enteron("calibrate", model, out / TRAINING.name)
    for group in READ:
        if arguments.only in (None, group.name):
            draw(group, out)
            readings = out / f"{group.name}-readings"
            enteron("read", out / group.name, "--model", model, "--out", readings, "--no-tta")
    print(
        f"""
tables of these readings:
enteron bench guarantee -- --readings {out}/same-readings --truth {out}/same \\
    --shifted {out}/navicam-readings --shifted-truth {out}/navicam/truth.json
enteron bench top_frames -- --readings {out}/long-readings --truth {out}/long"""
    )


def draw(group: Group, out: Path) -> None:
    enteron(
        "phantom", out / group.name, "--studies", group.studies, "--frames", group.frames,
        "--seed", group.seed, "--device", group.device,
    )  # fmt: skip


def enteron(*arguments: object) -> None:
    """Run a command and say how long it took."""
    words = [str(argument) for argument in arguments]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "enteron", *words], check=True, stdout=subprocess.DEVNULL)
    print(f"{time.perf_counter() - start:6.0f} s  enteron {' '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
