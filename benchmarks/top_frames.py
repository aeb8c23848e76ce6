"""Recall in the first N pictures: the list of suspicious frames against three simpler lists.

The 60 label sequences with simulated scores at full length, several seeds. Calibration and options
of the ranking are chosen on every other study, the table is of the rest. The simplest lists are the
frames of highest scores, frames at equal distances, and the events of `paper` in their order. With
`-- --readings ROOT --truth ROOT`: studies that a model has read, and the `suspicious.json` of each
reading, in which frames that look alike are folded.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks._labelled_readings import read_labelled
from benchmarks._simulated_lesions import simulated_studies
from benchmarks.decoders import PAPER, TRANSIT, priors_of
from enteron.calibration import Calibration
from enteron.cli.console import console, table
from enteron.decoding import DecodeOptions, decode
from enteron.decoding.pipeline import Decoder
from enteron.decoding.suspicious import SuspicionOptions, finding_probabilities, rank_rows
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.folders.shown import representative_frames
from enteron.folders.suspicious import suspicious_frames
from enteron.labels import FINDINGS
from enteron.metrics.evaluation import StudyBootstrap
from enteron.metrics.lesions import Lesions, Recording, lesions_of
from enteron.metrics.top_frames import TOP_FRAMES, fold_near_duplicates, rank_frames, top_recall
from enteron.priors import Priors, load_priors
from enteron.types import Annotation

MOST = TOP_FRAMES[-1]
WINDOWS = (1, 3, 9)
REACHES = (50.0, 100.0, 200.0, 400.0)
CHOSEN_AT = 30  # pictures

Lists = dict[str, np.ndarray]  # by study


def main() -> None:
    arguments = parse_arguments()
    if arguments.readings is not None:
        show(read_rows(arguments.readings, arguments.truth))
        return
    rows: dict[str, list[np.ndarray]] = {}  # by list: (studies, N, 2) found and lesions, per seed
    grids: list[np.ndarray] = []
    origin = ""
    for seed in range(arguments.seeds):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        drawn = simulated_studies(arguments.studies, seed, arguments.level)
        origin = drawn.origin
        case = Case(drawn.studies, drawn.truths)
        grids.append(case.grid())
        for name, counts in case.rows():
            rows.setdefault(name, []).append(counts)
    print(f"{arguments.studies} label sequences: {origin}; scores of level ", end="")
    print(f"'{arguments.level}', {arguments.seeds} seeds")
    show_grid(np.mean(grids, axis=0))
    show(rows)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--readings", type=Path, help="a folder of readings")
    parser.add_argument("--truth", type=Path, help="their truth")
    return parser.parse_args()


class Case:
    """The studies of one seed."""

    def __init__(self, studies: list[LabelledStudy], truths: list[Annotation]) -> None:
        self.studies = studies
        self.chosen_on, self.reported = slice(0, None, 2), slice(1, None, 2)
        self.truths = truths
        self.priors: Priors = priors_of(studies[self.chosen_on])
        self.calibration: Calibration = fit_calibration(studies[self.chosen_on])
        self.regions = [
            Decoder(s.scores, TRANSIT, self.priors, self.calibration).regions()[0] for s in studies
        ]

    def lesions(self, part: slice) -> Lesions:
        return lesions_of(self.truths[part])

    def recall(self, part: slice, lists: Lists) -> np.ndarray:
        return recall_of(self.lesions(part), lists)

    def lists(self, part: slice, rank: Callable[[LabelledStudy, int], np.ndarray]) -> Lists:
        indices = range(len(self.studies))[part]
        return {self.studies[i].scores.study: rank(self.studies[i], i) for i in indices}

    def ranked(self, options: SuspicionOptions) -> Callable[[LabelledStudy, int], np.ndarray]:
        def rank(study: LabelledStudy, index: int) -> np.ndarray:
            p = finding_probabilities(
                study.scores, self.regions[index], self.priors, self.calibration, options.window
            )
            return study.scores.axis.frames[rank_rows(p, study.scores, options).rows]

        return rank

    def events(
        self, options: DecodeOptions, *, by_score: bool
    ) -> Callable[[LabelledStudy, int], np.ndarray]:
        def rank(study: LabelledStudy, index: int) -> np.ndarray:
            return event_frames(study, options, self.priors, self.calibration, by_score)

        return rank

    def grid(self) -> np.ndarray:
        """(windows, reaches) recall in the first 30 pictures on the studies that choose."""
        position = TOP_FRAMES.index(CHOSEN_AT)
        values = np.zeros((len(WINDOWS), len(REACHES)))
        for i, window in enumerate(WINDOWS):
            for j, reach in enumerate(REACHES):
                options = SuspicionOptions(window=window, reach=reach)
                lists = self.lists(self.chosen_on, self.ranked(options))
                counts = self.recall(self.chosen_on, lists)[:, position]
                values[i, j] = counts[:, 0].sum() / counts[:, 1].sum()
        return values

    def rows(self) -> Iterator[tuple[str, np.ndarray]]:
        def highest(study: LabelledStudy, index: int) -> np.ndarray:
            return rank_frames(study.scores)[:MOST]

        def folded(study: LabelledStudy, index: int) -> np.ndarray:
            return fold_near_duplicates(rank_frames(study.scores), 20, most=MOST)

        rankings = {
            "highest scores": highest,
            "events of paper": self.events(PAPER, by_score=False),
            "highest scores, folded within 20 frames": folded,
            "events of transit, by confidence": self.events(TRANSIT, by_score=True),
            "suspicious frames": self.ranked(SuspicionOptions()),
        }
        for name, rank in rankings.items():
            yield name, self.recall(self.reported, self.lists(self.reported, rank))
        uniform = [
            self.recall(self.reported, self.lists(self.reported, equally_spaced(count)))[:, i]
            for i, count in enumerate(TOP_FRAMES)
        ]
        yield "equally spaced", np.stack(uniform, axis=1)
        best = best_possible(self.lesions(self.reported))
        yield "the best that is possible", self.recall(self.reported, best)


def recall_of(lesions: Lesions, lists: Lists) -> np.ndarray:
    """(studies, N, 2): lesions found in the first N, and lesions."""
    result = top_recall(lesions, lists)
    found = [lesions.counts(result.found(count)).sum(axis=1) for count in TOP_FRAMES]
    total = lesions.counts().sum(axis=1)
    return np.stack([np.stack([f, total], axis=1) for f in found], axis=1)


def best_possible(lesions: Lesions) -> Lists:
    """Always the frame that lies in most lesions not yet found."""
    lists: Lists = {}
    for position, study in enumerate(lesions.studies):
        chosen = lesions.study == position
        start, stop = lesions.start[chosen], lesions.stop[chosen]
        frames: list[int] = []
        while start.size and len(frames) < MOST:
            covered = (start[None] <= start[:, None]) & (stop[None] > start[:, None])
            best = int(covered.sum(axis=1).argmax())
            frames.append(int(start[best]))
            start, stop = start[~covered[best]], stop[~covered[best]]
        lists[study] = np.array(frames, dtype=np.int64)
    return lists


def event_frames(
    study: LabelledStudy,
    options: DecodeOptions,
    priors: Priors,
    calibration: Calibration,
    by_score: bool,
) -> np.ndarray:
    """One picture of each finding, in the order of the events or by their scores."""
    events = decode(study.scores, options, priors, calibration)
    findings = [event for event in events if event.label in FINDINGS]
    if by_score:
        findings.sort(key=lambda event: -(event.score or 0.0))
    return np.array(representative_frames(findings, study.scores), dtype=np.int64)[:MOST]


def read_rows(root: Path, truth: Path | None) -> dict[str, list[np.ndarray]]:
    """Every list on studies that a model has read."""
    readings = read_labelled(root, truth)
    priors = load_priors()
    lists: dict[str, Lists] = {}
    for reading in readings:
        study, name = reading.labelled, reading.labelled.scores.study
        ranked = rank_frames(study.scores)
        rankings = {
            "highest scores": ranked[:MOST],
            "events of paper": event_frames(study, PAPER, priors, reading.calibration, False),
            "highest scores, folded within 20 frames": fold_near_duplicates(ranked, 20, most=MOST),
            "events of transit, by confidence": event_frames(
                study, TRANSIT, priors, reading.calibration, True
            ),
            "suspicious frames": np.array(suspicious_frames(reading.folder), np.int64)[:MOST],
        }
        for ranking, frames in rankings.items():
            lists.setdefault(ranking, {})[name] = frames
    lesions = lesions_of(
        [reading.truth for reading in readings],
        [Recording.from_scores(reading.labelled.scores) for reading in readings],
    )
    frames = sum(len(reading.labelled.scores.axis) for reading in readings)
    print(f"{len(readings)} readings of {frames:,} frames with {lesions.start.size} lesions")
    rows = {ranking: [recall_of(lesions, each)] for ranking, each in lists.items()}
    spaced = [
        {r.labelled.scores.study: equally_spaced(count)(r.labelled, 0) for r in readings}
        for count in TOP_FRAMES
    ]
    uniform = [recall_of(lesions, each)[:, i] for i, each in enumerate(spaced)]
    rows["equally spaced"] = [np.stack(uniform, axis=1)]
    rows["the best that is possible"] = [recall_of(lesions, best_possible(lesions))]
    return rows


def equally_spaced(count: int) -> Callable[[LabelledStudy, int], np.ndarray]:
    def rank(study: LabelledStudy, index: int) -> np.ndarray:
        frames = study.scores.axis.frames
        return frames[np.unique(((np.arange(count) + 0.5) * frames.size / count).astype(int))]

    return rank


def show_grid(values: np.ndarray) -> None:
    result = table(
        f"Recall in {CHOSEN_AT} pictures on the studies that choose the options",
        "rows of smoothing", *(f"reach {reach:g}" for reach in REACHES),
    )  # fmt: skip
    for window, row in zip(WINDOWS, values, strict=True):
        result.add_row(str(window), *(f"{value:.3f}" for value in row))
    console().print(result)


BASELINES = ("highest scores", "equally spaced", "events of paper")


def show(rows: dict[str, list[np.ndarray]]) -> None:
    totals = {name: np.sum(seeds, axis=0) for name, seeds in rows.items()}
    result = table(
        "Share of lesions in the first N pictures, the other studies, 95 % intervals over studies",
        "list", *(str(count) for count in TOP_FRAMES),
    )  # fmt: skip
    shares = {
        name: counts[..., 0].sum(axis=0) / counts[..., 1].sum(axis=0)
        for name, counts in totals.items()
    }
    order = [*BASELINES, *(name for name in totals if name not in BASELINES)]
    for name in order:
        counts = totals[name]
        bootstrap = StudyBootstrap(len(counts))
        cells = []
        for i in range(len(TOP_FRAMES)):
            low, high = bootstrap.ratio(counts[:, i, 0], counts[:, i, 1]) or (np.nan, np.nan)
            cells.append(f"{shares[name][i]:.3f} [{low:.3f}, {high:.3f}]")
        result.add_row(name, *cells)
    ours = shares["suspicious frames"]
    best = np.max([shares[name] for name in BASELINES], axis=0)
    result.add_row("times the best of the first three", *(f"{r:.2f}" for r in ours / best))
    console().print(result)


if __name__ == "__main__":
    main()
