"""Unknown labels in training: no loss, no gradient, no weight; and nothing changes without them."""

import numpy as np
import pytest
import torch

from enteron.labels import COLUMN, LABELS
from enteron.training import learner as learner_module
from enteron.training import loop as loop_module
from enteron.training.augmentation import mixup
from enteron.training.batches import Draw
from enteron.training.features import FeatureSource, StudyFeatures
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
from enteron.training.options import SamplerOptions
from enteron.training.results import region_accuracy, validation_metrics
from enteron.training.sampling import (
    Sampler,
    Samples,
    StudySamples,
    draw_weights,
    sample_weights,
)
from enteron.types import FrameLabels
from tests.literal import unmasked
from tests.training.making import small_loop, small_options, some_labels, sources, study_features

WEIGHTS = torch.rand(17, generator=torch.Generator().manual_seed(5)) * 49 + 1


def batch(seed: int, count: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, targets and a random mask."""
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, 17, generator=rng)
    targets = (torch.rand(count, 17, generator=rng) < 0.2).float()
    known = torch.rand(count, 17, generator=rng) < 0.4
    return logits, targets, known


def value_and_gradient(loss, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.clone().requires_grad_()
    value = loss(logits)
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("smoothing", [0.0, 0.05])
def test_known_everywhere_gives_the_bits_of_the_plain_mean(seed, smoothing):
    logits, targets, _ = batch(seed)
    everything = torch.ones_like(targets, dtype=torch.bool)
    soft = smooth_labels(targets, smoothing)
    for masked, plain in (
        (
            lambda z: asymmetric_focal(z, soft, everything),
            lambda z: unmasked.asymmetric_focal(z, soft),
        ),
        (
            lambda z: contrastive_loss(z, targets, WEIGHTS, everything),
            lambda z: unmasked.contrastive(z, targets, WEIGHTS),
        ),
    ):
        for ours, theirs in zip(
            value_and_gradient(masked, logits), value_and_gradient(plain, logits), strict=True
        ):
            assert torch.equal(ours, theirs)


def test_training_on_complete_labels_gives_the_bits_of_the_unmasked_objective(monkeypatch):
    """Sampler, mixup, objective and validation, over whole epochs."""
    options = small_options()
    ours = small_loop(options).run()

    def unmasked_loss(logits, contrastive, targets, known, *, positive_weight, orthogonal,
                      prototypes, smoothing, options):  # fmt: skip
        assert known.all()
        classification = unmasked.asymmetric_focal(logits, smooth_labels(targets, smoothing))
        contrast = unmasked.contrastive(contrastive, targets, positive_weight)
        overlap, separation = orthogonality(*orthogonal), angular_separation(prototypes)
        return Losses(
            data=options.classification * classification + options.contrastive * contrast,
            structure=options.orthogonality * overlap + options.angular * separation,
            classification=classification,
            contrastive=contrast,
            orthogonality=overlap,
            angular=separation,
        )

    train, _ = sources()
    plain_weights = unmasked.positive_weights(
        torch.from_numpy(train.samples.counts), len(train.samples)
    )
    monkeypatch.setattr(learner_module, "total_loss", unmasked_loss)
    monkeypatch.setattr(loop_module, "positive_weights", lambda *counts: plain_weights)
    monkeypatch.setattr(
        loop_module,
        "mixup",
        lambda clips, targets, known, weight: (*unmasked.mixup(clips, targets, weight), known),
    )
    monkeypatch.setattr(
        "enteron.training.sampling.sample_weights",
        lambda labels: unmasked.sample_weights(labels.present),
    )
    theirs = small_loop(options).run()
    assert ours.history == theirs.history
    for name, tensor in theirs.network.state_dict().items():
        assert torch.equal(tensor, ours.network.state_dict()[name]), name


def test_the_hash_of_complete_samples_did_not_change():
    """A training that an older version started can still be resumed."""
    train, val = sources()
    assert (train.samples.hash(), val.samples.hash()) == ("4b3bf30528c75fe2", "82284f10b1f9df84")


@pytest.mark.parametrize("seed", range(3))
def test_masked_losses_by_hand(seed):
    """The mean of the known cells, each computed alone."""
    logits, targets, known = batch(seed)
    logits, targets, weights = logits.double(), targets.double(), WEIGHTS.double()

    def mean_of_cells(single):
        cells = known.nonzero().tolist()
        return lambda z: torch.stack([single(z, i, j) for i, j in cells]).mean()

    for masked, single in (
        (
            lambda z: asymmetric_focal(z, targets, known),
            lambda z, i, j: unmasked.asymmetric_focal(z[i, j], targets[i, j]),
        ),
        (
            lambda z: contrastive_loss(z, targets, weights, known),
            lambda z, i, j: unmasked.contrastive(z[i, j], targets[i, j], weights[j]),
        ),
    ):
        value, gradient = value_and_gradient(masked, logits)
        by_hand, gradient_by_hand = value_and_gradient(mean_of_cells(single), logits)
        torch.testing.assert_close(value, by_hand)
        torch.testing.assert_close(gradient, gradient_by_hand)
        assert (gradient[~known] == 0).all()


def test_a_batch_without_known_labels_has_no_gradient():
    logits, targets, _ = batch(0)
    logits[0, 0], logits[1, 1] = 500.0, -500.0
    nothing = torch.zeros_like(targets, dtype=torch.bool)
    logits.requires_grad_()
    directions = torch.randn(17, 8, generator=torch.Generator().manual_seed(1))
    losses = total_loss(
        logits,
        2 * logits,
        targets,
        nothing,
        positive_weight=WEIGHTS,
        orthogonal=(torch.eye(8), torch.eye(8)),
        prototypes=directions,
        smoothing=0.05,
    )
    assert losses.data.item() == 0
    assert losses.total.isfinite()
    (gradient,) = torch.autograd.grad(losses.total, logits)
    assert (gradient == 0).all()


def test_positive_weights_count_known_frames_only():
    #  label   shown   known   weight
    #  0       10      1000    50 (99 cut off)
    #  1       10      40      3
    #  2       0       0       50, and never used
    weights = positive_weights(torch.tensor([10, 10, 0]), torch.tensor([1000, 40, 0]))
    assert weights.tolist() == [50.0, 3.0, 50.0]


def test_mixup_keeps_unknown_unknown():
    known = torch.tensor([[True, True, False], [True, False, False], [False, True, True]])
    mixed = mixup(torch.zeros(3, 1, 1), torch.zeros(3, 3), known, 0.75)[2]
    #  0 and 1 are partners; 2 is its own
    expected = [[True, False, False], [True, False, False], [False, True, True]]
    assert mixed.tolist() == expected


def partial(labels: np.ndarray, share: float = 0.5, seed: int = 0) -> FrameLabels:
    known = np.random.default_rng(seed).random(labels.shape) < share
    return FrameLabels(labels & known, known)


def test_sample_weights_use_the_known_frames_of_each_label():
    #  polyp: shown by 1 of 2 known frames; colon: by 3 of 4 known frames
    present = np.zeros((4, 17), bool)
    present[0, COLUMN["polyp"]] = True
    present[:3, COLUMN["colon"]] = True
    known = np.zeros((4, 17), bool)
    known[:2, COLUMN["polyp"]] = True
    known[:, COLUMN["colon"]] = True
    polyp, colon = (2 / 2) ** 0.5, (4 / 4) ** 0.5
    expected = [max(polyp, colon), colon, colon, 1.0]
    np.testing.assert_allclose(sample_weights(FrameLabels(present, known)), expected)


def test_shares_of_sources():
    labels = FrameLabels.complete(some_labels(300, 0))
    source_index = np.repeat([0, 1], [200, 100])
    default = draw_weights(labels, SamplerOptions(), source_index)
    assert default is not None
    assert default[:200].sum() == pytest.approx(200)
    assert default[200:].sum() == pytest.approx(100)
    equal = draw_weights(labels, SamplerOptions(shares=(1, 1)), source_index)
    assert equal is not None
    assert equal[:200].sum() == pytest.approx(equal[200:].sum())
    # Within a source, frames keep their balance.
    plain = sample_weights(labels)
    np.testing.assert_allclose(equal[:200] / equal[0], plain[:200] / plain[0])
    assert draw_weights(labels, SamplerOptions(balanced=False), source_index) is None
    sampler = Sampler(
        labels, SamplerOptions(shares=(3, 1), samples=40_000), 100, 1, 7, source_index
    )
    drawn = np.bincount(source_index[sampler.epoch(0).ravel()])
    assert drawn[0] / drawn.sum() == pytest.approx(0.75, abs=0.01)


def test_one_source_draws_as_before():
    labels = FrameLabels.complete(some_labels(50, 3))
    with_index = Sampler(labels, SamplerOptions(), 10, 1, 4, np.zeros(50, int)).epoch(2)
    np.testing.assert_array_equal(with_index, Sampler(labels, SamplerOptions(), 10, 1, 4).epoch(2))


def features_with(labels: FrameLabels, name: str, seed: int, source: str = "") -> StudyFeatures:
    """Features that carry what is present, with labels that are partly unknown."""
    whole = study_features(name, count=len(labels), seed=seed)
    samples = StudySamples(name, whole.samples.stored, whole.samples.rows, labels, source)
    return StudyFeatures(samples, whole.features, whole.readable)


def test_training_learns_from_partial_labels():
    """Half of all labels are hidden, and some frames say nothing; results per source are kept."""

    def hidden(seed: int) -> FrameLabels:
        labels = partial(some_labels(32, seed), seed=seed)
        known = labels.known.copy()
        known[:4] = False
        return FrameLabels(labels.present & known, known)

    train = [features_with(hidden(n), str(n), n, "a" if n < 3 else "b") for n in (1, 2, 3)]
    whole = FrameLabels.complete(some_labels(32, 4))
    val = [features_with(whole, "4", 4, "a"), features_with(hidden(5), "5", 5, "b")]
    data = FeatureSource(train, 3, 1), FeatureSource(val, 3, 1)
    result = small_loop(small_options(epochs=8, batch=16), data=data).run()
    first, best = result.history.epochs[0], result.best
    assert all(np.isfinite(record.train_loss) for record in result.history.epochs)
    assert best.figures.macro_ap_present > first.figures.macro_ap_present
    assert best.sources["a"].region_accuracy is not None
    assert best.sources["a"].region_accuracy > 0.8
    assert set(best.sources) == {"a", "b"}
    samples = data[1].samples
    rows = np.flatnonzero(samples.source_index[result.validation.samples] == 1)
    again = validation_metrics(result.validation.truth[rows], result.validation.scores[rows])
    assert again == best.sources["b"]


def test_an_unknown_label_has_no_influence_on_the_weights():
    """The same frames with other values behind unknown labels: the same bits."""
    labels = some_labels(32, 1)
    known = np.random.default_rng(0).random(labels.shape) < 0.5
    results = []
    for seed in (1, 2):
        other = np.where(known, labels, some_labels(32, seed))
        train = [features_with(FrameLabels(other & known, known), "1", 1)]
        val = [features_with(FrameLabels.complete(some_labels(32, 4)), "4", 4)]
        data = FeatureSource(train, 3, 1), FeatureSource(val, 3, 1)
        results.append(small_loop(small_options(), data=data).run().network.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_regions_count_only_where_they_are_known():
    scores = np.zeros((4, 17), np.float32)
    scores[:, COLUMN["stomach"]] = 1
    present, known = np.zeros((4, 17), bool), np.zeros((4, 17), bool)
    present[0, COLUMN["stomach"]] = known[0, COLUMN["stomach"]] = True  # right; others unknown
    present[1, COLUMN["colon"]] = known[1, COLUMN["colon"]] = True  # wrong
    known[2, :5] = True  # no region: wrong, as before
    #  frame 3: nothing known
    assert region_accuracy(FrameLabels(present, known), scores) == pytest.approx(1 / 3)
    assert region_accuracy(FrameLabels.unknown(4), scores) is None


def test_hashes_tell_what_is_known():
    labels = some_labels(20, 0)
    rows = np.arange(20)
    hashes = {
        Samples([StudySamples("1", rows, rows, some)]).hash()
        for some in (FrameLabels.complete(labels), FrameLabels(labels, labels), partial(labels))
    }
    assert len(hashes) == 3


def test_windows_carry_what_is_known():
    labels = partial(some_labels(32, 1))
    source = FeatureSource([features_with(labels, "1", 1)], 3, 1)
    chosen = np.array([3, 9])
    (made,) = source.batches([Draw(chosen, None)])
    np.testing.assert_array_equal(made.known.numpy(), labels.known[chosen])
    np.testing.assert_array_equal(made.targets.numpy(), labels.present[chosen])


def test_a_table_of_labels_refuses_contradictions():
    present = np.ones((1, len(LABELS)), bool)
    with pytest.raises(Exception, match="in row 0 'mouth' is both present and unknown; a label"):
        FrameLabels(present, ~present)
    with pytest.raises(Exception, match=r"labels of shape \(1, 3\).*shape \(frames, 17\)"):
        FrameLabels.complete(np.ones((1, 3), bool))
    with pytest.raises(Exception, match="1 rows of labels do not fit 2 rows of what is known"):
        FrameLabels(present, np.ones((2, len(LABELS)), bool))
