"""Whether synthetic studies can be learnt but are not trivial: linear probes on ImageNet features.

Trains on PillCam and Olympus studies, tests on other studies of the same devices and on NaviCam.
Needs the extra `model`: pip install -c constraints.txt -e '.[dev,model]'. Takes about ten minutes.
"""

import argparse
import hashlib
import multiprocessing
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.model.backbones import LITE_MEAN, LITE_SIZE, LITE_STD, lite0
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.priors import load_priors

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # inverse regularisation, chosen on held-out training studies
Arrays = dict[str, NDArray]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=20, help="studies to train on")
    parser.add_argument("--test", type=int, default=10, help="studies to test on, per set")
    parser.add_argument("--frames", type=int, default=300, help="frames of each")
    parser.add_argument("--rarity", type=float, default=0.5)
    options = parser.parse_args()
    start = time.perf_counter()
    sets = {
        "train": draw("mixed", options.train, options.frames, options.rarity, seed=1),
        "other studies": draw("mixed", options.test, options.frames, options.rarity, seed=2),
        "NaviCam": draw("navicam", options.test, options.frames, options.rarity, seed=3),
    }
    print(f"drawn and encoded in {time.perf_counter() - start:.0f} s")
    train = sets.pop("train")
    print(
        f"\ntrained on {options.train} studies of {options.frames} frames, rarity {options.rarity}"
    )
    print(f"{'':16} {'region accuracy':>22} {'finding AP':>18} {'landmark AP':>18}")
    print(
        f"{'tested on':16} {'features':>11} {'colour':>10} " + f"{'features':>9} {'colour':>8} " * 2
    )
    details: dict[str, dict[str, float]] = {}
    for name, test in sets.items():
        cells = []
        for group in (None, FINDINGS, LANDMARKS):
            for kind in ("features", "colour"):
                if group is None:
                    cells.append(region_accuracy(train, test, kind))
                    continue
                aps = label_aps(train, test, kind, group)
                details[f"{name}, {kind}"] = details.get(f"{name}, {kind}", {}) | aps
                cells.append(float(np.mean(list(aps.values()))))
        print(
            f"{name:16} {cells[0]:11.3f} {cells[1]:10.3f} "
            + " ".join(f"{c:8.3f}" for c in cells[2:])
        )
        regions = test["labels"][:, : len(REGIONS)].argmax(axis=1)
        commonest = np.bincount(regions).max() / len(regions)
        print(f"{'':16} always the commonest region: {commonest:.3f}")
    print("\nAP per label: features, then colour; in brackets the share of frames that show it")
    print(f"{'':18}" + "".join(f"{name:>24}" for name in sets))
    for label in (*FINDINGS, *LANDMARKS):
        cells = [
            f"{details[f'{name}, features'].get(label, float('nan')):.2f} "
            f"{details[f'{name}, colour'].get(label, float('nan')):.2f} "
            f"({100 * test['labels'][:, COLUMN[label]].mean():4.1f} %)"
            for name, test in sets.items()
        ]
        print(f"{label:18}" + "".join(f"{cell:>24}" for cell in cells))


def draw(
    device: Literal["mixed", "navicam"], studies: int, frames: int, rarity: float, seed: int
) -> Arrays:
    """Features, mean colours, labels and study of every frame, cached in the temporary folder."""
    options = PhantomOptions(frames=frames, seed=seed, device=device, rarity=rarity)
    sources = sorted((Path(__file__).parents[1] / "src" / "enteron" / "phantom").glob("*.py"))
    code = b"".join(path.read_bytes() for path in sources)
    key = hashlib.sha256(code + repr((options, studies)).encode()).hexdigest()[:16]
    cache = Path(tempfile.gettempdir()) / f"enteron-probe-{key}.npz"
    if cache.exists():
        return dict(np.load(cache))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(draw_study, range(1, studies + 1), [options] * studies))
    pictures = np.concatenate([part[0] for part in parts])
    arrays = {
        "features": encode(pictures),
        "colour": np.concatenate([part[1] for part in parts]),
        "labels": np.concatenate([part[2] for part in parts]),
        "study": np.repeat(np.arange(studies), frames),
    }
    np.savez(cache, **arrays)
    return arrays


