"""Scores of events and of frames: the official one, and the honest ones beside it."""
