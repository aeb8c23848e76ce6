"""Attempts of `enteron bench real` with the trunk itself: larger input, and its last stages tuned.

Both start from local evidence as the system has it. Nothing was varied after a result was seen:
the settings below are the only ones that were tried.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from enteron.inference.onnx_graph import export_network
from enteron.inference.onnx_runtime import GRAPH_INPUT, open_session
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.labels import FINDINGS
from enteron.model.backbones import Backbone, lite_backbone
from enteron.model.patches import STAGES, LocalEvidence
from enteron.model.preprocessing import Preprocessing
from enteron.training.options import PatchOptions
from enteron.training.patches import (
    PatchSamples,
    covered_cells,
    draw_weights,
    fit_local_evidence,
    patch_loss,
)

if TYPE_CHECKING:
    from benchmarks.real import Frames, Scores

LARGE = 320  # pixels
BEST_OF_LARGE = 6  # patches: 6 of 100 are the same part of a frame as the system's 3 of 49

FIRST_TUNED = 5  # blocks of EfficientNet-Lite0; those before it keep ImageNet's weights
STEPS, BATCH = 500, 32
TRUNK_RATE, EVIDENCE_RATE, DECAY = 1e-4, 3e-4, 3e-2


# ---- larger input


class _LargeMaps(nn.Module):
    """Maps (n, 472, 10, 10) of uint8 images of 320 pixels."""

    def __init__(self, backbone: Backbone, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.trunk, self.preprocessing = backbone.trunk, preprocessing

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = _stages(self.trunk, self.preprocessing.normalise(images))
        side = maps[-1].shape[-1]
        return torch.cat([functional.avg_pool2d(m, m.shape[-1] // side) for m in maps], dim=1)


def large_input(
    frames: "Frames", train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> "Scores":
    """Local evidence of images of 320 pixels, which have 10 x 10 patches."""
    samples = _large_samples(frames)
    evidence = LocalEvidence()
    fit_local_evidence(samples[train], seed=seed, evidence=evidence)
    scores = np.empty((len(test), len(FINDINGS)), np.float32)
    with torch.inference_mode():
        for row, place in enumerate(test):
            logits = evidence.patch_logits(torch.from_numpy(samples.maps[place][None]).float())
            scores[row] = logits[0].topk(BEST_OF_LARGE, dim=0).values.mean(dim=0).numpy()
    return scores


@cache
def _large_samples(frames: "Frames") -> PatchSamples:
    backbone = lite_backbone()
    preprocessing = backbone.spec.preprocessing.model_copy(update={"size": LARGE})
    maps = _encoded(frames, _LargeMaps(backbone, preprocessing), preprocessing, "large.npy")
    cells = []
    for video in frames.videos:
        rows = frames.rows_of([video])
        numbers, entry = frames.numbers[rows], frames.studies[video]
        boxes = entry.boxes()
        with entry.open() as study:
            pictures = {box.frame: study.frame(box.frame).image for box in boxes}
        parts = {
            number: preprocessing.shown_part(*picture.shape[:2])
            for number, picture in pictures.items()
            if picture is not None
        }
        cells.append(covered_cells(boxes, numbers, parts, maps.shape[-1]))
    own = frames.samples
    return PatchSamples(maps, own.labels, np.concatenate(cells), own.study, own.frame)


# ---- the last stages tuned


class _EarlyStages(nn.Module):
    """Activations (n, 112, 14, 14) of the last block that is not tuned, of uint8 images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.trunk, self.preprocessing = backbone.trunk, backbone.spec.preprocessing

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return _stages(self.trunk, self.preprocessing.normalise(images), FIRST_TUNED)[-1]


class _TunedEvidence(nn.Module):
    """Blocks of the trunk and local evidence over their map, beside the maps of earlier blocks."""

    def __init__(self, backbone: Backbone, evidence: LocalEvidence) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *list(backbone.trunk.get_submodule("blocks").children())[FIRST_TUNED:]
        )
        self.evidence = evidence

    def maps(self, earlier: torch.Tensor, early: torch.Tensor) -> torch.Tensor:
        """Maps (n, 472, 7, 7): stored ones of the stages before, and that of the tuned ones."""
        return torch.cat((earlier, self.blocks(early)), dim=1)


