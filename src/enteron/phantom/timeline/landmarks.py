"""Runs of a landmark around the change of region that it marks."""

import itertools

import numpy as np

from enteron.labels import LANDMARK_BETWEEN
from enteron.phantom.timeline.transit import Stay
from enteron.priors.value import Landmark

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
