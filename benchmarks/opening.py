"""Opening a study of 130,000 frames: its folder of frames, and its label file.

The benchmark makes the files itself; frames are empty files, since opening reads no picture.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._timing import ROUNDS, timed
from enteron.datasets.label_table import join_labels, read_label_table, truth_events
from enteron.study import open_study
from enteron.types import Unit
from tests.making import label_rows, write_labels

FRAMES = 130_000


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder = root / "1"
        folder.mkdir()
        for number in np.random.default_rng(0).permutation(FRAMES):
            (folder / f"frame_{5 * number:06d}.PNG").touch()
        runs = [(13, ["stomach"]), (7, ["stomach", "blood"])] * (FRAMES // 20)
        path = write_labels(root / "Labels" / "1.csv", label_rows(*runs), step=5)

        table = read_label_table(path)
        images = open_study(folder).numbers
        print(f"{FRAMES:,} frames and label rows, medians of {ROUNDS} runs")
        steps: dict[str, Callable[[], object]] = {
            "open the folder": lambda: open_study(folder),
            "read the label file": lambda: read_label_table(path),
            "join on frame": lambda: join_labels(table, images),
            "truth events": lambda: truth_events(table, Unit.FRAME),
        }
        for step, work in steps.items():
            print(f"{step:22} {1000 * timed(work):8.1f} ms")
        print(f"coverage of the join   {100 * join_labels(table, images).coverage:.1f} %")


if __name__ == "__main__":
    main()
