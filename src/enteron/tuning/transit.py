"""The weight of a row's evidence, chosen by how well regions come out."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.labelled import Labelled
from enteron.calibration.logits import calibrated
from enteron.calibration.value import Calibration
from enteron.decode.durations import log_durations
from enteron.decode.evidence import evidence, known_rates
from enteron.decode.presets import TRANSIT
from enteron.decode.semi_markov import make_problem, solve
from enteron.decode.transit import DEFAULT_KAPPA
from enteron.labels import REGIONS
from enteron.priors import Priors


def choose_kappa(
    studies: Sequence[Labelled],
    calibration: Calibration,
    priors: Priors,
    kappas: Sequence[float],
) -> float:
    """The kappa with the best mean overlap of regions; of equal ones the one nearest to 0.3."""
    options = TRANSIT.semi_markov
    count = len(REGIONS)
    rates = known_rates(calibration, priors)[:count]
    totals = np.zeros(len(kappas))
    for study in studies:
        rows, stride = len(study.scores.axis), study.scores.row_frames
        p = calibrated(study.scores, calibration.likelihood)[:, :count]
        known = evidence(p, rates, options.clip)
        durations = log_durations(rows, stride, priors)
        for place, kappa in enumerate(kappas):
            borders = solve(make_problem(known, durations, kappa), options.cells, options.dense)
            totals[place] += mean_overlap(borders, study.truth[:, :count])
    best = [k for k, total in zip(kappas, totals, strict=True) if total >= totals.max() - 1e-9]
    return min(best, key=lambda kappa: abs(np.log(kappa / DEFAULT_KAPPA)))


def mean_overlap(borders: NDArray[np.int64], truth: NDArray[np.bool_]) -> float:
    """Mean tIoU of stays with the rows of their region, over regions that either side has."""
    total = np.concatenate([np.zeros((1, truth.shape[1]), int), np.cumsum(truth, axis=0)])
    shares: list[float] = []
    for k, (start, stop) in enumerate(pairwise(borders.tolist())):
        shared = int(total[stop, k] - total[start, k])
        union = int(stop - start) + int(total[-1, k]) - shared
        if union:
            shares.append(shared / union)
    return float(np.mean(shares)) if shares else 1.0
