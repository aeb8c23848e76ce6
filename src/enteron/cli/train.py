"""`enteron train`: a model folder from a data root."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.cli.parameters import AcceleratorOption
from enteron.inference.accelerator import Accelerator, uses_cuda

if TYPE_CHECKING:
    from enteron.progress import Progress
    from enteron.training.options import TrainingOptions
    from enteron.training.results import EpochRecord


class Preset(StrEnum):
    """The packaged recipes."""

    PAPER = "paper"
    LITE = "lite"
    PRIOR = "prior"
    DEFAULT = "default"


def train(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Data roots, one or more: studies of frames with labels, in any layout that "
            "`enteron check` knows.",
            readable=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Model folder to write; a new one, except with --resume.", readable=False
        ),
    ],
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="paper: trains all of BiomedCLIP, needs a GPU; lite: trains a head on features of "
            "a small encoder, minutes on a CPU; prior: the authors' earlier submission, needs a "
            "GPU (default: paper with a GPU, else lite)."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with the options that differ from the preset.", readable=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a training that was interrupted.")
    ] = False,
    split: Annotated[
        Path | None,
        typer.Option(
            help="A split.json with the studies that train and validate (default: by the seed).",
            readable=False,
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="How often each data root is drawn, by its name: A=2,B=1 (default: in proportion "
            "to their frames)."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100,
            help="Train this many models, each without another part of the studies, into fold-1, "
            "fold-2, ... of the output folder (default: one model).",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of everything random (default: 42).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs (default: the preset's).")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Folder of stored features, which several trainings can share [in the model "
            "folder].",
            readable=False,
        ),
    ] = None,
    priors: Annotated[
        Path | None,
        typer.Option(
            help="Priors of `enteron priors fit` for decoding with this model; stored in the model "
            "folder (default: the packaged priors).",
            readable=False,
        ),
    ] = None,
    accelerator: AcceleratorOption = "auto",
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Runtime that encodes frames for a frozen backbone, by name (default: what suits "
            "model and machine)."
        ),
    ] = None,
) -> None:
    """Train a model; with several GPUs or processes, start it with torchrun.

    An interrupted training resumes with --resume and ends with the same weights. Example:
    [bold]enteron train data --out model --preset lite[/bold], then open
    model/training/training.html. Several datasets:
    [bold]enteron train galar kvasir --out model --share galar=2,kvasir=1[/bold]. Several processes:
    [bold]torchrun --nproc-per-node 2 -m enteron train data --out model[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.folders.model import TRAINING, TRAINING_PAGE
    from enteron.progress import Progress, SilentProgress
    from enteron.training.folds import folds_finished, stored_folds, train_folds
    from enteron.training.plan import TrainingRequest, is_finished, make_plan

    if resume and (is_finished(out) or folds_finished(out)):
        typer.echo(f"{out.name} is finished: there is nothing to resume.")
        return
    shares = None if share is None else _shares(share, data)
    options = _options(out, resume, preset, config, seed, epochs, shares, accelerator)
    # Of the processes that torchrun starts, only the first reports.
    first = os.environ.get("RANK", "0") == "0"
    progress: Progress = RichProgress() if first else SilentProgress()
    request = TrainingRequest(
        tuple(data), out, options, split, features, priors, resume, accelerator, runtime
    )
    if resume and folds is None:
        folds = stored_folds(out) or None
    if folds is not None:
        _show_folds(out, train_folds(request, folds, progress), progress)
        return
    plan = make_plan(request, progress)
    from enteron.training.run import run_training

    best = run_training(plan, progress)
    metrics = best.figures
    regions = metrics.region_accuracy
    progress.message(
        f"Best epoch {best.epoch}: mAP {metrics.macro_ap:.3f} ({metrics.macro_ap_present:.3f} over "
        f"the labels that validation frames show), findings {metrics.findings_ap:.3f}, region "
        f"accuracy {'unknown' if regions is None else f'{regions:.3f}'}."
    )
    for source, figures in best.sources.items():
        progress.message(
            f"{source}: mAP of present labels {figures.macro_ap_present:.3f}, findings "
            f"{figures.findings_ap:.3f}."
        )
    progress.message(f"Model written to {out}. Open {out / TRAINING / TRAINING_PAGE}.")


def _show_folds(out: Path, results: "dict[int, EpochRecord | None]", progress: "Progress") -> None:
    """Say what became of each fold, and what they are for."""
    from statistics import mean

    for number, best in results.items():
        if best is not None:
            progress.message(
                f"Fold {number}: best epoch {best.epoch}, mAP of present labels "
                f"{best.figures.macro_ap_present:.3f}, findings {best.figures.findings_ap:.3f}."
            )
    trained = [best.figures for best in results.values() if best is not None]
    if len(trained) > 1:
        values = [figures.macro_ap_present for figures in trained]
        progress.message(
            f"Over {len(trained)} folds: mAP of present labels {mean(values):.3f}, from "
            f"{min(values):.3f} to {max(values):.3f}; findings "
            f"{mean(figures.findings_ap for figures in trained):.3f}."
        )
    progress.message(
        f"{len(results)} models written to {out}. Calibrate each, read with each, and average the "
        "readings with enteron combine."
    )


def _shares(text: str, roots: list[Path]) -> tuple[float, ...]:
    """The shares of the roots, in their order, from 'A=2,B=1'."""
    from enteron.errors import ConfigError, nearest

    names = [root.resolve().name.removesuffix(".csv") for root in roots]
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in names:
            raise ConfigError(
                f"--share names '{name}', which is no data root", nearest(name, names)
            )
        try:
            shares[name] = float(number)
        except ValueError as error:
            raise ConfigError(
                f"--share gives '{name}' the share '{number}'", "write it like A=2,B=1"
            ) from error
    missing = next((name for name in names if name not in shares), None)
    if missing is not None:
        raise ConfigError(f"--share has no share for '{missing}'", "give one share per data root")
    return tuple(shares[name] for name in names)


def _options(
    out: Path,
    resume: bool,
    preset: Preset | None,
    config: Path | None,
    seed: int | None,
    epochs: int | None,
    shares: tuple[float, ...] | None,
    accelerator: Accelerator,
) -> "TrainingOptions":
    """The preset's options with changes; those of the interrupted training if none are given."""
    from enteron.training.options import recipe
    from enteron.training.plan import is_started, started_options

    numbers = {"seed": seed, "epochs": epochs}
    changes: dict[str, Any] = {name: n for name, n in numbers.items() if n is not None}
    if shares is not None:
        changes["sampler"] = {"shares": shares}
    if resume and is_started(out) and preset is None and config is None and not changes:
        return started_options(out)
    if preset is None:
        preset = Preset.PAPER if uses_cuda(accelerator) else Preset.LITE
    return recipe(preset.value, config, **changes)
