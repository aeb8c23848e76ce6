"""Scores against examples computed by hand from the published tables."""

import itertools

import pytest
from pydantic import ValidationError

from enteron.review.actions import ClearLandmark, Confirm, MachineEvent, Open, Reject
from enteron.review.scores import (
    Cecdai,
    Half,
    Koda,
    KodaFrame,
    Lewis,
    Saurin,
    Stenosis,
    Tertile,
    Ulcers,
    Villi,
)
from enteron.review.state import Entry, derive
from enteron.review.summary import summarise
from enteron.types import Unit
from tests.review.test_measures import clock_of

NORMAL = Tertile()


def lewis(first=NORMAL, second=NORMAL, third=NORMAL, stenosis=Stenosis()):  # noqa: B008
    return Lewis(tertiles=(first, second, third), stenosis=stenosis)


# Every line is worked out by hand: (tertiles, stenosis) -> points.
@pytest.mark.parametrize(
    ("score", "value", "category"),
    [
        (lewis(), 0, "no or insignificant"),
        # A single small ulcer in a short segment: 3 x 5 x 9.
        (
            lewis(Tertile(ulcers=Ulcers(count="single", extent="short", size="under a quarter"))),
            135,
            "mild",
        ),
        # Oedema: short and single, 1 x 8 x 1; long and patchy, 1 x 12 x 14.
        (lewis(Tertile(villi=Villi(oedematous=True, extent="short", distribution="single"))), 8,
         "no or insignificant"),
        (lewis(third=Tertile(villi=Villi(oedematous=True, extent="long", distribution="patchy"))),
         168, "mild"),
        # 1 x 20 x 17 + 5 x 10 x 12 = 340 + 600; a lesser tertile does not add.
        (
            lewis(
                Tertile(ulcers=Ulcers(count="single", extent="short", size="under a quarter")),
                Tertile(
                    villi=Villi(oedematous=True, extent="whole", distribution="diffuse"),
                    ulcers=Ulcers(count="few", extent="long", size="quarter to half"),
                ),
            ),
            940,
            "moderate to severe",
        ),
        # A stenosis alone: 14 x 2 x 7 = 196; several, ulcerated, not traversed: 20 x 24 x 10.
        (lewis(stenosis=Stenosis(count="single", ulcerated=False, traversed=True)), 196, "mild"),
        (lewis(stenosis=Stenosis(count="multiple", ulcerated=True, traversed=False)), 4800,
         "moderate to severe"),
        # The most there is: 340 + 10 x 15 x 18 = 340 + 2700, and 4800.
        (
            lewis(
                Tertile(
                    villi=Villi(oedematous=True, extent="whole", distribution="diffuse"),
                    ulcers=Ulcers(count="multiple", extent="whole", size="over half"),
                ),
                stenosis=Stenosis(count="multiple", ulcerated=True, traversed=False),
            ),
            7840,
            "moderate to severe",
        ),
    ],
)  # fmt: skip
def test_lewis(score, value, category):
    assert score.value == value
    assert score.category.startswith(category)


def test_the_borders_of_lewis_categories():
    # 135 and 790 are mild. 790 itself: 5 x 10 x 12 = 600 with 14 x 2 x 7 = 196 is 796, severe.
    few = Tertile(ulcers=Ulcers(count="few", extent="long", size="quarter to half"))
    assert lewis(few).category == "mild inflammation"
    over = lewis(few, stenosis=Stenosis(count="single", ulcerated=False, traversed=True))
    assert (over.value, over.category) == (796, "moderate to severe inflammation")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Ulcers(count="single"),
        lambda: Ulcers(count="single", extent="short"),
        lambda: Ulcers(extent="short"),
        lambda: Villi(oedematous=True, extent="short"),
        lambda: Villi(distribution="single"),
        lambda: Stenosis(count="single", ulcerated=True),
    ],
)
def test_half_a_row_is_refused(wrong):
    with pytest.raises(ValidationError, match="other columns"):
        wrong()


def test_cecdai():
    assert Cecdai().value == 0
    # 3 x 2 + 1 = 7 and 4 x 1 + 0 = 4.
    score = Cecdai(
        proximal=Half(inflammation=3, extent=2, stricture=1), distal=Half(inflammation=4, extent=1)
    )
    assert score.value == 11
    worst = Half(inflammation=5, extent=3, stricture=3)
    assert Cecdai(proximal=worst, distal=worst).value == 36
    values = {
        Half(inflammation=a, extent=b, stricture=c).points
        for a, b, c in itertools.product(range(6), range(4), range(4))
    }
    assert (min(values), max(values)) == (0, 18)
    with pytest.raises(ValidationError):
        Half(inflammation=6)


