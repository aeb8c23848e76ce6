"""Gaps of the numbering, distinguished from unreadable frames."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enteron.types import FrameAxis, gaps_of, longest


@given(
    st.integers(1, 5),
    st.integers(0, 20),
    st.sets(st.integers(1, 58), max_size=15),
    st.sets(st.integers(1, 58), max_size=15),
)
def test_against_a_search_number_by_number(step, first, bad, lost):
    """Rows 0 to 59; some unreadable, some not in the study at all."""
    rows = [row for row in range(60) if row not in bad | lost]
    axis = FrameAxis(first + step * np.array(rows))
    expected, missing = [], []
    for row in range(60):
        if row in rows:
            if any(r in lost - bad for r in missing):
                expected.append((first + step * missing[0], first + step * row))
            missing = []
        else:
            missing.append(row)
    if axis.step == step:  # with many frames missing, another step may be the commonest
        assert gaps_of(axis, {first + step * row for row in bad}) == expected


def test_unnamed_frames_fill_the_shortest_gaps():
    axis = FrameAxis(np.delete(np.arange(100), [10, 20, 21, 50, 51, 52, 53]))
    assert gaps_of(axis) == [(10, 11), (20, 22), (50, 54)]
    assert gaps_of(axis, {10}) == [(20, 22), (50, 54)]
    assert gaps_of(axis, (), 3) == [(50, 54)]
    assert gaps_of(axis, {50, 51, 52, 53}, 3) == []
    assert gaps_of(axis, (), 2) == [(20, 22), (50, 54)]


def test_the_longest_in_order():
    gaps = [(0, 1), (5, 9), (20, 22), (30, 34)]
    assert longest(gaps, 2) == [(5, 9), (30, 34)]
    assert longest(gaps, 9) == gaps
    assert longest([], 3) == []
