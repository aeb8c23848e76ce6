"""Fitting local evidence: a linear layer over patches, taught by boxes.

Inside a box the finding is present in the patches that the box covers, and absent outside; where a
finding is absent from the whole frame, it is absent from every patch. Everything else is unknown
and has no loss. Videos of one finding count alike, however many frames each has: otherwise the
longest video would decide what the finding looks like.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from enteron.datasets.dataset import Box
from enteron.errors import TrainingError
from enteron.labels import COLUMN, FINDINGS
from enteron.model.patches import GRID, LocalEvidence
from enteron.options import Options
from enteron.types import FrameLabels

_FIRST_FINDING = COLUMN[FINDINGS[0]]


class PatchOptions(Options):
    """How local evidence is fitted."""

    steps: int = Field(default=1500, ge=1)
    """Steps of the optimiser."""
    batch: int = Field(default=64, ge=2)
    """Frames per step: one half with lesions, one half without."""
    rate: float = Field(default=3e-3, gt=0)
    """Largest learning rate; it falls along a cosine."""
    decay: float = Field(default=3e-2, ge=0)
    """Weight decay."""
    covered: float = Field(default=0.25, gt=0, le=1)
    """A patch shows a finding if a box covers more than this share of it; patches that are covered
    less, but not free, are unknown."""
    positive_weight: float = Field(default=8.0, gt=0)
    """Weight of a patch with a lesion; one without counts 1."""
    seed: int = 0
    """Of the order of the frames."""


@dataclass(frozen=True, eq=False)
class PatchSamples:
    """Frames with the maps of a backbone, what is known of them, and where lesions lie."""

    maps: NDArray[np.floating]  # (n, 472, 7, 7), in memory or memory-mapped
    labels: FrameLabels  # of these frames
    cells: NDArray[np.float32]  # (n, 9, 49) share of each patch that boxes of a finding cover
    study: NDArray[np.int64]  # (n,) which study a frame belongs to

    def __getitem__(self, rows: NDArray[np.int64]) -> "PatchSamples":
        return PatchSamples(self.maps[rows], self.labels[rows], self.cells[rows], self.study[rows])

    def __len__(self) -> int:
        return len(self.study)

    @property
    def present(self) -> NDArray[np.bool_]:
        """(n, 9) findings that a frame shows."""
        return self.labels.present[:, _FIRST_FINDING:]

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n, 9) findings that are present or absent."""
        return self.labels.known[:, _FIRST_FINDING:]


def covered_cells(
    boxes: Sequence[Box], frames: NDArray[np.int64], sizes: Mapping[int, tuple[int, int]]
) -> NDArray[np.float32]:
    """(frames, 9, 49) share of every patch that a box of each finding covers.

    `sizes` has the width and height of every frame that has a box. Boxes of other things than the
    nine findings are left out.
    """
    cells = np.zeros((len(frames), len(FINDINGS), GRID, GRID), np.float32)
    edges = np.arange(GRID)
    for box in boxes:
        if box.label not in FINDINGS:
            continue
        row = int(np.searchsorted(frames, box.frame))
        if row == len(frames) or frames[row] != box.frame:
            continue
        width, height = sizes[box.frame]
        across = _overlap(box.x1 * GRID / width, box.x2 * GRID / width, edges)
        down = _overlap(box.y1 * GRID / height, box.y2 * GRID / height, edges)
        cell = cells[row, FINDINGS.index(box.label)]
        np.maximum(cell, down[:, None] * across[None, :], out=cell)
    return cells.reshape(len(frames), len(FINDINGS), GRID * GRID)


def _overlap(start: float, stop: float, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of each unit cell [edge, edge + 1) that [start, stop) covers."""
    return np.clip(np.minimum(stop, edges + 1) - np.maximum(start, edges), 0.0, 1.0)


def fit_local_evidence(
    samples: PatchSamples,
    options: PatchOptions | None = None,
    *,
    evidence: LocalEvidence | None = None,
    advance: Callable[[int], None] | None = None,
) -> LocalEvidence:
    """Fit the layer; findings without a single box learn only that they are absent.

    `evidence` is a layer to start from, with other descriptions than the usual ones.
    """
    options = PatchOptions() if options is None else options
    evidence = LocalEvidence() if evidence is None else evidence
    advance = advance or (lambda count: None)
    lesions, normals = _draw_weights(samples)
    generator = torch.Generator().manual_seed(options.seed)
    evidence.standardise_by(_some_maps(samples))
    optimiser = torch.optim.AdamW(
        evidence.parameters(), lr=options.rate, weight_decay=options.decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.steps)
    half = options.batch // 2
    for _ in range(options.steps):
        drawn = [
            torch.multinomial(weights, half, replacement=True, generator=generator)
            for weights in (lesions, normals)
        ]
        rows = torch.cat(drawn).numpy()
        logits = evidence.patch_logits(torch.from_numpy(samples.maps[rows]).float())
        loss = _patch_loss(logits, samples[rows], options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        advance(1)
    return evidence.eval()


def _patch_loss(logits: torch.Tensor, samples: PatchSamples, options: PatchOptions) -> torch.Tensor:
    """Cross-entropy over the patches whose label is known; logits are (n, 49, 9)."""
    cells = torch.from_numpy(samples.cells).transpose(1, 2)  # (n, 49, 9)
    target = cells > options.covered
    present, known = torch.tensor(samples.present), torch.tensor(samples.known)
    without_box = present & ~target.any(dim=1)  # somewhere in the frame, nobody says where
    counted = (known & ~without_box)[:, None, :] & (target | (cells == 0))
    weight = counted * torch.where(target, options.positive_weight, 1.0)
    total = functional.binary_cross_entropy_with_logits(
        logits, target.float(), weight=weight, reduction="sum"
    )
    return total / counted.sum().clamp(min=1)


def _draw_weights(samples: PatchSamples) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each frame is drawn as one with lesions, and as one without."""
    present, known = samples.present, samples.known
    lesions, normals = np.zeros(len(samples)), np.zeros(len(samples))
    for finding in range(len(FINDINGS)):
        shown = present[:, finding]
        studies = np.unique(samples.study[shown])
        for study in studies:
            rows = np.flatnonzero(shown & (samples.study == study))
            lesions[rows] += 1 / (len(studies) * len(rows))
    is_normal = known.any(axis=1) & ~present.any(axis=1)
    for study in np.unique(samples.study[is_normal]):
        rows = np.flatnonzero(is_normal & (samples.study == study))
        normals[rows] = 1 / len(rows)
    for weights, what in ((lesions, "a finding"), (normals, "no finding")):
        if not weights.any():
            raise TrainingError(
                f"no training frame shows {what}",
                "local evidence needs frames with boxes and frames without findings",
            )
    return torch.from_numpy(lesions), torch.from_numpy(normals)


def _some_maps(samples: PatchSamples, every: int = 7, batch: int = 256) -> "list[torch.Tensor]":
    """Maps of some frames of every study, in batches."""
    rows = np.arange(0, len(samples), every)
    return [
        torch.from_numpy(samples.maps[rows[start : start + batch]]).float()
        for start in range(0, len(rows), batch)
    ]
