"""Preprocessing: open_clip's transform, a stable hash, and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from enteron.errors import ModelError
from enteron.kernels import compiled
from enteron.model import torchvision_operators
from enteron.model.preprocessing import Preprocessing
from enteron.model.resampling import resize

CLIP = Preprocessing(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)


def picture(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(("height", "width"), [(336, 336), (512, 512), (224, 224), (320, 401)])
def test_it_is_open_clips_transform(height, width):
    """Pillow's resize, to the bit."""
    torchvision_operators.declare()
    from open_clip.transform import PreprocessCfg, image_transform_v2

    array = picture(height, width)
    transform = image_transform_v2(PreprocessCfg(), is_train=False)
    assert callable(transform)
    reference = transform(Image.fromarray(array))
    assert isinstance(reference, torch.Tensor)
    result = CLIP.apply(array)
    assert result.shape == (3, 224, 224)
    levels = (result - reference).abs() * torch.tensor(CLIP.std).view(3, 1, 1) * 255
    assert levels.max() < 0.001


def test_squash_keeps_the_whole_picture():
    array = np.zeros((100, 200, 3), np.uint8)
    array[:, :40] = 255  # a bar that cutting out the middle would lose
    cut = Preprocessing(size=32).apply(array)
    squashed = Preprocessing(size=32, resize="squash").apply(array)
    assert cut.max() < 0
    assert squashed[0, 0, 0] == 1


def test_the_hash_is_fixed_and_sees_every_field():
    # A changed value here means that no model folder can be loaded any more.
    assert Preprocessing().hash() == (
        "98279924bfdfc68df046be66fa86bffcc2c67b09aa90deba49100f7df75bd499"
    )
    # A changed value here means that every stored embedding has become invalid.
    assert Preprocessing().images_hash() == (
        "edc80c28eeee496c4271600eb55a6a1a2a90052d9ac33141d94249b83c527c17"
    )
    variants = [
        Preprocessing(size=32),
        Preprocessing(mean=(0.5, 0.5, 0.4)),
        Preprocessing(std=(0.5, 0.5, 0.4)),
        Preprocessing(interpolation="bilinear"),
        Preprocessing(resize="squash"),
    ]
    assert len({Preprocessing().hash(), *(v.hash() for v in variants)}) == 6


@pytest.mark.parametrize("other", [np.zeros((8, 8, 3)), np.zeros((3, 8, 8), np.uint8)])
def test_other_arrays_are_refused(other):
    with pytest.raises(ModelError, match="uint8 RGB pictures"):
        CLIP.apply(other)


@given(
    source=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    target=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
    seed=st.integers(0, 10),
)
def test_every_byte_of_a_resized_picture_is_pillows(source, target, interpolation, seed):
    array = np.random.default_rng(seed).integers(0, 256, (*source, 3), dtype=np.uint8)
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    # Axis by axis: Pillow 13 takes the other axis first where that is less work.
    wide = Image.fromarray(array).resize((target[1], source[0]), filters[interpolation])
    expected = wide.resize(target[::-1], filters[interpolation])
    np.testing.assert_array_equal(
        resize(array, target[0], target[1], interpolation), np.asarray(expected)
    )


def test_the_kernel_runs_where_it_cannot_be_stored(monkeypatch):
    """A package that is read-only, without a home folder: numba refuses to cache."""
    import numba

    compile_function = numba.njit

    def without_cache(function, *, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_function(function, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    compiled.cache_clear()
    try:
        array = picture(64, 48)
        expected = Image.fromarray(array).resize((20, 30), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(resize(array, 30, 20, "bicubic"), np.asarray(expected))
    finally:
        compiled.cache_clear()