def tuned_stages(
    frames: "Frames", train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> "Scores":
    """The last two stages and local evidence fine-tuned together, on stored activations.

    The layer of evidence starts as the method `evidence` leaves it; statistics of BatchNorm stay
    those of ImageNet.
    """
    own = frames.samples
    early = _early_activations(frames)
    torch.manual_seed(seed)
    evidence = fit_local_evidence(own[train], seed=seed, evidence=LocalEvidence())
    model = _TunedEvidence(lite_backbone(), evidence).eval()
    groups = [
        {"params": model.blocks.parameters(), "lr": TRUNK_RATE},
        {"params": evidence.parameters(), "lr": EVIDENCE_RATE},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    generator = torch.Generator().manual_seed(seed)
    weights = draw_weights(own[train])
    options = PatchOptions()

    def maps_of(rows: NDArray[np.int64]) -> torch.Tensor:
        kept = own.maps.shape[1] - 320  # channels of the stages that are not tuned
        earlier = torch.from_numpy(own.maps[rows, :kept]).float()
        return model.maps(earlier, torch.from_numpy(early[rows]).float())

    for _ in range(STEPS):
        drawn = [torch.multinomial(w, BATCH // 2, True, generator=generator) for w in weights]
        rows = train[torch.cat(drawn).numpy()]
        loss = patch_loss(evidence.patch_logits(maps_of(rows)), own[rows], options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    scores = np.empty((len(test), len(FINDINGS)), np.float32)
    with torch.inference_mode():
        for start in range(0, len(test), 64):
            scores[start : start + 64] = evidence(maps_of(test[start : start + 64])).numpy()
    return scores


@cache
def _early_activations(frames: "Frames") -> NDArray[np.float16]:
    backbone = lite_backbone()
    return _encoded(frames, _EarlyStages(backbone), backbone.spec.preprocessing, "early.npy")


# ---- both


def _stages(trunk: nn.Module, images: torch.Tensor, blocks: int = 7) -> list[torch.Tensor]:
    """Outputs of the stages that local evidence uses, among the first blocks."""
    features = trunk.get_submodule("bn1")(trunk.get_submodule("conv_stem")(images))
    maps: list[torch.Tensor] = []
    for index, block in enumerate(list(trunk.get_submodule("blocks").children())[:blocks]):
        features = block(features)
        if index in STAGES:
            maps.append(features)
    return maps


def _encoded(
    frames: "Frames", network: nn.Module, preprocessing: Preprocessing, name: str
) -> NDArray[np.float16]:
    """Outputs of a network for all frames, stored in half precision."""
    path = frames.work.parent / f"{name.removesuffix('.npy')}-{frames.digest}.npy"
    if not path.exists():
        _store(path, frames, network, preprocessing)
    return np.load(path, mmap_mode="r")


def _store(path: Path, frames: "Frames", network: nn.Module, preprocessing: Preprocessing) -> None:
    session = open_session(export_network(network, preprocessing.size, ["maps"]))
    stored: NDArray[np.float16] | None = None
    partial = path.with_suffix(".part.npy")
    for row, image in _images(frames, preprocessing):
        output = np.asarray(session.run(["maps"], {GRAPH_INPUT: image[None]})[0])[0]
        if stored is None:
            shape = (len(frames.samples), *output.shape)
            stored = np.lib.format.open_memmap(partial, "w+", np.float16, shape)
        stored[row] = output
    assert stored is not None
    stored.flush()
    partial.replace(path)


def _images(
    frames: "Frames", preprocessing: Preprocessing
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    for video in frames.videos:
        with frames.studies[video].open() as study:
            fields = study_fields(study, preprocessing)
            for row in frames.rows_of([video]).tolist():
                frame = study.frame(int(frames.numbers[row]))
                image = prepare_frame(frame, preprocessing, fields).image
                assert image is not None, "a labelled frame cannot be read"
                yield row, image
