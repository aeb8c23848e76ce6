"""Clinical scores: Lewis, CECDAI, Saurin and KODA, with the weights of their publications.

A physician enters the parameters; the arithmetic is here. What can be computed from reviewed events
is proposed by `enteron.review.proposals`, and never entered by itself.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from enteron.options import Options

# ---- Lewis: Gralnek IM, Defranchis R, Seidman E, Leighton JA, Legnani P, Lewis BS. Development of
# a capsule endoscopy scoring index for small bowel mucosal inflammatory change. Aliment Pharmacol
# Ther 2008;27:146-154. Reprints of the table disagree on one cell, ulcers over the whole tertile:
# 15 here, 20 and 25 in reviews of 2011 and 2016 (docs/review.md).

VILLI_EXTENT: Final = {"short": 8, "long": 12, "whole": 20}
VILLI_DISTRIBUTION: Final = {"single": 1, "patchy": 14, "diffuse": 17}
ULCER_COUNT: Final = {"none": 0, "single": 3, "few": 5, "multiple": 10}
ULCER_EXTENT: Final = {"short": 5, "long": 10, "whole": 15}
ULCER_SIZE: Final = {"under a quarter": 9, "quarter to half": 12, "over half": 18}
STENOSIS_COUNT: Final = {"none": 0, "single": 14, "multiple": 20}
STENOSIS_ULCERATED: Final = {True: 24, False: 2}
STENOSIS_TRAVERSED: Final = {True: 7, False: 10}
LEWIS_MILD: Final = 135
LEWIS_SEVERE: Final = 790

FEW_ULCERS: Final = 7
"""Two to seven ulcers are few, eight or more are multiple."""
SHORT_SEGMENT: Final = 0.10
LONG_SEGMENT: Final = 0.50
"""Shares of a tertile up to which a segment is short, and long; more is the whole tertile."""

Extent = Literal["short", "long", "whole"]


def _require_parts(present: bool, *parts: object, what: str) -> None:
    given = [part is not None for part in parts]
    if present and not all(given):
        raise ValueError(f"{what} need both of the other columns")
    if not present and any(given):
        raise ValueError(f"without {what} the other columns stay empty")


class Villi(Options):
    """Villous appearance of one tertile."""

    oedematous: bool = False
    extent: Extent | None = None
    distribution: Literal["single", "patchy", "diffuse"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Villi":
        _require_parts(self.oedematous, self.extent, self.distribution, what="oedematous villi")
        return self

    @property
    def points(self) -> int:
        """The product of the row; 0 for normal villi."""
        if not self.oedematous or self.extent is None or self.distribution is None:
            return 0
        return VILLI_EXTENT[self.extent] * VILLI_DISTRIBUTION[self.distribution]


class Ulcers(Options):
    """Ulcers of one tertile; the size is that of the largest, as a share of the circumference."""

    count: Literal["none", "single", "few", "multiple"] = "none"
    extent: Extent | None = None
    size: Literal["under a quarter", "quarter to half", "over half"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Ulcers":
        _require_parts(self.count != "none", self.extent, self.size, what="ulcers")
        return self

    @property
    def points(self) -> int:
        """The product of the row; 0 without ulcers."""
        if self.extent is None or self.size is None:
            return 0
        return ULCER_COUNT[self.count] * ULCER_EXTENT[self.extent] * ULCER_SIZE[self.size]


class Tertile(Options):
    """A third of the small bowel, by transit time."""

    villi: Villi = Villi()
    ulcers: Ulcers = Ulcers()

    @property
    def points(self) -> int:
        return self.villi.points + self.ulcers.points


class Stenosis(Options):
    """Stenoses of the whole study."""

    count: Literal["none", "single", "multiple"] = "none"
    ulcerated: bool | None = None
    traversed: bool | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Stenosis":
        _require_parts(self.count != "none", self.ulcerated, self.traversed, what="a stenosis")
        return self

    @property
    def points(self) -> int:
        """The product of the row; 0 without a stenosis."""
        if self.ulcerated is None or self.traversed is None:
            return 0
        count = STENOSIS_COUNT[self.count]
        return count * STENOSIS_ULCERATED[self.ulcerated] * STENOSIS_TRAVERSED[self.traversed]


class Lewis(Options):
    """The Lewis score: inflammation of the small bowel."""

    name: Literal["lewis"] = "lewis"
    tertiles: tuple[Tertile, Tertile, Tertile]
    stenosis: Stenosis = Stenosis()

    @property
    def value(self) -> int:
        """The worst tertile's points and those of stenoses."""
        return max(tertile.points for tertile in self.tertiles) + self.stenosis.points

    @property
    def category(self) -> str:
        if self.value < LEWIS_MILD:
            return "no or insignificant inflammation"
        return (
            "mild inflammation" if self.value <= LEWIS_SEVERE else "moderate to severe inflammation"
        )


