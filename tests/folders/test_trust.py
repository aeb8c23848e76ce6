"""What pages and the terminal say about the model and about studies unlike those that it knows."""

import numpy as np
import pytest

from enteron.appearance import Likeness
from enteron.decoding import DecodedEvent
from enteron.folders.reading import ModelFacts, Reading, RunRecord
from enteron.folders.trust import (
    cautions,
    drawn_only_labels,
    learnt_from,
    not_looked_for,
    other_kind,
    unlike_study,
)
from enteron.labels import ANATOMY, FINDINGS
from enteron.types import FrameAxis, Scores, TrainingSource

DRAWN = TrainingSource(
    title="synthetic studies", kind="drawings", studies=34, frames=9, labels=tuple(ANATOMY)
)
REAL = TrainingSource(
    title="Kvasir-Capsule", kind="real frames", studies=1, frames=9, labels=("ulcer", "pylorus")
)


def facts(*sources: TrainingSource, name: str | None = None, default: bool = False) -> ModelFacts:
    return ModelFacts(sources=sources, name=name, default=default)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            facts(DRAWN),
            "The model has seen drawings only (34 studies), never a real picture: what it says "
            "about a patient's study means nothing.",
        ),
        (facts(REAL), "The model learnt from Kvasir-Capsule (1 study)."),
        (
            facts(DRAWN, REAL.model_copy(update={"labels": ("ulcer",)}), name="x", default=True),
            "The model 'x' (no other was named) learnt regions and landmarks from drawings "
            "only (34 studies), and the rest from Kvasir-Capsule (1 study).",
        ),
        (facts(), None),
        (None, None),
    ],
)
def test_what_a_model_learnt_from(model, said):
    assert learnt_from(model) == said


def test_labels_of_drawings_alone():
    assert drawn_only_labels(facts(DRAWN, REAL)) == tuple(a for a in ANATOMY if a != "pylorus")
    assert drawn_only_labels(None) == ()
    said = learnt_from(facts(DRAWN, REAL))
    assert said is not None
    assert "ileocecal valve from drawings only" in said
    assert "pylorus" not in said


def test_an_unlike_study_is_told_with_its_distance():
    like = Likeness(verdict="like", nearest="real frames", distances={"real frames": 0.8})
    unlike = Likeness(verdict="unlike", nearest="real frames", distances={"real frames": 1.25})
    assert unlike_study(RunRecord(likeness=like)) is None
    assert unlike_study(RunRecord()) is None
    run = RunRecord(likeness=unlike)
    assert run.is_unlike
    said = unlike_study(run)
    assert said is not None
    assert "unlike everything" in said
    assert "(1.25 of the limit)" in said
    assert "its confidences mean nothing" in said


def test_findings_in_what_looks_like_a_drawing_mean_nothing():
    drawing = Likeness(verdict="like", nearest="drawings", distances={"drawings": 0.8})
    run = RunRecord(likeness=drawing, model=facts(DRAWN, REAL))
    assert other_kind(run) == (
        "This study looks like drawings, from which the model never learnt any finding: what it "
        "reports of that here means nothing."
    )
    taught = DRAWN.model_copy(update={"labels": (*ANATOMY, *FINDINGS)})
    assert other_kind(RunRecord(likeness=drawing, model=facts(taught, REAL))) is None
    assert other_kind(RunRecord(model=facts(DRAWN, REAL))) is None


def test_cautions_and_what_is_not_looked_for():
    drawing = Likeness(verdict="unlike", nearest="drawings", distances={"drawings": 1.5})
    run = RunRecord(likeness=drawing, model=facts(DRAWN, REAL))
    assert cautions(run) == [unlike_study(run), other_kind(run)]
    # Not unlike everything and like drawings in one breath.
    assert (other_kind(run) or "").startswith("What it is nearest to are drawings, from which the")
    assert cautions(RunRecord()) == []
    off = {"polyp": "too few", "blood": "below .6", "ulcer": "too few"}
    model = facts(REAL).model_copy(update={"unproven": off})
    assert not_looked_for(model) == "Not looked for: polyp, ulcer (too few); blood (below .6)."
    assert not_looked_for(facts(REAL)) is None
    assert not_looked_for(None) is None


def test_tables_of_an_unlike_study_are_in_brackets(tmp_path):
    scores = Scores("one", FrameAxis(np.arange(40)), np.zeros((40, 17), np.float32))
    events = (
        DecodedEvent(0, 40, "stomach", 0.9),
        DecodedEvent(5, 7, "ulcer", 0.25),
        DecodedEvent(20, 30, "ulcer", 0.5),
    )

    def tables(verdict: str) -> Reading:
        likeness = Likeness.model_validate({"verdict": verdict, "nearest": None, "distances": {}})
        return Reading(tmp_path, scores, events, RunRecord(likeness=likeness))

    assert tables("like").summary() == [
        ("stomach", "1", "0", "39", "0.90"),
        ("ulcer", "2", "5", "29", "0.50"),
    ]
    assert tables("unlike").summary() == [
        ("(stomach)", "1", "0", "39", "(0.90)"),
        ("(ulcer)", "2", "5", "29", "(0.50)"),
    ]
    assert "<td>(ulcer)</td>" in tables("unlike")._repr_html_()
    assert "it looks unlike all that the model knows" in str(tables("unlike"))
    assert "unlike" not in str(tables("like"))