def test_koda_is_the_mean_of_both_items():
    # (3 + 3 + 2 + 1 + 0 + 3) / 6 = 2
    rated = ((300, 3, 3), (600, 2, 1), (900, 0, 3))
    frames = tuple(KodaFrame(frame=f, mucosa=m, view=v) for f, m, v in rated)
    assert Koda(frames=frames).value == 2
    with pytest.raises(ValidationError, match="rated twice"):
        Koda(frames=(*frames, frames[0]))
    with pytest.raises(ValidationError):
        Koda(frames=())


# ---- proposals: one frame a second, small bowel from 1000 to 4000, so tertiles of 1000 frames.

CLOCK = clock_of(range(5000), rate=1.0)


def reviewed(*ulcers, confirm=True, colon=4000):
    events = [MachineEvent(label="small intestine", start=1000, stop=colon)]
    events += [MachineEvent(label="colon", start=colon, stop=5000)]
    events += [MachineEvent(label=label, start=a, stop=b) for label, a, b in ulcers]
    opened = Open(reading="c" * 64, unit=Unit.FRAME, first=0, end=5000, events=tuple(events))
    kind = Confirm if confirm else Reject
    actions = [opened, *(kind(event=f"m{n}") for n in range(2, len(events)))]
    return derive("s", [Entry(n, "anna", "t", action) for n, action in enumerate(actions, 1)])


def test_ulcers_are_proposed_by_tertile():
    # First: one of 50 s (5 %). Second: three of 100 s (30 %). Third: eight of 80 s (64 %).
    state = reviewed(
        ("ulcer", 1100, 1150),
        *(("ulcer", 2000 + 200 * n, 2100 + 200 * n) for n in range(3)),
        *(("ulcer", 3000 + 100 * n, 3080 + 100 * n) for n in range(8)),
        ("polyp", 1500, 1600),
    )
    rows = summarise(state, CLOCK).proposals.lewis_ulcers
    assert rows is not None
    assert [(row.events, row.count, row.share, row.extent) for row in rows] == [
        (1, "single", 0.05, "short"),
        (3, "few", 0.3, "long"),
        (8, "multiple", 0.64, "whole"),
    ]


def test_only_confirmed_ulcers_are_proposed():
    summary = summarise(reviewed(("ulcer", 1100, 1150), confirm=False), CLOCK)
    rows = summary.proposals.lewis_ulcers
    assert rows is not None
    assert [row.count for row in rows] == ["none"] * 3
    assert rows[0].extent is None


def test_tertiles_need_both_landmarks():
    colon = MachineEvent(label="colon", start=9, stop=10)
    opened = Open(reading="c" * 64, unit=Unit.FRAME, first=0, end=5000, events=(colon,))
    cleared = ClearLandmark(landmark="first caecal image")
    entries = [Entry(1, "a", "t", opened), Entry(2, "a", "t", cleared)]
    proposals = summarise(derive("s", entries), CLOCK).proposals
    assert proposals.lewis_ulcers is None
    assert "need the first duodenal and the first caecal image" in proposals.lewis_reason
    assert proposals.koda_reason == "the first duodenal image is not known"


def test_koda_frames_lie_five_minutes_apart():
    # 1000 + 300, + 600 ... up to the last before 4000.
    summary = summarise(reviewed(), CLOCK)
    assert summary.proposals.koda_frames == tuple(range(1300, 4000, 300))
    short = summarise(reviewed(colon=1200), CLOCK).proposals
    assert short.koda_frames == ()
    assert "less than five minutes" in short.koda_reason
    untimed = summarise(reviewed(), clock_of(range(5000))).proposals
    assert untimed.koda_reason == "the times of frames are not known"


def test_findings_have_place_and_terms():
    summary = summarise(reviewed(("angiectasia", 2500, 2510), ("polyp", 4500, 4520)), CLOCK)
    first, second = summary.findings
    assert (first.heading, first.term, first.region) == ("flat", "angioectasia", "small intestine")
    assert (first.transit_share, first.tertile) == (0.5, 2)
    assert (first.seconds, first.end_seconds) == (2500, 2510)
    assert first.proposed_saurin is Saurin.P2
    assert first.saurin is None  # a proposal is not a grade
    assert (second.region, second.transit_share, second.tertile) == ("colon", None, None)
    assert second.proposed_saurin is None
