"""Decoding: from probabilities per frame to events in time."""

from enteron.decode.compose import decode
from enteron.decode.events import DecodedEvent
from enteron.decode.options import DecodeOptions
from enteron.decode.presets import PRESETS, preset

__all__ = ["PRESETS", "DecodeOptions", "DecodedEvent", "decode", "preset"]
