"""Thresholds that find the most lesions within a budget of false alarms."""

from collections.abc import Mapping

import numpy as np

from enteron.tuning.curves import GRID, Curve


def within_budget(curves: Mapping[str, Curve], alarms: float) -> dict[str, float | None]:
    """For each label the threshold (None: leave it out) that together find the most.

    A price per false alarm is sought such that labels, each choosing its own threshold by lesions
    found minus price times alarms, stay within `alarms` in all.
    """
    low, high = 0.0, 1e6  # lesions per alarm; at the higher price nobody affords an alarm
    chosen = _choices(curves, high)
    for _ in range(60):
        price = np.sqrt(low * high) if low > 0 else high / 10
        trial = _choices(curves, price)
        if _alarms(curves, trial) <= alarms:
            high, chosen = price, trial
        else:
            low = price
        if low == 0 and high < 1e-9:
            break
    return {label: None if place is None else float(GRID[place]) for label, place in chosen.items()}


def _choices(curves: Mapping[str, Curve], price: float) -> dict[str, int | None]:
    chosen: dict[str, int | None] = {}
    for label, curve in curves.items():
        gain = curve.found - price * curve.false
        best = gain.size - 1 - int(gain[::-1].argmax())  # the higher threshold of equal ones
        chosen[label] = best if gain[best] > 0 else None
    return chosen


def _alarms(curves: Mapping[str, Curve], chosen: Mapping[str, int | None]) -> int:
    return sum(int(curves[n].false[place]) for n, place in chosen.items() if place is not None)
