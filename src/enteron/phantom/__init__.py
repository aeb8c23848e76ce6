"""Synthetic studies in Galar's layout, from measured statistics."""
