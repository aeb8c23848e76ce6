"""Milliseconds per synthetic frame on one core: rendering and PNG encoding, per device.

Run: python benchmarks/phantom_render.py [--frames N]
"""

import argparse
import time

import cv2
import numpy as np

from enteron.labels import COLUMN, REGIONS
from enteron.phantom.film import Film
from enteron.study.picture import encode_png


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=120, help="frames per device")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    # Regions roughly by their real shares, and two runs of findings.
    total = 2000
    labels = np.zeros((total, 17), np.bool_)
    for region, start, stop in zip(
        REGIONS, (0, 20, 40, 200, 1300), (20, 40, 200, 1300, total), strict=True
    ):
        labels[start:stop, COLUMN[region]] = True
    labels[400:460, COLUMN["polyp"]] = True
    labels[800:860, COLUMN["ulcer"]] = True
    print(f"{'device':10s}{'render':>9s}{'png':>9s}{'both':>9s}{'KiB':>9s}   median ms, one core")
    for device in ("olympus", "pillcam", "navicam"):
        film = Film(labels, device, 5)
        rows = np.linspace(0, total - 1, options.frames).astype(int)
        # Warm-up: compile, and build the wall of every region.
        for i in rows[:: max(1, len(rows) // 10)]:
            film.frame(int(i))
        render, png, size = [], [], []
        for i in rows:
            start = time.perf_counter()
            frame = film.frame(int(i))
            middle = time.perf_counter()
            size.append(len(encode_png(frame)))
            png.append(time.perf_counter() - middle)
            render.append(middle - start)
        a, b = 1000 * np.median(render), 1000 * np.median(png)
        both = 1000 * np.median(np.add(render, png))
        print(f"{device:10s}{a:9.1f}{b:9.1f}{both:9.1f}{np.mean(size) / 1024:9.0f}")
    start = time.perf_counter()
    Film(np.repeat(labels, 65, axis=0), "olympus", 6)
    print(f"constructor, 130,000 frames: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
