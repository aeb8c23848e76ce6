"""Validation: averaged weights on the frames of studies that do not train."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.labels import LABELS
from enteron.model.network import Network
from enteron.training.batches import Draw, Source
from enteron.training.learner import Learner


@dataclass(frozen=True)
class Validation:
    """Scores beside the truth, in the order of the source's samples."""

    samples: NDArray[np.int64]  # those that could be read
    truth: NDArray[np.bool_]  # (n, 17)
    scores: NDArray[np.float32]  # (n, 17) probabilities
    loss: float


@torch.inference_mode()
def validate(learner: Learner, network: Network, source: Source) -> Validation:
    """Score every sample once, each process a share of the batches; all get all scores."""
    network.eval()
    processes, count = learner.processes, len(source.samples)
    order = np.arange(count)
    size = learner.options.batch
    draws = [Draw(order[at : at + size], None) for at in range(0, count, size)]
    # Processes fill rows of one array each and add the arrays: the others' rows are 0.
    scores = torch.zeros(count, len(LABELS) + 1, dtype=torch.float64, device=learner.device)
    sums = torch.zeros(2, dtype=torch.float64, device=learner.device)
    for batch in source.batches(draws[processes.rank :: processes.size]):
        if len(batch.samples) == 0:
            continue
        targets = batch.targets.to(learner.device)
        with learner.precision():
            outputs = network(source.prepare(batch.inputs.to(learner.device)))
        losses = learner.losses(network, outputs, targets, smoothing=0.0)
        rows = torch.from_numpy(batch.samples).to(learner.device)
        scores[rows, :-1] = outputs.logits.double().sigmoid()
        scores[rows, -1] = 1
        sums += torch.stack((losses.total.double() * len(rows), losses.total.new_tensor(len(rows))))
    scores, sums = processes.sum(scores).cpu(), processes.sum(sums).cpu()
    read = scores[:, -1] > 0
    samples = order[read.numpy()]
    return Validation(
        samples=samples,
        truth=source.samples.labels[samples],
        scores=scores[read, :-1].float().numpy(),
        loss=float(sums[0] / sums[1]),
    )
