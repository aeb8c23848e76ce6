"""Galar and RARE-VISION: studies on disk, their labels, splits, and the official event format."""
