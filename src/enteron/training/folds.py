"""Several models by study: each leaves out another part of the studies (`enteron train --folds`).

Every fold is an ordinary model folder, `fold-1` to `fold-K` in the output folder, with a split of
its own. The splits of all folds are written before the first training starts, and the options
beside them, so a killed run resumes with the same division. A training that has finished is not
repeated.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.splits import Split, load_split, save_split, seeded_rank
from enteron.errors import ConfigError, TrainingError, quantity
from enteron.files import make_folder, write_text
from enteron.folders.model import (
    CHECKPOINT,
    FEATURES,
    PRIORS,
    SPLIT,
    TRAINING_OPTIONS,
)
from enteron.ids import natural_key
from enteron.locks import folder_lock
from enteron.priors import load_priors, save_priors
from enteron.progress import Progress
from enteron.training.options import TrainingOptions
from enteron.training.plan import (
    TrainingRequest,
    is_finished,
    is_started,
    make_plan,
    open_samples,
    require_new_folder,
    started_options,
)
from enteron.training.results import EpochRecord

_FOLD = "fold-"


def fold_folder(out: Path, number: int) -> Path:
    """The model folder of a fold, counted from 1."""
    return out / f"{_FOLD}{number}"


def stored_folds(out: Path) -> int:
    """The number of folds that have started or finished in a folder; 0 if there are none."""
    if not (is_started(out) or is_finished(fold_folder(out, 1))):
        return 0
    count = 0
    while (fold_folder(out, count + 1) / SPLIT).exists():
        count += 1
    return count


def folds_finished(out: Path) -> bool:
    """Whether a folder holds folds, and nothing is left to train."""
    folders = [fold_folder(out, number) for number in range(1, stored_folds(out) + 1)]
    return bool(folders) and not is_started(out) and all(map(is_finished, folders))


def divide(
    studies: Sequence[str], folds: int, seed: int, shows: Mapping[str, NDArray[np.bool_]]
) -> list[list[str]]:
    """The studies that each fold leaves out: as many in each as possible, and each label too.

    The rarest label is dealt out first: each of its studies goes to the fold that has the fewest
    studies with it, among those that are not full. `shows`: (labels,) what each study shows;
    without it studies are dealt out by their rank alone.
    """
    ranked = sorted(studies, key=lambda study: seeded_rank(seed, study))
    parts: list[list[str]] = [[] for _ in range(folds)]
    sizes = [len(ranked) // folds + (index < len(ranked) % folds) for index in range(folds)]
    left = list(ranked)
    while left:
        label = _rarest([shows[study] for study in left]) if shows else None
        study = left[0] if label is None else next(s for s in left if shows[s][label])
        open_parts = [index for index in range(folds) if len(parts[index]) < sizes[index]]

        def crowding(index: int, label: int | None = label) -> tuple[int, int, int]:
            own = 0 if label is None else sum(bool(shows[s][label]) for s in parts[index])
            return own, len(parts[index]) - sizes[index], index

        parts[min(open_parts, key=crowding)].append(study)
        left.remove(study)
    return [sorted(part, key=natural_key) for part in parts]


def _rarest(shows: Sequence[NDArray[np.bool_]]) -> int | None:
    """The label that the fewest of the remaining studies show, if any shows one."""
    counts = np.stack(shows).sum(axis=0)
    present = np.flatnonzero(counts)
    return int(present[counts[present].argmin()]) if present.size else None


def train_folds(
    request: TrainingRequest, folds: int, progress: Progress
) -> dict[int, EpochRecord | None]:
    """Train what is missing of all folds; the best epoch of each, None where it was finished."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "--folds trains one model after the other in one process",
            "start it without torchrun; or, with torchrun, train each fold on its own with --split",
        )
    out = request.out
    make_folder(out)
    with folder_lock(out):
        if stored_folds(out):
            _require_same(request, folds)
        else:
            _start(request, folds, progress)
        results: dict[int, EpochRecord | None] = {}
        for number in range(1, folds + 1):
            results[number] = _train_fold(request, number, folds, progress)
        shutil.rmtree(out / CHECKPOINT, ignore_errors=True)
    return results


