"""Several training processes (torchrun) that compute what one process would compute alone."""

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
from enteron.inference.accelerator import Accelerator, uses_cuda

# Process 0 may encode studies or write the page for hours while the others wait.
_TIMEOUT = timedelta(days=2)


@dataclass(frozen=True)
class Processes:
    """Rank of this process among those that train together; a single process is 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes, in one exchange."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, part in zip(
            gradients, flat.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))

    def union(self, frames: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """The union of the sets of all processes."""
        if self.size == 1:
            return frames
        device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
        text = bytearray(json.dumps(sorted(frames)).encode())
        lengths = torch.zeros(self.size, dtype=torch.int64, device=device)
        lengths[self.rank] = len(text)
        self.sum(lengths)
        # Each process fills its row of an array of zeros; the sum of the arrays has all rows.
        texts = torch.zeros(self.size, int(lengths.max()), dtype=torch.uint8, device=device)
        texts[self.rank, : len(text)] = torch.frombuffer(text, dtype=torch.uint8).to(device)
        self.sum(texts)
        rows = zip(texts.cpu().numpy(), lengths.tolist(), strict=True)
        return {(study, frame) for row, n in rows for study, frame in json.loads(bytes(row[:n]))}

    def barrier(self) -> None:
        """Wait until every process has reached this call."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """Join the group that torchrun started, or use this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Processes()
        return
    if "RANK" not in os.environ:
        raise ConfigError("WORLD_SIZE is set but RANK is not", "start the processes with torchrun")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def training_device(accelerator: Accelerator = "auto") -> torch.device:
    """The GPU of this process, or the CPU."""
    if not uses_cuda(accelerator):
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def use_whole_batch_layers(module: nn.Module, processes: Processes, share: int) -> None:
    """Replace dropout and batch normalisation inside `module` by the layers below.

    Names and tensors stay the same. `share`: rows of a batch that every process holds.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout) and child.p > 0:
            setattr(module, name, WholeBatchDropout(child.p, processes, share))
        elif isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and processes.size > 1:
            setattr(module, name, WholeBatchNorm(child))
        else:
            use_whole_batch_layers(child, processes, share)


class WholeBatchNorm(nn.Module):
    """Batch normalisation by mean and variance over all processes.

    torch's SyncBatchNorm needs GPUs.
    """

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        # The same parameters and buffers under the same names: stored weights fit both layers.
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        self.eps, self.momentum = norm.eps, norm.momentum
        self.training = norm.training

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Normalise values (n, channels, ...); n may be 0 if other processes have rows."""
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
        """(channels,) mean and variance over all processes; also updates the running ones."""
        single = values.float()
        axes = [axis for axis in range(values.ndim) if axis != 1]
        count = single.numel() // single.shape[1]
        sums = single.sum(dim=axes)
        sums_and_count = _Sum.apply(torch.cat((sums, sums.new_tensor([count]))))
        total = sums_and_count[-1].detach()
        mean = sums_and_count[:-1] / total
        shape = [1, -1] + [1] * (values.ndim - 2)
        # In two passes: the difference of two large sums of squares would lose digits.
        deviations = (single - mean.view(shape)).square().sum(dim=axes)
        variance = _Sum.apply(deviations) / total
        self._update_running(mean.detach(), variance.detach() * total / (total - 1))
        return mean, variance

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, unbiased: torch.Tensor) -> None:
        momentum = 0.1 if self.momentum is None else self.momentum
        self.get_buffer("running_mean").lerp_(mean, momentum)
        self.get_buffer("running_var").lerp_(unbiased, momentum)
        self.get_buffer("num_batches_tracked").add_(1)


class _Sum(torch.autograd.Function):
    """Sum over processes. The loss of each process depends on it, so gradients are summed too."""

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


class WholeBatchDropout(nn.Dropout):
    """Dropout whose mask is drawn for the full batch; each process uses its rows of the mask."""

    def __init__(self, probability: float, processes: Processes, share: int) -> None:
        """`share`: rows of a full batch that every process holds."""
        super().__init__(probability)
        self.processes = processes
        self.share = share

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """Set some values (n, ...) to 0 and scale the others by 1 / (1 - p)."""
        if not self.training:
            return input
        full_shape = (self.share * self.processes.size, *input.shape[1:])
        first = self.share * self.processes.rank
        kept = torch.rand(full_shape, device=input.device)[first : first + len(input)] >= self.p
        return input * kept / (1 - self.p)
