"""The official event file of RARE-VISION: read, checked and written; and truth in either format.

Only this module counts the end of an event as part of it: `{"start": 3, "end": 5}` in the file is
[3, 6) inside enteron.
"""

import difflib
import json
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from enteron.errors import LabelError, SubmissionError, nearest, quantity, shorten
from enteron.files import JSON_LIMIT, json_text, parse_json, read_text, write_text
from enteron.ids import require_study_id
from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment, Unit

MAX_FRAME = 10**12  # beyond it frame counts are no longer exact in floating point

_FILE_FIELDS = ("videos",)
_VIDEO_FIELDS = ("video_id", "events")
_EVENT_FIELDS = ("start", "end", "label")


# ---- Reading


def read_submission(path: Path) -> list[Annotation]:
    """Read an official file whose numbers are frame numbers, as the challenge requires."""
    return read_events(path, Unit.FRAME)


def read_events(path: Path, unit: Unit) -> list[Annotation]:
    """Read an official file. The format does not say what its numbers count: the caller must."""
    return parse_events(read_event_text(path), unit, path.name)


def read_event_text(path: Path) -> str:
    """Read the text of an event file, official or not."""
    return read_text(path, JSON_LIMIT, "give an event file in JSON", error=SubmissionError)


def read_truth(path: Path, unit: Unit) -> list[Annotation]:
    """Read true events from an official JSON, a folder of label files, or a data root.

    An official file does not say what it counts, so its numbers are taken to be in `unit`.
    """
    if not path.is_dir():
        return read_events(path, unit)
    # Label files need polars and OpenCV, which official files do not.
    from enteron.datasets.galar import find_labels, find_studies
    from enteron.datasets.label_table import read_label_table, truth_events

    entries = [entry for entry in find_studies(path).values() if entry.labels]
    if entries:
        tables = [entry.table() for entry in entries]
    else:
        tables = [read_label_table(file, study=study) for study, file in find_labels(path).items()]
    if not tables:
        raise LabelError(
            f"the folder '{path.name}' holds no label files",
            "give an official JSON, or a folder with one CSV per study",
        )
    return [truth_events(table, unit) for table in tables]


# ---- Parsing


def parse_events(text: str, unit: Unit, source: str = "the file") -> list[Annotation]:
    """Check the text of an official file and return its studies in file order."""
    content = parse_event_json(text, source)
    _require_fields(content, _FILE_FIELDS, source)
    videos = content["videos"]
    if not isinstance(videos, list):
        raise SubmissionError(f"{source}: 'videos' is not a list", 'write {"videos": [ … ]}')
    annotations: dict[str, Annotation] = {}
    for number, video in enumerate(videos, start=1):
        annotation = _annotation(video, unit, f"{source}: video {number}")
        if annotation.study in annotations:
            raise SubmissionError(
                f"{source}: study {annotation.study} occurs twice", "list each study once"
            )
        annotations[annotation.study] = annotation
    return list(annotations.values())


def parse_event_json(text: str, source: str) -> Any:
    """Parse JSON; NaN, duplicate keys and truncated text are refused."""
    if not text.strip():
        raise SubmissionError(f"{source} is empty", 'write {"videos": [ … ]}')
    return parse_json(text, source, error=SubmissionError)


def _annotation(video: Any, unit: Unit, where: str) -> Annotation:
    _require_fields(video, _VIDEO_FIELDS, where)
    study, events = video["video_id"], video["events"]
    if not isinstance(study, str) or not study:
        raise SubmissionError(
            f"{where}: 'video_id' is {_shown(study)}", 'it is a non-empty string, such as "12"'
        )
    require_study_id(study, f"{where}: 'video_id'", SubmissionError)
    if not isinstance(events, list):
        raise SubmissionError(
            f"study {study}: 'events' is {_shown(events)}", "it is a list, which may be empty"
        )
    return Annotation(study, unit, tuple(_segment(e, study, i) for i, e in enumerate(events, 1)))


def _segment(event: Any, study: str, number: int) -> Segment:
    where = f"study {study}, event {number}"
    _require_fields(event, _EVENT_FIELDS, where)
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
        repeated = next(label for label in value if value.count(label) > 1)
        raise SubmissionError(f"{where}: 'label' names '{repeated}' twice", "name each label once")
    return tuple(value)


def _require_fields(value: Any, names: Sequence[str], where: str) -> None:
    """Refuse what is not an object with these fields; others are allowed."""
    if not isinstance(value, dict):
        raise SubmissionError(
            f"{where} is {_shown(value)}", f"it is an object with {_listed(names)}"
        )
    missing = next((name for name in names if name not in value), None)
    if missing is not None:
        fields = f"its fields are {_listed(value)}" if value else "it has no fields"
        raise SubmissionError(
            f"{where} has no field '{missing}' ({fields})", _field_hint(missing, names, value)
        )


