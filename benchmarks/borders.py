"""Masked borders: what still tells the source of a picture, and what masking costs.

Three tables. The source of a picture (Kvasir-Capsule, bleeding and other pictures of WCEBleedGen,
drawn capsules) by its border pixels, by its outline, and by the features of `lite`. The same
tissue drawn into four borders, where nothing but the border can tell. Seconds per frame with and
without masking. Classifiers are logistic regressions on left-out videos, blocks or drawn studies.
Needs the frames of ../shared (or --data).
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from enteron.datasets.layouts import open_dataset
from enteron.errors import StudyError
from enteron.inference.encoder import Encoder, ImageBatch
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.inference.runtimes import make_encoder
from enteron.labels import COLUMN, FINDINGS
from enteron.model.backbones import lite_backbone
from enteron.model.preprocessing import Border, Preprocessing
from enteron.phantom.dataset import PhantomOptions, StudyPlan, make_studies
from enteron.priors import load_priors
from enteron.study import open_study
from enteron.study.field_of_view import DARK, FieldsOfView, inner_circle
from enteron.study.study import RGB, Frame, Study

ROOT = Path(__file__).parents[1]
FOLDS = 4
DEVICES = ("olympus", "pillcam", "navicam")
BORDERS: tuple[Border, ...] = ("kept", "masked")
COARSE = 28  # pixels along each side of an outline, and of a border

Classifier = Callable[[ImageBatch], NDArray[np.float64]]


@dataclass(frozen=True)
class Pictures:
    """Pictures of several sources, prepared for the encoder both ways."""

    images: dict[str, ImageBatch]  # by what becomes of the border: (n, 3, 224, 224)
    source: NDArray[np.str_]  # (n,)
    group: NDArray[np.str_]  # (n,) video, block or drawn study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/frames")
    parser.add_argument("--frames", type=int, default=24, help="of each video, block and study")
    parser.add_argument("--studies", type=int, default=6, help="to draw, of each device")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise StudyError(
            "the real frames of ../shared are not here", "name their folder with --data"
        )
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    encoder = make_encoder(lite_backbone(), "onnx")
    with tempfile.TemporaryDirectory() as drawn:
        studies = real_studies(options.data) + drawn_studies(Path(drawn), options.studies)
        print_sources(gather(studies, options.frames), encoder)
        kvasir = [study for source, study in studies if source == "Kvasir-Capsule"]
        print_same_tissue(kvasir, options.frames, encoder)
        print_cost(kvasir[0], encoder)
    print_boxes(options.data / "kvasir-capsule")


# ---- pictures


def real_studies(data: Path) -> list[tuple[str, Study]]:
    kvasir = open_dataset(data / "kvasir-capsule").studies.values()
    blocks = open_dataset(data / "wcebleedgen").studies.values()
    studies = [("Kvasir-Capsule", entry.open()) for entry in kvasir]
    for block in blocks:
        bleeding = bool(block.labelled_frames().labels.present[:, COLUMN["blood"]].any())
        kind = "bleeding" if bleeding else "non-bleeding"
        studies.append((f"WCEBleedGen {kind}", block.open()))
    return studies


def drawn_studies(folder: Path, count: int) -> list[tuple[str, Study]]:
    studies, priors = [], load_priors()
    for device in DEVICES:
        options = PhantomOptions(frames=40, seed=11, device=device)
        for _ in make_studies(folder / device, count, options):
            pass
        plans = [StudyPlan(number, options, priors) for number in range(1, count + 1)]
        studies += [(f"drawn {device}", open_study(folder / device / p.folder)) for p in plans]
    return studies


def spread_frames(study: Study, count: int) -> list[Frame]:
    rows = np.unique(np.linspace(0, len(study) - 1, min(count, len(study))).astype(int))
    frames = [study.frame(int(study.numbers[row])) for row in rows]
    return [frame for frame in frames if frame.image is not None]


def gather(studies: Sequence[tuple[str, Study]], count: int) -> Pictures:
    images: dict[str, list[NDArray[np.uint8]]] = {border: [] for border in BORDERS}
    source, group = [], []
    for number, (name, study) in enumerate(studies):
        frames = spread_frames(study, count)
        for border in BORDERS:
            preprocessing = Preprocessing(border=border)
            fields = study_fields(study, preprocessing)
            for frame in frames:
                image = prepare_frame(frame, preprocessing, fields).image
                assert image is not None
                images[border].append(image)
        source += [name] * len(frames)
        group += [f"{number}"] * len(frames)
    stacked = {border: np.stack(some) for border, some in images.items()}
    return Pictures(stacked, np.array(source), np.array(group))


# ---- what a classifier may look at


def border_pixels(images: ImageBatch) -> NDArray[np.float64]:
    """Colours outside of the circle that masking keeps."""
    size = images.shape[-1]
    offsets = np.arange(size) + 0.5 - size / 2
    outside = offsets[:, None] ** 2 + offsets**2 > (size / 2) ** 2
    outside &= (np.indices(outside.shape) % (size // COARSE) == 0).all(axis=0)
    return images[:, :, outside].reshape(len(images), -1).astype(np.float64)


def outline(images: ImageBatch) -> NDArray[np.float64]:
    """Which parts of the picture are lit at all."""
    lit = images.max(axis=1) > DARK
    side = images.shape[-1] // COARSE
    return lit.reshape(len(lit), COARSE, side, COARSE, side).mean((2, 4)).reshape(len(lit), -1)


def print_sources(pictures: Pictures, encoder: Encoder) -> None:
    names = sorted(set(pictures.source))
    print(f"## The source of {len(pictures.source)} pictures, chance {1 / len(names):.2f}\n")
    groups = {name: len(set(pictures.group[pictures.source == name])) for name in names}
    print(
        "pictures and groups: "
        + ", ".join(
            f"{name} {int((pictures.source == name).sum())} ({groups[name]})" for name in names
        )
    )
    print_accuracies(pictures.images, pictures.source, pictures.group, encoder)
    of_wce = np.char.startswith(pictures.source, "WCE")
    print("\nbleeding or not in WCEBleedGen, the two classes alone, chance 0.50")
    images = {border: pictures.images[border][of_wce] for border in BORDERS}
    print_accuracies(images, pictures.source[of_wce], pictures.group[of_wce], encoder)


def print_accuracies(
    images: Mapping[str, ImageBatch], truth: NDArray, groups: NDArray, encoder: Encoder
) -> None:
    """How well the truth is told by each look at the images, which are given by border."""
    print("\n| balanced accuracy by | " + " | ".join(BORDERS) + " |\n|---|---|---|")
    looks: dict[str, Classifier] = {
        "border pixels": border_pixels,
        "outline": outline,
        "features": lambda batch: encoder.encode(batch).astype(np.float64),
    }
    for name, look in looks.items():
        cells = [accuracy(look(images[border]), truth, groups) for border in BORDERS]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def accuracy(values: NDArray[np.float64], truth: NDArray, groups: NDArray) -> str:
    """Balanced accuracy on left-out groups, with an interval over groups."""
    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=1e-2, class_weight="balanced", max_iter=200)
    )
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, values, truth, groups=groups, cv=folds)
    rng = np.random.default_rng(0)
    members = {
        name: [np.flatnonzero(groups == g) for g in np.unique(groups[truth == name])]
        for name in np.unique(truth)
    }
    draws = []
    for _ in range(200):
        rows = np.concatenate(
            [some[i] for some in members.values() for i in rng.integers(len(some), size=len(some))]
        )
        draws.append(balanced_accuracy_score(truth[rows], predicted[rows]))
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{balanced_accuracy_score(truth, predicted):.2f} [{low:.2f}, {high:.2f}]"


# ---- the same tissue in other borders


def tissue(image: RGB) -> RGB:
    """The square inside the octagon, without any border, at 224 pixels."""
    side = image.shape[0]
    margin = round(0.13 * side)
    inner = image[margin : side - margin, margin : side - margin]
    return np.asarray(cv2.resize(inner, (224, 224), interpolation=cv2.INTER_AREA), np.uint8)


def draw_border(image: RGB, shape: str) -> RGB:
    """Tissue as a capsule with such a border would record it."""
    size = image.shape[0]
    if shape == "square":
        return image
    if shape == "circle in a wide border, with text":
        page = np.zeros((size, size, 3), np.uint8)
        small = draw_border(image, "circle")
        side = round(0.8 * size)
        start = (size - side) // 2
        page[start : start + side, start : start + side] = cv2.resize(
            small, (side, side), interpolation=cv2.INTER_AREA
        )
        cv2.putText(page, "12:34", (3, 12), cv2.FONT_HERSHEY_PLAIN, 0.8, (220, 220, 220))
        return page
    keep = np.zeros((size, size), np.uint8)
    if shape == "circle":
        cv2.circle(keep, (size // 2, size // 2), size // 2, 1, -1)
    else:
        cut = round(0.17 * size)
        points = [(cut, 0), (size - cut, 0), (size, cut), (size, size - cut)]
        points += [(size - x, size - y) for x, y in points]
        cv2.fillConvexPoly(keep, cv2.convexHull(np.array(points, np.int32)), 1)
    return image * keep[..., None]


SHAPES = ("square", "octagon", "circle", "circle in a wide border, with text")


def print_same_tissue(videos: Sequence[Study], count: int, encoder: Encoder) -> None:
    """Videos get a border each, at random: tissue says nothing about it."""
    rng = np.random.default_rng(0)
    shapes = rng.permutation(np.resize(SHAPES, len(videos)))
    images: dict[str, list[NDArray[np.uint8]]] = {border: [] for border in BORDERS}
    truth, groups = [], []
    for number, (video, shape) in enumerate(zip(videos, shapes, strict=True)):
        frames = [
            draw_border(tissue(frame.image), shape)
            for frame in spread_frames(video, count)
            if frame.image is not None
        ]
        fields = FieldsOfView({(224, 224): inner_circle(frames)})
        for border in BORDERS:
            for place, frame in enumerate(frames):
                prepared = prepare_frame(
                    Frame(place, None, frame, None), Preprocessing(border=border), fields
                )
                assert prepared.image is not None
                images[border].append(prepared.image)
        truth += [shape] * len(frames)
        groups += [f"{number}"] * len(frames)
    print(f"\n## The same tissue in {len(SHAPES)} borders, chance {1 / len(SHAPES):.2f}")
    stacked = {border: np.stack(images[border]) for border in BORDERS}
    print_accuracies(stacked, np.array(truth), np.array(groups), encoder)


# ---- what masking takes away


def print_boxes(root: Path) -> None:
    """Share of the area of boxes around findings that lies outside of the circle."""
    shares = []
    for entry in open_dataset(root).studies.values():
        study = entry.open()
        fields = study_fields(study, Preprocessing(border="masked"))
        assert fields is not None
        boxes = [box for box in entry.boxes() if box.label in FINDINGS]
        for (height, width), circle in fields.circles.items():
            y, x = np.indices((height, width)) + 0.5
            outside = np.hypot(x - circle.x, y - circle.y) > circle.radius
            shares += [
                outside[
                    int(box.y1) : max(round(box.y2), int(box.y1) + 1),
                    int(box.x1) : max(round(box.x2), int(box.x1) + 1),
                ].mean()
                for box in boxes
            ]
    print(
        f"\n{len(shares)} boxes around findings: {np.mean(shares):.2f} of a box outside of the "
        f"circle on average; more than half of it for {np.mean(np.array(shares) > 0.5):.2f}"
    )


# ---- cost


def print_cost(study: Study, encoder: Encoder, rounds: int = 5) -> None:
    """Preparing frames in memory, and preparing and encoding them; medians, in turns."""
    frames = spread_frames(study, 64)
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for border in BORDERS:
            preprocessing = Preprocessing(border=border)
            fields = study_fields(study, preprocessing)
            start = time.perf_counter()
            images = [prepare_frame(frame, preprocessing, fields).image for frame in frames]
            prepared = time.perf_counter()
            encoder.encode(np.stack([image for image in images if image is not None]))
            seconds.setdefault((border, "preparing"), []).append(prepared - start)
            seconds.setdefault((border, "both"), []).append(time.perf_counter() - start)
    medians = {key: float(np.median(times)) / len(frames) for key, times in seconds.items()}
    print("\n## Cost\n\n| | kept | masked | ratio |\n|---|---|---|---|")
    for part, title in (("preparing", "resize and crop, ms"), ("both", "and encode, ms")):
        kept, masked = (1000 * medians[border, part] for border in BORDERS)
        print(f"| {title} | {kept:.2f} | {masked:.2f} | {masked / kept:.2f} |")


if __name__ == "__main__":
    main()
