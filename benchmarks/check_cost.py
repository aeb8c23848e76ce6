"""Cost of the checks of content, folder and store, as a share of a `lite` reading.

`enteron bench check_cost [-- --frames 130000 --distinct 200]`: a folder of 130,000 frames of 336
pixels, as PNG and as JPEG, and a video of two hours. The files of the folder are hard links to some
hundred distinct ones, so their pages are in memory: reading them from a disk comes on top, and is
told for samples of JPEG copies whose pages were dropped. The reading is extrapolated from the rate
of the `lite` encoder on the distinct frames in the same run, with and without mirror images.

Seconds are of the processor, which do not grow with other load on the machine. The share of the
time that passes is at most the number of threads of the encoder times as large, if everything is
done while nothing else runs; in fact digests are taken by the threads that decode.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from benchmarks._inference_study import synthetic_study
from enteron.folders.identity import file_hashes
from enteron.inference import store as store_module
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes import make_encoder, usable_threads
from enteron.inference.score import score_study
from enteron.inference.store import (
    PartialStore,
    StoreKey,
    make_chunk,
    open_embeddings,
    write_stamps,
)
from enteron.inference.views import FLIPPED, PLAIN
from enteron.locks import folder_lock
from enteron.model.network import Network, start_network
from enteron.model.options import FEATURES, ModelOptions
from enteron.study import Study, open_study
from enteron.study.content import (
    StudyContent,
    as_digests,
    digest,
    file_digest,
    file_stamps,
    sampled_hash,
    stamp_tokens,
)

VIDEO_SECONDS = 2 * 3600
CHUNK = EmbedOptions().chunk
COPIES = 5_000  # JPEG files whose pages are dropped

ChunkParts = tuple[NDArray[np.float32], list[int], tuple[list[bytes], list[str]]]
"""Features, source rows, and digests and stamps of a chunk's files."""
Chunks = Callable[[int], ChunkParts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=130_000)
    parser.add_argument("--distinct", type=int, default=200, help="different frames")
    parser.add_argument("--video-rate", type=int, default=3, help="frames per second")
    arguments = parser.parse_args()
    pictures = synthetic_study(arguments.distinct)
    net = start_network(ModelOptions(backbone="lite")).eval()
    encoder = make_encoder(net.backbone, "onnx")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for kind in ("png", "jpg"):
            distinct = distinct_files(pictures.open(), root / f"distinct-{kind}", kind)
            folder = linked_folder(distinct, root / kind, arguments.frames, kind)
            reading = measured_reading(open_study(distinct), encoder, net, root)
            measure_folder(open_study(folder), reading, root, kind)
        cold_samples(root / "distinct-jpg", root / "cold", arguments.frames)
        frames = VIDEO_SECONDS * arguments.video_rate
        video = write_video(pictures.open(), root / "v.mp4", frames, arguments.video_rate)
        short = write_video(pictures.open(), root / "s.mp4", len(pictures.open()), 3)
        reading = measured_reading(open_study(short), encoder, net, root)
        measure_video(open_study(video), reading, root)


# ---- the data


def distinct_files(study: Study, folder: Path, kind: str) -> Path:
    folder.mkdir()
    for frame in study:
        assert frame.image is not None
        bgr = cv2.cvtColor(frame.image, cv2.COLOR_RGB2BGR)
        (folder / f"f{frame.number:06d}.{kind}").write_bytes(cv2.imencode(f".{kind}", bgr)[1])  # pyright: ignore[reportArgumentType]
    return folder


def linked_folder(distinct: Path, folder: Path, frames: int, kind: str) -> Path:
    folder.mkdir()
    files = sorted(distinct.iterdir())
    for number in range(frames):
        (folder / f"frame_{number:06d}.{kind}").hardlink_to(files[number % len(files)])
    return folder


