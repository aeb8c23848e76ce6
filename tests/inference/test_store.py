import json
import re
import struct
import zlib

import numpy as np
import pytest

from enteron.errors import EnteronError, ModelError
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.store import open_embeddings
from enteron.study import open_study
from tests.inference.stub import StubEncoder
from tests.making import write_frames


@pytest.fixture
def stored(tmp_path):
    study = open_study(write_frames(tmp_path / "7", range(0, 50, 5)))
    path = tmp_path / "7.npy"
    embed_study(study, StubEncoder(), path, EmbedOptions(chunk=4))
    return path


def test_anyone_can_load_the_features_with_numpy(stored):
    features = np.load(stored, mmap_mode="r")
    assert features.shape == (10, 2, 512)
    np.testing.assert_array_equal(features, open_embeddings(stored).features)
    np.testing.assert_array_equal(np.load(stored), features)


def test_a_store_knows_its_frames(stored):
    embeddings = open_embeddings(stored)
    np.testing.assert_array_equal(embeddings.frames, np.arange(0, 50, 5))
    np.testing.assert_array_equal(embeddings.source, np.arange(10))
    assert embeddings.key.views == ("plain", "flipped")
    assert embeddings.record.study == "7"


def test_a_store_cut_off_anywhere_is_refused(stored, tmp_path):
    content = stored.read_bytes()
    cut = tmp_path / "cut.npy"
    for length in (
        *range(0, 200, 7),
        *range(len(content) // 2, len(content), 97),
        len(content) - 1,
    ):
        cut.write_bytes(content[:length])
        with pytest.raises(EnteronError, match=r"delete the file and run again"):
            open_embeddings(cut)


def test_a_damaged_chunk_is_named_by_its_frames(stored):
    content = bytearray(stored.read_bytes())
    row = 2 * 512 * 4
    content[128 + 5 * row + 100] ^= 1  # row 5 lies in the second chunk of four rows
    stored.write_bytes(content)
    with pytest.raises(ModelError, match="damaged between frames 20 and 35"):
        open_embeddings(stored)


def test_a_file_of_other_kind_is_refused(tmp_path):
    np.save(tmp_path / "plain.npy", np.zeros((3, 2, 512), np.float32))
    with pytest.raises(ModelError, match=r"'plain\.npy' is not a complete store of embeddings"):
        open_embeddings(tmp_path / "plain.npy")


@pytest.mark.parametrize(
    ("field", "value", "description"),
    [
        ("backbone", "other", "other weights"),
        ("preprocessing", "other", "other preprocessing of pictures"),
        ("runtime", "onnx-int8", "other runtime"),
        ("views", ("plain",), "other views of each picture"),
        ("precision", "float16", "other precision"),
        ("redundancy", 2.0, "other limit for redundant frames"),
        ("study", "other", "other files of the study"),
        ("samples", "other", "other content of the study's files"),
    ],
)
def test_a_store_with_another_key_is_refused_and_the_difference_is_named(
    stored, field, value, description
):
    key = open_embeddings(stored).key.model_copy(update={field: value})
    with pytest.raises(
        ModelError, match=f"made with {description}.*delete it to compute them again"
    ):
        open_embeddings(stored, key)


def test_a_view_that_is_not_stored_is_named(stored):
    with pytest.raises(ModelError, match=r"no view 'augmented'.*stored are plain, flipped"):
        open_embeddings(stored).view("augmented")


# ---- everything has a checksum, and nothing is mapped that is not an embedding


def rewritten(path, change_record=None, change_arrays=None):
    """Rewrite a store's footer as an attacker would: with a checksum that fits."""
    content = path.read_bytes()
    length, _, magic = struct.unpack("<QI8s", content[-20:])
    rows = np.load(path).shape[0]
    header = 128
    features = content[header : header + rows * 2 * 512 * 4]
    arrays = bytearray(content[header + len(features) : -20 - length])
    record = json.loads(content[-20 - length : -20])
    if change_record is not None:
        change_record(record)
    if change_arrays is not None:
        change_arrays(arrays, rows)
    text = json.dumps(record).encode()
    checksum = zlib.crc32(content[:header] + bytes(arrays) + text)
    end = struct.pack("<QI8s", len(text), checksum, magic)
    path.write_bytes(content[:header] + features + arrays + text + end)


def test_every_byte_outside_of_the_features_is_covered(stored):
    content = stored.read_bytes()
    footer = 128 + 10 * 2 * 512 * 4
    positions = [*range(0, 128, 5), *range(footer, len(content), 11), len(content) - 1]
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1
        stored.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"; delete (the file and run again|it to compute)"):
            open_embeddings(stored)
    stored.write_bytes(content)
    assert len(open_embeddings(stored)) == 10


