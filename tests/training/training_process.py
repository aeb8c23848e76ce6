"""A training in its own process, to be killed or to be one of several.

python -m tests.training.training_process OPTIONS.json FOLDER OUT.safetensors
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from enteron.training.distributed import process_group
from enteron.training.loop import Step, TrainingListener
from enteron.training.options import TrainingOptions
from tests.training.making import small_loop


class StepPrinter(TrainingListener):
    """Prints every step, so that the parent knows when to kill this process."""

    def on_step(self, step: Step) -> None:
        print(f"step {step.overall}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    options = TrainingOptions.model_validate_json(Path(sys.argv[1]).read_text())
    with process_group(torch.device("cpu")) as processes:
        folder = None if sys.argv[2] == "-" else Path(sys.argv[2])
        result = small_loop(options, folder, StepPrinter(), processes).run()
        if processes.is_first:
            save_file(result.network.state_dict(), sys.argv[3])


if __name__ == "__main__":
    main()
