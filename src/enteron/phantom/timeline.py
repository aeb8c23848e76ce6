"""What every row of a synthetic study shows, drawn from the priors.

`draw_timeline` draws in this order, which fixes the random numbers: the regions that the study
shows, their durations scaled to the number of rows, the landmarks and findings that it shows, the
runs of each landmark, the runs of each finding.
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.options import Options
from enteron.priors.statistics import (
    Finding,
    Landmark,
    LogNormal,
    Priors,
    correlation_from_table,
    joint_probability,
    latent_threshold,
    split_bursts,
)
from enteron.runs import Runs, runs_of

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Span = tuple[int, int]
"""Rows [start, stop)."""


class TimelineOptions(Options):
    """How timelines are drawn."""

    rarity: float = Field(default=1.0, ge=0)
    """Presence of landmarks and findings is share ** rarity: 1 as in the data, 0 always present
    where their regions are, above 1 rarer."""

    complete: bool = False
    """Every study shows all five regions."""

    stride: int = Field(default=5, ge=1)
    """Original frames per stored row of the study that is imitated; in most Galar studies 5."""

    min_region_rows: int = Field(default=12, ge=1)
    """No region is shortened below so many rows, if it had as many at `stride`."""

    run_scale_exponent: float = Field(default=1.0, ge=0, le=1)
    """Runs and gaps are scaled by (rows / real rows) ** exponent: 1 as regions are, 0 not at all.
    Below 1, events last longer and fewer of them fit."""

    max_filled: float = Field(default=0.6, gt=0, le=1)
    """Share of a region that the bursts of one finding may take up, gaps included."""

    min_common_studies: int = Field(default=5, ge=1)
    """Studies that must show two findings for their common rows to be drawn as measured."""


class RegionInterval(NamedTuple):
    """Rows [start, stop) in one region."""

    region: str
    start: int
    stop: int


@dataclass(frozen=True)
class Timeline:
    """What every row of a synthetic study shows."""

    labels: Mask  # (rows, 17), columns in the order of LABELS
    region_intervals: tuple[RegionInterval, ...]  # adjacent, from row 0 to the last
    frames_per_row: float  # original frames that one row stands for
    run_scale: float  # factor by which runs and gaps were shortened


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
    transit = draw_transit(rows, regions, priors, options.stride, options.min_region_rows, rng)
    # In a very short study not every region gets a row.
    regions = tuple(dict.fromkeys(interval.region for interval in transit.region_intervals))
    shown = draw_others_shown(priors, regions, options.rarity, rng)
    run_scale = min(1.0, options.stride / transit.frames_per_row) ** options.run_scale_exponent

    labels = np.zeros((transit.rows, len(LABELS)), dtype=np.bool_)
    for region, start, stop in transit.region_intervals:
        labels[start:stop, COLUMN[region]] = True
    for label in LANDMARKS:
        if label in shown:
            prior = priors.landmarks.labels[label]
            for start, stop in draw_landmark(
                label, prior, transit.region_intervals, run_scale, rng
            ):
                labels[start:stop, COLUMN[label]] = True
    findings = tuple(label for label in FINDINGS if label in shown)
    draw_findings(labels, findings, priors, run_scale, options, rng)
    without_region = rng.random(transit.rows) < priors.regions.without.value
    labels[without_region] = False
    return Timeline(labels, transit.region_intervals, transit.frames_per_row, run_scale)


def draw_regions_shown(priors: Priors, complete: bool, rng: np.random.Generator) -> tuple[str, ...]:
    """The regions that a study shows, in transit order; at least one."""
    latent = _draw_latent(priors, REGIONS, rng)
    if complete:
        return REGIONS
    shown = [
        region
        for region, value in zip(REGIONS, latent, strict=True)
        if value < latent_threshold(priors.share(region))
    ]
    # Every study shows something: where none was drawn, the most common region is taken.
    return tuple(shown) or (max(REGIONS, key=priors.share),)


def draw_others_shown(
    priors: Priors, regions: tuple[str, ...], rarity: float, rng: np.random.Generator
) -> tuple[str, ...]:
    """The landmarks and findings of a study that shows these regions."""
    labels = LANDMARKS + FINDINGS
    latent = _draw_latent(priors, labels, rng)
    shown: list[str] = []
    for label, value in zip(labels, latent, strict=True):
        share = presence_after_rarity(priors.share(label), rarity)
        if label in LANDMARKS:
            needs = priors.landmarks.labels[label].needs
            if not set(needs) <= set(regions):
                continue
            # Raised, since studies without these regions lack the landmark: the share over all
            # studies stays as it is.
            share = share / max(_all_shown(priors, needs), share, 1e-12)
        if value < latent_threshold(share):
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
    correlation = correlation_from_table(priors.presence.latent, regions)
    return joint_probability(first, last, float(correlation[0, 1]))


def _draw_latent(
    priors: Priors, labels: tuple[str, ...], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Correlated standard Gaussians, one per label: below its threshold a label is present."""
    root = np.linalg.cholesky(correlation_from_table(priors.presence.latent, labels))
    return root @ rng.standard_normal(len(labels))


