"""Schedule, average, mixup, augmentation: against hand computations and torch's own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from enteron.model import torchvision_operators
from enteron.model.preprocessing import Preprocessing
from enteron.training.augmentation import (
    COLOURS,
    HUE,
    Augmentation,
    adjust_colours,
    erase,
    mixup,
    mixup_weight,
    rotate,
)
from enteron.training.learner import (
    AveragedNetwork,
    make_optimiser,
    rate_factor,
    set_rates,
    trained_tensors,
)
from enteron.training.options import AugmentationOptions, ScheduleOptions
from enteron.training.sampling import generator, seed_of
from tests.training.making import small_network, small_options


@given(
    steps=st.integers(8, 400),
    rise=st.floats(0.1, 0.9),
    start=st.floats(1, 30),
    end=st.floats(1, 1000),
)
def test_rates_are_those_of_torchs_one_cycle(steps, rise, start, end):
    if rise * steps <= 1.5:  # torch divides by zero where the rise ends at the first step
        return
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 0.3, total_steps=steps, pct_start=rise, div_factor=start, final_div_factor=end
    )
    options = ScheduleOptions(rise=rise, start=start, end=end)
    for step in range(steps):
        rate = 0.3 * rate_factor(step, steps, options)
        assert rate == pytest.approx(cycle.get_last_lr()[0], rel=1e-9, abs=1e-12)
        optimiser.step()
        if step < steps - 1:
            cycle.step()


def test_rates_of_the_paper_by_hand():
    #  1000 steps: from 3e-5 at step 0 to 3e-4 at step 149, to 3e-7 at step 999
    options = ScheduleOptions()
    assert 3e-4 * rate_factor(0, 1000, options) == pytest.approx(3e-5)
    assert 3e-4 * rate_factor(149, 1000, options) == pytest.approx(3e-4)
    assert 3e-4 * rate_factor(999, 1000, options) == pytest.approx(3e-7)
    assert 9e-5 * rate_factor(999, 1000, options) == pytest.approx(9e-8)
    # Half of the way down the cosine is half of the way between the two rates.
    assert rate_factor(574, 1000, options) == pytest.approx((1 + 1e-3) / 2)


def test_one_step_and_no_rise_do_not_divide_by_zero():
    assert math.isfinite(rate_factor(0, 1, ScheduleOptions()))
    assert rate_factor(0, 1, ScheduleOptions(rise=0)) == pytest.approx(1e-3)


def test_two_groups_with_rates_of_their_own():
    options = small_options(regime="full")
    network = small_network(options)
    optimiser = make_optimiser(network, options.optimiser, frozen=False)
    set_rates(optimiser, 0.5)
    head, backbone = optimiser.param_groups
    assert (head["lr"], backbone["lr"]) == (0.5e-3, 4.5e-5)
    assert {id(p) for p in backbone["params"]} == {id(p) for p in network.backbone.parameters()}
    both = {id(p) for group in optimiser.param_groups for p in group["params"]}
    assert both == {id(p) for p in network.parameters()}
    assert len(make_optimiser(network, options.optimiser, frozen=True).param_groups) == 1


def test_average_by_hand():
    options = small_options(regime="full")
    network = small_network(options)
    average = AveragedNetwork(network, 0.75, frozen=False)
    tensors = {n: t.detach().clone() for n, t in network.state_dict().items()}
    before = {n: t.clone() for n, t in tensors.items()}
    for tensor in tensors.values():
        tensor += 4
    average.update(tensors, 0)
    average.update(tensors, 1)
    averaged = average.network.state_dict()
    #  1 - 0.75^2 = 7/16 of the way after two steps
    weight, mean = "head.anatomy.weight", "head.excitation.norm.running_mean"
    torch.testing.assert_close(averaged[weight], before[weight] + 7 / 16 * 4)
    torch.testing.assert_close(averaged[mean], before[mean] + 7 / 16 * 4)  # a buffer
    counter = "head.excitation.norm.num_batches_tracked"
    assert averaged[counter].item() == before[counter].item() + 4  # copied, not averaged
    torch.testing.assert_close(network.state_dict()[weight], before[weight])


def test_rising_decay_by_hand():
    network = small_network(small_options())
    average = AveragedNetwork(network, 0.5, frozen=True, rise=True)
    name = "prototypes.directions"
    tensors = {n: t.clone() for n, t in trained_tensors(network, frozen=True).items()}
    start = tensors[name].clone()
    tensors[name] += 10
    average.update(tensors, 0)  # decay 1/10
    torch.testing.assert_close(average.tensors[name], start + 9)
    average.update(tensors, 1)  # decay 2/11
    torch.testing.assert_close(average.tensors[name], start + 10 - 2 / 11)
    average.update(tensors, 1000)  # decay 1/2, the largest
    torch.testing.assert_close(average.tensors[name], start + 10 - 1 / 11)


def test_a_frozen_backbone_is_neither_copied_nor_stored():
    network = small_network(small_options())
    average = AveragedNetwork(network, 0.9, frozen=True)
    assert average.network.backbone is network.backbone
    assert not any(name.startswith("backbone.") for name in average.tensors)
    assert average.network.head is not network.head


def test_mixup_by_hand():
    clips = torch.arange(5.0).view(5, 1, 1).repeat(1, 3, 2)
    targets = torch.eye(5)
    everything = torch.ones(5, 5, dtype=torch.bool)
    mixed, soft, known = mixup(clips, targets, everything, 0.75)
    assert known.all()
    #  pairs (0, 1), (2, 3); 4 has no partner
    assert mixed[:, 0, 0].tolist() == [0.25, 0.75, 2.25, 2.75, 4.0]
    assert (mixed == mixed[:, :1, :1]).all()  # the same share for the three frames
    assert soft[2].tolist() == [0, 0, 0.75, 0.25, 0]
    assert soft[4].tolist() == [0, 0, 0, 0, 1]
    same = mixup(clips, targets, everything, 1.0)
    assert same[0] is clips
    assert same[1] is targets
    assert same[2] is everything


def test_mixing_weights_are_those_of_a_beta_but_at_least_one_half():
    weights = np.array([mixup_weight(0.3, 42, 0, batch) for batch in range(4000)])
    assert weights.min() == 0.5
    assert mixup_weight(0.3, 42, 0, 17) == weights[17]
    # E max(B, 0.5) for Beta(0.3, 0.3), by numerical integration: .68, not .87 as of max(B, 1 - B).
    from scipy.stats import beta

    expected = 0.25 + beta(0.3, 0.3).expect(lambda x: x, lb=0.5, ub=1)
    assert expected == pytest.approx(0.68, abs=0.005)
    assert (weights == 0.5).mean() == pytest.approx(0.5, abs=0.03)
    assert weights.mean() == pytest.approx(expected, abs=4 * weights.std() / 4000**0.5)
    assert mixup_weight(0.0, 42, 0, 1) == 1.0


def pictures(count: int = 3, side: int = 32) -> torch.Tensor:
    draw = np.random.default_rng(0)
    coarse = torch.from_numpy(draw.random((1, 3, 6, 6)))
    fine = torch.nn.functional.interpolate(coarse, size=side, mode="bilinear")
    return (255 * fine).byte().repeat(count, 1, 1, 1)


def augmented(augmentation: Augmentation, clip: torch.Tensor, seed: int) -> torch.Tensor:
    return augmentation(list(clip), seed)[0]


def test_one_draw_for_all_frames_of_a_clip():
    augmentation = Augmentation(AugmentationOptions(), 32)
    for seed in range(40):
        changed = augmented(augmentation, pictures(side=50), seed)
        assert changed.shape == (3, 3, 32, 32)
        assert changed.dtype == torch.uint8
        assert torch.equal(changed[0], changed[1])
        assert torch.equal(changed[0], changed[2])


def test_frames_of_other_sizes_show_the_same_part():
    options = AugmentationOptions(brightness=0, contrast=0, saturation=0, hue=0, rotation=0)
    augmentation = Augmentation(options, 32)
    large, small = pictures(1, 96)[0], pictures(1, 48)[0]
    for seed in range(20):
        one, other = augmentation([large, small], seed)[0].float()
        assert (one - other).abs().mean() < 4
        alone = augmentation([small], seed)[0][0].float()
        assert (alone - other).abs().max() == 0


def test_augmentation_follows_from_its_seed_and_leaves_torchs_generator_alone():
    augmentation = Augmentation(AugmentationOptions(), 32)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    one = augmented(augmentation, pictures(), 11)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, augmented(augmentation, pictures(), 11))
    # Whatever the number of pictures: a study is changed in chunks.
    assert torch.equal(one[0], augmented(augmentation, pictures(1), 11)[0])
    seen = {augmented(augmentation, pictures(1), seed).sum().item() for seed in range(20)}
    assert len(seen) > 15


def test_the_pipeline_is_torchvisions_in_the_order_of_decision_14():
    """From the original picture to normalised clips, with the same draws: crop, flips, colour,
    grayscale, rotation, normalisation, erasing to 0.
    """
    options = AugmentationOptions()
    ours = Augmentation(options, 32)
    from torchvision.transforms import v2

    mean, std = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
    preprocessing = Preprocessing(size=32, mean=mean, std=std)
    theirs = v2.Compose(
        [
            v2.RandomResizedCrop(32, scale=options.scale, ratio=options.ratio, antialias=True),
            v2.RandomHorizontalFlip(options.horizontal),
            v2.RandomVerticalFlip(options.vertical),
            v2.ColorJitter(options.brightness, options.contrast, options.saturation, options.hue),
            v2.RandomGrayscale(options.grayscale),
            # Without `fill=None` torchvision mixes the pixels at the edge with black twice.
            v2.RandomRotation(options.rotation, v2.InterpolationMode.BILINEAR, fill=None),  # pyright: ignore[reportArgumentType]
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean, std),
            v2.RandomErasing(options.erasing, scale=options.erased),
        ]
    )
    noise = torch.from_numpy(np.random.default_rng(2).integers(-20, 20, (3, 3, 70, 66)))
    coarse = torch.nn.functional.interpolate(pictures().float(), size=(70, 66)).int()
    noisy = (coarse + noise).clamp(0, 255).byte()
    level = 1 / 255 / 0.26
    blanks = 0
    for seed in range(60):
        torch.manual_seed(seed)
        expected = theirs(noisy)
        images, box = ours(list(noisy), seed)
        clip = erase(preprocessing.normalise(images)[None], torch.tensor([box]))[0]
        apart = (clip - expected).abs() / level
        # A level lost in one step is rarely two after all of them; most pixels are the same.
        assert apart.max() <= 2.01
        assert apart.mean() < 0.01
        blank = (expected == 0).all(dim=0).all(dim=0)
        blanks += bool(blank.any())
        assert blank.sum() == box[2] * box[3]
    assert 5 <= blanks <= 20  # a fifth of 60


def test_kept_squares_hold_the_pixels_of_the_smallest_crop():
    augmentation = Augmentation(AugmentationOptions(), 224)
    side = augmentation.kept_side
    assert side == 288  # 224 / sqrt(0.7 x 0.9) = 282.2, in steps of 16
    assert side * math.sqrt(0.7 * 0.9) >= 224
    assert side * math.sqrt(0.7 / 1.1) >= 224
    assert Augmentation(AugmentationOptions(scale=(0.01, 1)), 224).kept_side == 1024


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("share", [-1.0, -0.3, 0.2, 1.0])
def test_every_change_of_colour_is_torchvisions(kind, share):
    torchvision_operators.declare()
    from torchvision.transforms.v2 import functional

    factor = 0.5 * share if kind == HUE else 1 + 0.6137 * share  # no sums that end on whole numbers
    every = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, 3, 90, 91), np.uint8))
    every[0, :, :5] = 77  # grey has no hue
    every[1, :, :5] = torch.tensor([255, 0, 0]).view(3, 1, 1)
    expected = getattr(functional, f"adjust_{COLOURS[kind]}")(every, factor).int()
    apart = (
        torch.from_numpy(adjust_colours(every.numpy(), [(kind, factor)])).int() - expected
    ).abs()
    assert apart.max() <= 1
    assert apart.float().mean() < 0.01


def test_rotation_does_not_depend_on_the_layout():
    clip = pictures().numpy()
    rotated = rotate(clip.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), 12.0)
    assert np.array_equal(rotated, rotate(clip, 12.0))


def test_seeds_depend_on_every_part():
    seeds = {seed_of(1, 2), seed_of(2, 1), seed_of("1", 2), seed_of(12), seed_of(1, 2, 0)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert generator(3, "x").random() == generator(3, "x").random()
