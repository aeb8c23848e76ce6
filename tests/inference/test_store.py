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
