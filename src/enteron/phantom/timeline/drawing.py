"""A synthetic study's labels, row by row, drawn from the priors.

A study that is shorter than a real one is compressed: regions in proportion (short ones keep a few
rows), the number of runs as in the data, run lengths and gaps by the same factor as the regions,
but a run of one row stays one row and a longer one stays longer. So a study of 2,000 rows has as
many events as one of 14,000, and as many of them of a single row. Its findings fill more of it (the
median share of rows doubles, for ulcer it is four times), since short runs cannot become shorter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.config import Options
from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARKS
from enteron.phantom.timeline.findings import draw_findings
from enteron.phantom.timeline.landmarks import draw_landmark
from enteron.phantom.timeline.presence import draw_others_shown, draw_regions_shown
from enteron.phantom.timeline.transit import Stay, draw_transit
from enteron.priors.value import Priors


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
