"""The page: places the panels, with styles, script and data inside one file."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from enteron import __version__
from enteron.report.comparison import ComparisonPanel
from enteron.report.completeness import CompletenessPanel
from enteron.report.facts import FactsPanel
from enteron.report.gallery import GalleryPanel
from enteron.report.palette import stylesheet
from enteron.report.sureness import SurenessPanel
from enteron.report.timeline import TimelinePanel
from enteron.report.transit import TransitPanel

NONE = "\u2013"
SCRIPTS = ("theme.js", "curves.js", "timeline.js", "gallery.js")


@dataclass(frozen=True)
class Page:
    """Everything that the page shows."""

    study: str
    facts: FactsPanel
    timeline: TimelinePanel
    transit: TransitPanel
    gallery: GalleryPanel
    completeness: CompletenessPanel
    sureness: SurenessPanel
    comparison: ComparisonPanel | None
    data: Mapping[str, Any]  # for the script


def render(page: Page) -> str:
    """The HTML of a page; every value is escaped, and no value becomes script."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    environment = Environment(
        loader=PackageLoader("enteron.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": _count, "percent": _percent, "figure": _figure}
    template = environment.get_template("page.html")
    return template.render(
        page=page,
        version=__version__,
        css=Markup(_asset("page.css") + stylesheet()),
        script=Markup(script),
        # The browser runs nothing but the script of this hash, and loads nothing from anywhere.
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        data=embedded_json(page.data),
    )


def embedded_json(data: Mapping[str, Any]) -> Markup:
    """JSON that can stand inside a script element: no '<', so nothing in it can end the element."""
    text = json.dumps(data, separators=(",", ":"))  # non-ASCII, U+2028 included, is escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _asset(name: str) -> str:
    return (files("enteron.report") / "assets" / name).read_text(encoding="utf-8")


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float) -> str:
    """A share; small ones keep a digit, and what is not zero never reads as zero."""
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def _figure(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"