# ---- CECDAI: Gal E, Geller A, Fraser G, Levi Z, Niv Y. Assessment and validation of the new
# capsule endoscopy Crohn's disease activity index (CECDAI). Dig Dis Sci 2008;53:1933-1937.

CECDAI_INFLAMMATION: Final = (
    "none",
    "mild to moderate oedema, hyperaemia or denudation",
    "severe oedema, hyperaemia or denudation",
    "bleeding, exudate, aphthae, erosion or small ulcer (up to 0.5 cm)",
    "moderate ulcer (0.5 to 2 cm) or pseudopolyp",
    "large ulcer (above 2 cm)",
)
CECDAI_EXTENT: Final = (
    "none",
    "focal (one segment)",
    "patchy (two or three segments)",
    "diffuse (more than three segments)",
)
CECDAI_STRICTURE: Final = ("none", "single, passed", "multiple, passed", "obstruction")


class Half(Options):
    """The proximal or the distal half of the small bowel."""

    inflammation: Annotated[int, Field(ge=0, le=5)] = 0
    extent: Annotated[int, Field(ge=0, le=3)] = 0
    stricture: Annotated[int, Field(ge=0, le=3)] = 0

    @property
    def points(self) -> int:
        return self.inflammation * self.extent + self.stricture


class Cecdai(Options):
    """The capsule endoscopy Crohn's disease activity index, 0 to 36."""

    name: Literal["cecdai"] = "cecdai"
    proximal: Half = Half()
    distal: Half = Half()

    @property
    def value(self) -> int:
        return self.proximal.points + self.distal.points


# ---- Saurin: Saurin JC, Delvaux M, Gaudin JL, et al. Diagnostic value of endoscopic capsule in
# patients with obscure digestive bleeding. Endoscopy 2003;35:576-584.


class Saurin(StrEnum):
    """Bleeding potential of a finding."""

    P0 = "P0"  # none: submucosal veins, diverticula, nodules without mucosal break
    P1 = "P1"  # uncertain: red spots, small or isolated erosions
    P2 = "P2"  # high: typical angiectasia, large ulcer, tumour, varices, blood


SAURIN_MEANING: Final[Mapping[Saurin, str]] = {
    Saurin.P0: "no bleeding potential",
    Saurin.P1: "uncertain bleeding potential",
    Saurin.P2: "high bleeding potential",
}


# ---- KODA: Alageeli M, Yan B, Alshankiti S, et al. KODA score: an updated and validated bowel
# preparation scale for patients undergoing small bowel capsule endoscopy. Endosc Int Open
# 2020;8:E1011-E1017 (PMC7373654). Frames at intervals of five minutes and the scale 0 to 3 of both
# items were checked against its abstract. The cut-offs of the grades stand in the paper's table,
# which could not be read when this was written: none are invented here, the physician grades by it.

KODA_EVERY: Final = 300.0
"""Seconds of small-bowel transit between two rated frames."""

Grade = Annotated[int, Field(ge=0, le=3)]


class KodaFrame(Options):
    """One rated frame; 3 is the best view in both items."""

    frame: Annotated[int, Field(ge=0)]
    mucosa: Grade  # share of the mucosa that is seen
    view: Grade  # how far bubbles, debris and bile obstruct the view; 3 is not at all


class Koda(Options):
    """The KODA score: cleanliness of the small bowel, 0 to 3."""

    name: Literal["koda"] = "koda"
    frames: Annotated[tuple[KodaFrame, ...], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _unique(self) -> "Koda":
        if len({rated.frame for rated in self.frames}) < len(self.frames):
            raise ValueError("a frame is rated twice")
        return self

    @property
    def value(self) -> float:
        """The mean of both items over all frames."""
        return sum(rated.mucosa + rated.view for rated in self.frames) / (2 * len(self.frames))


StudyScore = Annotated[Lewis | Cecdai | Koda, Field(discriminator="name")]
