"""The glance: the kernel against torch's, its files, and how it is fitted."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from enteron.errors import LabelError, ModelError
from enteron.fitting.glance import GlanceFit, SmallStudy, fit_glance, left_out_guesses
from enteron.inference.glance import (
    CHANNELS,
    SMALL,
    Glance,
    glance_content,
    read_glance,
    small_picture,
    tensor_shapes,
)
from enteron.labels import COLUMN, LABELS

QUICK = GlanceFit(steps=150, batch=32)


def random_glance(seed: int = 0) -> Glance:
    random = np.random.default_rng(seed)
    return Glance(
        {
            name: (0.2 * random.normal(size=shape)).astype(np.float32)
            for name, shape in tensor_shapes().items()
        }
    )


def pictures(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, SMALL, SMALL, 3), dtype=np.uint8)


def torch_log_odds(glance: Glance, small: np.ndarray) -> np.ndarray:
    tensors = {name: torch.from_numpy(value) for name, value in glance.tensors.items()}
    values = torch.from_numpy(small).permute(0, 3, 1, 2).float() / 127.5 - 1
    for layer in range(len(CHANNELS) - 1):
        weight = tensors[f"convolution.{layer}.weight"].permute(3, 2, 0, 1)
        bias = tensors[f"convolution.{layer}.bias"]
        values = functional.relu(functional.conv2d(values, weight, bias, stride=2, padding=1))
    pooled = torch.cat([values.mean((2, 3)), values.amax((2, 3))], 1)
    return (pooled @ tensors["output.weight"] + tensors["output.bias"]).clamp(-12, 12).numpy()


def test_the_kernel_is_the_convolution_of_torch():
    glance, small = random_glance(), pictures(1, 9)
    np.testing.assert_allclose(glance.log_odds(small), torch_log_odds(glance, small), atol=2e-4)


def test_a_guess_does_not_depend_on_the_pictures_beside():
    glance, small = random_glance(), pictures(2, 6)
    alone = np.concatenate([glance.log_odds(small[row : row + 1]) for row in range(6)])
    assert alone.tobytes() == glance.log_odds(small).tobytes()
    assert glance.log_odds(small[:0]).shape == (0, len(LABELS))


def test_a_small_picture_is_the_mean_of_what_it_covers():
    image = np.random.default_rng(3).integers(0, 256, (3, 4 * SMALL, 4 * SMALL), dtype=np.uint8)
    blocks = image.reshape(3, SMALL, 4, SMALL, 4).mean(axis=(2, 4)).transpose(1, 2, 0)
    assert np.abs(small_picture(image) - blocks).max() <= 0.5


def test_files_are_read_as_they_were_written_and_others_refused(tmp_path):
    glance, path = random_glance(), tmp_path / "glance.safetensors"
    path.write_bytes(glance_content(glance))
    again, _ = read_glance(path)
    for name, tensor in glance.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], tensor)
    path.write_bytes(glance_content(glance)[:-4])
    with pytest.raises(ModelError, match="not a complete safetensors file"):
        read_glance(path)
    with pytest.raises(ModelError, match=r"no tensor output\.bias"):
        Glance({name: value for name, value in glance.tensors.items() if name != "output.bias"})
    with pytest.raises(ModelError, match="not finite"):
        Glance(dict(glance.tensors) | {"output.bias": np.full(len(LABELS), np.nan, np.float32)})


def red_study(seed: int, count: int = 300) -> SmallStudy:
    """Pictures of noise, some with a red spot, which the model calls blood."""
    random = np.random.default_rng(seed)
    small = random.integers(60, 120, (count, SMALL, SMALL, 3), dtype=np.uint8)
    log_odds = np.full((count, len(LABELS)), -3.0)
    for row in np.flatnonzero(random.random(count) < 0.3):
        y, x = random.integers(4, SMALL - 14, 2)
        small[row, y : y + 10, x : x + 10] = (250, 10, 10)
        log_odds[row, COLUMN["blood"]] = 3.0
    return SmallStudy(small, log_odds)


def test_what_the_model_sees_in_small_pictures_is_learnt():
    glance = fit_glance([red_study(1), red_study(2)], QUICK)
    other = red_study(3)
    guesses = glance.log_odds(other.pictures)[:, COLUMN["blood"]]
    shown = other.log_odds[:, COLUMN["blood"]] > 0
    assert guesses[shown].min() > guesses[~shown].max()
    assert np.abs(guesses[shown] - 3).mean() < 1
    assert np.abs(guesses[~shown] + 3).mean() < 1
    again = fit_glance([red_study(1), red_study(2)], QUICK)
    assert glance_content(again) == glance_content(glance)


def test_guesses_are_of_glances_that_have_not_seen_the_study():
    studies = [red_study(seed, 120) for seed in range(3)]
    left_out = left_out_guesses(studies, [[0, 2], [1]], QUICK)
    alone = fit_glance([studies[1]], QUICK)
    np.testing.assert_array_equal(left_out[0], alone.log_odds(studies[0].pictures))
    np.testing.assert_array_equal(left_out[2], alone.log_odds(studies[2].pictures))
    halved = left_out_guesses(studies[:1], [[0]], QUICK)
    assert halved[0].shape == studies[0].log_odds.shape


def test_too_few_frames_are_refused():
    with pytest.raises(LabelError, match="5 frames cannot show"):
        fit_glance([red_study(1, 5)], QUICK)
