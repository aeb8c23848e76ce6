"""Title cards: how many are shown, and how many real frames are withheld for one.

Real frames are those of `../shared` where it is there, and drawn studies of three capsules. Cards
are drawn over them: text on plain and graded grounds, with an inset picture, with shapes, over
dimmed tissue, over the tissue itself, and a blue screen; in the sizes of capsules, as JPEG.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from enteron.report.pictures import small
from enteron.report.title_cards import Look, black_border, look_of
from enteron.study import open_study
from enteron.study.field_of_view import Mask, field_of_view
from enteron.study.study import RGB

SHARED = Path(__file__).parents[2] / "shared"
FONTS = (
    cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX,
    cv2.FONT_HERSHEY_TRIPLEX, cv2.FONT_HERSHEY_PLAIN,
)  # fmt: skip
GROUNDS = (
    (0, 0, 0), (255, 255, 255), (40, 40, 40), (128, 128, 128), (0, 0, 160), (20, 30, 90),
    (0, 90, 60), (200, 200, 210), (90, 0, 0), (120, 60, 20), (235, 220, 190), (255, 120, 0),
)  # fmt: skip
INKS = ((255, 255, 255), (0, 0, 0), (255, 255, 0), (0, 255, 0), (255, 160, 0), (0, 255, 255))
LINES = ("DOE, JANE", "Born 02.04.1961", "ID 3984417", "St. Mary Hospital", "13 OCT 2021 08:41")
STYLES = ("plain", "graded", "inset", "shapes", "dimmed tissue", "over tissue", "blue screen")


def title_card(rng: np.random.Generator, tissue: RGB, style: str) -> RGB:
    """A card of the size of a frame."""
    side = tissue.shape[0]
    ground = GROUNDS[rng.integers(len(GROUNDS))]
    inks = [ink for ink in INKS if abs(sum(ink) - sum(ground)) > 180]
    ink = inks[rng.integers(len(inks))]
    image = np.full_like(tissue, ground)
    if style == "blue screen":
        return np.full_like(tissue, (0, 0, 200))
    if style == "graded":
        fade = np.linspace(0.3, 1.3, side)[:, None, None]
        image = np.clip(fade * np.maximum(image, 30), 0, 255).astype(np.uint8)
    if style == "inset":
        inner = round(side * rng.uniform(0.3, 0.55))
        left = int(rng.integers(0, side - inner))
        image[side - inner :, left : left + inner] = cv2.resize(tissue, (inner, inner))
    if style == "shapes":
        for x, y, radius in rng.integers(0, side, (3, 3)).tolist():
            cv2.circle(image, (x, y), 20 + radius // 5, INKS[radius % len(INKS)], -1)
    if style in ("dimmed tissue", "over tissue"):
        image = (tissue * (0.4 if style == "dimmed tissue" else 1.0)).astype(np.uint8)
        ink = INKS[rng.integers(4)]
    height = side * rng.uniform(0.035, 0.10)
    font, bold = FONTS[rng.integers(len(FONTS))], 1 + int(height > 0.06 * side and side > 300)
    scale = height / cv2.getTextSize("X", font, 1, 1)[0][1]
    y = round(side * rng.uniform(0.2, 0.45))
    for text in LINES[: int(rng.integers(2, 6))]:
        wide = cv2.getTextSize(text, font, scale, bold)[0][0]
        cv2.putText(image, text, (max(2, (side - wide) // 2), y), font, scale, ink, bold, 16)
        y += round(1.6 * height)
    quality = int(rng.integers(60, 96))
    bgr = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(bgr, cv2.IMREAD_COLOR_RGB), np.uint8)


def studies(frames: int) -> Iterator[tuple[str, list[RGB]]]:
    """Frames of every study that is there."""
    folders = sorted((SHARED / "frames" / "kvasir-capsule").glob("*/"))
    folders += [SHARED / "images" / "kvasir-capsule-seg"]
    folders += sorted((SHARED / "frames" / "wcebleedgen").glob("*/"))
    for folder in folders:
        names = sorted(folder.glob("*.jpg"))
        rows = np.unique(np.linspace(0, len(names) - 1, min(frames, len(names))).astype(int))
        read = [cv2.imread(str(names[row]), cv2.IMREAD_COLOR_RGB) for row in rows]
        images = [np.asarray(image, np.uint8) for image in read if image is not None]
        if images:
            yield f"{folder.parent.name}/{folder.name}", images
    yield from _drawn(frames)


def _drawn(frames: int) -> Iterator[tuple[str, list[RGB]]]:
    import tempfile

    from enteron.datasets.galar import find_studies
    from enteron.phantom.dataset import PhantomOptions, make_studies

    for device in ("olympus", "pillcam", "navicam"):
        with tempfile.TemporaryDirectory() as name:
            options = PhantomOptions(frames=frames, seed=3, device=device)
            list(make_studies(Path(name), 1, options))
            for entry in find_studies(Path(name)).values():
                with open_study(entry.images or "") as study:
                    yield f"drawn/{device}", [f.image for f in study if f.image is not None]


def measured(images: list[RGB]) -> tuple[Mask, Mask]:
    """Field of view and black border of a study."""
    size = images[0].shape
    samples = [small(image) for image in images[:: max(1, len(images) // 48)]]
    samples = [image for image in samples if image.shape == small(images[0]).shape]
    keep = field_of_view(samples)
    assert size == images[0].shape
    return keep, black_border(np.stack(samples), keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=80, help="frames of each study")
    parser.add_argument("--cards", type=int, default=6, help="cards of each kind and study")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    withheld: dict[str, list[bool]] = {}
    found: dict[str, list[bool]] = {style: [] for style in STYLES}
    for name, images in studies(arguments.frames):
        keep, border = measured(images)
        looks: list[Look] = [
            look_of(small(image), keep, border)
            for image in images
            if small(image).shape[:2] == keep.shape
        ]
        withheld.setdefault(name.split("/")[0], []).extend(look.is_title_card for look in looks)
        for style in STYLES:
            for _ in range(arguments.cards):
                tissue = images[rng.integers(len(images))]
                if tissue.shape[0] != tissue.shape[1]:
                    continue
                card = small(title_card(rng, tissue, style))
                found[style].append(look_of(card, keep, border).is_title_card)
    print(f"{'real and drawn frames':30}{'frames':>8}{'withheld':>10}")
    for name, flags in withheld.items():
        print(f"{name:30}{len(flags):8}{100 * np.mean(flags):9.2f}%")
    print(f"\n{'title cards':30}{'cards':>8}{'withheld':>10}")
    for style, flags in found.items():
        print(f"{style:30}{len(flags):8}{100 * np.mean(flags):9.2f}%")


if __name__ == "__main__":
    main()
