"""Findings on real frames: AUC on left-out videos of Kvasir-Capsule, by a fixed protocol.

`real_protocol.json` fixes folds, pairs of finding and video, and negatives. Every method is trained
once per fold and tested on the videos of that fold. Encoded frames and scores are kept in --out, so
a run that was stopped resumes. Needs the frames of ../shared (or --data).
"""

import argparse
import hashlib
import io
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.layouts import open_dataset
from enteron.errors import StudyError
from enteron.labels import FINDINGS
from enteron.model.backbones import lite_backbone
from enteron.model.patches import CHANNELS, GRID, LocalEvidence, patch_maps
from enteron.training.patches import PatchOptions, PatchSamples, covered_cells, fit_local_evidence
from enteron.types import FrameLabels

ROOT = Path(__file__).parents[1]
PROTOCOL = Path(__file__).with_name("real_protocol.json")
BASELINE = "pooled"
RESAMPLES = 500
BLOCK = 25  # consecutive frames are near-copies: intervals resample blocks of them

Scores = NDArray[np.float32]  # (frames, 9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/frames/kvasir-capsule")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/real")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3, help="of methods that draw frames")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise StudyError(
            "the real frames of ../shared are not here", "name their folder with --data"
        )
    protocol = json.loads(PROTOCOL.read_text())
    frames = load_frames(options.data, options.out, protocol)
    print(frames.summary())
    results: dict[str, list[Scores]] = {}
    for name in dict.fromkeys([BASELINE, *options.methods]):
        method = METHODS[name]
        seeds = options.seeds if method.seeded else 1
        start = time.perf_counter()
        results[name] = [
            left_out_scores(name, method, frames, protocol, options.out, seed)
            for seed in range(seeds)
        ]
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    print_tables(results, frames, protocol)


# ---- frames, encoded once


@dataclass(frozen=True)
class Frames:
    """All frames of the protocol's videos."""

    samples: PatchSamples
    pooled: NDArray[np.float32]  # (n, 1280), the trunk's own features
    numbers: NDArray[np.int64]
    videos: tuple[str, ...]  # names of the studies that `samples.study` counts
    digest: str  # of everything that scores depend on, except the method

    def rows_of(self, videos: Sequence[str]) -> NDArray[np.int64]:
        places = [self.videos.index(video) for video in videos]
        return np.flatnonzero(np.isin(self.samples.study, places))

    def summary(self) -> str:
        shown = self.samples.present.sum(axis=0)
        counts = ", ".join(f"{f} {n}" for f, n in zip(FINDINGS, shown, strict=True) if n)
        return f"{len(self.samples)} frames of {len(self.videos)} videos; with findings: {counts}"


def load_frames(data: Path, out: Path, protocol: Mapping) -> Frames:
    dataset = open_dataset(data)
    videos = tuple(sorted(video for fold in protocol["folds"] for video in fold))
    missing = sorted(set(videos) - set(dataset.studies))
    if missing:
        raise StudyError(
            f"the protocol's video {missing[0]} is not in '{data.name}'", "give all 33 videos"
        )
    backbone = lite_backbone().eval()
    encoder = MapEncoder(backbone.trunk, out / f"maps-{backbone.hash()[:12]}")
    maps, pooled, numbers, labels, cells, study = [], [], [], [], [], []
    for place, video in enumerate(videos):
        entry = dataset.studies[video]
        joined = entry.labelled_frames()
        video_maps, video_pooled, sizes = encoder.encode(video, entry, joined.frames)
        maps.append(video_maps)
        pooled.append(video_pooled)
        numbers.append(joined.frames)
        labels.append(joined.labels)
        cells.append(covered_cells(entry.boxes(), joined.frames, sizes))
        study.append(np.full(len(joined.frames), place))
    samples = PatchSamples(
        np.concatenate(maps),
        FrameLabels.concatenate(labels),
        np.concatenate(cells),
        np.concatenate(study),
    )
    digest = hashlib.sha256(PROTOCOL.read_bytes() + backbone.hash().encode())
    for array in (np.concatenate(numbers), samples.labels.present, samples.labels.known):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(samples.cells.tobytes())
    return Frames(
        samples, np.concatenate(pooled), np.concatenate(numbers), videos, digest.hexdigest()[:12]
    )


