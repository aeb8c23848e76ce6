"""Over many timelines the drawn statistics are those of the priors, within sampling error.

Every bound is Z standard errors of the drawn figure. About 150 figures are compared, so at Z = 4 a
right program would be called wrong in one of a hundred seeds (150 x 6e-5); the seed is fixed. That
the bounds are tight enough to find a wrong program is tested too.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.phantom.timeline import TimelineOptions, draw_timeline, study_seed
from enteron.priors import Priors, load_priors
from enteron.priors.fit import (
    ObservedStudy,
    fit_priors,
    position_of,
    region_changes,
    study_from_labels,
)
from enteron.priors.statistics import joint_probability
from enteron.runs import runs_of
from enteron.types import Annotation, Segment, Unit

Z = 4.0
STUDIES = 500  # of natural length
SHORT = 1500  # of 2,000 rows
PRIORS = load_priors()
STRIDE = 5
LATE_COMPANIONS = ("hematin", "lymphangioectasis")
"""Findings of which many runs are companions, grown to the length of the run they go with: fewer of
their runs are of one row than in the data (hematin 0.14 for 0.18, lymphangioectasis 0.15 for 0.17).
"""


@dataclass(frozen=True)
class Drawn:
    """Studies of their natural length, and what they show."""

    studies: list[ObservedStudy]
    present: np.ndarray  # (studies, 17)
    refitted: Priors


def annotation(study: str, labels: np.ndarray) -> Annotation:
    """One segment per run of an identical label set, as in the official file."""
    cuts = np.flatnonzero((labels[1:] != labels[:-1]).any(axis=1)) + 1
    edges = [0, *cuts.tolist(), len(labels)]
    segments = tuple(
        Segment(a, b, tuple(LABELS[i] for i in np.flatnonzero(labels[a])))
        for a, b in itertools.pairwise(edges)
    )
    return Annotation(study, Unit.INDEX, segments)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    matrices = [
        draw_timeline(None, study_seed(20, study), PRIORS, TimelineOptions(stride=STRIDE)).labels
        for study in range(STUDIES)
    ]
    studies = [study_from_labels(str(i), STRIDE, labels) for i, labels in enumerate(matrices)]
    annotations = [annotation(str(i), labels) for i, labels in enumerate(matrices)]
    strides = {str(i): STRIDE for i in range(STUDIES)}
    return Drawn(
        studies,
        np.array([labels.any(axis=0) for labels in matrices]),
        fit_priors(annotations, strides, "drawn"),
    )


@pytest.fixture(scope="module")
def short() -> list[np.ndarray]:
    return [draw_timeline(2000, study_seed(21, s), PRIORS).labels for s in range(SHORT)]


def share_is(count: int, n: int, share: float) -> bool:
    """Whether `count` of `n` agrees with the share."""
    # Half a count for continuity, so that rare things are not refused for being whole numbers.
    return abs(count - n * share) <= Z * math.sqrt(n * share * (1 - share)) + 0.5


def mean_is(values: np.ndarray, mean: float) -> bool:
    """Whether the mean of the values agrees."""
    return abs(values.mean() - mean) <= Z * values.std(ddof=1) / math.sqrt(values.size)


def wrong_presence(present: np.ndarray, priors: Priors) -> list[str]:
    counts = present.sum(axis=0)
    return [
        label
        for i, label in enumerate(LABELS)
        if not share_is(int(counts[i]), len(present), priors.share(label))
    ]


def wrong_pairs(present: np.ndarray, priors: Priors) -> list[tuple[str, str]]:
    """Pairs of labels that are not present together as often as the priors say."""
    # The two landmarks that need a region which may be missing are correlated given that region.
    given = ("z-line", "ileocecal valve")
    wrong: list[tuple[str, str]] = []
    for group in (REGIONS, tuple(x for x in LANDMARKS + FINDINGS if x not in given)):
        for i, a in enumerate(group):
            for b in group[:i]:
                latent = priors.presence.latent
                r = latent.get(a, {}).get(b, latent.get(b, {}).get(a, 0.0))
                together = int((present[:, COLUMN[a]] & present[:, COLUMN[b]]).sum())
                if not share_is(
                    together, len(present), joint_probability(priors.share(a), priors.share(b), r)
                ):
                    wrong.append((a, b))
    return wrong


def test_presence_of_every_label(drawn: Drawn):
    assert wrong_presence(drawn.present, PRIORS) == []


def test_presence_of_every_label_in_short_studies(short: list[np.ndarray]):
    present = np.array([labels.any(axis=0) for labels in short])
    assert wrong_presence(present, PRIORS) == []
    assert wrong_pairs(present, PRIORS) == []


def test_labels_are_present_together_as_often_as_in_the_data(drawn: Drawn):
    assert wrong_pairs(drawn.present, PRIORS) == []


def changed(label: str, count: int) -> Priors:
    table = PRIORS.model_dump()
    table["presence"]["labels"][label]["published"]["count"] = count
    return Priors.model_validate(table)


def test_the_bounds_find_a_wrong_program(short: list[np.ndarray]):
    present = np.array([labels.any(axis=0) for labels in short])
    # Mistakes of 12 and of 10 in 100 studies: twice the bound, so that chance cannot hide them.
    assert wrong_presence(present, changed("blood", 61)) == ["blood"]
    assert wrong_presence(present, changed("ulcer", 8)) == ["ulcer"]
    independent = PRIORS.model_dump()
    independent["presence"]["latent"] = {}
    found = wrong_pairs(present, Priors.model_validate(independent))
    assert ("blood", "active bleeding") in found
    assert ("esophagus", "mouth") in found


@pytest.mark.parametrize("rarity", [0.5, 2.0])
def test_rarity_is_a_power_of_the_share(rarity: float):
    n, options = 500, TimelineOptions(rarity=rarity)
    present = np.array(
        [
            draw_timeline(200, study_seed(22, s), PRIORS, options).labels.any(axis=0)
            for s in range(n)
        ]
    )
    for finding in FINDINGS:
        count = int(present[:, COLUMN[finding]].sum())
        assert share_is(count, n, PRIORS.share(finding) ** rarity), finding
    assert share_is(int(present[:, COLUMN["colon"]].sum()), n, PRIORS.share("colon"))


def rarer_pairs(min_common_studies: int) -> list[tuple[str, str]]:
    order = sorted(FINDINGS, key=lambda label: PRIORS.findings.labels[label].rows)
    return [
        (a, b)
        for i, a in enumerate(order)
        for b in order[i + 1 :]
        if PRIORS.cooccurrence.both[a][b].studies >= min_common_studies
    ]


def test_findings_share_rows_as_in_the_data(drawn: Drawn):
    compared = 0
    for a, b in rarer_pairs(TimelineOptions().min_common_studies):
        wanted = PRIORS.cooccurrence.both[a][b].share
        shares = np.array(
            [
                study.labels[study.labels[:, COLUMN[a]], COLUMN[b]].mean()
                for study in drawn.studies
                if study.shows(a) and study.shows(b)
            ]
        )
        if wanted >= 0.02:  # the rarer ones are sums of a few events, for which Z means little
            compared += 1
            assert mean_is(shares, wanted), (a, b, wanted, shares.mean())
        else:
            assert shares.mean() < 0.04, (a, b, wanted, shares.mean())
    assert compared >= 10


def test_active_bleeding_is_on_blood(drawn: Drawn):
    bleeding = [s for s in drawn.studies if s.shows("active bleeding")]
    rows = np.concatenate([s.labels[s.labels[:, COLUMN["active bleeding"]]] for s in bleeding])
    # Over all rows: 0.97 in the data. Chance alone would give blood's own share, about a tenth.
    assert rows[:, COLUMN["blood"]].mean() > 0.9


def test_share_of_single_row_runs(drawn: Drawn):
    for label in FINDINGS:
        if label in LATE_COMPANIONS:
            continue
        runs = np.concatenate([runs_of(s.labels[:, COLUMN[label]]) for s in drawn.studies])
        single = int((runs[:, 1] - runs[:, 0] == 1).sum())
        assert share_is(single, len(runs), PRIORS.run_lengths(label).single), label


def test_run_lengths_and_bursts_of_rare_findings(drawn: Drawn):
    # Only findings that few others decide on and for which regions have room. Not kept, and so not
    # compared: bursts of the frequent ones (blood above all), runs per burst (bursts are cut where
    # a region is full), gaps between bursts (they follow from where bursts fall).
    for label in ("ulcer", "erythema", "angiectasia"):
        prior, found = PRIORS.findings.labels[label], drawn.refitted.findings.labels[label]
        for name in ("bursts", "lengths"):
            wanted, got = getattr(prior, name), getattr(found, name)
            assert share_is(round(got.single * got.n), got.n, wanted.single), (label, name)
            error = wanted.log_sd / math.sqrt(got.n * (1 - wanted.single))
            assert abs(got.log_mean - wanted.log_mean) <= Z * error, (label, name)


def test_share_of_studies_with_back_steps(drawn: Drawn):
    steps = drawn.refitted.back_steps
    wanted = PRIORS.back_steps
    assert share_is(steps.studies.used.count, STUDIES, wanted.studies.used.value)
    # The number per study is geometric with mean m: its variance is m (m - 1).
    mean = wanted.mean_steps
    error = math.sqrt(mean * (mean - 1) / steps.studies.used.count)
    assert abs(steps.mean_steps - mean) <= Z * error


def test_landmarks_lie_at_the_change_of_region(drawn: Drawn):
    for label in LANDMARKS:
        before, after = LANDMARK_BETWEEN[label]
        prior = PRIORS.landmarks.labels[label]
        places: list[str] = []
        for study in drawn.studies:
            spans = study.runs(label)
            # One run is the main one; a missing region before it leaves no choice of place, and
            # steps back leave several changes.
            forward = (
                len(study.region_intervals()) == study.labels[:, : len(REGIONS)].any(axis=0).sum()
            )
            if len(spans) == 1 and forward and study.shows(before):
                span = (int(spans[0, 0]), int(spans[0, 1]))
                rows = region_changes(study, before, after)
                row = min(rows, key=lambda r: min(abs(r - span[0]), abs(r - span[1])))
                places.append(position_of(span, row))
        assert len(places) > 80
        for place, share in prior.main.items():
            assert share_is(places.count(place), len(places), share.value), (label, place)


def test_distance_of_landmarks_that_lie_apart(drawn: Drawn):
    for label in ("pylorus", "ileocecal valve"):
        wanted = PRIORS.landmarks.labels[label].distance
        got = drawn.refitted.landmarks.labels[label].distance
        assert share_is(round(got.single * got.n), got.n, wanted.single), label


def test_fitting_what_was_drawn_returns_the_priors(drawn: Drawn):
    again = drawn.refitted
    assert again.studies == STUDIES
    for label in LABELS:
        share = again.presence.labels[label].fitted
        assert share_is(share.count, share.n, PRIORS.share(label)), label
    # Mouth and esophagus last about ten rows at this stride, so their floor of one acts.
    for region in ("stomach", "small intestine", "colon"):
        wanted, got = (p.regions.durations[region].fitted for p in (PRIORS, again))
        assert abs(got.log_mean - wanted.log_mean) <= Z * wanted.log_sd / math.sqrt(got.n)
        assert abs(got.log_sd - wanted.log_sd) <= Z * wanted.log_sd / math.sqrt(2 * got.n)
    assert {k: v.needs for k, v in again.landmarks.labels.items()} == {
        k: v.needs for k, v in PRIORS.landmarks.labels.items()
    }
    for label in ("pylorus", "ileocecal valve"):
        wanted, got = (p.landmarks.labels[label].lengths for p in (PRIORS, again))
        assert share_is(round(got.single * got.n), got.n, wanted.single), label
    assert again.given_region.shares["colon"]["active bleeding"] == 0


def test_a_short_study_has_the_structure_of_a_long_one(drawn: Drawn, short: list[np.ndarray]):
    """Runs per study and single rows survive compression from about 15,000 rows to 2,000."""
    for label in FINDINGS:
        column = COLUMN[label]
        runs = [runs_of(labels[:, column]) for labels in short if labels[:, column].any()]
        less, more = (
            np.log([len(spans) for spans in several])
            for several in (runs, [s.runs(label) for s in drawn.studies if s.shows(label)])
        )
        # Bursts that no longer fit fall away: up to a quarter of the runs (log 0.3) may be lost.
        error = math.sqrt(less.var(ddof=1) / less.size + more.var(ddof=1) / more.size)
        difference = less.mean() - more.mean()
        assert -0.3 - Z * error <= difference <= Z * error, (label, difference, error)
        lengths = np.concatenate([spans[:, 1] - spans[:, 0] for spans in runs])
        assert abs((lengths == 1).mean() - PRIORS.run_lengths(label).single) < 0.05, label
