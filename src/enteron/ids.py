"""Study ids: which texts may be one, which names of files are ids already, and neutral ids.

An id becomes part of file names, of pages and of official files. One function decides what may be
an id, wherever it comes from: an option, a score file, a submission, a label file, a folder.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from enteron.errors import EnteronError, shorten

MOST_CHARACTERS = 100
MOST_BYTES = 200  # in UTF-8: file systems allow 255, of which '-reading' and suffixes take some
_PUNCTUATION = frozenset(" _-.,+()#@=~")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE | re.ASCII)

# Names that datasets give: Galar's and other small numbers, the challenge's ids, the hexadecimal
# ids of Kvasir-Capsule, and ids made here. Longer numbers may be dates of birth or numbers of
# patients.
_DATASET_ID = re.compile(
    r"\d{1,4}|ukdd_[a-z]{2,8}_\d{5}|study-[0-9a-f]{8}"
    r"|(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])(?:[0-9a-f]{8}|[0-9a-f]{16})",
    re.ASCII,
)


def id_problem(text: str) -> str | None:
    """Why a text cannot be a study's id, as the end of a sentence; None when it can."""
    if not text:
        return "is empty"
    if len(text) > MOST_CHARACTERS or len(text.encode(errors="surrogatepass")) > MOST_BYTES:
        return f"is longer than {MOST_CHARACTERS} characters"
    for character in text:
        if not _is_allowed(character):
            return f"contains {_named(character)}"
    if text[0] in ".-~ " or text[-1] in ". ":
        place = "begins" if text[0] in ".-~ " else "ends"
        return f"{place} with {_named(text[0] if place == 'begins' else text[-1])}"
    if _RESERVED.fullmatch(text):
        return "is a name that Windows reserves"
    return None


def require_study_id(
    text: str, source: str = "the study's id", kind: type[EnteronError] = EnteronError
) -> str:
    """The text, if it can be a study's id; `source` says where it stands."""
    problem = id_problem(text)
    if problem is not None:
        shown = f" '{shorten(text)}'" if text else ""
        raise kind(
            f"{source}{shown} {problem}",
            "a study's id has letters, digits, spaces and _-.,+()#@=~, begins with a letter, a "
            f"digit or _, and has at most {MOST_CHARACTERS} characters",
        )
    return text


def is_dataset_id(text: str) -> bool:
    """Whether a name is an id of a known dataset, and so says nothing about a patient."""
    return _DATASET_ID.fullmatch(text) is not None


def neutral_id(contents: Iterable[bytes]) -> str:
    """An id that is derived from a study's content alone, such as 'study-3fa9c2d1'."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8))
        digest.update(content)
    return f"study-{digest.hexdigest()[:8]}"


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorting key that puts '9' before '10'; only ASCII digits count."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [
        (0, int(part), "") if index % 2 else (1, 0, part)
        for index, part in enumerate(parts)
        if part
    ]


def _is_allowed(character: str) -> bool:
    # Letters, marks that combine with them, and decimal digits, of any script. This leaves out
    # separators, markup, control characters, surrogates, and characters that turn the direction
    # of text or cannot be seen.
    return character in _PUNCTUATION or unicodedata.category(character) in {
        *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd"),
    }


def _named(character: str) -> str:
    """A character as a message can show it."""
    if character == " ":
        return "a space"
    if character.isprintable():
        return f"'{character}'"
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python marks a byte of a name that is not UTF-8
        return "a byte that is not UTF-8"
    return f"the character U+{code:04X}"
