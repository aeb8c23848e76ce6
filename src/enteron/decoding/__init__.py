"""Decoding: from probabilities per frame to events in time."""

from enteron.decoding.events import DecodedEvent
from enteron.decoding.options import PRESETS, DecodeOptions, preset
from enteron.decoding.pipeline import decode

__all__ = ["PRESETS", "DecodeOptions", "DecodedEvent", "decode", "preset"]
