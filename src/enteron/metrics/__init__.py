"""Metrics of events and of frames: the official score, and what it does not show."""
