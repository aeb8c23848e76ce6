"""The network: backbones and what stands on them. Needs the extra `model` (torch and friends)."""
