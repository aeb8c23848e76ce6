"""Videos: variable rates, headers that lie, files that end in the middle, damaged pictures."""

from fractions import Fraction

import av
import numpy as np
import pytest

from enteron.errors import StudyError
from enteron.study import open_study
from tests.making import number_of, write_video


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
    with pytest.raises(StudyError, match="cannot be opened"):
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
