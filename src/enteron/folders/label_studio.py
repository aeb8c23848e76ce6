"""Events as pre-annotations for Label Studio's video timeline.

Two files: a task whose predictions are the events (https://labelstud.io/guide/predictions), and the
labelling interface that shows them (https://labelstud.io/tags/timelinelabels). The timeline counts
the pictures of the video from 1 and includes the last one of a range. A video
made of a study's stored frames has one picture for each, whatever the frames are numbered.
"""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np

from enteron.decoding.events import DecodedEvent
from enteron.files import write_json, write_text
from enteron.folders.identity import ReadingIdentity
from enteron.folders.reading import LABEL_STUDIO
from enteron.labels import COLOURS, LABELS
from enteron.types import FrameAxis, Scores

TASK, INTERFACE = LABEL_STUDIO
CONTROL, OBJECT = "events", "video"
DEFAULT_VIDEO: Final = "/data/local-files/?d={study}.mp4"
"""Where Label Studio's local storage serves a file; to be replaced by the video's address."""


def write_label_studio(
    folder: Path,
    scores: Scores,
    events: Sequence[DecodedEvent],
    *,
    video: str | None = None,
    rate: float | None = None,
    axis: FrameAxis | None = None,
    identity: ReadingIdentity | None = None,
) -> tuple[Path, Path]:
    """Write `label-studio.json` and `label-studio.xml` into a folder.

    `video` is the address under which Label Studio finds the study's video; `rate` its pictures
    per second, without which Label Studio assumes 24. `axis` are all frames of the study, where
    scores lack the unreadable ones, which the video has. The task's `meta`, which Label Studio
    keeps and does not interpret, holds the identity.
    """
    task, interface = folder / TASK, folder / INTERFACE
    address = DEFAULT_VIDEO.format(study=scores.study) if video is None else video
    frames = scores.axis if axis is None else axis
    content = label_studio_task(scores.study, frames, events, address)
    if identity is not None:
        content["meta"] = {"enteron": identity.at("decoded")}
    write_json(task, [content])
    write_text(interface, label_studio_interface(rate))
    return task, interface


def label_studio_task(
    study: str, axis: FrameAxis, events: Sequence[DecodedEvent], video: str
) -> dict[str, Any]:
    """One study as a task: each event a region of the timeline, with its score."""
    frames = axis.frames
    results: list[dict[str, Any]] = []
    for number, event in enumerate(events):
        start, stop = np.searchsorted(frames, (event.start, event.stop)).tolist()
        result: dict[str, Any] = {
            "id": f"event-{number}",
            "from_name": CONTROL,
            "to_name": OBJECT,
            "type": "timelinelabels",
            "origin": "prediction",
            "value": {
                "ranges": [{"start": start + 1, "end": max(stop, start + 1)}],
                "timelinelabels": [event.label],
            },
        }
        if event.score is not None:
            result["score"] = round(event.score, 4)
        results.append(result)
    scored = [event.score for event in events if event.score is not None]
    prediction = {
        "model_version": f"enteron {version('enteron')}",
        "score": round(float(np.mean(scored)), 4) if scored else 0.0,
        "result": results,
    }
    return {"data": {OBJECT: video, "study": study}, "predictions": [prediction]}


def label_studio_interface(rate: float | None = None) -> str:
    """The labelling interface: a video with the seventeen labels in their colours."""
    view = ElementTree.Element("View")
    video = {"name": OBJECT, "value": f"${OBJECT}", "timelineHeight": "240"}
    if rate is not None:
        video["frameRate"] = f"{rate:g}"
    ElementTree.SubElement(view, "Video", video)
    control = ElementTree.SubElement(view, "TimelineLabels", {"name": CONTROL, "toName": OBJECT})
    for label in LABELS:
        ElementTree.SubElement(control, "Label", {"value": label, "background": COLOURS[label]})
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"
