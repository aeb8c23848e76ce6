"""From stored embeddings to probabilities: windows through the head, averaged over views."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.inference.store import Embeddings
from enteron.inference.views import VIEW_SETS, ViewSet
from enteron.labels import LABELS
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import window_rows
from enteron.profile import timed
from enteron.progress import Advance
from enteron.types import FrameAxis, Scores

_BLOCK = 4096  # windows at a time: some 100 MB of intermediate values


class Head(Protocol):
    """Everything after the encoder: a `Network`, or a stored graph of it (`GraphHead`)."""

    @property
    def options(self) -> ModelOptions:
        """The network's options, of which clips depend on `frames` and `neighbour_step`."""
        ...

    def probabilities(
        self, features: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Sigmoids (n, 17) of windows (n, frames): rows of embeddings (m, width)."""
        ...


def score_study(
    head: Head,
    embeddings: Embeddings,
    *,
    views: ViewSet = "flip",
    step: int | None = None,
    times: NDArray[np.float64] | None = None,
    frames_per_row: float | None = None,
    advance: Advance | None = None,
) -> Scores:
    """Probabilities of every readable frame, before calibration.

    The mean of the sigmoids of a clip's views, by default it and its mirror image (decision 19).
    Windows consist of readable frames only, as if unreadable ones had not been stored; `step` rows
    are from one to the next, by default the model's `neighbour_step`. `times` are the seconds of
    all rows, readable or not.
    """
    rows = embeddings.readable
    if not rows.size:
        raise ModelError(f"study {embeddings.record.study} has no readable frame", "copy it again")
    indices = _view_indices(embeddings, views)
    windows = _windows(head, rows.size, step)
    encoded = embeddings.source[rows] == rows
    scored = np.arange(rows.size)
    if embeddings.key.coarse is not None:
        scored = np.flatnonzero(encoded)
        windows = _of_encoded(windows[scored], scored, encoded)
    probabilities = np.empty((scored.size, len(LABELS)), np.float32)
    for start in range(0, scored.size, _BLOCK):
        block = windows[start : start + _BLOCK]
        stop = start + len(block)
        first, last = int(block.min()), int(block.max())
        features = np.asarray(embeddings.features[rows[first : last + 1]])
        probabilities[start:stop] = _probabilities(head, features, indices, block - first)
        if advance is not None:
            advance(len(block))
    if scored.size < rows.size:
        source = np.searchsorted(rows, embeddings.source[rows])
        probabilities = probabilities[np.searchsorted(scored, source)]
        if advance is not None:
            advance(rows.size - scored.size)
    axis = FrameAxis(embeddings.frames[rows])
    readable_times = None if times is None else times[rows]
    return Scores(
        embeddings.record.study,
        axis,
        probabilities,
        readable_times,
        frames_per_row,
        None if encoded.all() else encoded,
    )


def encoded_probabilities(
    head: Head,
    features: NDArray[np.floating],
    source: NDArray[np.int64],
    *,
    step: int | None = None,
) -> NDArray[np.float32]:
    """Probabilities (n, 17) of the encoded rows of a piece of a study, as `score_study` gives them.

    `features` (n, views, width) are of the rows that are their own `source` (rows,); -1 marks rows
    that cannot be read.
    """
    readable = np.flatnonzero(source >= 0)
    encoded = source[readable] == readable
    scored = np.flatnonzero(encoded)
    windows = _of_encoded(_windows(head, readable.size, step)[scored], scored, encoded)
    positions = np.searchsorted(scored, windows)
    return _probabilities(head, features, range(features.shape[1]), positions)


def clip_offsets(head: Head, step: int | None = None) -> NDArray[np.int64]:
    """(frames,) how many readable rows before a row the rows of its clip are; 0 is the row."""
    apart = head.options.neighbour_step if step is None else step
    return np.arange(head.options.frames) * apart


def _of_encoded(
    windows: NDArray[np.int64], rows: NDArray[np.int64], encoded: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Windows (n, frames) of `rows` (n,) in which the row itself replaces what is not encoded.

    A borrowed neighbour may lie on the other side of what it should have shown, and a frame that is
    compared with such a one looks like a change.
    """
    return np.where(encoded[windows], windows, rows[:, None])


@dataclass(frozen=True)
class ProbeEffect:
    """What redundancy does to scores, measured on redundant frames that were encoded anyway."""

    frames: int
    mean: float  # mean absolute difference over frames and labels
    largest: float


def probe_effect(
    head: Head,
    embeddings: Embeddings,
    scores: Scores,
    *,
    views: ViewSet = "flip",
    step: int | None = None,
) -> ProbeEffect | None:
    """How far scores would have moved if the probed frames had not been encoded."""
    probes = embeddings.record.probes
    if not probes:
        return None
    rows = embeddings.readable
    positions = np.searchsorted(rows, [probe.row for probe in probes])
    windows = _windows(head, rows.size, step)[positions]
    # Every probe gets its own copy of its window, with the source's features for its last frame.
    features = np.asarray(embeddings.features[rows[windows]])  # (probes, frames, views, 512)
    features[:, -1] = embeddings.features[[probe.twin for probe in probes]]
    probabilities = _probabilities(
        head,
        features.reshape(-1, *features.shape[2:]),
        _view_indices(embeddings, views),
        np.arange(windows.size).reshape(windows.shape),
    )
    difference = np.abs(probabilities - scores.values[positions])
    return ProbeEffect(len(probes), float(difference.mean()), float(difference.max()))


def _view_indices(embeddings: Embeddings, views: ViewSet) -> list[int]:
    return [embeddings.view(view.name) for view in VIEW_SETS[views]]


def _windows(head: Head, count: int, step: int | None) -> NDArray[np.int64]:
    options = head.options
    return window_rows(count, options.neighbour_step if step is None else step, options.frames)


def _probabilities(
    head: Head,
    features: NDArray[np.floating],
    views: Sequence[int],
    windows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Mean over views of the sigmoids (windows, 17), from features (rows, views, width)."""
    total = np.zeros((len(windows), len(LABELS)), np.float32)
    with timed("head"):
        for view in views:
            plain = np.ascontiguousarray(features[:, view], np.float32)
            total += head.probabilities(plain, windows)
    return total / np.float32(len(views))
