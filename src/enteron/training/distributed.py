"""Several training processes as one: who am I, and sums over all of us (torchrun)."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from enteron.errors import ConfigError

# Process 0 may write features or a page for hours while the others wait.
_PATIENCE = timedelta(days=2)


@dataclass(frozen=True)
class Processes:
    """One process among those that train together; one alone is process 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Every gradient becomes the sum over all processes, in one exchange."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, part in zip(
            gradients, flat.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))

    def union(self, names: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """What any process has in its set."""
        if self.size == 1:
            return names
        device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
        mine = bytearray(json.dumps(sorted(names)).encode())
        sizes = torch.zeros(self.size, dtype=torch.int64, device=device)
        sizes[self.rank] = len(mine)
        self.sum(sizes)
        # Rows of one array, of which each process fills its own: sums put them together.
        texts = torch.zeros(self.size, int(sizes.max()), dtype=torch.uint8, device=device)
        texts[self.rank, : len(mine)] = torch.frombuffer(mine, dtype=torch.uint8).to(device)
        self.sum(texts)
        rows = zip(texts.cpu().numpy(), sizes.tolist(), strict=True)
        return {(study, frame) for row, n in rows for study, frame in json.loads(bytes(row[:n]))}

    def wait(self) -> None:
        """Until everybody is here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The group that torchrun started, or this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Processes()
        return
    if "RANK" not in os.environ:
        raise ConfigError("WORLD_SIZE is set but RANK is not", "start the processes with torchrun")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def training_device() -> torch.device:
    """The GPU of this process, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


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
