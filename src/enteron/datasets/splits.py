"""Splits of studies into training, validation and test: seeded, and stored with a hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.errors import LabelError, nearest, shorten, shown
from enteron.files import RECORD_LIMIT, read_json_object, write_json
from enteron.ids import natural_key, require_study_id

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
    studies = sorted(set(ids), key=lambda study: seeded_rank(seed, study))
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


def stratified_split(
    split: Split, shows: Mapping[str, NDArray[np.bool_]], *, largest_val: float = 1 / 3
) -> Split:
    """The split, changed only where a label would be missing on one side.

    `shows`: for every study that trains or validates, (labels,) which labels it shows. A label that
    two studies or more show should have one on each side. Studies of the two sides are swapped, or
    moved to validation while it has at most the share `largest_val` of them, as long as that brings
    a label to a side that lacks it. A split that lacks nothing stays as it is.
    """
    train, val = list(split.train), list(split.val)
    if not val:
        return split
    total = len(train) + len(val)
    studies_showing = np.sum([shows[study] for study in (*train, *val)], axis=0)
    relevant = studies_showing >= 2

    def missing(train: Sequence[str], val: Sequence[str]) -> int:
        sides = [np.any([shows[study] for study in side], axis=0) for side in (train, val)]
        return int((relevant & ~(sides[0] & sides[1])).sum())

    changes = 0
    while (now := missing(train, val)) > 0:
        candidates = [
            ([*(t for t in train if t != away), back], [*(v for v in val if v != back), away])
            for back in val
            for away in train
        ]
        if len(train) > 1 and len(val) + 1 <= largest_val * total:
            candidates += [([t for t in train if t != away], [*val, away]) for away in train]
        best = min(candidates, key=lambda sides: missing(*sides), default=None)
        if best is None or missing(*best) >= now:
            break
        train, val = best
        changes += 1
    if not changes:
        return split
    return Split(
        tuple(sorted(train, key=natural_key)),
        tuple(sorted(val, key=natural_key)),
        split.test,
        rule=f"{split.rule}, stratified by label ({changes} changes)",
    )


def joined_split(splits: Mapping[str, Split]) -> Split:
    """One split of several sources, whose study ids get the source's name in front."""
    parts = [
        tuple(
            source_study(name, study)
            for name, split in splits.items()
            for study in split.part(part)
        )
        for part in PARTS
    ]
    rules = "; ".join(dict.fromkeys(split.rule for split in splits.values()))
    return Split(*parts, rule=f"within each source: {rules}")


def source_study(source: str, study: str) -> str:
    """A study's id among those of several sources."""
    return f"{source}.{study}"


def seeded_rank(seed: int, study: str) -> str:
    """Sorts studies at random, whatever other studies there are."""
    return hashlib.sha256(f"{seed}/{study}".encode()).hexdigest()


def save_split(split: Split, path: Path) -> None:
    """Write a split with its hash."""
    content: Mapping[str, object] = {
        "rule": split.rule,
        **{part: list(split.part(part)) for part in PARTS},
        "hash": split.hash,
    }
    write_json(path, content)


def load_split(path: Path) -> Split:
    """Read a split; a file that was edited, so that its hash does not match, is refused."""
    remedy = "make a new one, or copy it again from its source"
    content = read_json_object(path, remedy, limit=RECORD_LIMIT, error=LabelError)
    for name in (*PARTS, "rule", "hash"):
        if name not in content:
            raise LabelError(f"{path.name} is not a split: it has no '{name}'", remedy)
    for part in PARTS:
        studies = content[part]
        if not isinstance(studies, list) or not all(_is_id(study) for study in studies):
            raise LabelError(
                f"{path.name} is not a split: '{part}' is not a list of studies", remedy
            )
    parts = [tuple(str(study) for study in content[part]) for part in PARTS]
    for study in (study for part in parts for study in part):
        require_study_id(study, f"{path.name}: a study's id", LabelError)
    split = Split(*parts, rule=str(content["rule"]))
    stored = content["hash"]
    if split.hash != stored:
        raise LabelError(
            f"the studies in {path.name} do not match its hash {shown(stored)}",
            "restore the file; to change a split make a new one",
        )
    return split


def _is_id(study: object) -> bool:
    return type(study) in (str, int) and 0 < len(str(study)) <= 500
