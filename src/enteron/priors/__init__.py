"""Priors: figures measured once on real annotation, shared by the phantom and the decoder."""

from enteron.priors.sizes import Sizes
from enteron.priors.store import load_priors, save_priors
from enteron.priors.value import Priors, Share

__all__ = ["Priors", "Share", "Sizes", "load_priors", "save_priors"]
