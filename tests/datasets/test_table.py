"""Label files: columns by name, cells checked, rows to events."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.datasets.label_table import LabelTable, read_label_table, truth_events
from enteron.errors import LabelError
from enteron.labels import COLUMN, LABELS
from enteron.types import FrameAxis, Segment, Unit
from tests.making import GALAR_COLUMNS, TECHNICAL_COLUMNS, label_rows, write_labels

ROWS = label_rows(
    (2, ["mouth"]),
    (3, ["stomach"]),
    (1, ["stomach", "blood"]),
    (2, ["colon", "blood", "ulcer"]),
)


@pytest.mark.parametrize(
    "columns",
    [
        GALAR_COLUMNS,
        [*TECHNICAL_COLUMNS, *GALAR_COLUMNS],
        GALAR_COLUMNS[::-1],
        ["frame", "index", *LABELS],
    ],
)
def test_columns_are_found_by_name_wherever_they_stand(tmp_path, columns):
    table = read_label_table(write_labels(tmp_path / "7.csv", ROWS, columns=columns))
    assert table.study == "7"
    np.testing.assert_array_equal(table.values, ROWS)
    assert table.axis.frames.tolist() == list(range(8))


def test_stray_blanks_a_byte_order_mark_and_windows_lines(tmp_path):
    headers = [f" {name}  " for name in GALAR_COLUMNS]
    path = write_labels(tmp_path / "7.csv", ROWS, headers=headers)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    np.testing.assert_array_equal(read_label_table(path).values, ROWS)


def test_index_and_frame_are_kept_apart(tmp_path):
    table = read_label_table(write_labels(tmp_path / "1.csv", ROWS, step=5, first=20))
    assert table.index.tolist() == list(range(20, 28))
    assert table.axis.frames.tolist() == list(range(100, 140, 5))
    assert table.axis.step == 5


def test_rows_out_of_order_are_put_in_order(tmp_path):
    path = write_labels(tmp_path / "1.csv", ROWS)
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *rows[::-1]]))
    np.testing.assert_array_equal(read_label_table(path).values, ROWS)


def edited(path, row: int, column: str, value: str):
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lines[row][GALAR_COLUMNS.index(column)] = value
    path.write_text("\n".join(",".join(cells) for cells in lines))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("blood", "", "line 4: 'blood' is empty; label cells are 0 or 1"),
        ("blood", "2", "line 4: 'blood' is '2'"),
        ("blood", "0.5", "line 4: 'blood' is '0.5'"),
        ("blood", "yes", "line 4: 'blood' is 'yes'"),
        ("blood", "nan", "line 4: 'blood' is 'nan'"),
        ("frame", "", "line 4: 'frame' is empty; 'frame' is a whole number"),
        ("frame", "2.5", "line 4: 'frame' is '2.5'"),
        ("index", "-3", "line 4: 'index' is '-3'"),
        ("frame", "1", "name frame 1 twice"),
        ("index", "0", "'index' falls from 1 to 0"),
        ("index", "inf", "line 4: 'index' is 'inf'"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path, column, value, said):
    path = write_labels(tmp_path / "9.csv", ROWS)
    edited(path, 3, column, value)
    with pytest.raises(LabelError, match=said) as caught:
        read_label_table(path)
    assert "study 9" in str(caught.value)


def test_ones_with_a_decimal_point_are_ones(tmp_path):
    path = write_labels(tmp_path / "9.csv", ROWS)
    edited(path, 1, "mouth", "1.0")
    np.testing.assert_array_equal(read_label_table(path).values, ROWS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'frame'"),
        ("index,frame\n0,0\n", "no column 'mouth'"),
        ("frame_file;mouth\n", "separated by semicolons"),
        (",".join([*GALAR_COLUMNS, "blood"]) + "\n", "two columns 'blood'"),
        (",".join(GALAR_COLUMNS) + "\n", "have no rows"),
        (
            ",".join(GALAR_COLUMNS) + "\n1,2,3,4,5\n" + ",".join("9" * 40),
            "line 2, has 5 cells where the header has 27; check that every row",
        ),
    ],
)
def test_what_is_no_label_file(tmp_path, text, said):
    path = tmp_path / "9.csv"
    path.write_text(text)
    with pytest.raises(LabelError, match=said):
        read_label_table(path)


def test_a_label_file_that_is_not_there(tmp_path):
    with pytest.raises(LabelError, match="cannot be read"):
        read_label_table(tmp_path / "9.csv")


def test_truth_is_cut_at_every_change_of_the_label_set(tmp_path):
    #  row    0 1 2 3 4 5 6 7          frame = 5 * index, index from 20
    #  region m m s s s s c c
    #  blood            b b b
    #  ulcer              u u
    table = read_label_table(write_labels(tmp_path / "1.csv", ROWS, step=5, first=20))
    rows = truth_events(table, Unit.INDEX)
    assert rows.unit is Unit.INDEX
    assert rows.segments == (
        Segment(20, 22, ("mouth",)),
        Segment(22, 25, ("stomach",)),
        Segment(25, 26, ("stomach", "blood")),
        Segment(26, 28, ("colon", "blood", "ulcer")),
    )
    frames = truth_events(table, Unit.FRAME)
    assert frames.unit is Unit.FRAME
    # A row lasts up to the next stored frame: five frames each, the last one too.
    assert [(s.start, s.stop) for s in frames.segments] == [
        (100, 110),
        (110, 125),
        (125, 130),
        (130, 140),
    ]


def made_table(frames: list[int], values: np.ndarray) -> LabelTable:
    axis = FrameAxis(np.array(frames))
    return LabelTable("s", axis, np.arange(len(frames)), values)


def test_a_hole_in_the_numbering_ends_an_event():
    table = made_table([0, 1, 2, 50, 51], label_rows((5, ["colon"])))
    assert [(s.start, s.stop) for s in truth_events(table, Unit.FRAME).segments] == [
        (0, 3),
        (50, 52),
    ]
    assert len(truth_events(table, Unit.INDEX).segments) == 1


def test_unlabelled_rows_are_kept_as_such():
    table = made_table([0, 1, 2], label_rows((1, []), (2, ["colon"])))
    assert truth_events(table, Unit.FRAME).segments == (
        Segment(0, 1, ()),
        Segment(1, 3, ("colon",)),
    )


@given(st.lists(st.integers(0, 2**17 - 1), min_size=2, max_size=60), st.integers(1, 7))
def test_events_give_back_the_rows_they_came_from(codes, step):
    values = np.array([[code >> bit & 1 for bit in range(17)] for code in codes], dtype=bool)
    table = made_table([step * row for row in range(len(codes))], values)
    rebuilt = np.zeros_like(values)
    covered = np.zeros(len(codes), dtype=int)
    for segment in truth_events(table, Unit.FRAME).segments:
        assert segment.start % step == 0
        assert segment.stop % step == 0
        rows = slice(segment.start // step, segment.stop // step)
        covered[rows] += 1
        rebuilt[rows, [COLUMN[label] for label in segment.labels]] = True
    np.testing.assert_array_equal(rebuilt, values)
    assert (covered == 1).all()
    in_rows = truth_events(table, Unit.INDEX).segments
    assert [(step * s.start, step * s.stop) for s in in_rows] == [
        (s.start, s.stop) for s in truth_events(table, Unit.FRAME).segments
    ]
    for segment, following in pairwise(in_rows):
        assert segment.labels != following.labels


HEADER = ",".join(GALAR_COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER.encode("utf-16"), "cannot be read (not UTF-8)"),
        (HEADER.encode() + b"1,\0", "cannot be read (not UTF-8)"),
        (b"\xe4" + HEADER.encode(), "cannot be read (it is not text in UTF-8)"),
        (b"a," * 2_000_000, "has more than 1,000 columns"),
        (HEADER.encode() + b"\n" * 2_000_001, "has more than 2,000,000 rows"),
        (HEADER.encode() + b"1" * 200_000 + b",1" * 26, "line 2: 'index' is '1111"),
        (b'"' + b"x" * 200_000 + b'",' + HEADER.encode(), "(field larger than field limit"),
        (HEADER.encode() + b'"' + b",1" * 26 + b"\n", "line 2, has 1 cell where"),
        (HEADER.encode() + b"1" + b",1" * 40 + b"\n", "line 2, has 41 cells where"),
        (HEADER.encode() + b"1,\xff" + b",1" * 25 + b"\n", "invalid utf-8 sequence"),
        (HEADER.encode() + b"1e30" + b",1" * 26 + b"\n", "line 2: 'index' is '1e30'"),
        (HEADER.encode() + b"-5" + b",1" * 26 + b"\n", "line 2: 'index' is '-5'"),
    ],
)
def test_hostile_tables_are_refused_in_one_sentence(tmp_path, content, said):
    (tmp_path / "9.csv").write_bytes(content)
    with pytest.raises(LabelError) as refused:
        read_label_table(tmp_path / "9.csv")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


def test_index_is_optional(tmp_path):
    """Only `frame` is needed; rows are then numbered in the order of their frames."""
    columns = [name for name in GALAR_COLUMNS if name != "index"]
    path = write_labels(tmp_path / "1.csv", ROWS, step=5, first=20, columns=columns)
    table = read_label_table(path)
    np.testing.assert_array_equal(table.values, ROWS)
    assert table.index.tolist() == list(range(len(ROWS)))
    assert table.axis.frames[0] == 100
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    backwards = read_label_table(path)
    np.testing.assert_array_equal(backwards.values, ROWS)
    assert backwards.index.tolist() == list(range(len(ROWS)))
