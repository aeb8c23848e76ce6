"""Splits by study: seeded, independent of the order of the ids, stored with a hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.galar import natural
from enteron.errors import LabelError, nearest
from enteron.files import write_text

PARTS = ("train", "val", "test")
AUTHORS_FIRST_TEST_ID = 61  # the dataset's authors test on the studies from this id on


@dataclass(frozen=True)
class Split:
    """Which studies train, validate and test. No study is in two parts."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    rule: str  # how it was made, for the reader of the file

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for part in PARTS:
            for study in self.part(part):
                if study in seen:
                    raise LabelError(
                        f"study {study} is in '{seen[study]}' and in '{part}'",
                        "a study belongs to one part of a split only",
                    )
                seen[study] = part

    def part(self, name: str) -> tuple[str, ...]:
        if name not in PARTS:
            raise LabelError(f"a split has no part '{name}'", nearest(name, PARTS))
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    @property
    def hash(self) -> str:
        """Identifies who is in which part, whatever the order or the rule's wording."""
        parts = {part: sorted(self.part(part)) for part in PARTS}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def seeded_split(
    ids: Iterable[str], *, seed: int = 42, val: float = 0.15, test: float = 0.0
) -> Split:
    """A split by chance, the same for the same seed and ids.

    Studies are ranked by a hash of seed and id, so neither their order nor the presence of others
    moves a study up or down: adding one shifts at most the border.
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise LabelError(
            f"shares of {val} for validation and {test} for testing leave nothing to train on",
            "give shares from 0 to 1 that add up to less than 1",
        )
    studies = sorted(set(ids), key=lambda study: _rank(seed, study))
    _require(studies)
    tests = round(test * len(studies))
    vals = round(val * len(studies))
    if val > 0 and vals == 0 and len(studies) - tests > 1:
        vals = 1
    rule = f"seeded {seed}, validation {val:g}, test {test:g}"
    return _split(studies[tests + vals :], studies[tests : tests + vals], studies[:tests], rule)


def authors_split(ids: Iterable[str], *, seed: int = 42, val: float = 0.15) -> Split:
    """The dataset authors' own: test on ids 61 and up; validation by chance from the others."""
    studies = set(ids)
    _require(studies)
    numbered = {study: int(study) for study in studies if study.isdigit()}
    if len(numbered) < len(studies):
        odd = min(studies - numbered.keys())
        raise LabelError(
            f"study {odd} has no number", "the authors' split is defined for Galar's ids 1 to 80"
        )
    tests = {study for study, number in numbered.items() if number >= AUTHORS_FIRST_TEST_ID}
    rest = seeded_split(studies - tests, seed=seed, val=val)
    return _split(rest.train, rest.val, tests, f"authors' test studies, {rest.rule}")


def save_split(split: Split, path: Path) -> None:
    """Write a split with its hash."""
    content: Mapping[str, object] = {
        "rule": split.rule,
        **{part: list(split.part(part)) for part in PARTS},
        "hash": split.hash,
    }
    write_text(path, json.dumps(content, indent=1) + "\n")


def load_split(path: Path) -> Split:
    """Read a split; a file whose studies do not match its hash was edited, and is refused."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = [tuple(str(study) for study in content[part]) for part in PARTS]
        split, stored = Split(*parts, rule=str(content["rule"])), content["hash"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabelError(
            f"{path.name} is not a split ({error})", "make a new one, or copy it again"
        ) from error
    if split.hash != stored:
        raise LabelError(
            f"the studies in {path.name} do not match its hash {stored}",
            "restore the file; to change a split make a new one",
        )
    return split


def _rank(seed: int, study: str) -> str:
    return hashlib.sha256(f"{seed}/{study}".encode()).hexdigest()


def _split(train: Iterable[str], val: Iterable[str], test: Iterable[str], rule: str) -> Split:
    ordered = (tuple(sorted(part, key=natural)) for part in (train, val, test))
    return Split(*ordered, rule=rule)


def _require(studies: Iterable[str]) -> None:
    if not list(studies):
        raise LabelError("there are no studies to split", "give a root that holds studies")
