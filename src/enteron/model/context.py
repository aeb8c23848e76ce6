"""The context head: scores of every frame, refined by what lies around it in time.

The network scores a frame by itself or with two frames before it. This head sees minutes: for every
frame the means of scores, and of a few numbers that stand for its embedding, over the past and the
future at several scales (`time_means.py`). Two small networks turn them into corrections of the
logits: one of anatomy, whose scales reach over 20,000 original frames, and one of findings, which
sees hundreds, and the refined anatomy as in the paper's equation 3.

It runs in numpy, on whole studies: torch is needed to train it only (`context_layers.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from enteron.errors import ModelError
from enteron.labels import ANATOMY, FINDINGS, LABELS
from enteron.model.options import FEATURES, ContextOptions
from enteron.model.time_means import BLOCK, TimeMeans

LOG_ODDS_SCALE = 4.0
"""Logits are divided by this on their way into the head, so that all its inputs are near 1."""

CONTEXT_PREFIX = "context_layers."
"""Before the names of the head's tensors in the weights' file."""

LARGEST_LOG_ODDS = 10.0
"""Scores nearer to 0 or 1 than this say no more: a probability in 32 bits knows nothing beyond."""


def log_odds(probabilities: NDArray[np.floating]) -> NDArray[np.float32]:
    """The logits of probabilities, at most ±10."""
    p = np.asarray(probabilities, np.float64)
    with np.errstate(divide="ignore"):
        logits = np.log(p) - np.log1p(-p)
    return np.clip(logits, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).astype(np.float32)


def frame_positions(
    frames: NDArray[np.int64], step: int, frames_per_row: float | None
) -> NDArray[np.float64]:
    """Where frames lie in time, in original frames.

    In a study that was shortened a row, `step` frame numbers, stands for `frames_per_row` of them.
    """
    scale = 1.0 if frames_per_row is None else frames_per_row / step
    return np.asarray(frames, np.float64) * scale


@dataclass(frozen=True, eq=False)
class Context:
    """A trained context head."""

    options: ContextOptions
    tensors: Mapping[str, NDArray[np.float32]]
    """By their names in `ContextLayers`."""

    def __post_init__(self) -> None:
        expected = tensor_shapes(self.options)
        found = {name: tensor.shape for name, tensor in self.tensors.items()}
        if found != expected:
            name = next(n for n in (*expected, *found) if found.get(n) != expected.get(n))
            raise ModelError(
                f"the tensor '{name}' of the context head has shape {found.get(name)} where "
                f"{expected.get(name)} is needed",
                "copy the whole model folder again, or train the model again",
            )

    def project(self, embeddings: NDArray[np.floating]) -> NDArray[np.float32]:
        """The numbers (n, features) that stand for embeddings (n, 512); none for scores alone."""
        if not self.options.features:
            return np.empty((len(embeddings), 0), np.float32)
        t = self.tensors
        centred = (embeddings - t["feature_mean"]) / t["feature_scale"]
        return np.maximum(centred @ t["project.weight"].T + t["project.bias"], 0)

    def refine(
        self,
        probabilities: NDArray[np.float32],
        projected: NDArray[np.float32],
        positions: NDArray[np.float64],
        block: int = BLOCK,
    ) -> NDArray[np.float32]:
        """Refined probabilities (n, 17) of a study's frames, in the order of time.

        `projected` (n, features) comes from `project`. `block`: rows at a time, which changes the
        memory that is needed and not the result.
        """
        logits = log_odds(probabilities)
        count = len(ANATOMY)
        scaled = logits / np.float32(LOG_ODDS_SCALE)
        anatomy = np.concatenate([scaled[:, :count], projected], axis=1)
        findings = np.concatenate([scaled[:, count:], projected], axis=1)
        refined = np.empty_like(logits)
        refined[:, :count] = logits[:, :count] + self._corrections(
            "anatomy", anatomy, positions, self.options.anatomy_scales, None, block
        )
        seen = expit(refined[:, :count]) if self.options.conditioned else None
        refined[:, count:] = logits[:, count:] + self._corrections(
            "findings", findings, positions, self.options.finding_scales, seen, block
        )
        return expit(refined)

    def _corrections(
        self,
        branch: str,
        channels: NDArray[np.float32],
        positions: NDArray[np.float64],
        scales: tuple[float, ...],
        extra: NDArray[np.float32] | None,
        block: int,
    ) -> NDArray[np.float32]:
        """Corrections (n, labels) of the logits of one branch."""
        weight, bias = self.tensors[f"{branch}.out.weight"], self.tensors[f"{branch}.out.bias"]
        corrections = np.empty((len(channels), len(weight)), np.float32)
        means = TimeMeans(channels, positions, scales, block)
        for index in range(len(means)):
            rows = slice(index * block, (index + 1) * block)
            around = means.means(index)
            parts = [channels[rows], around.reshape(len(around), -1)]
            if extra is not None:
                parts.append(extra[rows])
            inputs = np.concatenate(parts, axis=1)
            if self.options.hidden:
                hidden = inputs @ self.tensors[f"{branch}.hidden.weight"].T
                inputs = np.maximum(hidden + self.tensors[f"{branch}.hidden.bias"], 0)
            corrections[rows] = inputs @ weight.T + bias
        return corrections


def tensor_shapes(options: ContextOptions) -> dict[str, tuple[int, ...]]:
    """The tensors of a context head, by name."""
    features, hidden = options.features, options.hidden
    shapes: dict[str, tuple[int, ...]] = {}
    if features:
        shapes |= {
            "feature_mean": (FEATURES,),
            "feature_scale": (FEATURES,),
            "project.weight": (features, FEATURES),
            "project.bias": (features,),
        }
    for branch, labels, scales, extra in (
        ("anatomy", ANATOMY, options.anatomy_scales, 0),
        ("findings", FINDINGS, options.finding_scales, len(ANATOMY) * options.conditioned),
    ):
        width = (len(labels) + features) * (1 + 2 * len(scales)) + extra
        if hidden:
            shapes |= {
                f"{branch}.hidden.weight": (hidden, width),
                f"{branch}.hidden.bias": (hidden,),
            }
        shapes |= {
            f"{branch}.out.weight": (len(labels), hidden or width),
            f"{branch}.out.bias": (len(labels),),
        }
    assert len(ANATOMY) + len(FINDINGS) == len(LABELS)
    return shapes