@dataclass(frozen=True)
class Transit:
    """Where the capsule is in every row."""

    region_intervals: tuple[RegionInterval, ...]  # adjacent, from row 0 to the last
    frames_per_row: float  # original frames that one row stands for

    @property
    def rows(self) -> int:
        return self.region_intervals[-1].stop


def draw_transit(
    rows: int | None,
    regions: tuple[str, ...],
    priors: Priors,
    stride: int,
    min_region_rows: int,
    rng: np.random.Generator,
) -> Transit:
    """Durations of the regions shown, scaled to `rows`; None leaves them at `stride`."""
    frames = _draw_durations(regions, priors, rng)
    total = sum(frames.values())
    if rows is None:
        rows = max(len(frames), round(total / stride))
    lengths = scale_to_rows(frames, rows, stride, min_region_rows)
    intervals: list[RegionInterval] = []
    start = 0
    for region, length in _with_back_steps(lengths, rows / total, priors, rng):
        intervals.append(RegionInterval(region, start, start + length))
        start += length
    return Transit(tuple(intervals), total / rows)


def _draw_durations(
    regions: tuple[str, ...], priors: Priors, rng: np.random.Generator
) -> dict[str, float]:
    """Original frames of each region shown."""
    correlation = correlation_from_table(priors.regions.correlation, REGIONS)
    gaussians = np.linalg.cholesky(correlation) @ rng.standard_normal(len(REGIONS))
    frames: dict[str, float] = {}
    for region, gaussian in zip(REGIONS, gaussians, strict=True):
        if region in regions:
            fitted = priors.regions.durations[region].fitted
            frames[region] = math.exp(fitted.log_mean + fitted.log_sd * float(gaussian))
    return frames