def test_a_rewritten_footer_is_still_accepted_where_nothing_changed(stored):
    rewritten(stored)
    assert len(open_embeddings(stored)) == 10


def set_int(kind, offset_of, value):
    def change(arrays, rows):
        struct.pack_into(kind, arrays, offset_of(rows), value)

    return change


SOURCE_OF_ROW_5 = lambda rows: 8 * rows + 4 * 5  # noqa: E731


@pytest.mark.parametrize(
    "change",
    [
        {"change_arrays": set_int("<q", lambda rows: 8 * 3, 7)},  # frames do not increase
        {"change_arrays": set_int("<i", SOURCE_OF_ROW_5, 6)},  # a later row
        {"change_arrays": set_int("<i", SOURCE_OF_ROW_5, -2)},
        {"change_arrays": set_int("<i", SOURCE_OF_ROW_5, -1)},  # unreadable without a reason
        {"change_arrays": set_int("<B", lambda rows: 12 * rows, 1)},  # a digest
        {"change_record": lambda record: record.update(chunk=0)},
        {"change_record": lambda record: record.update(chunk=-4)},
        {"change_record": lambda record: record.update(chunk=3)},
        {"change_record": lambda record: record.update(files=9)},
        {"change_record": lambda record: record.update(files=1, per_row=False)},
        {"change_record": lambda record: record.update(content="0" * 64)},
        {"change_record": lambda record: record.update(probes=[{"row": 10, "twin": 0}])},
        {"change_record": lambda record: record.update(probes=[{"row": 2, "twin": 2}])},
        {"change_record": lambda record: record.update(problems={"7": "gone"})},
        {"change_record": lambda record: record["key"].update(precision="float16")},
        {"change_record": lambda record: record["key"].update(views=["plain"])},
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(stored, change):
    rewritten(stored, **change)
    with pytest.raises(EnteronError, match=r"store of embeddings|is not valid") as refused:
        open_embeddings(stored)
    assert "\n" not in str(refused.value)


def test_a_source_that_has_another_source_is_refused(stored):
    def change(arrays, rows):
        struct.pack_into("<i", arrays, 8 * rows + 4 * 5, 4)
        struct.pack_into("<i", arrays, 8 * rows + 4 * 6, 5)

    rewritten(stored, change_arrays=change)
    with pytest.raises(ModelError, match="not a complete store of embeddings"):
        open_embeddings(stored)


def test_nan_where_a_frame_is_readable_is_refused_even_with_a_fitting_checksum(stored):
    content = bytearray(stored.read_bytes())
    struct.pack_into("<f", content, 128 + 4, float("nan"))
    stored.write_bytes(content)
    first_chunk = zlib.crc32(content[128 : 128 + 4 * 2 * 512 * 4])
    rewritten(stored, lambda record: record["checksums"].__setitem__(0, first_chunk))
    with pytest.raises(ModelError, match="is damaged between frames 0 and 15"):
        open_embeddings(stored)


@pytest.mark.parametrize("dtype", ["|O", "<f8", "<i4", "<c8", ">f4", "|u1", "<U4"])
def test_only_embeddings_are_mapped(stored, dtype):
    """`|O` would turn bytes of the file into pointers: the interpreter would crash."""
    content = stored.read_bytes()
    header = content[:128].replace(b"'<f4'", f"'{dtype}'".encode())
    size = 128 - len(header)
    header = header[:-1] + b" " * max(size, 0) + header[-1:]
    stored.write_bytes(header + content[128:])
    with pytest.raises(ModelError, match=rf"holds '{re.escape(dtype)}' of shape .* where embedd"):
        open_embeddings(stored)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"'fortran_order': False", b"'fortran_order': True "),
        (b"(10, 2, 512)", b"(10, 1024)  "),
        (b"(10, 2, 512)", b"(-10, 2, 512"),
    ],
)
def test_other_layouts_are_refused(stored, old, new):
    content = stored.read_bytes()
    stored.write_bytes(content.replace(old, new[: len(old)], 1))
    with pytest.raises(ModelError, match="delete the file and run again"):
        open_embeddings(stored)


def test_a_store_of_an_older_version_is_refused_by_name(stored):
    content = stored.read_bytes()
    stored.write_bytes(content[:-20] + content[-20:-12] + b"enteron1")
    with pytest.raises(ModelError, match=r"made by an older version .*; delete it to compute the"):
        open_embeddings(stored)
