"""EfficientNet-Lite0: the stored weights really are in it."""

import numpy as np
import pytest
import torch

from enteron.errors import EnteronError
from enteron.model.backbones import LITE_FEATURES, LITE_SIZE, _with_timm_names, lite0


@pytest.fixture(scope="module")
def network():
    return lite0()


def test_features_are_finite_and_tell_pictures_apart(network):
    rng = np.random.default_rng(0)
    smooth = torch.from_numpy(rng.normal(size=(2, 3, 7, 7)).astype(np.float32))
    images = torch.nn.functional.interpolate(smooth, size=LITE_SIZE, mode="bilinear")
    with torch.inference_mode():
        features = network(images)
        alone = network(images[1:])
    assert features.shape == (2, LITE_FEATURES)
    assert torch.isfinite(features).all()
    torch.testing.assert_close(features[1:], alone, rtol=1e-4, atol=1e-4)
    assert torch.nn.functional.cosine_similarity(features[0], features[1], dim=0) < 0.99


def test_every_tensor_comes_from_the_stored_file(network):
    """Trained statistics, not a fresh start: no running mean is all 0, no variance all 1."""
    state = network.state_dict()
    means = [t for name, t in state.items() if name.endswith("running_mean")]
    variances = [t for name, t in state.items() if name.endswith("running_var")]
    assert len(means) > 40
    assert all(t.abs().max() > 0 for t in means)
    assert all((t != 1).any() for t in variances)


def test_weights_of_another_network_are_refused(network):
    expected = network.state_dict()
    stored = {f"x{i}": t for i, t in enumerate(expected.values()) if t.dim() > 0}
    first = next(iter(stored))
    with pytest.raises(EnteronError, match=f"'{first}' does not fit 'conv_stem.weight'"):
        _with_timm_names({**stored, first: torch.zeros(3)}, expected)
    del stored[first]
    with pytest.raises(EnteronError, match="not EfficientNet-Lite0's"):
        _with_timm_names(stored, expected)
