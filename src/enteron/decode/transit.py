"""Regions of a study, by the state machine or by the semi-Markov model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.decode.durations import log_durations
from enteron.decode.evidence import evidence
from enteron.decode.options import SemiMarkovOptions, StateMachineOptions
from enteron.decode.posterior import border_posterior, posterior_grid
from enteron.decode.runs import means
from enteron.decode.semi_markov import make_problem, solve
from enteron.decode.state_machine import run_state_machine
from enteron.priors import Priors

DEFAULT_KAPPA = 0.3


@dataclass(frozen=True)
class RegionStay:
    """Rows [start, stop) in one region."""

    region: int  # position in REGIONS
    start: int
    stop: int
    score: float  # paper: mean probability; semi-Markov: posterior probability
    onset: float | None = None  # posterior probability of the border where it begins
    end: float | None = None  # and of the one where it ends


def state_machine_transit(
    p: NDArray[np.float32], options: StateMachineOptions, mouth_threshold: float | None
) -> list[RegionStay]:
    """Stays from (rows, 5) smoothed probabilities, as the paper's stage 2 finds them.

    The mouth is where the machine starts, not what it found: it is left out unless its mean
    probability reaches its threshold (decision 25).
    """
    found = run_state_machine(p, options.tau, strict=options.strict, backdate=options.backdate)
    stays = [
        RegionStay(region, start, stop, float(means(p[:, region], np.array([[start, stop]]))[0]))
        for region, start, stop in found
    ]
    return [
        stay
        for stay in stays
        if stay.region != 0 or (mouth_threshold is not None and stay.score >= mouth_threshold)
    ]


def semi_markov_transit(
    p: NDArray[np.float32],
    rates: NDArray[np.float64],
    stride: float,
    options: SemiMarkovOptions,
    kappa: float,
    priors: Priors,
) -> list[RegionStay]:
    """Stays from (rows, 5) probabilities with their base rates.

    `stride` is the number of original frames per row.
    """
    rows = p.shape[0]
    known = evidence(p, rates, options.clip)
    problem = make_problem(known, log_durations(rows, stride, priors), kappa)
    borders = solve(problem, options.cells, options.dense)
    grid = posterior_grid(rows, borders, options.cells, options.dense, 2 * options.margin)
    posterior = border_posterior(problem, grid)
    stays: list[RegionStay] = []
    for k, (start, stop) in enumerate(
        zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
    ):
        if stop > start:
            onset = posterior.onset(k, start, options.margin) if start else None
            end = posterior.onset(k + 1, stop, options.margin) if stop < rows else None
            stays.append(RegionStay(k, start, stop, posterior.stay(k, start, stop), onset, end))
    return stays
