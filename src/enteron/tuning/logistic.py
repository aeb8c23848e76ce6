"""A logistic regression on one variable, careful with few observations."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

SLOPE_DEVIATION = 1.0  # of the prior on the slope, which is 0 without evidence


def fit_logistic(
    x: NDArray[np.floating], y: NDArray[np.bool_], *, slope_deviation: float = SLOPE_DEVIATION
) -> tuple[float, float]:
    """Intercept and slope of log-odds(y) = intercept + slope * x.

    Half an observation of each outcome is added at the mean of x (Jeffreys), so that a label seen
    in every study is not certain; the slope has a Gaussian prior around 0 and is not negative.
    """
    mean = float(np.mean(x)) if x.size else 0.0
    centred = np.concatenate([np.asarray(x, dtype=np.float64) - mean, [0.0, 0.0]])
    outcome = np.concatenate([np.asarray(y, dtype=np.float64), [0.0, 1.0]])
    weight = np.concatenate([np.ones(len(x)), [0.5, 0.5]])
    design = np.column_stack([np.ones(centred.size), centred])
    ridge = np.diag([0.0, 1 / slope_deviation**2])
    beta = np.zeros(2)
    for _ in range(100):
        p = expit(design @ beta)
        gradient = design.T @ (weight * (outcome - p)) - ridge @ beta
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design + ridge
        step = np.clip(np.linalg.solve(hessian + 1e-9 * np.eye(2), gradient), -2, 2)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    if beta[1] < 0:  # a higher score never makes a thing less likely
        share = float((weight * outcome).sum() / weight.sum())
        return float(np.log(share / (1 - share))), 0.0
    return float(beta[0] - beta[1] * mean), float(beta[1])