def _field_hint(missing: str, names: Sequence[str], fields: Collection[str]) -> str:
    """Guess the mistake behind a missing field."""
    if missing == "videos" and is_reading_events(fields):
        return "this is events.json of a reading: give submission.json beside it"
    if missing == "videos" and {"command", "versions"} <= set(fields):
        return "this is run.json of a reading: give submission.json beside it"
    unknown = list(islice((name for name in fields if name not in names), 100))
    if similar := difflib.get_close_matches(missing, unknown, n=1):
        return f"did you mean '{missing}' where it says '{similar[0]}'"
    return f"the official format has {_listed(names)} here"


def is_reading_events(fields: Collection[str]) -> bool:
    """Whether a JSON object with these fields is `events.json` of a reading."""
    return {"study", "unit", "events"} <= set(fields)


def _listed(names: Iterable[str], most: int = 8) -> str:
    quoted = [f"'{shorten(name)}'" for name in islice(names, most + 1)]
    return ", ".join(quoted[:most]) + (", …" if len(quoted) > most else "")


def _shown(value: Any) -> str:
    return shorten(json.dumps(_clipped(value), default=str), 40)


def _clipped(value: Any, levels: int = 3) -> Any:
    """The beginning of a value: a file may hold millions of them where one is expected."""
    if isinstance(value, list) and levels:
        return [_clipped(item, levels - 1) for item in value[:20]]
    if isinstance(value, dict) and levels:
        items = islice(value.items(), 20)
        return {shorten(name): _clipped(item, levels - 1) for name, item in items}
    if isinstance(value, list | dict):
        return "…"
    return value[:50] if isinstance(value, str) else value


# ---- Checks of a whole file


def foreign_fields(text: str) -> list[str]:
    """Fields of a valid official file that its format does not have, and that the score ignores."""
    content = parse_event_json(text, "the file")
    foreign = set(content) - set(_FILE_FIELDS)
    for video in content["videos"]:
        foreign |= set(video) - set(_VIDEO_FIELDS)
        for event in video["events"]:
            foreign |= set(event) - set(_EVENT_FIELDS)
    return sorted(foreign)


def require_same_studies(
    truth: Collection[str], prediction: Collection[str], *, alternative: str = ""
) -> None:
    """Refuse a prediction whose studies are not exactly those of the truth, as the challenge does.

    `alternative` is another remedy for missing studies.
    """
    missing = sorted(set(truth) - set(prediction))
    if missing:
        remedy = "list every study, with an empty list of events where nothing was found"
        if same := _same_but_for_spelling(missing[0], set(prediction) - set(truth)):
            remedy = f"the prediction names a study '{same}': use the id of the truth"
        elif alternative:
            remedy += f", or {alternative}"
        raise SubmissionError(
            f"the prediction lacks {len(missing)} of the truth's {len(set(truth))} studies, "
            f"the first is {missing[0]}",
            remedy,
        )
    require_known_studies(truth, prediction)


def require_known_studies(truth: Collection[str], prediction: Collection[str]) -> None:
    """Refuse a prediction with studies that the truth does not have."""
    extra = sorted(set(prediction) - set(truth))
    if not extra:
        return
    remedy = "remove them, or give the truth they belong to"
    if same := _same_but_for_spelling(extra[0], truth):
        remedy = f"the truth names a study '{same}': use the id of the truth"
    raise SubmissionError(
        f"the prediction has {quantity(len(extra), 'study', 'studies')} that the truth does not "
        f"have, the first is {extra[0]}",
        remedy,
    )


def _same_but_for_spelling(study: str, others: Iterable[str]) -> str | None:
    """The id that differs only in prefix, suffix or leading zeros: 'recording_07', '7.csv', '7'."""
    from enteron.datasets.galar import study_id

    def plain(name: str) -> str:
        return study_id(name).lstrip("0").lower()

    return next((other for other in sorted(others) if plain(other) == plain(study)), None)


# ---- Writing


def write_submission(path: Path, annotations: Sequence[Annotation]) -> None:
    """Write an official file. Events keep their order, which is the ranking that is scored."""
    write_text(path, format_submission(annotations))


def format_submission(annotations: Sequence[Annotation]) -> str:
    """Format the text of an official file, one event per line."""
    studies = [annotation.study for annotation in annotations]
    if len(set(studies)) < len(studies):
        repeated = next(study for study in studies if studies.count(study) > 1)
        raise SubmissionError(f"study {repeated} occurs twice", "list each study once")
    videos: list[str] = []
    for annotation in annotations:
        annotation.require_unit(Unit.FRAME)
        events = ",\n".join(
            json_text({"start": s.start, "end": s.stop - 1, "label": list(s.labels)})
            for s in annotation.segments
        )
        lines = f"[\n{events}\n]" if events else "[]"
        videos.append(f'{{"video_id": {json_text(annotation.study)}, "events": {lines}}}')
    return '{"videos": [\n' + ",\n".join(videos) + "\n]}\n"
