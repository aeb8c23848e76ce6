"""Whatever people do, in whatever order: the state follows from the record, and the chain holds."""

import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.errors import EnteronError
from enteron.review.actions import (
    Add,
    ClearLandmark,
    Comment,
    Confirm,
    ConfirmLandmark,
    Dismiss,
    EditReport,
    Landmark,
    MoveLandmark,
    Reject,
    Relabel,
    Sign,
    Trim,
    Viewed,
)
from enteron.review.state import ReviewState, derive, merge
from enteron.review.store import REVIEWS, ReviewStore
from tests.review.test_store import OPENING

EVENTS = st.sampled_from(["m3", "m4", "m5"])
NAMES: tuple[Landmark, ...] = (
    "first gastric image",
    "first duodenal image",
    "first caecal image",
)
LANDMARKS = st.sampled_from(NAMES)
LABELS = st.sampled_from(["ulcer", "polyp", "erosion"])
SPANS = st.tuples(st.integers(0, 50), st.integers(1, 9)).map(lambda s: (s[0], s[0] + s[1]))
ACTIONS = st.one_of(
    EVENTS.map(lambda e: Confirm(event=e)),
    EVENTS.map(lambda e: Reject(event=e)),
    st.tuples(EVENTS, LABELS).map(lambda p: Relabel(event=p[0], label=p[1])),
    st.tuples(EVENTS, SPANS).map(lambda p: Trim(event=p[0], start=p[1][0], stop=p[1][1])),
    st.tuples(LABELS, SPANS).map(lambda p: Add(label=p[0], start=p[1][0], stop=p[1][1])),
    st.tuples(LABELS, st.integers(0, 59)).map(lambda p: Dismiss(label=p[0], frame=p[1])),
    LANDMARKS.map(lambda name: ConfirmLandmark(landmark=name)),
    LANDMARKS.map(lambda name: ClearLandmark(landmark=name)),
    st.tuples(LANDMARKS, st.integers(0, 59)).map(lambda p: MoveLandmark(landmark=p[0], frame=p[1])),
    st.text(max_size=5).map(lambda text: EditReport(field="conclusion", text=text)),
    st.just(Sign()),
    st.just(Comment(text="x")),
    SPANS.map(lambda span: Viewed(intervals=(span,))),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["anna", "ben"]), st.one_of(ACTIONS, st.sampled_from(["undo", "redo"]))
    ),
    max_size=25,
)


def decided(state: ReviewState) -> object:
    """What a state says, without numbers and times."""
    return [
        [(e.id, e.label, e.start, e.stop, e.decision) for e in state.events.values()],
        [(mark.frame, mark.status) for mark in state.landmarks.values()],
        [(d.frame, d.label) for d in state.dismissed],
        state.report,
    ]


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_the_state_follows_from_the_record(steps):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / REVIEWS
        with ReviewStore(path) as store, ReviewStore(path) as other:
            for user, step in steps:
                expected = store.state("s1", OPENING).version
                try:
                    if step == "undo":
                        before = store.state("s1")
                        after = store.undo("s1", user, expected=expected)
                        again = store.redo("s1", user, expected=after.version)
                        assert decided(again) == decided(before)  # redo brings all of it back
                        store.undo("s1", user, expected=again.version)
                    elif step == "redo":
                        store.redo("s1", user, expected=expected)
                    else:
                        store.append("s1", user, step, expected=expected, opening=OPENING)
                except EnteronError:
                    continue
            state, entries = store.state("s1"), store.history("s1")
            assert derive("s1", entries) == state
            assert other.state("s1") == state  # which saw all of it at once
            assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
            assert store.verify().problems == ()
            for signature in state.signatures:
                assert store.signed("s1", signature.version).signatures[-1] == signature


INTERVALS = st.lists(SPANS, max_size=8)


@given(INTERVALS, INTERVALS)
def test_merged_intervals_cover_the_same_frames(some, more):
    merged = merge(merge((), some), more)
    covered = {frame for start, stop in merged for frame in range(start, stop)}
    assert covered == {frame for start, stop in some + more for frame in range(start, stop)}
    assert all(a[1] < b[0] for a, b in pairwise(merged))
