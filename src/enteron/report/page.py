"""The page: places the panels, with styles, script and data, in one self-contained file."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from enteron.calibration import calibrated
from enteron.files import json_text, write_text
from enteron.folders.reading import Reading, load_reading
from enteron.folders.suspicious import read_suspicious
from enteron.folders.trust import drawn_only_labels
from enteron.labels import COLOURS, LABELS
from enteron.report.clock import Clock, counted
from enteron.report.comparison import ComparisonPanel, comparison_panel
from enteron.report.confidence import ConfidencePanel, confidence_panel
from enteron.report.facts import (
    CompletenessPanel,
    FactsPanel,
    SummaryPanel,
    completeness_panel,
    facts_panel,
    summary_panel,
)
from enteron.report.gallery import GalleryPanel, gallery_panel
from enteron.report.pictures import (
    INDEX,
    PICTURES,
    choose_pictures,
    load_album,
    picture_budget,
    require_pictures_of,
)
from enteron.report.suspicious import SuspiciousPanel, suspicious_panel
from enteron.report.timeline import TimelinePanel, curve_data, timeline_panel
from enteron.report.transit import TransitPanel, transit_panel
from enteron.types import Annotation, Scores

FILE: Final = "report.html"
SCRIPTS: Final = ("theme.js", "curves.js", "drawing.js", "timeline.js", "start.js", "gallery.js")
NONE: Final = "\u2013"  # shown in place of a figure that does not exist


@dataclass(frozen=True)
class Page:
    """Everything that the page shows, in its order."""

    study: str
    identity: str  # JSON, for programs
    summary: SummaryPanel
    suspicious: SuspiciousPanel | None
    timeline: TimelinePanel
    transit: TransitPanel
    gallery: GalleryPanel
    comparison: ComparisonPanel | None
    completeness: CompletenessPanel
    confidence: ConfidencePanel
    facts: FactsPanel
    drawn_only: tuple[str, ...]  # labels that the model knows from drawings only
    data: Mapping[str, Any]  # for the script


def write_report(
    folder: Path,
    *,
    truth: Annotation | None = None,
    device_text: bool = False,
    scores_file: Path | None = None,
    unfinished: bool = False,
) -> Path:
    """Write `report.html` from scores.parquet, events.json, run.json and pictures/ of a reading.

    With `truth`, a reference annotation of the same study is shown beside the events. Text that
    the recorder wrote into the pictures is removed unless `device_text`. `scores_file` replaces
    scores.parquet where decoding left the scores elsewhere. `unfinished` is for the run whose last
    stage this is.
    """
    reading = load_reading(folder, scores_file, unfinished=unfinished)
    path = folder / FILE
    write_text(path, render(make_page(reading, truth, device_text=device_text)))
    reading.run.with_files(folder, (FILE, f"{PICTURES}/{INDEX}")).save(folder)
    return path


def make_page(
    reading: Reading,
    truth: Annotation | None = None,
    *,
    device_text: bool = False,
) -> Page:
    """The panels of a reading."""
    events, run, gaps = reading.events, reading.run, reading.gaps
    if run.identity is not None:
        require_pictures_of(reading.folder, run.identity)
    clock = Clock.of(reading.scores, run)
    scores = calibrated_scores(reading)
    listed = read_suspicious(reading.folder, reading.study)
    frames = None if listed is None else tuple(frame.frame for frame in listed.frames)
    comparison = None
    if truth is not None:
        comparison = comparison_panel(
            events, truth, reading.study, clock, run, reading.scores, frames
        )
    choice = choose_pictures(reading.scores, events, frames or ())
    album = load_album(
        reading.folder, choice, device_text=device_text, budget=picture_budget(len(events))
    )
    return Page(
        study=reading.study,
        identity="" if run.identity is None else json_text(run.identity.at("finished")),
        summary=summary_panel(events, clock, run),
        suspicious=suspicious_panel(listed, clock, album),
        timeline=timeline_panel(events, clock, run, truth, gaps),
        transit=transit_panel(events, clock, gaps, cut_off=run.missing is not None),
        gallery=gallery_panel(events, clock, choice, album),
        comparison=comparison,
        completeness=completeness_panel(clock, run, gaps),
        confidence=confidence_panel(events, scores, run),
        facts=facts_panel(reading, clock),
        drawn_only=drawn_only_labels(run.model),
        data={"word": clock.word, **curve_data(scores, clock)},
    )


def calibrated_scores(reading: Reading) -> Scores:
    """The scores as the decoder saw them: calibrated, if the run was."""
    scores, calibration = reading.scores, reading.run.frame_calibration
    if calibration is None:
        return scores
    return replace(scores, values=calibrated(scores, calibration))


# ---- HTML


def render(page: Page) -> str:
    """The HTML of a page; every value is escaped, and no value becomes script."""
    script = inlined(SCRIPTS)
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            version=version("enteron"),
            css=style(),
            script=Markup(script),
            script_hash=script_hash(script),
            data=embedded_json(page.data),
        )
    )


def inlined(names: Iterable[str]) -> str:
    """Modules one after the other as a plain script, since files cannot import each other.

    The web reader serves the same modules as they are.
    """
    text = "\n".join(asset(name) for name in names)
    return re.sub(r"^export ", "", re.sub(r"^import .*\n", "", text, flags=re.M), flags=re.M)


def environment() -> Environment:
    """Templates of the package, with filters for figures; every value is escaped."""
    templates = Environment(
        loader=PackageLoader("enteron.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "count": _count,
        "counted": counted,
        "percent": _percent,
        "figure": _figure,
    }
    return templates


def embedded_json(data: Mapping[str, Any]) -> Markup:
    """JSON that can stand inside a script element: no '<', so nothing in it can end the element."""
    text = json_text(data, separators=(",", ":"))  # non-ASCII, U+2028 included, is escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def style() -> Markup:
    """The style sheet, with the colours of labels."""
    return Markup(asset("page.css") + label_styles())


def script_hash(script: str) -> str:
    """The browser runs nothing but the script of this hash, and loads nothing from anywhere."""
    return b64encode(sha256(script.encode()).digest()).decode()


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (files("enteron.report") / "assets" / name).read_text(encoding="utf-8")


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float) -> str:
    """A share; small ones keep a digit, and only zero reads as zero."""
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def _figure(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


# ---- colours

LIGHT_PAPER: Final = "#ffffff"
DARK_PAPER: Final = "#151c21"
LEAST_CONTRAST: Final = 3.0  # WCAG 2.2, 1.4.11: graphics that must be told apart


def label_styles() -> str:
    """Per label a class `l-COLUMN` that sets --fill (as everywhere) and --line (legible)."""
    light, dark = [], []
    for column, label in enumerate(LABELS):
        fill = COLOURS[label]
        light.append(f".l-{column}{{--fill:{fill};--line:{legible(fill, LIGHT_PAPER)}}}")
        dark.append(f".l-{column}{{--line:{legible(fill, DARK_PAPER)}}}")
    # `screen` only: paper is always light.
    chosen = "".join(f':root[data-theme="dark"] {rule}' for rule in dark)
    by_system = "".join(f":root:not([data-theme]) {rule}" for rule in dark)
    return (
        "".join(light)
        + f"@media screen{{{chosen}}}"
        + f"@media screen and (prefers-color-scheme:dark){{{by_system}}}"
    )


def legible(colour: str, paper: str) -> str:
    """The nearest mixture of a colour with black or white that stands out from the paper."""
    toward = 0 if luminance(paper) > 0.5 else 255
    for percent in range(0, 101, 4):
        mixed = _mixed(colour, toward, percent / 100)
        if contrast(mixed, paper) >= LEAST_CONTRAST:
            return mixed
    return _mixed(colour, toward, 1.0)


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of '#rrggbb' as WCAG defines it."""
    channels = [value / 255 for value in _channels(colour)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _mixed(colour: str, toward: int, share: float) -> str:
    return "#" + "".join(f"{round(c + (toward - c) * share):02x}" for c in _channels(colour))


def _channels(colour: str) -> list[int]:
    """Red, green and blue of '#rrggbb', 0 to 255."""
    return [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
