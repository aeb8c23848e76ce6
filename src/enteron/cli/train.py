"""`enteron train`: a model folder from a data root."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.training.options import TrainingOptions


class Preset(StrEnum):
    """The packaged recipes."""

    PAPER = "paper"
    LITE = "lite"


def train(
    data: Annotated[Path, typer.Argument(help="Data root: studies of frames, and their Labels.")],
    out: Annotated[Path, typer.Option(help="Model folder to write; new, or with --resume begun.")],
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="paper: BiomedCLIP as a whole; lite: a small encoder's features, head only "
            "[paper with a GPU, else lite]."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options that differ from the preset's.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was interrupted.")
    ] = False,
    split: Annotated[
        Path | None, typer.Option(help="A split.json that says which studies train and validate.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Everything random follows from it [42].")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the preset's.")] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Folder of stored features, shared between trainings [in the model's]."),
    ] = None,
) -> None:
    """Train a model; with several GPUs or processes, start it with torchrun.

    A killed training goes on with --resume and ends with the same weights. Example:
    [bold]enteron train data --out model --preset lite[/bold], then look at
    model/training/training.html. Several processes:
    [bold]torchrun --nproc-per-node 2 -m enteron train data --out model[/bold]
    """
    from enteron.cli.console import Spectator
    from enteron.training.plan import Request, is_finished, make_plan

    if resume and is_finished(out):
        typer.echo(f"{out.name} is finished: there is nothing to resume.")
        return
    options = _options(out, resume, preset, config, seed, epochs)
    with Spectator() as spectator:
        plan = make_plan(Request(data, out, options, split, features, resume), spectator)
        from enteron.training.run import PAGE, teach

        best = teach(plan, spectator)
        found = best.figures
        spectator.say(
            f"Best epoch {best.epoch}: mAP {found.macro_ap:.3f} ({found.macro_ap_present:.3f} over "
            f"the labels that validation shows), findings {found.findings_ap:.3f}, region accuracy "
            f"{found.region_accuracy:.3f}."
        )
        spectator.say(f"Written: {out.name}. Look at {out.name}/training/{PAGE}.")


def _options(
    out: Path,
    resume: bool,
    preset: Preset | None,
    config: Path | None,
    seed: int | None,
    epochs: int | None,
) -> "TrainingOptions":
    """The preset's with changes; of an interrupted training its own, when nothing is asked for."""
    from enteron.training.options import recipe
    from enteron.training.plan import begun, is_begun

    given = {"seed": seed, "epochs": epochs}
    changes = {name: value for name, value in given.items() if value is not None}
    if resume and is_begun(out) and preset is None and config is None and not changes:
        return begun(out)[0]
    if preset is None:
        import torch

        preset = Preset.PAPER if torch.cuda.is_available() else Preset.LITE
    return recipe(preset.value, config, **changes)