class MapEncoder:
    """Maps and pooled features of every video, in a file each."""

    def __init__(self, trunk: torch.nn.Module, folder: Path) -> None:
        self._trunk = trunk
        self._folder = folder
        self._session = None
        folder.mkdir(parents=True, exist_ok=True)

    def encode(
        self, video: str, entry: DatasetStudy, frames: NDArray[np.int64]
    ) -> tuple[NDArray[np.float16], NDArray[np.float32], dict[int, tuple[int, int]]]:
        path = self._folder / f"{video}.npz"
        if path.exists():
            stored = np.load(path)
            if np.array_equal(stored["frames"], frames):
                sizes = {int(f): (int(w), int(h)) for f, w, h in stored["sizes"]}
                return stored["maps"], stored["pooled"], sizes
        images, sizes = [], {}
        with entry.open() as study:
            for number in frames.tolist():
                image = study.frame(number).image
                assert image is not None, f"frame {number} of {video} cannot be read"
                sizes[number] = (image.shape[1], image.shape[0])
                images.append(image)
        maps, pooled = self._run(np.stack(images))
        table = np.array([(f, *size) for f, size in sizes.items()])
        np.savez(path, frames=frames, maps=maps, pooled=pooled, sizes=table)
        return maps, pooled, sizes

    def _run(
        self, images: NDArray[np.uint8], batch: int = 32
    ) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
        session = self._session = self._session or _onnx_session(self._trunk)
        maps = np.empty((len(images), CHANNELS, GRID, GRID), np.float16)
        pooled = np.empty((len(images), 1280), np.float32)
        for start in range(0, len(images), batch):
            rows = slice(start, start + batch)
            pixels = images[rows].transpose(0, 3, 1, 2).astype(np.float32)
            maps[rows], pooled[rows] = session.run(None, {"images": pixels / 127.5 - 1})  # pyright: ignore[reportCallIssue]
        return maps, pooled


def _onnx_session(trunk: torch.nn.Module) -> onnxruntime.InferenceSession:
    """ONNX Runtime: EfficientNet-Lite0 is many times as fast there as in torch."""

    class Maps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = trunk

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return patch_maps(self.trunk, images)

    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Maps().eval(),
            (torch.zeros(2, 3, 224, 224),),
            content,
            input_names=["images"],
            output_names=["maps", "pooled"],
            dynamic_axes={name: {0: "n"} for name in ("images", "maps", "pooled")},
            dynamo=False,
            opset_version=17,
        )
    return onnxruntime.InferenceSession(content.getvalue())


# ---- methods: trained on some rows, giving scores of others

Fit = Callable[[Frames, NDArray[np.int64], NDArray[np.int64], int], Scores]


@dataclass(frozen=True)
class Method:
    """What it is, for the table; and how it is trained and applied."""

    about: str
    fit: Fit
    seeded: bool = True


