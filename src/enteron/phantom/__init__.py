"""Synthetic capsule studies."""
