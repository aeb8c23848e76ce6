"""Kvasir-Capsule, WCEBleedGen and plain tables: labels, boxes, and one sentence per mistake."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from enteron.datasets.dataset import Box, Dataset, DatasetStudy
from enteron.datasets.layouts import find_layout, open_dataset, open_sources
from enteron.errors import EnteronError, LabelError, StudyError
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.types import Layout
from tests.making import label_rows, number_of, write_frames, write_labels

ULCER, POLYP = COLUMN["ulcer"], COLUMN["polyp"]
FINDING_COLUMNS = [COLUMN[label] for label in FINDINGS]


def states(dataset: Dataset, study: str) -> dict[int, dict[str, bool]]:
    """By frame, what is known: label -> present."""
    labelled = dataset.studies[study].labelled_frames()
    labels = labelled.labels
    return {
        int(frame): {
            label: bool(labels.present[row, column])
            for column, label in enumerate(LABELS)
            if labels.known[row, column]
        }
        for row, frame in enumerate(labelled.frames)
    }


ALL_ABSENT = dict.fromkeys(FINDINGS, False)
NOT_HERE = {"mouth": False, "esophagus": False}  # of every frame of Kvasir-Capsule


# ---- Kvasir-Capsule, one folder per video


def kvasir_video(root: Path, rows: list[str], numbers=(10, 11, 12, 13), size: int = 64) -> Path:
    write_frames(root / "0728084c", numbers, "frame_{:06d}.jpg", size=size)
    table = "\n".join(["frame,classes,boxes", *rows])
    (root / "0728084c.csv").write_text(table + "\n")
    return root


def test_kvasir_by_video(tmp_path):
    box = "Ulcer 84 168 252 168 252 336 84 336"
    root = kvasir_video(
        tmp_path,
        [
            "10,Normal clean mucosa,",
            f"11,Ulcer,{box}",
            "12,Erosion; Pylorus,Erosion 0 0 42 0 42 84 0 84; Erosion 84 84 168 84 168 168 84 168",
            "13,Foreign Body,Foreign Body 0 0 349 0 349 336 0 336",
        ],
    )
    dataset = open_dataset(root)
    assert (dataset.layout, dataset.title) == (Layout.KVASIR, "Kvasir-Capsule")
    assert dataset.reason == "0728084c.csv has the columns frame, classes, boxes"
    assert states(dataset, "0728084c") == {
        10: NOT_HERE | ALL_ABSENT,
        11: NOT_HERE | {"ulcer": True},
        12: NOT_HERE | {"erosion": True, "pylorus": True},
        13: NOT_HERE,
    }
    study = dataset.studies["0728084c"]
    assert study.device == "Olympus EC-S10"
    # Boxes are in pixels of 336 x 336; the pictures here have 64. The last one is cut off.
    scale = 64 / 336
    assert study.boxes() == (
        Box(11, "ulcer", 84 * scale, 168 * scale, 252 * scale, 64),
        Box(12, "erosion", 0, 0, 42 * scale, 84 * scale),
        Box(12, "erosion", 84 * scale, 84 * scale, 168 * scale, 168 * scale),
        Box(13, "foreign body", 0, 0, 64, 64),
    )
    assert number_of(study.open().frame(12).image) == 12  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Angiectasia", "angiectasia"),
        ("Blood - fresh", "blood"),
        ("Blood - hematin", "hematin"),
        ("Erosion", "erosion"),
        ("Erythema", "erythema"),
        ("Lymphangiectasia", "lymphangioectasis"),
        ("Polyp", "polyp"),
        ("Ulcer", "ulcer"),
        ("Pylorus", "pylorus"),
        ("Ileocecal valve", "ileocecal valve"),
        ("Ampulla of Vater", None),
        ("Reduced Mucosal View", None),
    ],
)
def test_kvasir_classes(tmp_path, name, label):
    dataset = open_dataset(kvasir_video(tmp_path, [f"10,{name},"]))
    assert states(dataset, "0728084c") == {10: NOT_HERE | ({} if label is None else {label: True})}


def read_all(study: DatasetStudy) -> None:
    """Labels, then boxes: a mistake is in either."""
    study.labelled_frames()
    study.boxes()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["10,Ulzer,"],
            "0728084c.csv, line 2: 'Ulzer' is not a class of Kvasir-Capsule; did you mean 'Ulcer'",
        ),
        (["10,,"], "0728084c.csv, line 2: empty is not a class"),
        (
            ["10,Ulcer,", "10,Normal clean mucosa,"],
            "frame 10 of video 0728084c is both 'Normal clean mucosa' and 'Ulcer'; correct",
        ),
        (["10,Ulcer,", "99,Ulcer,"], "0728084c.csv names frame 99, which has no picture; copy"),
        (["-1,Ulcer,"], "line 2: 'frame' is '-1'; 'frame' is a whole number from 0 on"),
        (
            ["10,Ulcer,Polyp 1 1 9 1 9 9 1 9"],
            "a box of 'Polyp' is on a frame without that class; add",
        ),
        (
            ["10,Ulcer,Ulcer 1 1 9 1 9"],
            "line 2: the box 'Ulcer 1 1 9 1 9' is not a class with four corners",
        ),
        (["10,Ulcer,Ulcer 1 1 a 1 9 9 1 9"], "line 2: 'x2' is 'a'; 'x2' is a number of pixels"),
        (
            ["10,Ulcer,Ulcer 5 1 5 1 5 9 5 9"],
            r"line 2: the box of 'ulcer' from \(5, 1\) to \(5, 9\) is empty; x2 must",
        ),
        (
            ["10,Ulcer,Ulcer 1 1 360 1 360 9 1 9"],
            r"from \(1, 1\) to \(360, 9\) lies outside the picture of 336 x 336",
        ),
        ([], "0728084c.csv has no rows; give one row per frame"),
    ],
)
def test_kvasir_mistakes(tmp_path, rows, message):
    study = open_dataset(kvasir_video(tmp_path, rows)).studies["0728084c"]
    with pytest.raises(LabelError, match=message):
        read_all(study)


def test_a_kvasir_frame_in_several_rows_is_merged(tmp_path):
    rows = ["10,Ulcer,Ulcer 1 1 9 1 9 9 1 9", "10,Erosion,", "10,Ulcer,Ulcer 2 2 9 2 9 9 2 9"]
    dataset = open_dataset(kvasir_video(tmp_path, rows))
    assert states(dataset, "0728084c") == {10: NOT_HERE | {"ulcer": True, "erosion": True}}
    assert len(dataset.studies["0728084c"].boxes()) == 2


# ---- Kvasir-Capsule, the official layout

HEADER = "filename;video_id;frame_number;finding_category;finding_class;x1;y1;x2;y2;x3;y3;x4;y4"
VIDEO = "0728084c8da942d9"
OFFICIAL = [
    f"{VIDEO}_20.jpg;{VIDEO};20;Luminal;Normal clean mucosa;;;;;;;;",
    f"{VIDEO}_7.jpg;{VIDEO};7;Luminal;Ulcer;8;8;16;8;16;24;8;24",
    f"{VIDEO}_7.jpg;{VIDEO};7;Anatomy;Pylorus;;;;;;;;",
    "ff_3.jpg;ff;3;Luminal;Polyp;1;1;9;1;9;9;1;9",
]


def official(root: Path, kind: str = "folders", rows: list[str] | None = None) -> Path:
    """Class folders, or an archive per class."""
    pictures = {
        "Normal clean mucosa": {f"{VIDEO}_20.jpg": 20},
        "Ulcer": {f"{VIDEO}_7.jpg": 7},
        "Pylorus": {f"{VIDEO}_7.jpg": 7},
    }
    folder = root / "labelled_images"
    folder.mkdir(parents=True)
    for name, files in pictures.items():
        made = write_frames(root / "pictures" / name, files.values(), "{}.jpg", size=336)  # pyright: ignore[reportArgumentType]
        target = folder / name
        if kind == "folders":
            target.mkdir()
            for file, number in files.items():
                (target / file).write_bytes((made / f"{number}.jpg").read_bytes())
            continue
        archive_name = name.lower().replace(" ", "_") + kind
        with tarfile.open(folder / archive_name, f"w:{kind[5:]}" if kind != ".tar" else "w") as tar:  # pyright: ignore[reportArgumentType, reportCallIssue]
            for file, number in files.items():
                tar.add(made / f"{number}.jpg", f"{name}/{file}")
    (root / "metadata.csv").write_text("\n".join([HEADER, *(rows or OFFICIAL)]) + "\n")
    return root


@pytest.mark.parametrize("kind", ["folders", ".tar", ".tar.gz"])
def test_kvasir_official(tmp_path, kind):
    dataset = open_dataset(official(tmp_path / "data", kind))
    assert dataset.reason == "metadata.csv has a column 'finding_class'"
    assert dataset.notes == ("the class 'Polyp' is not there: 1 row of metadata.csv left out",)
    assert list(dataset.studies) == [VIDEO]
    assert states(dataset, VIDEO) == {
        7: NOT_HERE | {"ulcer": True, "pylorus": True},
        20: NOT_HERE | ALL_ABSENT,
    }
    study = dataset.studies[VIDEO]
    assert study.boxes() == (Box(7, "ulcer", 8, 8, 16, 24),)
    with study.open() as pictures:
        assert [number_of(frame.image) for frame in pictures] == [7, 20]  # pyright: ignore[reportArgumentType]
        assert number_of(pictures.frame(7).image) == 7  # back to an earlier one  # pyright: ignore[reportArgumentType]
        assert pictures.random_access is (kind != ".tar.gz")
    assert not any(
        path.suffix == ".jpg" for path in (tmp_path / "data" / "labelled_images").iterdir()
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [f"{VIDEO}_8.jpg;{VIDEO};8;Luminal;Ulcer" + ";" * 8],
            "line 2: there is no picture '0728.*_8.jpg' in the class 'Ulcer'; copy",
        ),
        (
            [f"{VIDEO}_7.jpg;{VIDEO};9;Luminal;Ulcer" + ";" * 8],
            "line 2: the file '0728.*_7.jpg' is not frame 9; a file's name",
        ),
        (
            [f"{VIDEO}_7.jpg;;7;Luminal;Ulcer" + ";" * 8],
            "line 2: 'video_id' is empty; correct the row",
        ),
        (["../x;v;7;Luminal;Ulcer" + ";" * 8], "line 2: 'filename' is '../x'; correct the row"),
        (
            [f"{VIDEO}_7.jpg;{VIDEO};7;Luminal;Ulcers" + ";" * 8],
            "'Ulcers' is not a class of Kvasir-Capsule; did you mean 'Ulcer'",
        ),
    ],
)
def test_kvasir_official_mistakes(tmp_path, rows, message):
    with pytest.raises(LabelError, match=message):
        open_dataset(official(tmp_path, rows=rows))


def test_kvasir_without_pictures(tmp_path):
    (tmp_path / "metadata.csv").write_text("\n".join([HEADER, *OFFICIAL]))
    with pytest.raises(StudyError, match=r"has metadata.csv and no pictures; put the folders"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("kind", ["outside", "link"])
def test_a_hostile_archive_is_refused(tmp_path, kind):
    root = official(tmp_path, ".tar")
    with tarfile.open(root / "labelled_images" / "polyp.tar", "w") as archive:
        member = tarfile.TarInfo("../../ff_3.jpg" if kind == "outside" else "ff_3.jpg")
        if kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member, io.BytesIO(b""))
    with pytest.raises(StudyError, match=r"'polyp.tar' holds a (file whose name leads out|link)"):
        open_dataset(root)


def test_a_damaged_archive_is_refused(tmp_path):
    root = official(tmp_path, ".tar.gz")
    path = root / "labelled_images" / "ulcer.tar.gz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StudyError, match=r"the archive 'ulcer.tar.gz' cannot be read; copy"):
        open_dataset(root)


# ---- WCEBleedGen


def test_wcebleedgen_is_split_into_blocks_of_numbers(tmp_path):
    write_frames(tmp_path / "bleeding", (1, 2, 99, 100, 101), "{:04d}.jpg")
    write_frames(tmp_path / "non-bleeding" / "Images", (1, 205), "img- ({}).png")
    dataset = open_dataset(tmp_path)
    assert dataset.reason == "it has folders named 'bleeding' and 'non-bleeding'"
    assert "blocks of 100 consecutive numbers of a class stand for them" in dataset.notes[0]
    assert {study: states(dataset, study) for study in dataset.studies} == {
        "bleeding-0001": {n: {"blood": True} for n in (1, 2, 99, 100)},
        "bleeding-0101": {101: {"blood": True}},
        "non-bleeding-0001": {1: {"blood": False}},
        "non-bleeding-0201": {205: {"blood": False}},
    }
    study = dataset.studies["non-bleeding-0201"]
    assert number_of(study.open().frame(205).image) == 205  # pyright: ignore[reportArgumentType]
    assert study.boxes() == ()


# ---- Plain tables


def plain(root: Path, *lines: str, boxes: str | None = None) -> Path:
    write_frames(root / "a", range(4), "frame_{:06d}.png")
    write_frames(root / "b", range(4), "frame_{:06d}.png")
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    if boxes is not None:
        (root / "boxes.csv").write_text(boxes)
    return root


def test_a_table_of_frames(tmp_path):
    root = plain(
        tmp_path,
        "study,frame,ulcer,polyp",
        "a,2,1,",
        "a,0,0,0",
        "b,3,,1",
        boxes="study,frame,label,x1,y1,x2,y2\na,2,ulcer,10,20,30.5,64\n",
    )
    dataset = open_dataset(root)
    assert (dataset.layout, dataset.reason) == (Layout.TABLE, "it has frames.csv")
    assert states(dataset, "a") == {0: {"ulcer": False, "polyp": False}, 2: {"ulcer": True}}
    assert states(dataset, "b") == {3: {"polyp": True}}
    assert dataset.studies["a"].boxes() == (Box(2, "ulcer", 10, 20, 30.5, 64),)
    # Frames without a row are neighbours of those with one.
    assert dataset.studies["a"].open().numbers.tolist() == [0, 1, 2, 3]
    assert open_dataset(root / "frames.csv").studies.keys() == {"a", "b"}


def test_a_table_of_files(tmp_path):
    root = plain(tmp_path, "study,file,ulcer", "x,a/frame_000003.png,1", "x,b/frame_000001.png,0")
    dataset = open_dataset(root)
    assert states(dataset, "x") == {1: {"ulcer": False}, 3: {"ulcer": True}}
    frames = {frame.number: number_of(frame.image) for frame in dataset.studies["x"].open()}  # pyright: ignore[reportArgumentType]
    assert frames == {1: 1, 3: 3}
    numbered = plain(tmp_path / "n", "study,file,frame,ulcer", "x,a/frame_000003.png,70,1")
    assert list(states(open_dataset(numbered), "x")) == [70]


def test_a_table_beside_a_video(tmp_path):
    from tests.making import write_video

    write_video(tmp_path / "v.mp4", 5)
    (tmp_path / "frames.csv").write_text("study,frame,polyp\nv,4,1\n")
    assert states(open_dataset(tmp_path), "v") == {4: {"polyp": True}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["study,frame", "a,0"],
            "frames.csv has no label column; add at least one of the 17 labels",
        ),
        (
            ["study,frame,ulcer", "a,0,2"],
            "frames.csv, line 2: 'ulcer' is '2'; write 1 .present., 0 .absent. or nothing",
        ),
        (["study,frame,ulcer", "a,0,1", "a,1,-1"], "frames.csv, line 3: 'ulcer' is '-1'; write 1"),
        (
            ["study,frame,ulcer", "a,0,1", "a,0,0"],
            "line 3: frame 0 of study a is there twice, with other labels in line 2; keep",
        ),
        (
            ["study,frame,ulcer", "a,0,1", "a,0,1"],
            "line 3: frame 0 of study a is there twice; keep one row",
        ),
        (
            ["study,frame,ulcers", "a,0,1"],
            "frames.csv has a column 'ulcers' that is not known; did you mean 'ulcer', or",
        ),
        (
            ["study,frame,ulcer,note", "a,0,1,x"],
            "has a column 'note' that is not known; use one of .*, or remove it",
        ),
        (
            ["studie,frame,ulcer", "a,0,1"],
            "frames.csv has no column 'study'; did you mean 'studie' by it",
        ),
        (
            ["study,ulcer", "a,1"],
            "frames.csv has neither a column 'frame' nor 'file'; add the number",
        ),
        (["study,frame,ulcer"], "frames.csv has no rows; give one row per frame"),
        (["study,frame,ulcer,ulcer", "a,0,1,1"], "frames.csv has two columns 'ulcer'; keep one"),
        (["study,frame,ulcer", "a,0.5,1"], "line 2: 'frame' is '0.5'; 'frame' is a whole number"),
        (
            ["study,frame,ulcer", "a,0,1,1"],
            "frames.csv, line .*every row has as many cells",
        ),
        (
            ["study,file,ulcer", "a,a/frame_9.png,1"],
            "line 2: there is no picture 'a/frame_9.png'; give paths relative",
        ),
        (
            ["study,file,ulcer", "a,../x/frame_9.png,1"],
            "line 2: 'file' is '../x/frame_9.png'; give a path relative to the table, inside",
        ),
        (
            ["study,file,ulcer", "a,/etc/frame_1.png,1"],
            "line 2: 'file' is '/etc/frame_1.png'; give a path relative",
        ),
        (
            ["study,file,ulcer", "a,frames.csv,1"],
            "the file 'frames.csv' does not end in a frame number; add a column 'frame'",
        ),
        (
            ["study,frame,ulcer", "../a,0,1"],
            "line 2: 'study' is '../a'; give a name without slashes",
        ),
        (["study,frame,ulcer", ",0,1"], "line 2: 'study' is empty; give a name"),
        ([""], "frames.csv is empty; name its columns"),
    ],
)
def test_mistakes_in_a_table(tmp_path, lines, message):
    with pytest.raises(LabelError, match=message) as caught:
        open_dataset(plain(tmp_path, *lines))
    assert str(caught.value).count(";") == 1 + str(caught.value.problem).count(";")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (
            "a,0,ulcer,10,10,10,20",
            r"line 2: the box of 'ulcer' from \(10, 10\) to \(10, 20\) is empty; x2 must be larger",
        ),
        ("a,0,ulcer,10,30,20,20", "is empty; x2 must be larger than x1, and y2 larger than y1"),
        (
            "a,0,ulcer,10,10,65,20",
            r"from \(10, 10\) to \(65, 20\) lies outside the picture of 64 x 64 pixels; give",
        ),
        ("a,0,ulcer,-1,10,20,20", "lies outside the picture"),
        ("a,0,ulcer,nan,10,20,20", "line 2: 'x1' is 'nan'; 'x1' is a number of pixels"),
        ("a,0,ulcus,1,10,20,20", "line 2: 'label' is 'ulcus'; did you mean 'ulcer'"),
        ("a,9,ulcer,1,10,20,20", "frame 9 of study 'a' is not in frames.csv; add the frame"),
        (
            "a,1,ulcer,1,10,20,20",
            "a box of 'ulcer' is on a frame that frames.csv does not say shows it; set",
        ),
    ],
)
def test_mistakes_in_boxes(tmp_path, box, message):
    root = plain(
        tmp_path, "study,frame,ulcer", "a,0,1", "a,1,0",
        boxes=f"study,frame,label,x1,y1,x2,y2\n{box}\n",
    )  # fmt: skip
    with pytest.raises(LabelError, match=message):
        open_dataset(root).studies["a"].boxes()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("c,0,1", "study c has rows and no pictures; put them into a folder 'c' beside the table"),
        ("a,77,1", "study a has no picture of frame 77; copy the pictures again"),
    ],
)
def test_a_table_without_pictures(tmp_path, line, message):
    study = line.split(",")[0]
    dataset = open_dataset(plain(tmp_path, "study,frame,ulcer", line))
    with pytest.raises(EnteronError, match=message):
        dataset.studies[study].labelled_frames()


# ---- Galar, and which layout it is


def galar(root: Path) -> Path:
    write_frames(root / "1", range(20))
    write_labels(root / "Labels" / "1.csv", label_rows((10, ["colon"]), (10, ["colon", "ulcer"])))
    return root


def test_galar_is_known_completely(tmp_path):
    dataset = open_dataset(galar(tmp_path))
    assert (dataset.layout, dataset.reason) == (Layout.GALAR, "it has a folder 'Labels'")
    assert dataset.title == "studies in Galar's layout"
    labelled = dataset.studies["1"].labelled_frames()
    assert labelled.labels.is_complete
    assert labelled.labels.present_counts[ULCER] == 10
    (tmp_path / "phantom.json").write_text("{}")
    assert open_dataset(tmp_path).title == "synthetic studies"
    assert open_dataset(tmp_path).synthetic


def test_two_layouts_at_once_are_refused_unless_one_is_named(tmp_path):
    galar(tmp_path)
    plain(tmp_path, "study,frame,ulcer", "a,0,1")
    with pytest.raises(LabelError, match=r"looks like two datasets: 'table' .* and 'galar'"):
        find_layout(tmp_path)
    assert list(open_dataset(tmp_path, Layout.TABLE).studies) == ["a"]
    assert list(open_dataset(tmp_path, Layout.GALAR).studies) == ["1"]
    with pytest.raises(StudyError, match=r"has neither metadata.csv of Kvasir-Capsule nor a table"):
        open_dataset(tmp_path, Layout.KVASIR)
    with pytest.raises(StudyError, match="there is no folder 'bleeding'"):
        open_dataset(tmp_path, Layout.WCEBLEEDGEN)
    with pytest.raises(StudyError, match="there is no folder 'nowhere'"):
        open_dataset(tmp_path / "nowhere")


def test_several_sources_keep_their_studies_apart(tmp_path):
    one, two = galar(tmp_path / "one"), galar(tmp_path / "two")
    alone = open_sources([one])
    assert [source.key("1") for source in alone] == ["1"]
    table = plain(tmp_path / "own", "study,frame,ulcer", "a,0,1")
    sources = open_sources([one, table, two])
    assert [(s.title, s.key("x")) for s in sources] == [
        ("studies in Galar's layout (1)", "one.x"),
        ("own table", "own.x"),
        ("studies in Galar's layout (2)", "two.x"),
    ]
    galar(tmp_path / "deep" / "one")
    with pytest.raises(StudyError, match="two data roots are named 'one'; rename one"):
        open_sources([one, tmp_path / "deep" / "one"])


def test_known_counts_of_all_layouts_add_up(tmp_path):
    """Present, absent and unknown are all frames, for every label."""
    root = kvasir_video(tmp_path, ["10,Normal clean mucosa,", "11,Ulcer,", "12,Foreign Body,"])
    labels = open_dataset(root).studies["0728084c"].labelled_frames().labels
    absent = labels.absent.sum(axis=0)
    unknown = (~labels.known).sum(axis=0)
    np.testing.assert_array_equal(labels.present_counts + absent + unknown, 3)
    assert absent[FINDING_COLUMNS].tolist() == [1] * 9
    assert unknown[POLYP] == 2
    regions = [COLUMN[region] for region in REGIONS]
    assert absent[regions].tolist() == [3, 3, 0, 0, 0]
    assert unknown[regions].tolist() == [0, 0, 3, 3, 3]
    assert labels.informative.all()


def test_pictures_in_archives_can_be_read_by_worker_processes(tmp_path):
    """A study travels to another process by its description, not with its open archives."""
    import pickle

    study = open_dataset(official(tmp_path, ".tar")).studies[VIDEO].open()
    image = study.frame(7).image  # an archive is open now
    assert image is not None
    assert number_of(image) == 7
    other = pickle.loads(pickle.dumps(study))
    assert (other.id, other.numbers.tolist()) == (VIDEO, [7, 20])
    assert number_of(other.frame(20).image) == 20
    study.close()
    other.close()
