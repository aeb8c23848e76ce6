"""A film as a video file."""

from fractions import Fraction
from pathlib import Path

import av
from av.video.stream import VideoStream

from enteron.phantom.film import Film

RATE = Fraction(3)  # frames a second; capsules record 2 to 6
_QUALITY = {"crf": "16", "preset": "veryfast"}  # hardly visible loss


def write_film(path: Path, film: Film) -> None:
    """Write every frame in order; the file is there only once it is whole."""
    part = path.with_name(f".{path.name}")
    with av.open(str(part), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=RATE, options=_QUALITY)
        assert isinstance(stream, VideoStream)
        stream.height, stream.width = film.frame(0).shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on every machine
        for row in range(len(film)):
            frame = av.VideoFrame.from_ndarray(film.frame(row), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    part.replace(path)
