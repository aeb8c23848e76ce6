"""The table over studies in the paper's form: frames, events by label, minutes; `studies.csv`."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enteron.files import write_text
from enteron.labels import LABELS
from enteron.types import Annotation

STUDIES_TABLE = "studies.csv"  # beside the joint submission of several readings
_COLUMNS = ("study", "frames", "unreadable", "events", "minutes")


@dataclass(frozen=True)
class StudyRow:
    """One study. What is not known is None."""

    study: str
    events: int  # of the official file
    counts: dict[str, int] = field(default_factory=dict)  # of these that carry a label, by label
    frames: int | None = None
    unreadable: int | None = None
    minutes: float | None = None  # that the run took

    @property
    def distribution(self) -> str:
        """As in the paper: 'stomach(1), blood(19)', in the order of labels."""
        shown = [f"{label}({self.counts[label]:,})" for label in LABELS if label in self.counts]
        return ", ".join(shown)


def study_row(
    annotation: Annotation,
    *,
    frames: int | None = None,
    unreadable: int | None = None,
    seconds: Iterable[float] | None = None,
) -> StudyRow:
    """The row of a study's official events."""
    counts = Counter(label for segment in annotation.segments for label in segment.labels)
    minutes = None if seconds is None else sum(seconds) / 60
    return StudyRow(
        annotation.study, len(annotation.segments), dict(counts), frames, unreadable, minutes
    )


def write_studies_table(path: Path, rows: Sequence[StudyRow]) -> None:
    """Write the table: a row per study, a column per label."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *LABELS])
    for row in rows:
        facts = (row.frames, row.unreadable, row.events)
        minutes = "" if row.minutes is None else f"{row.minutes:.2f}"
        writer.writerow(
            [
                row.study,
                *("" if fact is None else fact for fact in facts),
                minutes,
                *(row.counts.get(label, 0) for label in LABELS),
            ]
        )
    write_text(path, text.getvalue())
