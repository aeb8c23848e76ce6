"""Videos: variable rates, lost packets, files that end in the middle, damage, hostile files."""

import errno
import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

from enteron.errors import StudyError
from enteron.study import VIDEO_SUFFIXES, open_study, packets
from enteron.study.video_source import VideoReader
from tests.making import number_of, picture, write_video


def test_variable_rate_keeps_every_time(tmp_path):
    stamps = [0, 40, 80, 500, 540, 2540, 2600, 2601, 9000, 9500]
    study = open_study(write_video(tmp_path / "v.mkv", 10, stamps=stamps))
    assert study.rate is None
    assert [frame.time for frame in study] == [Fraction(stamp, 1000) for stamp in stamps]
    times = study.times()
    assert times is not None
    np.testing.assert_allclose(times, np.array(stamps) / 1000)
    image = study.frame(7).image
    assert image is not None
    assert number_of(image) == 7


def test_a_constant_rate_in_a_millisecond_container_is_exact(tmp_path):
    # 30000/1001 frames a second stamped in whole milliseconds: 0, 33, 67, 100, …
    study = open_study(write_video(tmp_path / "v.mkv", 300))
    assert study.rate == Fraction(30000, 1001)
    assert study.frame(299).time == Fraction(299 * 1001, 30000)


def test_slow_capsule_rates_are_exact(tmp_path):
    study = open_study(write_video(tmp_path / "v.mp4", 20, rate=Fraction(7, 2)))
    assert study.rate == Fraction(7, 2)
    assert study.frame(7).time == 2


def patched(path, old: bytes, new: bytes):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    return path


def test_a_header_that_promises_too_many_frames(tmp_path):
    path = write_video(tmp_path / "v.avi", 20, "mjpeg")
    # dwTotalFrames and dwLength of the AVI header
    data = path.read_bytes()
    count = (20).to_bytes(4, "little")
    assert data.count(count) >= 1
    path.write_bytes(data[:2000].replace(count, (500).to_bytes(4, "little")) + data[2000:])
    study = open_study(path)
    assert len(study) == 20
    assert study.notes == ("the header states 500 frames, the file holds 20",)
    assert len(list(study)) == 20


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [("v.mkv", "mjpeg", {}), ("v.avi", "mjpeg", {}), ("v.mpg", "mpeg2video", {"g": "6"})],
)
def test_a_video_cut_off_in_the_middle_is_as_long_as_what_is_left(tmp_path, name, codec, options):
    path = write_video(tmp_path / name, 60, codec, options=options)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    study = open_study(path)
    assert 25 < len(study) < 60
    frames = list(study)
    assert len(frames) == len(study)
    for frame in frames[:-2]:  # the last packet may be incomplete
        assert frame.image is not None
        assert number_of(frame.image) == frame.number


def test_an_mp4_without_its_index_is_refused(tmp_path):
    path = write_video(tmp_path / "v.mp4", 60)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(StudyError, match=r"cannot be opened .*; check that it is a whole video"):
        open_study(path)


@pytest.mark.parametrize("content", [b"", b"text, not a video" * 100])
def test_what_is_no_video_is_refused(tmp_path, content):
    path = tmp_path / "v.mkv"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"cannot be opened|is a text file, not a video"):
        open_study(path)


def test_a_file_with_sound_only_is_refused(tmp_path):
    path = tmp_path / "v.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with pytest.raises(StudyError, match="no video in it"):
        open_study(path)


def damage(path, frames: set[int]):
    """Overwrite the packets of some frames with zeros."""
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(container.streams.video[0]) if p.size]
        places = {n: (p.pos, bytes(p)) for n, p in enumerate(packets) if n in frames}
    data = bytearray(path.read_bytes())
    for position, content in places.values():
        at = data.find(content[:64], max(0, (position or 0) - 64))
        assert at >= 0
        data[at : at + len(content)] = bytes(len(content))
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["v.mkv", "v.avi", "v.mp4"])
def test_a_damaged_picture_keeps_its_place(tmp_path, name):
    path = write_video(tmp_path / name, 20, "mjpeg")
    damage(path, {5, 6, 19})
    study = open_study(path)
    frames = list(study)
    assert [frame.number for frame in frames] == list(range(20))
    assert {frame.number for frame in frames if frame.image is None} == {5, 6, 19}
    assert set(study.unreadable) == {5, 6, 19}
    for frame in frames:
        if frame.image is not None:
            assert number_of(frame.image) == frame.number
    assert study.frame(6).image is None
    seven = study.frame(7).image
    assert seven is not None
    assert number_of(seven) == 7


