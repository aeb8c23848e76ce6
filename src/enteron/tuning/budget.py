"""Windows and thresholds that find the most lesions within a budget of false alarms."""

from collections.abc import Mapping

import numpy as np

from enteron.tuning.curves import GRID, Curve

Choice = tuple[int, float]
"""Rows of the smoothing window, and the upper threshold."""

_Place = tuple[int, int]  # window, and position in GRID


def within_budget(
    curves: Mapping[str, Mapping[int, Curve]], alarms: float
) -> dict[str, Choice | None]:
    """For each label the window and threshold (None: leave it out) that together find the most.

    `curves` has each label's curve for every window. A price per false alarm is sought such that
    labels, each choosing for itself by lesions found minus price times alarms, stay within
    `alarms` in all.
    """
    low, high = 1e-6, 1e6  # lesions per alarm: at the higher price nobody affords an alarm
    chosen = _choices(curves, high)
    for _ in range(60):
        price = float(np.sqrt(low * high))
        trial = _choices(curves, price)
        if _alarms(curves, trial) <= alarms:
            high, chosen = price, trial
        else:
            low = price
    return {
        label: None if place is None else (place[0], float(GRID[place[1]]))
        for label, place in chosen.items()
    }


def _choices(curves: Mapping[str, Mapping[int, Curve]], price: float) -> dict[str, _Place | None]:
    chosen: dict[str, _Place | None] = {}
    for label, windows in curves.items():
        best, most = None, 0.0
        for window, curve in windows.items():
            gain = curve.found - price * curve.alarms
            place = gain.size - 1 - int(gain[::-1].argmax())  # the higher one of equals
            if gain[place] > most:
                best, most = (window, place), float(gain[place])
        chosen[label] = best
    return chosen


def _alarms(
    curves: Mapping[str, Mapping[int, Curve]], chosen: Mapping[str, _Place | None]
) -> float:
    return sum(
        float(curves[label][place[0]].alarms[place[1]])
        for label, place in chosen.items()
        if place is not None
    )
