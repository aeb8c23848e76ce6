"""Priors: statistics measured once on real annotation, shared by the phantom and the decoder."""

from enteron.priors.statistics import (
    Priors,
    Share,
    Sizes,
    load_priors,
    priors_hash,
    priors_to_json,
    save_priors,
)

__all__ = [
    "Priors",
    "Share",
    "Sizes",
    "load_priors",
    "priors_hash",
    "priors_to_json",
    "save_priors",
]
