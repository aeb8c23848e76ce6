"""Slow, literal implementations, written from the specification's text, to check against."""