def test_damage_in_a_predicted_picture_is_not_passed_off_as_one(tmp_path):
    path = write_video(tmp_path / "v.mkv", 40, "libx264", options={"g": "10", "bf": "0"})
    damage(path, {14})
    study = open_study(path)
    for frame in study:
        if frame.image is not None and frame.number not in range(14, 20):
            assert number_of(frame.image) == frame.number
    assert 14 in study.unreadable


def test_more_than_half_damaged_refuses_the_video(tmp_path):
    path = write_video(tmp_path / "v.mkv", 10, "mjpeg")
    damage(path, {0, 1, 2, 3, 4, 5})
    with pytest.raises(StudyError, match="more than half"):
        list(open_study(path))


def test_a_video_has_its_own_times(tmp_path):
    path = write_video(tmp_path / "v.mp4", 3)
    with pytest.raises(StudyError, match="has its own times"):
        open_study(path, rate=Fraction(2))


# ---- numbers


def remuxed(source, target, *, drop=(), **options):
    """The same packets in another file, without those of some frames."""
    with (
        av.open(str(source)) as read,
        av.open(str(target), "w", container_options=options) as written,
    ):
        stream = read.streams.video[0]
        copy = written.add_stream_from_template(stream)
        for row, packet in enumerate(p for p in read.demux(stream) if p.size):
            if row not in drop:
                packet.stream = copy
                written.mux(packet)
    return target


def test_frames_that_the_recorder_left_out_leave_their_numbers_unused(tmp_path):
    numbers = [0, 1, 2, 5, 6, 7, *range(20, 60)]
    stamps = [40 * number for number in numbers]
    path = write_video(tmp_path / "v.mkv", len(numbers), rate=Fraction(25), stamps=stamps)
    study = open_study(path)
    assert study.numbers.tolist() == numbers
    assert study.rate == 25
    frames = list(study)
    assert all(frame.image is not None for frame in frames)
    assert [frame.time for frame in frames] == [Fraction(number, 25) for number in numbers]
    assert [number_of(f.image) for f in frames if f.image is not None] == list(range(len(numbers)))


@pytest.mark.parametrize("name", ["v.mkv", "v.mp4", "v.flv"])
def test_a_lost_packet_ends_trust_up_to_the_next_key_frame(tmp_path, name):
    """H.264 counts its reference pictures, so that the loss shows even where bytes do not."""
    options = {"g": "20", "bf": "0", "sc_threshold": "0"}
    whole = write_video(tmp_path / "whole.mkv", 80, options=options, rate=Fraction(25))
    study = open_study(remuxed(whole, tmp_path / name, drop={25}))
    frames = list(study)
    assert 25 not in study.numbers
    assert sorted(study.unreadable) == list(range(26, 40))
    assert "up to the next intact key frame" in study.unreadable[30]
    for frame in frames:
        if frame.image is not None:
            assert number_of(frame.image) == frame.number


def test_an_avi_with_empty_chunks_keeps_its_places(tmp_path):
    """Capture programs write an empty chunk for a frame that they dropped."""
    numbers = [0, 1, 2, 5, 6, 9, *range(10, 40)]
    path = tmp_path / "v.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25, options={"g": "10"})
        assert isinstance(stream, VideoStream)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in numbers:
            frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    study = open_study(path)
    assert study.numbers.tolist() == numbers
    for frame in study:
        assert frame.image is not None
        assert number_of(frame.image) == frame.number


