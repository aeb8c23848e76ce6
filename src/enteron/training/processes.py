"""Several training processes as one: who am I, and sums over all of us (torchrun)."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

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
