"""Videos whose frames carry their own number, damaged on purpose, and what a study makes of them.

The number of a frame is drawn as 36 black and white squares: 16 bits, their complements and four
fixed corners, so that a picture that was damaged reads as "no number" instead of a wrong one. A
moving texture around them keeps the encoders busy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.error import FFmpegError
from av.video.stream import VideoStream
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.study import open_study

Picture = NDArray[np.uint8]

SIZE = 208  # pixels along each side of a picture
CELL = 16  # pixels along each side of a square of the number pattern
CELLS = 6  # squares along each side of the pattern
LOW_PSNR = 30.0  # dB; a picture below is not the one that was recorded


# ---- videos


@dataclass(frozen=True)
class BaseVideo:
    """An undamaged video, as it is encoded."""

    name: str  # of its file; the suffix selects the container
    codec: str
    frames: int
    options: dict[str, str]
    container: dict[str, str] = field(default_factory=dict)
    rate: Fraction = Fraction(25)

    @property
    def kind(self) -> str:
        """Container and codec, for tables."""
        b_frames = "" if self.options.get("bf", "0") == "0" else " B"
        return f"{self.name.rsplit('.', 1)[1]} {self.codec.removeprefix('lib')}{b_frames}"


_X264 = {"preset": "veryfast", "crf": "22"}
_NTSC = Fraction(30000, 1001)
BASES = (
    BaseVideo("plain.mp4", "libx264", 300, {**_X264, "g": "30", "bf": "0"}),
    BaseVideo(
        "b.mp4", "libx264", 280, {**_X264, "g": "40", "bf": "3"}, {"movflags": "faststart"}, _NTSC
    ),
    BaseVideo("asp.mp4", "mpeg4", 260, {"g": "24", "bf": "0", "b": "1500000"}),
    BaseVideo(
        "pieces.mp4",
        "libx264",
        260,
        {**_X264, "g": "25", "bf": "2"},
        {"movflags": "frag_keyframe+empty_moov+default_base_moof"},
    ),
    BaseVideo("plain.mkv", "libx264", 300, {**_X264, "g": "25", "bf": "0"}, rate=_NTSC),
    BaseVideo("b.mkv", "libx264", 300, {**_X264, "g": "50", "bf": "3"}),
    BaseVideo(
        "open.mkv",
        "libx264",
        260,
        {**_X264, "g": "24", "bf": "3", "x264-params": "open-gop=1"},
        rate=_NTSC,
    ),
    BaseVideo("asp.mkv", "mpeg4", 240, {"g": "20", "bf": "2", "b": "1500000"}),
    BaseVideo("asp.avi", "mpeg4", 300, {"g": "24", "bf": "0", "b": "1500000"}),
    BaseVideo("asp-b.avi", "mpeg4", 260, {"g": "24", "bf": "2", "b": "1500000"}),
    BaseVideo("b.avi", "libx264", 280, {**_X264, "g": "30", "bf": "3"}, rate=_NTSC),
    BaseVideo("m.avi", "mjpeg", 200, {"b": "4000000"}),
    BaseVideo("plain.mpg", "mpeg2video", 260, {"g": "15", "bf": "0", "b": "1500000"}),
    BaseVideo("b.mpg", "mpeg2video", 260, {"g": "18", "bf": "2", "b": "1500000"}, rate=_NTSC),
    BaseVideo("one.mpg", "mpeg1video", 220, {"g": "12", "bf": "2", "b": "1500000"}),
    BaseVideo("plain.ts", "libx264", 280, {**_X264, "g": "30", "bf": "0"}),
    BaseVideo("b.ts", "libx264", 280, {**_X264, "g": "40", "bf": "3"}, rate=_NTSC),
    BaseVideo("two.ts", "mpeg2video", 240, {"g": "15", "bf": "2", "b": "1500000"}),
)
"""In the five containers that studies come in."""

OTHER_BASES = (
    BaseVideo(
        "v.webm",
        "libvpx-vp9",
        220,
        {"g": "40", "cpu-used": "8", "deadline": "realtime", "crf": "28"},
    ),
    BaseVideo("v.wmv", "wmv2", 240, {"g": "24", "b": "1500000"}),
    BaseVideo("v.flv", "libx264", 240, {**_X264, "g": "30", "bf": "2"}),
)
"""In other containers."""


def numbered_picture(number: int, texture: Picture) -> Picture:
    """A window of a texture that moves with the number, and the number's pattern in its middle."""
    y = round(180 + 170 * np.sin(number / 23))
    x = round(180 + 170 * np.cos(number / 31))
    picture = texture[y : y + SIZE, x : x + SIZE].copy()
    bits = [number >> bit & 1 for bit in range(16)]
    squares = np.array([*bits, *(1 - bit for bit in bits), 1, 0, 0, 1]).reshape(CELLS, CELLS)
    pattern = np.where(squares, 225, 30).astype(np.uint8).repeat(CELL, 0).repeat(CELL, 1)
    edge = (SIZE - CELLS * CELL) // 2
    picture[edge : edge + CELLS * CELL, edge : edge + CELLS * CELL] = pattern[..., None]
    return picture


