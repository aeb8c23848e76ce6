"""What was found beside the frames of a study and not read, by reason."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from enteron.errors import quantity

# Reasons, as the end of "3 files (a.txt, b.txt, …) were ignored: …".
HIDDEN = "hidden"
UNKNOWN = "not frames or videos"
NO_STUDY = "without frames or videos"
READING = "a reading that enteron wrote"
UNNUMBERED = "pictures whose names do not end in a frame number"
INSIDE_STUDY = "inside a folder of frames"
BESIDE_STUDIES = "a picture beside folders of frames"
NOT_ASKED_FOR = "frames that the list of the study does not ask for"
NOT_A_FILE = "not a regular file"


@dataclass
class Ignored:
    """Names of files and folders that were not read, by reason. Names may be a patient's."""

    files: dict[str, list[str]] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)

    def add_file(self, reason: str, name: str) -> None:
        self.files.setdefault(reason, []).append(name)

    def add_folder(self, reason: str, name: str) -> None:
        self.folders.setdefault(reason, []).append(name)

    def merge(self, other: "Ignored", under: str = "") -> None:
        """Add what another search ignored in a folder that has this name here."""
        prefix = f"{under}/" if under else ""
        for reason, names in other.files.items():
            self.files.setdefault(reason, []).extend(prefix + name for name in names)
        for reason, names in other.folders.items():
            self.folders.setdefault(reason, []).extend(prefix + name for name in names)

    def __bool__(self) -> bool:
        return bool(self.files or self.folders)

    def sentences(self, most: int = 3) -> list[str]:
        """For the terminal of whoever gave the folder: with the first names."""
        return [
            f"{quantity(len(names), noun)} ({_listed(names, most)}): {reason}"
            for noun, reason, names in self._groups()
        ]

    def counts(self) -> list[str]:
        """For files that may be passed on: without any name."""
        return [f"{quantity(len(names), noun)}: {reason}" for noun, reason, names in self._groups()]

    def _groups(self) -> Iterator[tuple[str, str, list[str]]]:
        for noun, reasons in (("folder", self.folders), ("file", self.files)):
            for reason in sorted(reasons):
                yield noun, reason, sorted(reasons[reason])


def _listed(names: list[str], most: int) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
