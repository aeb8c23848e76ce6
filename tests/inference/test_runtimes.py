"""Every runtime gives the embeddings of torch, as near as it says."""

import numpy as np
import pytest
import torch

from enteron.errors import EnteronError, ModelError
from enteron.inference.runtimes.choose import make_encoder
from enteron.model.vit import tiny_backbone
from tests.inference.making import squares


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    return tiny_backbone()


@pytest.fixture(scope="module")
def exact(backbone):
    return make_encoder(backbone, "exact")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_onnx_equals_torch(backbone, exact, count, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTERON_CACHE", str(tmp_path))
    given = squares(count)
    features = make_encoder(backbone, "onnx").encode(given)
    assert features.shape == (count, 512)
    np.testing.assert_allclose(features, exact.encode(given), atol=2e-5)


def test_an_unknown_runtime_is_refused(backbone):
    with pytest.raises(EnteronError, match="no runtime 'onx'; did you mean 'onnx'"):
        make_encoder(backbone, "onx")


def test_pictures_of_another_size_are_refused(exact):
    with pytest.raises(ModelError, match=r"give uint8 squares \(n, 3, 224, 224\)"):
        exact.encode(np.zeros((1, 3, 64, 64), np.uint8))
