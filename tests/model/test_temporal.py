"""Local Differencing Attention: what it does to stillness and to change, and lambda's bounds."""

import pytest
import torch

from enteron.model.network import LocalDifferencing, temporal_features


@pytest.fixture
def lda() -> LocalDifferencing:
    torch.manual_seed(0)
    return LocalDifferencing()


def test_three_identical_frames_have_no_delta_and_attend_evenly(lda):
    frame = torch.randn(1, 1, 512)
    fused = lda(frame.expand(1, 3, 512))
    current, delta = temporal_features(fused)
    assert delta.abs().max() < 1e-6
    # Attention over equal frames returns the value of that frame, whatever its weights: the same
    # as for a clip of one frame.
    torch.testing.assert_close(current, lda(frame)[:, 0], rtol=1e-5, atol=1e-5)
    # And lambda decides how much of it goes: f - lambda g, linear in lambda.
    with torch.no_grad():
        lda.raw_strength.fill_(0.0)
        untouched = lda(frame)[:, 0]
        lda.raw_strength.fill_(1.6)
        doubly = lda(frame)[:, 0]
    torch.testing.assert_close(untouched, frame[:, 0])
    torch.testing.assert_close(current - untouched, (doubly - untouched) / 2, rtol=1e-4, atol=1e-5)


def test_a_change_at_t_shows_in_delta_and_an_old_one_does_not(lda):
    still, changed = torch.randn(2, 1, 512)
    now = torch.stack([still, still, changed], dim=1)
    before = torch.stack([changed, still, still], dim=1)
    shown = temporal_features(lda(now)).delta.norm()
    faded = temporal_features(lda(before)).delta.norm()
    assert shown > 10  # two unrelated frames of 512 unit Gaussians are 32 apart
    assert faded < 1e-4


def test_every_frame_of_the_clip_reaches_the_current_feature(lda):
    windows = torch.randn(1, 3, 512, requires_grad=True)
    temporal_features(lda(windows)).current.square().sum().backward()
    assert windows.grad is not None
    assert (windows.grad.norm(dim=2) > 1e-3).all()


@pytest.mark.parametrize(("wish", "bound"), [(5.0, 2.0), (-5.0, 0.0)])
def test_lambda_stays_within_its_bounds_under_training(lda, wish, bound):
    """A loss that wants lambda outside [0, 2] gets the bound and no more."""
    assert lda.strength.item() == pytest.approx(0.8)
    frame = torch.randn(8, 3, 512)
    with torch.no_grad():
        readout = (frame - lda(frame)) / lda.strength
    optimiser = torch.optim.Adam([lda.raw_strength], lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        (lda(frame) - (frame - wish * readout)).square().mean().backward()
        optimiser.step()
        assert 0 <= lda.strength.item() <= 2
    assert lda.strength.item() == bound


def test_lambda_learns_what_lies_within(lda):
    frame = torch.randn(8, 3, 512)
    with torch.no_grad():
        target = frame - 1.3 * (frame - lda(frame)) / lda.strength
    optimiser = torch.optim.Adam([lda.raw_strength], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        (lda(frame) - target).square().mean().backward()
        optimiser.step()
    assert lda.strength.item() == pytest.approx(1.3, abs=0.01)


def test_one_frame_has_no_delta():
    current, delta = temporal_features(torch.randn(2, 1, 512))
    assert current.shape == delta.shape == (2, 512)
    assert not delta.any()
