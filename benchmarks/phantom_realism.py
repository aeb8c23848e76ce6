"""What tells drawn frames from real ones: colour, light, sharpness, texture, motion, features.

`enteron bench phantom_realism [-- --real FOLDER --studies 16 --per-video 40]`. Real frames are
Kvasir-Capsule's (Olympus, small bowel: one folder of `frame_NNNNNN.jpg` and one CSV per video).
Drawn frames are of the Olympus device too; they are reduced to the same 224 pixels, stored as JPEG
of the same quality, and both get the same border, so that neither compression nor border decides.
`-- --renderer COMMIT` draws with the renderer of another commit (`before`: the last one that was
not fitted to real frames), with the same seeds. Each renderer draws once into `runs/renderers/`.
"""

import argparse
import csv
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._renderers import BEFORE, FilmPlan, draw
from enteron.errors import EnteronError
from enteron.inference.runtimes import make_encoder
from enteron.labels import COLUMN, REGIONS
from enteron.model.backbones import lite_backbone

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT / ".." / "shared" / "frames" / "kvasir-capsule"
NORMAL = "Normal clean mucosa"
SIDE = 224  # pixels of the real copies
QUALITY = 75  # of the JPEG that the real copies are stored in (from their quantisation tables)
LIMITS = (1, 2, 3, 6)  # grey levels
QUANTILES = (5, 10, 25, 50, 75, 90, 95)
FOLDS = 5

# Rows of a drawn study in each region, and how many of its frames (small bowel: pairs of
# neighbours) are drawn.
ROWS = {"mouth": 400, "esophagus": 400, "stomach": 800, "small intestine": 3000, "colon": 800}
DRAWN = {"mouth": 12, "esophagus": 12, "stomach": 14, "small intestine": 50, "colon": 14}

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class FrameFile:
    """A picture on disk and what is known about it."""

    path: Path
    group: str  # video or study
    number: int
    kind: str  # classes of a real frame, region of a drawn one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, default=REAL, help="videos of Kvasir-Capsule")
    parser.add_argument("--per-video", type=int, default=40, help="real frames of each video")
    parser.add_argument("--studies", type=int, default=16, help="studies to draw")
    parser.add_argument("--seed", type=int, default=7000)
    parser.add_argument("--stalls", type=float, help="share of stalled frames; default: Film's")
    parser.add_argument("--renderer", help="commit, or 'before'; default: this checkout's")
    parser.add_argument("--lesions", type=int, default=40, help="drawn lesions of each kind")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    renderer = BEFORE if options.renderer == "before" else options.renderer
    real = real_frames(options.real)
    drawn = drawn_frames(options.studies, options.seed, options.stalls, renderer)
    bowel = [frame for frame in drawn if frame.kind == "small intestine"]
    print_neighbours(real, bowel)
    some_real = [f for video in by_group(real).values() for f in spread(video, options.per_video)]
    encoder = make_encoder(lite_backbone(), "onnx")
    sets = {}
    for name, frames in (("real", some_real), ("drawn", drawn)):
        pictures = np.stack([bordered(read(frame.path)) for frame in frames])
        statistics = np.array([frame_statistics(picture) for picture in pictures])
        features = encoder.encode(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)))
        groups = np.array([f"{name} {frame.group}" for frame in frames])
        sets[name] = (frames, statistics, features, groups)
    normal = np.array([frame.kind == NORMAL for frame in some_real])
    in_bowel = np.array([frame.kind == "small intestine" for frame in drawn])
    _, real_statistics, real_features, real_groups = sets["real"]
    _, drawn_statistics, drawn_features, drawn_groups = sets["drawn"]
    print_statistics(real_statistics[normal], drawn_statistics[in_bowel])
    groups = np.concatenate([real_groups[normal], drawn_groups[in_bowel]])
    print_separation("statistics", real_statistics[normal], drawn_statistics[in_bowel], groups)
    print_separation("features", real_features[normal], drawn_features[in_bowel], groups)
    print_lesions(
        real_lesions(options.real), drawn_lesions(options.seed, options.lesions, renderer)
    )
    regions = np.array([REGIONS.index(frame.kind) for frame in drawn])
    print_regions(drawn_features, regions, drawn_groups, real_features)


# ---- the frames


def real_frames(folder: Path) -> list[FrameFile]:
    """Every real frame, in the order of videos and frame numbers."""
    if not folder.is_dir():
        raise EnteronError("the real frames are not there", "give their folder with --real")
    frames: list[FrameFile] = []
    for table in sorted(folder.glob("*.csv")):
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                number = int(row["frame"])
                path = folder / table.stem / f"frame_{number:06d}.jpg"
                if path.exists():
                    frames.append(FrameFile(path, table.stem, number, row["classes"]))
    return sorted(frames, key=lambda frame: (frame.group, frame.number))


