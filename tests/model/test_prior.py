"""The network of the authors' earlier submission (decision 32)."""

import numpy as np
import pytest
import torch

from enteron.errors import ConfigError
from enteron.model.network import LinearHead, Network
from enteron.model.options import ModelOptions
from enteron.options import make_options
from enteron.training.options import recipe
from tests.literal import equations
from tests.model.making import FakeBackbone


def prior_options(**changes: object) -> ModelOptions:
    return recipe("prior").model.model_copy(update={"backbone": "vit-tiny", **changes})


def test_logits_are_one_linear_layer_and_cosines_with_fixed_text():
    text = torch.randn(17, 512, generator=torch.Generator().manual_seed(3))
    network = Network(FakeBackbone(), prior_options(), text).eval()
    windows = torch.randn(4, 1, 512, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        outputs = network(windows)
    assert isinstance(network.head, LinearHead)
    weight, bias = (tensor.detach().double().numpy() for tensor in network.head.out.parameters())
    assert network.contrast is not None
    assert outputs.contrastive is not None
    for row, (frame, logits, cosines) in enumerate(
        zip(windows[:, 0].double().numpy(), outputs.logits, outputs.contrastive, strict=True)
    ):
        expected = equations.times(weight, frame) + bias
        np.testing.assert_allclose(logits.numpy(), expected, atol=1e-5, err_msg=f"row {row}")
        along = [
            equations.dot(equations.unit(frame), equations.unit(label)) / 0.07
            for label in text.double().numpy()
        ]
        np.testing.assert_allclose(cosines.numpy(), along, atol=1e-4)
    assert network.orthogonal_weights is None


def test_text_features_are_not_trained_when_fixed():
    fixed, learnt = (
        Network(FakeBackbone(), prior_options(text=text)) for text in ("fixed", "learnt")
    )
    for network, is_trained in ((fixed, False), (learnt, True)):
        outputs = network(torch.randn(4, 1, 512))
        assert outputs.contrastive is not None
        outputs.contrastive.sum().backward()
        assert network.contrast is not None
        assert (network.contrast.features.grad is not None) == is_trained
        assert network.contrast.log_scale.grad is not None


def test_a_linear_head_with_anatomy_conditioning_is_refused():
    with pytest.raises(ConfigError, match="a linear head has no anatomy conditioning"):
        make_options(ModelOptions, {"head": "linear"}, "model.toml")
