"""Curves: what is embedded equals a search row by row."""

from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.folders.reading import RunRecord
from enteron.labels import LABELS
from enteron.report.clock import Clock
from enteron.report.timeline import curve_data, frame_runs, quantised, time_knots
from enteron.types import FrameAxis, Scores


def random_scores(rows: int, seed: int = 0, times=None, frames=None) -> Scores:
    values = np.random.default_rng(seed).uniform(0, 1, (rows, len(LABELS))).astype(np.float32)
    return Scores("x", FrameAxis(np.arange(rows) if frames is None else frames), values, times)


def clock_of(scores: Scores, rate: float | None = None) -> Clock:
    return Clock.of(scores, RunRecord(rate=rate))


@given(rows=st.integers(1, 60), most=st.integers(1, 60), seed=st.integers(0, 3))
def test_buckets_hold_the_least_and_greatest_of_their_rows(rows, most, seed):
    scores = random_scores(rows, seed)
    curves = quantised(scores, most)
    assert curves.high.shape[1] <= most
    for column in range(len(LABELS)):
        values = [round(float(v) * 255) for v in scores.values[:, column]]
        for bucket in range(curves.high.shape[1]):
            inside = values[bucket * curves.bucket : (bucket + 1) * curves.bucket]
            assert curves.low[column, bucket] == min(inside)
            assert curves.high[column, bucket] == max(inside)


def test_full_detail_is_right_to_half_a_step():
    scores = random_scores(500)
    data = curve_data(scores, clock_of(scores))
    embedded = np.frombuffer(b64decode(data["high"]), np.uint8).reshape(17, 500).T / 255
    assert np.abs(embedded - scores.values).max() <= 0.5 / 255 + 1e-6
    assert (data["bucket"], data["low"], data["rows"]) == (1, None, 500)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(0, 100))
def test_runs_give_every_frame_back(steps, first):
    axis = FrameAxis(first + np.cumsum([0, *steps]))
    runs = frame_runs(axis)
    bounds = [row for row, _ in runs[1:]] + [len(axis)]
    frames = [
        frame + k * axis.step
        for (row, frame), end in zip(runs, bounds, strict=True)
        for k in range(end - row)
    ]
    assert frames == axis.frames.tolist()


def test_an_even_rate_needs_two_knots():
    timed = random_scores(100, times=np.arange(100) / 3)
    assert time_knots(clock_of(timed)) == [(0, 0.0), (100, pytest.approx(100 / 3, abs=1e-3))]
    assert time_knots(clock_of(random_scores(100), rate=2.0)) == [(0, 0.0), (100, 50.0)]
    assert time_knots(clock_of(random_scores(100))) is None


def test_uneven_times_are_followed():
    times = np.cumsum(np.where(np.arange(5000) % 2500 < 1200, 0.2, 0.5))
    scores = random_scores(5000, times=times - times[0])
    knots = time_knots(clock_of(scores))
    assert knots is not None
    assert len(knots) <= 2000
    assert scores.times is not None
    interpolated = np.interp(scores.axis.frames, *np.array(knots).T)
    assert np.abs(interpolated - scores.times).max() < 1.0
    assert knots[-1] == (5000, pytest.approx(scores.times[-1] + 0.5, abs=0.01))
