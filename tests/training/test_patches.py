"""Local evidence: patches taught by boxes, against literal loops."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from enteron.datasets.dataset import Box
from enteron.errors import TrainingError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.model.backbones import lite0
from enteron.model.patches import BEST_PATCHES, CHANNELS, GRID, LocalEvidence, patch_maps
from enteron.training.options import PatchOptions
from enteron.training.patches import (
    PatchSamples,
    covered_cells,
    draw_weights,
    evidence_of,
    evidence_scales,
    fit_local_evidence,
    fold_of_studies,
    left_out_evidence,
    mean_over_clips,
    patch_loss,
)
from enteron.training.sampling import StudySamples
from enteron.types import FrameLabels

ULCER, POLYP, EROSION = (FINDINGS.index(name) for name in ("ulcer", "polyp", "erosion"))


def labels(rows: list[dict[str, int]]) -> FrameLabels:
    present = np.zeros((len(rows), len(LABELS)), np.bool_)
    known = np.zeros_like(present)
    for row, values in enumerate(rows):
        for name, value in values.items():
            known[row, COLUMN[name]] = True
            present[row, COLUMN[name]] = value == 1
    return FrameLabels(present, known)


NORMAL = dict.fromkeys(FINDINGS, 0)


def test_cells_equal_counted_pixels():
    """Boxes of whole pixels: the share of a patch is the share of its pixels inside the box."""
    frames = np.array([3, 7])
    boxes = (
        Box(3, "ulcer", 10, 40, 100, 90),
        Box(3, "ulcer", 200, 200, 224, 224),
        Box(7, "polyp", 0, 0, 5, 220),
        Box(7, "Foreign body", 0, 0, 224, 224),
    )
    cells = covered_cells(boxes, frames, {3: (0, 0, 224, 224), 7: (0, 0, 224, 224)})
    for row, number in enumerate(frames):
        for finding, name in enumerate(FINDINGS):
            shares = np.zeros((GRID, GRID))
            for box in boxes:
                if box.frame == number and box.label == name:
                    pixels = np.zeros((224, 224))
                    pixels[int(box.y1) : int(box.y2), int(box.x1) : int(box.x2)] = 1
                    side = 224 // GRID
                    counted = pixels.reshape(GRID, side, GRID, side).mean(axis=(1, 3))
                    shares = np.maximum(shares, counted)
            np.testing.assert_allclose(cells[row, finding].reshape(GRID, GRID), shares, atol=1e-6)


def test_cells_scale_with_the_picture():
    frames = np.array([0])
    small = covered_cells((Box(0, "ulcer", 20, 30, 60, 90),), frames, {0: (0, 0, 224, 224)})
    large = covered_cells((Box(0, "ulcer", 30, 45, 90, 135),), frames, {0: (0, 0, 336, 336)})
    np.testing.assert_allclose(small, large, atol=1e-6)


def test_evidence_equals_a_literal_loop():
    generator = np.random.default_rng(1)
    evidence = LocalEvidence(channels=3)
    with torch.no_grad():
        for tensor in (evidence.linear.weight, evidence.linear.bias, evidence.mean):
            tensor.copy_(torch.from_numpy(generator.normal(size=tensor.shape)))
        evidence.spread.copy_(torch.from_numpy(generator.uniform(0.5, 2, evidence.spread.shape)))
    maps = generator.normal(size=(2, 3, GRID, GRID)).astype(np.float32)
    weight, bias = evidence.linear.weight.detach().numpy(), evidence.linear.bias.detach().numpy()
    expected = np.zeros((2, len(FINDINGS)))
    for n in range(2):
        frame_mean = [np.mean(maps[n, c]) for c in range(3)]
        for finding in range(len(FINDINGS)):
            logits = []
            for y in range(GRID):
                for x in range(GRID):
                    description = [maps[n, c, y, x] for c in range(3)]
                    description += [maps[n, c, y, x] - frame_mean[c] for c in range(3)]
                    logit = bias[finding]
                    for i, value in enumerate(description):
                        scaled = (value - float(evidence.mean[i])) / float(evidence.spread[i])
                        logit += weight[finding, i] * scaled
                    logits.append(logit)
            expected[n, finding] = np.mean(sorted(logits)[-BEST_PATCHES:])
    with torch.no_grad():
        np.testing.assert_allclose(evidence(torch.from_numpy(maps)), expected, atol=1e-4)


def test_loss_counts_known_patches_only():
    """Frame 0: an ulcer with a box, erosion unknown. Frame 1: a polyp without a box. Frame 2:
    normal.
    """
    table = labels([{"ulcer": 1}, {"polyp": 1, "ulcer": 0}, NORMAL])  # pyright: ignore[reportArgumentType]
    cells = np.zeros((3, len(FINDINGS), GRID * GRID), np.float32)
    cells[0, ULCER, :4] = (1.0, 0.3, 0.25, 0.1)  # two are lesion, two unknown
    samples = PatchSamples(
        np.zeros((3, 1, GRID, GRID)), table, cells, np.array([0, 1, 2]), np.arange(3)
    )
    logits = np.random.default_rng(0).normal(size=(3, GRID * GRID, len(FINDINGS)))
    total, counted = 0.0, 0
    for n in range(3):
        for finding, name in enumerate(FINDINGS):
            if not table.known[n, COLUMN[name]] or (n == 1 and finding == POLYP):
                continue
            for patch in range(GRID * GRID):
                share = cells[n, finding, patch]
                if 0 < share <= 0.25:
                    continue
                p = 1 / (1 + np.exp(-logits[n, patch, finding]))
                total -= 8 * np.log(p) if share > 0.25 else np.log(1 - p)
                counted += 1
    loss = patch_loss(torch.from_numpy(logits), samples, PatchOptions())
    assert loss.item() == pytest.approx(total / counted, rel=1e-6)


def test_nothing_known_gives_no_gradient():
    samples = PatchSamples(
        np.zeros((1, 1, GRID, GRID)),
        FrameLabels.unknown(1),
        np.zeros((1, len(FINDINGS), GRID * GRID), np.float32),
        np.array([0]),
        np.array([0]),
    )
    logits = torch.zeros(1, GRID * GRID, len(FINDINGS), requires_grad=True)
    patch_loss(logits, samples, PatchOptions()).backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_videos_of_a_finding_count_alike():
    """Two videos with ulcers, of 2 and 6 frames, and one with an erosion."""
    table = labels([{"ulcer": 1}] * 8 + [{"erosion": 1}] * 4 + [NORMAL] * 5)  # pyright: ignore[reportArgumentType]
    study = np.array([0, 0] + [1] * 6 + [2] * 4 + [2] * 2 + [3] * 3)
    cells = np.zeros((17, len(FINDINGS), GRID * GRID), np.float32)
    samples = PatchSamples(np.zeros((17, 1, GRID, GRID)), table, cells, study, np.arange(17))
    lesions, normals = draw_weights(samples)
    by_video = [lesions[study == video].sum().item() for video in range(4)]
    assert by_video == pytest.approx([0.5, 0.5, 1.0, 0.0])
    assert [normals[study == video].sum().item() for video in range(4)] == pytest.approx(
        [0, 0, 1, 1]
    )


def planted(frames: int, seed: int, channel: int = 2) -> PatchSamples:
    """Ulcers shine in one channel, in four patches; the whole video has a random tint."""
    generator = np.random.default_rng(seed)
    study = np.repeat(np.arange(4), frames // 4) + 10 * seed
    tint = generator.normal(size=(4, 5, 1, 1)).repeat(frames // 4, axis=0) * 2
    maps = (generator.normal(size=(frames, 5, GRID, GRID)) * 0.3 + tint).astype(np.float32)
    has_ulcer = generator.random(frames) < 0.4
    cells = np.zeros((frames, len(FINDINGS), GRID * GRID), np.float32)
    for row in np.flatnonzero(has_ulcer):
        y, x = generator.integers(GRID - 1, size=2)
        maps[row, channel, y : y + 2, x : x + 2] += 3.0
        cells[row, ULCER].reshape(GRID, GRID)[y : y + 2, x : x + 2] = 1
    table = labels([{"ulcer": 1} if ulcer else NORMAL for ulcer in has_ulcer])  # pyright: ignore[reportArgumentType]
    return PatchSamples(maps, table, cells, study, np.arange(len(study)))


def test_a_planted_lesion_is_found_in_other_videos():
    train, test = planted(200, 1), planted(200, 2)
    evidence = fit_local_evidence(
        train, PatchOptions(steps=200, rate=3e-2), evidence=LocalEvidence(5)
    )
    with torch.no_grad():
        scores = evidence(torch.from_numpy(test.maps))[:, ULCER].numpy()
    truth = test.present[:, ULCER]
    greater = (scores[truth][:, None] > scores[~truth][None]).mean()
    pooled = test.maps.mean(axis=(2, 3))[:, 2]
    assert greater > 0.95
    assert (pooled[truth][:, None] > pooled[~truth][None]).mean() < 0.7  # pooling hardly sees it


def test_the_same_seed_gives_the_same_layer():
    first, second = (
        fit_local_evidence(planted(40, 1), PatchOptions(steps=5), evidence=LocalEvidence(5))
        for _ in range(2)
    )
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_training_needs_both_kinds_of_frames():
    samples = planted(40, 1)
    only_lesions = samples[np.flatnonzero(samples.present[:, ULCER])]
    with pytest.raises(TrainingError, match="no training frame shows no finding"):
        fit_local_evidence(only_lesions, evidence=LocalEvidence(5))


def test_maps_are_those_of_the_trunk():
    """Stages 3, 5 and 7 by hooks, pooled to the grid by means of equal squares."""
    trunk = lite0()
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 224, 224))).float()
    outputs: list[torch.Tensor] = []
    for index in (2, 4, 6):
        block = list(trunk.get_submodule("blocks").children())[index]
        block.register_forward_hook(lambda module, inputs, output: outputs.append(output))  # pyright: ignore[reportArgumentType]
    with torch.inference_mode():
        features = trunk(images)
        expected = [
            o.unflatten(2, (GRID, -1)).unflatten(4, (GRID, -1)).mean((3, 5)) for o in outputs
        ]
        maps, pooled = patch_maps(trunk, images)
    assert maps.shape == (1, CHANNELS, GRID, GRID)
    torch.testing.assert_close(maps, torch.cat(expected, dim=1))
    torch.testing.assert_close(pooled, features)


def test_studies_of_a_finding_are_left_out_apart():
    """Ulcers in two studies, erosions in five, normal frames in four more."""
    table = labels([{"ulcer": 1}] * 2 + [{"erosion": 1}] * 5 + [NORMAL] * 4)  # pyright: ignore[reportArgumentType]
    cells = np.zeros((11, len(FINDINGS), GRID * GRID), np.float32)
    study = np.arange(11)
    samples = PatchSamples(np.zeros((11, 1, GRID, GRID)), table, cells, study, np.arange(11))
    fold = fold_of_studies(samples, 4)
    assert fold[0] != fold[1]
    assert np.bincount(fold[2:7], minlength=4).max() == 2
    assert sorted(np.bincount(fold, minlength=4)) == [2, 3, 3, 3]
    assert fold_of_studies(samples[np.array([0, 2])], 4).max() == 1  # two studies: two folds
    with pytest.raises(TrainingError, match=r"single study .* none can be left out"):
        fold_of_studies(samples[np.array([0])], 4)


def test_left_out_evidence_never_saw_the_study():
    """The lesions of one study shine in a channel of their own: only that study could teach it."""
    usual, odd = planted(120, 1), planted(120, 2, channel=4)
    maps = np.concatenate([usual.maps, odd.maps])
    samples = PatchSamples(
        maps,
        FrameLabels.concatenate([usual.labels, odd.labels]),
        np.concatenate([usual.cells, odd.cells]),
        np.concatenate([usual.study - 10, np.full(len(odd), 4)]),
        np.arange(len(maps)),
    )
    options = PatchOptions(steps=150, rate=3e-2, folds=5)
    evidence = left_out_evidence(samples, options)[:, ULCER]
    seen = fit_local_evidence(samples, options, evidence=LocalEvidence(5))
    rows = np.flatnonzero(samples.study == 4)
    truth = samples.present[rows, ULCER]
    own = evidence_of(seen, maps, rows)[:, ULCER]
    assert roc_auc_score(truth, own) > 0.9
    assert roc_auc_score(truth, evidence[rows]) < 0.7
    others = np.flatnonzero(samples.study != 4)
    assert roc_auc_score(samples.present[others, ULCER], evidence[others]) > 0.9


def test_scales_are_a_logistic_regression_on_what_is_known():
    generator = np.random.default_rng(3)
    evidence = generator.normal(size=(400, len(FINDINGS))).astype(np.float32)
    is_ulcer = generator.random(400) < 1 / (1 + np.exp(-(2 * evidence[:, ULCER] - 1)))
    unknown = np.arange(400) % 4 == 0
    table = labels(
        [{} if u else {"ulcer": int(y), "polyp": 0} for y, u in zip(is_ulcer, unknown, strict=True)]
    )
    cells = np.zeros((400, len(FINDINGS), GRID * GRID), np.float32)
    index = np.arange(400)
    samples = PatchSamples(np.zeros((400, 1, GRID, GRID)), table, cells, index, index)
    scales, biases = evidence_scales(evidence, samples)
    # C = 1 is the Gaussian prior of deviation 1 that the fit has.
    plain = LogisticRegression(C=1).fit(evidence[~unknown][:, [ULCER]], is_ulcer[~unknown])
    assert scales[ULCER] == pytest.approx(plain.coef_[0, 0], rel=0.01)
    assert biases[ULCER] == pytest.approx(plain.intercept_[0], abs=0.01)
    # No frame shows a polyp: its scale is that of the findings that were fitted.
    assert (scales[POLYP], biases[POLYP]) == (scales[ULCER], biases[ULCER])
    one_study = PatchSamples(samples.maps, table, cells, np.zeros(400, np.int64), samples.frame)
    assert evidence_scales(evidence, one_study)[0].tolist() == [1] * len(FINDINGS)


def test_evidence_is_averaged_over_the_clips_of_stored_frames():
    """Frames 0, 5 .. 25 are stored, four of them are samples: clips are of stored neighbours."""
    study = StudySamples("s", np.arange(0, 30, 5), np.empty(0, np.int64), FrameLabels.unknown(0))
    frame = np.array([0, 5, 10, 25])  # 15 and 20 are no samples
    unknown = FrameLabels.unknown(4)
    cells = np.zeros((4, len(FINDINGS), GRID * GRID), np.float32)
    samples = PatchSamples(np.zeros((4, 1, GRID, GRID)), unknown, cells, np.zeros(4, int), frame)
    evidence = np.array([0, 3, 6, 9], np.float32)[:, None].repeat(len(FINDINGS), axis=1)
    means = mean_over_clips(evidence, samples, [study], 3, 1)
    # clips: (0, 0, 0), (0, 0, 5), (0, 5, 10), (15, 20, 25)
    np.testing.assert_allclose(means[:, 0], [0, 1, 3, 9])
