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
from torch.nn import functional

from enteron.datasets.dataset import Box
from enteron.errors import TrainingError
from enteron.fitting.events import fit_logistic
from enteron.inference.encoder import Features
from enteron.inference.onnx_runtime import MapEncoder
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.labels import COLUMN, FINDINGS
from enteron.model.options import FEATURES
from enteron.model.patches import CHANNELS, GRID, LocalEvidence
from enteron.model.preprocessing import window_rows
from enteron.study.study import Study
from enteron.training.options import PatchOptions
from enteron.training.plan import TrainingPlan
from enteron.training.sampling import StudySamples
from enteron.types import FrameLabels

_FIRST_FINDING = COLUMN[FINDINGS[0]]


@dataclass(frozen=True, eq=False)
class PatchSamples:
    """Frames with the maps of a backbone, what is known of them, and where lesions lie."""

    maps: NDArray[np.floating]  # (n, 472, 7, 7), in memory or memory-mapped
    labels: FrameLabels  # of these frames
    cells: NDArray[np.float32]  # (n, 9, 49) share of each patch that boxes of a finding cover
    study: NDArray[np.int64]  # (n,) which study a frame belongs to
    frame: NDArray[np.int64]  # (n,) its number in that study

    def __getitem__(self, rows: NDArray[np.int64]) -> "PatchSamples":
        return PatchSamples(
            self.maps[rows], self.labels[rows], self.cells[rows], self.study[rows], self.frame[rows]
        )

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


Part = tuple[int, int, int, int]
"""Left, top, width and height of what images show of a picture (`Preprocessing.shown_part`)."""


def covered_cells(
    boxes: Sequence[Box],
    frames: NDArray[np.int64],
    parts: Mapping[int, Part],
    grid: int = GRID,
) -> NDArray[np.float32]:
    """(frames, 9, grid * grid) share of every patch that a box of each finding covers.

    `parts` has what the encoder sees of every frame that has a box. Boxes of other things than the
    nine findings are left out.
    """
    cells = np.zeros((len(frames), len(FINDINGS), grid, grid), np.float32)
    edges = np.arange(grid)
    for box in boxes:
        if box.label not in FINDINGS:
            continue
        row = int(np.searchsorted(frames, box.frame))
        if row == len(frames) or frames[row] != box.frame:
            continue
        left, top, width, height = parts[box.frame]
        x1, x2 = ((x - left) * grid / width for x in (box.x1, box.x2))
        y1, y2 = ((y - top) * grid / height for y in (box.y1, box.y2))
        across, down = _overlap(x1, x2, edges), _overlap(y1, y2, edges)
        cell = cells[row, FINDINGS.index(box.label)]
        np.maximum(cell, down[:, None] * across[None, :], out=cell)
    return cells.reshape(len(frames), len(FINDINGS), grid * grid)


