"""The fleet at a glance: `index.html` beside the readings, one self-contained file.

Distributions and sentences are in the HTML; the studies are data for the script, which shows a page
of them at a time, so that ten thousand studies open at once.
"""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from enteron.files import write_text
from enteron.fleet.catalogue import COLUMN_NAMES, Catalogue
from enteron.fleet.drift import DriftReport, drift_report, load_reference
from enteron.fleet.figures import CONFIDENT, FleetFigures, fleet_figures
from enteron.folders.reading import REPORT
from enteron.labels import COLUMN, FINDINGS
from enteron.report.page import asset, embedded_json, environment, script_hash, style

INDEX: Final = "index.html"
_SCRIPTS: Final = ("theme.js", "fleet.js")
_MOST_STOPPED: Final = 200  # studies that are listed with their sentences


@dataclass(frozen=True)
class FleetPage:
    """Everything that the page shows."""

    title: str
    figures: FleetFigures
    drift: DriftReport
    confident: float = CONFIDENT
    most_stopped: int = _MOST_STOPPED


def write_fleet_page(out: Path, catalogue: Catalogue) -> Path:
    """Write the page of a folder of readings."""
    figures = fleet_figures(catalogue)
    drift = drift_report(catalogue.studies, load_reference(out))
    page = FleetPage(f"{figures.finished:,} studies", figures, drift)
    path = out / INDEX
    write_text(path, render_fleet(page, catalogue))
    return path


def render_fleet(page: FleetPage, catalogue: Catalogue) -> str:
    """The HTML; every value is escaped, and no value becomes script."""
    script = "\n".join(asset(name) for name in _SCRIPTS)
    return (
        environment()
        .get_template("fleet.html")
        .render(
            page=page,
            version=version("enteron"),
            css=style(),
            script=Markup(script),
            script_hash=script_hash(script),
            data=embedded_json(_table(catalogue)),
        )
    )


def _table(catalogue: Catalogue) -> dict[str, Any]:
    """The studies, as short as possible: columns, not rows of names."""
    import polars as pl

    studies = catalogue.studies.sort("study")
    best = {label: studies[COLUMN_NAMES[label]].round(2).to_list() for label in FINDINGS}
    findings = [
        [[COLUMN[label], best[label][row], 0] for label in FINDINGS if best[label][row] is not None]
        for row in range(studies.height)
    ]
    for label in FINDINGS:
        counts = studies[f"{COLUMN_NAMES[label]}_events"].to_list()
        for row, listed in enumerate(findings):
            for item in listed:
                if item[0] == COLUMN[label]:
                    item[2] = counts[row]

    def hours(name: str) -> list[float | None]:
        return (studies[name] / 60).round(2).to_list()

    links = studies.select(
        pl.when(pl.col("state") == "finished").then(pl.col("folder")).otherwise(None)
    ).to_series()
    return {
        "report": REPORT,
        "labels": {COLUMN[label]: label for label in FINDINGS},
        "study": studies["study"].to_list(),
        "folder": [
            None if folder == study else folder
            for folder, study in zip(links.to_list(), studies["study"].to_list(), strict=True)
        ],
        "state": studies["state"].to_list(),
        "frames": studies["frames"].to_list(),
        "device": studies["device"].to_list(),
        "month": studies["month"].to_list(),
        "complete": studies["complete"].cast(pl.Int8).to_list(),
        "gastric": hours("gastric_minutes"),
        "bowel": hours("small_bowel_minutes"),
        "findings": findings,
    }
