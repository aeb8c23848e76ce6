"""Regions and findings that models of drawings see in real frames, before and after.

`enteron bench real_regions`. Models of the recipe `lite` are trained on synthetic studies, drawn
with the renderer before it was fitted to real frames or with the present one, and on both drawings
and the real frames of Kvasir-Capsule. Four folds: each model leaves out a quarter of the drawn
studies and the videos of one fold of `real_protocol.json`, and is tested on those only. Real frames
say that mouth and esophagus are absent; one row leaves all their regions unknown. Drawings, stored
features, models and scores are kept in --out, so a run that was stopped resumes. Needs the frames
of ../shared (or --data).
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._renderers import BEFORE, renderer_environment, renderer_hash
from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.layouts import open_sources
from enteron.datasets.splits import Split, save_split
from enteron.errors import StudyError
from enteron.folders.model import load_model
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.model.backbones import lite_backbone
from enteron.progress import SilentProgress
from enteron.training.options import recipe
from enteron.training.plan import TrainingRequest, is_finished, is_started, make_plan
from enteron.training.run import run_training
from enteron.training.sampling import Samples, StudySamples
from enteron.types import FrameLabels

ROOT = Path(__file__).resolve().parents[1]
PROTOCOL = json.loads(Path(__file__).with_name("real_protocol.json").read_text())
RARITY = 0.5  # findings in more studies than in reality: 24 studies would lack some
RESAMPLES = 500

Scores = NDArray[np.float32]  # (frames, 17)


@dataclass(frozen=True)
class Model:
    """A row of the tables: what trains."""

    about: str
    renderer: str | None = None
    real: bool = False  # whether real frames train too
    regions: bool = True  # whether real frames say that mouth and esophagus are absent


MODELS = {
    "before": Model("drawings, renderer before", renderer=BEFORE),
    "drawings": Model("drawings"),
    "unknown": Model("drawings + real frames, all regions unknown", real=True, regions=False),
    "real": Model("drawings + real frames", real=True),
}
BASELINE = "drawings"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/frames/kvasir-capsule")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/real_regions")
    parser.add_argument("--studies", type=int, default=24, help="to draw")
    parser.add_argument("--frames", type=int, default=300, help="of each drawn study")
    parser.add_argument("--seed", type=int, default=4100, help="of the drawings")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    if not options.data.is_dir():
        raise StudyError(
            "the real frames of ../shared are not here", "name their folder with --data"
        )
    results: dict[str, Result] = {}
    for name in options.models:
        model = MODELS[name]
        drawn = draw(model.renderer, options.out, options.studies, options.frames, options.seed)
        data = Data(drawn, options.data, options.out / "features")
        results[name] = Result(data, [scores_of(data, name, f, options.out) for f in folds()])
        print(f"{model.about}: {len(results[name].scores)} models", flush=True)
    print_regions(results)
    print_recall(results)
    print_findings(results)


def folds() -> range:
    return range(len(PROTOCOL["folds"]))


# ---- data


def draw(renderer: str | None, out: Path, studies: int, frames: int, seed: int) -> Path:
    """A root of synthetic PillCam and Olympus studies by that renderer."""
    root = out / f"drawn-{renderer_hash(renderer)[:8]}"
    out.mkdir(parents=True, exist_ok=True)
    numbers = {"studies": studies, "frames": frames, "seed": seed, "rarity": RARITY}
    command = [sys.executable, "-m", "enteron", "phantom", str(root), "--device", "mixed"]
    for option, number in numbers.items():
        command += [f"--{option}", str(number)]
    environment = renderer_environment(renderer)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return root


class Data:
    """Drawn studies and real videos under their keys, and their features, stored once."""

    def __init__(self, drawn: Path, real: Path, features: Path) -> None:
        self.roots = (drawn, real)
        self.features = features
        features.mkdir(parents=True, exist_ok=True)
        first, second = open_sources(self.roots)
        self.drawn = {first.key(study): entry for study, entry in first.dataset.studies.items()}
        self.real = {second.key(study): entry for study, entry in second.dataset.studies.items()}
        self._videos = {study: second.key(study) for study in second.dataset.studies}
        missing = {video for fold in PROTOCOL["folds"] for video in fold} - set(self._videos)
        if missing:
            raise StudyError(
                f"the protocol's video {min(missing)} is not in '{real.name}'", "give all 33 videos"
            )

    def drawn_of(self, fold: int) -> list[str]:
        """A quarter of the drawn studies; devices alternate, so two in a row stay together."""
        return [key for place, key in enumerate(self.drawn) if place // 2 % len(folds()) == fold]

    def real_of(self, fold: int) -> list[str]:
        return [self._videos[video] for video in PROTOCOL["folds"][fold]]

    def video(self, name: str) -> str:
        return self._videos[name]

    def split(self, fold: int, *, real: bool) -> Split:
        """Test: the fold. Validation: half of the next one's drawings, three of its videos."""
        following = (fold + 1) % len(folds())
        test = self.drawn_of(fold) + (self.real_of(fold) if real else [])
        drawn = self.drawn_of(following)
        val = drawn[: len(drawn) // 2] + (self.real_of(following)[:3] if real else [])
        studies = [*self.drawn, *(self.real if real else ())]
        train = [key for key in studies if key not in {*test, *val}]
        return Split(tuple(train), tuple(val), tuple(test), f"fold {fold}")


# ---- models


@dataclass(frozen=True)
class StudyScores:
    """A study's labelled frames."""

    labels: FrameLabels
    scores: Scores


@dataclass(frozen=True)
class Result:
    """Scores of the models of all folds: of every real video and the drawings they left out."""

    data: Data
    scores: list[dict[str, StudyScores]]  # by fold, then by study


def _without_regions(samples: StudySamples) -> StudySamples:
    known = samples.labels.known.copy()
    known[:, : len(REGIONS)] = False
    labels = FrameLabels(samples.labels.present, known)
    rows = np.flatnonzero(labels.informative)
    return replace(samples, rows=samples.rows[rows], labels=labels[rows])


def scores_of(data: Data, name: str, fold: int, out: Path) -> dict[str, StudyScores]:
    """Train the model of a fold, unless an earlier run did, and score what it is tested on."""
    model, options = MODELS[name], recipe("lite")
    split = data.split(fold, real=model.real)
    split_file = out / "splits" / f"{split.hash}.json"
    split_file.parent.mkdir(parents=True, exist_ok=True)
    save_split(split, split_file)
    request = TrainingRequest(data.roots, out / "plan", options, split_file, data.features)
    plan = make_plan(request, SilentProgress())
    if not model.regions:
        train, val = (
            [_without_regions(s) if s.study in data.real else s for s in part]
            for part in (plan.train, plan.val)
        )
        plan = replace(plan, train=train, val=val)
    content = [Samples(plan.train).hash(), Samples(plan.val).hash(), options.model_dump_json()]
    content += [lite_backbone().hash(), data.roots[0].name]
    key = hashlib.sha256("/".join(content).encode()).hexdigest()[:12]
    folder = out / "models" / f"{name}-{fold}-{key}"
    request = replace(request, out=folder, resume=is_started(folder))
    if not is_finished(folder):
        run_training(replace(plan, request=request), SilentProgress())
    studies = {key: data.drawn[key] for key in data.drawn_of(fold)} | data.real
    stored = out / "scores" / f"{key}.npz"
    if not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        network = load_model(folder)[0].eval()
        encoder = make_encoder(network.backbone, default_runtime(network.backbone))
        arrays: dict[str, Scores] = {}
        for study, entry in studies.items():
            path = data.features / f"{study}.npy"
            embeddings = embed_study(entry.open(), encoder, path, EmbedOptions())
            arrays[study] = score_study(network, embeddings).values
        partial = stored.with_suffix(".part.npz")
        np.savez(partial, **arrays)  # pyright: ignore[reportArgumentType]
        partial.replace(stored)
    arrays = dict(np.load(stored))
    return {study: _labelled(entry, arrays[study]) for study, entry in studies.items()}


def _labelled(entry: DatasetStudy, scores: Scores) -> StudyScores:
    """The rows that have labels; every frame here is readable."""
    study = entry.open()
    labelled = entry.labelled_frames(study)
    return StudyScores(labelled.labels, scores[np.searchsorted(study.numbers, labelled.frames)])


# ---- tables


def _interval(statistic: Callable[[NDArray[np.int64]], float], count: int) -> tuple[float, float]:
    """95 % interval by resampling `count` studies or videos."""
    rng = np.random.default_rng(0)
    draws = [statistic(rng.integers(count, size=count)) for _ in range(RESAMPLES)]
    low, high = np.nanquantile(draws, (0.025, 0.975))
    return float(low), float(high)


def _called(scores: Scores) -> NDArray[np.int64]:
    """The most probable region of every frame."""
    return scores[:, : len(REGIONS)].argmax(axis=1)


def print_regions(results: dict[str, Result]) -> None:
    """The region of real frames, each by the model that left its video out."""
    print("\nmost probable region of real small-bowel frames, left-out videos, % of frames")
    print(f"{'':44}" + "".join(f"{name[:9]:>11}" for name in REGIONS), end="")
    print(f"{'mouth or esophagus':>22}{'mean of videos':>16}")
    for name, result in results.items():
        videos = [
            np.bincount(_called(result.scores[fold][key].scores), minlength=len(REGIONS))
            for fold in folds()
            for key in result.data.real_of(fold)
        ]
        counts = np.array(videos)
        shares = 100 * counts.sum(axis=0) / counts.sum()

        def upper(rows: NDArray[np.int64], counts: NDArray[np.int64] = counts) -> float:
            return 100 * counts[rows][:, :2].sum() / counts[rows].sum()

        low, high = _interval(upper, len(counts))
        mean = 100 * (counts[:, :2].sum(axis=1) / counts.sum(axis=1)).mean()
        print(f"{MODELS[name].about:44}" + "".join(f"{share:11.1f}" for share in shares), end="")
        print(f"{shares[:2].sum():9.1f} [{low:.1f}, {high:.1f}]{mean:13.1f}")


def print_recall(results: dict[str, Result]) -> None:
    """Recall of regions on drawn studies that were left out, and its difference to the baseline."""
    print("\nrecall of regions on left-out drawn studies (frames whose region is called so)")
    print(f"{'':44}" + "".join(f"{name[:9]:>11}" for name in REGIONS))
    hits: dict[str, NDArray[np.int64]] = {}
    for name, result in results.items():
        rows = []
        for fold in folds():
            for key in result.data.drawn_of(fold):
                study = result.scores[fold][key]
                called = _called(study.scores)
                present = study.labels.present[:, : len(REGIONS)]
                right = present & (called[:, None] == np.arange(len(REGIONS)))
                rows.append(np.stack([right.sum(axis=0), present.sum(axis=0)]))
        hits[name] = np.array(rows)  # (studies, 2, 5)
        right, frames = hits[name].sum(axis=0)
        print(f"{MODELS[name].about:44}" + "".join(f"{r:11.3f}" for r in right / frames))
    if BASELINE not in hits:
        return
    print(f"{'frames':44}" + "".join(f"{n:11d}" for n in hits[BASELINE].sum(axis=0)[1]))
    for name in results:
        if name == BASELINE or MODELS[name].renderer is not None:
            continue
        for column in (0, 1):

            def change(rows: NDArray[np.int64], name: str = name, column: int = column) -> float:
                new, old = hits[name][rows, :, column], hits[BASELINE][rows, :, column]
                frames = old[:, 1].sum()
                return (new[:, 0].sum() - old[:, 0].sum()) / frames if frames else np.nan

            low, high = _interval(change, len(hits[name]))
            value = change(np.arange(len(hits[name])))
            print(
                f"{MODELS[name].about}: {REGIONS[column]} {value:+.3f} [{low:+.3f}, {high:+.3f}] "
                f"against {MODELS[BASELINE].about}"
            )


def auc(positives: NDArray, negatives: NDArray) -> float:
    """Share of pairs of frames in the right order; ties count one half."""
    if not len(positives) or not len(negatives):
        return float("nan")
    order = np.sort(negatives)
    below = np.searchsorted(order, positives, side="left")
    up_to = np.searchsorted(order, positives, side="right")
    return float((below + up_to).mean() / (2 * len(negatives)))


def _by_videos(
    scores: dict[str, StudyScores], keys: Sequence[str], column: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frames in the right order, and all pairs of frames, by video of the positive and negative.

    AUC over any choice of videos is the ratio of two sums of these.
    """
    studies = [scores[key] for key in keys]
    positives = [s.scores[s.labels.present[:, column], column] for s in studies]
    negatives = [s.scores[s.labels.absent[:, column], column] for s in studies]
    pairs = np.array([[float(len(p) * len(n)) for n in negatives] for p in positives])
    areas = np.array([[auc(p, n) for n in negatives] for p in positives])
    return np.nan_to_num(areas) * pairs, pairs


def _pair(result: Result, pair: dict, fold: int) -> float:
    """AUC of a pair of the protocol by the model of a fold."""
    column, scores = COLUMN[pair["finding"]], result.scores[fold]
    shown = scores[result.data.video(pair["video"])]
    positives = shown.scores[shown.labels.present[:, column], column]
    others = result.data.real_of(pair["fold"])
    negative = [shown] if pair["negatives"] == "own" else [scores[key] for key in others]
    negatives = np.concatenate([s.scores[s.labels.absent[:, column], column] for s in negative])
    return auc(positives, negatives)


def print_findings(results: dict[str, Result]) -> None:
    """Findings in real frames; models of drawings have seen no real frame at all."""
    shown = [
        label
        for label in FINDINGS
        if any(pair["finding"] == label for pair in PROTOCOL["pairs"])
        or label in ("blood", "polyp")
    ]
    print(
        "\nfindings in real frames. zero-shot, pooled: AUC over all frames on which the finding is"
    )
    print("known, mean of four models, interval over videos")
    for name, result in results.items():
        if MODELS[name].real:
            continue
        print(MODELS[name].about)
        points = []
        keys = list(result.data.real)
        for label in shown:
            by_model = [_by_videos(scores, keys, COLUMN[label]) for scores in result.scores]

            def pooled(rows: NDArray[np.int64], by_model: list = by_model) -> float:
                chosen = np.ix_(rows, rows)
                total = by_model[0][1][chosen].sum()
                if total == 0:  # no video with the finding was drawn
                    return np.nan
                return float(np.mean([right[chosen].sum() / total for right, _ in by_model]))

            low, high = _interval(pooled, len(keys))
            points.append(pooled(np.arange(len(keys))))
            print(f"  {label:20}{points[-1]:.2f} [{low:.2f}, {high:.2f}]")
        print(f"  {'macro':20}{np.mean(points):.3f}")
    pairs = PROTOCOL["pairs"]
    findings = list(dict.fromkeys(pair["finding"] for pair in pairs))
    print(
        f"\nmean over the {len(pairs)} pairs of finding and video of real_protocol.json; zero-shot"
    )
    print("models: mean of four; models that saw real frames: the one that left the video out")
    print(f"{'':44}{'macro':>7}{'95 %':>14}" + "".join(f"{f[:9]:>11}" for f in findings))
    for name, result in results.items():
        values = np.array(
            [
                np.mean(
                    [
                        _pair(result, pair, fold)
                        for fold in ([pair["fold"]] if MODELS[name].real else folds())
                    ]
                )
                for pair in pairs
            ]
        )
        places = [np.array([i for i, p in enumerate(pairs) if p["finding"] == f]) for f in findings]
        rng = np.random.default_rng(0)
        draws = [
            np.mean([values[rng.choice(place, size=len(place))].mean() for place in places])
            for _ in range(2000)
        ]
        low, high = np.quantile(draws, (0.025, 0.975))
        means = [values[place].mean() for place in places]
        print(f"{MODELS[name].about:44}{np.mean(means):7.3f} [{low:.3f}, {high:.3f}]", end="")
        print("".join(f"{mean:11.2f}" for mean in means))


if __name__ == "__main__":
    main()
