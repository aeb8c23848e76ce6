"""Galar's metadata.csv: which capsule made which study."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

from enteron.errors import LabelError

SYSTEM, NAME, GENDER, AGE = "capsule system", "file name", "gender", "age"


@dataclass(frozen=True)
class Metadata:
    """What is known about a study. Facts about the patient stay out of its printed form."""

    study: str
    system: str  # as the file has it, such as 'PillCam SB3'
    gender: str | None = field(default=None, repr=False)
    age: int | None = field(default=None, repr=False)

    @property
    def device(self) -> str:
        """The maker's family, which decides size, border and colours of the frames."""
        for family in ("pillcam", "olympus", "navicam"):
            if family in self.system.lower():
                return family
        return "unknown"


def read_metadata(path: Path) -> dict[str, Metadata]:
    """Metadata by study id. Headers and cells have stray blanks, which are dropped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(
            f"{path.name} cannot be read ({error})", "give a CSV file in UTF-8"
        ) from error
    lines = text.splitlines()
    separator = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
    found: dict[str, Metadata] = {}
    for number, cells in enumerate(csv.DictReader(lines, delimiter=separator), start=2):
        row = {k.strip().lower(): (v or "").strip() for k, v in cells.items() if isinstance(k, str)}
        if NAME not in row or SYSTEM not in row:
            raise LabelError(
                f"{path.name} has no column '{NAME if NAME not in row else SYSTEM}'",
                "its columns are File Name, Capsule System, Gender, Age",
            )
        study = study_id(row[NAME])
        if not study:
            raise LabelError(
                f"{path.name}, line {number}, names no study", "fill its File Name, or remove it"
            )
        if study in found:
            raise LabelError(f"{path.name} names study {study} twice", "keep one row per study")
        age = row.get(AGE, "")
        found[study] = Metadata(
            study,
            row[SYSTEM],
            row.get(GENDER) or None,
            int(float(age)) if age.replace(".", "", 1).isdigit() else None,
        )
    return found


def study_id(name: str) -> str:
    """A study's id from the name of its folder or file: 'recording_12', '12.csv' -> '12'."""
    stem = name.strip()
    for suffix in (".csv", ".mp4", ".mpg", ".avi", ".mkv"):
        stem = stem.removesuffix(suffix)
    return stem.removeprefix("recording_")
