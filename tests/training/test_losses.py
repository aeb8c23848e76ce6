"""The losses against the paper's formulas, written out, and their gradients against differences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from enteron.model.options import ModelOptions
from enteron.training.losses import (
    Losses,
    angular_separation,
    asymmetric_focal,
    contrastive_loss,
    orthogonality,
    positive_weights,
    smooth_labels,
    total_loss,
)
from enteron.training.options import LossOptions, SoftTargets
from tests.literal import equations


def drawn(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(scale=scale, size=shape))


def labels(*shape: int, seed: int = 1) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.random(shape) < 0.4).astype(np.float64))


def gradient_by_differences(function, at: torch.Tensor, step: float = 1e-6) -> np.ndarray:
    """Central differences of a numpy function of one array."""
    values = at.numpy().copy()
    result = np.zeros_like(values)
    for index in np.ndindex(values.shape):
        original = values[index]
        values[index] = original + step
        above = function(values)
        values[index] = original - step
        below = function(values)
        values[index] = original
        result[index] = (above - below) / (2 * step)
    return result


WEIGHTS = torch.tensor([1.0, 3.5, 50.0, 7.0], dtype=torch.float64)
CASES = {
    "focal, hard labels": (
        lambda z: asymmetric_focal(z, labels(6, 4)),
        lambda z: equations.focal(z, labels(6, 4).numpy()),
        drawn(6, 4),
    ),
    "focal, soft labels": (
        lambda z: asymmetric_focal(z, smooth_labels(labels(6, 4), 0.05)),
        lambda z: equations.focal(
            z, labels(6, 4).numpy() * 0.95 + (1 - labels(6, 4).numpy()) * 0.05
        ),
        drawn(6, 4),
    ),
    "focal, soft labels, separate terms": (
        lambda z: asymmetric_focal(z, smooth_labels(labels(6, 4), 0.05), soft_targets="separate"),
        lambda z: equations.separate_focal(
            z, labels(6, 4).numpy() * 0.95 + (1 - labels(6, 4).numpy()) * 0.05
        ),
        drawn(6, 4),
    ),
    "contrastive": (
        lambda z: contrastive_loss(z, labels(6, 4), WEIGHTS),
        lambda z: equations.weighted_bce(z, labels(6, 4).numpy(), WEIGHTS.numpy()),
        drawn(6, 4),
    ),
    "orthogonality, anatomy": (
        lambda w: orthogonality(w, drawn(5, 9, seed=3)),
        lambda w: equations.orthogonality(w, drawn(5, 9, seed=3).numpy()),
        drawn(3, 6),
    ),
    "orthogonality, pathology": (
        lambda w: orthogonality(drawn(3, 6), w),
        lambda w: equations.orthogonality(drawn(3, 6).numpy(), w),
        drawn(5, 9, seed=3),
    ),
    "angular": (angular_separation, equations.angular, drawn(5, 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_the_papers(case):
    ours, literal, at = CASES[case]
    at = at.clone().requires_grad_()
    loss = ours(at)
    assert loss.item() == pytest.approx(literal(at.detach().numpy()), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, at)
    expected = gradient_by_differences(literal, at.detach())
    assert np.abs(expected).max() > 1e-3  # there is a gradient to compare
    np.testing.assert_allclose(gradient.numpy(), expected, atol=2e-8, rtol=1e-6)


def test_total_is_the_weighted_sum_of_its_parts():
    logits, contrast, truth = drawn(6, 4), drawn(6, 4, seed=5), labels(6, 4)
    anatomy, hidden, prototypes = drawn(3, 6), drawn(5, 9, seed=3), drawn(4, 7, seed=6)
    losses = total_loss(
        logits,
        contrast,
        truth,
        positive_weight=WEIGHTS,
        orthogonal=(anatomy, hidden),
        prototypes=prototypes,
        smoothing=0.05,
    )
    # Smoothing touches the first part only (decision 12).
    soft = truth.numpy() * 0.95 + (1 - truth.numpy()) * 0.05
    parts = (
        equations.focal(logits.numpy(), soft),
        equations.weighted_bce(contrast.numpy(), truth.numpy(), WEIGHTS.numpy()),
        equations.orthogonality(anatomy.numpy(), hidden.numpy()),
        equations.angular(prototypes.numpy()),
    )
    named = (losses.classification, losses.contrastive, losses.orthogonality, losses.angular)
    np.testing.assert_allclose([part.item() for part in named], parts, rtol=1e-12)
    expected = parts[0] + 0.4 * parts[1] + 0.01 * parts[2] + 0.05 * parts[3]
    assert losses.total.item() == pytest.approx(expected, rel=1e-12)


def test_paths_that_do_not_exist_add_nothing():
    losses: Losses = total_loss(
        drawn(6, 4),
        None,
        labels(6, 4),
        positive_weight=WEIGHTS,
        orthogonal=(drawn(3, 6), drawn(5, 9)),
        prototypes=None,
        options=LossOptions(orthogonality=0),
    )
    assert losses.contrastive.item() == losses.angular.item() == 0
    assert losses.total.item() == losses.classification.item()


def test_easy_negatives_below_the_margin_cost_nothing():
    easy = torch.logit(torch.tensor([[0.01, 0.04, 0.0499]], dtype=torch.float64)).requires_grad_()
    loss = asymmetric_focal(easy, torch.zeros(1, 3))
    loss.backward()
    assert loss.item() == 0
    assert easy.grad is not None
    assert not easy.grad.any()
    harder = torch.logit(torch.tensor([[0.06]], dtype=torch.float64))
    assert asymmetric_focal(harder, torch.zeros(1, 1)).item() > 0


def best_probability(target: float, form: SoftTargets) -> float:
    """Where the loss of one smoothed label is smallest, by search over probabilities."""
    probabilities = torch.linspace(0.0005, 0.9995, 1999, dtype=torch.float64)
    soft = smooth_labels(torch.tensor(target, dtype=torch.float64), 0.05)
    losses = [
        asymmetric_focal(torch.logit(p), soft, soft_targets=form).item() for p in probabilities
    ]
    return float(probabilities[int(np.argmin(losses))])


def test_smoothed_negatives_are_pulled_to_the_margin_and_positives_to_one():
    """With two separately focused terms a smoothed negative would be pulled to .42."""
    assert best_probability(0.0, "joint") == pytest.approx(0.05, abs=0.001)
    assert best_probability(1.0, "joint") == pytest.approx(1.0, abs=0.001)
    assert best_probability(0.0, "separate") == pytest.approx(0.42, abs=0.01)


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=8),
    st.floats(0, 3), st.floats(0, 6), st.floats(0, 0.3),
)  # fmt: skip
def test_both_forms_agree_on_hard_labels(cells, gamma_positive, gamma_negative, margin):
    logits = torch.tensor([z for z, _ in cells], dtype=torch.float64)
    targets = torch.tensor([float(y) for _, y in cells], dtype=torch.float64)
    joint, separate = (
        asymmetric_focal(
            logits, targets, soft_targets=form, gamma_positive=gamma_positive,
            gamma_negative=gamma_negative, margin=margin,
        ).item()
        for form in ("joint", "separate")
    )  # fmt: skip
    assert joint == pytest.approx(separate, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_soft_targets_have_finite_gradients_everywhere(gamma):
    logits = torch.tensor([-200.0, -5.0, 0.0, 5.0, 200.0], requires_grad=True)
    for value in (0.0, 0.05, 0.5, 0.95, 1.0):
        loss = asymmetric_focal(
            logits, torch.full((5,), value), gamma_positive=gamma, gamma_negative=gamma
        )
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    extreme = torch.tensor([[-60.0, 60.0, -9.5, 9.5]], dtype=dtype)
    for value in (0.0, 1.0):
        target = torch.full((1, 4), value)
        half = asymmetric_focal(extreme, target)
        assert half.dtype == torch.float32
        assert half.item() == asymmetric_focal(extreme.float(), target).item()
        assert torch.isfinite(half)
    assert contrastive_loss(extreme, torch.ones(1, 4), torch.ones(4)).dtype == torch.float32
    assert orthogonality(extreme, extreme).dtype == torch.float32
    assert angular_separation(extreme.repeat(2, 1)).dtype == torch.float32


def test_extreme_logits_have_finite_gradients():
    logits = torch.tensor([[-200.0, 200.0, 0.0]], requires_grad=True)
    for target in (torch.zeros(1, 3), torch.ones(1, 3)):
        (gradient,) = torch.autograd.grad(asymmetric_focal(logits, target), logits)
        assert torch.isfinite(gradient).all()


def test_weights_of_rare_positives_in_the_classification_loss():
    """The prior submission's objective: soft targets share the weight of their positive part."""
    logits, truth = drawn(6, 4), labels(6, 4)
    soft = smooth_labels(truth, 0.05)
    expected = 0.0
    for i, j in np.ndindex(6, 4):
        cell = equations.focal(logits[i : i + 1, j].numpy(), soft[i : i + 1, j].numpy())
        y = float(soft[i, j])
        expected += cell * (y * float(WEIGHTS[j]) + 1 - y)
    loss = asymmetric_focal(logits, soft, None, WEIGHTS)
    assert loss.item() == pytest.approx(expected / 24, rel=1e-9)
    total = total_loss(
        logits, None, truth, positive_weight=WEIGHTS, orthogonal=None, prototypes=None,
        smoothing=0.05, options=LossOptions(weighted_classification=True),
    )  # fmt: skip
    assert total.total.item() == loss.item()


