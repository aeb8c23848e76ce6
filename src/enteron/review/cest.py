"""CEST: findings under the headings of the capsule endoscopy structured terminology.

Korman LY, Delvaux M, Gay G, et al. Capsule endoscopy structured terminology (CEST): proposal of a
standardized and structured terminology for reporting capsule endoscopy procedures. Endoscopy
2005;37:951-959. The headings are CEST's; which of Galar's labels belongs where was decided here.
"""

from dataclasses import dataclass
from typing import Final, Literal

Heading = Literal["lumen", "contents", "mucosa", "flat", "protruding", "excavated"]

HEADINGS: Final[tuple[Heading, ...]] = (
    "lumen",
    "contents",
    "mucosa",
    "flat",
    "protruding",
    "excavated",
)


@dataclass(frozen=True)
class CestTerm:
    """A term and its heading."""

    heading: Heading
    term: str


TERMS: Final[dict[str, CestTerm]] = {
    "active bleeding": CestTerm("contents", "blood, actively bleeding"),
    "angiectasia": CestTerm("flat", "angioectasia"),
    "blood": CestTerm("contents", "blood, red"),
    "erosion": CestTerm("excavated", "erosion"),
    "erythema": CestTerm("mucosa", "erythematous"),
    "hematin": CestTerm("contents", "hematin"),
    "lymphangioectasis": CestTerm("mucosa", "lymphangiectasia"),
    "polyp": CestTerm("protruding", "polyp"),
    "ulcer": CestTerm("excavated", "ulcer"),
}
"""Of the nine findings; regions and landmarks are places, not findings."""
