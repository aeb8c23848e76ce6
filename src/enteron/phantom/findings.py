"""Runs of findings: in bursts, in their regions, on each other's rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, REGIONS
from enteron.phantom.landmarks import shrunk
from enteron.priors.observed import Spans, runs_of
from enteron.priors.value import Finding, Priors

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
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

    Rare findings come first. Each run of an earlier finding decides by itself whether the finding
    being drawn is on it, with the share seen in studies that show both. So the share of a's rows
    that show b is kept for a rarer than b; the other direction follows from how much there is of
    each. Pairs seen together in fewer than `known_from` studies are left to chance.
    """
    place = {region: np.flatnonzero(labels[:, COLUMN[region]]) for region in REGIONS}
    prior = priors.findings.labels
    order = sorted(shown, key=lambda label: (prior[label].rows, label))
    for number, label in enumerate(order):
        finding = prior[label]
        on = np.zeros(len(labels), dtype=np.bool_)
        off = np.zeros(len(labels), dtype=np.bool_)
        hosted: list[Spans] = []
        for other in order[:number]:
            together = priors.cooccurrence.both.get(other, {}).get(label)
            if together is None or together.studies < known_from:
                continue
            spans = runs_of(labels[:, COLUMN[other]])
            chosen = rng.random(len(spans)) < together.share
            on |= _mask(spans[chosen], len(labels))
            off |= _mask(spans[~chosen], len(labels))
            hosted.append(spans[chosen])
        runs = _draw_runs(finding, shrink, rng)
        column = on.copy()
        if hosted and (spans := np.concatenate(hosted)).size:
            runs = _spread_from(column, spans, runs, rng)
        _place_bursts(
            column, runs, place, finding, priors.findings.burst_gap * shrink, fullest, rng
        )
        column &= on | ~off
        if not column.any():
            column[_one_row(place, finding, off, rng)] = True
        labels[:, COLUMN[label]] = column


def _mask(spans: Spans, rows: int) -> NDArray[np.bool_]:
    steps = np.zeros(rows + 1, dtype=np.int64)
    np.add.at(steps, spans[:, 0], 1)
    np.add.at(steps, spans[:, 1], -1)
    return np.cumsum(steps[:-1]) > 0


def _draw_runs(finding: Finding, shrink: float, rng: np.random.Generator) -> Runs:
    bursts = int(finding.bursts.draw(1, rng)[0])
    per_burst = finding.runs.draw(bursts, rng)
    count = int(per_burst.sum())
    return Runs(
        np.repeat(np.arange(bursts), per_burst),
        shrunk(finding.lengths.draw(count, rng), shrink),
        shrunk(finding.gaps_inside.draw(count, rng), shrink),
    )


def _spread_from(
    column: NDArray[np.bool_], hosts: Spans, runs: Runs, rng: np.random.Generator
) -> Runs:
    """Give each host one of the drawn runs, grown around it; the runs that are left over.

    Without this every companion run would come on top of the drawn number.
    """
    used = min(len(hosts), runs.lengths.size)
    hosts = hosts[:used]
    spare = np.maximum(runs.lengths[-used:] - (hosts[:, 1] - hosts[:, 0]), 0)
    ahead = (rng.random(used) * (spare + 1)).astype(np.int64)
    start = np.maximum(hosts[:, 0] - ahead, 0)
    stop = np.minimum(hosts[:, 1] + spare - ahead, column.size)
    column |= _mask(np.column_stack([start, stop]), column.size)
    left = runs.lengths.size - used
    return Runs(runs.burst[:left], runs.lengths[:left], runs.gaps[:left])


def _place_bursts(
    column: NDArray[np.bool_],
    runs: Runs,
    place: dict[str, Rows],
    finding: Finding,
    burst_gap: float,
    fullest: float,
    rng: np.random.Generator,
) -> None:
    """Set the runs in `column`, each burst in a region drawn by the finding's odds."""
    if not runs.lengths.size:
        return
    regions = [r for r in REGIONS if place[r].size and finding.region[r] > 0]
    if not regions:
        return
    odds = np.array([finding.region[r] for r in regions])
    chosen = rng.choice(len(regions), size=int(runs.burst[-1]) + 1, p=odds / odds.sum())
    for i, region in enumerate(regions):
        inside = chosen[runs.burst] == i
        if inside.any():
            part = Runs(runs.burst[inside], runs.lengths[inside], runs.gaps[inside])
            spans = _lay_out(part, place[region].size, burst_gap, fullest, rng)
            column[place[region][_mask(spans, place[region].size)]] = True


def _lay_out(
    runs: Runs, room: int, burst_gap: float, fullest: float, rng: np.random.Generator
) -> Spans:
    """Spans of the runs in [0, room): bursts in order, apart, with random slack between them."""
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
    place: dict[str, Rows], finding: Finding, off: NDArray[np.bool_], rng: np.random.Generator
) -> int:
    """A row for a finding that lost all of its own to others."""
    best = max(REGIONS, key=lambda region: (place[region].size > 0, finding.region[region]))
    rows = place[best]
    free = rows[~off[rows]] if rows.size else rows
    choice = free if free.size else rows if rows.size else np.arange(off.size)
    return int(choice[int(rng.integers(choice.size))])
