"""Events for Label Studio, read back as it would read them."""

import json
from xml.etree import ElementTree

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enteron.decoding.events import DecodedEvent
from enteron.folders.label_studio import label_studio_task, write_label_studio
from enteron.labels import COLOURS, LABELS
from enteron.types import FrameAxis
from tests.report.making import EVENTS, scores_for


def read_back(task: dict, frames: np.ndarray) -> list[tuple[str, int, int, float | None]]:
    """(label, first frame, last frame, score): pictures count from 1, both ends included."""
    (prediction,) = task["predictions"]
    events = []
    for region in prediction["result"]:
        assert (region["type"], region["from_name"], region["to_name"]) == (
            "timelinelabels", "events", "video",
        )  # fmt: skip
        (label,) = region["value"]["timelinelabels"]
        (span,) = region["value"]["ranges"]
        assert isinstance(span["start"], int)
        first, last = (int(frames[span[end] - 1]) for end in ("start", "end"))
        events.append((label, first, last, region.get("score")))
    assert len({region["id"] for region in prediction["result"]}) == len(events)
    return events


def test_the_files_hold_every_event(tmp_path):
    scores = scores_for(EVENTS)
    task, interface = write_label_studio(tmp_path, scores, EVENTS, video="/data/s1.mp4", rate=2.0)
    (content,) = json.loads(task.read_text())
    assert content["data"] == {"video": "/data/s1.mp4", "study": "s1"}
    assert read_back(content, scores.axis.frames) == [
        (e.label, e.start, e.stop - 1, e.score) for e in EVENTS
    ]
    assert content["predictions"][0]["model_version"].startswith("enteron ")
    view = ElementTree.fromstring(interface.read_text())
    labels = {one.get("value"): one.get("background") for one in view.iter("Label")}
    assert labels == {label: COLOURS[label] for label in LABELS}
    (video,), (control,) = view.iter("Video"), view.iter("TimelineLabels")
    assert (video.get("name"), video.get("value"), video.get("frameRate")) == (
        "video",
        "$video",
        "2",
    )
    assert (control.get("name"), control.get("toName")) == ("events", "video")


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=30),
    st.integers(0, 50),
    st.data(),
)
def test_rows_are_found_whatever_the_numbering(steps, first, data):
    """A video has a picture per stored row: frames with gaps and strides come back exactly."""
    axis = FrameAxis(first + np.cumsum([0, *steps]))
    start = data.draw(st.integers(0, len(axis) - 1))
    stop = data.draw(st.integers(start, len(axis) - 1))
    event = DecodedEvent(int(axis.frames[start]), int(axis.frames[stop]) + 1, "polyp")
    task = label_studio_task("x", axis, [event], "v.mp4")
    assert read_back(task, axis.frames) == [
        ("polyp", int(axis.frames[start]), int(axis.frames[stop]), None)
    ]


def test_unreadable_frames_are_pictures_of_the_video(tmp_path):
    frames = np.delete(np.arange(400), [50, 51, 160])
    task, _ = write_label_studio(
        tmp_path, scores_for(EVENTS, frames), EVENTS, axis=FrameAxis(np.arange(400))
    )
    found = read_back(json.loads(task.read_text())[0], np.arange(400))
    assert found == [(e.label, e.start, e.stop - 1, e.score) for e in EVENTS]


def test_no_events_and_no_rate(tmp_path):
    task, interface = write_label_studio(tmp_path, scores_for(()), ())
    (content,) = json.loads(task.read_text())
    assert content["predictions"][0]["result"] == []
    assert content["data"]["video"].endswith("s1.mp4")
    assert "frameRate" not in interface.read_text()
