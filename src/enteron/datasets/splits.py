"""Splits of studies into training, validation and test: seeded, and stored with a hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.galar import natural_key
from enteron.errors import LabelError, nearest, shorten
from enteron.files import RECORD_LIMIT, read_json, write_text

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """The studies that train, validate and test. No study is in two parts."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    rule: str  # how the split was made, for people who read the file

    def __post_init__(self) -> None:
        part_of: dict[str, str] = {}
        for part in PARTS:
            for study in self.part(part):
                if study in part_of:
                    raise LabelError(
                        f"study {shorten(study)} is in '{part_of[study]}' and in '{part}'",
                        "a study belongs to one part of a split only",
                    )
                part_of[study] = part

    def part(self, name: str) -> tuple[str, ...]:
        if name not in PARTS:
            raise LabelError(f"a split has no part '{name}'", nearest(name, PARTS))
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    @property
    def hash(self) -> str:
        """Identifies which study is in which part; order and wording of the rule do not matter."""
        parts = {part: sorted(self.part(part)) for part in PARTS}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def seeded_split(
    ids: Iterable[str], *, seed: int = 42, val: float = 0.15, test: float = 0.0
) -> Split:
    """Split studies at random, the same for the same seed and ids.

    Studies are ranked by a hash of seed and id, so the rank of a study does not depend on the
    order of the ids or on other studies: adding one moves at most the border between parts.
    `val` and `test` are shares of the studies.
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise LabelError(
            f"shares of {val} for validation and {test} for testing leave nothing to train on",
            "give shares from 0 to 1 that add up to less than 1",
        )
    studies = sorted(set(ids), key=lambda study: _rank(seed, study))
    if not studies:
        raise LabelError("there are no studies to split", "give a root that holds studies")
    test_count = round(test * len(studies))
    val_count = round(val * len(studies))
    if val > 0 and val_count == 0 and len(studies) - test_count > 1:
        val_count = 1
    train_start = test_count + val_count
    parts = (studies[train_start:], studies[test_count:train_start], studies[:test_count])
    return Split(
        *(tuple(sorted(part, key=natural_key)) for part in parts),
        rule=f"seeded {seed}, validation {val:g}, test {test:g}",
    )


def _rank(seed: int, study: str) -> str:
    return hashlib.sha256(f"{seed}/{study}".encode()).hexdigest()


def save_split(split: Split, path: Path) -> None:
    """Write a split with its hash."""
    content: Mapping[str, object] = {
        "rule": split.rule,
        **{part: list(split.part(part)) for part in PARTS},
        "hash": split.hash,
    }
    write_text(path, json.dumps(content, indent=1) + "\n")


def load_split(path: Path) -> Split:
    """Read a split; a file that was edited, so that its hash does not match, is refused."""
    remedy = "make a new one, or copy it again from its source"
    content = read_json(path, remedy, limit=RECORD_LIMIT, error=LabelError)
    try:
        parts = [tuple(str(study) for study in content[part]) for part in PARTS]
        split, stored = Split(*parts, rule=str(content["rule"])), content["hash"]
    except (KeyError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else "its parts are no lists"
        raise LabelError(f"{path.name} is not a split ({reason})", remedy) from error
    if split.hash != stored:
        raise LabelError(
            f"the studies in {path.name} do not match its hash {stored}",
            "restore the file; to change a split make a new one",
        )
    return split
