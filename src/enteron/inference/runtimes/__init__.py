"""What runs a backbone: torch, which is exact, and the runtimes that are faster on a machine."""
