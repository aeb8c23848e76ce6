"""Runs of findings: in bursts, in their regions, on each other's rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, REGIONS
from enteron.priors.observed import split_bursts
from enteron.priors.value import Finding, Priors
from enteron.runs import Runs, runs_of

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class PlannedRuns:
    """Runs of one finding before they have a place; burst by burst."""

    burst: Rows  # (n,) which burst each run belongs to, rising from 0
    lengths: Rows  # (n,) rows
    gaps: Rows  # (n,) rows to the next run of the burst; not used after the last of a burst


def draw_findings(
    labels: NDArray[np.bool_],
    shown: tuple[str, ...],
    priors: Priors,
    shrink: float,
    fullest: float,
    known_from: int,
    rng: np.random.Generator,
) -> None:
    """Set the columns of the findings shown in `labels` (rows, 17), whose regions are set.

    Rare findings come first, and their runs decide whether the next finding is on them. So the
    share of a's rows that show b is kept for a rarer than b; the other direction follows from how
    much there is of each. Pairs seen together in fewer than `known_from` studies are left to
    chance.
    """
    place = {region: np.flatnonzero(labels[:, COLUMN[region]]) for region in REGIONS}
    prior = priors.findings.labels
    order = sorted(shown, key=lambda label: (prior[label].rows, label))
    for number, label in enumerate(order):
        finding = prior[label]
        known = {a: priors.cooccurrence.both.get(a, {}).get(label) for a in order[:number]}
        shares = {a: t.share for a, t in known.items() if t and t.studies >= known_from}
        allowed = np.zeros(len(labels), dtype=np.bool_)
        for region in _regions(place, finding):
            allowed[place[region]] = True
        on, decided = _decide(labels, shares, allowed, rng)
        runs = _draw_runs(finding, shrink, rng)
        column = on.copy()
        apart = priors.findings.burst_gap * shrink
        if on.any():
            runs = _grow(column, split_bursts(runs_of(on), int(apart)), runs, rng)
        _place_bursts(column, runs, place, finding, apart, fullest, rng)
        column &= (on | ~decided) & allowed
        if not column.any():
            column[_one_row(allowed, decided, rng)] = True
        labels[:, COLUMN[label]] = column


def _decide(
    labels: NDArray[np.bool_],
    shares: dict[str, float],
    allowed: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Rows of other findings that must show the one being drawn, and all rows that are decided.

    Run by run, so that a companion is there for the whole of a run. The strongest pair decides
    first; where findings overlap, a weaker one makes up the share it wants on the rows left to it.
    """
    on = np.zeros(len(labels), dtype=np.bool_)
    decided = np.zeros(len(labels), dtype=np.bool_)
    for other, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
        rows = labels[:, COLUMN[other]]
        free = rows & ~decided & allowed
        left = int(free.sum())
        if left:
            wanted = (share * int(rows.sum()) - int((rows & on).sum())) / left
            spans = runs_of(rows)
            chosen = spans[rng.random(len(spans)) < wanted]
            on |= _mask(chosen, len(labels)) & free
        decided |= rows
    return on, decided


def _mask(spans: Runs, rows: int) -> NDArray[np.bool_]:
    steps = np.zeros(rows + 1, dtype=np.int64)
    np.add.at(steps, spans[:, 0], 1)
    np.add.at(steps, spans[:, 1], -1)
    return np.cumsum(steps[:-1]) > 0


def _draw_runs(finding: Finding, shrink: float, rng: np.random.Generator) -> PlannedRuns:
    bursts = int(finding.bursts.draw(1, rng)[0])
    per_burst = finding.runs.draw(bursts, rng)
    count = int(per_burst.sum())
    return PlannedRuns(
        np.repeat(np.arange(bursts), per_burst),
        finding.lengths.draw(count, rng, shrink),
        finding.gaps_inside.draw(count, rng, shrink),
    )


