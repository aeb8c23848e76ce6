"""The loop: it learns, stops early, resumes to the same bytes, and names what is broken."""

import re
import resource
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from enteron.errors import ConfigError, TrainingError
from enteron.labels import COLUMN
from enteron.model.network import Network
from enteron.progress import SilentProgress
from enteron.training.augmentation import mixup, mixup_weight
from enteron.training.batches import Batch, Draw
from enteron.training.checkpoint import STATE, read_state
from enteron.training.distributed import Processes
from enteron.training.features import FeatureSource
from enteron.training.learner import rate_factor
from enteron.training.loop import Step, TrainingListener
from enteron.training.losses import asymmetric_focal, positive_weights, total_loss
from enteron.training.options import TrainingOptions
from enteron.training.results import (
    EpochRecord,
    History,
    ValidationMetrics,
    validation_metrics,
)
from enteron.training.sampling import Sampler
from enteron.types import FrameLabels
from tests.training.making import (
    small_loop,
    small_network,
    small_options,
    sources,
    study_features,
)


class InterruptionError(Exception):
    """Stands in for a kill."""


class Interruption(TrainingListener):
    """Interrupts the training after some steps."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.steps: list[Step] = []

    def on_step(self, step: Step) -> None:
        self.steps.append(step)
        if len(self.steps) == self.after:
            raise InterruptionError


def weights_of(network: Network) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_same_bytes(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_it_learns():
    result = small_loop(small_options(epochs=4)).run()
    first, *_, last = result.history.epochs
    assert last.train_loss < 0.5 * first.train_loss
    best = result.history.best
    assert best is not None
    assert best.figures.region_accuracy > 0.95  # pyright: ignore[reportOptionalOperand]
    assert best.figures.findings_ap > 0.9
    # The stored network is the best epoch's: its scores give that epoch's figures again.
    again = validation_metrics(result.validation.truth, result.validation.scores)
    assert again.macro_ap == pytest.approx(best.figures.macro_ap, abs=1e-9)


def test_a_step_by_hand():
    """One epoch of three steps, written out with torch's own AdamW and clipping."""
    options = small_options(epochs=1, batch=32, model={"backbone": "vit-tiny", "dropout": 0.0})
    result = small_loop(options).run()
    train, _ = sources()
    network = small_network(options)
    head = list(network.head_parameters())
    optimiser = torch.optim.AdamW(head, lr=1.0, betas=(0.9, 0.999), weight_decay=5e-4)
    average = {n: t.double().clone() for n, t in network.state_dict().items()}
    weight = positive_weights(torch.from_numpy(train.samples.counts), len(train.samples))
    order = Sampler(train.samples.labels, options.sampler, 32, 1, options.seed).epoch(0)
    assert len(order) == 3
    for step, chosen in enumerate(order):
        (batch,) = train.batches([Draw(chosen, None)])
        share = mixup_weight(0.3, options.seed, 0, step)
        inputs, targets, _ = mixup(batch.inputs, batch.targets, batch.known, share)
        out = network.train()(inputs)
        assert network.prototypes is not None
        losses = total_loss(
            out.logits,
            out.contrastive,
            targets,
            positive_weight=weight,
            orthogonal=network.orthogonal_weights,
            prototypes=network.prototypes.directions,
            smoothing=0.05,
        )
        optimiser.zero_grad()
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(head, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * rate_factor(step, 3, options.schedule)
        optimiser.step()
        for name, tensor in network.state_dict().items():
            average[name] = 0.9 * average[name] + 0.1 * tensor.double()
    weights = result.network.state_dict()
    for name in ("head.anatomy.weight", "head.pathology.hidden.weight", "prototypes.directions",
                 "contrast.features", "differencing.raw_strength",
                 "head.excitation.norm.running_var"):  # fmt: skip
        torch.testing.assert_close(weights[name].double(), average[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, 6),  # the last step of the first epoch: its validation is lost with it
        ({"checkpoint_steps": 4}, 11),  # back by a step
        ({"accumulate": 2, "batch": 8, "sampler": {"balanced": False}, "views": 2}, 8),
    ],
)
def test_a_resumed_training_ends_with_the_same_bytes(tmp_path, changes, after):
    options = small_options(**changes)
    whole = small_loop(options).run()
    with pytest.raises(InterruptionError):
        small_loop(options, tmp_path, Interruption(after)).run()
    listener = Interruption(10_000)
    resumed = small_loop(options, tmp_path, listener).run()
    assert listener.steps[0].overall > 0
    assert_same_bytes(weights_of(whole.network), weights_of(resumed.network))
    assert whole.history == resumed.history


