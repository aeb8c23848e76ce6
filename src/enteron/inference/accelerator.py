"""Which processor encodes and trains: the CPU, or a CUDA card where there is one."""

from typing import Literal

from enteron.errors import EnteronError
from enteron.model.requirements import require_torch, torch_installed

Accelerator = Literal["auto", "cpu", "cuda"]
"""`auto`: a CUDA card if torch is installed and sees one, else the CPU."""


def uses_cuda(accelerator: Accelerator) -> bool:
    """Whether to compute on a CUDA card; refused if one is asked for and there is none."""
    if accelerator == "cpu" or (accelerator == "auto" and not torch_installed()):
        return False
    require_torch("a CUDA card")
    import torch

    if torch.cuda.is_available():
        return True
    if accelerator == "cuda":
        raise EnteronError(
            "there is no CUDA card that torch can use",
            "use --accelerator cpu, or install a torch built for CUDA and its driver",
        )
    return False