def draw_study(number: int, options: PhantomOptions) -> tuple[NDArray, NDArray, NDArray]:
    cv2.setNumThreads(1)
    plan = StudyPlan(number, options, load_priors())
    film = plan.film()
    pictures = np.empty((len(film), LITE_SIZE, LITE_SIZE, 3), np.uint8)
    colours = np.empty((len(film), 6))
    for row in range(len(film)):
        frame = film.frame(row)
        inside = frame[frame.max(axis=2) > 16].astype(np.float64)  # without the black border
        colours[row] = [*inside.mean(axis=0), *inside.std(axis=0)]
        cv2.resize(frame, (LITE_SIZE, LITE_SIZE), dst=pictures[row], interpolation=cv2.INTER_AREA)
    return pictures, colours, plan.table.values


def encode(pictures: NDArray[np.uint8], batch: int = 16) -> NDArray[np.float32]:
    """Features of Lite0 through ONNX Runtime, which is many times faster on a CPU than torch."""
    import onnxruntime
    import torch

    example = torch.zeros(batch, 3, LITE_SIZE, LITE_SIZE)
    names = {"input_names": ["images"], "dynamic_axes": {"images": {0: "n"}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(tempfile.gettempdir()) / "enteron-probe-lite0.onnx"
        torch.onnx.export(lite0(), (example,), file, dynamo=False, **names)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    features = []
    for start in range(0, len(pictures), batch):
        images = pictures[start : start + batch].transpose(0, 3, 1, 2).astype(np.float32)
        features.append(session.run(None, {"images": (images / 255 - LITE_MEAN) / LITE_STD})[0])
    return np.concatenate(features)


def fitted(train: Arrays, kind: str, target: NDArray, strength: float, rows: NDArray) -> Pipeline:
    weights = None if target.dtype != bool else "balanced"
    model = LogisticRegression(C=strength, class_weight=weights, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(StandardScaler(), model).fit(train[kind][rows], target[rows])


def held_out(train: Arrays) -> NDArray[np.bool_]:
    """A quarter of the training studies, on which the strength of regularisation is chosen."""
    return train["study"] % 4 == 0


def region_accuracy(train: Arrays, test: Arrays, kind: str) -> float:
    target, truth = (side["labels"][:, : len(REGIONS)].argmax(axis=1) for side in (train, test))
    out = held_out(train)
    best = max(
        STRENGTHS,
        key=lambda c: float(
            (fitted(train, kind, target, c, ~out).predict(train[kind][out]) == target[out]).mean()
        ),
    )
    model = fitted(train, kind, target, best, np.ones(len(target), bool))
    return float((model.predict(test[kind]) == truth).mean())


def label_aps(train: Arrays, test: Arrays, kind: str, labels: tuple[str, ...]) -> dict[str, float]:
    """AP of every label that both sides show."""
    aps: dict[str, float] = {}
    out = held_out(train)
    for label in labels:
        target = train["labels"][:, COLUMN[label]].astype(bool)
        truth = test["labels"][:, COLUMN[label]].astype(bool)
        if not target[~out].any() or not truth.any():
            continue
        best = STRENGTHS[1]
        if target[out].any():
            best = max(
                STRENGTHS,
                key=lambda c, target=target: average_precision_score(
                    target[out],
                    fitted(train, kind, target, c, ~out).decision_function(train[kind][out]),
                ),
            )
        model = fitted(train, kind, target, best, np.ones(len(target), bool))
        aps[label] = float(average_precision_score(truth, model.decision_function(test[kind])))
    return aps


if __name__ == "__main__":
    main()
