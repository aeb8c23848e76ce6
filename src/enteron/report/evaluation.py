"""The page of an evaluation: tables, curves, and the worst mistakes with their pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from enteron.calibration import calibrated
from enteron.errors import EnteronError, quantity
from enteron.files import write_text
from enteron.fitting.event_confidence import reliability
from enteron.folders.reading import SCORES, load_reading
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.evaluation import Evaluation, summarise
from enteron.metrics.lesion_evaluation import LesionEvaluation, summarise_lesions
from enteron.report.charts import (
    Chart,
    ReliabilityChart,
    froc_chart,
    reliability_chart,
    study_chart,
)
from enteron.report.page import asset, environment, script_hash, style
from enteron.report.pictures import PICTURES, Picture, PictureChoice, load_album, save_pictures
from enteron.study import open_study

MOST_MISTAKES: Final = 12  # of each kind
MOST_STUDIES: Final = 400  # rows of the table of studies
SCRIPTS: Final = ("theme.js",)


@dataclass(frozen=True)
class Mistake:
    """A lesion that was missed, or an event where there is none."""

    study: str
    label: str
    column: int
    start: int
    stop: int
    frame: int  # that is shown
    confidence: float | None  # of a false event; the highest probability in a missed lesion
    picture: Picture | None = None


@dataclass(frozen=True)
class EvaluationPage:
    """Everything that the page shows."""

    title: str
    figures: Mapping[str, Any]  # of `summarise`
    lesions: Mapping[str, Any]  # of `summarise_lesions`
    notes: tuple[str, ...]
    rate_note: str
    findings: tuple[str, ...]  # with lesions or events
    froc: Chart | None
    studies: Chart | None
    reliability: tuple[ReliabilityChart, ...]
    misses: tuple[Mistake, ...]
    missed: int
    alarms: tuple[Mistake, ...]
    false_events: int
    from_readings: bool
    word: str

    @property
    def pictured(self) -> bool:
        """Whether there is a picture of any mistake."""
        return any(mistake.picture is not None for mistake in (*self.misses, *self.alarms))


def write_evaluation_page(
    path: Path,
    evaluation: Evaluation,
    lesions: LesionEvaluation,
    folders: Mapping[str, Path],
    studies: Mapping[str, Path] | None = None,
) -> None:
    """Write the page, one file that needs no network.

    `folders` are the reading folders of studies that are from one: pictures of false events come
    from there. `studies` are folders of frames or videos: pictures of missed lesions come from
    there, which no reading has saved.
    """
    if path.is_dir():
        raise EnteronError(f"'{path.name}' is a folder", "give a name for the page, as page.html")
    page = make_evaluation_page(evaluation, lesions, folders, studies or {})
    write_text(path, render_evaluation(page))


def make_evaluation_page(
    evaluation: Evaluation,
    lesions: LesionEvaluation,
    folders: Mapping[str, Path],
    studies: Mapping[str, Path],
) -> EvaluationPage:
    """Tables, charts and mistakes of an evaluation."""
    figures, lesion_figures = summarise(evaluation), summarise_lesions(lesions)
    rows = lesion_figures["findings"]
    findings = tuple(name for name in FINDINGS if rows[name]["lesions"] + rows[name]["events"])
    detection = lesions.detection
    misses = _misses(lesions, folders)
    alarms = _false_events(lesions)
    return EvaluationPage(
        title=f"Evaluation of {quantity(len(evaluation.studies), 'study', 'studies')}",
        figures=figures,
        lesions=lesion_figures,
        notes=evaluation.warnings,
        rate_note=evaluation.rate_note,
        findings=findings,
        froc=None if lesions.curve is None else froc_chart(lesions.curve, lesions.curves),
        studies=study_chart(
            [(s.study, s.lesions, s.found, s.false_events) for s in lesions.shown.studies]
        )
        if any(s.lesions for s in lesions.shown.studies)
        else None,
        reliability=() if lesions.curve is None else tuple(_reliability(lesions)),
        misses=_with_pictures(misses, folders, studies),
        missed=int(np.isinf(detection.detected_at).sum()),
        alarms=_with_pictures(alarms, folders, studies),
        false_events=int((~detection.is_true).sum()),
        from_readings=bool(folders),
        word="row" if evaluation.unit == "index" else "frame",
    )


def _reliability(lesions: LesionEvaluation) -> list[ReliabilityChart]:
    """Confidences of events beside the share whose picture lies in a lesion, per finding."""
    events, is_true = lesions.detection.events, lesions.detection.is_true
    charts: list[ReliabilityChart] = []
    for column in np.unique(events.finding).tolist():
        chosen = events.finding == column
        result = reliability(events.confidence[chosen], is_true[chosen])
        charts.append(reliability_chart(FINDINGS[column], result))
    return charts


# ---- The worst mistakes


def _misses(lesions: LesionEvaluation, folders: Mapping[str, Path]) -> list[Mistake]:
    """The longest lesions that no event shows."""
    detection = lesions.detection
    truth = detection.lesions
    missed = np.flatnonzero(np.isinf(detection.detected_at))
    order = np.lexsort((truth.start[missed], -(truth.stop - truth.start)[missed]))
    mistakes: list[Mistake] = []
    for index in missed[order][:MOST_MISTAKES].tolist():
        study, label = truth.studies[truth.study[index]], FINDINGS[truth.finding[index]]
        start, stop = int(truth.start[index]), int(truth.stop[index])
        frame, highest = (start + stop - 1) // 2, None
        if study in folders:
            frame, highest = _highest(folders[study], label, start, stop, frame)
        mistakes.append(Mistake(study, label, COLUMN[label], start, stop, frame, highest))
    return mistakes


def _highest(
    folder: Path, label: str, start: int, stop: int, middle: int
) -> tuple[int, float | None]:
    """The frame of a missed lesion in which its probability was highest, and that probability."""
    if not (folder / SCORES).is_file():
        return middle, None
    reading = load_reading(folder)
    scores, calibration = reading.scores, reading.run.frame_calibration
    values = scores.values if calibration is None else calibrated(scores, calibration)
    first, last = np.searchsorted(scores.axis.frames, (start, stop))
    if first == last:
        return middle, None
    row = int(first) + int(values[first:last, COLUMN[label]].argmax())
    return int(scores.axis.frames[row]), float(values[row, COLUMN[label]])


def _false_events(lesions: LesionEvaluation) -> list[Mistake]:
    """The most confident events whose picture shows no lesion of their finding."""
    events = lesions.detection.events
    false = np.flatnonzero(~lesions.detection.is_true)
    order = np.lexsort((events.start[false], -events.confidence[false]))
    known = lesions.curve is not None
    return [
        Mistake(
            events.studies[events.study[index]],
            FINDINGS[events.finding[index]],
            COLUMN[FINDINGS[events.finding[index]]],
            int(events.start[index]),
            int(events.stop[index]),
            int(events.frame[index]),
            float(events.confidence[index]) if known else None,
        )
        for index in false[order][:MOST_MISTAKES].tolist()
    ]


def _with_pictures(
    mistakes: Sequence[Mistake], folders: Mapping[str, Path], studies: Mapping[str, Path]
) -> tuple[Mistake, ...]:
    """The mistakes with their pictures, from the readings or from the studies themselves."""
    pictures: dict[tuple[str, int], Picture] = {}
    for study in dict.fromkeys(mistake.study for mistake in mistakes):
        frames = tuple(sorted(m.frame for m in mistakes if m.study == study))
        choice = PictureChoice({}, {}, {}, frames)
        if study in folders and (folders[study] / PICTURES).is_dir():
            album = load_album(folders[study], choice, device_text=False)
            pictures |= {(study, frame): p for frame, p in album.pictures.items()}
        missing = tuple(frame for frame in frames if (study, frame) not in pictures)
        if study in studies and missing:
            with TemporaryDirectory() as scratch, open_study(studies[study]) as frames_of:
                known = tuple(f for f in missing if f in frames_of.numbers)
                choice = PictureChoice({}, {}, {}, known)
                save_pictures(frames_of, choice, Path(scratch))
                album = load_album(Path(scratch), choice, device_text=False)
            pictures |= {(study, frame): p for frame, p in album.pictures.items()}
    return tuple(
        Mistake(
            m.study, m.label, m.column, m.start, m.stop, m.frame, m.confidence,
            pictures.get((m.study, m.frame)),
        )
        for m in mistakes
    )  # fmt: skip


# ---- HTML


def render_evaluation(page: EvaluationPage) -> str:
    """The HTML of a page; every value is escaped, and no value becomes script."""
    script = "\n".join(asset(name) for name in SCRIPTS)
    return (
        environment()
        .get_template("evaluation.html")
        .render(
            page=page,
            version=version("enteron"),
            css=style(),
            script=Markup(script),
            script_hash=script_hash(script),
            columns=COLUMN,
            labels=LABELS,
            regions=REGIONS,
            most_studies=MOST_STUDIES,
        )
    )
