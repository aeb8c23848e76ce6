"""The literal baseline of the benchmarks gives the model's probabilities, frame by frame."""

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks._literal_inference import literal_probabilities
from enteron.model.network import Network
from enteron.model.options import ModelOptions
from tests.making import write_frames
from tests.model.making import FakeBackbone


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network(FakeBackbone(), ModelOptions(backbone="vit-tiny")).eval()


def test_six_passes_by_hand(network, tmp_path):
    """Eleven frames: more than a batch of clips, and not a multiple of it."""
    folder = write_frames(tmp_path / "study", range(1, 12))  # frame 0 is all one grey
    probabilities = literal_probabilities(network, folder)
    assert probabilities.shape == (11, 17)
    pictures = [np.array(Image.open(file)) for file in sorted(folder.iterdir())]
    preprocessing = network.backbone.spec.preprocessing
    images = torch.stack([preprocessing.apply(picture) for picture in pictures])
    for t, before, long_before in ((0, 0, 0), (1, 0, 0), (2, 1, 0), (10, 9, 8)):
        with torch.inference_mode():
            clip = images[[long_before, before, t]][None]
            flips = [torch.sigmoid(network(c).logits)[0] for c in (clip, torch.flip(clip, [4]))]
        assert not torch.equal(*flips)  # the mirror image says something else
        np.testing.assert_allclose(probabilities[t], torch.stack(flips).mean(0).numpy(), atol=1e-6)


def test_the_temperature_divides_the_log_odds_of_the_mean(network, tmp_path):
    folder = write_frames(tmp_path / "study", range(3))
    plain = literal_probabilities(network, folder).astype(np.float64)
    warm = literal_probabilities(network, folder, temperature=1.5, frames=2)
    odds = np.log(plain / (1 - plain)) / 1.5
    np.testing.assert_allclose(warm, (1 / (1 + np.exp(-odds)))[:2], atol=1e-6)
