"""How far a runtime's embeddings are from the exact ones of the same pictures."""

from dataclasses import dataclass

import numpy as np

from enteron.errors import ModelError
from enteron.inference.encoder import Features


@dataclass(frozen=True)
class Drift:
    """Distances between two sets of embeddings, row by row."""

    cosine: float
    """Of the picture whose direction changed most; 1 is none."""

    largest: float
    """The largest difference of any number, in the unit of the embeddings."""

    of_spread: float
    """Root mean square of the differences, as a share of how far pictures lie apart.

    Cosines are near 1 for any encoder whose embeddings share a large mean; this one is not fooled
    by that. Not a number where all pictures have the same embedding.
    """


def drift(features: Features, exact: Features) -> Drift:
    """The drift of embeddings (n, 512) from the exact ones of the same n >= 1 pictures."""
    if features.shape != exact.shape or not len(exact):
        raise ModelError(
            f"embeddings of shape {features.shape} cannot be compared with {exact.shape}",
            "give the embeddings of the same pictures, at least one",
        )
    ours, theirs = features.astype(np.float64), exact.astype(np.float64)
    if not np.isfinite(ours).all():
        return Drift(cosine=np.nan, largest=np.inf, of_spread=np.inf)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    # Two embeddings of length 0 are the same one; only one of them being 0 is any direction.
    same = (ours == theirs).all(axis=1)
    cosines = np.divide((ours * theirs).sum(axis=1), lengths, out=same * 1.0, where=lengths > 0)
    error = np.square(ours - theirs).sum()
    spread = np.square(theirs - theirs.mean(axis=0)).sum()
    return Drift(
        cosine=float(cosines.min()),
        largest=float(np.abs(ours - theirs).max()),
        of_spread=float(np.sqrt(error / spread)) if spread > 0 else np.nan,
    )
