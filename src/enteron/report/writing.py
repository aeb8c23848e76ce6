"""From a reading folder to `report.html`."""

import dataclasses
from pathlib import Path

from enteron.calibration.logits import calibrated
from enteron.files import write_text
from enteron.report.album import budget_beside, load_album
from enteron.report.clock import Clock
from enteron.report.comparison import comparison_panel
from enteron.report.completeness import completeness_panel
from enteron.report.curves import curve_data
from enteron.report.facts import facts_panel
from enteron.report.gallery import gallery_panel
from enteron.report.page import Page, render
from enteron.report.pictures import choose_pictures
from enteron.report.stored import StoredReading, load_reading
from enteron.report.sureness import sureness_panel
from enteron.report.timeline import timeline_panel
from enteron.report.transit import transit_panel
from enteron.types import Annotation, FrameUnit, Scores

FILE = "report.html"


def write_report(
    folder: Path,
    *,
    truth: Annotation[FrameUnit] | None = None,
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


def calibrated_scores(reading: StoredReading) -> Scores:
    """What the decoder saw: the model's scores, calibrated if it was."""
    scores, known = reading.scores, reading.run.frame_calibration
    if known is None:
        return scores
    return dataclasses.replace(scores, values=calibrated(scores, known))


def make_page(
    reading: StoredReading,
    truth: Annotation[FrameUnit] | None = None,
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
