"""The learner: network, averaged weights, optimiser and gradient scaling as one storable value."""

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import torch

from enteron.errors import TrainingError
from enteron.model.network import Network, Outputs
from enteron.training.checkpoint import Tensors
from enteron.training.distributed import Processes, use_whole_batch_layers
from enteron.training.losses import Losses, total_loss
from enteron.training.options import OptimiserOptions, ScheduleOptions, TrainingOptions

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's state of each parameter
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """A network in training.

    One step: `forward` and `backward` for each of its batches, then `update`.
    """

    def __init__(
        self,
        network: Network,
        options: TrainingOptions,
        positive_weight: torch.Tensor,
        processes: Processes,
        device: torch.device,
        mixed_precision: bool | None = None,
    ) -> None:
        """`mixed_precision`: whether the options' precision is used; None: on a GPU it is."""
        self.options, self.processes, self.device = options, processes, device
        self.frozen = options.regime == "frozen"
        self.network = network.to(device)
        network.backbone.requires_grad_(not self.frozen)
        self.average = AveragedNetwork(network, options.ema, self.frozen, options.ema_rise)
        use_whole_batch_layers(network, processes, options.batch // processes.size)
        self._positive_weight = positive_weight.to(device)
        self.optimiser = make_optimiser(network, options.optimiser, self.frozen)
        if mixed_precision is None:
            mixed_precision = device.type == "cuda"
        self._dtype = _DTYPES.get(options.precision) if mixed_precision else None
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._dtype is torch.float16)

    def losses(
        self,
        network: Network,
        outputs: Outputs,
        targets: torch.Tensor,
        known: torch.Tensor,
        smoothing: float,
    ) -> Losses:
        """The objective of one batch."""
        return total_loss(
            outputs.logits,
            outputs.contrastive,
            targets,
            known,
            positive_weight=self._positive_weight,
            orthogonal=network.orthogonal_weights,
            prototypes=None if network.prototypes is None else network.prototypes.directions,
            smoothing=smoothing,
            options=self.options.losses,
        )

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor, known: torch.Tensor) -> Losses:
        """The objective of this process's share of a batch, in training mode."""
        self.network.train()
        with self.autocast():
            outputs = self.network(inputs)
        losses = self.losses(self.network, outputs, targets, known, self.options.losses.smoothing)
        if len(targets):
            return losses
        # Every frame of our share is unreadable. Other processes still wait for our gradients: the
        # mean over no samples is NaN, so replace it by a sum over them, which is 0.
        zero = sum((part.sum() for part in outputs if part is not None), losses.structure * 0)
        return replace(losses, data=zero, classification=zero, contrastive=zero)

    def backward(self, losses: Losses, share: float) -> None:
        """Add a batch's gradient to the step's; `share`: this process's share of its known labels.

        The losses of samples are means, so each process counts by its share. Losses of the weights
        are the same in every process and count once.
        """
        objective = share * losses.data + losses.structure / self.processes.size
        self._scaler.scale(objective / self.options.accumulate).backward()

    def update(self, step: int, factor: float) -> float:
        """Update weights and average after step `step`, counted from 0.

        `factor`: the learning rates as a share of the largest. Returns the norm of the gradient
        before clipping.
        """
        parameters = [parameter for _, parameter in self._named_parameters()]
        self.processes.sum_gradients(parameters)
        self._scaler.unscale_(self.optimiser)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.options.optimiser.clip)
        set_rates(self.optimiser, factor)
        self._scaler.step(self.optimiser)
        self._scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        if self._scaler.is_enabled() and not norm.isfinite():
            return float(norm)  # gradients overflowed: the step was skipped, the scale is lower
        self.average.update(trained_tensors(self.network, self.frozen), step)
        return float(norm)

    def autocast(self) -> AbstractContextManager[object]:
        """The forward pass's precision: mixed if the options ask for it."""
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None)

    def state(self) -> dict[str, torch.Tensor]:
        """Every tensor that training changes, by name."""
        tensors = _prefixed("network", trained_tensors(self.network, self.frozen).items())
        tensors |= _prefixed("average", self.average.tensors.items())
        for name, parameter in self._named_parameters():
            for moment, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"{moment}/{name}"] = value
        return tensors

    def load_state(self, tensors: Tensors) -> None:
        """Restore `state()` from a checkpoint."""
        for prefix, current in (
            ("network", trained_tensors(self.network, self.frozen)),
            ("average", self.average.tensors),
        ):
            for name, tensor in current.items():
                stored = tensors.get(f"{prefix}/{name}")
                if stored is None or stored.shape != tensor.shape:
                    raise TrainingError(
                        f"the checkpoint does not fit the network at '{name}'",
                        "resume with the options that it was made with",
                    )
                with torch.no_grad():
                    tensor.copy_(stored)
        for name, parameter in self._named_parameters():
            if f"step/{name}" in tensors:
                # Clones: tensors of a mapped file are not aligned, which may change the rounding.
                self.optimiser.state[parameter] = {
                    moment: tensors[f"{moment}/{name}"].clone().to(self.device)
                    for moment in _MOMENTS
                }

    def scaler_state(self) -> dict[str, float]:
        """State of the gradient scaling; empty if gradients are not scaled."""
        return self._scaler.state_dict()

    def load_scaler_state(self, state: dict[str, float]) -> None:
        if state:
            self._scaler.load_state_dict(state)

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(n, p) for n, p in self.network.named_parameters() if p.requires_grad]


