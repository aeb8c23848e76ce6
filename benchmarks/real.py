"""Findings on real frames: AUC on left-out videos of Kvasir-Capsule, by a fixed protocol.

`real_protocol.json` fixes folds, pairs of finding and video, and negatives. Every method is trained
once per fold and tested on the videos of that fold. Encoded frames and scores are kept in --out, so
a run that was stopped resumes. Needs the frames of ../shared (or --data).
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks._real_trunk import large_input, tuned_stages
from enteron.context import log_odds
from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.kvasir import RECORDING_FRAMES
from enteron.datasets.layouts import open_dataset
from enteron.datasets.splits import Split, save_split
from enteron.errors import StudyError
from enteron.fitting.context import choose_context
from enteron.fitting.frames import LabelledStudy
from enteron.fitting.measuring import frame_auc
from enteron.folders.model import load_model
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import ImageBatch
from enteron.inference.onnx_runtime import MapEncoder
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.inference.runtimes import default_runtime, make_encoder, make_map_encoder
from enteron.inference.score import score_study
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.model.backbones import Backbone
from enteron.model.network import Network, start_network
from enteron.model.options import FEATURES, ModelOptions
from enteron.model.patches import LocalEvidence
from enteron.model.preprocessing import Border, window_rows
from enteron.progress import SilentProgress
from enteron.training import run as training_run
from enteron.training.features import FeatureSource, StudyFeatures
from enteron.training.loop import TrainingLoop
from enteron.training.options import recipe
from enteron.training.patches import (
    Part,
    PatchSamples,
    covered_cells,
    encode_maps,
    evidence_of,
    evidence_scales,
    fit_local_evidence,
    left_out_evidence,
)
from enteron.training.plan import TrainingRequest, make_plan
from enteron.training.sampling import StudySamples
from enteron.types import FrameAxis, FrameLabels
from enteron.types import Scores as StudyScores

ROOT = Path(__file__).parents[1]
PROTOCOL = Path(__file__).with_name("real_protocol.json")
BASELINE = "pooled"
RESAMPLES = 500
BLOCK = 25  # consecutive frames are near-copies: intervals resample blocks of them
VALIDATION = 0.15  # of a fold's training videos, at least two

Scores = NDArray[np.float32]  # (frames, 9)
_FIRST_FINDING = COLUMN[FINDINGS[0]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/frames/kvasir-capsule")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/real")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=[name for name in METHODS if name not in ON_REQUEST],
    )
    parser.add_argument(
        "--clips", action="store_true", help="also the mean of each method over three frames"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of methods that draw frames")
    parser.add_argument("--border", choices=["kept", "masked"], default="kept")
    parser.add_argument(
        "--against", choices=METHODS, default=BASELINE, help="of the paired differences"
    )
    options = parser.parse_args()
    if not options.data.is_dir():
        raise StudyError(
            "the real frames of ../shared are not here", "name their folder with --data"
        )
    protocol = json.loads(PROTOCOL.read_text())
    frames = load_frames(options.data, options.out, protocol, options.border)
    print(frames.summary())
    results: dict[str, list[Scores]] = {}
    for name in dict.fromkeys([BASELINE, options.against, *options.methods]):
        method = METHODS[name]
        seeds = min(options.seeds, method.seeds)
        start = time.perf_counter()
        results[name] = [
            left_out_scores(name, method, frames, protocol, options.out, seed)
            for seed in range(seeds)
        ]
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    if options.clips:
        everything = np.arange(len(frames.samples))
        for name in list(results):
            results[name + CLIPS] = [over_clips(s, frames, everything) for s in results[name]]
    print_tables(results, frames, protocol, options.against)
    for name in results:
        print_operating_points(about(name), results[name][0], frames)


# ---- frames, encoded once


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of the protocol's videos."""

    samples: PatchSamples
    features: NDArray[np.float32]  # (n, 512), pooled and projected as the system does
    numbers: NDArray[np.int64]
    videos: tuple[str, ...]  # names of the studies that `samples.study` counts
    tested: tuple[str, ...]  # findings of the protocol's pairs
    border: Border
    root: Path  # the data
    studies: Mapping[str, DatasetStudy]
    work: Path  # for model folders
    digest: str  # of everything that scores depend on, except the method

    def rows_of(self, videos: Sequence[str]) -> NDArray[np.int64]:
        places = [self.videos.index(video) for video in videos]
        return np.flatnonzero(np.isin(self.samples.study, places))

    def summary(self) -> str:
        shown = self.samples.present.sum(axis=0)
        counts = ", ".join(f"{f} {n}" for f, n in zip(FINDINGS, shown, strict=True) if n)
        return (
            f"{len(self.samples)} frames of {len(self.videos)} videos, border {self.border}; with "
            f"findings: {counts}"
        )


