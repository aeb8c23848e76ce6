"""The official event file of RARE-VISION: read, checked, written.

Only here do ends count as part of an event: `{"start": 3, "end": 5}` is [3, 6) inside enteron.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from enteron.errors import LabelError, SubmissionError, nearest
from enteron.files import write_text
from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment, Unit

MAX_FRAME = 10**12  # beyond it frame counts are no longer exact in floating point
_TOP, _VIDEO, _EVENT = {"videos"}, {"video_id", "events"}, {"start", "end", "label"}


def read_submission(path: Path) -> list[Annotation]:
    """Read an official file whose numbers are frame numbers, as the challenge asks for them."""
    return read_events(path, Unit.FRAME)


def read_events(path: Path, unit: Unit) -> list[Annotation]:
    """Read an official file; the format does not say what its numbers count, so the caller must."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SubmissionError(f"{path.name} is not text in UTF-8", "write it as UTF-8") from error
    except OSError as error:
        raise SubmissionError(
            f"{path.name} cannot be read ({error.strerror})", "give an event file that exists"
        ) from error
    return parse_events(text, unit, path.name)


def parse_events(text: str, unit: Unit, source: str = "the file") -> list[Annotation]:
    """Check the text of an official file and make annotations of it, in file order."""
    content = _parse(text, source)
    _fields(content, _TOP, source)
    videos = content["videos"]
    if not isinstance(videos, list):
        raise SubmissionError(f"{source}: 'videos' is not a list", 'write {"videos": [ … ]}')
    annotations: list[Annotation] = []
    seen: set[str] = set()
    for number, video in enumerate(videos, start=1):
        annotation = _annotation(video, unit, f"{source}: video {number}")
        if annotation.study in seen:
            raise SubmissionError(
                f"{source}: study {annotation.study} occurs twice", "list each study once"
            )
        seen.add(annotation.study)
        annotations.append(annotation)
    return annotations


def foreign_fields(text: str) -> list[str]:
    """Fields of a valid official file that are not of its format, and that its score ignores."""
    content = json.loads(text)
    foreign = {name for video in content["videos"] for name in video.keys() - _VIDEO}
    for video in content["videos"]:
        foreign.update(name for event in video["events"] for name in event.keys() - _EVENT)
    return sorted(foreign | (content.keys() - _TOP))


def require_same_studies(truth: Iterable[str], prediction: Iterable[str]) -> None:
    """The official sanity check: the same studies on both sides."""
    wanted, given = set(truth), set(prediction)
    if missing := sorted(wanted - given):
        raise SubmissionError(
            f"the prediction lacks {len(missing)} of the truth's {len(wanted)} studies, "
            f"the first is {missing[0]}",
            "list every study, with an empty list of events where nothing was found",
        )
    if extra := sorted(given - wanted):
        raise SubmissionError(
            f"the prediction has {len(extra)} studies that the truth does not know, "
            f"the first is {extra[0]}",
            "remove them, or give the truth they belong to",
        )


def write_submission(path: Path, annotations: Sequence[Annotation]) -> None:
    """Write an official file. Order is kept: it is the ranking that the score goes by."""
    write_text(path, format_submission(annotations))


def format_submission(annotations: Sequence[Annotation]) -> str:
    """The text of an official file, an event per line."""
    ids = [annotation.study for annotation in annotations]
    if len(set(ids)) < len(ids):
        twice = next(study for study in ids if ids.count(study) > 1)
        raise SubmissionError(f"study {twice} occurs twice", "list each study once")
    videos: list[str] = []
    for annotation in annotations:
        annotation.require_unit(Unit.FRAME)
        events = ",\n".join(
            json.dumps({"start": s.start, "end": s.stop - 1, "label": list(s.labels)})
            for s in annotation.segments
        )
        lines = f"[\n{events}\n]" if events else "[]"
        videos.append(f'{{"video_id": {json.dumps(annotation.study)}, "events": {lines}}}')
    return '{"videos": [\n' + ",\n".join(videos) + "\n]}\n"


