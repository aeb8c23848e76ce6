"""What lies under a root: studies, and everything else with the reason why it is not read."""

import os
from fractions import Fraction

import cv2
import pytest

from enteron.datasets.galar import find_studies
from enteron.errors import StudyError
from enteron.reading import studies_under
from enteron.study import VIDEO_SUFFIXES, open_study
from tests.making import label_rows, number_of, picture, write_frames, write_labels, write_video


def test_everything_that_is_not_a_study_is_listed(tmp_path):
    """A root as people have them: two studies, and seven kinds of other things."""
    write_frames(tmp_path / "1", range(3))
    write_frames(tmp_path / "2", range(3), "f{}.tif")
    write_labels(tmp_path / "Labels" / "1.csv", label_rows((3, ["colon"])))
    (tmp_path / "Labels" / "readme.docx").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "overview.png").write_bytes(b"")
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.pdf").write_text("")
    os.mkfifo(tmp_path / "pipe.mp4")
    write_frames(tmp_path / "1-reading" / "pictures", range(2))
    (tmp_path / "1-reading" / "run.json").write_text("{}")
    deep = tmp_path.joinpath(*"abcdefg")
    write_frames(deep, range(2))
    catalogue = find_studies(tmp_path)
    assert list(catalogue) == ["1", "2"]
    assert catalogue.ignored.sentences() == [
        "1 folder (1-reading): a reading that enteron wrote",
        "1 folder (a/b/c/d/e/f): more than 5 folders below the root",
        "1 folder (empty): without frames or videos",
        "1 file (overview.png): a picture beside folders of frames",
        "1 file (.DS_Store): hidden",
        "1 file (Labels/readme.docx): in a folder of labels, but no CSV file",
        "1 file (pipe.mp4): not a regular file",
        "2 files (notes.txt, papers/a.pdf): not frames or videos",
    ]
    assert "notes" not in " ".join(catalogue.ignored.counts())
    assert "2 files: not frames or videos" in catalogue.ignored.counts()


def test_pictures_beside_studies_that_could_be_a_study_are_refused(tmp_path):
    write_frames(tmp_path / "1", range(3))
    write_frames(tmp_path, [1])
    assert [study.id for study in studies_under(tmp_path).studies] == ["1"]
    write_frames(tmp_path, [2])
    with pytest.raises(StudyError, match="2 frames and also 1 study beside them; move the frames"):
        studies_under(tmp_path)


def test_folders_inside_a_folder_of_frames_are_told_when_it_is_opened(tmp_path):
    folder = write_frames(tmp_path / "7", range(5), "f{}.bmp")
    (folder / "cover.jpg").write_bytes(b"")
    (folder / "notes.txt").write_text("")
    (folder / ".hidden.png").write_text("")
    (folder / "old").mkdir()
    study = open_study(folder)
    assert len(study) == 5
    assert study.ignored.sentences() == [
        "1 folder (old): inside a folder of frames",
        "1 file (.hidden.png): hidden",
        "1 file (notes.txt): not frames or videos",
        "1 file (cover.jpg): pictures whose names do not end in a frame number",
    ]


@pytest.mark.parametrize("suffix", ["tif", "TIFF", "bmp"])
def test_tiff_and_bmp_frames(tmp_path, suffix):
    folder = write_frames(tmp_path / "7", range(4), "f{}." + suffix)
    assert [number_of(frame.image) for frame in open_study(folder) if frame.image is not None] == [
        0, 1, 2, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("wmv", "wmv2"), ("webm", "libvpx"), ("ts", "libx264"), ("flv", "flv1"), ("3gp", "libx264")],
)
def test_containers_beside_the_usual_ones_are_found_and_read(tmp_path, suffix, codec):
    write_video(tmp_path / f"7.{suffix}", 6, codec, rate=Fraction(25))
    (found,) = studies_under(tmp_path).studies
    assert found.id == "7"
    with open_study(found.path) as study:
        assert [number_of(frame.image) for frame in study if frame.image is not None] == list(
            range(6)
        )


def test_every_video_suffix_makes_a_study(tmp_path):
    for number, suffix in enumerate(VIDEO_SUFFIXES):
        (tmp_path / f"{number}{suffix.upper()}").write_bytes(b"x")
    assert len(studies_under(tmp_path).studies) == len(VIDEO_SUFFIXES)


@pytest.mark.parametrize("digits", ["12²", "١٢", "１２"])  # noqa: RUF001
def test_only_ascii_digits_number_a_frame(tmp_path, digits):
    folder = write_frames(tmp_path / "7", range(3), "f{}.png")
    (folder / f"f{digits}.png").write_bytes(cv2.imencode(".png", picture(9))[1].tobytes())
    study = open_study(folder)
    assert study.numbers.tolist() == [0, 1, 2]
    assert study.ignored.files == {
        "pictures whose names do not end in a frame number": [f"f{digits}.png"]
    }


def test_ids_come_from_datasets_or_from_content_never_from_other_names(tmp_path):
    write_frames(tmp_path / "recording_12", range(3))
    write_frames(tmp_path / "ukdd_navi_00051", range(4))
    write_frames(tmp_path / "Doe_John_1951", range(5))
    write_frames(tmp_path / "elsewhere" / "19510312", range(6))
    ids = {study.path.name: study.id for study in studies_under(tmp_path).studies}
    assert ids["recording_12"] == "12"
    assert ids["ukdd_navi_00051"] == "ukdd_navi_00051"
    assert ids["Doe_John_1951"] == open_study(tmp_path / "Doe_John_1951").id
    assert all(str(ids[name]).startswith("study-") for name in ("Doe_John_1951", "19510312"))
    assert len(set(ids.values())) == 4
    (tmp_path / "Doe_John_1951").rename(tmp_path / "moved")
    assert open_study(tmp_path / "moved").id == ids["Doe_John_1951"]
    kept = {study.id for study in studies_under(tmp_path, keep_names=True).studies}
    assert kept == {"12", "ukdd_navi_00051", "moved", "19510312"}
    assert "moved" not in str(studies_under(tmp_path).default_folder)


def test_the_same_frames_twice_are_refused(tmp_path):
    for name in ("Jane", "Jane (copy)"):
        write_frames(tmp_path / name, range(3))
    with pytest.raises(StudyError, match=r"'.*/Jane' and '.*/Jane \(copy\)' are the same study"):
        studies_under(tmp_path)