def test_a_checkpoint_of_other_options_or_data_is_refused(tmp_path):
    with pytest.raises(InterruptionError):
        small_loop(small_options(), tmp_path, Interruption(4)).run()
    with pytest.raises(TrainingError, match="other options: 'mixup' differs; resume with"):
        small_loop(small_options(mixup=0.1), tmp_path)
    few = FeatureSource([study_features("1", seed=9)], 3, 1)
    with pytest.raises(TrainingError, match="on other samples: studies, frames or labels changed"):
        small_loop(small_options(), tmp_path, data=(few, few))
    # The number of workers does not change the result.
    assert small_loop(small_options(workers=3), tmp_path).state.batch == 3


def test_a_damaged_checkpoint_is_refused(tmp_path):
    with pytest.raises(InterruptionError):
        small_loop(small_options(), tmp_path, Interruption(2)).run()
    whole = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(whole[:-100])
    with pytest.raises(TrainingError, match=r"'state\.safetensors' cannot be read; train again"):
        small_loop(small_options(), tmp_path)
    (tmp_path / STATE).write_bytes(b"")
    with pytest.raises(TrainingError, match="cannot be read"):
        small_loop(small_options(), tmp_path)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    """A limit on the size of files stands in for the disk."""
    training = small_loop(small_options(), tmp_path, Interruption(4))
    with pytest.raises(InterruptionError):
        training.run()
    before = (tmp_path / STATE).read_bytes()

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(
            TrainingError,
            match=r"not saved: .*File too large.*--resume; the last checkpoint \(epoch 1, after 3 ",
        ):
            small_loop(small_options(), tmp_path).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / STATE).read_bytes() == before
    assert read_state(tmp_path).batch == 3
    # The epoch's weights are smaller and still fitted; nothing half written is left.
    assert {path.name for path in tmp_path.iterdir()} == {STATE, "best-1.safetensors"}
    resumed, whole = small_loop(small_options(), tmp_path), small_loop(small_options())
    assert_same_bytes(weights_of(whole.run().network), weights_of(resumed.run().network))


def test_early_stop():
    record = EpochRecord(
        epoch=1,
        train_loss=1,
        val_loss=1,
        figures=ValidationMetrics(
            macro_ap=0.5, macro_ap_present=0.5, macro_f1=0, findings_ap=0, region_accuracy=0
        ),
    )
    rows = [record]
    for epoch, ap in ((2, 0.7), (3, 0.7), (4, 0.6)):
        figures = record.figures.model_copy(update={"macro_ap": ap})
        rows.append(record.model_copy(update={"epoch": epoch, "figures": figures}))
    history = History(epochs=tuple(rows))
    assert history.best == rows[1]  # the first of equals
    assert history.should_stop(2)
    assert not history.should_stop(3)
    assert not history.should_stop(None)
    assert not History().should_stop(1)


def test_training_stops_when_nothing_gets_better():
    worse = iter((0.3, 0.5, 0.4, 0.45, 0.9))

    def scripted(truth: FrameLabels, scores: np.ndarray) -> ValidationMetrics:
        return validation_metrics(truth, scores).model_copy(update={"macro_ap": next(worse)})

    options = small_options(epochs=6, patience=2, sampler={"samples": 16})
    result = small_loop(options, metrics=scripted).run()
    assert [record.figures.macro_ap for record in result.history.epochs] == [0.3, 0.5, 0.4, 0.45]
    best = result.history.best
    assert best is not None
    assert best.epoch == 2


