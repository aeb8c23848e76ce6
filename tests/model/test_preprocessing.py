"""Preprocessing: open_clip's transform, a stable hash, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from enteron.errors import ModelError
from enteron.model import torchvision_operators
from enteron.model.preprocessing import Preprocessing

CLIP = Preprocessing(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)


def picture(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(("height", "width"), [(336, 336), (512, 512), (224, 224), (320, 401)])
def test_it_is_open_clips_transform(height, width):
    """Pillow's resize, except that some halves are rounded the other way on each axis."""
    torchvision_operators.declare()
    from open_clip.transform import PreprocessCfg, image_transform_v2

    array = picture(height, width)
    transform = image_transform_v2(PreprocessCfg(), is_train=False)
    assert callable(transform)
    reference = transform(Image.fromarray(array))
    assert isinstance(reference, torch.Tensor)
    result = CLIP.apply(torch.from_numpy(array.copy()).permute(2, 0, 1)[None])[0]
    assert result.shape == (3, 224, 224)
    levels = (result - reference).abs() * torch.tensor(CLIP.std).view(3, 1, 1) * 255
    assert levels.max() < 2.001
    assert (levels > 0.5).float().mean() < 0.005


def test_squash_keeps_the_whole_picture():
    array = np.zeros((100, 200, 3), np.uint8)
    array[:, :40] = 255  # a bar that cutting out the middle would lose
    pictures = torch.from_numpy(array).permute(2, 0, 1)[None]
    cut = Preprocessing(size=32).apply(pictures)
    squashed = Preprocessing(size=32, resize="squash").apply(pictures)
    assert cut.max() < 0
    assert squashed[0, 0, 0, 0] == 1


def test_the_hash_is_fixed_and_sees_every_field():
    # A changed value here means that every stored embedding has become invalid.
    assert Preprocessing().hash() == (
        "98279924bfdfc68df046be66fa86bffcc2c67b09aa90deba49100f7df75bd499"
    )
    variants = [
        Preprocessing(size=32),
        Preprocessing(mean=(0.5, 0.5, 0.4)),
        Preprocessing(std=(0.5, 0.5, 0.4)),
        Preprocessing(interpolation="bilinear"),
        Preprocessing(resize="squash"),
    ]
    assert len({Preprocessing().hash(), *(v.hash() for v in variants)}) == 6


@pytest.mark.parametrize(
    "pictures", [torch.zeros(1, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8)]
)
def test_other_arrays_are_refused(pictures):
    with pytest.raises(ModelError, match="uint8 RGB pictures"):
        CLIP.apply(pictures)