def load_frames(data: Path, out: Path, protocol: Mapping, border: Border = "kept") -> Frames:
    dataset = open_dataset(data)
    videos = tuple(sorted(video for fold in protocol["folds"] for video in fold))
    missing = sorted(set(videos) - set(dataset.studies))
    if missing:
        raise StudyError(
            f"the protocol's video {missing[0]} is not in '{data.name}'", "give all 33 videos"
        )
    backbone = start_network(ModelOptions(backbone="lite", border=border)).backbone.eval()
    key = f"{backbone.hash()[:8]}-{backbone.spec.preprocessing.images_hash()[:8]}"
    encoder: MapEncoder | None = None
    maps, features, numbers, labels, cells, study = [], [], [], [], [], []
    for place, video in enumerate(videos):
        entry = dataset.studies[video]
        joined = entry.labelled_frames()
        path = out / f"maps-{key}" / f"{video}.npz"
        if not path.exists():
            encoder = encoder or make_map_encoder(backbone)
            _store_maps(path, entry, joined.frames, encoder)
        stored = np.load(path)
        assert np.array_equal(stored["frames"], joined.frames), f"{path} is of other frames"
        maps.append(stored["maps"])
        features.append(stored["features"])
        numbers.append(joined.frames)
        labels.append(joined.labels)
        parts: dict[int, Part] = {
            int(f): (int(x), int(y), int(w), int(h)) for f, x, y, w, h in stored["parts"]
        }
        cells.append(covered_cells(entry.boxes(), joined.frames, parts))
        study.append(np.full(len(joined.frames), place))
    samples = PatchSamples(
        np.concatenate(maps),
        FrameLabels.concatenate(labels),
        np.concatenate(cells),
        np.concatenate(study),
        np.concatenate(numbers),
    )
    digest = hashlib.sha256(PROTOCOL.read_bytes() + key.encode())
    for array in (np.concatenate(numbers), samples.labels.present, samples.labels.known):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(samples.cells.tobytes())
    return Frames(
        samples,
        np.concatenate(features),
        np.concatenate(numbers),
        videos,
        tuple(dict.fromkeys(pair["finding"] for pair in protocol["pairs"])),
        border,
        data,
        dataset.studies,
        out / "work",
        digest.hexdigest()[:12],
    )


def _store_maps(
    path: Path, entry: DatasetStudy, frames: NDArray[np.int64], encoder: MapEncoder
) -> None:
    with entry.open() as study:
        maps, features, shown, readable = encode_maps(study, frames, encoder)
    assert readable.all(), "a labelled frame cannot be read"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    parts = np.array([(number, *part) for number, part in shown.items()])
    np.savez(partial, frames=frames, maps=maps, features=features, parts=parts)
    partial.replace(path)


# ---- methods: trained on some rows, giving scores of others

Fit = Callable[[Frames, NDArray[np.int64], NDArray[np.int64], int], Scores]


@dataclass(frozen=True)
class Method:
    """What it is, for the table; and how it is trained and applied."""

    about: str
    fit: Fit
    seeds: int = 100  # at most; 1 for a method without chance, or one that takes long


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
        fit_local_evidence(samples[train], seed=seed, evidence=evidence)
        return evidence_of(evidence, samples.maps, test)

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
    return PatchSamples(maps, samples.labels, samples.cells, samples.study, samples.frame)


