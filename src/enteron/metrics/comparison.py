"""Two predictions compared: against the same truth, or with each other where there is none.

Against a truth, differences are paired: both predictions are resampled on the same studies, so that
what makes a study difficult for both cancels out. Without a truth, `agree` says how far two readers
agree: lesion by lesion, frame by frame (Cohen's kappa), and on where regions begin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.evaluation import Evaluation, StudyBootstrap
from enteron.metrics.honest import Borders, region_borders
from enteron.metrics.intervals import Interval
from enteron.metrics.lesion_evaluation import EVERYTHING, LesionEvaluation
from enteron.metrics.lesions import LesionOptions, Lesions, Recording, lesions_of
from enteron.metrics.official import Spans, flatten, merge_touching
from enteron.types import Annotation

# ---- Against the same truth


@dataclass(frozen=True)
class Difference:
    """A figure of both predictions; the interval is that of B minus A over studies."""

    name: str
    a: float | None
    b: float | None
    interval: Interval | None = None
    higher_is_better: bool = True

    @property
    def difference(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def better(self) -> str:
        """'A' or 'B' where the interval excludes 0, else ''."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return ""
        return "B" if (self.interval[0] > 0) == self.higher_is_better else "A"


@dataclass(frozen=True)
class Judged:
    """One prediction beside the truth."""

    evaluation: Evaluation
    lesions: LesionEvaluation


