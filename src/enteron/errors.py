"""Errors that a person can act on: what is wrong, then what to do about it."""

import difflib
import reprlib
from collections.abc import Iterable


class EnteronError(Exception):
    """Bad input. Printed as one sentence: the problem, a semicolon, the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}; {remedy}.")

    def __reduce__(self) -> tuple[type["EnteronError"], tuple[str, str]]:
        # The default rebuilds from the joined message, which has one argument too few.
        return type(self), (self.problem, self.remedy)


class StudyError(EnteronError):
    """A study cannot be opened or read."""


class LabelError(EnteronError):
    """Labels are malformed, or do not fit the frames they are meant for."""


class SubmissionError(EnteronError):
    """A file of events is not a valid submission."""


class UnitError(EnteronError):
    """Row numbers were mixed with frame numbers."""


class ModelError(EnteronError):
    """Weights, a weights bundle or a model folder cannot be used."""


class TrainingError(EnteronError):
    """Training cannot start, continue or resume."""


class ConfigError(EnteronError):
    """An options file is invalid."""


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a misspelt name: the most similar choice, or all choices."""
    choices = list(names)
    similar = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if similar:
        return f"did you mean '{similar[0]}'"
    listed = ", ".join(f"'{shorten(choice)}'" for choice in choices[:_MOST_CHOICES])
    return f"use one of {listed}" + (", …" if len(choices) > _MOST_CHOICES else "")


_MOST_CHOICES = 40  # of a hint; there are 17 labels

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def shown(value: object) -> str:
    """A value of a file as messages show it: short, whatever the file holds."""
    return shorten(_REPR.repr(value), 200)


def shorten(text: str, most: int = 60) -> str:
    """A text of a file as messages show it: its beginning, where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quantity(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: '1 study', '2,000 studies'."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
