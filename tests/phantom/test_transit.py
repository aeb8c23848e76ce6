"""Durations of regions: as in the priors within sampling error, and scaled to any length."""

import math
from collections import Counter

import numpy as np
import pytest

from enteron.labels import REGIONS
from enteron.phantom.timeline import Transit, draw_transit, scale_to_rows, study_seed
from enteron.priors import load_priors

PRIORS = load_priors()
Z = 4.0  # standard errors; 17 figures are compared, so chance fails about one seed in 900


def mean_is(values: np.ndarray, mean: float) -> bool:
    """Whether the mean of the values agrees."""
    return abs(values.mean() - mean) <= Z * values.std(ddof=1) / math.sqrt(values.size)


def rows_per_region(transit: Transit) -> Counter[str]:
    rows: Counter[str] = Counter()
    for region, start, stop in transit.region_intervals:
        rows[region] += stop - start
    return rows


# Scaling to a number of rows multiplies all durations of a study by one factor, so absolute ones
# are lost, but the log of the ratio of two regions is not: its mean is the difference of their
# means, its variance v_a + v_b - 2 r s_a s_b. At 200,000 rows the one-row floor hardly acts.
@pytest.mark.parametrize(
    ("a", "b"),
    [("stomach", "small intestine"), ("small intestine", "colon"), ("stomach", "colon")],
)
def test_log_ratios_of_durations(a: str, b: str):
    n = 2000
    ratios = np.empty(n)
    for study in range(n):
        rng = np.random.default_rng(study_seed(23, study))
        transit = draw_transit(200_000, REGIONS, PRIORS, 5, 1, rng)
        rows = rows_per_region(transit)
        ratios[study] = math.log(rows[a] / rows[b])
    first, second = (PRIORS.regions.durations[region].fitted for region in (a, b))
    r = PRIORS.regions.correlation.get(b, {}).get(a, 0.0)
    sd = math.sqrt(first.log_sd**2 + second.log_sd**2 - 2 * r * first.log_sd * second.log_sd)
    assert mean_is(ratios, first.log_mean - second.log_mean)
    assert abs(ratios.std(ddof=1) - sd) <= Z * sd / math.sqrt(2 * n)


def test_log_durations_of_every_region_at_natural_length():
    n = 2000
    logs: dict[str, list[float]] = {region: [] for region in REGIONS}
    for study in range(n):
        rng = np.random.default_rng(study_seed(24, study))
        # At one row per original frame only a stay below one frame is changed by the floor.
        transit = draw_transit(None, REGIONS, PRIORS, 1, 1, rng)
        rows = rows_per_region(transit)
        for region in REGIONS:
            logs[region].append(math.log(rows[region] * transit.frames_per_row))
    for region in REGIONS:
        fitted = PRIORS.regions.durations[region].fitted
        values = np.array(logs[region])
        assert mean_is(values, fitted.log_mean), region
        assert abs(values.std(ddof=1) - fitted.log_sd) <= Z * fitted.log_sd / math.sqrt(2 * n)
    r = float(np.corrcoef(logs["mouth"], logs["esophagus"])[0, 1])
    assert r == pytest.approx(PRIORS.regions.correlation["esophagus"]["mouth"], abs=Z / n**0.5)


LASTING: dict[str, float] = {
    "mouth": 40,
    "esophagus": 60,
    "stomach": 3000,
    "small intestine": 40_000,
    "colon": 20_000,
}


#   frames   mouth 40  esophagus 60  stomach 3,000  small intestine 40,000  colon 20,000
#   at 5     8         12            600            8,000                   4,000 rows
#   in 2,000 1.3       1.9           95             1,268                   634 in proportion
def test_short_stays_keep_their_rows_and_the_others_their_proportions():
    rows = scale_to_rows(LASTING, 2000, stride=5, min_region_rows=12)
    assert (rows["mouth"], rows["esophagus"]) == (8, 12)
    assert sum(rows.values()) == 2000
    assert rows["small intestine"] / rows["colon"] == pytest.approx(2, rel=0.01)
    assert rows["small intestine"] / rows["stomach"] == pytest.approx(40 / 3, rel=0.01)
    plain = scale_to_rows(LASTING, 2000, stride=5, min_region_rows=1)
    assert (plain["mouth"], plain["esophagus"]) == (1, 2)


def test_fewer_rows_than_regions_keep_the_longest():
    assert scale_to_rows(LASTING, 2, 5, 12) == {"small intestine": 1, "colon": 1}
    assert scale_to_rows(LASTING, 5, 5, 12) == dict.fromkeys(REGIONS, 1)
    assert sum(scale_to_rows(LASTING, 13, 5, 12).values()) == 13