def _overlap(start: float, stop: float, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of each unit cell [edge, edge + 1) that [start, stop) covers."""
    return np.clip(np.minimum(stop, edges + 1) - np.maximum(start, edges), 0.0, 1.0)


# ---- the frames of a training


def patch_samples(
    plan: TrainingPlan,
    encoder: MapEncoder,
    *,
    advance: Callable[[int], None] | None = None,
) -> PatchSamples:
    """Maps, labels and boxes of the training frames that teach local evidence.

    `study` and `frame` count and number as in `teaching_studies`.
    """
    studies = teaching_studies(plan)
    chosen = teaching_rows(studies, plan.boxes, plan.request.options.patches.frames)
    parts: list[PatchSamples] = []
    for index, (samples, rows) in enumerate(zip(studies, chosen, strict=True)):
        if not rows.size:
            continue
        frames = samples.stored[samples.rows[rows]]
        with plan.studies[samples.study].open() as study:
            maps, _, shown, readable = encode_maps(study, frames, encoder, advance)
        cells = covered_cells(plan.boxes[samples.study], frames[readable], shown)
        study_index = np.full(readable.sum(), index)
        labels = samples.labels[rows[readable]]
        parts.append(PatchSamples(maps, labels, cells, study_index, frames[readable]))
    return PatchSamples(
        np.concatenate([part.maps for part in parts]),
        FrameLabels.concatenate([part.labels for part in parts]),
        np.concatenate([part.cells for part in parts]),
        np.concatenate([part.study for part in parts]),
        np.concatenate([part.frame for part in parts]),
    )


def teaching_studies(plan: TrainingPlan) -> list[StudySamples]:
    """The studies that teach local evidence.

    Where findings come from evidence alone, those of sources with boxes: frames of drawings as
    normal ones would take half of the draws from the real ones that a lesion has to differ from.
    """
    if plan.request.options.model.findings == "head":
        return plan.train
    sources = {samples.source for samples in plan.train if plan.boxes[samples.study]}
    return [samples for samples in plan.train if samples.source in sources]


def teaching_rows(
    train: Sequence[StudySamples], boxes: Mapping[str, tuple[Box, ...]], most: int
) -> list[NDArray[np.int64]]:
    """Which samples of each study teach: frames with boxes, and frames without findings.

    Of each kind at most half of `most`; every study that has some gives the same number at most,
    evenly spread over the study, since neighbouring frames are near-copies.
    """
    kinds: list[list[NDArray[np.int64]]] = []
    for samples in train:
        labels = samples.labels
        present, known = labels.present[:, _FIRST_FINDING:], labels.known[:, _FIRST_FINDING:]
        with_box = np.isin(
            samples.stored[samples.rows], [box.frame for box in boxes[samples.study]]
        )
        normal = known.any(axis=1) & ~present.any(axis=1)
        kinds.append([np.flatnonzero(with_box & present.any(axis=1)), np.flatnonzero(normal)])
    studies = [max(1, sum(rows[kind].size > 0 for rows in kinds)) for kind in (0, 1)]
    return [
        np.unique(
            np.concatenate(
                [_spread(rows[kind], max(1, most // 2 // studies[kind])) for kind in (0, 1)]
            )
        )
        for rows in kinds
    ]


def _spread(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the rows, evenly spread."""
    if rows.size <= most:
        return rows
    return rows[np.linspace(0, rows.size - 1, most).astype(np.int64)]


def encode_maps(
    study: Study,
    frames: NDArray[np.int64],
    encoder: MapEncoder,
    advance: Callable[[int], None] | None = None,
    batch: int = 64,
) -> tuple[NDArray[np.float16], Features, dict[int, Part], NDArray[np.bool_]]:
    """Maps and features of the readable frames, what images show of them, which are readable."""
    preprocessing = encoder.preprocessing
    fields = study_fields(study, preprocessing)
    maps: list[NDArray[np.float16]] = []
    features: list[Features] = []
    shown: dict[int, Part] = {}
    readable = np.zeros(len(frames), np.bool_)
    for start in range(0, len(frames), batch):
        images: list[NDArray[np.uint8]] = []
        for place, number in enumerate(frames[start : start + batch].tolist(), start):
            frame = study.frame(number)
            image = prepare_frame(frame, preprocessing, fields).image
            if frame.image is None or image is None:
                continue
            circle = None if fields is None else fields.circle(frame.image)
            height, width = frame.image.shape[:2]
            shown[number] = preprocessing.shown_part(height, width, circle)
            readable[place] = True
            images.append(image)
        if images:
            encoded = encoder.encode(np.stack(images))
            maps.append(encoded[0])
            features.append(encoded[1])
        if advance is not None:
            advance(len(frames[start : start + batch]))
    no_maps = np.empty((0, CHANNELS, GRID, GRID), np.float16)
    no_features = np.empty((0, FEATURES), np.float32)
    return (
        np.concatenate([no_maps, *maps]),
        np.concatenate([no_features, *features]),
        shown,
        readable,
    )


# ---- fitting


def fit_local_evidence(
    samples: PatchSamples,
    options: PatchOptions | None = None,
    *,
    seed: int = 0,
    evidence: LocalEvidence | None = None,
    advance: Callable[[int], None] | None = None,
) -> LocalEvidence:
    """Fit the layer; findings without a single box learn only that they are absent.

    `seed` gives the order of the frames. `evidence` is the layer to fit; by default a new one.
    """
    options = PatchOptions() if options is None else options
    evidence = LocalEvidence() if evidence is None else evidence
    advance = advance or (lambda count: None)
    lesions, normals = draw_weights(samples)
    generator = torch.Generator().manual_seed(seed)
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
        loss = patch_loss(logits, samples[rows], options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        advance(1)
    return evidence.eval()


def patch_loss(logits: torch.Tensor, samples: PatchSamples, options: PatchOptions) -> torch.Tensor:
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


def draw_weights(samples: PatchSamples) -> tuple[torch.Tensor, torch.Tensor]:
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


# ---- evidence of left-out studies


def left_out_evidence(
    samples: PatchSamples,
    options: PatchOptions,
    *,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.float32]:
    """(n, 9) evidence of every frame by a layer that was fitted without the frame's study."""
    evidence = np.empty((len(samples), len(FINDINGS)), np.float32)
    folds = fold_of_studies(samples, options.folds)
    for fold in range(int(folds.max()) + 1):
        test = np.flatnonzero(folds[samples.study] == fold)
        train = np.flatnonzero(folds[samples.study] != fold)
        layer = LocalEvidence(samples.maps.shape[1])
        fit_local_evidence(samples[train], options, seed=seed, evidence=layer, advance=advance)
        evidence[test] = evidence_of(layer, samples.maps, test)
    return evidence


def evidence_of(
    layer: LocalEvidence, maps: NDArray[np.floating], rows: NDArray[np.int64], batch: int = 256
) -> NDArray[np.float32]:
    """(rows, 9) evidence of some of the maps."""
    evidence = np.empty((len(rows), len(FINDINGS)), np.float32)
    with torch.inference_mode():
        for start in range(0, len(rows), batch):
            some = torch.from_numpy(maps[rows[start : start + batch]]).float()
            evidence[start : start + batch] = layer(some).numpy()
    return evidence


def mean_over_clips(
    evidence: NDArray[np.float32],
    samples: PatchSamples,
    studies: Sequence[StudySamples],
    frames: int,
    step: int,
) -> NDArray[np.float32]:
    """(n, 9) mean evidence over the clip of every sample, as the network takes it.

    Frames of a clip that are no samples themselves are left out of the mean. `samples.study` counts
    in `studies`.
    """
    means = np.empty_like(evidence)
    for index in np.unique(samples.study):
        rows = np.flatnonzero(samples.study == index)
        stored = studies[index].stored
        places = np.searchsorted(stored, samples.frame[rows])
        by_place = np.full((len(stored), evidence.shape[1]), np.nan, np.float32)
        by_place[places] = evidence[rows]
        means[rows] = np.nanmean(by_place[window_rows(len(stored), step, frames)[places]], axis=1)
    return means


def fold_of_studies(samples: PatchSamples, folds: int) -> NDArray[np.int64]:
    """(studies,) the fold of every study, such that studies of one finding lie in different folds.

    The findings of fewest studies are dealt first, each study to the fold with fewest studies of
    that finding, then with fewest studies at all. Studies that have no frame are dealt too.
    """
    count = int(samples.study.max()) + 1
    shows = np.zeros((count, len(FINDINGS)), np.bool_)
    np.logical_or.at(shows, samples.study, samples.present)
    folds = min(folds, len(np.unique(samples.study)))
    if folds < 2:
        raise TrainingError(
            "a single study teaches local evidence, so none can be left out",
            "give data with boxes in at least two studies",
        )
    fold = np.full(count, -1)
    dealt = np.zeros((folds, len(FINDINGS) + 1), np.int64)  # last column: studies

    def deal(study: int, finding: int) -> None:
        chosen = min(range(folds), key=lambda f: (dealt[f, finding], dealt[f, -1], f))
        fold[study] = chosen
        dealt[chosen, :-1] += shows[study]
        dealt[chosen, -1] += 1

    for finding in sorted(range(len(FINDINGS)), key=lambda f: (shows[:, f].sum(), f)):
        for study in np.flatnonzero(shows[:, finding] & (fold < 0)):
            deal(int(study), finding)
    for study in np.flatnonzero(fold < 0):
        deal(int(study), -1)
    return fold


def evidence_scales(
    evidence: NDArray[np.float32], samples: PatchSamples
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and bias of each finding that turn evidence of left-out studies into log-odds.

    Logistic regression with one input. Who left out the only study of a finding has never seen it:
    findings of fewer than two studies take the median scale and bias of the others.
    """
    scales, biases = np.ones(len(FINDINGS), np.float32), np.zeros(len(FINDINGS), np.float32)
    fitted = np.zeros(len(FINDINGS), np.bool_)
    for finding in range(len(FINDINGS)):
        rows = np.flatnonzero(samples.known[:, finding])
        present = samples.present[rows, finding]
        fitted[finding] = np.unique(samples.study[rows[present]]).size >= 2
        if fitted[finding]:
            biases[finding], scales[finding] = fit_logistic(evidence[rows, finding], present)
    if fitted.any():
        scales[~fitted] = np.median(scales[fitted])
        biases[~fitted] = np.median(biases[fitted])
    return scales, biases