def split_of(frames: Frames, train: NDArray[np.int64]) -> Split:
    """Which of the training videos validate: some that show none of the tested findings.

    Nearly all videos with these findings train, since there are one to six of each. Videos with
    other findings validate first, so that there is something to choose the epoch by.
    """
    study = frames.samples.study
    columns = [FINDINGS.index(finding) for finding in frames.tested]
    videos = [int(place) for place in np.unique(study[train])]
    shown = {p: np.logical_or.reduce(frames.samples.present[study == p]) for p in videos}
    others = [place for place in videos if not shown[place][columns].any()]
    others.sort(key=lambda place: not shown[place].any())
    val = set(others[: max(2, round(VALIDATION * len(videos)))])
    if not any(shown[place].any() for place in val):
        # One more, of a finding that many videos show, and with few frames of it.
        videos_of = np.sum([shown[place] for place in videos], axis=0)
        single = [place for place in videos if shown[place].sum() == 1]
        frames_of = {p: frames.samples.present[study == p].sum() for p in single}
        val.add(min(single, key=lambda p: (-videos_of[shown[p]].max(), frames_of[p])))
    names = [
        tuple(frames.videos[p] for p in videos if (p in val) == is_val) for is_val in (False, True)
    ]
    return Split(names[0], names[1], (), "real_protocol.json")


