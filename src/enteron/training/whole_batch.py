"""Layers that see the whole batch where every process holds only a share of it.

torch's SyncBatchNorm runs on GPUs only, and dropout draws its mask for the rows at hand: with
these two, several processes compute what one would, up to rounding.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from enteron.training.processes import Processes


class _Sum(torch.autograd.Function):
    """Sum over processes. Each one's loss depends on it, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        summed = values.clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        summed = gradients[0].clone()
        dist.all_reduce(summed)
        return summed


class WholeBatchNorm(nn.Module):
    """Batch normalisation by the mean and variance over all processes."""

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        # The same parameters and buffers under the same names: stored weights fit either.
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        self.eps, self.momentum = norm.eps, norm.momentum
        self.training = norm.training

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values (n, channels, ...) to the same shape; n may be 0 here while others have rows."""
        shape = [1, -1] + [1] * (values.ndim - 2)
        if self.training:
            mean, variance = self._moments(values)
        else:
            mean, variance = self.running_mean, self.running_var
        assert isinstance(mean, torch.Tensor)
        assert isinstance(variance, torch.Tensor)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        normed = (values - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)
        return normed.to(values.dtype)

    def _moments(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance (channels,) over all processes; the running ones follow."""
        single = values.float()
        axes = [axis for axis in range(values.ndim) if axis != 1]
        here = single.numel() // single.shape[1]
        sums = single.sum(dim=axes)
        count = _Sum.apply(torch.cat((sums, sums.new_tensor([here]))))
        total = count[-1].detach()
        mean = count[:-1] / total
        shape = [1, -1] + [1] * (values.ndim - 2)
        # In two passes: the difference of two large sums of squares would lose digits.
        squares = (single - mean.view(shape)).square().sum(dim=axes)
        variance = _Sum.apply(squares) / total
        self._follow(mean.detach(), variance.detach() * total / (total - 1))
        return mean, variance

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, unbiased: torch.Tensor) -> None:
        momentum = 0.1 if self.momentum is None else self.momentum
        self.get_buffer("running_mean").lerp_(mean, momentum)
        self.get_buffer("running_var").lerp_(unbiased, momentum)
        self.get_buffer("num_batches_tracked").add_(1)


class WholeBatchDropout(nn.Dropout):
    """Dropout whose mask is drawn for the whole batch, of which this process uses its rows."""

    def __init__(self, chance: float, processes: Processes, share: int) -> None:
        """`share`: rows of a whole batch that every process holds."""
        super().__init__(chance)
        self.processes = processes
        self.share = share

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """Values (n, ...) with some of them 0 and the others enlarged to make up for it."""
        if not self.training:
            return input
        whole = (self.share * self.processes.size, *input.shape[1:])
        first = self.share * self.processes.rank
        kept = torch.rand(whole, device=input.device)[first : first + len(input)] >= self.p
        return input * kept / (1 - self.p)


def see_whole_batch(module: nn.Module, processes: Processes, share: int) -> None:
    """Exchange the layers inside for those above; names and tensors stay the same."""
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout) and child.p > 0:
            setattr(module, name, WholeBatchDropout(child.p, processes, share))
        elif isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and processes.size > 1:
            setattr(module, name, WholeBatchNorm(child))
        else:
            see_whole_batch(child, processes, share)
