"""Look at one study of a data root and collect what is wrong, instead of stopping at it."""

from collections import Counter
from dataclasses import dataclass, field

from enteron.datasets.galar import Entry, read_challenge_file
from enteron.datasets.label_table import Join, LabelTable, join_labels, require_fit, span
from enteron.errors import EnteronError
from enteron.labels import LABELS
from enteron.study.study import Study


@dataclass
class StudyReport:
    """What one study holds. Problems make it unusable as it is; notes are worth knowing."""

    study: str
    device: str | None = None
    frames: int | None = None
    numbers: str | None = None  # 'frames 0 to 500 in steps of 5'
    rows: int | None = None  # of the label file
    labels: str | None = None  # which label file: 'original', 'updated', 'test file'
    coverage: float | None = None  # share of label rows with an image
    positives: dict[str, int] = field(default_factory=dict)  # label -> joined frames
    unreadable: int | None = None  # known only when every frame was decoded
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inspect(entry: Entry, *, decode: bool = False) -> StudyReport:
    """Open a study's images and labels and join them; `decode` reads every picture too."""
    report = StudyReport(entry.id, device=entry.metadata.device if entry.metadata else None)
    study = _images(entry, report)
    table = _labels(entry, report)
    if study is not None and table is not None:
        _join(study, table, report)
    if study is not None and entry.template is not None:
        _template(entry, study, report)
    if study is not None and table is None and entry.template is None and not report.problems:
        report.notes.append("it has images but no labels")
    if study is None and table is not None and not report.problems:
        report.notes.append("it has labels but no images")
    if study is not None and decode:
        _decode(study, report)
    return report


def _images(entry: Entry, report: StudyReport) -> Study | None:
    if entry.images is None:
        return None
    try:
        study = entry.open()
    except EnteronError as error:
        report.problems.append(str(error))
        return None
    report.frames = len(study)
    report.numbers = span(study.numbers)
    report.notes.extend(study.notes)
    if gaps := study.axis.gaps().size:
        report.notes.append(f"its numbering has {gaps} gaps")
    return study


def _labels(entry: Entry, report: StudyReport) -> LabelTable | None:
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
            named = "no region" if regions == 0 else f"{regions} regions"
            report.notes.append(f"{rows} label rows name {named}")
    return table


def _join(study: Study, table: LabelTable, report: StudyReport) -> None:
    join: Join = join_labels(table, study.numbers)
    report.coverage = join.coverage
    counts = join.values.sum(axis=0)
    report.positives = {label: int(n) for label, n in zip(LABELS, counts, strict=True)}
    try:
        require_fit(join, table, study.numbers)
    except EnteronError as error:
        report.problems.append(str(error))
        return
    if join.labels_without_image.size:
        report.notes.append(
            f"{join.labels_without_image.size} label rows have no image: "
            f"{_few(join.labels_without_image.tolist())}"
        )
    if join.images_without_label.size:
        report.notes.append(
            f"{join.images_without_label.size} images have no label row: "
            f"{_few(join.images_without_label.tolist())}"
        )


def _template(entry: Entry, study: Study, report: StudyReport) -> None:
    assert entry.template is not None
    report.labels = report.labels or "test file"
    try:
        wanted = read_challenge_file(entry.template)
    except EnteronError as error:
        report.problems.append(str(error))
        return
    missing = sorted(set(wanted.frames.tolist()) - set(study.numbers.tolist()))
    if missing:
        report.problems.append(
            f"study {entry.id} lacks {len(missing)} of the {wanted.frames.size} frames of its test "
            f"file: {_few(missing)}; fetch the images again."
        )


def _decode(study: Study, report: StudyReport) -> None:
    try:
        for _ in study:
            pass
    except EnteronError as error:
        report.problems.append(str(error))
    report.unreadable = len(study.unreadable)
    if study.unreadable:
        reasons = Counter(study.unreadable.values()).most_common(1)[0][0]
        report.notes.append(
            f"{len(study.unreadable)} frames cannot be read, mostly because {reasons}: "
            f"{_few(sorted(study.unreadable))}"
        )


def _few(frames: list[int]) -> str:
    shown = ", ".join(str(frame) for frame in frames[:5])
    return f"frames {shown}, …" if len(frames) > 5 else f"frames {shown}"
