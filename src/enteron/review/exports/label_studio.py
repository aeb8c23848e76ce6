"""Label Studio: reviewed events out, and corrections made there back in.

Out: the events as a finished annotation, in the format that `enteron export` writes predictions in.
In: an export of Label Studio (JSON), whose regions become decisions: a region that was kept
confirms its event, one with another label or other ends relabels or trims it, one that is gone
rejects it, and a new one adds an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enteron.decoding.events import DecodedEvent
from enteron.errors import EnteronError, LabelError, nearest, shown
from enteron.files import json_text, read_json
from enteron.folders.label_studio import (
    CONTROL,
    DEFAULT_VIDEO,
    INTERFACE,
    TASK,
    label_studio_interface,
    label_studio_task,
)
from enteron.labels import LABELS
from enteron.review.actions import Add, Confirm, Decision, Reject, Relabel, Trim
from enteron.review.exports.reviewed import Reviewed, event_rows_of
from enteron.review.state import ReviewEvent, ReviewState
from enteron.review.summary import NOTICE
from enteron.types import FrameAxis

_REMEDY = "export the project from Label Studio as JSON, and give that file"


def label_studio_files(study: Reviewed, video: str | None = None) -> list[tuple[str, bytes]]:
    """The task with confirmed events as its annotation, and the labelling interface."""
    events = event_rows_of(study.state.findings)
    decoded = [DecodedEvent(e.start, e.stop, e.label, e.score) for e in events]
    address = DEFAULT_VIDEO.format(study=study.study) if video is None else video
    task = label_studio_task(study.study, study.reading.stored_axis, decoded, address)
    (prediction,) = task.pop("predictions")
    results = prediction["result"]
    for event, result in zip(events, results, strict=True):
        result["id"] = f"event-{event.id}"
        result["origin"] = "manual" if event.origin == "person" else "prediction-changed"
        result.pop("score", None)
    task["annotations"] = [{"result": results, "ground_truth": study.is_signed}]
    task["meta"] = {"notice": NOTICE, "record": str(study.head), "status": study.state.status}
    rate = None if study.reading.run.rate_assumed else study.reading.run.rate
    return [
        (TASK, (json_text([task], indent=1) + "\n").encode()),
        (INTERFACE, label_studio_interface(rate).encode()),
    ]


@dataclass(frozen=True)
class Region:
    """A labelled range of a corrected task: pictures, counted from 1, ends included."""

    id: str
    label: str
    first: int
    last: int


def read_corrections(path: Path) -> dict[str, tuple[Region, ...]]:
    """The regions of every annotated task of a Label Studio export, by study."""
    content = read_json(path, _REMEDY)
    tasks = content if isinstance(content, list) else [content]
    corrections: dict[str, tuple[Region, ...]] = {}
    for number, task in enumerate(tasks, 1):
        where = f"{path.name}, task {number}"
        try:
            study = task["data"]["study"]
            annotations = [a for a in task["annotations"] if not a.get("was_cancelled")]
        except (KeyError, TypeError, AttributeError) as error:
            raise LabelError(f"{where} names no study or has no annotations", _REMEDY) from error
        if not isinstance(study, str):
            raise LabelError(f"{where}: the study is {shown(study)}", _REMEDY)
        if not annotations:
            continue  # nobody has annotated it yet
        if len(annotations) > 1:
            raise LabelError(
                f"{where} has {len(annotations)} annotations", "keep the one that counts"
            )
        if study in corrections:
            raise LabelError(f"{path.name} has two tasks of study {study}", "keep one of them")
        corrections[study] = _regions(annotations[0], where)
    if not corrections:
        raise LabelError(f"{path.name} holds no annotation", "annotate the task, then export it")
    return corrections


def _regions(annotation: Any, where: str) -> tuple[Region, ...]:
    regions: list[Region] = []
    try:
        results = [r for r in annotation["result"] if r.get("from_name") == CONTROL]
        for result in results:
            value = result["value"]
            for label in value["timelinelabels"]:
                if label not in LABELS:
                    raise LabelError(
                        f"{where}: {shown(label)} is not one of the 17 labels",
                        nearest(str(label), LABELS),
                    )
                for span in value["ranges"]:
                    first, last = int(span["start"]), int(span["end"])
                    regions.append(Region(str(result["id"]), label, first, max(first, last)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabelError(f"{where}: a region is damaged", _REMEDY) from error
    return tuple(regions)


def corrections_as_actions(
    state: ReviewState, axis: FrameAxis, regions: Sequence[Region]
) -> list[Decision]:
    """The decisions that make a review say what a corrected task says.

    `axis` are all stored frames, one picture of the video for each. Events that already stand as
    the task has them get no further decision.
    """
    frames, ends = axis.frames, axis.ends()
    for region in regions:
        if not 1 <= region.first <= region.last <= len(frames):
            raise EnteronError(
                f"a region of study {state.study} covers pictures {region.first} to {region.last}",
                f"the study has {len(frames)}; was the video made of its stored frames?",
            )
    events = {name: event for name, event in state.events.items() if event.origin == "machine"}
    events |= {name: e for name, e in state.events.items() if e.decision == "confirmed"}
    actions: list[Decision] = []
    matched: set[str] = set()
    for region in regions:
        event = _event_of(region, events, matched, axis)
        if event is None:
            start, stop = int(frames[region.first - 1]), int(ends[region.last - 1])
            actions.append(Add(label=region.label, start=start, stop=stop))
            continue
        matched.add(event.id)
        if region.label != event.label:
            actions.append(Relabel(event=event.id, label=region.label))
        if _pictures(event, axis) != (region.first, region.last):
            start, stop = int(frames[region.first - 1]), int(ends[region.last - 1])
            actions.append(Trim(event=event.id, start=start, stop=stop))
        elif region.label == event.label and event.decision != "confirmed":
            actions.append(Confirm(event=event.id))
    for name, event in events.items():
        if name not in matched and event.decision != "rejected":
            actions.append(Reject(event=name, reason="removed in Label Studio"))
    return actions


def _event_of(
    region: Region, events: dict[str, ReviewEvent], matched: set[str], axis: FrameAxis
) -> ReviewEvent | None:
    """The event that a region stands for: by its id, else by label and pictures."""
    stem = region.id.removeprefix("event-")
    for name in (stem, f"m{stem}"):  # of a review, or of `enteron export`
        if region.id.startswith("event-") and name in events and name not in matched:
            return events[name]
    return next(
        (
            event
            for name, event in events.items()
            if name not in matched
            and event.label == region.label
            and _pictures(event, axis) == (region.first, region.last)
        ),
        None,
    )


def _pictures(event: ReviewEvent, axis: FrameAxis) -> tuple[int, int]:
    """The pictures that `label_studio_task` writes for an event."""
    start, stop = (int(n) for n in axis.frames.searchsorted((event.start, event.stop)))
    return start + 1, max(stop, start + 1)
