"""The exponential moving average of a network, buffers included (paper, section 2.6)."""

import copy
from collections.abc import Mapping

import torch

from enteron.model.network import Network


def trained_tensors(network: Network, frozen: bool) -> dict[str, torch.Tensor]:
    """What training changes: all weights and buffers, without the backbone's when it is frozen."""
    return {
        name: tensor
        for name, tensor in network.state_dict().items()
        if not (frozen and name.startswith("backbone."))
    }


class Average:
    """A second network that follows the first (decision 17)."""

    def __init__(self, network: Network, decay: float, frozen: bool, rise: bool = False) -> None:
        shared = {id(network.backbone): network.backbone} if frozen else {}
        self.network = copy.deepcopy(network, shared).eval()
        self.network.requires_grad_(False)
        self.decay, self.rise = decay, rise
        self._mine = trained_tensors(self.network, frozen)

    @torch.no_grad()
    def follow(self, tensors: Mapping[str, torch.Tensor], step: int) -> None:
        """Average <- decay x average + (1 - decay) x tensors, after step `step`, from 0.

        Counters are copied.
        """
        decay = min(self.decay, (1 + step) / (10 + step)) if self.rise else self.decay
        for name, mine in self._mine.items():
            if mine.is_floating_point():
                mine.lerp_(tensors[name], 1 - decay)
            else:
                mine.copy_(tensors[name])

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return self._mine
