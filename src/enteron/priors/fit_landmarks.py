"""Fitting landmarks: how many runs, how long, and where they lie around the change of region."""

import itertools
from collections import Counter
from collections.abc import Sequence

from enteron.labels import LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.priors.observed import Observed
from enteron.priors.published import LANDMARK_ENDS
from enteron.priors.sizes import fit_sizes
from enteron.priors.value import Landmark, Landmarks, Share

PLACES = ("ends", "starts", "across", "before", "after")


def fit_landmarks(studies: Sequence[Observed], source: str, published: bool) -> Landmarks:
    """All three landmarks."""
    return Landmarks(
        source=source,
        unit="rows; runs: per study that shows the landmark",
        labels={label: _fit_landmark(label, studies, published) for label in LANDMARKS},
    )


def changes(study: Observed, before: str, after: str) -> list[int]:
    """Rows at which the study leaves `before` forward or enters `after` from an earlier region.

    A study that begins in `after` changes at its first row, one that ends in `before` at its end.
    """
    early, late = REGIONS.index(before), REGIONS.index(after)
    stays = study.stays()
    rows = [
        start
        for (last, _, _), (region, start, _) in itertools.pairwise(stays)
        if last < region and (last == early or region == late)
    ]
    if stays and stays[0][0] == late:
        rows.append(stays[0][1])
    if not rows and stays:
        rows.append(stays[-1][2])
    return rows


def distance_to(span: tuple[int, int], change: int) -> int:
    """Rows between the nearest end of [start, stop) and the change; negative before it, 0 at it."""
    start, stop = span
    if start <= change <= stop:
        return 0
    return start - change if start > change else stop - change


def place_of(span: tuple[int, int], change: int) -> str:
    """How the run lies to the change."""
    start, stop = span
    if stop == change:
        return "ends"
    if start == change:
        return "starts"
    if start < change < stop:
        return "across"
    return "before" if stop < change else "after"


def _fit_landmark(label: str, studies: Sequence[Observed], published: bool) -> Landmark:
    before, after = LANDMARK_BETWEEN[label]
    needs = {before, after}
    runs: list[int] = []
    lengths: list[int] = []
    gaps: list[int] = []
    distances: list[int] = []
    places: Counter[str] = Counter()
    others_before = others = 0
    for study in studies:
        spans = [(int(a), int(b)) for a, b in study.runs(label)]
        if not spans:
            continue
        needs &= {region for region in needs if study.shows(region)}
        runs.append(len(spans))
        lengths += [stop - start for start, stop in spans]
        gaps += [b[0] - a[1] for a, b in itertools.pairwise(spans)]
        main, change = min(
            ((i, row) for i in range(len(spans)) for row in changes(study, before, after)),
            key=lambda pair: abs(distance_to(spans[pair[0]], pair[1])),
        )
        places[place_of(spans[main], change)] += 1
        if distance := abs(distance_to(spans[main], change)):
            distances.append(distance)
        others_before += main
        others += len(spans) - 1
    shown = max(len(runs), 1)
    return Landmark(
        needs=tuple(region for region in (before, after) if region in needs),
        runs=fit_sizes(runs),
        lengths=fit_sizes(lengths),
        main={place: Share(count=places[place], n=shown) for place in PLACES},
        distance=fit_sizes(distances),
        gaps=fit_sizes(gaps),
        others_before=Share(count=others_before, n=max(others, 1)),
        published_ends=LANDMARK_ENDS[label] if published else None,
    )