def scale_to_rows(
    frames: dict[str, float], rows: int, stride: int, min_region_rows: int
) -> dict[str, int]:
    """Rows of each region: in proportion to its frames, but a short region keeps its rows.

    The mouth lasts about ten stored rows out of ten thousand; in proportion it would vanish from a
    study of 2,000. So no region shrinks below `min_region_rows`, or below its own rows at `stride`
    where those are fewer. In a very short study that bound shrinks too, and where there are fewer
    rows than regions the longest regions are kept.
    """
    if rows < len(frames):
        longest = sorted(frames, key=lambda region: -frames[region])[:rows]
        frames = {region: value for region, value in frames.items() if region in longest}
    regions = list(frames)
    durations = np.array([frames[region] for region in regions])
    bound = np.clip(np.minimum(durations / stride, min_region_rows), 1, max(1, rows // 20))
    # Regions at their bound leave fewer rows to the others, which may push those to their bound.
    fixed = np.zeros(len(regions), dtype=np.bool_)
    while True:
        share = durations * (rows - bound[fixed].sum()) / max(durations[~fixed].sum(), 1e-300)
        lengths = np.where(fixed, bound, share)
        too_short = ~fixed & (lengths < bound)
        if not too_short.any() or (fixed | too_short).all():
            break
        fixed |= too_short
    region_rows = _round_to_sum(np.maximum(lengths, 1), rows)
    return dict(zip(regions, region_rows.tolist(), strict=True))


def _round_to_sum(values: NDArray[np.float64], total: int) -> Rows:
    """The values as whole numbers of at least 1 whose sum is `total`."""
    rounded = np.maximum(np.rint(values).astype(np.int64), 1)
    while (excess := int(rounded.sum()) - total) != 0:
        # The longest changes least in proportion.
        longest = int(rounded.argmax())
        rounded[longest] -= min(excess, int(rounded[longest]) - 1) if excess > 0 else excess
    return rounded


def _with_back_steps(
    lengths: dict[str, int], rows_per_frame: float, priors: Priors, rng: np.random.Generator
) -> list[tuple[str, int]]:
    """(region, rows) in order, rarely with steps back; each region keeps its total of rows."""
    order = list(lengths.items())
    steps = priors.back_steps
    share, mean = steps.studies.used.value, max(steps.mean_steps, 1.0)
    happens, count = rng.random() < share, int(rng.geometric(1 / mean))
    regions = list(lengths)
    borders = {r: s.count for r, s in sorted(steps.borders.items()) if r in regions[1:]}
    if not happens or not borders:
        return order
    odds = np.array(list(borders.values())) / sum(borders.values())
    later = list(borders)[int(rng.choice(len(borders), p=odds))]
    position = regions.index(later)
    earlier = regions[position - 1]
    left = {earlier: lengths[earlier], later: lengths[later]}
    inserted: list[tuple[str, int]] = []
    for _ in range(count):
        short = _draw_rows(steps.shorter, rows_per_frame, rng)
        long = max(short, _draw_rows(steps.longer, rows_per_frame, rng))
        ahead, back = (short, long) if rng.random() < steps.early.value else (long, short)
        # A step takes at most half of what is left, so that the main intervals stay the longest.
        ahead, back = min(ahead, left[later] // 2), min(back, left[earlier] // 2)
        if min(ahead, back) < 1:
            break
        left[later] -= ahead
        left[earlier] -= back
        inserted += [(later, ahead), (earlier, back)]
    order[position - 1 : position + 1] = [
        (earlier, left[earlier]),
        *inserted,
        (later, left[later]),
    ]
    return order


def _draw_rows(duration: LogNormal, rows_per_frame: float, rng: np.random.Generator) -> int:
    frames = math.exp(duration.log_mean + duration.log_sd * float(rng.standard_normal()))
    return max(1, round(frames * rows_per_frame))


class _Border(NamedTuple):
    """A change of region at row `change`, and the rows [low, high) of the two regions around it."""

    low: int
    change: int
    high: int


def draw_landmark(
    label: str,
    prior: Landmark,
    region_intervals: tuple[RegionInterval, ...],
    run_scale: float,
    rng: np.random.Generator,
) -> list[Span]:
    """Runs of a landmark; none where the study does not have its regions."""
    border = _draw_border(label, region_intervals, rng)
    if border is None:
        return []
    count = int(prior.runs.draw(1, rng)[0])
    lengths = prior.lengths.draw(count, rng, run_scale)
    gaps = prior.gaps.draw(count, rng, run_scale)
    main = _draw_main_run(prior, border, int(lengths[0]), run_scale, rng)
    runs = [main]
    first, last = main
    for length, gap in zip(lengths[1:].tolist(), gaps[1:].tolist(), strict=True):
        # Further runs stay within the two regions; a run without room there is left out.
        if rng.random() < prior.others_before.value:
            stop = first - gap
            if stop > border.low:
                first = max(border.low, stop - length)
                runs.append((first, stop))
        else:
            start = last + gap
            if start < border.high:
                last = min(border.high, start + length)
                runs.append((start, last))
    return runs


def _draw_border(
    label: str, region_intervals: tuple[RegionInterval, ...], rng: np.random.Generator
) -> _Border | None:
    """The change of region that the landmark marks; one of them where steps back give several.

    Where the region before is missing, the study begins with the one after or comes from a still
    earlier one. Then the change is the entry into the region after, and no row lies before it.
    """
    before, after = LANDMARK_BETWEEN[label]
    borders = [
        _Border(left.start, right.start, right.stop)
        for left, right in itertools.pairwise(region_intervals)
        if (left.region, right.region) == (before, after)
    ]
    if borders:
        return borders[int(rng.integers(len(borders)))]
    entries = [
        _Border(start, start, stop) for region, start, stop in region_intervals if region == after
    ]
    return entries[0] if entries else None


def _draw_main_run(
    prior: Landmark, border: _Border, length: int, run_scale: float, rng: np.random.Generator
) -> Span:
    """The run nearest to the change of region."""
    low, change, high = border
    positions = sorted(prior.main)  # the draw must not depend on the order in a file
    odds = np.array([prior.main[position].count for position in positions], dtype=float)
    position = "ends"
    if odds.sum():
        position = positions[int(rng.choice(len(positions), p=odds / odds.sum()))]
    distance = int(prior.distance.draw(1, rng, run_scale)[0])
    if low == change:  # no row before the change
        moved = {"ends": "starts", "across": "starts", "before": "after"}
        position = moved.get(position, position)
    if position == "across":
        length = max(length, 2)
        ahead = int(rng.integers(1, length))
        return max(low, change - ahead), min(high, change - ahead + length)
    if position in ("starts", "after"):
        distance = 0 if position == "starts" else min(distance, high - change - 1)
        return change + distance, min(high, change + distance + length)
    distance = 0 if position == "ends" else min(distance, change - low - 1)
    return max(low, change - distance - length), change - distance


@dataclass(frozen=True)
class PlannedRuns:
    """Runs of one finding before they have a position; burst by burst."""

    burst: Rows  # (n,) which burst each run belongs to, rising from 0
    lengths: Rows  # (n,) rows
    gaps: Rows  # (n,) rows to the next run of the burst; not used after the last of a burst

    def take(self, selection: slice | Mask) -> "PlannedRuns":
        return PlannedRuns(self.burst[selection], self.lengths[selection], self.gaps[selection])


def draw_findings(
    labels: Mask,
    findings: tuple[str, ...],
    priors: Priors,
    run_scale: float,
    options: TimelineOptions,
    rng: np.random.Generator,
) -> None:
    """Set the columns of these findings in `labels` (rows, 17), whose regions are set.

    Rare findings come first, and their runs decide whether the next finding is on them. So the
    share of a's rows that show b is kept for a rarer than b; the other direction follows from how
    much there is of each. Pairs seen together in fewer than `min_common_studies` are left to
    chance.
    """
    region_rows = {region: np.flatnonzero(labels[:, COLUMN[region]]) for region in REGIONS}
    burst_gap = priors.findings.burst_gap * run_scale
    prior = priors.findings.labels
    order = sorted(findings, key=lambda label: (prior[label].rows, label))
    for number, label in enumerate(order):
        finding = prior[label]
        overlaps = {
            other: priors.cooccurrence.both.get(other, {}).get(label) for other in order[:number]
        }
        shares = {
            other: overlap.share
            for other, overlap in overlaps.items()
            if overlap and overlap.studies >= options.min_common_studies
        }
        allowed = np.zeros(len(labels), dtype=np.bool_)
        for region in _possible_regions(region_rows, finding):
            allowed[region_rows[region]] = True
        required, decided = _companion_rows(labels, shares, allowed, rng)
        runs = _draw_runs(finding, run_scale, rng)
        column = required.copy()
        if required.any():
            hosts = split_bursts(runs_of(required), int(burst_gap))
            runs = _grow_companions(column, hosts, runs, rng)
        _place_bursts(column, runs, region_rows, finding, burst_gap, options.max_filled, rng)
        column &= (required | ~decided) & allowed
        if not column.any():
            column[_draw_free_row(allowed, decided, rng)] = True
        labels[:, COLUMN[label]] = column


def _possible_regions(region_rows: dict[str, Rows], finding: Finding) -> list[str]:
    """Regions of the study in which the finding can be; all of them if that is none."""
    shown = [region for region in REGIONS if region_rows[region].size]
    return [region for region in shown if finding.region[region] > 0] or shown


def _companion_rows(
    labels: Mask, shares: dict[str, float], allowed: Mask, rng: np.random.Generator
) -> tuple[Mask, Mask]:
    """Rows of other findings that must show the one being drawn, and all rows that are decided.

    `shares` gives, for each finding already drawn, the share of its rows that show the new one.
    Whole runs are decided, so that a companion lasts as long as the run it goes with. The strongest
    pair decides first; where findings overlap, a weaker one reaches its share on the rows that are
    left to it.
    """
    required = np.zeros(len(labels), dtype=np.bool_)
    decided = np.zeros(len(labels), dtype=np.bool_)
    for other, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
        rows = labels[:, COLUMN[other]]
        free = rows & ~decided & allowed
        free_count = int(free.sum())
        if free_count:
            chance = (share * int(rows.sum()) - int((rows & required).sum())) / free_count
            runs = runs_of(rows)
            chosen = runs[rng.random(len(runs)) < chance]
            required |= _mask(chosen, len(labels)) & free
        decided |= rows
    return required, decided


def _mask(runs: Runs, rows: int) -> Mask:
    steps = np.zeros(rows + 1, dtype=np.int64)
    np.add.at(steps, runs[:, 0], 1)
    np.add.at(steps, runs[:, 1], -1)
    return np.cumsum(steps[:-1]) > 0


def _draw_runs(finding: Finding, run_scale: float, rng: np.random.Generator) -> PlannedRuns:
    bursts = int(finding.bursts.draw(1, rng)[0])
    runs_per_burst = finding.runs.draw(bursts, rng)
    count = int(runs_per_burst.sum())
    return PlannedRuns(
        np.repeat(np.arange(bursts), runs_per_burst),
        finding.lengths.draw(count, rng, run_scale),
        finding.gaps_inside.draw(count, rng, run_scale),
    )


def _grow_companions(
    column: Mask, hosts: list[Runs], runs: PlannedRuns, rng: np.random.Generator
) -> PlannedRuns:
    """Count bursts of companion runs as drawn bursts; returns the planned runs that are left.

    Otherwise every companion would add to the drawn number of bursts. A companion run grows around
    its host to the length of a run of the burst that it replaces.
    """
    first_replaced = int(runs.burst[-1]) + 1 - len(hosts)
    left = int(np.searchsorted(runs.burst, max(first_replaced, 0)))
    host_runs = np.concatenate(hosts)
    growth = np.zeros(len(host_runs), dtype=np.int64)
    used = min(len(host_runs), runs.lengths.size - left)
    growth[:used] = runs.lengths[left : left + used]
    growth = np.maximum(growth - (host_runs[:, 1] - host_runs[:, 0]), 0)
    ahead = (rng.random(len(host_runs)) * (growth + 1)).astype(np.int64)
    start = np.maximum(host_runs[:, 0] - ahead, 0)
    stop = np.minimum(host_runs[:, 1] + growth - ahead, column.size)
    column |= _mask(np.column_stack([start, stop]), column.size)
    return runs.take(slice(left))


def _place_bursts(
    column: Mask,
    runs: PlannedRuns,
    region_rows: dict[str, Rows],
    finding: Finding,
    burst_gap: float,
    max_filled: float,
    rng: np.random.Generator,
) -> None:
    """Set the runs in `column`, each burst in a region drawn by the finding's odds."""
    if not runs.lengths.size:
        return
    regions = _possible_regions(region_rows, finding)
    odds = np.array([finding.region[r] * np.sqrt(region_rows[r].size) for r in regions])
    odds = np.maximum(odds, 1e-12)  # a study may have none of the finding's regions
    chosen = rng.choice(len(regions), size=int(runs.burst[-1]) + 1, p=odds / odds.sum())
    for i, region in enumerate(regions):
        inside = chosen[runs.burst] == i
        if inside.any():
            rows = region_rows[region]
            spans = _lay_out(runs.take(inside), rows.size, burst_gap, max_filled, rng)
            column[rows[_mask(spans, rows.size)]] = True


def _lay_out(
    runs: PlannedRuns, room: int, burst_gap: float, max_filled: float, rng: np.random.Generator
) -> Runs:
    """Positions of the runs in [0, room): bursts in order, with random slack between them."""
    ends_burst = np.append(runs.burst[1:] != runs.burst[:-1], True)
    step = runs.lengths + np.where(ends_burst, 0, runs.gaps)
    # In a short study, or for a frequent finding, runs beyond the share of the region that a
    # finding may fill are left out from the end; the first run always stays.
    budget = max(1, int(max_filled * room))
    fits = np.cumsum(step) <= budget
    fits[0] = True
    count = int(fits.sum())
    lengths, step = np.minimum(runs.lengths[:count], budget), step[:count].copy()
    burst = runs.burst[:count]
    step[-1] = lengths[-1]
    starts_burst = np.append(True, burst[1:] != burst[:-1])
    bursts = int(starts_burst.sum())
    slack = room - int(step.sum())
    apart = min(int(burst_gap) + 1, slack // bursts)
    free = slack - apart * (bursts - 1)
    shift = np.sort(rng.integers(0, free + 1, size=bursts)) + apart * np.arange(bursts)
    start = np.cumsum(step) - step + shift[np.cumsum(starts_burst) - 1]
    return np.column_stack([start, start + lengths])


def _draw_free_row(allowed: Mask, decided: Mask, rng: np.random.Generator) -> int:
    """A row for a finding that lost all of its rows to the decisions of others."""
    free = np.flatnonzero(allowed & ~decided)
    rows = free if free.size else np.flatnonzero(allowed)
    return int(rows[int(rng.integers(rows.size))])
