"""The page: places the panels, with styles, script and data inside one file."""

import dataclasses
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from enteron.calibration.calibration import calibrated
from enteron.files import write_text
from enteron.folders.reading import Reading, load_reading
from enteron.labels import COLOURS, LABELS
from enteron.report.clock import Clock
from enteron.report.comparison import ComparisonPanel, comparison_panel
from enteron.report.confidence import SurenessPanel, sureness_panel
from enteron.report.facts import CompletenessPanel, FactsPanel, completeness_panel, facts_panel
from enteron.report.gallery import GalleryPanel, gallery_panel
from enteron.report.pictures import budget_beside, choose_pictures, load_album
from enteron.report.timeline import TimelinePanel, curve_data, timeline_panel
from enteron.report.transit import TransitPanel, transit_panel
from enteron.types import Annotation, Scores

LIGHT_PAPER: Final = "#ffffff"
DARK_PAPER: Final = "#151c21"
ENOUGH: Final = 3.0  # WCAG 2.2, 1.4.11: contrast of graphics that must be told apart


def luminance(colour: str) -> float:
    """Relative luminance of '#rrggbb' as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def legible(colour: str, paper: str) -> str:
    """The nearest mixture of a colour with black or white that stands out from the paper."""
    toward = 0 if luminance(paper) > 0.5 else 255
    for percent in range(0, 101, 4):
        mixed = _mixed(colour, toward, percent / 100)
        if contrast(mixed, paper) >= ENOUGH:
            return mixed
    return _mixed(colour, toward, 1.0)


def _mixed(colour: str, toward: int, share: float) -> str:
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(c + (toward - c) * share):02x}" for c in channels)


def stylesheet() -> str:
    """Per label a class `l-COLUMN` that sets --fill (as everywhere) and --line (legible)."""
    light, dark = [], []
    for column, label in enumerate(LABELS):
        fill = COLOURS[label]
        light.append(f".l-{column}{{--fill:{fill};--line:{legible(fill, LIGHT_PAPER)}}}")
        dark.append(f".l-{column}{{--line:{legible(fill, DARK_PAPER)}}}")
    # Scoped by nesting, so that printing, which is always light, leaves the dark block out.
    dark_rules = "".join(f':root[data-theme="dark"] {rule}' for rule in dark)
    auto_rules = "".join(f":root:not([data-theme]) {rule}" for rule in dark)
    return (
        "".join(light)
        + f"@media screen{{{dark_rules}}}"
        + f"@media screen and (prefers-color-scheme:dark){{{auto_rules}}}"
    )


NONE = "\u2013"
SCRIPTS = ("theme.js", "curves.js", "drawing.js", "timeline.js", "gallery.js")


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
        version=version("enteron"),
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


FILE = "report.html"


def write_report(
    folder: Path,
    *,
    truth: Annotation | None = None,
    device_text: bool = False,
    scores_file: Path | None = None,
) -> Path:
    """Write `report.html` from scores.parquet, events.json, run.json and pictures/ of a reading.

    With `truth`, of the same study, annotated events stand beside the predicted ones. Text that
    the recorder burnt into the pictures is removed unless `device_text`. `scores_file` stands in
    for scores.parquet where decoding left the scores elsewhere.
    """
    path = folder / FILE
    reading = load_reading(folder, scores_file)
    write_text(path, render(make_page(reading, truth, device_text=device_text)))
    return path


def calibrated_scores(reading: Reading) -> Scores:
    """What the decoder saw: the model's scores, calibrated if it was."""
    scores, known = reading.scores, reading.run.frame_calibration
    if known is None:
        return scores
    return dataclasses.replace(scores, values=calibrated(scores, known))


def make_page(
    reading: Reading,
    truth: Annotation | None = None,
    *,
    device_text: bool = False,
) -> Page:
    """The panels of a reading."""
    events, run = reading.events, reading.run
    clock = Clock.of(reading.scores, reading.unit, run)
    comparison = None
    if truth is not None:
        comparison = comparison_panel(events, truth, reading.study, clock, run)
    shown = calibrated_scores(reading)
    chosen = choose_pictures(reading.scores, events)
    budget = budget_beside(len(events))
    album = load_album(reading.folder, chosen, device_text=device_text, budget=budget)
    return Page(
        study=reading.study,
        facts=facts_panel(reading, clock),
        timeline=timeline_panel(events, clock, run, truth, reading.gaps),
        transit=transit_panel(events, clock, reading.gaps),
        gallery=gallery_panel(events, clock, chosen, album),
        completeness=completeness_panel(clock, run, reading.gaps),
        sureness=sureness_panel(events, shown, run),
        comparison=comparison,
        data={"word": clock.word, **curve_data(shown, clock)},
    )
