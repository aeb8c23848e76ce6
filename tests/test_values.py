"""Labels, events, scores, errors and options: what they accept and what they refuse."""

import math
import pickle
import subprocess
import sys
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.errors import ConfigError, EnteronError, LabelError, UnitError, nearest
from enteron.labels import (
    ANATOMY,
    COLOURS,
    COLUMN,
    FINDINGS,
    LABELS,
    LANDMARK_BETWEEN,
    LANDMARKS,
    REGIONS,
    prompt,
)
from enteron.options import Options, load_options
from enteron.types import Annotation, Event, FrameAxis, Scores, Segment, Unit, gaps_of


def test_labels_are_the_challenge_s_in_its_order():
    assert len(LABELS) == 17
    assert (*REGIONS, *LANDMARKS, *FINDINGS) == LABELS
    assert (*ANATOMY, *FINDINGS) == LABELS
    assert [COLUMN[label] for label in LABELS] == list(range(17))
    assert len(set(COLOURS.values())) == 17
    assert set(COLOURS) == set(LABELS)
    assert prompt("z-line") == "a video capsule endoscopy image showing z-line"
    for before, after in LANDMARK_BETWEEN.values():
        assert REGIONS.index(after) == REGIONS.index(before) + 1


def test_events_are_frozen_and_ordered_by_time():
    late, early = Event(5, 9, "blood", 0.5), Event(2, 3, "colon")
    assert sorted([late, early]) == [early, late]
    assert len(late) == 4
    with pytest.raises(AttributeError):
        late.start = 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("start", "stop", "label", "score", "said"),
    [
        (5, 5, "blood", None, "not a range"),
        (-1, 5, "blood", None, "not a range"),
        (0, 5, "bleed", None, "did you mean 'blood'"),
        (0, 5, "blood", math.nan, "finite score"),
    ],
)
def test_events_are_checked_at_birth(start, stop, label, score, said):
    with pytest.raises(EnteronError, match=said):
        Event(start, stop, label, score)


def test_segments_may_be_unlabelled_but_not_doubly_labelled():
    assert Segment(0, 1, ()).labels == ()
    with pytest.raises(LabelError, match="twice"):
        Segment(0, 1, ("blood", "blood"))


def test_annotation_keeps_file_order_per_label():
    annotation = Annotation(
        "a", Unit.FRAME, (Segment(10, 20, ("colon", "blood")), Segment(0, 10, ("colon",)))
    )
    assert annotation.spans()["colon"].tolist() == [[10, 20], [0, 10]]
    assert annotation.extent == (0, 20)
    with pytest.raises(UnitError, match="index or frame"):
        annotation.require_unit(Unit.INDEX)


def test_rows_beside_frames_are_refused():
    from enteron.metrics.evaluation import evaluate

    segments = (Segment(0, 10, ("colon",)),)
    rows, frames = (Annotation("1", unit, segments) for unit in (Unit.INDEX, Unit.FRAME))
    evaluate([frames], [frames])
    with pytest.raises(UnitError, match="index or frame"):
        evaluate([rows], [frames])
    with pytest.raises(UnitError, match="counts in 'index' where 'frame' is needed"):
        rows.require_unit(Unit.FRAME)


def test_gaps_are_found_without_listing_them():
    axis = FrameAxis(np.array([0, 5, 10**9, 10**9 + 5, 10**9 + 15]))
    assert gaps_of(axis) == [(10, 10**9), (10**9 + 10, 10**9 + 15)]
    assert gaps_of(axis, unreadable=[10**9 + 10]) == [(10, 10**9)]
    assert gaps_of(axis, unnamed=1) == [(10, 10**9)]


def test_scores_describe_themselves():
    values = np.zeros((3, 17), np.float32)
    values[:, -1] = 0.75
    scores = Scores("7", FrameAxis(np.array([0, 5, 10])), values, np.array([0.0, 1.0, 2.0]))
    assert repr(scores) == "Scores(study='7', rows=3, frames=0..10)"
    assert scores.table().columns == ["frame", "time", *LABELS]
    assert scores.table()["ulcer"].to_list() == [0.75] * 3
    assert [line.get_label() for line in scores.plot().get_lines()] == ["ulcer"]
    assert "<table" in scores._repr_html_()
    with pytest.raises(LabelError, match="did you mean 'polyp'"):
        scores.column("polyps")


