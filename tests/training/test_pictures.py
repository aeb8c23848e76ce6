"""Clips of images: the right frames, seeded augmentation, unreadable frames, a training."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.folders.model import load_model, save_model
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import Preprocessing
from enteron.study import Study, open_study
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Draw
from enteron.training.loop import TrainingLoop
from enteron.training.options import AugmentationOptions, TrainingOptions, recipe
from enteron.training.pictures import ClipOptions, ClipSource
from enteron.training.sampling import Samples, StudySamples
from enteron.types import FrameLabels
from tests.making import number_of, write_frames
from tests.training.making import some_labels

SIZE = 64


def complete(count: int) -> FrameLabels:
    return FrameLabels.complete(some_labels(count, 0))


def clips(tmp_path, numbers, rows, *, workers=0, augmentation=None, step=1, name="7", cache=None):
    folder = tmp_path / name
    if not folder.exists():
        write_frames(folder, numbers, size=SIZE)
    study = open_study(folder)
    rows = np.array(rows)
    samples = Samples([StudySamples(name, study.numbers, rows, complete(len(rows)))])
    options = ClipOptions(3, step, Preprocessing(size=SIZE), augmentation)
    return ClipSource(samples, [study], options, workers, cache)


def shown_numbers(batch) -> list[list[int]]:
    """The numbers that the frames of every clip show."""
    return [[number_of(f.permute(1, 2, 0).numpy()) for f in clip] for clip in batch.inputs]


@pytest.mark.parametrize("workers", [0, 2])
def test_clips_are_stored_neighbours(tmp_path, workers):
    source = clips(tmp_path, range(0, 50, 5), [0, 4, 9], workers=workers)
    first, second = source.batches([Draw(np.array([0, 1]), None), Draw(np.array([2]), None)])
    assert shown_numbers(first) == [[0, 0, 0], [10, 15, 20]]
    assert shown_numbers(second) == [[35, 40, 45]]
    assert first.targets.tolist() == source.samples.labels.present[[0, 1]].tolist()
    wide = clips(tmp_path, range(0, 50, 5), [0, 4, 9], step=2)
    (batch,) = wide.batches([Draw(np.array([1, 2]), None)])
    assert shown_numbers(batch) == [[0, 10, 20], [25, 35, 45]]


def test_changes_follow_from_seeds_not_from_workers(tmp_path):
    augmentation = Augmentation(AugmentationOptions(), SIZE)
    draws = [Draw(np.array([n, n]), np.array([n, 100 + n])) for n in range(3)]
    alone = list(clips(tmp_path, range(9), [3, 5, 8], augmentation=augmentation).batches(draws))
    helped = clips(tmp_path, range(9), [3, 5, 8], augmentation=augmentation, workers=2)
    for one, other in zip(alone, helped.batches(draws), strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert not torch.equal(one.inputs[0], one.inputs[1])
    # Without seeds, as in validation, nothing is changed.
    (plain,) = helped.batches([Draw(np.array([0]), None)])
    assert shown_numbers(plain) == [[1, 2, 3]]


def picture_of(study: Study, number: int) -> NDArray[np.uint8]:
    image = study.frame(number).image
    assert image is not None
    return image


@pytest.mark.parametrize("kept", [False, True])
def test_clips_are_cropped_from_the_original_picture_and_erased_after_normalisation(tmp_path, kept):
    folder = write_frames(tmp_path / "7", range(4), size=200)
    augmentation = Augmentation(AugmentationOptions(erasing=1.0), SIZE)
    cache = tmp_path / "cache" if kept else None
    source = clips(tmp_path, range(4), [3], augmentation=augmentation, cache=cache)
    for _ in range(2):  # where squares are kept: written, then read
        (batch,) = source.batches([Draw(np.array([0, 0]), np.array([11, 12]))])
        study = open_study(folder)
        pictures = [picture_of(study, n) for n in (1, 2, 3)]
        originals = [torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures]
        if kept:  # 64 / sqrt(0.7 x 0.9) = 80.6, in steps of 16
            larger = Preprocessing(size=96)
            originals = [torch.from_numpy(larger.resize_and_crop(p)) for p in pictures]
        inputs = source.prepare(batch, torch.device("cpu"))
        for position, seed in enumerate((11, 12)):
            expected, (top, left, height, width) = augmentation(originals, seed)
            assert torch.equal(batch.inputs[position], expected)
            assert height * width > 0
            blank = inputs[position][..., top : top + height, left : left + width]
            assert (blank == 0).all()
            assert ((inputs[position] == 0).all(1).all(0)).sum() <= height * width + 40
    # Validation images are those of inference, whatever is kept.
    (plain,) = source.batches([Draw(np.array([0]), None)])
    exact = Preprocessing(size=SIZE).resize_and_crop(picture_of(open_study(folder), 3))
    np.testing.assert_array_equal(plain.inputs[0, -1].numpy(), exact)
    assert plain.erased is None


def test_masked_borders_are_cut_before_the_crop(tmp_path):
    write_frames(tmp_path / "7", range(60), size=100)
    study = open_study(tmp_path / "7")
    masked = Preprocessing(size=SIZE, border="masked")
    still = {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0, "rotation": 0, "erasing": 0}
    options = AugmentationOptions.model_validate({**still, "scale": (1.0, 1.0), "ratio": (1, 1)})
    augmentation = Augmentation(options, SIZE)
    samples = Samples([StudySamples("7", study.numbers, np.array([50]), complete(1))])
    source = ClipSource(samples, [study], ClipOptions(1, 1, masked, augmentation), 0)
    (changed,) = source.batches([Draw(np.array([0]), np.array([3]))])
    (plain,) = source.batches([Draw(np.array([0]), None)])
    corners = changed.inputs[0, 0][:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners == 0).all()
    # All of the square is shown: but for flips and resampling it is the image of inference.
    one, other = (batch.inputs[0, 0].float() for batch in (changed, plain))
    apart = [
        (flip - other).abs().mean() for flip in (one, one.flip(1), one.flip(2), one.flip(1, 2))
    ]
    assert min(apart) < 6


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_frames_are_left_out_and_counted(tmp_path, workers):
    write_frames(tmp_path / "7", range(10), size=SIZE)
    (tmp_path / "7" / "frame_000004.PNG").write_bytes(b"not a picture")
    source = clips(tmp_path, range(10), [3, 4, 5, 9], workers=workers)
    (batch,) = source.batches([Draw(np.array([0, 1, 2, 3]), None)])
    assert shown_numbers(batch) == [[1, 2, 3], [7, 8, 9]]
    assert batch.samples.tolist() == [0, 3]
    assert source.unreadable == {("7", 4), ("7", 5)}


@pytest.mark.parametrize("workers", [0, 2])
def test_cached_images_are_the_decoded_ones(tmp_path, workers):
    write_frames(tmp_path / "7", range(10), size=SIZE)
    (tmp_path / "7" / "frame_000004.PNG").write_bytes(b"not a picture")
    draws = [Draw(np.array([0, 1]), None), Draw(np.array([2, 3]), None)]
    plain = list(clips(tmp_path, range(10), [3, 5, 7, 9], workers=workers).batches(draws))
    cache = tmp_path / "cache"
    for _ in range(2):  # written, then read
        source = clips(tmp_path, range(10), [3, 5, 7, 9], workers=workers, cache=cache)
        for one, other in zip(plain, source.batches(draws), strict=True):
            assert torch.equal(one.inputs, other.inputs)
        assert source.unreadable == {("7", 5)}
    (file,) = cache.iterdir()
    # Damage is noticed by its checksum, and the picture decoded again.
    content = bytearray(file.read_bytes())
    content[4 * 10 + 3 * 3 * SIZE * SIZE + 100] ^= 255  # in row 3
    file.write_bytes(content)
    source = clips(tmp_path, range(10), [3, 5, 7, 9], cache=cache)
    assert shown_numbers(next(iter(source.batches(draws)))) == [[1, 2, 3]]
    # Cached images are not decoded again.
    for number in (1, 2, 3):
        path = tmp_path / "7" / f"frame_{number:06d}.PNG"
        path.write_bytes(bytes(path.stat().st_size))
    assert shown_numbers(next(iter(source.batches(draws)))) == [[1, 2, 3]]


def test_a_study_that_cannot_be_read_ends_in_a_sentence(tmp_path):
    folder = write_frames(tmp_path / "7", range(6), size=SIZE)
    for number in range(4):
        (folder / f"frame_{number:06d}.PNG").write_bytes(b"")
    source = clips(tmp_path, range(6), [2, 3, 4, 5], workers=1)
    with pytest.raises(StudyError, match="more than half of study 7 cannot be read"):
        list(source.batches([Draw(np.array([0, 1, 2, 3]), None)]))


@pytest.mark.slow
def test_full_fine_tuning_of_vit_tiny_end_to_end(tmp_path):
    """The backbone learns too, and an unreadable frame is survived."""
    write_frames(tmp_path / "7", range(20), size=SIZE)
    options = TrainingOptions.model_validate(
        {
            "model": {"backbone": "vit-tiny"},
            "epochs": 2,
            "batch": 4,
            "accumulate": 2,
            "sampler": {"samples": 16},
            "ema": 0.5,
            "workers": 0,
        }
    )
    preprocessing = Preprocessing()
    study = open_study(tmp_path / "7")
    rows = np.arange(20)
    samples = Samples([StudySamples("7", study.numbers, rows, complete(20))])
    (tmp_path / "7" / "frame_000011.PNG").write_bytes(b"")

    def source(augmented: bool) -> ClipSource:
        augmentation = Augmentation(options.augmentation, preprocessing.size) if augmented else None
        return ClipSource(samples, [study], ClipOptions(3, 1, preprocessing, augmentation), 0)

    network = start_network(ModelOptions(backbone="vit-tiny"), seed=1)
    before = {n: t.clone() for n, t in network.state_dict().items()}
    result = TrainingLoop(network, source(True), source(False), options).run()
    after = result.network.state_dict()
    moved = [n for n, t in after.items() if not torch.equal(t, before[n])]
    assert "backbone.projection.weight" in moved
    assert any(name.startswith("backbone.trunk.blocks.0") for name in moved)
    assert "head.anatomy.weight" in moved
    assert result.unreadable >= 1
    assert np.isfinite(result.validation.scores).all()
    assert len(result.validation.samples) == 17  # three clips hold the unreadable frame


def test_the_prior_submission_trains_and_is_stored(tmp_path):
    """Its text features stay as they started; its weights survive the model folder."""
    write_frames(tmp_path / "7", range(12), size=SIZE)
    changes = {"epochs": 1, "batch": 4, "sampler": {"samples": 8}, "workers": 0}
    options = recipe("prior", model={"backbone": "vit-tiny"}, **changes)
    preprocessing = Preprocessing()
    study = open_study(tmp_path / "7")
    samples = Samples([StudySamples("7", study.numbers, np.arange(12), complete(12))])
    clips = ClipOptions(options.model.frames, 1, preprocessing, None)
    source = ClipSource(samples, [study], clips, 0)
    network = start_network(options.model, seed=1)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    result = TrainingLoop(network, source, source, options).run()
    after = result.network.state_dict()
    assert torch.equal(after["contrast.features"], before["contrast.features"])
    for name in ("head.out.weight", "contrast.log_scale", "backbone.trunk.blocks.0.attn.strength"):
        assert not torch.equal(after[name], before[name]), name
    save_model(tmp_path / "model", result.network)
    loaded, _ = load_model(tmp_path / "model")
    clip = torch.rand(2, 1, 3, 224, 224)
    with torch.inference_mode():
        expected = result.network.eval()(clip).logits
        assert torch.equal(loaded.eval()(clip).logits, expected)