def drawn_frames(
    studies: int, seed: int, stalls: float | None, renderer: str | None
) -> list[FrameFile]:
    """Frames of synthetic Olympus studies, drawn unless an earlier run left them in `runs/`."""
    runs: list[tuple[int, int, int]] = []
    stop = 0
    for region, rows in ROWS.items():
        runs.append((COLUMN[region], stop, stop + rows))
        stop += rows
    chosen = [list(_chosen_rows(study)) for study in range(studies)]
    films = [
        FilmPlan(stop, tuple(runs), seed + study, tuple(row for _, row in rows), stalls)
        for study, rows in enumerate(chosen)
    ]
    folders = draw(films, renderer, SIDE, QUALITY)
    return [
        FrameFile(folder / f"frame_{row:06d}.jpg", f"{study:03d}", row, region)
        for study, folder in enumerate(folders)
        for region, row in chosen[study]
    ]


def _chosen_rows(study: int) -> Iterator[tuple[str, int]]:
    """Region and row of the frames of a study that are drawn; those of the small bowel in pairs."""
    rng = np.random.default_rng(study)
    start = 0
    for region, rows in ROWS.items():
        count = DRAWN[region]
        # Away from the first rows, some of which show the room before the capsule is swallowed.
        picked = start + 10 + np.sort(rng.choice((rows - 12) // 2, count, replace=False)) * 2
        for row in picked.tolist():
            yield region, row
            if region == "small intestine":
                yield region, row + 1
        start += rows


def read(path: Path) -> Picture:
    """An RGB picture of 224 x 224 pixels."""
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None or picture.shape[:2] != (SIDE, SIDE):
        raise EnteronError(f"'{path.name}' is not a picture of {SIDE} x {SIDE} pixels", "remove it")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def _position() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    across = (np.arange(SIDE) + 0.5) * 2 / SIDE - 1
    x, y = np.abs(np.meshgrid(across, across))
    return x, y


def inside() -> NDArray[np.bool_]:
    """(224, 224): the octagon, a little within that of either source."""
    x, y = _position()
    return (np.maximum(x, y) < 0.97) & (x + y < 1.63)


def bordered(picture: Picture) -> Picture:
    """The picture with everything outside the common octagon black."""
    return picture * inside()[..., None].astype(np.uint8)


def by_group(frames: list[FrameFile]) -> dict[str, list[FrameFile]]:
    groups: dict[str, list[FrameFile]] = {}
    for frame in frames:
        groups.setdefault(frame.group, []).append(frame)
    return groups


def spread(frames: list[FrameFile], count: int) -> list[FrameFile]:
    """`count` frames, or fewer if there are fewer, at even distances."""
    index = np.unique(np.linspace(0, len(frames) - 1, min(count, len(frames))).astype(int))
    return [frames[i] for i in index]


# ---- neighbours


def neighbour_differences(frames: list[FrameFile]) -> NDArray[np.float64]:
    """Mean absolute difference, in grey levels at 64 x 64, of frames with consecutive numbers."""

    def small(frame: FrameFile) -> NDArray[np.float64]:
        grey = cv2.cvtColor(read(frame.path), cv2.COLOR_RGB2GRAY)
        return cv2.resize(grey, (64, 64), interpolation=cv2.INTER_AREA).astype(np.float64)

    differences = [
        float(np.abs(small(first) - small(second)).mean())
        for first, second in pairwise(frames)
        if first.group == second.group and second.number == first.number + 1
    ]
    return np.array(differences)


def print_neighbours(real: list[FrameFile], drawn: list[FrameFile]) -> None:
    print("\nneighbouring frames: mean absolute difference at 64 x 64, grey levels")
    head = "".join(f"{f'<{limit} (%)':>9}" for limit in LIMITS)
    print(f"{'':8}{'pairs':>7}{head}" + "".join(f"{f'{q} %':>7}" for q in QUANTILES))
    for name, frames in (("real", real), ("drawn", drawn)):
        differences = neighbour_differences(frames)
        shares = "".join(f"{100 * (differences < limit).mean():9.1f}" for limit in LIMITS)
        values = "".join(f"{value:7.1f}" for value in np.percentile(differences, QUANTILES))
        print(f"{name:8}{len(differences):7d}{shares}{values}")


# ---- statistics of single frames

_BANDS = (1, 2, 4, 8, 16, 32)  # pixels: deviation of the inner Gaussian of each octave band
STATISTICS = (
    "L* mean", "a* mean", "b* mean", "L* spread", "a* spread", "b* spread", "hue (deg)",
    "L* darkest 5 %", "L* brightest 5 %", "dark (%)", "glare (%)", "L* rim - centre",
    "gradient", "log10 Laplacian",
    *(f"log10 band {band} px" for band in _BANDS),
)  # fmt: skip


def frame_statistics(picture: Picture) -> list[float]:
    """One value for each of `STATISTICS`, within the octagon."""
    field = inside()
    lab = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    pixels = lab[field].astype(np.float64)
    light = pixels[:, 0]
    mean, deviation = pixels.mean(axis=0), pixels.std(axis=0)
    x, y = _position()
    radius = np.hypot(x, y)
    rim, centre = (lab[..., 0][field & part].mean() for part in (radius > 0.85, radius < 0.35))
    # The border is filled with the frame's mean, and blurred edges of it are left out below.
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)
    grey[~field] = grey[field].mean()
    deeper = cv2.erode(field.astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
    gradient = np.hypot(
        cv2.Sobel(grey, cv2.CV_32F, 1, 0) / 8, cv2.Sobel(grey, cv2.CV_32F, 0, 1) / 8
    )
    laplacian = cv2.Laplacian(grey, cv2.CV_32F)
    levels = [grey] + [cv2.GaussianBlur(grey, (0, 0), band) for band in _BANDS]
    bands = [float((fine - coarse)[deeper].std()) for fine, coarse in pairwise(levels)]
    return [
        *mean, *deviation, float(np.degrees(np.arctan2(mean[2], mean[1]))),
        *np.percentile(light, [5, 95]), 100 * (light < 15).mean(), 100 * (light > 92).mean(),
        rim - centre, float(gradient[deeper].mean()),
        float(np.log10(laplacian[deeper].std() + 0.1)), *np.log10(np.array(bands) + 0.1),
    ]  # fmt: skip


def print_statistics(real: NDArray[np.float64], drawn: NDArray[np.float64]) -> None:
    """Quantiles of both sides, and the AUC with which each statistic alone tells them apart."""
    print(f"\n{'normal small bowel, 10 / 50 / 90 %':24}{'real':>20}{'drawn':>26}{'AUC':>8}")
    source = np.repeat([0, 1], [len(real), len(drawn)])
    for column, name in enumerate(STATISTICS):
        cells = "   ".join(
            "".join(f"{v:8.2f}" for v in np.percentile(side[:, column], (10, 50, 90)))
            for side in (real, drawn)
        )
        area = roc_auc_score(source, np.concatenate([real[:, column], drawn[:, column]]))
        print(f"{name:18}{cells}{area:8.2f}")


# ---- lesions

CLASSES = {
    "Angiectasia": "angiectasia", "Erosion": "erosion", "Erythema": "erythema",
    "Lymphangiectasia": "lymphangioectasis", "Ulcer": "ulcer", "Polyp": "polyp",
    "Blood - fresh": "blood",
}  # fmt: skip
BOXED_SIDE = 336  # pixels of the frames that the boxes were drawn on
_LESION_ROWS = 20


def real_lesions(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Side (root of the box's area, share of the frame's) and place of every real box.

    The place is the distance of the box's centre from the frame's, in half-widths.
    """
    lesions: dict[str, list[tuple[float, float]]] = {}
    for table in sorted(folder.glob("*.csv")):
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for box in filter(None, row["boxes"].split("; ")):
                    words = box.split()
                    name, corners = " ".join(words[:-8]), np.array(words[-8:], float)
                    x, y = corners[0::2] / BOXED_SIDE, corners[1::2] / BOXED_SIDE
                    if name in CLASSES:
                        place = float(np.hypot(x.mean() * 2 - 1, y.mean() * 2 - 1))
                        side = float(np.sqrt(np.ptp(x) * np.ptp(y)))
                        lesions.setdefault(CLASSES[name], []).append((side, place))
    return lesions


def drawn_lesions(
    seed: int, studies: int, renderer: str | None
) -> dict[str, list[tuple[float, float]]]:
    """The same of drawn lesions: the box of what a label changes in its frame."""
    labels = tuple(CLASSES.values())
    length = _LESION_ROWS * len(labels)
    bowel = (COLUMN["small intestine"], 0, length)
    findings = tuple(
        (COLUMN[label], k * _LESION_ROWS + 5, k * _LESION_ROWS + 15)
        for k, label in enumerate(labels)
    )
    rows = tuple(k * _LESION_ROWS + 10 for k in range(len(labels)))
    films = [
        FilmPlan(length, runs, seed + 500 + study, rows)
        for study in range(studies)
        for runs in ((bowel, *findings), (bowel,))
    ]
    folders = draw(films, renderer)
    lesions: dict[str, list[tuple[float, float]]] = {label: [] for label in labels}
    for marked, bare in zip(folders[0::2], folders[1::2], strict=True):
        for label, row in zip(labels, rows, strict=True):
            first, second = (
                cv2.medianBlur(cv2.imread(str(folder / f"frame_{row:06d}.png")), 5).astype(int)  # pyright: ignore[reportCallIssue, reportArgumentType]
                for folder in (marked, bare)
            )
            changed = (np.abs(first - second).max(axis=2) > 18).astype(np.uint8)
            changed = cv2.morphologyEx(changed, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
            if changed.any():
                x, y, width, height = cv2.boundingRect(changed)
                size = changed.shape[0]
                place = np.hypot((2 * x + width) / size - 1, (2 * y + height) / size - 1)
                lesions[label].append((float(np.sqrt(width * height)) / size, float(place)))
    return lesions


def print_lesions(
    real: dict[str, list[tuple[float, float]]], drawn: dict[str, list[tuple[float, float]]]
) -> None:
    print(
        f"\n{'lesions, 10 / 50 / 90 %':20}{'boxes: side / frame side':>34}{'from the centre':>36}"
    )
    print(f"{'':20}" + f"{'real':>14}{'drawn':>20}" * 2)
    for label in CLASSES.values():
        cells = [
            " ".join(f"{v:5.2f}" for v in np.percentile(np.array(side[label])[:, k], (10, 50, 90)))
            for k in (0, 1)
            for side in (real, drawn)
        ]
        print(f"{label:20}" + "".join(f"{cell:>19}" for cell in cells))


# ---- classifiers


def _model() -> Pipeline:
    regression = LogisticRegression(C=0.01, class_weight="balanced", max_iter=500)
    return make_pipeline(StandardScaler(), regression)


def _left_out(
    values: NDArray[np.floating], target: NDArray[np.int64], groups: NDArray[np.str_]
) -> NDArray[np.float64]:
    """Probabilities (rows, classes) of each frame by a model that saw no frame of its group."""
    scores = np.zeros((len(target), int(target.max()) + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, test in GroupKFold(FOLDS).split(values, target, groups):
            model = _model().fit(values[train], target[train])
            scores[test] = model.predict_proba(values[test])
    return scores


def print_separation(
    name: str,
    real: NDArray[np.floating],
    drawn: NDArray[np.floating],
    groups: NDArray[np.str_],
) -> None:
    """How well a linear model separates the sources on left-out videos, and how far they are."""
    values = np.concatenate([real, drawn])
    target = np.repeat([0, 1], [len(real), len(drawn)])
    scores = _left_out(values, target, groups)[:, 1]
    accuracy = [(scores[target == side] > 0.5) == bool(side) for side in (0, 1)]
    print(
        f"\nreal or drawn by {name} ({len(real)} + {len(drawn)} frames, left-out videos): "
        f"AUC {roc_auc_score(target, scores):.4f}, "
        f"balanced error {100 - 50 * (accuracy[0].mean() + accuracy[1].mean()):.1f} %"
    )
    scaled = (values - real.mean(axis=0)) / (real.std(axis=0) + 1e-6)
    product = scaled @ scaled.T
    square = np.diag(product)[:, None] + np.diag(product)[None] - 2 * product
    square[groups[:, None] == groups[None]] = np.inf
    is_drawn = target[square.argmin(axis=1)] == 1
    share = len(drawn) / len(values)
    print(
        f"nearest frame of another video or study is drawn (indistinguishable: "
        f"{100 * share:.0f} %): of real frames {100 * is_drawn[target == 0].mean():.1f} %, "
        f"of drawn ones {100 * is_drawn[target == 1].mean():.1f} %"
    )
    halves = [np.isin(groups[: len(real)], np.unique(groups[: len(real)])[k::2]) for k in (0, 1)]
    within = np.linalg.norm(
        scaled[: len(real)][halves[0]].mean(0) - scaled[: len(real)][halves[1]].mean(0)
    )
    between = np.linalg.norm(scaled[len(real) :].mean(axis=0))
    print(
        f"distance of the means, in deviations of real frames: {between:.2f} "
        f"(half the real videos from the other half: {within:.2f})"
    )


def print_regions(
    drawn: NDArray[np.floating],
    regions: NDArray[np.int64],
    groups: NDArray[np.str_],
    real: NDArray[np.floating],
) -> None:
    """Which region a linear model of drawings sees in real frames of the small bowel."""
    out = _left_out(drawn, regions, groups).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        called = _model().fit(drawn, regions).predict(real)
    print("\nregion by a linear model of drawn features: recall on left-out drawn studies, and the")
    print(f"share of the {len(real)} real small-bowel frames that it calls so")
    for k, region in enumerate(REGIONS):
        recall = 100 * (out[regions == k] == k).mean()
        print(f"{region:18}{recall:8.1f} %{100 * (called == k).mean():8.1f} %")


if __name__ == "__main__":
    main()