def number_in(picture: Picture) -> int | None:
    """The number that a picture carries; None where its squares contradict each other."""
    edge = (SIZE - CELLS * CELL) // 2
    if picture.shape != (SIZE, SIZE, 3):
        return None
    pattern = picture[edge : edge + CELLS * CELL, edge : edge + CELLS * CELL].mean(axis=2)
    cells = pattern.reshape(CELLS, CELL, CELLS, CELL)[:, 4:-4, :, 4:-4].mean(axis=(1, 3))
    squares = (cells > 128).ravel()
    if (squares[:16] == squares[16:32]).any() or squares[32:].tolist() != [
        True,
        False,
        False,
        True,
    ]:
        return None
    return int((squares[:16] * (1 << np.arange(16))).sum())


def texture() -> Picture:
    """Smooth colours with a little grain."""
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, (600, 600, 3), dtype=np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 5).astype(np.float32)
    grain = random.normal(0, 4, noise.shape)
    return np.clip((smooth - smooth.mean()) * 8 + 128 + grain, 0, 255).astype(np.uint8)


def write_base(folder: Path, base: BaseVideo) -> Path:
    """Encode a base video; single-threaded, so that its bytes are the same on every machine."""
    path, background = folder / base.name, texture()
    with av.open(str(path), "w", container_options=base.container) as container:
        stream = container.add_stream(base.codec, rate=base.rate, options=base.options)
        assert isinstance(stream, VideoStream)
        stream.codec_context.thread_count = 1
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuvj420p" if base.codec == "mjpeg" else "yuv420p"
        for number in range(base.frames):
            picture = numbered_picture(number, background)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def decoded_pictures(path: Path) -> Iterator[Picture]:
    """Every picture that FFmpeg gives when nobody asks about damage."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            packets = container.demux(stream)
            while True:
                try:
                    packet = next(packets)
                except StopIteration:
                    return
                try:
                    for frame in packet.decode():
                        yield np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8)
                except FFmpegError:
                    continue
    except (FFmpegError, IndexError, OSError, MemoryError, ValueError):
        return


# ---- mutations

Mutation = Callable[[bytearray, np.random.Generator], str]


def _span(size: int, random: np.random.Generator) -> tuple[int, int]:
    """Start and length of a span: 1 to 8,192 bytes, sometimes up to a sixth of the file."""
    length = int(2 ** random.uniform(0, 13))
    if random.random() < 0.15:
        length = int(random.uniform(8192, max(8193, size / 6)))
    length = max(1, min(length, size - 1))
    place = random.random()
    if place < 0.12:  # the header
        start = int(random.integers(0, max(1, min(4096, size // 20))))
    elif place < 0.24:  # the end
        start = size - length - int(random.integers(0, max(1, min(4096, size // 20))))
    else:
        start = int(random.integers(0, size - length + 1))
    return max(0, min(start, size - length)), length


def delete(data: bytearray, random: np.random.Generator) -> str:
    start, length = _span(len(data), random)
    del data[start : start + length]
    return f"{length} bytes deleted at {start}"


def zero(data: bytearray, random: np.random.Generator) -> str:
    start, length = _span(len(data), random)
    data[start : start + length] = bytes(length)
    return f"{length} bytes zeroed at {start}"


def scramble(data: bytearray, random: np.random.Generator) -> str:
    start, length = _span(len(data), random)
    data[start : start + length] = random.bytes(length)
    return f"{length} random bytes at {start}"


def flip(data: bytearray, random: np.random.Generator) -> str:
    places = random.integers(0, len(data), int(random.integers(1, 9)))
    for place in places.tolist():
        data[place] ^= 1 << int(random.integers(8))
    return f"{places.size} bits flipped"


def truncate(data: bytearray, random: np.random.Generator) -> str:
    length = int(len(data) * random.uniform(0.2, 0.999))
    del data[length:]
    return f"cut off at {length}"


def duplicate(data: bytearray, random: np.random.Generator) -> str:
    start, length = _span(len(data), random)
    data[start:start] = data[start : start + length]
    return f"{length} bytes repeated at {start}"


def swap(data: bytearray, random: np.random.Generator) -> str:
    """Two neighbouring spans change places."""
    start, length = _span(len(data), random)
    middle = start + length
    second = data[middle : middle + length]
    data[start : middle + len(second)] = second + data[start:middle]
    return f"{length} bytes swapped at {start}"


def move(data: bytearray, random: np.random.Generator) -> str:
    """A span moves to another place."""
    start, length = _span(len(data), random)
    piece = data[start : start + length]
    del data[start : start + length]
    target = int(random.integers(0, len(data) + 1))
    data[target:target] = piece
    return f"{length} bytes moved from {start} to {target}"


MUTATIONS: tuple[Mutation, ...] = (
    delete, zero, scramble, flip, truncate, duplicate, swap, move, delete, zero,
)  # fmt: skip


def mutated(data: bytes, seed: int) -> tuple[bytes, str]:
    """Damage a file in one to three places, and say how."""
    random = np.random.default_rng(seed)
    changed = bytearray(data)
    count = int(random.choice([1, 1, 1, 2, 3]))
    kinds = [MUTATIONS[(seed + index) % len(MUTATIONS)] for index in range(count)]
    said = [kind(changed, random) for kind in kinds]
    return bytes(changed), "; ".join(said)


# ---- what a study makes of them


@dataclass
class Outcome:
    """What was read from one damaged video."""

    kind: str
    mutation: str
    frames: int  # of the undamaged video
    readable: int = 0
    unreadable: int = 0
    wrong: list[tuple[int, int]] = field(default_factory=list)  # frame number, number in picture
    poor: list[int] = field(default_factory=list)  # readable, but below LOW_PSNR
    lost: int = 0  # frames that decode well, and were not readable
    recoverable: int = 0  # frames that decode well
    refusal: str = ""
    missing: str = ""
    failure: str = ""  # an exception that is not ours


def psnr(picture: Picture, original: Picture) -> float:
    """Peak signal to noise ratio in dB."""
    if picture.shape != original.shape:
        return 0.0
    error = float(np.square(picture.astype(np.float32) - original).mean(dtype=np.float64))
    return 99.0 if error == 0 else 10 * np.log10(255.0**2 / error)


def examine(
    path: Path, originals: list[Picture], kind: str, mutation: str, *, caution: bool = True
) -> Outcome:
    """Read a damaged video as a study and compare it with the undamaged pictures."""
    outcome = Outcome(kind, mutation, len(originals))
    readable: set[int] = set()
    try:
        with open_study(path, study_id="s") as study:
            for frame in study:
                if frame.image is None:
                    outcome.unreadable += 1
                    continue
                readable.add(frame.number)
                shown = number_in(frame.image)
                if shown is not None and shown != frame.number:
                    outcome.wrong.append((frame.number, shown))
                elif psnr(frame.image, originals[frame.number]) < LOW_PSNR:
                    outcome.poor.append(frame.number)
            missing = getattr(study, "missing", None)
            outcome.missing = "" if missing is None else missing.sentence
    except EnteronError as error:
        outcome.refusal = str(error)
    except Exception as error:
        outcome.failure = f"{type(error).__name__}: {error}"
    outcome.readable = len(readable)
    if caution:
        good = {
            number
            for picture in decoded_pictures(path)
            if (number := number_in(picture)) is not None
            and number < len(originals)
            and psnr(picture, originals[number]) >= LOW_PSNR
        }
        outcome.recoverable, outcome.lost = len(good), len(good - readable)
    return outcome
