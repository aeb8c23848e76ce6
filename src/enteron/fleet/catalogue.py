"""The catalogue: one row a study and one an event, kept current from the reading folders.

It is derived: every row carries the stamp of the `run.json` it was made from, and is made again
when that file changes. Deleting the catalogue costs some time, nothing else.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enteron.errors import EnteronError
from enteron.files import make_folder
from enteron.fleet import FLEET
from enteron.fleet.ledger import Failure, Ledger
from enteron.fleet.tables import PartitionedTable
from enteron.labels import LABELS, REGIONS
from enteron.locks import FolderInUseError, file_lock

if TYPE_CHECKING:
    import polars as pl

CATALOGUE: Final = "catalogue.parquet"
CATALOGUE_EVENTS: Final = "catalogue-events.parquet"
_RUN: Final = "run.json"  # as `enteron.folders.reading` names it, whose import takes a second
_LOCK: Final = "catalogue.lock"
_REFRESH_SECONDS: Final = 15.0  # between two refreshes of a run
_SHARE_OF_TIME: Final = 0.02  # that a run spends on them at most


def column_name(label: str) -> str:
    """A label as the name of a column: 'small_intestine'."""
    return label.replace(" ", "_").replace("-", "_")


COLUMN_NAMES: Final = {label: column_name(label) for label in LABELS}


def study_schema() -> "dict[str, Any]":
    """Columns of the table of studies (docs/scale.md explains them)."""
    import polars as pl

    text, number, count, yes = pl.String, pl.Float64, pl.Int64, pl.Boolean
    schema: dict[str, Any] = {
        "study": text, "state": text, "reason": text, "folder": text, "stamp": text,
        "month": text, "device": text, "frames": count, "unreadable": count, "rate": number,
        "complete": yes, "cut_off": yes, "gastric_frames": count, "gastric_minutes": number,
        "small_bowel_frames": count, "small_bowel_minutes": number, "events": count,
        "findings": count, "finding": text, "confidence": number, "seconds": number,
        "preset": text, "runtime": text, "model": text, "calibration": text, "version": text,
        "attempts": count, "brightness": number, "encoder": text,
    }  # fmt: skip
    for name in COLUMN_NAMES.values():
        schema[name] = number  # top confidence
    for name in COLUMN_NAMES.values():
        schema[f"{name}_events"] = count
    for region in REGIONS:
        schema[f"{COLUMN_NAMES[region]}_frames"] = count
    for name in COLUMN_NAMES.values():
        schema[f"{name}_mean"] = number  # mean score over all frames
    schema["signature"] = pl.List(pl.Float32)
    return schema


def event_schema() -> "dict[str, Any]":
    """Columns of the table of events."""
    import polars as pl

    return {
        "study": pl.String, "folder": pl.String, "number": pl.Int64, "label": pl.String,
        "start": pl.Int64, "stop": pl.Int64, "frames": pl.Int64, "confidence": pl.Float64,
        "region": pl.String, "device": pl.String, "month": pl.String,
    }  # fmt: skip


# ---- the catalogue


def _failure_row(failure: Failure) -> dict[str, Any]:
    return {
        "study": failure.label,
        "state": "quarantined" if failure.quarantined else "failed",
        "reason": failure.sentence,
        "folder": f"{FLEET}:{failure.key}",
        "stamp": f"{failure.attempts} {failure.at}",
        "month": failure.at[:7],
        "attempts": failure.attempts,
    }


@dataclass(frozen=True)
class Catalogue:
    """Both tables."""

    studies: "pl.DataFrame"
    events: "pl.DataFrame"

    def counts(self) -> dict[str, int]:
        """Studies by state."""
        counted = self.studies.group_by("state").len().sort("state")
        return dict(counted.iter_rows())


def refresh_catalogue(out: Path, *, store: bool = True) -> Catalogue:
    """Bring the catalogue up to date with the reading folders, and store it.

    Where another process is storing it, or where the folder cannot be written to, the answer is
    right all the same.
    """
    if not out.is_dir():
        raise EnteronError(f"there is no folder '{out.name}'", "give a folder of readings")
    stamps = dict(reading_stamps(out))
    if not stamps and not (out / FLEET).is_dir():
        raise EnteronError(
            f"'{out.name}' holds no readings",
            "give a folder that `enteron fleet run` or `enteron read` wrote several studies to",
        )
    studies, events = _stored(out)
    catalogue, changed = _updated(out, stamps, studies, events)
    if changed and store:
        with suppress(EnteronError), _writing(out):
            studies.write(catalogue.studies, changed)
            events.write(catalogue.events, changed)
    return catalogue


def _stored(out: Path) -> tuple[PartitionedTable, PartitionedTable]:
    return (
        PartitionedTable(out / CATALOGUE, study_schema()),
        PartitionedTable(out / CATALOGUE_EVENTS, event_schema()),
    )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    make_folder(out / FLEET)
    try:
        with file_lock(out / FLEET / _LOCK, "the catalogue"):
            yield
    except FolderInUseError:
        raise
    except OSError as error:
        raise EnteronError("the catalogue cannot be stored", "check the disk") from error


def reading_stamps(out: Path) -> Iterator[tuple[str, str]]:
    """Every reading folder, with the stamp of its run.json."""
    with os.scandir(out) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False) or entry.name.startswith("."):
                continue
            try:
                status = os.stat(f"{entry.path}/{_RUN}")  # noqa: PTH116 - 10,000 times
            except OSError:
                continue
            yield entry.name, f"{status.st_mtime_ns}:{status.st_size}"


def _updated(
    out: Path, stamps: Mapping[str, str], studies: PartitionedTable, events: PartitionedTable
) -> tuple[Catalogue, set[str]]:
    """The catalogue as it should be, and the folders whose rows are new, other or gone."""
    import polars as pl

    old, old_events = studies.read(), events.read()
    if old is None or old_events is None:
        old, old_events = pl.DataFrame(schema=study_schema()), pl.DataFrame(schema=event_schema())
    failures = {
        row["folder"]: row
        for row in map(_failure_row, _failures(out))
        if row["study"] not in stamps
    }
    expected = {**stamps, **{folder: row["stamp"] for folder, row in failures.items()}}
    known = dict(zip(old["folder"].to_list(), old["stamp"].to_list(), strict=True))
    changed = {folder for folder, stamp in expected.items() if known.get(folder) != stamp}
    changed |= known.keys() - expected.keys()
    if not changed:
        return Catalogue(old, old_events), changed
    from enteron.fleet.rows import study_rows

    rows: list[dict[str, Any]] = []
    event_rows: list[dict[str, Any]] = []
    for folder in sorted(changed & expected.keys()):
        if folder in failures:
            rows.append(failures[folder])
            continue
        row, its_events = study_rows(out / folder, expected[folder])
        rows.append(row)
        event_rows += its_events
    stale = pl.Series(sorted(changed), dtype=pl.String)

    def merged(table: "pl.DataFrame", new: list[dict[str, Any]]) -> "pl.DataFrame":
        kept = table.filter(~pl.col("folder").is_in(stale.implode()))
        return pl.concat([kept, pl.DataFrame(new, schema=table.schema)])

    catalogue = Catalogue(
        merged(old, rows).sort("folder"), merged(old_events, event_rows).sort("folder", "number")
    )
    return catalogue, changed


def _failures(out: Path) -> list[Failure]:
    return Ledger(out).all() if (out / FLEET).is_dir() else []


class CatalogueKeeper:
    """Refreshes the catalogue and the page of a run now and then, and at its end."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._next = time.monotonic() + _REFRESH_SECONDS

    def refresh_if_due(self) -> None:
        """Refresh, unless that was done just now."""
        if time.monotonic() >= self._next:
            self.refresh()

    def refresh(self) -> None:
        """Refresh catalogue and page."""
        from enteron.fleet.page import write_fleet_page

        start = time.monotonic()
        with suppress(EnteronError):  # a full disk: the next refresh makes up for it
            write_fleet_page(self._out, refresh_catalogue(self._out))
        taken = time.monotonic() - start
        self._next = time.monotonic() + max(_REFRESH_SECONDS, taken / _SHARE_OF_TIME)
