"""Predictions from files and folders: the same events from each kind, a sentence per mistake."""

import subprocess
import sys

import numpy as np
import pytest

from enteron.decoding import DecodeOptions
from enteron.decoding.events import DecodedEvent
from enteron.errors import EnteronError, SubmissionError, UnitError
from enteron.folders.identity import ReadingIdentity
from enteron.folders.predictions import read_predictions
from enteron.folders.reading import RunRecord, write_events
from enteron.types import FrameAxis, Scores, Segment, Unit
from tests.folders.making import official, write_json, write_plain_reading

EVENTS = [(0, 10, "stomach"), (10, 20, "colon"), (12, 14, "blood")]
SEGMENTS = tuple(Segment(start, stop, (label,)) for start, stop, label in EVENTS)


def test_every_kind_of_prediction_gives_the_same_events(tmp_path):
    reading = write_plain_reading(tmp_path / "readings" / "a", "a", EVENTS)
    file = write_json(tmp_path / "prediction.json", official(("a", EVENTS)))
    for path in (
        file,
        reading,
        reading / "submission.json",
        reading / "events.json",
        reading.parent,
    ):
        (annotation,) = read_predictions(path, Unit.FRAME).annotations
        assert (annotation.study, annotation.unit) == ("a", Unit.FRAME)
        assert annotation.segments == SEGMENTS
    assert read_predictions(file, Unit.INDEX).annotations[0].unit is Unit.INDEX


def test_the_official_files_are_named(tmp_path):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS)
    assert read_predictions(reading, Unit.FRAME).official_files == (reading / "submission.json",)
    assert read_predictions(reading / "events.json", Unit.FRAME).official_files == ()


def test_a_folder_of_readings_has_all_their_studies(tmp_path):
    for study in ("b", "a"):
        write_plain_reading(tmp_path / "out" / study, study, EVENTS)
    (tmp_path / "out" / "notes").mkdir()
    (tmp_path / "out" / "studies.csv").write_text("study\n")
    predictions = read_predictions(tmp_path / "out", Unit.FRAME)
    assert [annotation.study for annotation in predictions.annotations] == ["a", "b"]
    assert len(predictions.official_files) == 2


def test_the_joint_file_of_a_folder_of_readings_must_agree_with_them(tmp_path):
    for study in ("a", "b"):
        write_plain_reading(tmp_path / study, study, EVENTS, run={"rate": 4.0})
    joint = write_json(tmp_path / "submission.json", official(("b", EVENTS), ("a", EVENTS)))
    predictions = read_predictions(tmp_path, Unit.FRAME)
    assert [annotation.study for annotation in predictions.annotations] == ["b", "a"]
    assert predictions.official_files == (joint,)
    assert predictions.rates == {"a": 4.0, "b": 4.0}
    write_json(joint, official(("a", EVENTS), ("b", EVENTS[1:])))
    with pytest.raises(SubmissionError, match=r"the readings beside it differ in study b; give"):
        read_predictions(tmp_path, Unit.FRAME)
    write_json(joint, official(("a", EVENTS)))
    with pytest.raises(SubmissionError, match="differ in study b"):
        read_predictions(tmp_path, Unit.FRAME)


def test_a_folder_with_nothing_but_a_submission_is_read(tmp_path):
    write_json(tmp_path / "submission.json", official(("a", EVENTS)))
    assert read_predictions(tmp_path, Unit.FRAME).annotations[0].segments == SEGMENTS


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_written_by_a_reading_is_read_back(tmp_path, cut):
    """events.json is cut at changes of the label set where submission.json is."""
    events = [DecodedEvent(start, stop, label, 0.75) for start, stop, label in EVENTS]
    scores = Scores("a", FrameAxis(np.arange(20)), np.zeros((20, 17), np.float32))
    write_events(tmp_path, scores, events, ReadingIdentity(study="a"), DecodeOptions(cut=cut))
    RunRecord.parse({"study": "a", "options": {"cut": cut}}).save(tmp_path)
    from_submission, from_events = (
        read_predictions(path, Unit.FRAME).annotations
        for path in (tmp_path, tmp_path / "events.json")
    )
    assert from_submission == from_events
    assert any(len(segment.labels) > 1 for segment in from_submission[0].segments) is cut


