"""Speed of videos as studies: opening, and decoding against FFmpeg alone with all its threads.

The benchmark makes an H.264 video of 336 x 336 pixels and several minutes. `FFmpeg alone` decodes
with automatic threads and converts to RGB without looking for damage, as enteron did before.

    enteron bench video [MINUTES]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.stream import VideoStream

from enteron.study import open_study
from enteron.study.video import VideoFile

ROUNDS = 3
SIZE = 336
RATE = 25


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as name:
        path = write_video(Path(name) / "v.mp4", round(60 * minutes * RATE))
        frames = round(60 * minutes * RATE)
        print(f"{frames:,} frames, {path.stat().st_size / 1e6:.1f} MB, best of {ROUNDS}")
        alone = best(lambda: walk_alone(path))
        opened = best(lambda: VideoFile(path, "s"))
        print(f"open: packets alone {alone[0]:.2f} s, study {opened[0]:.2f} s")
        print(f"{'':14}{'ms a frame':>12}{'CPU ms':>10}")
        for label, work in (
            ("FFmpeg alone", lambda: decode_alone(path)),
            ("study", lambda: decode_study(path)),
        ):
            wall, cpu = best(work)
            print(f"{label:14}{1000 * wall / frames:>12.3f}{1000 * cpu / frames:>10.3f}")


def best(work: Callable[[], object]) -> tuple[float, float]:
    """Least wall time and CPU time of all threads."""
    times = []
    for _ in range(ROUNDS):
        start, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def write_video(path: Path, frames: int) -> Path:
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (900, 900, 3), dtype=np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 6).astype(np.float32)
    texture = np.clip((smooth - smooth.mean()) * 4 + 128, 0, 255).astype(np.uint8)
    with av.open(str(path), "w") as container:
        options = {"preset": "veryfast", "crf": "20"}
        stream = container.add_stream("libx264", rate=Fraction(RATE), options=options)
        assert isinstance(stream, VideoStream)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            y, x = round(250 + 200 * np.cos(number / 61)), round(250 + 200 * np.sin(number / 97))
            picture = np.ascontiguousarray(texture[y : y + SIZE, x : x + SIZE])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def walk_alone(path: Path) -> int:
    """What opening took before: all packets, their stamps and sizes."""
    with av.open(str(path)) as container:
        return sum(bool(p.size and p.pts is not None) for p in container.demux(video=0))


def decode_alone(path: Path) -> int:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        return sum(frame.to_ndarray(format="rgb24").shape[0] for frame in container.decode(stream))


def decode_study(path: Path) -> int:
    with open_study(path) as study:
        return sum(frame.image.shape[0] for frame in study if frame.image is not None)


if __name__ == "__main__":
    main()
