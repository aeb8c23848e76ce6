"""The state machine against the paper's loop, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from enteron.decoding.regions import run_state_machine
from tests.decode.making import regions_drawn
from tests.literal import decoding as literal

MACHINES = [(False, False), (True, False), (False, True), (True, True)]


def states(intervals) -> list[int]:
    return [region for region, start, stop in intervals for _ in range(start, stop)]


def spelt(line: str, tau: int, **options) -> str:
    return "".join(
        "mesic"[s] for s in states(run_state_machine(regions_drawn(line), tau, **options))
    )


@settings(max_examples=600)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(5)),
               elements=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
    st.integers(1, 5),
    st.sampled_from(MACHINES),
)  # fmt: skip
def test_equals_the_loop(p, tau, machine):
    strict, backdate = machine
    intervals = run_state_machine(p, tau, strict=strict, backdate=backdate)
    assert states(intervals) == literal.state_machine(p.tolist(), tau, strict, backdate)
    assert all(stop > start for _, start, stop in intervals)
    assert [a[2] for a in intervals[:-1]] == [b[1] for b in intervals[1:]]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("mesic"), st.integers(1, 9)), min_size=1, max_size=12),
       st.integers(1, 6), st.sampled_from(MACHINES))  # fmt: skip
def test_equals_the_loop_on_long_runs(pieces, tau, machine):
    p = regions_drawn("".join(letter * length for letter, length in pieces))
    strict, backdate = machine
    intervals = run_state_machine(p, tau, strict=strict, backdate=backdate)
    assert states(intervals) == literal.state_machine(p.tolist(), tau, strict, backdate)


@pytest.mark.parametrize(
    ("seen", "states_spelt"),
    [
        # one frame is not enough for anything
        ("c", "m"),
        ("ccc", "mmc"),  # the third row confirms; literal: from that row on
        ("ccsccc", "mmsssc"),  # the counter runs on: s confirms, and c then needs three more
        ("cccccc", "mmcccc"),
        ("sssiii", "mmsssi"),
        ("sssmmmiii", "mmssssssi"),  # back-steps are ignored: mouth is never looked at again
        ("iiissscc", "mmiiiiii"),  # stomach after the intestine: not forward; colon too short
        ("ssmss", "mmmmm"),  # a row of the present state resets the counter
        ("mmmm", "mmmm"),
    ],
)
def test_by_hand(seen, states_spelt):
    assert spelt(seen, 3) == states_spelt


def test_alternating_forward_states():
    #  seen     e s e s e s        tau 3
    #  literal  k = 1 2 3 -> commit to what row 3 shows: e;  then s . s: never three in a row
    #  strict   no candidate three times running: mouth for ever
    assert spelt("eseses", 3) == "mmeeee"
    assert spelt("eseses", 3, strict=True) == "mmmmmm"


def test_backdating_moves_to_the_first_row_of_the_run():
    assert spelt("mmsssss", 3) == "mmmmsss"
    assert spelt("mmsssss", 3, backdate=True) == "mmsssss"


def test_open_at_the_end():
    assert run_state_machine(regions_drawn("sssii"), 3) == [(0, 0, 2), (2, 2, 5)]
