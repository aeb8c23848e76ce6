"""Parquet files are judged by their footer and page headers, before anything is unpacked."""

import io
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from enteron.errors import EnteronError
from enteron.folders.parquet import read_footer, require_columns
from enteron.folders.scores import read_scores, write_scores
from enteron.labels import LABELS


def written(table: pl.DataFrame, **options) -> bytes:
    content = io.BytesIO()
    table.write_parquet(content, **options)
    return content.getvalue()


def varint(value: int) -> bytes:
    """A signed number as Thrift's compact protocol has it, written independently of the reader."""
    value = 2 * value if value >= 0 else -2 * value - 1
    digits = []
    while value >= 128:
        digits.append(value % 128 + 128)
        value //= 128
    return bytes([*digits, value])


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "gzip", "brotli", "uncompressed"])
def test_the_footer_says_what_polars_wrote(compression):
    table = pl.DataFrame(
        {
            "frame": np.arange(2000),
            "a": np.linspace(0, 1, 2000, dtype=np.float32),
            "b": [True, None] * 1000,
            "c": ["text"] * 2000,
            "d": pl.Series([None] * 2000, dtype=pl.Float64),
        }
    )
    content = written(
        table, compression=compression, row_group_size=300, data_page_size=200, metadata={"k": "ü"}
    )
    footer = read_footer(content, "f")
    assert footer.rows == 2000
    assert list(footer.columns) == table.columns
    assert footer.metadata["k"] == "ü"
    assert sum(rows for rows, _ in footer.groups) == 2000
    require_columns(content, footer, ["frame", "a", "b", "d"], "f")
    with pytest.raises(EnteronError, match="column 'c' is not a column of numbers but of text"):
        require_columns(content, footer, ["c"], "f")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pl.Series([[0.5], [0.5]]), "column 'blood' is nested"),
        (pl.Series([{"x": 0.5}, {"x": 0.5}]), "column 'blood' is nested"),
        (pl.Series(["a", "b"]), "column 'blood' is not a column of numbers"),
        (pl.Series(["a", "b"], dtype=pl.Categorical), "column 'blood' is not a column of numbers"),
        (pl.Series([b"a", b"b"]), "column 'blood' is not a column of numbers"),
        (pl.Series([0.5, 2.0]), "frame 1: 'blood' has score 2.0"),
        (pl.Series([0.5, None]), "frame 1: 'blood' has score nan"),
    ],
)
def test_a_column_that_is_no_score_is_named(tmp_path, column, said):
    table = pl.DataFrame({"frame": [0, 1], **dict.fromkeys(LABELS, pl.Series([0.5, 0.5]))})
    table.with_columns(column.alias("blood")).write_parquet(tmp_path / "s.parquet")
    with pytest.raises(EnteronError, match=said):
        read_scores(tmp_path / "s.parquet")


def test_a_megabyte_of_many_rows_is_refused_by_its_footer(tmp_path):
    rows = pl.Series("frame", [0], dtype=pl.Int8).new_from_index(0, 2_000_001)
    pl.DataFrame([rows, *(rows.alias(label) for label in LABELS)]).write_parquet(
        tmp_path / "s.parquet"
    )
    assert (tmp_path / "s.parquet").stat().st_size < 10**6
    with pytest.raises(EnteronError, match="has 2,000,001 rows; a file of scores has at most"):
        read_scores(tmp_path / "s.parquet")


def test_pages_that_claim_more_than_their_rows_are_refused():
    """The footer may lie: the pages are asked too."""
    content = written(pl.DataFrame({"a": np.zeros(1000)}), compression="uncompressed")
    claim = varint(1000)
    assert content.count(claim) >= 2
    start = content.index(claim)  # in the header of the first page
    assert start < 100
    changed = content[:start] + varint(999) + content[start + len(claim) :]
    with pytest.raises(EnteronError, match="its pages do not fit its footer"):
        require_columns(changed, read_footer(changed, "f"), ["a"], "f")


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"PAR1PAR1PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", b"PARE" * 30, b"x" * 1000],
)
def test_what_is_no_parquet(content):
    with pytest.raises(EnteronError, match=r"f cannot be read|f has a footer of"):
        read_footer(content, "f")


def test_a_file_cut_off_anywhere_is_refused():
    content = written(pl.DataFrame({"a": np.arange(50)}))
    for length in range(len(content)):
        with pytest.raises(EnteronError, match="f cannot be read"):
            read_footer(content[:length], "f")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([-5, 2], "'frame' is not a whole number in every row"),
        ([0.5, 2], "'frame' is not a whole number in every row"),
        ([1, 2**62], "'frame' goes up to 4.61169e.18; no study has that many frames"),
        ([1.0, 1e300], "'frame' goes up to 1e.300; no study has that many frames"),
    ],
)
def test_frame_numbers_that_are_none(tmp_path, numbers, said):
    table = pl.DataFrame({"frame": numbers, **dict.fromkeys(LABELS, pl.Series([0.5, 0.5]))})
    table.write_parquet(tmp_path / "s.parquet")
    with pytest.raises(EnteronError, match=said):
        read_scores(tmp_path / "s.parquet")


def test_frames_per_row_that_lead_beyond_every_study(tmp_path):
    table = pl.DataFrame({"index": [0, 9], **dict.fromkeys(LABELS, pl.Series([0.5, 0.5]))})
    table.write_csv(tmp_path / "s.csv")
    assert read_scores(tmp_path / "s.csv", stride=5).axis.frames.tolist() == [0, 45]
    with pytest.raises(EnteronError, match=r"with 10{20} frames per row goes beyond frame"):
        read_scores(tmp_path / "s.csv", stride=10**20)


def test_a_column_twice_is_refused(tmp_path):
    header = ",".join(["frame", *LABELS, " blood "])
    (tmp_path / "s.csv").write_text(header + "\n0" + ",0.5" * 18 + "\n")
    with pytest.raises(EnteronError, match="has two columns 'blood'; keep one of them"):
        read_scores(tmp_path / "s.csv")


def test_only_files_of_enteron_say_what_was_encoded(tmp_path):
    values = {label: np.linspace(0, 1, 4) for label in LABELS}
    foreign = {"frame": np.arange(4), "encoded": ["utf-8"] * 4} | values
    (tmp_path / "foreign.parquet").write_bytes(written(pl.DataFrame(foreign)))
    scores = read_scores(tmp_path / "foreign.parquet", "s")
    assert scores.encoded is None
    seen = np.array([True, False, False, True])
    write_scores(tmp_path / "own.parquet", replace(scores, encoded=seen))
    np.testing.assert_array_equal(read_scores(tmp_path / "own.parquet").encoded, seen)
    write_scores(tmp_path / "all.parquet", scores)
    assert read_scores(tmp_path / "all.parquet").encoded is None
    assert "encoded" not in pl.read_parquet(tmp_path / "all.parquet").columns
