"""Which labels a synthetic study shows."""

import numpy as np

from enteron.labels import FINDINGS, LANDMARKS, REGIONS
from enteron.priors.latent import both, from_table, threshold
from enteron.priors.value import Priors


def draw_regions_shown(priors: Priors, complete: bool, rng: np.random.Generator) -> tuple[str, ...]:
    """The regions that a study shows, in transit order; at least one."""
    below = _gaussians(priors, REGIONS, rng)
    if complete:
        return REGIONS
    shown = [r for r, g in zip(REGIONS, below, strict=True) if g < threshold(priors.share(r))]
    # Every study shows something; where chance says none, the commonest region is left.
    return tuple(shown) or (max(REGIONS, key=priors.share),)


def draw_others_shown(
    priors: Priors, regions: tuple[str, ...], rarity: float, rng: np.random.Generator
) -> tuple[str, ...]:
    """The landmarks and findings of a study that shows the given regions."""
    labels = LANDMARKS + FINDINGS
    below = _gaussians(priors, labels, rng)
    shown: list[str] = []
    for label, gaussian in zip(labels, below, strict=True):
        share = presence_after_rarity(priors.share(label), rarity)
        if label in LANDMARKS:
            needs = priors.landmarks.labels[label].needs
            if not set(needs) <= set(regions):
                continue
            # Raised by what the studies without these regions lack, so that the share over all
            # studies is kept.
            share = share / max(_all_shown(priors, needs), share, 1e-12)
        if gaussian < threshold(share):
            shown.append(label)
    return tuple(shown)


def presence_after_rarity(share: float, rarity: float) -> float:
    """Rarity 1 keeps the share, 0 makes it 1, 2 squares it; a label never seen stays unseen."""
    return 0.0 if share == 0 else share**rarity


def _all_shown(priors: Priors, regions: tuple[str, ...]) -> float:
    """Probability that a study shows all of at most two regions."""
    if not regions:
        return 1.0
    first, last = priors.share(regions[0]), priors.share(regions[-1])
    if len(regions) == 1:
        return first
    return both(first, last, float(from_table(priors.presence.latent, regions)[0, 1]))


def _gaussians(priors: Priors, labels: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    root = np.linalg.cholesky(from_table(priors.presence.latent, labels))
    return root @ rng.standard_normal(len(labels))
