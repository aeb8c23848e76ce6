"""Events as a decoder makes them: with the region they lie in and how sure their ends are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.types import Event


@dataclass(frozen=True, order=True, slots=True)
class DecodedEvent(Event):
    """One label over [start, stop); `score` is the decoder's confidence in the event."""

    region: str | None = None  # where most of the event lies; None where no region was decoded
    onset: float | None = None  # posterior probability that it begins here, within a margin
    end: float | None = None  # and that it ends here


def edge_confidence(
    evidence: NDArray[np.floating],
    edges: NDArray[np.int64],
    kappa: float,
    margin: int = 2,
    reach: int = 8,
) -> NDArray[np.float64]:
    """Probability that each edge of an event lies within `margin` rows of where it was put.

    A local change-point posterior: of all places within `reach` rows, each weighs
    exp(kappa * the evidence on its inner side). `edges` are rows at which the event begins; for
    ends pass the evidence negated, since what lies behind an end must speak against the label.
    """
    total = np.concatenate(([0.0], np.cumsum(evidence, dtype=np.float64))) * kappa
    places = edges[:, None] + np.arange(-reach, reach + 1)[None, :]
    outside = (places < 0) | (places > evidence.size)
    # An event that begins at row b gains the evidence from b on: total[end] - total[b].
    weight = np.where(outside, -np.inf, -total[np.clip(places, 0, evidence.size)])
    weight = np.exp(weight - weight.max(axis=1, keepdims=True))
    near = weight[:, reach - margin : reach + margin + 1].sum(axis=1)
    return near / weight.sum(axis=1)
