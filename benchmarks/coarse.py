"""Coarse to fine against reading every frame: lesions lost, frames encoded, pictures of the list.

`enteron bench coarse -- ROOT --model MODEL --features FOLDER`: studies with labels, drawn at full
length (`enteron phantom long --studies 3 --frames 20000 --video --rarity 0.3`) or real
(`--real`: the runs of frames of Kvasir-Capsule, with the model in the box unless another is named).
Every study is encoded once, all of it, without the mirror image, and stored in FOLDER, with its
small pictures; all settings are replayed from these by the code that `enteron read --coarse` runs.
The glance and the estimate of what lies between two frames are fitted for each group of studies on
the others (`--folds`).

A lesion is lost if the reading of every frame finds it (an event of its finding whose picture lies
in it) and the coarse one does not. For some of these an event still overlaps the lesion, and its
picture has moved; "no event" counts the others. `--write MODEL` fits the estimate on all studies
and stores it in that model's folder. `--train DATA --train-features FOLDER` first trains `lite` on
other drawn studies, without mirror images, and writes it to MODEL; glances learn from these, too.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._inference_study import REAL
from benchmarks._plain_model import train_plain
from enteron.calibration import Calibration
from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.galar import Entry
from enteron.datasets.label_table import truth_events
from enteron.datasets.layouts import open_dataset
from enteron.decoding import DecodedEvent, decode, preset
from enteron.decoding.suspicious import rank_suspicious
from enteron.fitting.coarse import (
    FullReading,
    fit_coarse,
    full_reading,
    refinement_of,
    watched_labels,
)
from enteron.fitting.glance import SmallStudy, fit_glance, left_out_guesses
from enteron.folders.model import (
    CALIBRATION,
    LoadedModel,
    calibration_hash,
    decoding_priors,
    default_model,
    load_calibration,
    open_model,
    save_coarse,
)
from enteron.folders.shown import representative_frames
from enteron.inference.coarse_chunks import clip_log_odds
from enteron.inference.coarse_to_fine import (
    CHUNK,
    CoarseEstimate,
    CoarseOptions,
    CoarsePolicy,
    looked_at,
    nearest_rows,
)
from enteron.inference.embed import embed_study
from enteron.inference.glance import glance_content, small_picture
from enteron.inference.pictures import prepared_frames
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import clip_offsets, score_study
from enteron.inference.store import Embeddings
from enteron.inference.views import VIEW_SETS
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.metrics.intervals import wilson_interval
from enteron.metrics.lesions import Lesions, Recording, ShownEvents, detect_lesions, lesions_of
from enteron.metrics.top_frames import top_recall
from enteron.model.options import FEATURES
from enteron.priors import Priors
from enteron.study import Study
from enteron.types import Annotation, Event, Scores, Unit

THINNINGS = (2, 3, 4)
STRIDES = (16, 24)
LIMITS = (0.002, 0.005, 0.01, 0.02)
CONFIDENT = 0.5
TOP = 100


@dataclass(frozen=True)
class Case:
    """A study with its full reading and its truth."""

    name: str
    reading: FullReading
    scores: Scores
    truth: Annotation
    step: int  # of frame numbers, where nothing is missing


@dataclass(frozen=True)
class Found:
    """What one reading of a study shows."""

    detected_at: NDArray[np.float64]  # (lesions,) confidence of the best event in it; -inf: none
    covered: NDArray[np.bool_]  # (lesions,) whether an event of its finding overlaps it
    listed: NDArray[np.bool_]  # (lesions,) whether one of the first pictures lies in it
    events: tuple[DecodedEvent, ...]  # of findings


@dataclass(frozen=True)
class Outcome:
    """One setting on one study."""

    encoded: int
    rows: int
    expected: float  # gaps with something in them that was not seen, as estimated
    really: int  # and as the full reading shows
    found: Found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path, nargs="?", help="labelled studies")
    parser.add_argument("--real", action="store_true", help="Kvasir-Capsule in ../shared")
    parser.add_argument("--model", type=Path, help="model folder (default: the one in the box)")
    parser.add_argument("--features", type=Path, required=True, help="folder for embeddings")
    parser.add_argument("--folds", type=int, default=6, help="groups of studies left out in turn")
    parser.add_argument("--strides", type=int, nargs="+", default=STRIDES)
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    parser.add_argument("--write", type=Path, help="model folder that gets the estimate")
    parser.add_argument("--train", type=Path, help="drawn studies to train MODEL on first")
    parser.add_argument("--train-features", type=Path, help="folder for their embeddings")
    arguments = parser.parse_args()
    if (arguments.root is None) != arguments.real:
        parser.error("give a root, or --real")
    folder = arguments.model or default_model()
    if arguments.train and not folder.exists():
        train_plain(arguments.train, arguments.train_features, folder)
    bench = Bench(folder, arguments.features)
    cases, small = bench.cases(REAL if arguments.real else arguments.root)
    groups = [group.tolist() for group in np.array_split(range(len(cases)), arguments.folds)]
    groups = [group for group in groups if group]
    others: list[SmallStudy] = []
    if arguments.train:
        others = Bench(folder, arguments.train_features).cases(arguments.train)[1]
    guesses = left_out_guesses([*small, *others], groups)
    cases = [
        replace(case, reading=replace(case.reading, guesses=own))
        for case, own in zip(cases, guesses, strict=True)
    ]
    bench.report(cases, groups, arguments.strides, arguments.limits)
    if arguments.write:
        content = glance_content(fit_glance([*small, *others]))
        estimate = bench.fit([case.reading for case in cases], sha256(content).hexdigest())
        save_coarse(estimate, content, arguments.write)
        print(f"wrote the estimate of {estimate.studies} studies, {estimate.rows:,} frames")


class Bench:
    """A model, and what it takes to read with it."""

    def __init__(self, folder: Path, features: Path) -> None:
        self.folder, self.features = folder, features
        self.model: LoadedModel = open_model(folder)
        calibrated = (folder / CALIBRATION).exists()
        self.calibration = load_calibration(folder) if calibrated else Calibration()
        self.calibration_hash = calibration_hash(folder) if calibrated else None
        self.priors: Priors = decoding_priors(self.calibration, folder)

    def cases(self, root: Path) -> tuple[list[Case], list[SmallStudy]]:
        """Every study under a root, encoded once, and as a glance sees it."""
        backbone = self.model.backbone
        encoder = make_encoder(backbone, default_runtime(backbone))
        self.features.mkdir(parents=True, exist_ok=True)
        cases: list[Case] = []
        small: list[SmallStudy] = []
        for name, entry in open_dataset(root).studies.items():
            with entry.open() as study:
                embeddings = embed_study(
                    study, encoder, self.features / f"{name}.npy", views=VIEW_SETS["none"]
                )
                pictures = self._small_pictures(study, name)
                scores = score_study(
                    self.model.head,
                    embeddings,
                    views="none",
                    times=study.times(),
                    frames_per_row=study.frames_per_row,
                )
                reading = full_reading(self.model.head, embeddings, scores.row_frames, "none")
                truth = _truth(entry)
                cases.append(Case(name, reading, scores, truth, study.axis.step))
                small.append(SmallStudy(pictures, reading.log_odds))
            print(f"{name}: {len(embeddings)} frames, {scores.row_frames:.2f} apart", flush=True)
        return cases, small

    def _small_pictures(self, study: Study, name: str) -> NDArray[np.uint8]:
        """Of all readable frames, stored beside the embeddings."""
        path = self.features / f"{name}-small.npy"
        if not path.exists():
            preprocessing = self.model.record.backbone.preprocessing
            frames = prepared_frames(study, 0, preprocessing)
            images = (frame.image for frame in frames)
            np.save(path, np.stack([small_picture(image) for image in images if image is not None]))
        return np.load(path, mmap_mode="r")

    def fit(self, readings: Sequence[FullReading], glance: str = "0" * 64) -> CoarseEstimate:
        """The estimate of these readings, made with this glance."""
        refinement = refinement_of(self.calibration, self.priors)
        return fit_coarse(
            self.model.head,
            readings,
            watched_labels(self.calibration, readings, refinement),
            weights=self.model.record.weights_hash,
            calibration=self.calibration_hash,
            glance=glance,
            refinement=refinement,
        )

    def report(
        self,
        cases: Sequence[Case],
        groups: Sequence[Sequence[int]],
        strides: Sequence[int],
        limits: Sequence[float],
    ) -> None:
        """The table of all settings."""
        lesions = [_lesions(case) for case in cases]
        full = [
            self.found(case, case.scores, case.reading.embeddings, own)
            for case, own in zip(cases, lesions, strict=True)
        ]
        estimates: dict[int, CoarseEstimate] = {}
        for group in groups:
            others = [case.reading for k, case in enumerate(cases) if k not in group]
            estimates |= dict.fromkeys(group, self.fit(others))
        sure = sum(int((found.detected_at >= CONFIDENT).sum()) for found in full)
        unsure = sum(int(np.isfinite(found.detected_at).sum()) for found in full) - sure
        frames = sum(len(case.scores.axis) for case in cases)
        print(
            f"\n{len(cases)} studies, {frames:,} frames, {sum(map(len, lesions))} lesions; every "
            f"frame read: {sure} found with a confidence of {CONFIDENT} or more, {unsure} with "
            f"less; {sum(len(found.events) for found in full)} events of findings; recall in the "
            f"first {TOP} pictures {_listed(full):.3f}\n"
        )
        print(
            "| first | limit | encoded | fewer | sure lesions lost (95 % below) | no event ", end=""
        )
        print("| below .5 | others lost (95 % below) | no event | events kept | top 100 ", end="")
        print("| expected unseen | really |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for every in THINNINGS:
            outcomes = [
                self.thinned(case, every, own) for case, own in zip(cases, lesions, strict=True)
            ]
            _print_row(f"every {every}th, no more", "", outcomes, full)
        for stride in strides:
            for limit in limits:
                options = CoarseOptions(stride=stride, limit=limit)
                outcomes = [
                    self.replay(case, options, estimates[k], lesions[k])
                    for k, case in enumerate(cases)
                ]
                _print_row(f"every {stride}th", f"{limit:g}", outcomes, full)

    def thinned(self, case: Case, every: int, lesions: Lesions) -> Outcome:
        """The simplest way to encode less."""
        embeddings = case.reading.embeddings
        rows = embeddings.readable[::every]
        source = nearest_rows(rows, len(embeddings))
        source = np.where(embeddings.source >= 0, source, -1)
        return self.outcome(case, source, 0.0, None, lesions)

    def replay(
        self, case: Case, options: CoarseOptions, estimate: CoarseEstimate, lesions: Lesions
    ) -> Outcome:
        """What `enteron read --coarse` does, from stored embeddings."""
        source, expected = replayed(case, options, estimate, self.model)
        return self.outcome(case, source, expected, estimate, lesions)

    def outcome(
        self,
        case: Case,
        source: NDArray[np.int64],
        expected: float,
        estimate: CoarseEstimate | None,
        lesions: Lesions,
    ) -> Outcome:
        full = case.reading.embeddings
        readable = source >= 0
        features = np.asarray(full.features)[np.maximum(source, 0)].copy()
        features[~readable] = np.nan
        key = full.key.model_copy(update={"coarse": "replayed"})
        record = full.record.model_copy(update={"key": key})
        embeddings = replace(full, record=record, features=features, source=source.astype(np.int32))
        scores = score_study(
            self.model.head,
            embeddings,
            views="none",
            frames_per_row=case.scores.frames_per_row,
        )
        scores = replace(scores, times=case.scores.times)
        really = 0 if estimate is None else _really_unseen(case, source, estimate)
        found = self.found(case, scores, embeddings, lesions)
        encoded = int((source == np.arange(source.size)).sum())
        return Outcome(encoded, int(readable.sum()), expected, really, found)

    def found(self, case: Case, scores: Scores, embeddings: Embeddings, lesions: Lesions) -> Found:
        """Events and list of these scores beside the lesions."""
        events = decode(scores, preset("transit"), self.priors, self.calibration)
        findings = [event for event in events if event.label in FINDINGS]
        findings_shown = [Event(e.start, e.stop, e.label, e.score) for e in findings]
        shown = {case.name: findings_shown}
        pictures = {case.name: list(representative_frames(findings_shown, scores))}
        recording = Recording.from_scores(scores)
        detection = detect_lesions(
            lesions, ShownEvents.from_events(shown, Unit.FRAME, pictures), [recording]
        )
        features = np.asarray(embeddings.appearance)
        suspects = rank_suspicious(scores, events, self.priors, self.calibration, None, features)
        ranked = {case.name: np.array([suspect.frame for suspect in suspects], np.int64)}
        listed = top_recall(lesions, ranked).found(TOP)
        covered = np.array(
            [
                any(e.label == finding and e.start < stop and start < e.stop for e in findings)
                for finding, start, stop in _spans(lesions)
            ],
            np.bool_,
        )
        return Found(detection.detected_at, covered, listed, tuple(findings))


def replayed(
    case: Case, options: CoarseOptions, estimate: CoarseEstimate, model: LoadedModel
) -> tuple[NDArray[np.int64], float]:
    """For every row the row whose features it takes, and how much is expected to be unseen."""
    embeddings = case.reading.embeddings
    policy = CoarsePolicy(options, estimate, case.reading.row_frames)
    head = model.head
    guesses = np.full((len(embeddings), len(LABELS)), np.nan, np.float32)
    guesses[embeddings.readable] = case.reading.guesses
    source = np.empty(len(embeddings), np.int64)
    expected = 0.0
    for first in range(0, len(embeddings), CHUNK):
        part = slice(first, first + CHUNK)
        features = np.asarray(embeddings.features[part], np.float32)

        def judge(
            rows: NDArray[np.int64],
            of: NDArray[np.int64],
            features: NDArray[np.float32] = features,
        ) -> tuple[NDArray[np.float64], NDArray[np.floating]]:
            own = features[rows]
            return clip_log_odds(head, own, of), own[:, 0, :FEATURES]

        looked = looked_at(
            policy, embeddings.frames[part], case.step, clip_offsets(head), guesses[part],
            lambda rows: None, judge,
        )  # fmt: skip
        source[part] = np.where(looked.source >= 0, looked.source + first, -1)
        expected += looked.missed
    return source, expected


def _really_unseen(case: Case, source: NDArray[np.int64], estimate: CoarseEstimate) -> int:
    """Gaps between encoded rows in which the full reading crosses a level that both ends do not.

    Of findings: whether a landmark counts depends on where borders of regions are.
    """
    embeddings = case.reading.embeddings
    log_odds = np.full((len(embeddings), len(LABELS)), np.nan, np.float32)
    log_odds[embeddings.readable] = case.reading.refined(estimate.refinement)
    encoded = np.flatnonzero(source == np.arange(source.size))
    count = 0
    for start, stop in zip(encoded[:-1].tolist(), encoded[1:].tolist(), strict=True):
        inside = log_odds[start + 1 : stop]
        inside = inside[~np.isnan(inside[:, 0])]
        if not len(inside) or start // CHUNK != stop // CHUNK:
            continue
        for label, watched in estimate.labels.items():
            if label not in FINDINGS:
                continue
            ends = log_odds[[start, stop], COLUMN[label]] >= watched.level
            within = inside[:, COLUMN[label]] >= watched.level
            if ends[0] == ends[1] and (within != ends[0]).any():
                count += 1
                break
    return count


def _lesions(case: Case) -> Lesions:
    return lesions_of([case.truth], [Recording.from_scores(case.scores)])


def _spans(lesions: Lesions) -> list[tuple[str, int, int]]:
    """Finding, first frame and end of every lesion."""
    names = [FINDINGS[number] for number in lesions.finding.tolist()]
    return list(zip(names, lesions.start.tolist(), lesions.stop.tolist(), strict=True))


def _truth(entry: DatasetStudy) -> Annotation:
    """What the labels say; frames about which a label is unknown do not show it."""
    if isinstance(entry, Entry):
        return truth_events(entry.table(), Unit.FRAME)
    labelled = entry.labelled_frames()
    events: list[Event] = []
    for label in FINDINGS:
        present = labelled.labels.present[:, COLUMN[label]]
        frames = labelled.frames[present].tolist()
        start = previous = None
        for frame in [*frames, None]:
            if previous is not None and start is not None and frame != previous + 1:
                events.append(Event(start, previous + 1, label))
                start = frame
            elif start is None:
                start = frame
            previous = frame
    return Annotation.from_events(entry.id, Unit.FRAME, events)


def _listed(found: Sequence[Found]) -> float:
    listed = np.concatenate([each.listed for each in found])
    return float(listed.mean()) if listed.size else float("nan")


def _kept(before: Found, after: Found) -> int:
    """Events of the full reading that an event of the same finding overlaps in the coarse one."""
    return sum(
        any(b.label == a.label and b.start < a.stop and a.start < b.stop for b in after.events)
        for a in before.events
    )


def _print_row(first: str, limit: str, outcomes: Sequence[Outcome], full: Sequence[Found]) -> None:
    before = np.concatenate([found.detected_at for found in full])
    after = np.concatenate([outcome.found.detected_at for outcome in outcomes])
    covered = np.concatenate([outcome.found.covered for outcome in outcomes])
    sure = before >= CONFIDENT
    unsure = np.isfinite(before) & ~sure
    share = sum(o.encoded for o in outcomes) / sum(o.rows for o in outcomes)
    cells = []
    for group in (sure, unsure):
        lost = int(np.isneginf(after[group]).sum())
        total = int(group.sum())
        upper = wilson_interval(lost, total)[1]
        gone = int((np.isneginf(after) & ~covered & group).sum())
        cells.append(f"{lost} of {total} ({upper:.1%}) | {gone}")
    weaker = int((after[sure] < CONFIDENT).sum())
    now, then = _listed([outcome.found for outcome in outcomes]), _listed(full)
    expected = sum(outcome.expected for outcome in outcomes)
    really = sum(outcome.really for outcome in outcomes)
    counted = f"{expected:.1f} | {really}" if limit else " | "
    kept = sum(_kept(b, o.found) for b, o in zip(full, outcomes, strict=True))
    events = sum(len(found.events) for found in full)
    print(
        f"| {first} | {limit} | {share:.1%} | {1 / share:.2f} | {cells[0]} | {weaker} "
        f"| {cells[1]} | {kept} of {events} | {now:.3f} ({now - then:+.3f}) | {counted} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
