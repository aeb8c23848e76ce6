"""The weights of a context for findings, on drawn studies of a capsule that trained nothing.

`lite` with one frame learns from the drawn PillCam studies of the benchmark `context` and scores
the Olympus ones, then the other way round, two seeds each; NaviCam studies take no part. Rows:
weights fitted on validation studies of the capsule that trained, and fixed ones. AP of frames,
before any decoding, mean over the findings with at least 20 positive frames.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks._training_data import (
    SPAWN,
    TRAIN,
    UnseenScores,
    cores,
    draw_studies,
    make_features,
    open_features,
    train_on_features,
)
from benchmarks.context import FOLDER, scored, with_frequent_findings
from enteron.context import SCALES, Context
from enteron.datasets.galar import find_studies
from enteron.datasets.label_table import truth_events
from enteron.datasets.splits import Split
from enteron.fitting.context import OF_RECORDINGS, OF_STUDY, ContextFit, choose_context
from enteron.fitting.frames import LabelledStudy
from enteron.inference.views import VIEW_SETS
from enteron.types import Unit

VALIDATION_EVERY = 3
"""Every so many-th study of the capsule that trains is left for the fit of weights."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=28)
    arguments.add_argument("--frames", type=int, default=2000)
    arguments.add_argument("--seeds", type=int, default=2)
    options = arguments.parse_args()
    draw_studies(options.folder / TRAIN, options.studies, options.frames, 1, TRAIN)
    make_features(options.folder, TRAIN, views=VIEW_SETS["none"])
    tasks = [
        (options.folder, capsule, seed)
        for capsule in (0, 1)
        for seed in range(42, 42 + options.seeds)
    ]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        tables = list(pool.map(run, tasks))
    print("| weights | PillCam unseen | Olympus unseen | mean |")
    print("|---|---|---|---|")
    for name in tables[0]:
        values = np.array([table[name] for table in tables]).reshape(2, -1).mean(axis=1)
        olympus, pillcam = values  # capsule 0, PillCam, trained first
        print(f"| {name} | {pillcam:.3f} | {olympus:.3f} | {values.mean():.3f} |")


def run(task: tuple[Path, int, int]) -> dict[str, float]:
    """Findings AP of every context on the studies of the other capsule."""
    import torch

    torch.set_num_threads(1)

    from enteron.training.options import recipe

    folder, capsule, seed = task
    entries = find_studies(folder / TRAIN)
    steps = {name: np.diff(open_features(folder, TRAIN, name).frames).min() for name in entries}
    own_step = sorted(set(steps.values()), reverse=True)[capsule]  # PillCam: every fifth frame
    own = [name for name, step in steps.items() if step == own_step]
    validation = tuple(own[::VALIDATION_EVERY])
    rest = tuple(name for name in own if name not in validation)
    split = Split(rest, validation, (), "a capsule")
    options = recipe("lite", None, model={"frames": 1}, seed=seed)
    network = train_on_features(folder, split, options).network

    def studies(names: tuple[str, ...]) -> list[LabelledStudy]:
        return [
            scored(
                network,
                folder,
                TRAIN,
                entries[name],
                truth_events(entries[name].table(), Unit.FRAME),
            )
            for name in names
        ]

    others = studies(tuple(name for name in entries if name not in own))
    return {
        name: findings_ap(others, context)
        for name, context in contexts(studies(validation)).items()
    }


def contexts(validation: list[LabelledStudy]) -> dict[str, Context | None]:
    """What is compared, by name."""
    fitted = choose_context(validation, ContextFit(fixed=False))
    return {
        "none": None,
        "fitted on the capsule that trained": fitted.context,
        "fixed": fixed(OF_RECORDINGS, OF_STUDY),
        "fixed, without the study": fixed(OF_RECORDINGS, 0.0),
        "fixed, the study alone": fixed({}, OF_STUDY),
        "fixed, half the weight of the study": fixed(OF_RECORDINGS, OF_STUDY / 2),
        "fixed, twice the weight of the study": fixed(OF_RECORDINGS, OF_STUDY * 2),
        "fixed, the frame counts twice": fixed(OF_RECORDINGS, OF_STUDY, frame=1.0),
        "fixed, all six scales": fixed(dict.fromkeys(SCALES, 1.0), OF_STUDY),
        "fixed, 1,000 frames only": fixed({1000.0: 3.0}, OF_STUDY),
    }


def fixed(weights: dict[float, float], study: float, frame: float = 0.0) -> Context:
    none = (0.0,) * (1 + len(SCALES))
    findings = (frame, *(weights.get(scale, 0.0) for scale in SCALES))
    return Context(regions=none, landmarks=none, findings=findings, study=study)


def findings_ap(studies: list[LabelledStudy], context: Context | None) -> float:
    values = [
        study.scores.values if context is None else context.refined(study.scores)
        for study in studies
    ]
    return UnseenScores(with_frequent_findings(studies), values).metrics()["findings"]


if __name__ == "__main__":
    main()
