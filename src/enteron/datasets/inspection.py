"""Inspection of one study of a data root: its problems are collected, not raised."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.galar import Entry, read_challenge_file
from enteron.datasets.label_table import (
    LabelTable,
    describe_numbers,
    join_labels,
    require_fit,
)
from enteron.errors import EnteronError, quantity
from enteron.labels import LABELS
from enteron.study.study import Study
from enteron.types import FrameLabels


@dataclass
class StudyReport:
    """What a study holds. Problems make it unusable as it is; notes do not.

    The fields are those of `enteron check --json`.
    """

    study: str
    device: str | None = None
    frames: int | None = None
    numbers: str | None = None  # 'frames 0 to 500 in steps of 5'
    rows: int | None = None  # of the label file
    labels: str | None = None  # which label file: 'original', 'updated', 'test file'
    coverage: float | None = None  # share of label rows with an image
    positives: dict[str, int] = field(default_factory=dict)  # label -> joined frames
    absent: dict[str, int] = field(default_factory=dict)  # label -> frames known not to show it
    unknown: dict[str, int] = field(default_factory=dict)  # label -> frames that do not say
    boxes: int = 0
    unreadable: int | None = None  # known only when every frame was decoded
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inspect(entry: Entry, *, decode: bool = False) -> StudyReport:
    """Open a study's images and labels and join them; `decode` also decodes every frame."""
    report = StudyReport(entry.id, device=entry.metadata.device if entry.metadata else None)
    study = None if entry.images is None else _open_images(entry, report)
    table = _read_labels(entry, report)
    if study is not None and table is not None:
        _check_join(study, table, report)
    if study is not None and entry.template is not None:
        _check_test_file(entry.template, study, report)
    if study is not None and table is None and entry.template is None and not report.problems:
        report.notes.append("it has images but no labels")
    if study is None and table is not None and not report.problems:
        report.notes.append("it has labels but no images")
    if study is not None and decode:
        _decode_frames(study, report)
    return report


def inspect_study(entry: DatasetStudy, *, decode: bool = False) -> StudyReport:
    """Open pictures, labels and boxes of a study of any layout other than Galar's."""
    report = StudyReport(entry.id, device=entry.device)
    study = _open_images(entry, report)
    if study is None:
        return report
    report.labels = "table"
    try:
        labelled = entry.labelled_frames(study)
        report.rows = len(labelled.frames)
        report.coverage = 1.0  # rows without a picture are refused
        _count_labels(labelled.labels, report)
        report.boxes = len(entry.boxes())
    except EnteronError as error:
        report.problems.append(str(error))
        return report
    if silent := int((~labelled.labels.informative).sum()):
        says = "says" if silent == 1 else "say"
        report.notes.append(f"{quantity(silent, 'frame')} {says} nothing about the 17 labels")
    if decode:
        _decode_frames(study, report)
    return report


def _count_labels(labels: FrameLabels, report: StudyReport) -> None:
    absent = labels.known_counts - labels.present_counts
    unknown = len(labels) - labels.known_counts
    report.positives = dict(zip(LABELS, labels.present_counts.tolist(), strict=True))
    report.absent = dict(zip(LABELS, absent.tolist(), strict=True))
    report.unknown = dict(zip(LABELS, unknown.tolist(), strict=True))


def _open_images(entry: DatasetStudy, report: StudyReport) -> Study | None:
    try:
        study = entry.open()
    except EnteronError as error:
        report.problems.append(str(error))
        return None
    report.frames = len(study)
    report.numbers = describe_numbers(study.numbers)
    report.notes.extend(study.notes)
    report.notes.extend(f"ignored: {sentence}" for sentence in study.ignored.sentences())
    if gaps := study.axis.gaps().size:
        report.notes.append(f"its numbering has {quantity(gaps, 'gap')}")
    return study


def _read_labels(entry: Entry, report: StudyReport) -> LabelTable | None:
    if entry.labels is None:
        return None
    report.labels = "updated" if entry.updated else "original"
    try:
        table = entry.table()
    except EnteronError as error:
        report.problems.append(str(error))
        return None
    report.rows = len(table)
    for regions, rows in sorted(Counter(table.region_counts().tolist()).items()):
        if regions != 1:
            named = "no region" if regions == 0 else quantity(regions, "region")
            verb = "names" if rows == 1 else "name"
            report.notes.append(f"{quantity(rows, 'label row')} {verb} {named}")
    return table


def _check_join(study: Study, table: LabelTable, report: StudyReport) -> None:
    join = join_labels(table, study.numbers)
    report.coverage = join.coverage
    _count_labels(FrameLabels.complete(join.values), report)
    try:
        require_fit(join, table, study.numbers)
    except EnteronError as error:
        report.problems.append(str(error))
        return
    for frames, noun, partner in (
        (join.labels_without_image.tolist(), "label row", "image"),
        (join.images_without_label.tolist(), "image", "label row"),
    ):
        if frames:
            verb = "has" if len(frames) == 1 else "have"
            report.notes.append(
                f"{quantity(len(frames), noun)} {verb} no {partner}: {_listed(frames)}"
            )


def _check_test_file(path: Path, study: Study, report: StudyReport) -> None:
    """Every frame that the challenge asks for must have an image."""
    report.labels = report.labels or "test file"
    try:
        test_file = read_challenge_file(path)
    except EnteronError as error:
        report.problems.append(str(error))
        return
    missing = sorted(set(test_file.frames.tolist()) - set(study.numbers.tolist()))
    if missing:
        report.problems.append(
            f"study {study.id} lacks {len(missing)} of the {test_file.frames.size} frames of its "
            f"test file: {_listed(missing)}; download the images again."
        )


def _decode_frames(study: Study, report: StudyReport) -> None:
    try:
        for _ in study:
            pass
    except EnteronError as error:
        report.problems.append(str(error))
    report.unreadable = len(study.unreadable)
    if study.unreadable:
        reason = Counter(study.unreadable.values()).most_common(1)[0][0]
        report.notes.append(
            f"{quantity(report.unreadable, 'frame')} cannot be read, mostly because {reason}: "
            f"{_listed(sorted(study.unreadable))}"
        )


def _listed(frames: list[int], most: int = 5) -> str:
    noun = "frame" if len(frames) == 1 else "frames"
    shown = ", ".join(str(frame) for frame in frames[:most])
    return f"{noun} {shown}, …" if len(frames) > most else f"{noun} {shown}"