def test_axis_knows_its_step_and_its_gaps():
    axis = FrameAxis(np.array([100, 105, 110, 130, 135]))
    assert axis.step == 5
    assert axis.ends().tolist() == [105, 110, 115, 135, 140]
    assert axis.gaps().tolist() == [3]
    assert FrameAxis(np.array([7])).ends().tolist() == [8]
    with pytest.raises(EnteronError, match="increase"):
        FrameAxis(np.array([1, 1]))
    with pytest.raises(EnteronError, match="no frames"):
        FrameAxis(np.array([], dtype=np.int64))


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=200))
def test_rows_of_an_axis_never_overlap(numbers):
    axis = FrameAxis(np.array(sorted(numbers)))
    ends = axis.ends()
    assert (ends > axis.frames).all()
    assert (ends[:-1] <= axis.frames[1:]).all()


def test_scores_name_the_frame_and_label_that_is_not_a_probability():
    axis = FrameAxis(np.array([10, 20]))
    values = np.zeros((2, 17), dtype=np.float32)
    assert Scores("s", axis, values).column("blood").tolist() == [0, 0]
    values[1, COLUMN["blood"]] = np.nan
    with pytest.raises(EnteronError, match="frame 20: 'blood' has score nan"):
        Scores("s", axis, values)
    with pytest.raises(EnteronError, match="shape"):
        Scores("s", axis, values[:, :5])
    with pytest.raises(EnteronError, match="one time per frame"):
        Scores("s", axis, np.zeros((2, 17), np.float32), np.zeros(3))


def test_the_best_row_is_one_that_the_model_saw():
    values = np.zeros((6, 17), np.float32)
    values[:, LABELS.index("polyp")] = [0.1, 0.9, 0.9, 0.4, 0.2, 0.3]
    axis = FrameAxis(np.arange(6))
    assert Scores("s", axis, values).best_row("polyp", range(6)) == 1
    seen = np.array([True, False, True, True, False, False])
    scores = Scores("s", axis, values, encoded=seen)
    assert scores.best_row("polyp", range(6)) == 2
    assert scores.best_row("polyp", range(3, 6)) == 3
    assert scores.best_row("polyp", range(4, 6)) == 5  # none of them was seen
    with pytest.raises(
        EnteronError, match="has 6 frames, and says of 5 whether the model saw them"
    ):
        Scores("s", axis, values, encoded=seen[:5])


def test_errors_are_sentences_with_a_remedy_and_survive_worker_processes():
    error = LabelError("the file is empty", "fill it")
    assert str(error) == "the file is empty; fill it."
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, LabelError)
    assert str(again) == str(error)


def test_nearest_guesses_or_lists():
    assert nearest("smal intestine", LABELS) == "did you mean 'small intestine'"
    assert nearest("xyz", ("a", "b")) == "use one of 'a', 'b'"


class Inner(Options):
    stride: int = 5
    kind: Literal["full", "frozen"] = "full"


class Outer(Options):
    sampler: Inner = Inner()
    rate: float = 1.0
    name: str


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name="a"\n[sampler]\nstrid = 3', r"\[sampler\] strid is not an option; did you mean 'st"),
        ('name="a"\nratee = 3', "ratee is not an option; did you mean 'rate'"),
        ('name="a"\nrate = "fast"', "rate = 'fast' is not valid"),
        ('name="a"\nrate = nan', "rate = nan is not valid"),
        ('name="a"\n[sampler]\nkind = "ful"', r"\[sampler\] kind = 'ful' is not valid"),
        ("rate = 2.0", "name is missing"),
        ("name = a", "is not TOML"),
    ],
)
def test_options_refuse_what_they_do_not_know(tmp_path, text, said):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_options(Outer, path)
    assert str(caught.value).startswith("recipe.toml")


def test_options_are_read_and_frozen(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('name="a"\nrate = 0.0\n[sampler]\nstride = 3')
    options = load_options(Outer, path)
    assert options == Outer(name="a", rate=0.0, sampler=Inner(stride=3))
    with pytest.raises(ValueError, match="frozen"):
        options.rate = 2.0
    with pytest.raises(ConfigError, match="cannot be read"):
        load_options(Outer, tmp_path / "none.toml")


def test_importing_enteron_pulls_in_nothing_heavy():
    code = "import sys, enteron; print([m for m in ('torch', 'numpy', 'cv2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    heavy = "('torch', 'polars', 'cv2', 'av', 'matplotlib')"
    light = "enteron.cli, enteron.model.options, enteron.folders.model"
    code = f"import sys, {light}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_label_of_any_length_makes_a_short_message():
    with pytest.raises(LabelError, match=r"^'x{59}…' is not one of the 17 labels") as refused:
        Event(0, 1, "x" * 3000)
    assert len(str(refused.value)) < 500
