"""Data roots in every layout, and labels that meet their images on the frame number."""

import numpy as np
import pytest

from enteron.datasets.galar import find_studies, read_challenge_file, read_metadata
from enteron.datasets.inspection import inspect
from enteron.datasets.label_table import join_labels, read_label_table, require_fit
from enteron.errors import LabelError, StudyError
from tests.making import label_rows, number_of, write_frames, write_labels, write_video

ROWS = label_rows((10, ["stomach"]), (10, ["small intestine"]), (4, ["small intestine", "blood"]))


def test_a_study_stored_at_every_fifth_frame_gets_the_right_label_on_the_right_image(tmp_path):
    """The trap: `index` 0 … 23 also fits five images, each with another moment's labels."""
    write_frames(tmp_path / "Galar_Frames_1_to_10" / "1", range(0, 120, 5))
    write_labels(tmp_path / "Labels" / "1.csv", ROWS, step=5)
    entry = find_studies(tmp_path)["1"]
    join = entry.join()
    assert join.coverage == 1
    assert join.frames.tolist() == list(range(0, 120, 5))
    study = entry.open()
    for frame, labels in zip(join.frames.tolist(), join.values, strict=True):
        image = study.frame(frame).image
        assert image is not None
        assert number_of(image) == frame  # this is the picture taken at `frame` …
        np.testing.assert_array_equal(labels, ROWS[frame // 5])  # … and these its labels


def test_labels_that_do_not_fit_are_refused_with_both_numbers(tmp_path):
    write_frames(tmp_path / "1", range(24))  # named by row instead of by frame
    write_labels(tmp_path / "Labels" / "1.csv", ROWS, step=5)
    with pytest.raises(LabelError) as caught:
        find_studies(tmp_path)["1"].join()
    said = str(caught.value)
    assert "5 of 24 label rows have an image" in said
    assert "frames 0 to 115 in steps of 5 in the labels, frames 0 to 23 in the images" in said
    assert "its 'index' does fit" in said


def test_labels_of_another_study_are_refused(tmp_path):
    write_frames(tmp_path / "1", range(1000, 1024))
    write_labels(tmp_path / "Labels" / "1.csv", ROWS)
    with pytest.raises(LabelError, match=r"0 of 24 label rows have an image .* give the labels of"):
        find_studies(tmp_path)["1"].join()


def test_a_few_missing_images_are_reported_but_not_refused(tmp_path):
    table = read_label_table(
        write_labels(tmp_path / "1.csv", label_rows((1000, ["colon"])), first=0)
    )
    images = np.setdiff1d(np.arange(1005), [3, 500])
    join = join_labels(table, images)
    require_fit(join, table, images)
    assert join.labels_without_image.tolist() == [3, 500]
    assert join.images_without_label.tolist() == [1000, 1001, 1002, 1003, 1004]
    assert join.coverage == 0.998
    images = np.arange(20, 1000)
    with pytest.raises(LabelError, match="980 of 1000"):
        require_fit(join_labels(table, images), table, images)


def test_every_layout_is_found(tmp_path):
    frames = range(3)
    write_frames(tmp_path / "Galar_Frames_1_to_10" / "1", frames)
    write_frames(tmp_path / "Galar_Frames_21_to_29_2" / "recording_22", frames)
    write_frames(tmp_path / "x" / "Galar_Frames_71_to_80_v2" / "80", frames)
    write_frames(tmp_path / "30", frames)
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "31.mp4", 3)
    test = tmp_path / "Testdata_ICPR_2026_RARE_Challenge"
    write_frames(test / "ukdd_navi_00051", range(49, 60), "frame_{:07d}.png")
    (test / "ukdd_navi_00051.csv").write_text("frame_file;mouth\nframe_0000049.png;\n")
    rows = label_rows((3, ["colon"]))
    for study in ("1", "22", "30"):
        write_labels(tmp_path / "labels" / f"{study}.csv", rows)
    for study in ("22", "80"):
        write_labels(tmp_path / "20251215_Labels_Updated" / f"{study}.csv", rows)
    (tmp_path / "metadata.csv").write_text(
        " File Name , Capsule System,Gender ,Age\n1,PillCam SB3,f,50\nrecording_22.mp4,Olympus,,\n"
    )
    entries = find_studies(tmp_path)
    assert list(entries) == ["1", "22", "30", "31", "80", "ukdd_navi_00051"]
    assert [e.updated for e in entries.values()] == [False, True, False, False, True, False]
    assert [e.labels is not None for e in entries.values()] == [True] * 3 + [False, True, False]
    assert entries["22"].labels is not None
    assert entries["22"].labels.parent.name == "20251215_Labels_Updated"
    assert entries["22"].table().updated
    devices = {study: e.metadata.device for study, e in entries.items() if e.metadata}
    assert devices == {"1": "pillcam", "22": "olympus"}
    for entry in entries.values():
        assert len(entry.open()) in (3, 11)
        assert inspect(entry, decode=True).problems == []


def test_the_newest_correction_wins(tmp_path):
    for folder, label in [
        ("Labels", "mouth"),
        ("20251215_Labels_Updated", "stomach"),
        ("20260301_labels_updated", "colon"),
    ]:
        write_labels(tmp_path / folder / "4.csv", label_rows((2, [label])))
    entry = find_studies(tmp_path)["4"]
    assert entry.updated
    np.testing.assert_array_equal(entry.table().values, label_rows((2, ["colon"])))


def test_a_study_that_is_there_twice_is_refused(tmp_path):
    write_frames(tmp_path / "a" / "5", range(2))
    write_frames(tmp_path / "b" / "recording_5", range(2))
    with pytest.raises(StudyError, match=r"images of study 5 are there twice, in 'a/5' and 'b/rec"):
        find_studies(tmp_path)


def test_an_entry_says_what_it_lacks(tmp_path):
    write_frames(tmp_path / "5", range(2))
    write_labels(tmp_path / "Labels" / "6.csv", ROWS)
    entries = find_studies(tmp_path)
    with pytest.raises(LabelError, match="study 5 has no labels under this root"):
        entries["5"].join()
    with pytest.raises(StudyError, match="study 6 has no images under this root"):
        entries["6"].join()
    with pytest.raises(StudyError, match="there is no folder 'none'"):
        find_studies(tmp_path / "none")


def test_metadata_keeps_patients_out_of_what_is_printed(tmp_path):
    path = tmp_path / "metadata.csv"
    path.write_text("File Name ; Capsule System ; Gender;Age \n 7 ; PillCam Colon2 ; f ; 61\n")
    row = read_metadata(path)["7"]
    assert (row.system, row.device, row.gender, row.age) == ("PillCam Colon2", "pillcam", "f", 61)
    assert "61" not in repr(row)
    for text, said in [
        ("File Name,Gender\n1,f\n", "no column 'capsule system'"),
        ("File Name,Capsule System\n1,a\n1,b\n", "names study 1 twice"),
        ("File Name,Capsule System\n,a\n", "line 2, names no study"),
    ]:
        path.write_text(text)
        with pytest.raises(LabelError, match=said):
            read_metadata(path)
    with pytest.raises(LabelError, match="cannot be read"):
        read_metadata(tmp_path / "none.csv")


def test_the_challenge_s_own_file(tmp_path):
    path = tmp_path / "ukdd_navi_00051.csv"
    columns = ["frame_file", *(f"c{i}" for i in range(21))]
    empty = ";" * 21
    path.write_text(";".join(columns) + f"\nframe_0000049.png{empty}\nframe_0000050.png{empty}\n")
    file = read_challenge_file(path)
    assert file.study == "ukdd_navi_00051"
    assert file.frames.tolist() == [49, 50]
    assert len(file.columns) == 21
    for text, said in [
        ("frame_file;a\nframe_01.png;1\n", "line 2: 'a' is filled"),
        ("frame_file;a\nnothing;\n", "line 2: 'nothing' is no frame's file name"),
        ("frame_file;a\nf_1.png;\nf_01.png;\n", "names a frame twice"),
        ("frame,a\n1,\n", "starts with 'frame,a'"),
    ]:
        path.write_text(text)
        with pytest.raises(LabelError, match=said):
            read_challenge_file(path)
    with pytest.raises(LabelError, match="cannot be read"):
        read_challenge_file(tmp_path / "none.csv")


def test_inspection_collects_problems_and_notes(tmp_path):
    rows = label_rows((1, []), (1, ["mouth", "stomach"]), (398, ["colon", "blood"]))
    write_frames(tmp_path / "1", [n for n in range(402) if n not in (7,)], "f{}.png", size=16)
    write_labels(tmp_path / "Labels" / "1.csv", rows)
    (tmp_path / "1" / "f9.png").write_bytes(b"")
    report = inspect(find_studies(tmp_path)["1"], decode=True)
    assert report.problems == []
    assert report.frames == 401
    assert report.rows == 400
    assert report.positives["blood"] == 397
    assert report.unreadable == 1
    assert report.notes == [
        "its numbering has 1 gap",
        "1 label row names no region",
        "1 label row names 2 regions",
        "1 label row has no image: frame 7",
        "2 images have no label row: frames 400, 401",
        "1 frame cannot be read, mostly because the file is empty: frame 9",
    ]


def test_inspection_of_a_test_study_checks_its_file(tmp_path):
    write_frames(tmp_path / "navi", range(5), "frame_{:07d}.png")
    names = "\n".join(f"frame_{n:07d}.png;" for n in range(8))
    (tmp_path / "navi.csv").write_text(f"frame_file;mouth\n{names}\n")
    report = inspect(find_studies(tmp_path)["navi"])
    assert report.problems == [
        "study navi lacks 3 of the 8 frames of its test file: frames 5, 6, 7; download the images "
        "again."
    ]