def test_a_broken_feature_is_named():
    train, val = sources()
    broken = study_features("7", seed=1)
    broken.features[20:22] = np.nan
    train = FeatureSource([broken], 3, 1)
    with pytest.raises(
        TrainingError, match=r"epoch 1, batch \d+: the features of study 7 frames? \d+.* not fin"
    ):
        small_loop(small_options(epochs=9), data=(train, val)).run()


def test_a_loss_that_explodes_names_its_batch():
    options = small_options(optimiser={"head_rate": 1e25, "clip": 1e30}, schedule={"start": 1})
    with pytest.raises(
        TrainingError, match=r"the loss is (nan|inf), in the batch of study 1 frames .*; look at"
    ):
        small_loop(options).run()


class UnreadableSource(FeatureSource):
    """Features of which some batches have no readable frame."""

    def __init__(self, unreadable_batches: set[int], source: FeatureSource) -> None:
        self.__dict__.update(source.__dict__)
        self._unreadable_batches = unreadable_batches

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        for number, batch in enumerate(super().batches(draws)):
            if number in self._unreadable_batches:
                nothing = (batch.inputs[:0], batch.targets[:0], batch.known[:0])
                yield Batch(batch.samples[:0], *nothing)
            else:
                yield batch


class Messages(SilentProgress):
    """Remembers messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def test_a_batch_without_readable_frames_is_skipped_and_counted():
    #  six batches in steps of two; batch 1 is unreadable, and so are both batches of the last step
    train, val = sources()
    options = small_options(epochs=1, accumulate=2)
    progress, listener = Messages(), Interruption(10_000)
    data = UnreadableSource({1, 4, 5}, train), val
    result = small_loop(options, data=data, listener=listener, progress=progress).run()
    assert "3 batches skipped for lack of readable frames" in progress.lines[-1]
    assert [step.number for step in listener.steps] == [1, 2]  # the last one has no gradient
    assert [step.samples for step in listener.steps] == [16, 32]
    # The loss of the epoch is the mean over the three batches that were trained on.
    assert result.history.epochs[0].train_loss > 0.8 * listener.steps[0].losses["total"]
    assert np.isfinite(result.validation.scores).all()


def test_skipped_batches_survive_a_kill(tmp_path):
    train, val = sources()
    data = UnreadableSource(set(range(6)), train), val
    options = small_options(epochs=1, checkpoint_steps=2)
    with pytest.raises(TrainingError, match="none of the 6 batches"):
        small_loop(options, tmp_path, data=data).run()
    assert read_state(tmp_path).skipped == 4
    resumed = small_loop(options, tmp_path, progress=(progress := Messages())).run()
    assert progress.lines[0] == "Resuming in epoch 1 of 1, after step 4 of 6."
    assert "4 batches skipped" in progress.lines[1]
    assert resumed.history.epochs[0].train_loss > 0.1


def test_an_epoch_without_readable_frames_ends_training(tmp_path):
    train, val = sources()
    data = UnreadableSource(set(range(6)), train), val
    with pytest.raises(
        TrainingError,
        match=r"epoch 1: none of the 6 batches had two readable frames; check the images with "
        "`enteron check`, then run again with --resume",
    ):
        small_loop(small_options(), tmp_path, data=data).run()
    # Nothing of the epoch is stored as finished.
    assert read_state(tmp_path).epoch == 0
    assert not list(tmp_path.glob("best-*"))


def test_a_validation_without_readable_frames_ends_training():
    train, val = sources()
    data = train, UnreadableSource({0, 1}, val)
    with pytest.raises(TrainingError, match="none of the 32 validation frames can be read"):
        small_loop(small_options(), data=data).run()


def test_progress_of_epochs(tmp_path):
    tasks: list[tuple[str, int, str]] = []
    advanced: list[int] = []

    class Tasks(Messages):
        def task(self, description: str, total: int, unit: str = "frames"):
            tasks.append((description, total, unit))
            return nullcontext(advanced.append)

    with pytest.raises(InterruptionError):
        small_loop(small_options(), tmp_path, Interruption(7)).run()
    progress = Tasks()
    small_loop(small_options(), tmp_path, progress=progress).run()
    assert tasks == [("Epoch 2 of 2", 6, "steps")]
    assert sum(advanced) == 6
    assert progress.lines[0] == "Resuming after epoch 1 of 2."
    assert re.fullmatch(
        r"epoch  2: train loss 0\.\d{4}, val loss 0\.\d{4} \(classification 0\.\d{4}\), "
        r"mAP 0\.\d{4}, macro F1 0\.\d{4}, findings \d\.\d{3}, "
        r"regions \d\.\d{3} \(\d+ clips/s\)(, best so far)?",
        progress.lines[1],
    )


def test_unreadable_frames_are_no_samples_and_windows_reach_over_them():
    study = study_features("1", count=8)
    from dataclasses import replace

    readable = np.array([0, 1, 3, 4, 5, 7])
    source = FeatureSource([replace(study, readable=readable)], 3, 1)
    assert source.unreadable == {("1", 10), ("1", 30)}  # frame = 5 x row
    assert len(source.samples) == 6
    assert [source.samples.frame(n) for n in range(6)] == [0, 5, 15, 20, 25, 35]
    (batch,) = source.batches([Draw(np.array([2, 5]), None)])
    expected = study.features[[[0, 1, 3], [4, 5, 7]], 0]
    np.testing.assert_array_equal(batch.inputs.numpy(), expected)
    np.testing.assert_array_equal(batch.targets.numpy(), study.samples.labels.present[[3, 7]])


def test_a_seed_chooses_one_view_for_all_frames():
    study = study_features("1", count=8, views=3)
    source = FeatureSource([study], 3, 1)
    (batch,) = source.batches([Draw(np.array([4, 4, 4, 4]), np.array([0, 1, 2, 5]))])
    rows = [2, 3, 4]
    for windows, view in zip(batch.inputs.numpy(), (0, 1, 2, 2), strict=True):
        np.testing.assert_array_equal(windows, study.features[rows, view])


def test_batches_without_an_even_share_are_refused():
    with pytest.raises(
        ConfigError, match="a batch of 18 has no even share for each of 2 processes"
    ):
        small_loop(small_options(batch=18), processes=Processes(0, 2))


def test_contradictions_are_refused():
    for changes, message in (
        ({"views": 2, "regime": "full"}, "views belong to the frozen regime"),
        ({"losses": {"classification": 0, "contrastive": 0}}, "nothing would be learnt"),
        ({"augmentation": {"scale": [1.0, 0.7]}}, "scale goes from a positive number"),
        ({"augmentation": {"erased": [0.1, 1.5]}}, "shares of the area"),
    ):
        with pytest.raises(ValueError, match=message):
            TrainingOptions.model_validate(changes)


def test_a_label_without_positives_does_no_harm():
    train, _ = sources()
    assert train.samples.counts[COLUMN["ulcer"]] == 0
    result = small_loop(small_options(epochs=1)).run()
    assert np.isfinite(result.validation.scores).all()
    figures = result.history.epochs[0].figures
    assert figures.macro_ap < figures.macro_ap_present


def test_validation_reports_the_classification_loss_beside_the_objective():
    """Both against losses computed here, over all validation frames at once."""
    options = small_options(epochs=1, batch=16)
    loop = small_loop(options)
    result = loop.run()
    _, val = sources()
    everything = np.arange(len(val.samples))
    (batch,) = val.batches([Draw(everything, None)])
    network = result.network.eval()
    with torch.inference_mode():
        logits = network(batch.inputs).logits
        expected = asymmetric_focal(logits, batch.targets).item()
    record = result.best
    assert record.val_classification == pytest.approx(expected, rel=1e-5)
    assert (record.val_classification or 0) < record.val_loss
