"""Context: what the frames around a frame are worth, on drawn studies of a capsule never seen.

PillCam and Olympus studies train `lite` with one frame and with three; its validation studies fit
the calibration, with context and without, or with --fits as many studies of their own, of
--fit-frames each; NaviCam studies test, of --test-frames each. Frames: AP of findings with at least
20 positive frames, and region accuracy, of refined scores before any decoding. Events: decoded by
`transit`, findings judged by what surrounds them. Differences are paired, with 95 % intervals over
test studies. Missing data are made under --folder.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._decoder_tables import compared_false, judged
from benchmarks._training_data import (
    SPAWN,
    TEST,
    TRAIN,
    UnseenScores,
    cores,
    draw_studies,
    make_features,
    open_features,
    train_on_features,
    training_split,
)
from enteron.context import GROUPS, Context, EventContext
from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.label_table import truth_events
from enteron.datasets.submission import read_submission
from enteron.decoding import PRESETS, decode
from enteron.decoding.events import to_annotation
from enteron.fitting.context import ContextFit, choose_context
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.inference.score import score_study
from enteron.inference.views import VIEW_SETS
from enteron.labels import COLUMN, FINDINGS
from enteron.metrics.evaluation import Evaluation, evaluate
from enteron.metrics.lesion_evaluation import LesionEvaluation
from enteron.model.network import Network
from enteron.priors import load_priors
from enteron.types import Annotation, Unit

FOLDER = Path(tempfile.gettempdir()) / "enteron-context"
FIT = "full-length"
LEAST_POSITIVES = 20
RESAMPLES = 300
PRESET = "transit"
FRAME = Unit.FRAME


@dataclass(frozen=True)
class Result:
    """One network on the test studies, without context and with it."""

    frames: int
    seed: int
    studies: list[LabelledStudy]
    truths: list[Annotation]
    context: Context | None
    gains: dict[str, tuple[float, float]]  # on the validation studies, cross-validated
    evaluations: dict[bool, Evaluation]
    lesions: dict[bool, LesionEvaluation]
    event_context: EventContext | None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=28)
    arguments.add_argument("--tests", type=int, default=20)
    arguments.add_argument("--frames", type=int, default=2000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--test-frames", type=int, help="as many as --frames, if not given")
    arguments.add_argument("--test-seed", type=int, default=2, help="of the test studies")
    arguments.add_argument("--fits", type=int, default=0, help="studies that fit the calibration")
    arguments.add_argument("--fit-frames", type=int, default=20_000)
    options = arguments.parse_args()
    draw_studies(options.folder / TRAIN, options.studies, options.frames, 1, TRAIN)
    frames = options.test_frames or options.frames
    draw_studies(options.folder / TEST, options.tests, frames, options.test_seed, TEST, video=True)
    if options.fits:
        draw_studies(options.folder / FIT, options.fits, options.fit_frames, 13, TRAIN, video=True)
    for name in (TRAIN, TEST, *([FIT] if options.fits else [])):
        make_features(options.folder, name, views=VIEW_SETS["none"])
    tasks = [
        (options.folder, frames, seed, FIT if options.fits else TRAIN)
        for frames in (1, 3)
        for seed in range(42, 42 + options.seeds)
    ]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        results = list(pool.map(run, tasks))
    show(results)


def run(task: tuple[Path, int, int, str]) -> Result:
    """Train a network, calibrate it twice, and read the test studies twice."""
    import torch

    torch.set_num_threads(1)

    from enteron.training.options import recipe

    folder, frames, seed, fit = task
    split = training_split(folder)
    options = recipe("lite", None, model={"frames": frames}, seed=seed)
    network = train_on_features(folder, split, options).network
    entries = find_studies(folder / fit)
    validation = [
        scored(network, folder, fit, entries[study], truth_events(entries[study].table(), FRAME))
        for study in (split.val if fit == TRAIN else entries)
    ]
    tests = find_studies(folder / TEST)
    by_study = {truth.study: truth for truth in read_submission(folder / TEST / "truth.json")}
    truths = [by_study[study] for study in tests]
    studies = [scored(network, folder, TEST, tests[truth.study], truth) for truth in truths]
    priors = load_priors()
    evaluations: dict[bool, Evaluation] = {}
    lesions: dict[bool, LesionEvaluation] = {}
    event_context: EventContext | None = None
    for use in (False, True):
        fitted = fit_decoder(validation, priors, FitOptions(context="events" if use else "none"))
        event_context = fitted.event_context
        events = [decode(study.scores, PRESETS[PRESET], priors, fitted) for study in studies]
        predictions = [
            to_annotation(study.scores.study, FRAME, found, PRESETS[PRESET])
            for study, found in zip(studies, events, strict=True)
        ]
        evaluations[use] = evaluate(truths, predictions)
        lesions[use] = judged(truths, studies, events)
    # Frames are refined for all labels, to see what there is to gain; decoding judges events.
    everything = choose_context(validation, ContextFit(groups=tuple(GROUPS)))
    gains = {g: (gain.without, gain.with_context) for g, gain in everything.gains.items()}
    context = everything.context
    return Result(
        frames, seed, studies, truths, context, gains, evaluations, lesions, event_context
    )


def scored(
    network: Network, folder: Path, name: str, entry: Entry, truth: Annotation
) -> LabelledStudy:
    """A study as the network scores it, beside its truth."""
    with entry.open() as study:
        scores = score_study(
            network,
            open_features(folder, name, entry.id),
            views="none",
            frames_per_row=study.frames_per_row,
        )
    return LabelledStudy(scores, label_rows(scores, truth))


# ---- figures


def unseen(result: Result, use: bool) -> UnseenScores:
    values = [
        result.context.refined(study.scores)
        if use and result.context is not None
        else study.scores.values
        for study in result.studies
    ]
    return UnseenScores(with_frequent_findings(result.studies), values)


def with_frequent_findings(studies: Sequence[LabelledStudy]) -> list[NDArray[np.bool_]]:
    """The truths without findings that too few frames of all studies show: those do not count."""
    total = np.sum([study.truth.sum(axis=0) for study in studies], axis=0)
    rare = [COLUMN[f] for f in FINDINGS if total[COLUMN[f]] < LEAST_POSITIVES]
    kept = [study.truth.copy() for study in studies]
    for truth in kept:
        truth[:, rare] = False
    return kept


Metric = Callable[[NDArray[np.float64]], float]
"""A figure of the test studies, each counted as often as the argument (studies,) says."""


def frame_figures(task: tuple[UnseenScores, list[NDArray[np.float64]]]) -> list[dict[str, float]]:
    """The metrics of frames of one network, for every way to count the test studies."""
    scores, draws = task
    return [scores.weighted(drawn) for drawn in draws]


def event_metric(evaluations: Sequence[Evaluation]) -> Metric:
    """Mean over seeds of the AP of present labels with events merged, at a tIoU of one half."""
    tables = [evaluation.merged[0].present_studies for evaluation in evaluations]

    def metric(drawn: NDArray[np.float64]) -> float:
        valid = [np.isfinite(values) for values in tables]
        return float(
            np.mean(
                [
                    (values[v] * drawn[v]).sum() / drawn[v].sum()
                    for values, v in zip(tables, valid, strict=True)
                ]
            )
        )

    return metric


def show(results: Sequence[Result]) -> None:
    count = len(results[0].studies)
    rng = np.random.default_rng(0)
    draws = [
        np.ones(count),
        *(
            np.bincount(rng.integers(count, size=count), minlength=count).astype(float)
            for _ in range(RESAMPLES)
        ),
    ]
    of_frames = {frames: [r for r in results if r.frames == frames] for frames in (1, 3)}
    print(f"{count} test studies, {len(of_frames[1])} seeds; differences to the better of the two")
    print("networks without context\n")
    print("| | one frame | with context | three frames | with context | difference, one frame |")
    print("|---|---|---|---|---|---|")
    cases = [(frames, use) for frames in (1, 3) for use in (False, True)]
    tasks = [(unseen(r, use), draws) for frames, use in cases for r in of_frames[frames]]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        figures = np.array(
            [
                [[figure["findings"], figure["regions"]] for figure in of_network]
                for of_network in pool.map(frame_figures, tasks)
            ]
        )
    # (cases, draws, 2): means over seeds
    figures = figures.reshape(len(cases), -1, len(draws), 2).mean(axis=1)
    events = {
        case: event_metric([r.evaluations[case[1]] for r in of_frames[case[0]]]) for case in cases
    }
    rows = {
        "findings AP": dict(zip(cases, figures[:, :, 0], strict=True)),
        "region accuracy": dict(zip(cases, figures[:, :, 1], strict=True)),
        f"present labels, merged, `{PRESET}`": {
            case: np.array([metric(d) for d in draws]) for case, metric in events.items()
        },
    }
    for title, values in rows.items():
        best = max((1, 3), key=lambda frames: values[frames, False][0])
        gain = values[1, True] - values[best, False]
        low, high = np.quantile(gain[1:], (0.025, 0.975))
        cells = [f"{values[case][0]:.3f}" for case in cases]
        print(f"| {title} | {' | '.join(cells)} | {gain[0]:+.3f} [{low:+.3f}, {high:+.3f}] |")
    print("\nfalse pictures of findings a study, at the lesion recall that both reach\n")
    print("| network | with context, without | ratio |")
    print("|---|---|---|")
    for frames, name in ((1, "one frame"), (3, "three frames")):
        both = [[r.lesions[use] for r in of_frames[frames]] for use in (True, False)]
        print(f"| {name} | {' | '.join(compared_false(*both))} |")
    print()
    for r in results:
        show_network(r)


def show_network(result: Result) -> None:
    """What context changes in the events of one network."""
    both = (False, True)
    recalls = [result.lesions[use].shown.overall.recall.value or 0.0 for use in both]
    false = [result.lesions[use].shown.overall.false_per_study.value or 0.0 for use in both]
    official = [result.evaluations[use].map[0.5] for use in both]
    onsets = [result.evaluations[use].region_onsets.median for use in both]
    print(
        f"{result.frames} frame(s), seed {result.seed}: left-out validation studies {result.gains}"
        f"\n  lesion recall {recalls[0]:.3f}, {recalls[1]:.3f} at {false[0]:.1f}, {false[1]:.1f} "
        f"false pictures a study; official mAP {official[0]:.3f}, {official[1]:.3f}; "
        f"region onsets, median error in frames {onsets[0]}, {onsets[1]}\n  {result.context}"
        f"\n  {result.event_context}"
    )


if __name__ == "__main__":
    main()
