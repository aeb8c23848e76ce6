"""Reading folders for the tests, written file by file as `docs/files.md` describes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PlainEvent = tuple[int, int, str]  # start, stop, label


def write_plain_reading(
    folder: Path,
    study: str,
    events: Sequence[PlainEvent],
    *,
    unit: str = "frame",
    run: dict[str, Any] | None = None,
) -> Path:
    """A finished reading without scores and pictures; `run` are further fields of `run.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"label": label, "start": start, "stop": stop, "score": 0.9}
        for start, stop, label in events
    ]
    write_json(folder / "events.json", {"study": study, "unit": unit, "events": rows})
    write_json(folder / "submission.json", official((study, events)))
    write_json(folder / "run.json", {"study": study, "state": "finished", **(run or {})})
    return folder


def official(*studies: tuple[str, Sequence[PlainEvent]]) -> dict[str, Any]:
    """The content of an official file: ends count as part of an event."""
    return {
        "videos": [
            {
                "video_id": study,
                "events": [
                    {"start": start, "end": stop - 1, "label": [label]}
                    for start, stop, label in events
                ],
            }
            for study, events in studies
        ]
    }


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path