def test_a_video_whose_beginning_is_lost_is_refused_where_it_cannot_be_numbered(tmp_path):
    path = write_video(tmp_path / "v.ts", 60, options={"g": "10"})
    path.write_bytes(path.read_bytes()[188 * 12 :])
    with pytest.raises(StudyError, match="cannot be numbered: its beginning is lost; copy the"):
        open_study(path)


def test_matroska_keeps_its_numbers_without_the_first_frames(tmp_path):
    path = write_video(tmp_path / "v.mkv", 60, "mjpeg", Fraction(25))
    data = bytearray(path.read_bytes())
    first = data.find(b"\x1f\x43\xb6\x75")  # the first cluster
    data[first : first + 64] = bytes(64)
    path.write_bytes(data)
    study = open_study(path)
    assert study.numbers[0] > 0
    assert f"the first {study.numbers[0]} frames of the recording are lost" in study.notes
    for frame in study:
        if frame.image is not None:
            assert number_of(frame.image) == frame.number


# ---- what is missing


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("v.mkv", "libx264", {"g": "10"}),
        ("v.mp4", "libx264", {"g": "10"}),
        ("v.avi", "mjpeg", {}),
        ("v.wmv", "wmv2", {"g": "10"}),
    ],
)
def test_a_video_cut_off_says_how_much_is_missing(tmp_path, name, codec, options):
    path = write_video(tmp_path / name, 120, codec, Fraction(10), options)
    if name == "v.mp4":
        path = remuxed(path, tmp_path / "front.mp4", movflags="faststart")
    assert open_study(path).missing is None
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 5])
    study = open_study(path)
    missing = study.missing
    assert missing is not None
    found = int(study.numbers[-1]) + 1
    assert missing.frames == 120 - found
    assert missing.seconds == pytest.approx((120 - found) / 10)
    assert f"{120 - found} of 120 frames are missing at its end" in missing.sentence


def test_a_transport_stream_cut_off_in_a_picture_says_so(tmp_path):
    path = write_video(tmp_path / "v.ts", 60, options={"g": "10"})
    assert open_study(path).missing is None
    path.write_bytes(path.read_bytes()[:-100])
    missing = open_study(path).missing
    assert missing is not None
    assert missing.frames is None
    assert "how much is missing at its end is not known" in missing.sentence


# ---- files that are not what they seem


def test_a_disk_that_fails_is_no_end_of_the_video(tmp_path, monkeypatch):
    path = write_video(tmp_path / "v.mkv", 400, "mjpeg")
    read = os.read

    def failing(file: int, count: int) -> bytes:
        if os.lseek(file, 0, os.SEEK_CUR) > path.stat().st_size // 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(file, min(count, 4096))

    monkeypatch.setattr("enteron.study.video_source.os.read", failing)
    with pytest.raises(StudyError, match=r"cannot be read from its disk \(input/output error\)"):
        open_study(path)
    monkeypatch.undo()
    study = open_study(path)
    monkeypatch.setattr("enteron.study.video_source.os.read", failing)
    with pytest.raises(StudyError, match="cannot be read from its disk"):
        list(study)


def test_a_real_read_error_is_told(tmp_path):
    memory = Path("/proc/self/mem")
    if not memory.exists():
        pytest.skip("needs Linux: its first page of memory cannot be read")
    (tmp_path / "v.mkv").symlink_to(memory)
    with pytest.raises(StudyError, match=r"cannot be read from its disk \(input/output error\)"):
        open_study(tmp_path / "v.mkv")


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "v.mkv")
    with pytest.raises(StudyError, match=r"v\.mkv cannot be read \(it is a pipe, not a regular"):
        open_study(tmp_path / "v.mkv")


PLAYLISTS = {
    "concat": "ffconcat version 1.0\nfile 'a.mp4'\n",
    "hls": "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\na.ts\n#EXT-X-ENDLIST\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
    "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
    'mediaPresentationDuration="PT2S"><Period><AdaptationSet><Representation id="1" '
    'mimeType="video/mp4"><BaseURL>a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>',
}


