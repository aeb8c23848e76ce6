"""The official file: what is refused, in which words, and that writing and reading agree."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.datasets.submission import (
    foreign_fields,
    format_submission,
    parse_events,
    read_submission,
    require_known_studies,
    require_same_studies,
    write_submission,
)
from enteron.errors import SubmissionError, UnitError
from enteron.labels import LABELS
from enteron.types import Annotation, Segment, Unit


def video(*events: str, study: str = '"a"') -> str:
    return f'{{"videos":[{{"video_id":{study},"events":[{",".join(events)}]}}]}}'


GOOD = '{"start":0,"end":4,"label":["blood"]}'
BAD = {
    "bare string": (
        video(GOOD, '{"start":1,"end":2,"label":"blood"}'),
        'study a, event 2: \'label\' is the string "blood"; write a list: ["blood"].',
    ),
    "start after end": (
        video('{"start":3,"end":2,"label":["blood"]}'),
        "study a, event 1: 'start' 3 lies after 'end' 2; both are inclusive, and a single frame "
        "has start equal to end.",
    ),
    "unknown label": (
        video('{"start":1,"end":2,"label":["bloood"]}'),
        "study a, event 1: 'label' names \"bloood\"; did you mean 'blood'.",
    ),
    "label no string": (
        video('{"start":1,"end":2,"label":[3]}'),
        "study a, event 1: 'label' names 3; labels are strings.",
    ),
    "label null": (
        video('{"start":1,"end":2,"label":null}'),
        "study a, event 1: 'label' is null; write a list of labels.",
    ),
    "label twice": (
        video('{"start":1,"end":2,"label":["blood","blood"]}'),
        "study a, event 1: 'label' names 'blood' twice; name each label once.",
    ),
    "negative": (
        video('{"start":-1,"end":2,"label":["blood"]}'),
        "study a, event 1: 'start' is -1; frame numbers start at 0.",
    ),
    "not whole": (
        video('{"start":1.5,"end":2,"label":["blood"]}'),
        "study a, event 1: 'start' is 1.5; give a whole frame number.",
    ),
    "whole but written as a float": (
        video('{"start":1.0,"end":2,"label":["blood"]}'),
        "study a, event 1: 'start' is 1.0; give a whole frame number.",
    ),
    "a string": (
        video('{"start":"1","end":2,"label":["blood"]}'),
        "study a, event 1: 'start' is \"1\"; give a whole frame number.",
    ),
    "a truth value": (
        video('{"start":true,"end":2,"label":["blood"]}'),
        "study a, event 1: 'start' is true; give a whole frame number.",
    ),
    "too large": (
        video('{"start":1,"end":9999999999999,"label":["blood"]}'),
        "study a, event 1: 'end' is 9999999999999; no study has that many frames.",
    ),
    "beyond 64 bits": (
        video('{"start":1,"end":99999999999999999999,"label":["blood"]}'),
        "the file contains the number 999999999999… of 20 digits; whole numbers have at most 64 "
        "bits.",
    ),
    "NaN": (
        video('{"start":NaN,"end":2,"label":["blood"]}'),
        "the file contains NaN; give a number that is finite.",
    ),
    "duplicate key": (
        video('{"start":1,"start":2,"end":2,"label":["blood"]}'),
        "the file: an object has the key 'start' twice; keep one of the two.",
    ),
    "duplicate events": (
        '{"videos":[{"video_id":"7","events":[],"events":[]}]}',
        "the file: an object has the key 'events' twice (video_id 7); keep one of the two.",
    ),
    "truncated": (
        video(GOOD)[:-5],
        "the file is not JSON: it ends in the middle, at line 1; it was cut off; write or copy it "
        "again.",
    ),
    "truncated in a string": (
        '{"videos":[{"video_i',
        "the file is not JSON: it ends in the middle, at line 1; it was cut off; write or copy it "
        "again.",
    ),
    "empty": ("", 'the file is empty; write {"videos": [ … ]}.'),
    "not JSON": (
        '{"videos": [}',
        "the file is not JSON: expecting value at line 1, column 13; correct the file there.",
    ),
    "a list": ("[]", "the file is []; it is an object with 'videos'."),
    "no videos": (
        "{}",
        "the file has no field 'videos' (it has no fields); the official format has 'videos' here.",
    ),
    "a misspelt field": (
        '{"video":[]}',
        "the file has no field 'videos' (its fields are 'video'); did you mean 'videos' where it "
        "says 'video'.",
    ),
    "events.json of a reading": (
        '{"study":"a","unit":"frame","events":[]}',
        "the file has no field 'videos' (its fields are 'study', 'unit', 'events'); this is "
        "events.json of a reading: give submission.json beside it.",
    ),
    "run.json of a reading": (
        '{"command":"enteron read a","rows":3,"versions":{}}',
        "the file has no field 'videos' (its fields are 'command', 'rows', 'versions'); this is "
        "run.json of a reading: give submission.json beside it.",
    ),
    "videos no list": (
        '{"videos":{}}',
        "the file: 'videos' is not a list; write {\"videos\": [ … ]}.",
    ),
    "video no object": (
        '{"videos":[3]}',
        "the file: video 1 is 3; it is an object with 'video_id', 'events'.",
    ),
    "id no string": (
        video(GOOD, study="7"),
        "the file: video 1: 'video_id' is 7; it is a non-empty string, such as \"12\".",
    ),
    "events no list": (
        '{"videos":[{"video_id":"a","events":null}]}',
        "study a: 'events' is null; it is a list, which may be empty.",
    ),
    "event no object": (
        video("[1,2]"),
        "study a, event 1 is [1, 2]; it is an object with 'start', 'end', 'label'.",
    ),
    "field missing": (
        video('{"start":1,"label":["blood"]}'),
        "study a, event 1 has no field 'end' (its fields are 'start', 'label'); the official "
        "format has 'start', 'end', 'label' here.",
    ),
    "study twice": (
        '{"videos":[{"video_id":"a","events":[]},{"video_id":"a","events":[]}]}',
        "the file: study a occurs twice; list each study once.",
    ),
    "too deep": (
        "[" * 100_000,
        "the file nests too deeply; write it as its format has it, without further levels.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_in_one_sentence(case):
    text, said = BAD[case]
    with pytest.raises(SubmissionError) as caught:
        parse_events(text, Unit.FRAME)
    assert str(caught.value) == said


def test_inclusive_ends_exist_only_in_the_file():
    read = parse_events(video(GOOD), Unit.FRAME)
    assert read[0].segments == (Segment(0, 5, ("blood",)),)
    assert json.loads(format_submission(read)) == json.loads(video(GOOD))


def test_an_unlabelled_event_is_read():
    (annotation,) = parse_events(video('{"start":0,"end":0,"label":[]}'), Unit.INDEX)
    assert annotation.segments == (Segment(0, 1, ()),)


def test_foreign_fields_are_named():
    assert foreign_fields(video('{"start":0,"end":0,"label":[],"score":1}')) == ["score"]
    assert foreign_fields(video(GOOD)) == []


def test_the_same_studies_on_both_sides():
    require_same_studies(["a", "b"], ["b", "a"])
    with pytest.raises(SubmissionError, match="lacks 1 of the truth's 2 studies, the first is b"):
        require_same_studies(["a", "b"], ["a"])
    with pytest.raises(
        SubmissionError, match="has 1 study that the truth does not have, the first is b"
    ):
        require_same_studies(["a"], ["a", "b"])
    with pytest.raises(SubmissionError, match="has 2 studies that the truth does not have"):
        require_known_studies(["a"], ["c", "b"])
    require_known_studies(["a", "b"], ["b"])


@pytest.mark.parametrize("spelling", ["recording_7", "7.csv", "007", "recording_07.mp4"])
def test_an_id_that_is_spelt_differently_is_guessed(spelling):
    said = f"names a study '{spelling}': use the id of the truth"
    with pytest.raises(SubmissionError, match=said):
        require_same_studies(["7", "8"], [spelling, "8"])
    with pytest.raises(SubmissionError, match="the truth names a study '7': use the id of"):
        require_known_studies(["7", "8"], [spelling])


def test_another_remedy_is_offered():
    with pytest.raises(SubmissionError, match="where nothing was found, or wait"):
        require_same_studies(["a"], [], alternative="wait")


def test_rows_are_not_written_as_frames(tmp_path):
    rows = Annotation("a", Unit.INDEX, ())
    with pytest.raises(UnitError, match="index or frame"):
        write_submission(tmp_path / "s.json", [rows])
    assert not (tmp_path / "s.json").exists()


def test_a_study_is_not_written_twice():
    annotation = Annotation("a", Unit.FRAME, ())
    with pytest.raises(SubmissionError, match="study a occurs twice"):
        format_submission([annotation, annotation])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SubmissionError, match=r"none.json cannot be read \(No such file"):
        read_submission(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"videos": "\xff"}')
    with pytest.raises(SubmissionError, match="not text in UTF-8"):
        read_submission(tmp_path / "latin.json")


segments = st.builds(
    lambda start, length, labels: Segment(start, start + length, tuple(labels)),
    st.integers(0, 10**6),
    st.integers(1, 10**5),
    st.lists(st.sampled_from(LABELS), max_size=4, unique=True),
)
annotations = st.lists(
    st.builds(
        lambda study, parts: Annotation(study, Unit.FRAME, tuple(parts)),
        st.from_regex(r"[A-Za-z0-9_é日][A-Za-z0-9_ é日-]{0,6}[A-Za-z0-9_]", fullmatch=True),
        st.lists(segments, max_size=6),
    ),
    max_size=4,
    unique_by=lambda annotation: annotation.study,
)


@given(annotations)
def test_what_is_written_is_read_back_in_the_same_order(studies):
    assert parse_events(format_submission(studies), Unit.FRAME) == studies


@given(annotations, st.data())
def test_no_damage_passes_silently_or_crashes(studies, data):
    text = format_submission(studies)
    cut = data.draw(st.integers(0, len(text.rstrip()) - 1))
    with pytest.raises(SubmissionError):
        parse_events(text[:cut], Unit.FRAME)
