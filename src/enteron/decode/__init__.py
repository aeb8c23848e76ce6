"""Decoding: from probabilities per frame to events in time."""

from enteron.decode.events import DecodedEvent
from enteron.decode.options import PRESETS, DecodeOptions, preset
from enteron.decode.pipeline import decode

__all__ = ["PRESETS", "DecodeOptions", "DecodedEvent", "decode", "preset"]
