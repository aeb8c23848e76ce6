"""One contract for every kind of source: each test below runs on folders and on videos."""

import re
import shutil
from fractions import Fraction

import numpy as np
import pytest

from enteron.errors import StudyError
from enteron.study import open_study
from tests.making import number_of, write_dicom, write_frames, write_video

COUNT = 40
SOURCES = {
    "png": ("frame_{:06d}.PNG", None, {}),
    "jpeg": ("img{:d}.jpeg", None, {}),
    "mp4": ("v.mp4", "libx264", {}),
    "mp4 with B-frames": ("v.mp4", "libx264", {"bf": "3", "g": "12"}),
    "mkv with B-frames": ("v.mkv", "libx264", {"bf": "3", "g": "12"}),
    "mkv lossless": ("v.mkv", "ffv1", {}),
    "avi mjpeg": ("v.avi", "mjpeg", {"q": "2"}),
    "avi mpeg4": ("v.avi", "mpeg4", {"g": "12", "q": "2"}),
    "avi with B-frames": ("v.avi", "libx264", {"bf": "3", "g": "12"}),
    "mpg mpeg1": ("v.mpg", "mpeg1video", {"bf": "2", "g": "12"}),
    "mpg mpeg2": ("v.mpg", "mpeg2video", {"bf": "2", "g": "12"}),
    "dicom": ("v.dcm", "native", {}),
    "dicom jpeg": ("v.dcm", "jpeg", {}),
    "dicom h264": ("v.dcm", "libx264", {"bf": "3", "g": "12"}),
    "dicom mpeg2": ("v.dcm", "mpeg2video", {"bf": "2", "g": "12"}),
}


@pytest.fixture(scope="module", params=SOURCES)
def source(request, tmp_path_factory):
    name, codec, options = SOURCES[request.param]
    folder = tmp_path_factory.mktemp("study")
    if codec is None:
        return write_frames(folder / "s", range(COUNT), name)
    if name.endswith(".dcm"):
        return write_dicom(folder / name, COUNT, codec, options)
    return write_video(folder / name, COUNT, codec, options=options)


def test_streams_every_frame_in_order(source):
    with open_study(source) as study:
        frames = list(study)
        assert len(study) == COUNT
        assert [frame.number for frame in frames] == list(range(COUNT))
        assert study.numbers.tolist() == list(range(COUNT))
        for frame in frames:
            assert frame.image is not None
            assert frame.image.shape == (64, 64, 3)
            assert frame.image.dtype == np.uint8
            assert number_of(frame.image) == frame.number
        assert study.unreadable == {}


def test_reads_any_frame_by_number_in_any_order(source):
    with open_study(source) as study:
        for number in [39, 0, 17, 18, 20, 5, 39, 38, 11, 12, 12, 1]:
            frame = study.frame(number)
            assert frame.number == number
            assert frame.image is not None
            assert number_of(frame.image) == number


def test_random_access_equals_streaming_bit_for_bit(source):
    with open_study(source) as study:
        streamed = {frame.number: frame for frame in study}
        for number in (0, 13, 14, 30, 39):
            frame = study.frame(number)
            assert frame.image is not None
            np.testing.assert_array_equal(frame.image, streamed[number].image)
            assert frame.time == streamed[number].time


def test_starts_anywhere(source):
    with open_study(source) as study:
        frames = list(study.frames(start=23))
        assert [frame.number for frame in frames] == list(range(23, COUNT))
        assert [number_of(f.image) for f in frames if f.image is not None] == list(range(23, COUNT))
        assert list(study.frames(start=COUNT)) == []
        with pytest.raises(StudyError, match="cannot start at row 41"):
            next(study.frames(start=COUNT + 1))


def test_two_streams_do_not_disturb_each_other(source):
    with open_study(source) as study:
        from_start, from_middle = study.frames(), study.frames(start=20)
        for number in range(10):
            assert next(from_start).number == number
            assert next(from_middle).number == number + 20
            assert study.frame(35).number == 35


def test_refuses_a_number_that_is_not_there(source):
    with open_study(source) as study, pytest.raises(StudyError, match="no frame 99; its 40 frames"):
        study.frame(99)


def test_times_are_exact(source):
    if source.is_dir():
        study = open_study(source, rate=Fraction(30000, 1001))
    else:
        study = open_study(source)
    with study:
        assert study.rate == Fraction(30000, 1001)
        assert [frame.time for frame in study] == [Fraction(n * 1001, 30000) for n in range(COUNT)]
        times = study.times()
        assert times is not None
        np.testing.assert_allclose(times, np.arange(COUNT) * 1001 / 30000, rtol=0, atol=1e-12)


def test_can_be_read_again_after_closing(source):
    study = open_study(source)
    study.frame(3)
    study.close()
    assert study.frame(4).number == 4
    study.close()


def test_the_id_is_neutral_unless_a_name_is_asked_for(source, tmp_path):
    assert re.fullmatch(r"study-[0-9a-f]{8}", open_study(source).id)  # 's' is no dataset's id
    assert open_study(source, keep_name=True).id == source.stem
    assert open_study(source, study_id="x").id == "x"


def test_a_study_that_vanishes_while_reading_is_reported(source, tmp_path):
    copy = tmp_path / source.name
    shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    study = open_study(copy)
    shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    with pytest.raises(StudyError, match="cannot be"):
        list(study)
