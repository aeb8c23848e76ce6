"""What the inference benchmarks score: a synthetic study, and a head that was fitted to it."""

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.decode import DecodedEvent, decode
from enteron.inference.store import Embeddings
from enteron.labels import COLUMN, FINDINGS, LANDMARKS
from enteron.model.network import Network
from enteron.model.preprocessing import window_rows
from enteron.phantom.dataset import PhantomOptions, StudyPlan, make_studies
from enteron.priors import load_priors
from enteron.study import Study, open_study
from enteron.types import Scores

REACH = 2
"""Frames by which an end of an event may move."""


@dataclass(frozen=True)
class Made:
    """A synthetic study on disk with its truth."""

    folder: Path  # of frames, or a video
    labels: NDArray[np.bool_]  # (rows, 17)
    frames_per_row: float

    def open(self) -> Study:
        return open_study(self.folder)


def made_study(frames: int, *, video: bool = False, seed: int = 3) -> Made:
    """An Olympus study (336 pixels) with the stalls of real ones, kept between runs."""
    options = PhantomOptions(frames=frames, seed=seed, device="olympus", video=video)
    root = Path(tempfile.gettempdir()) / f"enteron-bench-{seed}-{frames}-1-{'v' if video else 'f'}"
    for _ in make_studies(root, 1, options):
        pass
    plan = StudyPlan(1, options, load_priors())
    place = root / plan.folder
    folder = place.with_name(place.name + ".mp4") if video else place
    return Made(folder, plan.table.values, plan.timeline.compression)


def fit_head(
    network: Network, embeddings: Embeddings, labels: NDArray[np.bool_], steps: int = 300
) -> None:
    """Fit everything behind the backbone to one study, in place; a quick fit, not a training.

    A trained head has seen augmented pictures of many studies. This one sees a single study, whose
    embeddings, of random weights, differ by little. So that it does not hang on the last digits it
    gets noise of a third of that little, for each frame and for all of them together, and labels
    whose short gaps are closed: they flicker while the picture stands still, which only a head
    that hangs on the last digits could follow.
    """
    windows = np.asarray(embeddings.features[window_rows(len(embeddings))], np.float32)
    views = torch.from_numpy(windows).unbind(dim=2)  # each (rows, frames, 512)
    targets = torch.from_numpy(without_gaps(labels).astype(np.float32))
    spread = views[0][:, -1].std(dim=0)
    _settle_norms(network, views[0])
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(network.head_parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for step in range(steps):
        inputs = views[step % len(views)]
        noise = 0.3 * spread * (torch.randn_like(inputs) + torch.randn(1, 1, inputs.shape[-1]))
        logits = network.classify(inputs + noise).logits
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def _settle_norms(network: Network, windows: torch.Tensor) -> None:
    """BatchNorm with the study's mean and variance, for the fit as for scoring.

    Fitted in training mode it would take off the noise that all frames share, and not in scoring.
    """
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    with torch.no_grad():
        network.classify(windows)
    network.eval()
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum


def without_gaps(labels: NDArray[np.bool_], longest: int = 8) -> NDArray[np.bool_]:
    """Labels (rows, 17) with gaps of landmarks and findings closed, up to so many rows."""
    closed = labels.copy()
    for label in (*LANDMARKS, *FINDINGS):
        column = COLUMN[label]
        shown = np.flatnonzero(labels[:, column])
        for one, following in pairwise(shown):
            if following - one <= longest + 1:
                closed[one:following, column] = True
    return closed


def events_of(scores: Scores) -> list[DecodedEvent]:
    """Events as `enteron read` would find them without a calibration."""
    return decode(scores)


def largest_shift(one: list[DecodedEvent], other: list[DecodedEvent]) -> int | None:
    """Frames that the ends of events moved at most; None when there are other events."""
    first = sorted((e.label, e.start, e.stop) for e in one)
    second = sorted((e.label, e.start, e.stop) for e in other)
    if [label for label, _, _ in first] != [label for label, _, _ in second]:
        return None
    moved = [max(abs(a[1] - b[1]), abs(a[2] - b[2])) for a, b in zip(first, second, strict=True)]
    return max(moved, default=0)


def matched(one: list[DecodedEvent], other: list[DecodedEvent], reach: int) -> int:
    """How many events of one have a partner of their own in the other, ends within `reach`."""
    free = list(other)
    count = 0
    for event in one:
        for partner in free:
            ends = abs(event.start - partner.start), abs(event.stop - partner.stop)
            if partner.label == event.label and max(ends) <= reach:
                free.remove(partner)
                count += 1
                break
    return count
