"""What every row of a synthetic study shows, drawn from measured statistics."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.options import Options
from enteron.priors.fit import split_bursts
from enteron.priors.statistics import (
    Finding,
    Landmark,
    LogNormal,
    Priors,
    both,
    from_table,
    threshold,
)
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


Stay = tuple[str, int, int]
"""Region and its rows [start, stop)."""


@dataclass(frozen=True)
class Transit:
    """Where the capsule is in every row."""

    stays: tuple[Stay, ...]  # one after the other, from row 0 to the last
    compression: float  # original frames that one row stands for

    @property
    def rows(self) -> int:
        return self.stays[-1][2]


def draw_transit(
    rows: int | None,
    regions: tuple[str, ...],
    priors: Priors,
    stride: int,
    shortest_stay: int,
    rng: np.random.Generator,
) -> Transit:
    """Durations of the regions shown, scaled to `rows`; None leaves them at `stride`."""
    frames = _draw_durations(regions, priors, rng)
    total = sum(frames.values())
    if rows is None:
        rows = max(len(frames), round(total / stride))
    lengths = scale_to_rows(frames, rows, stride, shortest_stay)
    order = _with_back_steps(lengths, rows / total, priors, rng)
    stays: list[Stay] = []
    row = 0
    for region, length in order:
        stays.append((region, row, row + length))
        row += length
    return Transit(tuple(stays), total / rows)


def _draw_durations(
    regions: tuple[str, ...], priors: Priors, rng: np.random.Generator
) -> dict[str, float]:
    """Original frames of each region shown."""
    correlation = from_table(priors.regions.correlation, REGIONS)
    gaussians = np.linalg.cholesky(correlation) @ rng.standard_normal(len(REGIONS))
    frames: dict[str, float] = {}
    for region, gaussian in zip(REGIONS, gaussians, strict=True):
        if region in regions:
            fitted = priors.regions.durations[region].fitted
            frames[region] = math.exp(fitted.log_mean + fitted.log_sd * float(gaussian))
    return frames


def scale_to_rows(
    frames: dict[str, float], rows: int, stride: int, shortest_stay: int
) -> dict[str, int]:
    """Rows of each region: in proportion, but short stays keep rows that they would have had.

    A stay of the mouth lasts about ten stored rows out of ten thousand; in proportion it would
    vanish from a study of 2,000. So no stay shrinks below `shortest_stay` rows, or below its own
    rows at `stride` where those are fewer. In a very short study the bound shrinks too, and where
    there are fewer rows than regions the longest regions are kept.
    """
    if rows < len(frames):
        longest = sorted(frames, key=lambda region: -frames[region])[:rows]
        frames = {region: value for region, value in frames.items() if region in longest}
    names = list(frames)
    values = np.array([frames[name] for name in names])
    bound = np.clip(np.minimum(values / stride, shortest_stay), 1, max(1, rows // 20))
    # Regions at their bound leave the rest to the others, which may push further ones to theirs.
    fixed = np.zeros(len(names), dtype=np.bool_)
    while True:
        share = values * (rows - bound[fixed].sum()) / max(values[~fixed].sum(), 1e-300)
        wanted = np.where(fixed, bound, share)
        low = ~fixed & (wanted < bound)
        if not low.any() or (fixed | low).all():
            break
        fixed |= low
    return dict(zip(names, _whole(np.maximum(wanted, 1), rows).tolist(), strict=True))


def _whole(wanted: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers of at least 1 with the given sum, near to what is wanted."""
    found = np.maximum(np.rint(wanted).astype(np.int64), 1)
    while (excess := int(found.sum()) - total) != 0:
        # The longest can spare a row, or take one, without notice.
        place = int(found.argmax())
        found[place] -= min(excess, int(found[place]) - 1) if excess > 0 else excess
    return found