def test_positive_weights():
    # of 1000 samples: 1:1, 1:3, rarer than 1:50, more than half, all, none
    counts = torch.tensor([500, 250, 5, 800, 1000, 0])
    assert positive_weights(counts, 1000).tolist() == [1.0, 3.0, 50.0, 1.0, 1.0, 50.0]
    assert positive_weights(counts, 1000, 100.0).tolist() == [1.0, 3.0, 100.0, 1.0, 1.0, 100.0]


def test_orthogonality_ignores_the_other_columns_and_is_smooth_at_zero():
    anatomy = torch.zeros(2, 4)
    anatomy[0, 0] = anatomy[1, 1] = 1
    hidden = torch.zeros(3, 9)
    hidden[:, 2:4] = 5  # x, but nothing that anatomy uses
    hidden[:, 4:] = 7  # delta and anatomy
    anatomy.requires_grad_()
    loss = orthogonality(anatomy, hidden)
    loss.backward()
    assert loss.item() == 0
    assert anatomy.grad is not None
    assert torch.isfinite(anatomy.grad).all()
    # Not squared: twice the weights, twice the loss.
    one, other = drawn(3, 6), drawn(5, 6, seed=2)
    assert orthogonality(2 * one, other).item() == pytest.approx(
        2 * orthogonality(one, other).item()
    )


def test_angular_of_orthogonal_identical_and_opposite_prototypes():
    assert angular_separation(torch.eye(17, 512) * 3).item() == 0
    same = torch.randn(1, 512, generator=torch.Generator().manual_seed(0)).double()
    assert angular_separation(same.repeat(17, 1)).item() == pytest.approx(1, abs=1e-12)
    signs = torch.ones(17, 1, dtype=torch.float64)
    signs[::2] = -1
    assert angular_separation(signs * same).item() == pytest.approx(1, abs=1e-12)


def test_default_weights_are_the_papers():
    assert LossOptions().model_dump() == {
        "classification": 1.0,
        "contrastive": 0.4,
        "orthogonality": 0.01,
        "angular": 0.05,
        "gamma_positive": 1.0,
        "gamma_negative": 4.0,
        "margin": 0.05,
        "largest_weight": 50.0,
        "weighted_classification": False,
        "smoothing": 0.05,
        "soft_targets": "joint",
    }
    assert ModelOptions().dropout == 0.4
