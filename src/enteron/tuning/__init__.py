"""Tuning: what decoders need to know of a model, fitted on studies with scores and truth."""

from enteron.tuning.fit import FitOptions, fit_decoder

__all__ = ["FitOptions", "fit_decoder"]
