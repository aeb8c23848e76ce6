"""Training: what the network is asked to minimise, and how. Needs the extra `model`."""