def pooled_features(
    frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> Scores:
    """Logistic regression on mean and maximum of the maps; strength chosen by the spec's trial."""
    maps = frames.samples.maps.astype(np.float32)
    features = np.concatenate([maps.mean((2, 3)), maps.max((2, 3))], axis=1)
    scaler = StandardScaler().fit(features[train])
    scores = np.zeros((len(test), len(FINDINGS)), np.float32)
    for finding in range(len(FINDINGS)):
        rows = train[frames.samples.known[train, finding]]
        truth = frames.samples.present[rows, finding]
        if truth.any() and not truth.all():
            model = LogisticRegression(C=1e-3, class_weight="balanced", max_iter=300)
            model.fit(scaler.transform(features[rows]), truth)
            scores[:, finding] = model.decision_function(scaler.transform(features[test]))
    return scores


def patches(*, relative: bool, study: bool) -> Fit:
    """The system's patch layer, with other descriptions of a patch."""

    def fit(frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> Scores:
        samples = _relative_to_study(frames.samples) if study else frames.samples
        evidence = LocalEvidence(samples.maps.shape[1], relative=relative)
        fit_local_evidence(samples[train], PatchOptions(seed=seed), evidence=evidence)
        scores = np.empty((len(test), len(FINDINGS)), np.float32)
        with torch.inference_mode():
            for start in range(0, len(test), 256):
                rows = test[start : start + 256]
                maps = torch.from_numpy(samples.maps[rows]).float()
                scores[start : start + 256] = evidence(maps).numpy()
        return scores

    return fit


def _relative_to_study(samples: PatchSamples) -> PatchSamples:
    """Maps with as many channels again: each relative to the mean and spread of its study."""
    relative = np.empty_like(samples.maps)
    for study in np.unique(samples.study):
        rows = samples.study == study
        maps = samples.maps[rows].astype(np.float32)
        spread = maps.std((0, 2, 3), keepdims=True) + 1e-3
        relative[rows] = (maps - maps.mean((0, 2, 3), keepdims=True)) / spread
    maps = np.concatenate([samples.maps, relative], axis=1)
    return PatchSamples(maps, samples.labels, samples.cells, samples.study)


METHODS: dict[str, Method] = {
    BASELINE: Method("frozen features, mean and maximum", pooled_features, seeded=False),
    "patches": Method("patches with boxes", patches(relative=False, study=False)),
    "patches-study": Method(
        "patches, also relative to frame and study", patches(relative=True, study=True)
    ),
    "evidence": Method(
        "local evidence: patches, also relative to their frame",
        patches(relative=True, study=False),
    ),
}


def left_out_scores(
    name: str, method: Method, frames: Frames, protocol: Mapping, out: Path, seed: int
) -> Scores:
    """Scores of every frame by the model that did not see its video."""
    scores = np.full((len(frames.samples), len(FINDINGS)), np.nan, np.float32)
    folder = out / f"scores-{frames.digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for fold, videos in enumerate(protocol["folds"]):
        test = frames.rows_of(videos)
        path = folder / f"{name}-{seed}-{fold}.npy"
        if not path.exists():
            train = np.setdiff1d(np.arange(len(frames.samples)), test)
            result = method.fit(frames, train, test, seed)
            partial = path.with_suffix(".part.npy")
            np.save(partial, result)
            partial.replace(path)
        scores[test] = np.load(path)
    return scores


# ---- figures


@dataclass(frozen=True)
class Pair:
    """A finding and a left-out video that shows it, with the rows that are compared."""

    finding: str
    video: str
    own: bool  # whether the negatives are of the same video
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]


def pairs_of(frames: Frames, protocol: Mapping) -> list[Pair]:
    pairs = []
    for entry in protocol["pairs"]:
        column = FINDINGS.index(entry["finding"])
        own = entry["negatives"] == "own"
        video_rows = frames.rows_of([entry["video"]])
        fold_rows = frames.rows_of(protocol["folds"][entry["fold"]])
        present, known = frames.samples.present[:, column], frames.samples.known[:, column]
        absent = known & ~present
        among = video_rows if own else fold_rows
        pairs.append(
            Pair(
                entry["finding"],
                entry["video"],
                own,
                video_rows[present[video_rows]],
                among[absent[among]],
            )
        )
    return pairs


def auc(positives: NDArray, negatives: NDArray) -> float:
    """Share of pairs of frames in the right order; ties count one half."""
    order = np.sort(negatives)
    below = np.searchsorted(order, positives, side="left")
    up_to = np.searchsorted(order, positives, side="right")
    return float((below + up_to).mean() / (2 * len(negatives)))


def mean_auc(scores: Sequence[Scores], pair: Pair) -> float:
    column = FINDINGS.index(pair.finding)
    return float(
        np.mean([auc(s[pair.positives, column], s[pair.negatives, column]) for s in scores])
    )


def blocks(rows: NDArray[np.int64], frames: Frames) -> list[NDArray[np.int64]]:
    """Runs of consecutive frames of a video, cut into blocks."""
    breaks = np.flatnonzero(
        (np.diff(frames.numbers[rows]) != 1) | (np.diff(frames.samples.study[rows]) != 0)
    )
    runs = np.split(rows, breaks + 1)
    return [run[i : i + BLOCK] for run in runs for i in range(0, len(run), BLOCK)]


def difference_interval(
    first: Sequence[Scores], second: Sequence[Scores], pair: Pair, frames: Frames
) -> tuple[float, float]:
    """95 % interval of the difference of AUC in one pair, over blocks of frames."""
    rng = np.random.default_rng(0)
    column = FINDINGS.index(pair.finding)
    positive, negative = blocks(pair.positives, frames), blocks(pair.negatives, frames)
    differences = []
    for _ in range(RESAMPLES):
        p = np.concatenate([positive[i] for i in rng.integers(len(positive), size=len(positive))])
        n = np.concatenate([negative[i] for i in rng.integers(len(negative), size=len(negative))])
        a, b = (
            np.mean([auc(s[p, column], s[n, column]) for s in scores]) for scores in (first, second)
        )
        differences.append(a - b)
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


def macro_interval(values: Sequence[float], pairs: Sequence[Pair]) -> tuple[float, float]:
    """95 % interval of the macro mean: pairs are resampled within each finding."""
    rng = np.random.default_rng(0)
    array = np.array(values)
    findings = list(dict.fromkeys(pair.finding for pair in pairs))
    places = [np.array([i for i, p in enumerate(pairs) if p.finding == f]) for f in findings]
    draws = [
        np.mean([array[rng.choice(place, size=len(place))].mean() for place in places])
        for _ in range(2000)
    ]
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def print_tables(
    results: Mapping[str, Sequence[Scores]], frames: Frames, protocol: Mapping
) -> None:
    pairs = pairs_of(frames, protocol)
    findings = list(dict.fromkeys(pair.finding for pair in pairs))
    values = {name: [mean_auc(scores, pair) for pair in pairs] for name, scores in results.items()}
    width = max(len(METHODS[name].about) for name in results)
    print(f"\nAUC on left-out videos, mean over videos ({len(pairs)} pairs of finding and video)\n")
    head = " ".join(f"{finding[:9]:>9}" for finding in findings)
    print(f"{'':{width}} {'macro':>6} {'95 %':>12} {'own':>5} {'others':>6} {head}")
    for name in results:
        array = np.array(values[name])
        per_finding = [
            array[[pair.finding == finding for pair in pairs]].mean() for finding in findings
        ]
        low, high = macro_interval(values[name], pairs)
        own = np.array([pair.own for pair in pairs])
        cells = " ".join(f"{value:9.2f}" for value in per_finding)
        print(
            f"{METHODS[name].about:{width}} {np.mean(per_finding):6.3f} [{low:.3f}, {high:.3f}] "
            f"{array[own].mean():5.2f} {array[~own].mean():6.2f} {cells}"
        )
    print("\nown, others: mean over pairs whose negatives are of the same video, of other videos")
    for name in results:
        if name == BASELINE:
            continue
        print(f"\n{METHODS[name].about}, minus {METHODS[BASELINE].about}, pair by pair")
        differences = []
        for index, pair in enumerate(pairs):
            difference = values[name][index] - values[BASELINE][index]
            differences.append(difference)
            low, high = difference_interval(results[name], results[BASELINE], pair, frames)
            kind = "own" if pair.own else "others"
            print(
                f"  {pair.finding:18} {pair.video} {kind:6} {len(pair.positives):4} frames  "
                f"{values[name][index]:.2f}  {difference:+.2f} [{low:+.2f}, {high:+.2f}]"
            )
        low, high = macro_interval(differences, pairs)
        array = np.array(differences)
        mean = np.mean(
            [array[[p.finding == finding for p in pairs]].mean() for finding in findings]
        )
        print(f"  macro {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