def _with_back_steps(
    lengths: dict[str, int], rows_per_frame: float, priors: Priors, rng: np.random.Generator
) -> list[tuple[str, int]]:
    """Stays in order, rarely with steps back; each region keeps its rows in all."""
    order = list(lengths.items())
    steps = priors.back_steps
    share, mean = steps.studies.used.value, max(steps.mean_steps, 1.0)
    happens, count = rng.random() < share, int(rng.geometric(1 / mean))
    names = list(lengths)
    borders = {r: s.count for r, s in sorted(steps.borders.items()) if r in names[1:]}
    if not happens or not borders:
        return order
    odds = np.array(list(borders.values())) / sum(borders.values())
    later = list(borders)[int(rng.choice(len(borders), p=odds))]
    place = names.index(later)
    earlier = names[place - 1]
    left = {earlier: lengths[earlier], later: lengths[later]}
    inserted: list[tuple[str, int]] = []
    for _ in range(count):
        short = _draw_rows(steps.shorter, rows_per_frame, rng)
        long = max(short, _draw_rows(steps.longer, rows_per_frame, rng))
        ahead, back = (short, long) if rng.random() < steps.early.value else (long, short)
        # The main stays must outlast what the steps take from them; half of what is left is enough.
        ahead, back = min(ahead, left[later] // 2), min(back, left[earlier] // 2)
        if min(ahead, back) < 1:
            break
        left[later] -= ahead
        left[earlier] -= back
        inserted += [(later, ahead), (earlier, back)]
    order[place - 1 : place + 1] = [(earlier, left[earlier]), *inserted, (later, left[later])]
    return order


def _draw_rows(duration: LogNormal, rows_per_frame: float, rng: np.random.Generator) -> int:
    frames = math.exp(duration.log_mean + duration.log_sd * float(rng.standard_normal()))
    return max(1, round(frames * rows_per_frame))


Span = tuple[int, int]


def draw_landmark(
    label: str, prior: Landmark, stays: tuple[Stay, ...], shrink: float, rng: np.random.Generator
) -> list[Span]:
    """Runs [start, stop) of a landmark; none where the study does not have its regions."""
    border = _draw_border(label, stays, rng)
    if border is None:
        return []
    low, _, high = border
    count = int(prior.runs.draw(1, rng)[0])
    lengths = prior.lengths.draw(count, rng, shrink)
    gaps = prior.gaps.draw(count, rng, shrink)
    main = _place_main(prior, border, int(lengths[0]), shrink, rng)
    spans = [main]
    first, last = main
    for length, gap in zip(lengths[1:].tolist(), gaps[1:].tolist(), strict=True):
        # Further runs stay between the two regions' far ends; without room they fall away.
        if rng.random() < prior.others_before.value:
            stop = first - gap
            if stop > low:
                first = max(low, stop - length)
                spans.append((first, stop))
        else:
            start = last + gap
            if start < high:
                last = min(high, start + length)
                spans.append((start, last))
    return spans


def _draw_border(
    label: str, stays: tuple[Stay, ...], rng: np.random.Generator
) -> tuple[int, int, int] | None:
    """First row of the stay before, row of the change, end of the stay after.

    Where the region before is missing the study may begin with the one after, or come from a still
    earlier one; then the change is the entry, and no row lies before it.
    """
    before, after = LANDMARK_BETWEEN[label]
    found = [
        (begin, start, stop)
        for (last, begin, _), (region, start, stop) in itertools.pairwise(stays)
        if (last, region) == (before, after)
    ]
    if found:
        return found[int(rng.integers(len(found)))]
    entries = [(start, start, stop) for region, start, stop in stays if region == after]
    return entries[0] if entries else None


def _place_main(
    prior: Landmark,
    border: tuple[int, int, int],
    length: int,
    shrink: float,
    rng: np.random.Generator,
) -> Span:
    low, change, high = border
    places = sorted(prior.main)  # the draw must not depend on the order in a file
    odds = np.array([prior.main[place].count for place in places], dtype=float)
    place = places[int(rng.choice(len(places), p=odds / odds.sum()))] if odds.sum() else "ends"
    away = int(prior.distance.draw(1, rng, shrink)[0])
    if low == change:  # nothing before the change
        place = {"ends": "starts", "across": "starts", "before": "after"}.get(place, place)
    if place == "across":
        length = max(length, 2)
        ahead = int(rng.integers(1, length))
        return max(low, change - ahead), min(high, change - ahead + length)
    if place in ("starts", "after"):
        away = 0 if place == "starts" else min(away, high - change - 1)
        return change + away, min(high, change + away + length)
    away = 0 if place == "ends" else min(away, change - low - 1)
    return max(low, change - away - length), change - away


def draw_regions_shown(priors: Priors, complete: bool, rng: np.random.Generator) -> tuple[str, ...]:
    """The regions that a study shows, in transit order; at least one."""
    below = _gaussians(priors, REGIONS, rng)
    if complete:
        return REGIONS
    shown = [r for r, g in zip(REGIONS, below, strict=True) if g < threshold(priors.share(r))]
    # Every study shows something; where chance says none, the commonest region is left.
    return tuple(shown) or (max(REGIONS, key=priors.share),)


def draw_others_shown(
    priors: Priors, regions: tuple[str, ...], rarity: float, rng: np.random.Generator
) -> tuple[str, ...]:
    """The landmarks and findings of a study that shows the given regions."""
    labels = LANDMARKS + FINDINGS
    below = _gaussians(priors, labels, rng)
    shown: list[str] = []
    for label, gaussian in zip(labels, below, strict=True):
        share = presence_after_rarity(priors.share(label), rarity)
        if label in LANDMARKS:
            needs = priors.landmarks.labels[label].needs
            if not set(needs) <= set(regions):
                continue
            # Raised by what the studies without these regions lack, so that the share over all
            # studies is kept.
            share = share / max(_all_shown(priors, needs), share, 1e-12)
        if gaussian < threshold(share):
            shown.append(label)
    return tuple(shown)


def presence_after_rarity(share: float, rarity: float) -> float:
    """Rarity 1 keeps the share, 0 makes it 1, 2 squares it; a label never seen stays unseen."""
    return 0.0 if share == 0 else share**rarity


def _all_shown(priors: Priors, regions: tuple[str, ...]) -> float:
    """Probability that a study shows all of at most two regions."""
    if not regions:
        return 1.0
    first, last = priors.share(regions[0]), priors.share(regions[-1])
    if len(regions) == 1:
        return first
    return both(first, last, float(from_table(priors.presence.latent, regions)[0, 1]))


def _gaussians(priors: Priors, labels: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    root = np.linalg.cholesky(from_table(priors.presence.latent, labels))
    return root @ rng.standard_normal(len(labels))


class TimelineOptions(Options):
    """How timelines are drawn."""

    rarity: float = Field(default=1.0, ge=0)
    """Presence of landmarks and findings is share ** rarity: 1 as in the data, 0 always present
    where their regions are, above 1 rarer."""

    complete: bool = False
    """Every study shows all five regions."""

    stride: int = Field(default=5, ge=1)
    """Original frames per stored row of the study that is imitated; in most Galar studies 5."""

    shortest_stay: int = Field(default=12, ge=1)
    """No stay in a region is compressed below so many rows, if it had as many at `stride`."""

    run_shrink: float = Field(default=1.0, ge=0, le=1)
    """Runs and gaps shrink by (rows / real rows) ** run_shrink: 1 as regions do, 0 not at all, for
    events that last longer at the price of fewer that fit."""

    fullest: float = Field(default=0.6, gt=0, le=1)
    """Share of a region that the bursts of one finding may take up, gaps included."""

    known_from: int = Field(default=5, ge=1)
    """Studies that must show two findings for their common rows to be drawn as measured."""


@dataclass(frozen=True)
class Timeline:
    """What every row of a synthetic study shows."""

    labels: NDArray[np.bool_]  # (rows, 17), columns in the order of LABELS
    stays: tuple[Stay, ...]  # (region, start, stop), one after the other
    compression: float  # original frames that one row stands for
    shrink: float  # factor by which runs and gaps were shortened


def study_seed(seed: int, study: int) -> np.random.SeedSequence:
    """The seed of one study, which does not depend on how many others there are."""
    if seed < 0 or study < 0:
        raise EnteronError(
            f"seed {seed} with study {study} cannot be used", "give whole numbers from 0"
        )
    return np.random.SeedSequence([seed, study])


def draw_timeline(
    rows: int | None,
    seed: int | np.random.SeedSequence,
    priors: Priors,
    options: TimelineOptions | None = None,
) -> Timeline:
    """A timeline of so many rows; with None as many as the drawn durations have at `stride`."""
    if rows is not None and rows < 1:
        raise EnteronError(f"a study cannot have {rows} rows", "ask for at least 1")
    options = TimelineOptions() if options is None else options
    rng = np.random.default_rng(seed)
    regions = draw_regions_shown(priors, options.complete, rng)
    transit = draw_transit(rows, regions, priors, options.stride, options.shortest_stay, rng)
    there = tuple({region: None for region, _, _ in transit.stays})
    shown = draw_others_shown(priors, there, options.rarity, rng)
    shrink = min(1.0, options.stride / transit.compression) ** options.run_shrink

    labels = np.zeros((transit.rows, len(LABELS)), dtype=np.bool_)
    for region, start, stop in transit.stays:
        labels[start:stop, COLUMN[region]] = True
    for label in LANDMARKS:
        if label in shown:
            prior = priors.landmarks.labels[label]
            for start, stop in draw_landmark(label, prior, transit.stays, shrink, rng):
                labels[start:stop, COLUMN[label]] = True
    findings = tuple(label for label in FINDINGS if label in shown)
    draw_findings(labels, findings, priors, shrink, options.fullest, options.known_from, rng)
    without = rng.random(transit.rows) < priors.regions.without.value
    labels[without] = False
    return Timeline(labels, transit.stays, transit.compression, shrink)


__all__ = ["Timeline", "TimelineOptions", "draw_timeline", "study_seed"]
