"""Stored embeddings to probabilities: windows through the head, both flips, their mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.inference.embed import FLIPPED, PLAIN
from enteron.inference.store import Embeddings
from enteron.labels import LABELS
from enteron.model.network import Network
from enteron.model.preprocessing import window_rows
from enteron.types import FrameAxis, Scores

_BLOCK = 4096  # windows at a time: some 100 MB of intermediate values


@dataclass(frozen=True)
class ProbeEffect:
    """What taking a twin's embedding does to scores, seen on frames that were encoded anyway."""

    frames: int
    mean: float  # mean absolute difference over frames and labels
    largest: float


def score_study(
    network: Network,
    embeddings: Embeddings,
    *,
    flips: bool = True,
    times: NDArray[np.float64] | None = None,
    frames_per_row: float | None = None,
    advance: Callable[[int], None] | None = None,
) -> Scores:
    """Probabilities of every readable frame, as the network gives them, before calibration.

    With `flips` the mean of the sigmoids of a clip and of its mirror image (decision 19). Windows
    reach over readable frames only: an unreadable one is as if it had not been stored.
    """
    rows = embeddings.readable
    if not rows.size:
        raise ModelError(f"study {embeddings.record.study} has no readable frame", "copy it again")
    views = [embeddings.view(view.name) for view in ((PLAIN, FLIPPED) if flips else (PLAIN,))]
    options = network.options
    windows = window_rows(rows.size, options.neighbour_step, options.frames)
    values = np.empty((rows.size, len(LABELS)), np.float32)
    for start in range(0, rows.size, _BLOCK):
        part = windows[start : start + _BLOCK]
        first = int(part.min())  # a window looks back, never ahead
        taken = np.asarray(embeddings.features[rows[first : start + len(part)]])
        values[start : start + len(part)] = _probabilities(network, taken, views, part - first)
        if advance is not None:
            advance(len(part))
    axis = FrameAxis(embeddings.frames[rows])
    known = None if times is None else times[rows]
    return Scores(embeddings.record.study, axis, values, known, frames_per_row)


def _probabilities(
    network: Network,
    features: NDArray[np.floating],
    views: Sequence[int],
    windows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Mean over views of the sigmoid, (windows, 17), from features (rows, views, 512)."""
    where = next(network.head_parameters()).device
    rows = torch.from_numpy(windows).to(where)
    total: torch.Tensor | None = None
    with torch.inference_mode():
        for view in views:
            taken = torch.from_numpy(np.ascontiguousarray(features[:, view], np.float32)).to(where)
            found = network.read_study(taken, rows).logits.sigmoid()
            total = found if total is None else total + found
    assert total is not None
    return (total / len(views)).cpu().numpy()


def probe_effect(
    network: Network, embeddings: Embeddings, scores: Scores, *, flips: bool = True
) -> ProbeEffect | None:
    """How far scores would have moved, had the probed frames taken their twins' embeddings."""
    probes = embeddings.record.probes
    if not probes:
        return None
    rows = embeddings.readable
    views = [embeddings.view(view.name) for view in ((PLAIN, FLIPPED) if flips else (PLAIN,))]
    options = network.options
    places = np.searchsorted(rows, [probe.row for probe in probes])
    windows = window_rows(rows.size, options.neighbour_step, options.frames)[places]
    # Each probe gets rows of its own: the frames of its window, the last one being the twin's.
    taken = np.asarray(embeddings.features[rows[windows]])  # (probes, frames, views, 512)
    taken[:, -1] = embeddings.features[[probe.twin for probe in probes]]
    own = np.arange(windows.size).reshape(windows.shape)
    found = _probabilities(network, taken.reshape(-1, *taken.shape[2:]), views, own)
    difference = np.abs(found - scores.values[places])
    return ProbeEffect(len(probes), float(difference.mean()), float(difference.max()))