def paper_head(
    frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> Scores:
    """The paper's network after a frozen backbone, by the recipe `lite`."""
    options = recipe("lite", seed=42 + seed)
    split = split_of(frames, train)

    def source(videos: Sequence[str]) -> FeatureSource:
        studies = []
        for video in videos:
            rows = frames.rows_of([video])
            labels = frames.samples.labels[rows]
            taught = np.flatnonzero(labels.informative)
            samples = StudySamples(video, frames.numbers[rows], taught, labels[taught])
            features = frames.features[rows][:, None]  # one view
            studies.append(StudyFeatures(samples, features, np.arange(len(rows))))
        return FeatureSource(studies, options.model.frames, options.model.neighbour_step)

    network = start_network(options.model, options.seed)
    loop = TrainingLoop(network, source(split.train), source(split.val), options)
    trained = loop.run().network.eval()
    scores = np.empty((len(test), len(FINDINGS)), np.float32)
    for place in np.unique(frames.samples.study[test]):
        own = np.flatnonzero(frames.samples.study[test] == place)
        windows = window_rows(len(own), options.model.neighbour_step, options.model.frames)
        with torch.inference_mode():
            features = torch.from_numpy(frames.features[test[own]])
            outputs = trained.classify_study(features, torch.from_numpy(windows))
        scores[own] = outputs.logits[:, _FIRST_FINDING:].numpy()
    return scores


class StoredTrunk:
    """Maps and features by the bytes of the image: the frozen trunk is the same in all folds.

    Without it every fold would encode all frames again. Maps are stored in half precision, as they
    are for fitting; `system` prints how far that moves embeddings.
    """

    def __init__(self, frames: Frames) -> None:
        backbone = start_network(ModelOptions(backbone="lite", border=frames.border)).backbone
        self._encoder = make_map_encoder(backbone.eval())
        self.preprocessing = self._encoder.preprocessing
        self._rows: dict[bytes, tuple[NDArray[np.float16], NDArray[np.float32]]] = {}
        for video in frames.videos:
            rows = frames.rows_of([video])
            with frames.studies[video].open() as study:
                fields = study_fields(study, self.preprocessing)
                for row in rows.tolist():
                    frame = study.frame(int(frames.numbers[row]))
                    image = prepare_frame(frame, self.preprocessing, fields).image
                    assert image is not None
                    self._rows[_image_digest(image)] = (
                        frames.samples.maps[row],
                        frames.features[row],
                    )

    def encode(self, images: ImageBatch) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
        """The same as `MapEncoder.encode`."""
        digests = [_image_digest(image) for image in images]
        new = [place for place, digest in enumerate(digests) if digest not in self._rows]
        if new:
            for place, maps, features in zip(new, *self._encoder.encode(images[new]), strict=True):
                self._rows[digests[place]] = (maps, features)
        rows = [self._rows[digest] for digest in digests]
        return np.stack([maps for maps, _ in rows]), np.stack([features for _, features in rows])


class StoredTrunkEncoder:
    """An `Encoder` of a backbone with local evidence whose trunk's outputs are stored."""

    runtime = "onnx"
    batch = 16

    def __init__(self, trunk: StoredTrunk, backbone: Backbone) -> None:
        assert backbone.evidence is not None
        self.backbone_hash, self.width = backbone.hash(), backbone.spec.width
        self.preprocessing = backbone.spec.preprocessing
        self._trunk, self._evidence = trunk, backbone.evidence

    def encode(self, images: ImageBatch) -> NDArray[np.float32]:
        maps, features = self._trunk.encode(images)
        with torch.inference_mode():
            evidence = self._evidence(torch.from_numpy(maps).float()).numpy()
        return np.concatenate((features, evidence), axis=1)


def _image_digest(image: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(image).data).digest()


@cache
def _stored_trunk(frames: Frames) -> StoredTrunk:
    return StoredTrunk(frames)


def system(frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> Scores:
    """`enteron train` with local evidence, then embeddings and scores, all by the system's code.

    Only the outputs of the frozen trunk are stored over folds.
    """
    trunk = _stored_trunk(frames)
    split = split_of(frames, train)
    folder = frames.work / f"{frames.border}-{split.hash}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_split(split, folder / "split.json")
    options = recipe(
        "lite", seed=42 + seed, model={"local_evidence": True, "border": frames.border}
    )
    request = TrainingRequest((frames.root,), folder / "model", options, folder / "split.json")
    with (
        patch.object(training_run, "make_map_encoder", lambda backbone: trunk),
        patch.object(
            training_run, "make_encoder", lambda backbone, _: StoredTrunkEncoder(trunk, backbone)
        ),
    ):
        training_run.run_training(make_plan(request, SilentProgress()), SilentProgress())
    network, _ = load_model(folder / "model")
    encoder = StoredTrunkEncoder(trunk, network.backbone)
    scores = np.full((len(test), len(FINDINGS)), np.nan, np.float32)
    for place in np.unique(frames.samples.study[test]):
        video = frames.videos[place]
        with frames.studies[video].open() as study:
            embeddings = embed_study(study, encoder, folder / f"{video}.npy", EmbedOptions())
        result = score_study(network, embeddings)
        own = np.flatnonzero(frames.samples.study[test] == place)
        rows = np.searchsorted(result.axis.frames, frames.numbers[test[own]])
        scores[own] = result.values[rows, _FIRST_FINDING:]
    _print_drift(network, encoder, frames.studies[frames.videos[frames.samples.study[test[0]]]])
    shutil.rmtree(folder)
    return scores


def _print_drift(network: Network, stored: StoredTrunkEncoder, entry: DatasetStudy) -> None:
    """How far stored outputs of the trunk move embeddings, on some frames of a left-out video."""
    with entry.open() as study:
        fields = study_fields(study, stored.preprocessing)
        some = [study.frame(int(number)) for number in study.numbers[:: max(1, len(study) // 16)]]
        images = [prepare_frame(frame, stored.preprocessing, fields).image for frame in some]
    batch = np.stack([image for image in images if image is not None])
    exact = make_encoder(network.backbone, default_runtime(network.backbone)).encode(batch)
    difference = np.abs(stored.encode(batch) - exact).max(axis=0)
    print(
        f"stored trunk: features move by at most {difference[:FEATURES].max():.1e}, evidence by "
        f"{difference[FEATURES:].max():.1e} (logits)",
        flush=True,
    )


def default_model(
    frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> Scores:
    """Findings of the recipe `default`: local evidence alone, its mean over the clip.

    The head of that recipe learns from drawings and has no part in findings.
    """
    options = recipe("default")
    evidence = fit_local_evidence(
        frames.samples[train], options.patches, seed=seed, evidence=LocalEvidence()
    )
    return over_clips(evidence_of(evidence, frames.samples.maps, test), frames, test)


def over_clips(scores: Scores, frames: Frames, rows: NDArray[np.int64]) -> Scores:
    """The mean over the frames of each clip, as the recipe `default` takes it."""
    model = recipe("default").model
    means = np.empty_like(scores)
    for place in np.unique(frames.samples.study[rows]):
        own = np.flatnonzero(frames.samples.study[rows] == place)
        windows = window_rows(len(own), model.neighbour_step, model.frames)
        means[own] = scores[own][windows].mean(axis=1)
    return means


def default_with_context(
    frames: Frames, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> Scores:
    """The same, refined by the scores around each frame in time.

    Scales and context are fitted on evidence of training videos by layers that had not seen them,
    as `enteron train` and `enteron calibrate` do.
    """
    samples = frames.samples[train]
    left_out = left_out_evidence(samples, recipe("default").patches, seed=seed)
    left_out = over_clips(left_out, frames, train)
    scales, biases = evidence_scales(left_out, samples)
    studies = [
        LabelledStudy(
            video_scores(frames, train[own], left_out[own] * scales + biases),
            samples.labels.present[own],
            samples.labels.known[own],
            recording_frames=RECORDING_FRAMES,
        )
        for place in np.unique(samples.study)
        if (own := np.flatnonzero(samples.study == place)).size
    ]
    fitted = choose_context(studies)
    print(f"context: {fitted.gains}, {fitted.context}", flush=True)
    scores = default_model(frames, train, test, seed) * scales + biases
    if fitted.context is None:
        return scores
    for place in np.unique(frames.samples.study[test]):
        own = np.flatnonzero(frames.samples.study[test] == place)
        refined = fitted.context.refined(video_scores(frames, test[own], scores[own]))
        scores[own] = log_odds(refined)[:, _FIRST_FINDING:]
    return scores


def video_scores(frames: Frames, rows: NDArray[np.int64], logits: Scores) -> StudyScores:
    """Findings of frames of one video; one half for anatomy, about which nothing is said."""
    values = np.full((len(rows), len(LABELS)), 0.5, np.float32)
    values[:, _FIRST_FINDING:] = expit(logits)
    video = frames.videos[frames.samples.study[rows[0]]]
    return StudyScores(video, FrameAxis(frames.numbers[rows]), values)


METHODS: dict[str, Method] = {
    BASELINE: Method("frozen features, mean and maximum", pooled_features, seeds=1),
    "head": Method("the paper's head on frozen features", paper_head),
    "patches": Method("patches with boxes", patches(relative=False, study=False)),
    "patches-study": Method(
        "patches, also relative to frame and study", patches(relative=True, study=True)
    ),
    "evidence": Method(
        "local evidence: patches, also relative to their frame",
        patches(relative=True, study=False),
    ),
    "system": Method("the system: local evidence and the paper's head", system, seeds=1),
    "default": Method("the recipe default: local evidence over the clip", default_model),
    "default-context": Method("the recipe default, with context", default_with_context),
    "large": Method("local evidence of 320 pixels", large_input, seeds=1),
    "tuned": Method("local evidence, the last two stages fine-tuned", tuned_stages, seeds=1),
}

ON_REQUEST = ("large", "tuned")
"""Attempts that the shipped model does not use; they take half an hour each."""


CLIPS = " over clips"


def about(name: str) -> str:
    """What a row of the table is."""
    method = METHODS[name.removesuffix(CLIPS)].about
    return f"{method}, over clips" if name.endswith(CLIPS) else method


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


def mean_auc(scores: Sequence[Scores], pair: Pair) -> float:
    column = FINDINGS.index(pair.finding)
    return float(
        np.mean([frame_auc(s[pair.positives, column], s[pair.negatives, column]) for s in scores])
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
            np.mean([frame_auc(s[p, column], s[n, column]) for s in scores])
            for scores in (first, second)
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
    results: Mapping[str, Sequence[Scores]], frames: Frames, protocol: Mapping, against: str
) -> None:
    pairs = pairs_of(frames, protocol)
    findings = list(dict.fromkeys(pair.finding for pair in pairs))
    values = {name: [mean_auc(scores, pair) for pair in pairs] for name, scores in results.items()}
    width = max(len(about(name)) for name in results)
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
            f"{about(name):{width}} {np.mean(per_finding):6.3f} [{low:.3f}, {high:.3f}] "
            f"{array[own].mean():5.2f} {array[~own].mean():6.2f} {cells}"
        )
    print("\nown, others: mean over pairs whose negatives are of the same video, of other videos")
    for name in results:
        if name == against:
            continue
        print(f"\n{about(name)}, minus {about(against)}, pair by pair")
        differences = []
        for index, pair in enumerate(pairs):
            difference = values[name][index] - values[against][index]
            differences.append(difference)
            low, high = difference_interval(results[name], results[against], pair, frames)
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


SPECIFICITY = 0.9
FALSE_EVENTS = 5  # per video
BRIDGED = 2  # frames of an event that may lie below the threshold


def print_operating_points(about: str, scores: Scores, frames: Frames) -> None:
    """Sensitivity of frames at 90 % specificity, and lesions found at 5 false events a video.

    A lesion is a run of consecutive frames with the finding. One threshold per finding for all
    videos. Intervals are over videos with the finding.
    """
    print(f"\n{about} (seed 0)")
    print(
        f"{'':18} {'videos':>6} {'sensitivity at 90 % specificity':>32} {'lesions':>8} "
        f"{'found at 5 false events a video':>32}"
    )
    for finding in frames.tested:
        column = FINDINGS.index(finding)
        values = scores[:, column]
        present = frames.samples.present[:, column]
        absent = frames.samples.known[:, column] & ~present
        threshold = np.quantile(values[absent], SPECIFICITY)
        videos = np.unique(frames.samples.study[present])
        shares = [
            float((values[present & (frames.samples.study == v)] > threshold).mean())
            for v in videos
        ]
        found = lesions_found(values, present, absent, frames)
        print(
            f"{finding:18} {len(videos):6} {np.mean(shares):18.2f} {interval_text(shares)} "
            f"{len(found):8} {np.mean(found):18.2f} {interval_text(found)}"
        )


def lesions_found(
    values: NDArray[np.float32],
    present: NDArray[np.bool_],
    absent: NDArray[np.bool_],
    frames: Frames,
) -> list[bool]:
    """Whether each lesion is found at the threshold with so many false events in the mean video."""
    count = len(np.unique(frames.samples.study[absent]))
    order = np.unique(values[absent])[::-1]
    low, high = 0, len(order) - 1
    while low < high:  # the lowest threshold that is allowed
        middle = (low + high + 1) // 2
        if len(events_above(values, absent, order[middle], frames)) <= FALSE_EVENTS * count:
            low = middle
        else:
            high = middle - 1
    return [bool((values[run] > order[low]).any()) for run in runs_in(present, frames)]


def events_above(
    values: NDArray[np.float32], among: NDArray[np.bool_], threshold: float, frames: Frames
) -> list[NDArray[np.int64]]:
    """Runs of rows above a threshold, short dips bridged."""
    above = runs_in(among & (values > threshold), frames)
    merged: list[NDArray[np.int64]] = []
    for run in above:
        same = merged and frames.samples.study[merged[-1][-1]] == frames.samples.study[run[0]]
        if same and frames.numbers[run[0]] - frames.numbers[merged[-1][-1]] <= 1 + BRIDGED:
            merged[-1] = np.concatenate([merged[-1], run])
        else:
            merged.append(run)
    return merged


def runs_in(chosen: NDArray[np.bool_], frames: Frames) -> list[NDArray[np.int64]]:
    """Runs of consecutive frames of one video."""
    rows = np.flatnonzero(chosen)
    if not rows.size:
        return []
    breaks = (np.diff(frames.numbers[rows]) != 1) | (np.diff(frames.samples.study[rows]) != 0)
    return np.split(rows, np.flatnonzero(breaks) + 1)


def interval_text(values: Sequence[float] | Sequence[bool]) -> str:
    """95 % interval of a mean by resampling."""
    array = np.asarray(values, float)
    rng = np.random.default_rng(0)
    means = [rng.choice(array, len(array)).mean() for _ in range(2000)]
    low, high = np.quantile(means, (0.025, 0.975))
    return f"[{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
