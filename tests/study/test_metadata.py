"""What a study says about itself: its own files only, checked, and kept when it is copied."""

import shutil
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream
from pydantic import ValidationError

from enteron.errors import StudyError
from enteron.study import open_study
from enteron.study.study import METADATA_FILE, StudyMetadata, read_comment_metadata
from tests.making import picture, write_frames, write_video


def video_with_comment(path: Path, comment: str) -> Path:
    """Five frames and a comment tag."""
    with av.open(str(path), "w") as container:
        container.metadata["comment"] = comment
        stream = container.add_stream("libx264", rate=5)
        assert isinstance(stream, VideoStream)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(5):
            frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_a_real_study_has_no_scale(tmp_path):
    folder = write_frames(tmp_path / "s", range(3))
    video = write_video(tmp_path / "v.mp4", 3, "libx264")
    for path in (folder, video):
        with open_study(path) as study:
            assert study.metadata == StudyMetadata()
            assert study.frames_per_row is None


def test_a_folder_keeps_its_metadata_in_study_json(tmp_path):
    folder = write_frames(tmp_path / "s", range(3))
    (folder / METADATA_FILE).write_text('{"frames_per_row": 12.5}')
    with open_study(folder) as study:
        assert study.frames_per_row == 12.5
        assert study.numbers.tolist() == [0, 1, 2]  # the file is not a frame
        assert not study.unreadable
    (folder / METADATA_FILE).write_text("{}")
    assert open_study(folder).frames_per_row is None


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_video_keeps_its_metadata_in_its_comment(tmp_path, suffix):
    comment = StudyMetadata(frames_per_row=12.5).to_comment()
    assert comment == 'enteron:{"frames_per_row":12.5}'
    video = video_with_comment(tmp_path / f"v{suffix}", comment)
    with open_study(video) as study:
        assert study.frames_per_row == 12.5
        assert len(study) == 5
    foreign = video_with_comment(tmp_path / f"w{suffix}", "exported by RAPID 8.3")
    assert open_study(foreign).frames_per_row is None


def test_files_around_a_study_say_nothing_about_it(tmp_path):
    folder = write_frames(tmp_path / "root" / "archive" / "s", range(3))
    video = write_video(tmp_path / "root" / "archive" / "v.mp4", 3, "libx264")
    for around in (tmp_path, tmp_path / "root", tmp_path / "root" / "archive"):
        (around / METADATA_FILE).write_text('{"frames_per_row": 12.5}')
        (around / "frames_per_row.json").write_text('{"s": 12.5, "v": 12.5}')
    assert open_study(folder).frames_per_row is None
    assert open_study(video).frames_per_row is None


def test_a_copy_knows_what_its_original_knew(tmp_path):
    folder = write_frames(tmp_path / "root" / "s", range(3))
    (folder / METADATA_FILE).write_text('{"frames_per_row": 12.5}')
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "other-name")
    assert open_study(copy).frames_per_row == 12.5


DAMAGED = [
    ("{", "is not JSON"),
    ("[1]", "holds a list, not an object"),
    ('{"frames_per_row": 0}', "frames_per_row = 0 is not valid"),
    ('{"frames_per_row": -3}', "frames_per_row = -3 is not valid"),
    ('{"frames_per_row": NaN}', "contains NaN"),
    ('{"frames_per_row": "many"}', "frames_per_row = 'many' is not valid"),
    (
        '{"frames_per_rows": 3}',
        "frames_per_rows is not an option; did you mean 'frames_per_row'",
    ),
]


@pytest.mark.parametrize(("text", "said"), DAMAGED)
def test_damaged_metadata_is_refused_in_one_sentence(tmp_path, text, said):
    folder = write_frames(tmp_path / "s", range(3))
    (folder / METADATA_FILE).write_text(text)
    with pytest.raises(StudyError, match=f"study.json of study s.*{said}") as refused:
        open_study(folder)
    assert "\n" not in str(refused.value)
    with pytest.raises(StudyError, match=f"comment in the video of study v.*{said}"):
        read_comment_metadata(f"enteron:{text}", "v")


def test_metadata_that_cannot_be_read_is_refused(tmp_path):
    folder = write_frames(tmp_path / "s", range(3))
    (folder / METADATA_FILE).write_bytes(b"\xff\xfe{")
    with pytest.raises(StudyError, match=r"study\.json of study s cannot be read"):
        open_study(folder)
    (folder / METADATA_FILE).unlink()
    (folder / METADATA_FILE).mkdir()
    with pytest.raises(StudyError, match=r"study\.json of study s cannot be read"):
        open_study(folder)


def test_the_scale_is_above_zero():
    with pytest.raises(ValidationError, match="greater than 0"):
        StudyMetadata(frames_per_row=0)