def _prefixed(prefix: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors}


def trained_tensors(network: Network, frozen: bool) -> dict[str, torch.Tensor]:
    """Weights and buffers that training changes: all, or all but those of a frozen backbone."""
    return {
        name: tensor
        for name, tensor in network.state_dict().items()
        if not (frozen and name.startswith("backbone."))
    }


class AveragedNetwork:
    """A copy of the network with the moving average of its weights and buffers (decision 17)."""

    def __init__(self, network: Network, decay: float, frozen: bool, rise: bool = False) -> None:
        shared = {id(network.backbone): network.backbone} if frozen else {}
        self.network = copy.deepcopy(network, shared).eval()
        self.network.requires_grad_(False)
        self.tensors = trained_tensors(self.network, frozen)
        self._decay, self._rise = decay, rise

    @torch.no_grad()
    def update(self, tensors: Mapping[str, torch.Tensor], step: int) -> None:
        """Average <- decay x average + (1 - decay) x tensors after step `step`, counted from 0.

        Integer buffers (batch counters) are copied.
        """
        decay = min(self._decay, (1 + step) / (10 + step)) if self._rise else self._decay
        for name, average in self.tensors.items():
            if average.is_floating_point():
                average.lerp_(tensors[name], 1 - decay)
            else:
                average.copy_(tensors[name])


def make_optimiser(
    network: Network, options: OptimiserOptions, frozen: bool
) -> torch.optim.Optimizer:
    """AdamW; every parameter group stores its largest learning rate under 'max_rate'."""
    groups = [{"params": list(network.head_parameters()), "max_rate": options.head_rate}]
    if not frozen:
        groups.append(
            {"params": list(network.backbone_parameters()), "max_rate": options.backbone_rate}
        )
    return torch.optim.AdamW(
        groups, lr=options.head_rate, betas=options.betas, weight_decay=options.decay, fused=True
    )


def rate_factor(step: int, steps: int, options: ScheduleOptions) -> float:
    """The learning rate of step `step` of `steps`, as a share of the largest.

    A cosine from 1/start up to 1, then down to 1/(start end): the values of torch's OneCycleLR,
    without its state.
    """
    first = 1 / options.start
    last = first / options.end
    top = options.rise * steps - 1  # the step with the largest rate; need not be an integer
    if step <= top:
        return _cosine(first, 1.0, step / top if top > 0 else 1.0)
    return _cosine(1.0, last, (step - top) / (steps - 1 - top))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's learning rate to `factor` times its largest."""
    for group in optimiser.param_groups:
        group["lr"] = factor * group["max_rate"]
