"""A training in a process of its own, to be killed or to be one of several.

python -m tests.training.pupil OPTIONS.json FOLDER OUT.safetensors
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from enteron.training.company import Silence
from enteron.training.distributed import joined
from enteron.training.loop import Step
from enteron.training.options import TrainingOptions
from tests.training.making import small_training


class Loud(Silence):
    """Says every step, so that the parent knows when to strike."""

    def stepped(self, step: Step) -> None:
        print(f"step {step.overall}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    options = TrainingOptions.model_validate_json(Path(sys.argv[1]).read_text())
    with joined(torch.device("cpu")) as processes:
        folder = None if sys.argv[2] == "-" else Path(sys.argv[2])
        outcome = small_training(options, folder, Loud(), processes).run()
        if processes.first:
            save_file(outcome.network.state_dict(), sys.argv[3])


if __name__ == "__main__":
    main()
