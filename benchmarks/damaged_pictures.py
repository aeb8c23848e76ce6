"""Damaged JPEG files: how many pass for readable, and what decoding costs.

Four hundred files (baseline, progressive, with restart intervals; quality 75 to 95; 224 to 576
pixels) each get a span of the scan zeroed or replaced by random bytes. A damaged file is silently
wrong when it decodes without an error and shows a picture below 30 dB against the intact one.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.study.picture import UnreadablePictureError, decode_picture

RGB = NDArray[np.uint8]
KINDS = ("baseline", "progressive", "restart")
SPANS = (4096, 512, 64)
LEAST_DB = 30.0


def textured(rng: np.random.Generator, side: int) -> RGB:
    """A picture with detail at every scale, as tissue has, in the colours of mucosa."""
    image = np.zeros((side, side, 3))
    for scale in (64, 16, 4, 1):
        noise = rng.normal(size=(side // scale + 2, side // scale + 2, 3))
        image += cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC) * scale**0.35
    image = image * (14, 16, 18) + (70, 95, 160)
    return np.clip(image, 0, 255).astype(np.uint8)


def jpeg(image: RGB, kind: str, quality: int) -> bytes:
    """The picture as a JPEG file."""
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    if kind == "progressive":
        options += [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
    if kind == "restart":
        options += [cv2.IMWRITE_JPEG_RST_INTERVAL, 8]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def damaged(data: bytes, rng: np.random.Generator, span: int, random: bool) -> bytes:
    """The file with a span of its scan zeroed, or filled with random bytes."""
    first = data.index(b"\xff\xda") + 14  # after the header of the first scan
    span = min(span, len(data) - 2 - first)
    start = int(rng.integers(first, len(data) - 1 - span))
    new = rng.integers(0, 256, span, dtype=np.uint8).tobytes() if random else bytes(span)
    return data[:start] + new + data[start + span :]


def decibels(image: RGB, original: RGB) -> float:
    """Peak signal-to-noise ratio."""
    error = float(np.mean((image.astype(np.float64) - original) ** 2))
    return 99.0 if error == 0 else 10 * np.log10(255**2 / error)


def with_opencv(data: bytes) -> RGB:
    """OpenCV alone, which swallows the warnings of libjpeg."""
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if image is None:
        raise UnreadablePictureError("the pixels cannot be decoded")
    return image


def silently_wrong(decode: Callable[[bytes], RGB], files: int, seed: int) -> None:
    """Print the share of damaged files that pass, by damage and kind of file."""
    print(f"{'damage':22}{'kind':13}{'files':>6}{'passed':>8}{'wrong':>7}")
    for random in (False, True):
        for span in SPANS:
            rng = np.random.default_rng(seed)
            counts: Counter[tuple[str, str]] = Counter()
            for number in range(files):
                kind = KINDS[number % len(KINDS)]
                image = textured(rng, int(rng.choice((224, 336, 448, 576))))
                data = jpeg(image, kind, int(rng.integers(75, 96)))
                original = with_opencv(data)
                counts[kind, "files"] += 1
                try:
                    shown = decode(damaged(data, rng, span, random))
                except UnreadablePictureError:
                    continue
                counts[kind, "passed"] += 1
                wrong = shown.shape != original.shape or decibels(shown, original) < LEAST_DB
                counts[kind, "wrong"] += wrong
            for kind in KINDS:
                figures = [counts[kind, name] for name in ("files", "passed", "wrong")]
                name = f"{span} {'random' if random else 'zeroed'} bytes"
                print(f"{name:22}{kind:13}{figures[0]:6}{figures[1]:8}{figures[2]:7}")


def milliseconds(decode: Callable[[bytes], RGB], data: bytes, repeats: int = 60) -> float:
    """Median time of one decoding."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        decode(data)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for title, decode in (("OpenCV alone", with_opencv), ("enteron", decode_picture)):
        print(f"\n{title}")
        silently_wrong(decode, arguments.files, arguments.seed)
    print(f"\n{'milliseconds at 336 pixels':30}{'OpenCV':>8}{'enteron':>9}  equal pixels")
    rng = np.random.default_rng(arguments.seed)
    image = textured(rng, 336)
    for kind in KINDS:
        data = jpeg(image, kind, 90)
        equal = np.array_equal(with_opencv(data), decode_picture(data))
        before, after = milliseconds(with_opencv, data), milliseconds(decode_picture, data)
        print(f"{'JPEG, ' + kind:30}{before:8.2f}{after:9.2f}  {'yes' if equal else 'NO'}")
    for suffix in (".png", ".tif", ".bmp"):
        data = cv2.imencode(suffix, image)[1].tobytes()
        before, after = milliseconds(with_opencv, data), milliseconds(decode_picture, data)
        equal = np.array_equal(with_opencv(data), decode_picture(data))
        print(f"{suffix[1:].upper():30}{before:8.2f}{after:9.2f}  {'yes' if equal else 'NO'}")


if __name__ == "__main__":
    main()