def compare(a: Judged, b: Judged) -> list[Difference]:
    """Paired differences of every figure that both predictions have, over the same studies."""
    bootstrap = a.evaluation.bootstrap

    def mean(
        name: str, of: Callable[[Evaluation], NDArray[np.float64]], *, higher: bool = True
    ) -> Difference:
        first, second = of(a.evaluation), of(b.evaluation)
        both = ~(np.isnan(first) | np.isnan(second))
        if not both.any():
            return Difference(name, None, None)
        gap = np.where(both, second - first, np.nan)
        return Difference(
            name, float(first[both].mean()), float(second[both].mean()), bootstrap.mean(gap), higher
        )

    def share(
        name: str,
        first: tuple[NDArray[np.generic], NDArray[np.generic]],
        second: tuple[NDArray[np.generic], NDArray[np.generic]],
        *,
        higher: bool = True,
    ) -> Difference:
        def value(above: NDArray[np.generic], below: NDArray[np.generic]) -> float | None:
            total = float(below.sum(dtype=np.float64))
            return float(above.sum(dtype=np.float64)) / total if total else None

        interval = bootstrap.ratio_difference(*first, *second)
        return Difference(name, value(*first), value(*second), interval, higher)

    def found(side: Judged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts = side.lesions.detection.counts(EVERYTHING)
        return counts.found.sum(axis=1), counts.lesions.sum(axis=1)

    def false_events(side: Judged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        false = side.lesions.detection.counts(EVERYTHING).false_events.sum(axis=1)
        return false, np.ones(false.size, dtype=np.int64)

    differences = [
        share("lesions found", found(a), found(b)),
        share("false events a study", false_events(a), false_events(b), higher=False),
        share("time under events", _flagged(a.lesions), _flagged(b.lesions), higher=False),
    ]
    if a.lesions.top is not None and b.lesions.top is not None:
        for count in a.lesions.top_recall:
            pairs = [_in_top(side.lesions, count) for side in (a, b)]
            differences.append(share(f"lesions in {count} pictures", *pairs))
    for position, score in enumerate(a.evaluation.official):
        at = f"at {score.threshold:g}"
        differences += [
            mean(f"challenge score {at}", lambda e, p=position: e.official[p].studies),
            mean(f"labels present {at}", lambda e, p=position: e.official[p].present_studies),
        ]
    differences.append(
        mean(
            "region onsets, mean error",
            lambda e: _row_means(np.abs(e.borders.error)),
            higher=False,
        )
    )
    return differences


def _flagged(lesions: LesionEvaluation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shares = np.array([study.flagged_share for study in lesions.shown.studies])
    return shares, np.ones(shares.size)


def _in_top(lesions: LesionEvaluation, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    assert lesions.top is not None
    truth = lesions.top.lesions
    return truth.counts(lesions.top.found(count)).sum(axis=1), truth.counts().sum(axis=1)


def _row_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rows,) mean of what is defined; NaN where nothing is."""
    defined = ~np.isnan(values)
    total = np.where(defined, values, 0.0).sum(axis=1)
    return np.where(defined.any(axis=1), total / np.maximum(defined.sum(axis=1), 1), np.nan)


# ---- Without a truth


@dataclass(frozen=True)
class LesionAgreement:
    """Lesions of one finding, or of all: a lesion is shared when the other reader's touches it."""

    a: int
    b: int
    shared_a: int  # lesions of A that one of B touches
    shared_b: int
    interval: Interval | None = None  # of `agreement`, over studies

    @property
    def agreement(self) -> float | None:
        """Share of all lesions of both readers that the other has too (positive agreement)."""
        total = self.a + self.b
        return (self.shared_a + self.shared_b) / total if total else None


@dataclass(frozen=True)
class Kappa:
    """Cohen's kappa of frames; None where neither reader uses the label, or both use it always."""

    value: float | None
    frames_a: int  # that A gives the label
    frames_b: int
    frames: int
    interval: Interval | None = None


@dataclass(frozen=True)
class Agreement:
    """How far two readers agree."""

    studies: tuple[str, ...]
    unit: str
    lesions: dict[str, LesionAgreement]  # by finding that either has, and "all"
    kappa: dict[str, Kappa]  # by label that either has
    regions: Kappa  # of the region of a frame, over all regions at once
    borders: Borders  # B's onsets beside A's


def agree(
    a: Sequence[Annotation],
    b: Sequence[Annotation],
    options: LesionOptions | None = None,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Agreement of two readers on the same studies, in the same order and unit."""
    for first, second in zip(a, b, strict=True):
        second.require_unit(first.unit)
    count = len(a)
    bootstrap = StudyBootstrap(count, resamples, seed=seed)
    recordings = [_joint_recording(x, y) for x, y in zip(a, b, strict=True)]
    lesions_a, lesions_b = (lesions_of(side, recordings, options) for side in (a, b))
    spans_a, spans_b = (merge_touching(flatten(x.segments for x in side)) for side in (a, b))
    frames = np.array([recording.frames for recording in recordings], dtype=np.int64)
    table = _label_counts(spans_a, spans_b, count)
    kappas = {
        label: _kappa(table[:, COLUMN[label]], frames, bootstrap)
        for label in LABELS
        if table[:, COLUMN[label], 1:].any()
    }
    return Agreement(
        tuple(annotation.study for annotation in a),
        str(a[0].unit),
        _lesion_agreement(lesions_a, lesions_b, bootstrap),
        kappas,
        _region_kappa(table[:, : len(REGIONS)], spans_a, spans_b, frames, bootstrap),
        region_borders(spans_a, spans_b, count),
    )


def _joint_recording(a: Annotation, b: Annotation) -> Recording:
    """From the first to the last frame that either reader annotates."""
    extents = [side.extent for side in (a, b) if side.segments] or [(0, 0)]
    start, stop = min(e[0] for e in extents), max(e[1] for e in extents)
    own = Recording.from_annotation(a)
    return Recording(a.study, a.unit, stop - start, None, own.original_frames)


def _lesion_agreement(
    a: Lesions, b: Lesions, bootstrap: StudyBootstrap
) -> dict[str, LesionAgreement]:
    shared_a, shared_b = _touched(a, b), _touched(b, a)
    tables = [a.counts(), b.counts(), a.counts(shared_a), b.counts(shared_b)]

    def figures(columns: Sequence[int]) -> LesionAgreement:
        of_a, of_b, both_a, both_b = (t[:, columns].sum(axis=1) for t in tables)
        return LesionAgreement(
            int(of_a.sum()),
            int(of_b.sum()),
            int(both_a.sum()),
            int(both_b.sum()),
            bootstrap.ratio(both_a + both_b, of_a + of_b),
        )

    present = (tables[0] + tables[1]).sum(axis=0) > 0
    by_finding = {
        finding: figures([column]) for column, finding in enumerate(FINDINGS) if present[column]
    }
    return {**by_finding, "all": figures(range(len(FINDINGS)))}


def _touched(lesions: Lesions, others: Lesions) -> NDArray[np.bool_]:
    """Whether each lesion overlaps one of the others of its study and finding; both disjoint."""
    if not len(lesions) or not len(others):
        return np.zeros(len(lesions), dtype=bool)
    stride = int(max(lesions.stop.max(), others.stop.max())) + 1
    own = (lesions.study * len(FINDINGS) + lesions.finding) * stride
    other = (others.study * len(FINDINGS) + others.finding) * stride
    started = np.searchsorted(np.sort(other + others.start), own + lesions.stop, side="left")
    ended = np.searchsorted(np.sort(other + others.stop), own + lesions.start, side="right")
    return started > ended


def _label_counts(a: Spans, b: Spans, studies: int) -> NDArray[np.int64]:
    """(studies, 17, 3): frames that both give a label, that A gives it, and that B gives it."""
    counts = np.zeros((studies * len(LABELS), 3), dtype=np.int64)
    np.add.at(counts[:, 1], a.group, a.stop - a.start)
    np.add.at(counts[:, 2], b.group, b.stop - b.start)
    np.add.at(counts[:, 0], *_shared_frames(a, b))
    return counts.reshape(studies, len(LABELS), 3)


def _shared_frames(a: Spans, b: Spans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group and length of every overlap of spans of the same group; both sides are merged."""
    if not len(a) or not len(b):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    stride = int(max(a.stop.max(), b.stop.max())) + 1
    order = np.argsort(b.group * stride + b.start)
    starts, stops = (b.group * stride + b.start)[order], (b.group * stride + b.stop)[order]
    total = np.concatenate(([0], np.cumsum(stops - starts)))

    def frames_before(position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames of B before a position on the joint axis."""
        index = np.searchsorted(starts, position, side="right")
        inside = (
            np.minimum(position, stops[np.maximum(index - 1, 0)]) - starts[np.maximum(index - 1, 0)]
        )
        return total[np.maximum(index - 1, 0)] + np.where(index > 0, inside, 0)

    base = a.group * stride
    return a.group, frames_before(base + a.stop) - frames_before(base + a.start)


def cohen_kappa(agreed: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """(observed - expected) / (1 - expected) of shares; NaN where chance alone always agrees."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected < 1, (agreed - expected) / (1 - expected), np.nan)


def _kappa(
    counts: NDArray[np.int64], frames: NDArray[np.int64], bootstrap: StudyBootstrap
) -> Kappa:
    """Of one label; `counts` are (studies, 3): both, A, B."""

    def kappa(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        both, of_a, of_b, total = np.moveaxis(sums, -1, 0)
        neither = total - of_a - of_b + both
        expected = (of_a * of_b + (total - of_a) * (total - of_b)) / np.maximum(total, 1) ** 2
        return cohen_kappa((both + neither) / np.maximum(total, 1), expected)

    table = np.column_stack([counts, frames]).astype(np.float64)
    value = float(kappa(table.sum(axis=0)))
    return Kappa(
        None if np.isnan(value) else value,
        int(counts[:, 1].sum()),
        int(counts[:, 2].sum()),
        int(frames.sum()),
        bootstrap.statistic(table, kappa),
    )


def _region_kappa(
    table: NDArray[np.int64],
    a: Spans,
    b: Spans,
    frames: NDArray[np.int64],
    bootstrap: StudyBootstrap,
) -> Kappa:
    """Of the region of a frame; a frame without a region is a class of its own.

    A reader gives a frame one region. Where a file has two, both count.
    """
    both, of_a, of_b = (table[:, :, i].astype(np.float64) for i in range(3))
    any_a, any_b = of_a.sum(axis=1), of_b.sum(axis=1)
    neither = frames - _union(a, b, frames.size)
    columns = np.column_stack(
        [both.sum(axis=1) + neither, of_a, of_b, frames - any_a, frames - any_b, frames]
    )

    def kappa(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        count = len(REGIONS)
        total = np.maximum(sums[..., -1], 1)
        first, second = sums[..., 1 : 1 + count], sums[..., 1 + count : 1 + 2 * count]
        outside = sums[..., 1 + 2 * count] * sums[..., 2 + 2 * count]
        expected = ((first * second).sum(axis=-1) + outside) / total**2
        return cohen_kappa(sums[..., 0] / total, expected)

    value = float(kappa(columns.sum(axis=0)))
    return Kappa(
        None if np.isnan(value) else value,
        int(any_a.sum()),
        int(any_b.sum()),
        int(frames.sum()),
        bootstrap.statistic(columns.astype(np.float64), kappa),
    )


def _union(a: Spans, b: Spans, studies: int) -> NDArray[np.int64]:
    """(studies,) frames to which either reader gives some region."""
    region = [span.where(span.column < len(REGIONS)) for span in (a, b)]
    joined = Spans(
        np.concatenate([part.study for part in region]),
        np.concatenate([part.start for part in region]),
        np.concatenate([part.stop for part in region]),
    )
    merged = merge_touching(joined)
    covered = np.zeros(studies, dtype=np.int64)
    np.add.at(covered, merged.group, merged.stop - merged.start)
    return covered


def summarise_agreement(agreement: Agreement) -> dict[str, Any]:
    """The dictionary of `enteron compare A B --json`."""

    def kappa(k: Kappa) -> dict[str, Any]:
        return {
            "kappa": k.value,
            "interval": k.interval,
            "frames_a": k.frames_a,
            "frames_b": k.frames_b,
            "frames": k.frames,
        }

    errors = np.abs(agreement.borders.error)
    return {
        "studies": list(agreement.studies),
        "unit": agreement.unit,
        "lesions": {
            name: {
                "a": part.a,
                "b": part.b,
                "shared_a": part.shared_a,
                "shared_b": part.shared_b,
                "agreement": part.agreement,
                "interval": part.interval,
            }
            for name, part in agreement.lesions.items()
        },
        "kappa": {label: kappa(k) for label, k in agreement.kappa.items()},
        "regions": kappa(agreement.regions),
        "borders": {
            region: {
                "median": _quantile(errors[:, column], 0.5),
                "p90": _quantile(errors[:, column], 0.9),
                "n": int((~np.isnan(errors[:, column])).sum()),
                "only_a": int(agreement.borders.missed[:, column].sum()),
                "only_b": int(agreement.borders.invented[:, column].sum()),
            }
            for column, region in enumerate(REGIONS)
        },
    }


def _quantile(values: NDArray[np.float64], q: float) -> float | None:
    defined = values[~np.isnan(values)]
    return float(np.quantile(defined, q)) if defined.size else None
