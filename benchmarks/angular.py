"""The angular loss: prototypes of rare labels with and without it, drawn into docs/angular.png.

The toy data are those of tests/training/collapse.py.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from enteron.labels import LABELS
from enteron.training.losses import angular_separation
from tests.training.collapse import COLON, FIRST_FINDING, Run, train_prototypes

FIGURE = Path(__file__).parents[1] / "docs" / "angular.png"
WITHOUT, WITH = "#a31621", "#3a6fd8"
WEIGHT = 0.05  # the paper's


def main() -> None:
    torch.set_num_threads(1)
    runs = {"without": train_prototypes(0.0), f"with {WEIGHT} L_ang": train_prototypes(WEIGHT)}
    print(f"{'':18} {'findings alike':>15} {'to the colon':>13} {'most alike pair':>16}")
    for name, run in runs.items():
        pairs = run.cosines[FIRST_FINDING:, FIRST_FINDING:] - torch.eye(len(LABELS) - FIRST_FINDING)
        colon = run.cosines[FIRST_FINDING:, COLON].mean()
        print(f"{name:18} {run.likeness[-1]:15.3f} {colon:13.3f} {pairs.max():16.3f}")
    same = torch.ones(17, 512)
    print(f"L_ang of orthogonal prototypes {angular_separation(torch.eye(17, 512)):.3f}, ", end="")
    print(f"of identical ones {angular_separation(same):.3f}")
    draw(*runs.values())
    print(f"written: docs/{FIGURE.name}")


def draw(without: Run, with_it: Run) -> None:
    """Mean cosine of findings over the steps, and cosines of all pairs at the end."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, 3, figsize=(12, 4.4), width_ratios=[1.15, 1, 1], layout="constrained"
    )
    for run, colour, name in ((without, WITHOUT, "without"), (with_it, WITH, "with 0.05 L_ang")):
        axes[0].plot(run.likeness, color=colour, linewidth=2)
        middle = len(run.likeness) // 2
        axes[0].annotate(
            name, (middle, run.likeness[middle]), (4, 8), textcoords="offset points", color=colour
        )
    axes[0].set(
        title="Mean cosine of two findings' prototypes", xlabel="training step", ylim=(-0.05, 1)
    )
    axes[0].spines[["top", "right"]].set_visible(False)
    image = None
    for axis, run, name in ((axes[1], without, "Without"), (axes[2], with_it, "With 0.05 L_ang")):
        image = axis.imshow(np.asarray(run.cosines), vmin=-1, vmax=1, cmap="RdBu_r")
        axis.set_title(f"{name}: cosines of all pairs")
        axis.set_xticks(range(17), LABELS, rotation=90, fontsize=7)
        axis.set_yticks(range(17), LABELS, fontsize=7)
    axes[2].set_yticks([])
    assert image is not None
    figure.colorbar(image, ax=axes[2], shrink=0.8)
    figure.savefig(FIGURE, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