# ---- frame rates


def test_the_rate_is_that_of_the_reading(tmp_path):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS, run={"rate": 3.5})
    for path in (reading, reading / "events.json", tmp_path):
        assert read_predictions(path, Unit.FRAME).rates == {"a": 3.5}
    # The file alone does not know that it is part of a reading.
    assert read_predictions(reading / "submission.json", Unit.FRAME).rates == {}


@pytest.mark.parametrize(
    "run",
    [{}, {"rate": None}, {"rate": 3.0, "rate_note": "assumed"}, {"rate": 3.0, "study": "b"}],
)
def test_a_rate_that_is_unknown_assumed_or_of_another_study_is_not_used(tmp_path, run):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS, run=run)
    assert read_predictions(reading, Unit.FRAME).rates == {}


def test_frames_per_second_are_not_rows_per_second(tmp_path):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS, unit="index", run={"rate": 3.0})
    assert read_predictions(reading, Unit.INDEX).rates == {}


# ---- mistakes


def test_a_reading_in_another_unit_is_refused(tmp_path):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS, unit="index")
    for path in (reading, reading / "events.json"):
        with pytest.raises(UnitError, match="study a counts in 'index' where 'frame' is needed"):
            read_predictions(path, Unit.FRAME)


def test_an_unfinished_reading_is_refused(tmp_path):
    write_plain_reading(tmp_path / "a", "a", EVENTS)
    (tmp_path / "b").mkdir()
    write_json(tmp_path / "b" / "run.json", {"study": "b", "state": "begun"})
    for path in (tmp_path / "b", tmp_path):
        with pytest.raises(SubmissionError, match=r"reading 'b' has no submission.json; it is not"):
            read_predictions(path, Unit.FRAME)


def test_two_readings_of_a_study_are_refused(tmp_path):
    for folder in ("one", "two"):
        write_plain_reading(tmp_path / folder, "a", EVENTS)
    with pytest.raises(SubmissionError, match="'one' and 'two' are both readings of study a"):
        read_predictions(tmp_path, Unit.FRAME)


def test_folders_and_files_without_events_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SubmissionError, match="the folder 'empty' holds no reading; give an offic"):
        read_predictions(tmp_path / "empty", Unit.FRAME)
    with pytest.raises(SubmissionError, match=r"none.json cannot be read"):
        read_predictions(tmp_path / "none.json", Unit.FRAME)
    run = write_json(tmp_path / "run.json", {"command": "enteron read a", "versions": {}})
    with pytest.raises(SubmissionError, match=r"this is run.json of a reading"):
        read_predictions(run, Unit.FRAME)
    with pytest.raises(SubmissionError, match="is \\[\\]; it is an object with 'videos'"):
        read_predictions(write_json(tmp_path / "list.json", []), Unit.FRAME)


def test_a_damaged_event_is_named(tmp_path):
    event = {"label": "blod", "start": 0, "stop": 5, "score": 0.5}
    path = write_json(tmp_path / "events.json", {"study": "a", "unit": "frame", "events": [event]})
    with pytest.raises(EnteronError, match="event 1: 'blod' is not one of the 17 labels"):
        read_predictions(path, Unit.FRAME)


def test_reading_predictions_needs_no_torch(tmp_path):
    reading = write_plain_reading(tmp_path / "a", "a", EVENTS)
    code = (
        "import sys; from pathlib import Path; from enteron.types import Unit\n"
        "from enteron.folders.predictions import read_predictions\n"
        f"read_predictions(Path({str(reading / 'submission.json')!r}), Unit.FRAME)\n"
        "assert 'enteron.decoding' not in sys.modules\n"
        f"read_predictions(Path({str(reading)!r}), Unit.FRAME)\n"
        f"read_predictions(Path({str(reading / 'events.json')!r}), Unit.FRAME)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
