"""Rows of the record, the hash that chains each to the one before, and the check of the chain.

A row's hash covers its content, a random salt and the hash of the row before it, whatever study
that was of. Who changes, inserts, swaps or deletes a row in the middle breaks the chain. Rows cut
off at the end leave a whole chain, which only a head noted elsewhere (a backup, an export) reveals.

Removing a study's reviews empties its rows and keeps their hashes, so that the chain still holds;
a tombstone, itself a row, lists them. Without the salt, which goes too, nobody can confirm a guess
of what stood there.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field, ValidationError

from enteron.errors import EnteronError, shorten
from enteron.files import json_text
from enteron.options import Options, Sha256
from enteron.review.actions import stored_action
from enteron.review.state import Entry, derive

GENESIS: Final = hashlib.sha256(b"enteron reviews").hexdigest()
"""What the first row names as the hash before it."""

COLUMNS: Final = (
    "id",
    "study",
    "number",
    "reading",
    "user",
    "time",
    "action",
    "before",
    "after",
    "key",
    "salt",
    "previous",
    "hash",
)
SCHEMA: Final = """
CREATE TABLE record (
  id INTEGER PRIMARY KEY CHECK (id > 0),
  study TEXT, number INTEGER, reading TEXT, user TEXT, time TEXT,
  action TEXT, before TEXT, after TEXT, key TEXT, salt TEXT,
  previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
  UNIQUE (study, number), UNIQUE (study, key)
) STRICT;
"""
GUARDS: Final = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON record BEGIN "
    "SELECT RAISE(ABORT, 'the record of reviews is append-only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON record BEGIN "
    "SELECT RAISE(ABORT, 'the record of reviews is append-only'); END",
)
GUARD_NAMES: Final = ("no_update", "no_delete")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the record; all but `id`, `previous` and `hash` are None once removed."""

    id: int
    study: str | None
    number: int | None
    reading: str | None
    user: str | None
    time: str | None
    action: str | None
    before: str | None
    after: str | None
    key: str | None
    salt: str | None
    previous: str
    hash: str

    @property
    def is_removed(self) -> bool:
        return self.action is None

    def expected_hash(self) -> str:
        """The hash that content, salt and the hash before give."""
        return row_hash([getattr(self, name) for name in COLUMNS[:-1]])


class Tombstone(Options):
    """The action of a removal: whose rows were emptied, by number of row."""

    kind: Literal["remove"] = "remove"
    study_hash: Sha256  # of the study's id
    rows: tuple[tuple[int, int], ...]  # [first, last], both included
    reason: str = Field(default="", max_length=2000)


def row_hash(values: Iterable[object]) -> str:
    """SHA-256 of a row without its own hash, as a JSON list."""
    text = json_text(list(values), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Head:
    """The last row: its number and its hash stand for everything before."""

    row: int
    hash: str

    def __str__(self) -> str:
        return f"{self.row}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """A head as `str` writes it."""
        number, _, digest = text.strip().partition(":")
        if not number.isascii() or not number.isdigit() or len(number) > 18 or len(digest) != 64:
            raise EnteronError(
                f"'{shorten(text)}' is not the head of a record",
                "give it as `enteron review verify` prints it: a number, a colon and 64 digits",
            )
        return cls(int(number), digest)


@dataclass(frozen=True)
class Verification:
    """What the check of a record found."""

    rows: int
    studies: int
    removed: int
    head: Head
    problems: tuple[str, ...]  # sentences; empty where the chain holds


def verify_rows(rows: Iterator[Row], noted: Head | None = None, most: int = 20) -> Verification:
    """Check every row: hash, link, number, content, and that emptied rows have a tombstone."""
    problems: list[str] = []
    previous, last = GENESIS, 0
    emptied: set[int] = set()
    buried: set[int] = set()
    entries: dict[str, list[Entry]] = {}
    broken: set[str] = set()
    noted_found = noted is None or (noted.row == 0 and noted.hash == GENESIS)
    for row in rows:
        if row.id != last + 1:
            problems.append(f"row {last + 1} is missing")
        if row.previous != previous:
            problems.append(f"row {row.id} does not follow the row before it")
        if row.is_removed:
            emptied.add(row.id)
        elif row.expected_hash() != row.hash:
            problems.append(f"row {row.id} was changed: its content does not have its hash")
        else:
            _read_row(row, entries, buried, broken, problems)
        if noted is not None and row.id == noted.row:
            noted_found = row.hash == noted.hash
        previous, last = row.hash, row.id
    problems += [f"row {number} was emptied without a tombstone" for number in emptied - buried]
    problems += [
        f"row {number} has a tombstone and still holds its content"
        for number in sorted(buried - emptied)
    ]
    for study, listed in entries.items():
        if study in broken:
            continue
        try:
            derive(study, listed)
        except EnteronError as error:
            problems.append(f"the actions of study {study} contradict each other: {error.problem}")
    if noted is not None and not noted_found:
        problems.append(
            f"the record does not contain the head that was noted (row {noted.row}): rows were "
            "cut off or replaced"
        )
    return Verification(
        last, len(entries), len(emptied), Head(last, previous), tuple(problems[:most])
    )


def _read_row(
    row: Row,
    entries: dict[str, list[Entry]],
    buried: set[int],
    broken: set[str],
    problems: list[str],
) -> None:
    if row.study is None:
        try:
            stone = Tombstone.model_validate_json(row.action or "")
        except ValidationError:
            problems.append(f"row {row.id} belongs to no study and is no tombstone")
            return
        for first, last in stone.rows:
            buried.update(range(first, min(last, row.id) + 1))
        return
    listed = entries.setdefault(row.study, [])
    if row.number != len(listed) + 1:
        problems.append(f"row {row.id} is not action {len(listed) + 1} of study {row.study}")
        broken.add(row.study)
        return
    try:
        listed.append(entry_of(row))
    except ValidationError:
        problems.append(f"the action in row {row.id} cannot be read")
        broken.add(row.study)


def entry_of(row: Row) -> Entry:
    """A row as an action of its study."""
    assert row.number is not None
    return Entry(row.number, row.user or "", row.time or "", stored_action(row.action or ""))


def read_rows(connection: sqlite3.Connection, where: str = "", values: tuple = ()) -> Iterator[Row]:
    """Rows in their order; `where` restricts them."""
    query = f"SELECT {', '.join(COLUMNS)} FROM record {where} ORDER BY id"
    for row in connection.execute(query, values):
        yield Row(*row)
