"""Fitting the priors to annotated studies: `fit_priors`, and one function per block."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError, LabelError
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.priors.statistics import (
    MIN_STANDARD_ERRORS,
    BackSteps,
    BestShare,
    Cooccurrence,
    Duration,
    Finding,
    Findings,
    GivenRegion,
    Landmark,
    Landmarks,
    LogNormal,
    Overlap,
    PairTable,
    Presence,
    Priors,
    PublishedDuration,
    Regions,
    Share,
    correlation_to_table,
    fit_latent,
    fit_sizes,
    positive_definite,
    round_significant,
    split_bursts,
)
from enteron.runs import Runs, runs_of
from enteron.types import Annotation, Unit

# ---- published figures of all 80 Galar studies, used beside the fitted ones

PUBLISHED_SOURCE: Final = "the published statistics of all 80 Galar studies"

PUBLISHED_STUDIES: Final = 80

_SHOWING: Final = {
    "mouth": 65,
    "esophagus": 65,
    "stomach": 75,
    "small intestine": 80,
    "colon": 71,
    "z-line": 26,
    "pylorus": 58,
    "ileocecal valve": 53,
    "active bleeding": 13,
    "angiectasia": 41,
    "blood": 51,
    "erosion": 45,
    "erythema": 30,
    "hematin": 22,
    "lymphangioectasis": 39,
    "polyp": 33,
    "ulcer": 16,
}

PUBLISHED_PRESENCE: Final = {
    label: Share(count=count, n=PUBLISHED_STUDIES) for label, count in _SHOWING.items()
}
"""Studies that show each label. Shares are published to two decimals; these are the only whole
numbers of 80 that round to them (stomach: from the published odds of its absence, 0.07)."""

PUBLISHED_DURATIONS: Final = {
    "mouth": PublishedDuration(n=65, median=45, log_sd=1.6),
    "esophagus": PublishedDuration(n=65, median=50, log_sd=1.6),
    "stomach": PublishedDuration(n=75, median=3090, log_sd=1.3),
    "small intestine": PublishedDuration(n=80, median=39331, log_sd=0.7),
    "colon": PublishedDuration(n=71, median=19671, log_sd=1.5),
}
"""Total time in each region, in original frames."""

PUBLISHED_BACK_STEP_STUDIES: Final = Share(count=10, n=PUBLISHED_STUDIES)
PUBLISHED_BACK_STEPS: Final = 26

PUBLISHED_LANDMARK_ENDS: Final = {
    "z-line": Share(count=23, n=26),
    "pylorus": Share(count=38, n=56),
    "ileocecal valve": Share(count=33, n=53),
}
"""Studies in which the landmark ends the region before it, of those that show both."""


BURST_GAP: Final = 100
"""Rows without the finding that end a burst. Gaps spread over all scales from 1 row to
10,000, so no threshold is natural; seven to nine of ten gaps are below this one."""

POSITIONS: Final = ("ends", "starts", "across", "before", "after")
"""How the main run of a landmark lies to the change of region."""


@dataclass(frozen=True)
class ObservedStudy:
    """The rows of a study from the first labelled one to the last."""

    study: str
    stride: int  # original frames per row
    labels: NDArray[np.bool_]  # (rows, 17)
    region: NDArray[np.int8]  # (rows,) index into REGIONS, -1 without a region

    def shows(self, label: str) -> bool:
        return bool(self.labels[:, COLUMN[label]].any())

    def runs(self, label: str) -> Runs:
        return runs_of(self.labels[:, COLUMN[label]])

    def region_intervals(self) -> list[tuple[int, int, int]]:
        """(region, start, stop) of every stretch in one region; rows without one are left out."""
        cuts = np.flatnonzero(np.diff(self.region)) + 1
        edges = [0, *cuts.tolist(), self.region.size]
        spans = itertools.pairwise(edges)
        return [(int(self.region[a]), a, b) for a, b in spans if self.region[a] >= 0]


def fit_priors(
    annotations: Sequence[Annotation],
    strides: Mapping[str, int],
    source: str,
    published: bool = False,
) -> Priors:
    """Priors of annotated studies; `strides` gives each study's original frames per row.

    With `published`, the figures known of all 80 Galar studies are put beside the fitted ones.
    """
    return fit_observed(observe(annotations, strides), source, published)


def fit_observed(studies: Sequence[ObservedStudy], source: str, published: bool = False) -> Priors:
    """Priors of studies that already are matrices."""
    landmarks = fit_landmarks(studies, source, published)
    needs = {label: landmark.needs for label, landmark in landmarks.labels.items()}
    strides = Counter(study.stride for study in studies)
    return Priors(
        source=source,
        studies=len(studies),
        rows=sum(study.region.size for study in studies),
        strides={str(stride): count for stride, count in sorted(strides.items())},
        presence=fit_presence(studies, needs, source, published),
        regions=fit_regions(studies, source, published),
        back_steps=fit_back_steps(studies, source, published),
        landmarks=landmarks,
        findings=fit_findings(studies, source),
        cooccurrence=fit_cooccurrence(studies, source),
        given_region=fit_given_region(studies, source),
    )


def study_from_labels(study: str, stride: int, labels: NDArray[np.bool_]) -> ObservedStudy:
    """A study from its label matrix (rows, 17)."""
    regions = labels[:, : len(REGIONS)]
    count = regions.sum(axis=1)
    if (count > 1).any():
        row = int(np.flatnonzero(count > 1)[0])
        names = [REGIONS[i] for i in np.flatnonzero(regions[row])]
        raise LabelError(
            f"study {study} is in {' and '.join(names)} at once, {row} rows after its first",
            "a row shows one region; correct the labels",
        )
    region = np.where(count == 1, regions.argmax(axis=1), -1).astype(np.int8)
    return ObservedStudy(study, stride, labels, region)


def observe(annotations: Sequence[Annotation], strides: Mapping[str, int]) -> list[ObservedStudy]:
    """Every annotation as a matrix; a study without events or without stride is refused."""
    if not annotations:
        raise EnteronError("there are no studies to fit priors to", "give a truth with studies")
    studies: list[ObservedStudy] = []
    for annotation in annotations:
        annotation.require_unit(Unit.INDEX)
        name = annotation.study
        stride = strides.get(name)
        if stride is None or stride < 1:
            raise EnteronError(
                f"the number of original frames per row of study {name} is unknown",
                "give its stride with --stride-of: 5 where every fifth frame is stored, "
                "1 where all are",
            )
        if not annotation.segments:
            raise LabelError(f"study {name} has no events", "leave it out")
        first, last = annotation.extent
        labels = np.zeros((last - first, len(LABELS)), dtype=np.bool_)
        for segment in annotation.segments:
            columns = [COLUMN[label] for label in segment.labels]
            labels[segment.start - first : segment.stop - first, columns] = True
        studies.append(study_from_labels(name, stride, labels))
    return studies


def fit_presence(
    studies: Sequence[ObservedStudy],
    needs: dict[str, tuple[str, ...]],
    source: str,
    published: bool,
) -> Presence:
    """Shares of studies that show each label, and how the presences are correlated.

    `needs` names the regions without which a landmark cannot be.
    """
    labels = [*REGIONS, *LANDMARKS, *FINDINGS]
    present = np.array([[study.shows(label) for label in labels] for study in studies])
    latent: PairTable = {}
    for group in (REGIONS, LANDMARKS + FINDINGS):
        columns = [labels.index(label) for label in group]
        possible = np.ones((len(studies), len(group)), dtype=np.bool_)
        for column, label in enumerate(group):
            for region in needs.get(label, ()):
                possible[:, column] &= present[:, labels.index(region)]
        latent |= correlation_to_table(fit_latent(present[:, columns], possible), group)
    used = f"shares: {PUBLISHED_SOURCE}, with the fitted ones beside them; " if published else ""
    return Presence(
        source=f"{used}{'the rest' if published else 'all'}: {source}",
        unit="studies; latent: correlation of the Gaussian variables behind the presences",
        labels={
            label: BestShare(
                fitted=Share(count=int(present[:, i].sum()), n=len(studies)),
                published=PUBLISHED_PRESENCE[label] if published else None,
            )
            for i, label in enumerate(labels)
        },
        latent=latent,
    )


def fit_regions(studies: Sequence[ObservedStudy], source: str, published: bool) -> Regions:
    """Total time in each region, how these times are correlated, and rows without a region."""
    rows = np.array([np.bincount(s.region[s.region >= 0], minlength=5) for s in studies])
    frames = rows * np.array([[s.stride] for s in studies])
    durations = {
        region: Duration(
            fitted=fit_log_normal(frames[frames[:, i] > 0, i].tolist()),
            published=PUBLISHED_DURATIONS[region] if published else None,
        )
        for i, region in enumerate(REGIONS)
    }
    beside = " (the published medians and spreads stand beside and are not used)"
    return Regions(
        source=source + (beside if published else ""),
        unit="original frames (rows times stride), natural logarithms; without: rows",
        durations=durations,
        correlation=correlation_to_table(_log_correlation(frames), REGIONS),
        without=Share(
            count=sum(int((s.region < 0).sum()) for s in studies),
            n=sum(s.region.size for s in studies),
        ),
    )


def fit_log_normal(frames: Sequence[float]) -> LogNormal:
    """Mean and spread of the logarithms."""
    if not frames:
        return LogNormal(n=0, log_mean=0, log_sd=0, median=1)
    logs = np.log(frames)
    return LogNormal(
        n=len(frames),
        log_mean=round(float(logs.mean()), 4),
        log_sd=round(float(logs.std(ddof=1)), 4) if len(frames) > 1 else 0.0,
        median=round_significant(float(np.median(frames)), 6),
    )


def _log_correlation(frames: NDArray[np.int64]) -> NDArray[np.float64]:
    """Correlations (k, k) of the log durations (studies, k), over studies that show both."""
    k = frames.shape[1]
    matrix = np.eye(k)
    for a in range(k):
        for b in range(a):
            shown = (frames[:, a] > 0) & (frames[:, b] > 0)
            if shown.sum() < 3:
                continue
            logs = np.log(frames[shown][:, [a, b]])
            if logs.std(axis=0).min() == 0:
                continue
            r = float(np.corrcoef(logs.T)[0, 1])
            if abs(r) * math.sqrt(shown.sum()) >= MIN_STANDARD_ERRORS:
                matrix[a, b] = matrix[b, a] = r
    return positive_definite(matrix)


def fit_back_steps(studies: Sequence[ObservedStudy], source: str, published: bool) -> BackSteps:
    """Steps from a region to an earlier one.

    Around a step back lie an interval in the later region and one in the earlier. One of the two is
    usually short, a glance ahead or a glance back; so the shorter and the longer are fitted.
    """
    shorter: list[float] = []
    longer: list[float] = []
    early = steps = studies_with_steps = 0
    borders: dict[str, int] = dict.fromkeys(REGIONS[1:], 0)
    for study in studies:
        crossed: set[str] = set()
        for interval, following in itertools.pairwise(study.region_intervals()):
            if following[0] >= interval[0]:
                continue
            later, earlier = (
                (stop - start) * study.stride for _, start, stop in (interval, following)
            )
            shorter.append(min(later, earlier))
            longer.append(max(later, earlier))
            early += later <= earlier
            steps += 1
            crossed.add(REGIONS[interval[0]])
        studies_with_steps += bool(crossed)
        for region in crossed:
            borders[region] += 1
    used = f"studies and steps: {PUBLISHED_SOURCE}; the rest: " if published else ""
    return BackSteps(
        source=used + source,
        unit="studies, steps; shorter, longer: original frames, natural logarithms",
        studies=BestShare(
            fitted=Share(count=studies_with_steps, n=len(studies)),
            published=PUBLISHED_BACK_STEP_STUDIES if published else None,
        ),
        steps=steps,
        published_steps=PUBLISHED_BACK_STEPS if published else None,
        shorter=fit_log_normal(shorter),
        longer=fit_log_normal(longer),
        early=Share(count=early, n=max(steps, 1)),
        borders={r: Share(count=c, n=max(studies_with_steps, 1)) for r, c in borders.items() if c},
    )


def fit_landmarks(studies: Sequence[ObservedStudy], source: str, published: bool) -> Landmarks:
    """All three landmarks."""
    return Landmarks(
        source=source,
        unit="rows; runs: per study that shows the landmark",
        labels={label: _fit_landmark(label, studies, published) for label in LANDMARKS},
    )


def _fit_landmark(label: str, studies: Sequence[ObservedStudy], published: bool) -> Landmark:
    before, after = LANDMARK_BETWEEN[label]
    needs = {before, after}
    run_counts: list[int] = []
    lengths: list[int] = []
    gaps: list[int] = []
    distances: list[int] = []
    positions: Counter[str] = Counter()
    others_before = others = 0
    for study in studies:
        runs = [(int(a), int(b)) for a, b in study.runs(label)]
        if not runs:
            continue
        needs &= {region for region in needs if study.shows(region)}
        run_counts.append(len(runs))
        lengths += [stop - start for start, stop in runs]
        gaps += [b[0] - a[1] for a, b in itertools.pairwise(runs)]
        main, change = min(
            ((i, row) for i in range(len(runs)) for row in region_changes(study, before, after)),
            key=lambda pair: abs(distance_to(runs[pair[0]], pair[1])),
        )
        positions[position_of(runs[main], change)] += 1
        if distance := abs(distance_to(runs[main], change)):
            distances.append(distance)
        others_before += main
        others += len(runs) - 1
    shown = max(len(run_counts), 1)
    return Landmark(
        needs=tuple(region for region in (before, after) if region in needs),
        runs=fit_sizes(run_counts),
        lengths=fit_sizes(lengths),
        main={position: Share(count=positions[position], n=shown) for position in POSITIONS},
        distance=fit_sizes(distances),
        gaps=fit_sizes(gaps),
        others_before=Share(count=others_before, n=max(others, 1)),
        published_ends=PUBLISHED_LANDMARK_ENDS[label] if published else None,
    )


def region_changes(study: ObservedStudy, before: str, after: str) -> list[int]:
    """Rows at which the study leaves `before` forward or enters `after` from an earlier region.

    A study that begins in `after` changes at its first row, one that ends in `before` at its end.
    """
    early, late = REGIONS.index(before), REGIONS.index(after)
    intervals = study.region_intervals()
    rows = [
        start
        for (previous, _, _), (region, start, _) in itertools.pairwise(intervals)
        if previous < region and (previous == early or region == late)
    ]
    if intervals and intervals[0][0] == late:
        rows.append(intervals[0][1])
    if not rows and intervals:
        rows.append(intervals[-1][2])
    return rows


def distance_to(run: tuple[int, int], change: int) -> int:
    """Rows between the nearest end of [start, stop) and the change; negative before it, 0 at it."""
    start, stop = run
    if start <= change <= stop:
        return 0
    return start - change if start > change else stop - change


def position_of(run: tuple[int, int], change: int) -> str:
    """How the run lies to the change: one of POSITIONS."""
    start, stop = run
    if stop == change:
        return "ends"
    if start == change:
        return "starts"
    if start < change < stop:
        return "across"
    return "before" if stop < change else "after"


def fit_findings(studies: Sequence[ObservedStudy], source: str) -> Findings:
    """All nine findings."""
    return Findings(
        source=source,
        unit="rows; bursts, rows: per study that shows the finding; runs: per burst, each study "
        "weighing the same; region: odds, times the root of the region's rows",
        burst_gap=BURST_GAP,
        labels={label: _fit_finding(label, studies) for label in FINDINGS},
    )


def _fit_finding(label: str, studies: Sequence[ObservedStudy]) -> Finding:
    bursts_per_study: list[int] = []
    runs_per_burst: list[int] = []
    weights: list[float] = []
    lengths: list[int] = []
    gaps: list[int] = []
    rows: list[int] = []
    shares: list[NDArray[np.float64]] = []
    roots: list[NDArray[np.float64]] = []
    for study in studies:
        runs = study.runs(label)
        if not len(runs):
            continue
        bursts = split_bursts(runs, BURST_GAP)
        bursts_per_study.append(len(bursts))
        runs_per_burst += [len(burst) for burst in bursts]
        weights += [1 / len(bursts)] * len(bursts)
        lengths += (runs[:, 1] - runs[:, 0]).tolist()
        gaps += (runs[1:, 0] - runs[:-1, 1]).tolist()
        regions = study.region[study.labels[:, COLUMN[label]]]
        counts = np.bincount(regions[regions >= 0], minlength=len(REGIONS))
        rows.append(regions.size)
        if counts.sum():
            shares.append(counts / counts.sum())
            region_rows = np.bincount(study.region[study.region >= 0], minlength=len(REGIONS))
            roots.append(np.sqrt(region_rows))
    return Finding(
        bursts=fit_sizes(bursts_per_study),
        runs=fit_sizes(runs_per_burst, weights),
        lengths=fit_sizes(lengths),
        gaps_inside=fit_sizes([gap for gap in gaps if gap <= BURST_GAP]),
        gaps_between=fit_sizes([gap for gap in gaps if gap > BURST_GAP]),
        rows=round_significant(float(np.mean(rows))) if rows else 0.0,
        region=_region_odds(shares, roots),
    )


def _region_odds(
    shares: list[NDArray[np.float64]], roots: list[NDArray[np.float64]]
) -> dict[str, float]:
    """Odds which, times the root of each study's rows per region, give the mean shares observed.

    The root, since a longer region shows more of a finding, but not in proportion: summed over the
    nine findings it predicts the studies' own shares better (cross entropy 5.86) than weights that
    ignore the length (6.42) or follow it (6.07).
    """
    odds = np.full(len(REGIONS), 1 / len(REGIONS))
    if shares:
        observed, root = np.array(shares), np.array(roots)
        for _ in range(200):  # each step is the update of iterative proportional fitting
            expected = root * odds / np.maximum((root * odds).sum(axis=1, keepdims=True), 1e-300)
            odds *= observed.mean(axis=0) / np.maximum(expected.mean(axis=0), 1e-12)
            odds /= odds.sum()
    return {region: round_significant(float(odds[i])) for i, region in enumerate(REGIONS)}


def fit_cooccurrence(studies: Sequence[ObservedStudy], source: str) -> Cooccurrence:
    """Findings on the same rows, over all rows and over the studies that show both."""
    columns = [COLUMN[label] for label in FINDINGS]
    counts = np.array([_common_rows(study.labels[:, columns]) for study in studies])
    total = counts.sum(axis=0)
    pooled: PairTable = {}
    both: dict[str, dict[str, Overlap]] = {}
    for a, first in enumerate(FINDINGS):
        for b, second in enumerate(FINDINGS):
            if a == b:
                continue
            if total[a, b]:
                pooled.setdefault(first, {})[second] = round_significant(total[a, b] / total[a, a])
            shown = (counts[:, a, a] > 0) & (counts[:, b, b] > 0)
            if shown.any():
                share = counts[shown, a, b] / counts[shown, a, a]
                both.setdefault(first, {})[second] = Overlap(
                    studies=int(shown.sum()),
                    share=round(float(share.mean()), 4),
                    sd=round(float(share.std(ddof=1)), 4) if shown.sum() > 1 else 0.0,
                )
    return Cooccurrence(
        source=source,
        unit="[a][b] = share of a's rows that also show b; pooled: all rows; both: mean over the "
        "studies that show both",
        pooled=pooled,
        both=both,
    )


def _common_rows(labels: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(k, k) rows that show both of two columns; on the diagonal the rows of each."""
    shown = labels[labels.any(axis=1)].astype(np.int64)
    return shown.T @ shown


def fit_given_region(studies: Sequence[ObservedStudy], source: str) -> GivenRegion:
    """Share of a region's original frames with each landmark and finding."""
    frames = np.zeros(len(REGIONS), dtype=np.int64)
    labels = LANDMARKS + FINDINGS
    counts = np.zeros((len(REGIONS), len(labels)), dtype=np.int64)
    for study in studies:
        for i in range(len(REGIONS)):
            inside = study.region == i
            frames[i] += study.stride * int(inside.sum())
            columns = [COLUMN[label] for label in labels]
            counts[i] += study.stride * study.labels[np.ix_(inside, columns)].sum(axis=0)
    return GivenRegion(
        source=source,
        unit="share of the region's original frames (rows times stride), all studies pooled",
        frames={region: int(frames[i]) for i, region in enumerate(REGIONS)},
        shares={
            region: {
                label: round_significant(counts[i, j] / max(frames[i], 1))
                for j, label in enumerate(labels)
            }
            for i, region in enumerate(REGIONS)
        },
    )
