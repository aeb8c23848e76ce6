"""Pictures of H.264 are FFmpeg's own, byte by byte, and known to be decoded to their end."""

from pathlib import Path

import av
import av.logging as av_logging
import cv2
import numpy as np
import pytest
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from enteron.study import open_study, slice_check
from enteron.study.slice_check import TallDecoder
from enteron.study.video import VideoFile

FRAMES = 60
ENCODING = {"crf": "18", "preset": "veryfast"}


def write_moving(path: Path, options: dict[str, str], width: int = 128, height: int = 128) -> Path:
    """A texture that moves up and down, so that blocks are predicted from below the edge."""
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
    texture = cv2.resize(noise, (1200, 1200), interpolation=cv2.INTER_CUBIC)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={**ENCODING, **options})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(FRAMES):
            y, x = round(200 + 150 * np.sin(number / 7)), round(300 + 100 * np.cos(number / 5))
            window = np.ascontiguousarray(texture[y : y + height, x : x + width], np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode())
    return path


def plain_pictures(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize(
    ("name", "options", "size", "by"),
    [
        ("v.mp4", {"bf": "0", "g": "20"}, (128, 128), "decoder"),
        ("v.mkv", {"bf": "0", "x264-params": "ref=6:slices=3:weightp=2"}, (128, 128), "decoder"),
        ("v.ts", {"bf": "0", "profile": "baseline"}, (128, 104), "decoder"),
        ("v.mp4", {"bf": "0", "x264-params": "intra-refresh=1"}, (122, 130), "decoder"),
        ("v.mp4", {"bf": "3"}, (128, 128), "second decoder"),
        ("v.mp4", {"bf": "0", "x264-params": "interlaced=1"}, (128, 128), None),
    ],
    ids=["plain", "slices", "baseline", "intra refresh", "reordered", "interlaced"],
)
def test_pictures_are_those_of_a_plain_decoder(tmp_path, name, options, size, by):
    path = write_moving(tmp_path / name, options, *size)
    with open_study(path) as study:
        assert isinstance(study, VideoFile)
        assert study._slices == by
        pictures = [frame.image for frame in study]
        np.testing.assert_array_equal(study.frame(47).image, pictures[47])
    np.testing.assert_array_equal(pictures, plain_pictures(path))


def test_without_the_last_line_copied_pictures_would_differ(tmp_path, monkeypatch):
    """The trial of the first pictures notices it, and another way is taken."""
    path = write_moving(tmp_path / "v.mp4", {"bf": "0"})
    monkeypatch.setattr(slice_check, "_repeat_last_line", lambda picture, height: None)
    with open_study(path) as study:
        assert isinstance(study, VideoFile)
        assert study._slices == "second decoder"
    monkeypatch.undo()
    with open_study(path) as study:
        np.testing.assert_array_equal([frame.image for frame in study], plain_pictures(path))


def test_damage_that_ffmpeg_does_not_report_is_found(tmp_path):
    path = write_moving(tmp_path / "v.mp4", {"bf": "0", "g": "60"})
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        extradata = stream.codec_context.extradata
        packets = [(bytes(p), p.is_keyframe) for p in container.demux(stream) if p.size]
    last = packets[20][0]
    unreported = found = 0
    for place in range(len(last) // 10, len(last), len(last) // 400):
        changed = bytearray(last)
        changed[place] ^= 0x10
        if reports_damage([data for data, _ in packets[:20]] + [bytes(changed)], extradata):
            continue
        unreported += 1
        tall = TallDecoder.for_stream("h264", extradata)
        assert tall is not None
        for row, (data, is_key) in enumerate(packets[:20]):
            packet = av.Packet(data)
            packet.is_keyframe = is_key
            assert not tall.decode(packet, row)[1]
        found += tall.decode(av.Packet(bytes(changed)), 20)[1]
    assert unreported >= 20
    # Bits of signs may change and leave everything behind them in its place.
    assert found >= 0.9 * unreported


def reports_damage(packets: list[bytes], extradata: bytes | None) -> bool:
    """Whether a plain decoder reports an error anywhere."""
    plain = av.CodecContext.create("h264", "r")
    assert isinstance(plain, VideoCodecContext)
    plain.extradata, plain.thread_count = extradata, 1
    with av_logging.Capture() as reports:
        try:
            for data in packets:
                plain.decode(av.Packet(data))
        except FFmpegError:
            return True
    return any(level <= av_logging.ERROR for level, _, _ in reports)