def _parse(text: str, source: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, source),
            parse_constant=lambda name: _refuse_constant(name, source),
        )
    except json.JSONDecodeError as error:
        if not text.strip():
            raise SubmissionError(f"{source} is empty", 'write {"videos": [ … ]}') from error
        if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg:
            raise SubmissionError(
                f"{source} ends in the middle, at line {error.lineno}",
                "it was cut off; write or copy it again",
            ) from error
        raise SubmissionError(
            f"{source} is not JSON: {error.msg.lower()} at line {error.lineno}, "
            f"column {error.colno}",
            "correct that place",
        ) from error
    except RecursionError as error:
        raise SubmissionError(
            f"{source} nests too deeply", "write videos, events and labels as the format has them"
        ) from error


def _unique(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        where = f" (video_id {content['video_id']})" if "video_id" in content else ""
        raise SubmissionError(
            f"{source}: an object has the key '{twice}' twice{where}", "keep one of the two"
        )
    return content


def _refuse_constant(name: str, source: str) -> NoReturn:
    raise SubmissionError(f"{source} contains {name}", "frame numbers are whole numbers")


def _annotation(video: Any, unit: Unit, where: str) -> Annotation:
    _fields(video, _VIDEO, where)
    study, events = video["video_id"], video["events"]
    if not isinstance(study, str) or not study:
        raise SubmissionError(
            f"{where}: 'video_id' is {_shown(study)}", 'it is a non-empty string, such as "12"'
        )
    if not isinstance(events, list):
        raise SubmissionError(
            f"study {study}: 'events' is {_shown(events)}", "it is a list, which may be empty"
        )
    return Annotation(study, unit, tuple(_segment(e, study, i) for i, e in enumerate(events, 1)))


def _segment(event: Any, study: str, number: int) -> Segment:
    where = f"study {study}, event {number}"
    _fields(event, _EVENT, where)
    start, end = (_frame(event[name], where, name) for name in ("start", "end"))
    if start > end:
        raise SubmissionError(
            f"{where}: 'start' {start} lies after 'end' {end}",
            "both are inclusive, and a single frame has start equal to end",
        )
    return Segment(start, end + 1, _labels(event["label"], where))


def _frame(value: Any, where: str, name: str) -> int:
    if type(value) is not int:  # bool is an int to isinstance
        raise SubmissionError(f"{where}: '{name}' is {_shown(value)}", "give a whole frame number")
    if value < 0:
        raise SubmissionError(f"{where}: '{name}' is {value}", "frame numbers start at 0")
    if value > MAX_FRAME:
        raise SubmissionError(f"{where}: '{name}' is {value}", "no study has that many frames")
    return value


def _labels(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise SubmissionError(
            f"{where}: 'label' is the string {_shown(value)}", f"write a list: [{_shown(value)}]"
        )
    if not isinstance(value, list):
        raise SubmissionError(f"{where}: 'label' is {_shown(value)}", "write a list of labels")
    for label in value:
        if not isinstance(label, str) or label not in COLUMN:
            hint = nearest(label, LABELS) if isinstance(label, str) else "labels are strings"
            raise SubmissionError(f"{where}: 'label' names {_shown(label)}", hint)
    if len(set(value)) < len(value):
        twice = next(label for label in value if value.count(label) > 1)
        raise SubmissionError(f"{where}: 'label' names '{twice}' twice", "name each label once")
    return tuple(value)


def _fields(value: Any, names: set[str], where: str) -> None:
    if not isinstance(value, dict):
        raise SubmissionError(
            f"{where} is {_shown(value)}", f"it is an object with {_listed(names)}"
        )
    if missing := sorted(names - value.keys()):
        raise SubmissionError(
            f"{where} has no field '{missing[0]}'", f"its fields are {_listed(names)}"
        )


def _listed(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}…"


def read_truth(path: Path, unit: Unit) -> list[Annotation]:
    """Truth events from an official JSON, a folder of label files, or a data root.

    An official file does not say what it counts; `unit` is then taken at its word.
    """
    if not path.is_dir():
        return read_events(path, unit)
    from enteron.datasets.galar import find_labels, find_studies
    from enteron.datasets.label_table import read_label_table

    studies = {study: entry for study, entry in find_studies(path).items() if entry.labels}
    if studies:
        tables = [entry.table() for entry in studies.values()]
    else:
        tables = [read_label_table(file, study=study) for study, file in find_labels(path).items()]
    if not tables:
        raise LabelError(
            f"the folder '{path.name}' holds no label files",
            "give an official JSON, or a folder with one CSV per study",
        )
    from enteron.datasets.label_table import truth_events

    return [truth_events(table, unit) for table in tables]
