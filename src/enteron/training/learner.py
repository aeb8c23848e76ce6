"""What learns: network, average, optimiser and scaling as one value that can be stored."""

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import torch

from enteron.errors import TrainingError
from enteron.model.network import Network, Outputs
from enteron.training.checkpoint import Tensors
from enteron.training.distributed import Processes, see_whole_batch
from enteron.training.losses import Losses, total_loss
from enteron.training.options import OptimiserOptions, ScheduleOptions, TrainingOptions


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


def make_optimiser(
    network: Network, options: OptimiserOptions, frozen: bool
) -> torch.optim.Optimizer:
    """AdamW; every group keeps its largest rate under 'largest'."""
    groups = [{"params": list(network.head_parameters()), "largest": options.head_rate}]
    if not frozen:
        groups.append(
            {"params": list(network.backbone_parameters()), "largest": options.backbone_rate}
        )
    return torch.optim.AdamW(
        groups, lr=options.head_rate, betas=options.betas, weight_decay=options.decay, fused=True
    )


def rate_factor(step: int, steps: int, options: ScheduleOptions) -> float:
    """The learning rate of step `step` of `steps`, as a share of the largest.

    A cosine up from 1/start to 1, then down to 1/(start end): the values of torch's OneCycleLR,
    without its state.
    """
    first = 1 / options.start
    last = first / options.end
    top = options.rise * steps - 1  # the step of the largest rate; not always a whole number
    if step <= top:
        return _cosine(first, 1.0, step / top if top > 0 else 1.0)
    return _cosine(1.0, last, (step - top) / (steps - 1 - top))


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """The rates of the step that comes."""
    for group in optimiser.param_groups:
        group["lr"] = factor * group["largest"]


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of AdamW, per parameter
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """A network in training. A step is: `learn` for every batch of it, then `update`."""

    def __init__(
        self,
        network: Network,
        options: TrainingOptions,
        positive_weight: torch.Tensor,
        processes: Processes,
        device: torch.device,
    ) -> None:
        self.options, self.processes, self.device = options, processes, device
        self.frozen = options.regime == "frozen"
        self.network = network.to(device)
        network.backbone.requires_grad_(not self.frozen)
        self.average = Average(network, options.ema, self.frozen, options.ema_rise)
        see_whole_batch(network, processes, options.batch // processes.size)
        self._positive_weight = positive_weight.to(device)
        self.optimiser = make_optimiser(network, options.optimiser, self.frozen)
        self._dtype = _DTYPES.get(options.precision) if device.type == "cuda" else None
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._dtype is torch.float16)

    def losses(
        self, network: Network, outputs: Outputs, targets: torch.Tensor, smoothing: float
    ) -> Losses:
        """The objective for one batch."""
        head = network.head
        return total_loss(
            outputs.logits,
            outputs.contrastive,
            targets,
            positive_weight=self._positive_weight,
            anatomy=head.anatomy.weight,
            hidden=head.pathology.hidden.weight,
            prototypes=None if network.prototypes is None else network.prototypes.directions,
            smoothing=smoothing,
            options=self.options.losses,
        )

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> Losses:
        """The objective of this process's share of a batch, in training mode."""
        self.network.train()
        with self.precision():
            outputs = self.network(inputs)
        losses = self.losses(self.network, outputs, targets, self.options.losses.smoothing)
        if len(targets):
            return losses
        # All of our share was unreadable. Others wait for our gradients, which are 0, not NaN.
        nothing = sum((part.sum() for part in outputs if part is not None), losses.structure * 0)
        return replace(losses, data=nothing, classification=nothing, contrastive=nothing)

    def backward(self, losses: Losses, share: float) -> None:
        """Add this batch's gradient to the step's; `share` is our part of the batch's samples.

        Losses of samples are means, so they count by share; what depends on the weights alone is
        the same everywhere and counts once.
        """
        objective = share * losses.data + losses.structure / self.processes.size
        self._scaler.scale(objective / self.options.accumulate).backward()

    def update(self, step: int, factor: float) -> float:
        """Step `step` of optimiser and average, from 0; the gradient's norm before clipping."""
        parameters = self._parameters()
        self.processes.sum_gradients(parameters)
        self._scaler.unscale_(self.optimiser)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.options.optimiser.clip)
        set_rates(self.optimiser, factor)
        self._scaler.step(self.optimiser)
        self._scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.average.follow(trained_tensors(self.network, self.frozen), step)
        return float(norm)

    def precision(self) -> AbstractContextManager[object]:
        """The forward pass's precision: mixed on a GPU where the options say so."""
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that changes, by name."""
        made = _prefixed("network", trained_tensors(self.network, self.frozen).items())
        made |= _prefixed("average", self.average.tensors.items())
        for name, parameter in self._named():
            for moment, value in self.optimiser.state.get(parameter, {}).items():
                made[f"{moment}/{name}"] = value
        return made

    def load(self, tensors: Tensors) -> None:
        """Take everything that changes from a checkpoint."""
        for prefix, mine in (
            ("network", trained_tensors(self.network, self.frozen)),
            ("average", self.average.tensors),
        ):
            for name, tensor in mine.items():
                stored = tensors.get(f"{prefix}/{name}")
                if stored is None or stored.shape != tensor.shape:
                    raise TrainingError(
                        f"the checkpoint does not fit the network at '{name}'",
                        "resume with the options that it was made with",
                    )
                with torch.no_grad():
                    tensor.copy_(stored)
        for name, parameter in self._named():
            if f"step/{name}" in tensors:
                # Clones: tensors of a mapped file are not aligned, and sums may then round apart.
                self.optimiser.state[parameter] = {
                    moment: tensors[f"{moment}/{name}"].clone().to(self.device)
                    for moment in _MOMENTS
                }

    def scaling(self) -> dict[str, float]:
        """State of the gradients' scaling; empty where nothing is scaled."""
        return self._scaler.state_dict()

    def load_scaling(self, state: dict[str, float]) -> None:
        if state:
            self._scaler.load_state_dict(state)

    def _named(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(n, p) for n, p in self.network.named_parameters() if p.requires_grad]

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for _, parameter in self._named()]


def _prefixed(prefix: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors}
