"""The way of a synthetic capsule through the regions: durations, back-steps, compression."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import REGIONS
from enteron.priors.latent import from_table
from enteron.priors.value import LogNormal, Priors

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