def _start(request: TrainingRequest, folds: int, progress: Progress) -> None:
    """Divide the studies, and store the division and the options."""
    out, options = request.out, request.options
    if request.split is not None:
        raise ConfigError("--folds makes its own splits", "leave out --split or --folds")
    if request.resume:
        raise TrainingError(f"'{out.name}' holds no folds to resume", "leave out --resume")
    require_new_folder(out)
    sources, samples = open_samples(request, progress)
    parts: list[list[str]] = [[] for _ in range(folds)]
    for source in sources:
        own = [source.key(study) for study in source.dataset.studies]
        shows = {key: samples[key].labels.present_counts > 0 for key in own}
        divided = divide(own, folds, options.seed, shows if options.data.stratified else {})
        for part, members in zip(parts, divided, strict=True):
            part.extend(members)
    if not all(parts):
        count = quantity(sum(map(len, parts)), "study", "studies")
        raise TrainingError(
            f"{count} cannot be divided into {folds} folds", "give more studies, or fewer folds"
        )
    for number, part in enumerate(parts, 1):
        rest = tuple(s for other in parts if other is not part for s in other)
        rule = f"fold {number} of {folds}, seeded {options.seed}"
        split = Split(tuple(sorted(rest, key=natural_key)), tuple(part), (), rule)
        folder = fold_folder(out, number)
        require_new_folder(folder)
        make_folder(folder)
        save_split(split, folder / SPLIT)
    make_folder(out / CHECKPOINT)
    if request.priors is not None:
        save_priors(load_priors(request.priors), out / CHECKPOINT / PRIORS)
    # Last: from here on the folds count as started.
    write_text(out / CHECKPOINT / TRAINING_OPTIONS, options.model_dump_json(indent=1) + "\n")


def _require_same(request: TrainingRequest, folds: int) -> None:
    """Refuse to go on with another division, with other options, or without being asked to."""
    out, stored = request.out, stored_folds(request.out)
    if not request.resume:
        raise TrainingError(
            f"'{out.name}' holds {quantity(stored, 'fold')} already",
            "add --resume to resume them, or give another folder",
        )
    if request.split is not None:
        raise ConfigError("--folds makes its own splits", "leave out --split or --folds")
    if request.priors is not None and not _same_priors(request):
        raise TrainingError(
            f"the folds in '{out.name}' were started with other priors",
            "leave out --priors, or train into another folder",
        )
    if folds != stored:
        raise TrainingError(
            f"'{out.name}' holds {quantity(stored, 'fold')}, not {folds}",
            "resume with the same number, or train into another folder",
        )
    started = started_options(out)
    requested = request.options.model_copy(update={"workers": started.workers})  # may differ
    for name in TrainingOptions.model_fields:
        if getattr(started, name) != getattr(requested, name):
            raise TrainingError(
                f"the folds in '{out.name}' were started with another '{name}'",
                "resume with the same options or with none, or train into another folder",
            )


def _same_priors(request: TrainingRequest) -> bool:
    stored = request.out / CHECKPOINT / PRIORS
    return stored.exists() and load_priors(stored) == load_priors(request.priors)


def _train_fold(
    request: TrainingRequest, number: int, folds: int, progress: Progress
) -> EpochRecord | None:
    from enteron.training.run import run_training  # it loads torch

    folder, priors = fold_folder(request.out, number), request.out / CHECKPOINT / PRIORS
    left_out = quantity(len(load_split(folder / SPLIT).val), "study", "studies")
    if is_finished(folder):
        progress.message(f"Fold {number} of {folds} is finished.")
        return None
    progress.message(f"Fold {number} of {folds}: leaves out {left_out}.")
    own = replace(
        request,
        out=folder,
        split=folder / SPLIT,
        # Every study is in all folds, and is encoded once for all of them.
        features=request.features or request.out / FEATURES,
        priors=priors if priors.exists() else None,
        resume=is_started(folder),
    )
    return run_training(make_plan(own, progress), progress)