@pytest.mark.parametrize("suffix", [".mp4", ".ts", ".mkv"])
@pytest.mark.parametrize("kind", PLAYLISTS)
def test_a_playlist_does_not_read_its_neighbours(tmp_path, kind, suffix):
    write_video(tmp_path / "a.mp4", 5)
    write_video(tmp_path / "a.ts", 5)
    path = tmp_path / f"v{suffix}"
    path.write_text(PLAYLISTS[kind])
    with pytest.raises(StudyError, match=r"cannot be opened|is a text file, not a video"):
        open_study(path)


def test_an_mp4_with_its_data_elsewhere_does_not_read_it(tmp_path):
    write_video(tmp_path / "a.mp4", 20, options={"g": "5"})
    data = (tmp_path / "a.mp4").read_bytes()
    inside = b"\0\0\0\x0curl \0\0\0\x01"
    assert inside in data
    outside = b"\0\0\0\x0curl \0\0\0\0"  # "the data is not in this file"
    path = tmp_path / "v.mp4"
    path.write_bytes(data.replace(inside, outside))
    opened: list[str] = []

    class Watching(VideoReader):
        def __init__(self, path):
            opened.append(path.name)
            super().__init__(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enteron.study.video_source.VideoReader", Watching)
        with suppress(StudyError):
            list(open_study(path))
    assert set(opened) == {"v.mp4"}


def test_an_image_pattern_is_no_video(tmp_path):
    (tmp_path / "v%03d.mkv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(StudyError, match="cannot be opened"):
        open_study(tmp_path / "v%03d.mkv")


def test_absurd_sizes_are_refused_before_memory_is_taken(tmp_path):
    path = write_video(tmp_path / "v.avi", 5, "mjpeg")
    data = path.read_bytes()
    for size in ((64).to_bytes(4, "little") * 2, (64).to_bytes(2, "big") * 2):
        data = data.replace(size, b"\xff\xff\0\0\xff\xff\0\0" if len(size) == 8 else b"\xff" * 4)
    path.write_bytes(data)
    with pytest.raises(StudyError, match=r"65535 x 65535 pixels|cannot be opened|more than half"):
        list(open_study(path))


def test_absurd_stamps_do_not_stretch_the_study(tmp_path):
    stamps = [40 * number for number in range(30)]
    path = write_video(tmp_path / "v.mkv", 30, "mjpeg", Fraction(25), stamps=stamps)
    stamps[20] = 10**12
    path = write_video(
        tmp_path / "w.mkv",
        30,
        "mjpeg",
        Fraction(25),
        stamps=[*stamps[:20], *[10**12 + 40 * number for number in range(10)]],
    )
    study = open_study(path)
    times = study.times()
    assert times is not None
    assert np.isfinite(times).all()
    assert len(study) <= 30
    assert int(study.numbers[-1]) <= 10**9


def test_too_many_packets_are_refused(tmp_path, monkeypatch):
    path = write_video(tmp_path / "v.mkv", 30, "mjpeg")
    monkeypatch.setattr(packets, "MAX_PACKETS", 20)
    with pytest.raises(StudyError, match="more than 20 packets; split it"):
        open_study(path)


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [(".wmv", "wmv2"), (".webm", "libvpx"), (".ts", "libx264"), (".m2ts", "libx264"),
     (".flv", "libx264"), (".3gp", "libx264"), (".mov", "libx264"), (".vob", "mpeg2video"),
     (".asf", "wmv2"), (".mts", "mpeg2video")],
)  # fmt: skip
def test_every_container_is_read(tmp_path, suffix, codec):
    assert suffix in VIDEO_SUFFIXES
    study = open_study(write_video(tmp_path / f"v{suffix}", 30, codec, Fraction(25), {"g": "10"}))
    frames = list(study)
    assert [frame.number for frame in frames] == list(range(30))
    assert [number_of(f.image) for f in frames if f.image is not None] == list(range(30))
    assert study.unreadable == {}
    assert study.missing is None


def test_another_suffix_is_told_what_is_taken(tmp_path):
    (tmp_path / "v.xyz").write_bytes(b"")
    with pytest.raises(StudyError, match=r"neither a folder of frames nor a video; .*\.mkv.*\.wmv"):
        open_study(tmp_path / "v.xyz")