def write_video(study: Study, path: Path, frames: int, rate: int) -> Path:
    """The frames of a study over and over, with noise, so that no two are the same."""
    images = [frame.image for frame in study if frame.image is not None]
    random = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        options = {"crf": "18", "preset": "ultrafast"}
        stream = container.add_stream("libx264", rate=Fraction(rate), options=options)
        assert isinstance(stream, VideoStream)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            noise = random.integers(0, 6, images[0].shape[:2], np.uint8)[..., None]
            image = cv2.add(images[number % len(images)], np.repeat(noise, 3, axis=2))
            frame = av.VideoFrame.from_ndarray(np.asarray(image, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


# ---- the reading


@dataclass(frozen=True)
class Rate:
    """Seconds of the processor, and seconds that passed, per frame."""

    processor: float
    passed: float


def measured_reading(study: Study, encoder: Encoder, net: Network, root: Path) -> dict[str, Rate]:
    """A `lite` reading per frame, up to its scores, with and without mirror images."""
    rates: dict[str, Rate] = {}
    for name, views in (("with mirror images", (PLAIN, FLIPPED)), ("without", (PLAIN,))):
        path = root / "rate.npy"
        start, begin = time.process_time(), time.perf_counter()
        embeddings = embed_study(study, encoder, path, views=views)
        score_study(net, embeddings, views="flip" if len(views) > 1 else "none")
        rows = len(study)
        rates[name] = Rate(
            (time.process_time() - start) / rows, (time.perf_counter() - begin) / rows
        )
        path.unlink()
    return rates


# ---- the checks


class Costs:
    """Processor seconds of every check."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, work: Callable[[], object], times: int = 1) -> None:
        """Measure some work, which a reading does `times` times."""
        start = time.process_time()
        work()
        self.seconds[name] = times * (time.process_time() - start)

    def print(self, title: str, rows: int, reading: dict[str, Rate]) -> None:
        total = sum(self.seconds.values())
        print(f"## {title}\n")
        for name, seconds in self.seconds.items():
            print(f"{name:58} {seconds:8.2f} s")
        print(f"{'all checks':58} {total:8.2f} s")
        for name, rate in reading.items():
            whole = rows * rate.processor
            print(
                f"share of a reading {name} ({whole:,.0f} s of the processor, "
                f"{1 / rate.passed:.0f} frames/s here): {total / whole:.2%}; at most "
                f"{usable_threads(None) * total / whole:.2%} of the time that passes"
            )
        print(flush=True)


def measure_folder(study: Study, reading: dict[str, Rate], root: Path, kind: str) -> None:
    files, costs = study.files(), Costs()
    size = sum(os.stat(path).st_size for path in files) / len(files)  # noqa: PTH116
    stamps = file_stamps(files)
    costs.add(
        "stamps of all files: at the start, by chunk, at the end",
        lambda: file_stamps(files),
        times=3,
    )
    costs.add("stamps as they are stored", lambda: stamp_tokens(stamps))
    costs.add("samples of all files", lambda: sampled_hash(files))
    contents = [Path(path).read_bytes() for path in files[: len(set(stamps[:, 3].tolist()))]]
    costs.add(
        "digests of all files, while they are read",
        lambda: [digest(contents[row % len(contents)]) for row in range(len(files))],
    )
    costs.add("listing the folder again", study.new_files)
    content = content_of(study, [digest(contents[r % len(contents)]) for r in range(len(files))])
    add_store_and_folder(costs, study, content, root)
    costs.print(f"{len(study):,} {kind.upper()} files of {size / 1000:.0f} kB", len(study), reading)
    again = Costs()
    again.add("stamps, and as they are stored", lambda: stamp_tokens(file_stamps(files)))
    again.add("samples", lambda: sampled_hash(files))
    again.print("the same, read again from a finished store", len(study), reading)
    copied = Costs()
    copied.add("digests of a copied study", lambda: [file_digest(path) for path in files])
    copied.print("the same, copied, read again from a finished store", len(study), reading)


def measure_video(study: Study, reading: dict[str, Rate], root: Path) -> None:
    (file,), costs = study.files(), Costs()
    size = Path(file).stat().st_size
    chunks = -(-len(study) // CHUNK)
    costs.add("stamp of the file, at every chunk", lambda: file_stamps([file]), chunks + 2)
    costs.add("samples", lambda: sampled_hash([file]))
    costs.add("digest of the file, in a thread", lambda: file_digest(file))
    content = StudyContent(study.numbers, as_digests([file_digest(file)]), per_row=False)
    add_store_and_folder(costs, study, content, root)
    costs.print(f"a video of {len(study):,} frames, {size / 1e6:.0f} MB", len(study), reading)


def content_of(study: Study, digests: list[bytes]) -> StudyContent:
    return StudyContent(study.numbers, as_digests(digests), per_row=True)


def add_store_and_folder(costs: Costs, study: Study, content: StudyContent, root: Path) -> None:
    """What does not depend on the files: journal, store, lock, hashes of the reading's files."""
    path = root / "store.npy"
    rows, per_row = len(study), content.per_row
    features = np.zeros((CHUNK, 2, FEATURES), np.float32)
    tokens = ["0" * 16] * len(content.digests)
    stored = [row.tobytes() for row in content.digests]

    def chunks(first: int) -> ChunkParts:
        count = min(CHUNK, rows - first)
        part = slice(first, first + count)
        source = list(range(first, first + count))
        files = (stored[part], tokens[part]) if per_row else (stored, tokens)
        return features[:count], source, files

    def lines(with_files: bool) -> None:
        for first in range(0, rows, CHUNK):
            part, source, files = chunks(first)
            chunk = make_chunk(part, source, {}, (), *(files if with_files else ((), ())))
            chunk.model_dump_json()

    costs.add("lines of the journal with digests", lambda: lines(True))
    before = Costs()
    before.add("without", lambda: lines(False))
    costs.seconds["lines of the journal with digests"] -= before.seconds["without"]
    make_store(path, study, content, chunks)
    costs.add("reading the store back at the end", lambda: open_embeddings(path))
    costs.add("stamps beside the store", lambda: write_stamps(path, content, tokens))
    costs.add("hash of the content", lambda: content.hash)
    files = root / "files"
    files.mkdir(exist_ok=True)
    (files / "scores").write_bytes(os.urandom(80 * rows))
    (files / "page").write_bytes(os.urandom(12_000_000))
    costs.add("SHA-256 of the reading's files", lambda: file_hashes(files, ("scores", "page")), 2)
    costs.add("the lock", lambda: lock(files))
    path.unlink()


def lock(folder: Path) -> None:
    with folder_lock(folder):
        pass


def make_store(path: Path, study: Study, content: StudyContent, chunks: Chunks) -> None:
    """A store of this study with made-up features, without waiting for the disk."""
    key = StoreKey(
        backbone="", preprocessing="", runtime="", views=(PLAIN.name, FLIPPED.name),
        precision="float32", redundancy=None, study="", samples="",
    )  # fmt: skip
    store = PartialStore(path, key, study.id, study.numbers, CHUNK, per_row=content.per_row)
    sync, store_module._sync = store_module._sync, lambda file: file.flush()
    try:
        store.open()
        store.truncate(0)
        for first in range(0, len(study), CHUNK):
            part, source, files = chunks(first)
            store.add(part, make_chunk(part, source, {}, (), *files))
        store.finish(None if content.per_row else content.digests[0].tobytes())
    finally:
        store_module._sync = sync
        store.close()


def cold_samples(distinct: Path, folder: Path, frames: int) -> None:
    """Samples of files that are not in memory: what a disk adds."""
    folder.mkdir()
    files = sorted(distinct.iterdir())
    paths: list[str] = []
    for number in range(COPIES):
        path = folder / f"frame_{number:06d}.jpg"
        path.write_bytes(files[number % len(files)].read_bytes())
        paths.append(str(path))
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    begin = time.perf_counter()
    sampled_hash(paths)
    passed = time.perf_counter() - begin
    print(
        f"samples of {COPIES:,} JPEG copies that were dropped from memory: {passed:.2f} s passed, "
        f"{frames / COPIES * passed:.1f} s for {frames:,}\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
