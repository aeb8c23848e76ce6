"""The network: backbones and the heads on top of them. Needs the extra `model` (torch)."""
