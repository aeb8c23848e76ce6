"""The store of reviews: one SQLite file beside the readings, append-only.

An action is acknowledged when `append` returns: it is then on disk (WAL, `synchronous=FULL`), and
survives a kill of the process and a loss of power. Several threads and several processes may use
the same file; writers take turns.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Final

from pydantic import ValidationError

from enteron.errors import EnteronError, shorten
from enteron.files import json_text
from enteron.folders.identity import file_hash
from enteron.folders.reading import EVENTS, Reading
from enteron.ids import require_study_id
from enteron.review.actions import (
    NOTES,
    Action,
    Decision,
    MachineEvent,
    Note,
    Open,
    Redo,
    Sign,
    Undo,
    deed,
)
from enteron.review.record import (
    COLUMNS,
    GENESIS,
    GUARD_NAMES,
    GUARDS,
    SCHEMA,
    Head,
    Row,
    Tombstone,
    Verification,
    entry_of,
    read_rows,
    row_hash,
    verify_rows,
)
from enteron.review.state import Entry, ReviewState, advance, derive, snapshot, subjects
from enteron.types import study_id_hash

REVIEWS: Final = "reviews.sqlite"
_APPLICATION: Final = 0x656E7465  # "ente", in the header of the file
_VERSION: Final = 1
_BUSY: Final = 30.0  # seconds that a writer waits for its turn
_RESTORE: Final = "restore a backup of it, or give another folder"
MOST_USER: Final = 64


class ConflictError(EnteronError):
    """Somebody else changed the same thing meanwhile; `changes` are their actions."""

    def __init__(self, problem: str, remedy: str, changes: tuple[Entry, ...] = ()) -> None:
        super().__init__(problem, remedy)
        self.changes = changes

    def __reduce__(self) -> tuple[type["ConflictError"], tuple[str, str, tuple[Entry, ...]]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self), (self.problem, self.remedy, self.changes)


def opening(reading: Reading) -> Open:
    """What is put under review: the events of a reading, and which reading it is."""
    axis = reading.scores.axis
    return Open(
        reading=file_hash(reading.folder / EVENTS),
        unit=reading.unit,
        first=int(axis.frames[0]),
        end=int(axis.ends()[-1]),
        events=tuple(
            MachineEvent(
                label=event.label,
                start=event.start,
                stop=event.stop,
                score=event.score,
                region=event.region,
                onset=event.onset,
            )
            for event in reading.events
        ),
    )


class ReviewStore:
    """The reviews of all studies under one root. Safe to share between threads."""

    def __init__(
        self, path: Path, *, create: bool = True, now: Callable[[], datetime] | None = None
    ) -> None:
        """Open `reviews.sqlite`, or create it; `now` is for tests."""
        self._path = Path(path)
        self._now = now or (lambda: datetime.now(UTC))
        self._lock = threading.RLock()
        self._entries: dict[str, list[Entry]] = {}
        self._states: dict[str, ReviewState] = {}
        self._bases: dict[str, ReviewState] = {}  # after the last signature or opening
        self._generation = -1  # of the file, so that a removal by another process is noticed
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise EnteronError(f"'{self._path.name}' is not a plain file", "delete it, or move it")
        if not create and not self._path.exists():
            raise EnteronError(
                f"there are no reviews here ('{self._path.name}' is missing)",
                "give the folder of readings that `enteron serve` was given",
            )
        with self._translated():
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    # ---- reading

    def state(self, study: str, opening: Open | None = None) -> ReviewState:
        """The review of a study; with `opening` as it would be with that reading under review.

        A study that nobody has reviewed has the state of its opening, or an empty one.
        """
        with self._lock, self._translated():
            self._refresh(study)
            state = self._states[study]
        if opening is None or state.reading == opening.reading:
            return state
        return advance(state, Entry(state.number, "", state.last_time or "", opening))

    def history(self, study: str, after: int = 0) -> tuple[Entry, ...]:
        """The actions of a study, the oldest first; those after a number, for people who wait."""
        with self._lock, self._translated():
            self._refresh(study)
            return tuple(self._entries[study][after:])

    def signed(self, study: str, version: int | None = None) -> ReviewState:
        """A signed version as it was signed; the last one unless given."""
        entries = self.history(study)
        signatures = self.state(study).signatures
        if not signatures or (version is not None and not 1 <= version <= len(signatures)):
            raise EnteronError(
                f"study {study} has no signed version" + ("" if version is None else f" {version}"),
                "sign it first" if not signatures else f"it has 1 to {len(signatures)}",
            )
        signature = signatures[-1 if version is None else version - 1]
        return derive(study, entries[: signature.number])

    def studies(self) -> tuple[str, ...]:
        """Studies with at least one action, in the order of their first."""
        with self._lock, self._translated():
            rows = self._connection.execute(
                "SELECT study FROM record WHERE number = 1 AND study IS NOT NULL ORDER BY id"
            )
            return tuple(study for (study,) in rows)

    def head(self) -> Head:
        """The last row of the record."""
        with self._lock, self._translated():
            return self._head()

    def verify(self, noted: Head | None = None) -> Verification:
        """Check the whole record; `noted` is a head that it must contain."""
        with self._lock, self._translated():
            return verify_rows(read_rows(self._connection), noted)

    # ---- writing

    def append(
        self,
        study: str,
        user: str,
        action: Decision | Note | Sign,
        *,
        expected: int | None = None,
        opening: Open | None = None,
        key: str | None = None,
    ) -> ReviewState:
        """Record an action; returns the new state once it is on disk.

        `expected` is the `version` of the state that the person saw: `ConflictError` where somebody
        changed the same thing since (for a signature: anything). Notes need none. `opening` is the
        reading under review, recorded first where it is not yet. `key` is chosen by the caller: an
        action with the same key is recorded once, however often it is sent.
        """
        if isinstance(action, Undo | Redo | Open):
            raise TypeError("openings, undo and redo have methods of their own")
        return self._append(study, user, lambda _: action, expected, opening, key)

    def undo(
        self, study: str, user: str, *, expected: int | None = None, key: str | None = None
    ) -> ReviewState:
        """Take back the person's last decision since the last signature."""

        def choose(state: ReviewState) -> Action:
            numbers = state.undoable.get(user, ())
            if not numbers:
                raise EnteronError(
                    "there is nothing to undo",
                    "only your own decisions since the last signature can be undone",
                )
            return Undo(target=numbers[-1])

        return self._append(study, user, choose, expected, None, key)

    def redo(
        self, study: str, user: str, *, expected: int | None = None, key: str | None = None
    ) -> ReviewState:
        """Bring back the decision that the person undid last."""

        def choose(state: ReviewState) -> Action:
            numbers = state.redoable.get(user, ())
            if not numbers:
                raise EnteronError("there is nothing to redo", "undo a decision first")
            return Redo(target=numbers[-1])

        return self._append(study, user, choose, expected, None, key)

    def remove(self, study: str, user: str, reason: str = "") -> int:
        """Empty the rows of a study and record a tombstone; the number of rows.

        The content is overwritten in the file, and the log of writes is emptied.
        """
        _require_user(user)
        with self._lock, self._translated():
            with self._writing():
                numbers = [
                    number
                    for (number,) in self._connection.execute(
                        "SELECT id FROM record WHERE study = ? ORDER BY id", (study,)
                    )
                ]
                if not numbers:
                    raise EnteronError(
                        f"there is no review of study {study}",
                        "`enteron review status` lists the studies that have one",
                    )
                for name in GUARD_NAMES:
                    self._connection.execute(f"DROP TRIGGER {name}")
                emptied = ", ".join(f"{name} = NULL" for name in COLUMNS[1:-2])
                self._connection.execute(f"UPDATE record SET {emptied} WHERE study = ?", (study,))
                for guard in GUARDS:
                    self._connection.execute(guard)
                stone = Tombstone(
                    study_hash=study_id_hash(study), rows=_ranges(numbers), reason=reason
                )
                values = (None, None, None, user, self._time(), stone.model_dump_json())
                self._insert((*values, None, None, None))
                self._connection.execute(f"PRAGMA user_version = {self._file_generation() + 256}")
            self._entries.clear()
            self._states.clear()
            self._bases.clear()
            # Pages with the old content stay in the log until it is written back.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return len(numbers)

    def backup(self, path: Path) -> Head:
        """Copy the record into a new file while others go on writing; the head of the copy."""
        if path.exists():
            raise EnteronError(f"'{path.name}' exists already", "name a new file")
        temporary = path.with_name(f".{path.name}.part")
        with self._lock, self._translated():
            try:
                copy = sqlite3.connect(temporary)
                try:
                    self._connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE").fetchall()
                    found = verify_rows(read_rows(copy))
                finally:
                    copy.close()
                if found.problems:
                    raise EnteronError(
                        f"the record does not verify ({found.problems[0]})",
                        "keep your earlier backups, and run `enteron review verify`",
                    )
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        return found.head

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> "ReviewStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside

    def _append(
        self,
        study: str,
        user: str,
        choose: Callable[[ReviewState], Action],
        expected: int | None,
        opening: Open | None,
        key: str | None,
    ) -> ReviewState:
        require_study_id(study)
        _require_user(user)
        if key is not None and not (0 < len(key) <= 100 and key.isascii() and key.isprintable()):
            raise EnteronError("the key of the action is not valid", "give up to 100 letters")
        with self._lock, self._translated():
            with self._writing():
                self._refresh(study)
                if key is not None and self._has(study, key):
                    return self._states[study]
                entries, state = list(self._entries[study]), self._states[study]
                known = len(entries)
                if opening is not None and state.reading != opening.reading:
                    entry = Entry(len(entries) + 1, user, self._time(), opening)
                    state = self._record(study, entry, state, entries, None, None)
                if state.reading is None:
                    raise EnteronError(
                        f"no reading of study {study} is under review", "open the study first"
                    )
                action = choose(state)
                changed = subjects(action, entries)
                if not isinstance(action, NOTES):
                    self._require_current(
                        study, action, changed, expected, entries[:known], state.reading
                    )
                entry = Entry(len(entries) + 1, user, self._time(), action)
                state = self._record(study, entry, state, entries, key, changed)
            # Only now is it on disk: a failed commit leaves what was known before.
            self._entries[study], self._states[study] = entries, state
            self._keep_base(study, entries[known:], state)
            return state

    def _record(
        self,
        study: str,
        entry: Entry,
        state: ReviewState,
        entries: list[Entry],
        key: str | None,
        changed: frozenset[str] | None,
    ) -> ReviewState:
        """Insert one action, within a transaction; the state after it."""
        entries.append(entry)
        after = (
            self._replay(study, entries)
            if isinstance(entry.action, Undo | Redo)
            else advance(state, entry)
        )
        names = set(changed or ()) - {"*"}
        if entry.action.kind == "add":
            names = {f"event a{entry.number}"}
        before_text, after_text = (
            None if parts is None else json_text(parts, sort_keys=True, separators=(",", ":"))
            for parts in (snapshot(state, names), snapshot(after, names))
        )
        self._insert(
            (
                study,
                entry.number,
                after.reading,
                entry.user,
                entry.time,
                entry.action.model_dump_json(),
                before_text,
                after_text,
                key,
            )
        )
        return after

    def _require_current(
        self,
        study: str,
        action: Action,
        changed: frozenset[str],
        expected: int | None,
        entries: list[Entry],
        reading: str,
    ) -> None:
        """Refuse a decision about something that changed after the version that the person saw."""
        if expected is None:
            raise EnteronError(
                f"the action '{action.kind}' needs the version of the review that it is about",
                "send the version that came with the study's state",
            )
        if expected > len(entries):
            raise EnteronError(
                f"study {study} has no version {expected} yet", "load the study again"
            )
        others: list[Entry] = []
        for entry in entries[expected:]:
            if isinstance(entry.action, Open) and entry.action.reading == reading:
                continue
            touched = subjects(entry.action, entries)
            if touched & changed or ("*" in touched | changed and _is_decision(entry)):
                others.append(entry)
        if others:
            last = others[-1]
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise ConflictError(
                f"{describe(last)}{more}, after you loaded the study",
                "look at the change, then decide again",
                tuple(others),
            )

    def _prepare(self) -> None:
        connection = self._connection
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION and (tables or application):
            raise EnteronError(f"'{self._path.name}' is not a file of reviews", _RESTORE)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise EnteronError(
                f"'{self._path.name}' cannot be kept in a write-ahead log",
                "keep readings on a disk of this machine, not on a network share",
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        with self._writing():
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                for statement in SCHEMA.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                for guard in GUARDS:
                    connection.execute(guard)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
        version = self._file_generation() % 256
        if version != _VERSION:
            raise EnteronError(
                f"'{self._path.name}' was written by another version of enteron",
                "use that version, or a newer one",
            )

    def _refresh(self, study: str) -> None:
        """Load actions of a study that are not known yet: all of them, or those of others."""
        generation = self._file_generation()
        if generation != self._generation:  # a study was removed
            self._entries.clear()
            self._states.clear()
            self._bases.clear()
            self._generation = generation
        entries = self._entries.setdefault(study, [])
        rows = read_rows(self._connection, "WHERE study = ? AND number > ?", (study, len(entries)))
        try:
            fresh = [entry_of(row) for row in rows]
            if not fresh and study in self._states:
                return
            state = self._states.get(study)
            if state is None or any(isinstance(e.action, Undo | Redo) for e in fresh):
                state = self._replay(study, [*entries, *fresh])
            else:
                for entry in fresh:
                    state = advance(state, entry)
        except (ValidationError, EnteronError) as error:
            raise EnteronError(
                f"the reviews of study {study} are damaged",
                "run `enteron review verify`, and restore a backup",
            ) from error
        entries += fresh
        self._states[study] = state
        self._keep_base(study, fresh, state)

    def _replay(self, study: str, entries: list[Entry]) -> ReviewState:
        """The state after all actions, from the last one on that nothing reaches behind."""
        base = self._bases.get(study)
        return derive(study, entries[0 if base is None else base.number :], base)

    def _keep_base(self, study: str, fresh: list[Entry], state: ReviewState) -> None:
        """Remember the state where the last action is a signature or an opening."""
        if fresh and isinstance(fresh[-1].action, Sign | Open):
            self._bases[study] = state

    def _has(self, study: str, key: str) -> bool:
        query = "SELECT 1 FROM record WHERE study = ? AND key = ?"
        return self._connection.execute(query, (study, key)).fetchone() is not None

    def _insert(self, values: tuple[object, ...]) -> None:
        head = self._head()
        row = (head.row + 1, *values, token_hex(16), head.hash)
        marks = ", ".join("?" * len(COLUMNS))
        self._connection.execute(
            f"INSERT INTO record ({', '.join(COLUMNS)}) VALUES ({marks})", (*row, row_hash(row))
        )

    def _head(self) -> Head:
        query = "SELECT id, hash FROM record ORDER BY id DESC LIMIT 1"
        row = self._connection.execute(query).fetchone()
        return Head(0, GENESIS) if row is None else Head(*row)

    def _file_generation(self) -> int:
        return self._connection.execute("PRAGMA user_version").fetchone()[0]

    def _time(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="milliseconds")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: other writers wait, and nothing is kept if it fails."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Failures of SQLite as sentences."""
        name = self._path.name
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error).lower()
            if "locked" in text or "busy" in text:
                raise EnteronError(
                    f"'{name}' is busy", "wait until the other program has ended, and try again"
                ) from error
            if "full" in text:
                raise EnteronError(
                    f"'{name}' cannot be written (the disk is full)", "free some disk space"
                ) from error
            if "readonly" in text or "unable to open" in text:
                raise EnteronError(
                    f"'{name}' cannot be written", "give a folder that you may write to"
                ) from error
            raise EnteronError(
                f"'{name}' is damaged ({shorten(str(error), 100)})", _RESTORE
            ) from error


def _require_user(user: str) -> str:
    if not user or len(user) > MOST_USER or not user.isprintable() or user != user.strip():
        raise EnteronError(
            "the name of the user is not valid", f"give 1 to {MOST_USER} printable characters"
        )
    return user


def _is_decision(entry: Entry) -> bool:
    return not isinstance(entry.action, NOTES)


def describe(entry: Entry) -> str:
    """An action in words: 'anna rejected event m12 at 10:32:05 UTC'."""
    return f"{entry.user} {deed(entry.action, entry.number)} at {entry.time[11:19]} UTC"


def _ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as ranges [first, last]."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


__all__ = ["REVIEWS", "ConflictError", "ReviewStore", "Row", "describe", "opening"]