def _grow(
    column: NDArray[np.bool_], hosts: list[Runs], runs: PlannedRuns, rng: np.random.Generator
) -> PlannedRuns:
    """Let bursts of companion runs stand for as many drawn bursts; the bursts that are left.

    Otherwise every companion would come on top of the drawn number. A companion run grows around
    its host to the length of a run of the burst that it stands for.
    """
    first = int(runs.burst[-1]) + 1 - len(hosts)
    left = int(np.searchsorted(runs.burst, max(first, 0)))
    spans = np.concatenate(hosts)
    spare = np.zeros(len(spans), dtype=np.int64)
    used = min(len(spans), runs.lengths.size - left)
    spare[:used] = runs.lengths[left : left + used]
    spare = np.maximum(spare - (spans[:, 1] - spans[:, 0]), 0)
    ahead = (rng.random(len(spans)) * (spare + 1)).astype(np.int64)
    start = np.maximum(spans[:, 0] - ahead, 0)
    stop = np.minimum(spans[:, 1] + spare - ahead, column.size)
    column |= _mask(np.column_stack([start, stop]), column.size)
    return PlannedRuns(runs.burst[:left], runs.lengths[:left], runs.gaps[:left])


def _place_bursts(
    column: NDArray[np.bool_],
    runs: PlannedRuns,
    place: dict[str, Rows],
    finding: Finding,
    burst_gap: float,
    fullest: float,
    rng: np.random.Generator,
) -> None:
    """Set the runs in `column`, each burst in a region drawn by the finding's odds."""
    if not runs.lengths.size:
        return
    regions = _regions(place, finding)
    odds = np.array([finding.region[r] * np.sqrt(place[r].size) for r in regions])
    odds = np.maximum(odds, 1e-12)  # a study that has none of the finding's regions
    chosen = rng.choice(len(regions), size=int(runs.burst[-1]) + 1, p=odds / odds.sum())
    for i, region in enumerate(regions):
        inside = chosen[runs.burst] == i
        if inside.any():
            part = PlannedRuns(runs.burst[inside], runs.lengths[inside], runs.gaps[inside])
            spans = _lay_out(part, place[region].size, burst_gap, fullest, rng)
            column[place[region][_mask(spans, place[region].size)]] = True


def _regions(place: dict[str, Rows], finding: Finding) -> list[str]:
    """Regions of the study in which the finding can be; all of them if that is none."""
    there = [region for region in REGIONS if place[region].size]
    return [region for region in there if finding.region[region] > 0] or there


def _lay_out(
    runs: PlannedRuns, room: int, burst_gap: float, fullest: float, rng: np.random.Generator
) -> Runs:
    """Places of the runs in [0, room): bursts in order, apart, with random slack between them."""
    last = np.append(runs.burst[1:] != runs.burst[:-1], True)
    step = runs.lengths + np.where(last, 0, runs.gaps)
    # A study this short or a finding this frequent: what does not fit into the share of the
    # region that a finding may fill falls away from the end, but never the first run.
    budget = max(1, int(fullest * room))
    fits = np.cumsum(step) <= budget
    fits[0] = True
    count = int(fits.sum())
    lengths, step = np.minimum(runs.lengths[:count], budget), step[:count].copy()
    burst = runs.burst[:count]
    step[-1] = lengths[-1]
    new = np.append(True, burst[1:] != burst[:-1])
    bursts = int(new.sum())
    slack = room - int(step.sum())
    apart = min(int(burst_gap) + 1, slack // bursts)
    free = slack - apart * (bursts - 1)
    shift = np.sort(rng.integers(0, free + 1, size=bursts)) + apart * np.arange(bursts)
    start = np.cumsum(step) - step + shift[np.cumsum(new) - 1]
    return np.column_stack([start, start + lengths])


def _one_row(
    allowed: NDArray[np.bool_], decided: NDArray[np.bool_], rng: np.random.Generator
) -> int:
    """A row for a finding that lost all of its own to others."""
    free = np.flatnonzero(allowed & ~decided)
    rows = free if free.size else np.flatnonzero(allowed)
    return int(rows[int(rng.integers(rows.size))])
