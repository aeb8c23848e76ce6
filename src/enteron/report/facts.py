"""Facts of the study, the model and the run, and the summary at the top of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enteron.decode.events import DecodedEvent
from enteron.folders.reading import Reading, RunRecord
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.report.clock import Clock, counted
from enteron.types import Gap

NOT_SAID = "not recorded"

RUNTIMES = {"onnx": "ONNX Runtime", "torch": "PyTorch", "openvino": "OpenVINO"}


@dataclass(frozen=True)
class Fact:
    """A name and its value."""

    name: str
    value: str


@dataclass(frozen=True)
class FoundRow:
    """One label of the summary."""

    label: str
    column: int
    count: int
    highest: float | None
    first: str
    first_number: int
    regions: str


@dataclass(frozen=True)
class FactsPanel:
    """What the page says about study, model and run."""

    headline: str
    found: tuple[FoundRow, ...]
    absent: tuple[str, ...]  # findings without any event
    study: tuple[Fact, ...]
    model: tuple[Fact, ...]
    trained: tuple[Fact, ...]
    results: tuple[Fact, ...]
    run: tuple[Fact, ...]
    timings: tuple[Fact, ...]
    time_note: str
    scaling: str | None


def facts_panel(reading: Reading, clock: Clock) -> FactsPanel:
    """Facts as far as they are known; what is not is said to be unknown."""
    run, model = reading.run, reading.run.model
    found = _found(reading.events, clock)
    shown = {row.label for row in found}
    calibrated = {True: "yes", False: "no", None: NOT_SAID}[run.is_calibrated]
    runtime = run.runtime
    return FactsPanel(
        headline=_headline(reading.events),
        found=found,
        absent=tuple(label for label in FINDINGS if label not in shown),
        study=_study(reading, clock),
        model=(
            Fact("Backbone", (model and model.backbone) or NOT_SAID),
            Fact("Identified by", (model and model.hash and model.hash[:16]) or NOT_SAID),
            Fact("Scores calibrated", calibrated),
            *((Fact("Split of the studies", model.split[:16]),) if model and model.split else ()),
        ),
        trained=_listed(model.trained_on if model else {}),
        results=_listed(model.results if model else {}),
        run=(
            Fact("Command", NOT_SAID if run.command is None else without_folders(run.command)),
            Fact("Decoder preset", run.preset or NOT_SAID),
            *((Fact("Runtime", _runtime(runtime.name, runtime.why)),) if runtime else ()),
            *(
                (Fact("Mirrored copies averaged", "yes" if runtime.tta else "no"),)
                if runtime and runtime.tta is not None
                else ()
            ),
            *(Fact(f"Version of {name}", text) for name, text in sorted(run.versions.items())),
        ),
        timings=tuple(
            Fact(name.capitalize(), f"{seconds:.1f} s") for name, seconds in run.timings.items()
        ),
        time_note=_time_note(clock),
        scaling=None if run.scaling is None else _sentence(run.scaling),
    )


def without_folders(command: str) -> str:
    """A command with its files and folders by their last name only: paths may name patients."""
    return " ".join(word.rstrip("/").rsplit("/", 1)[-1] for word in command.split())


def _runtime(name: str | None, why: str | None) -> str:
    said = RUNTIMES.get(name or "", name or NOT_SAID)
    return f"{said} ({why})" if why else said


def _study(reading: Reading, clock: Clock) -> tuple[Fact, ...]:
    axis = clock.axis
    first, last = int(axis.frames[0]), int(axis.frames[-1])
    lasted = clock.lasting(first, clock.end) if clock.known else "not known"
    pace = NOT_SAID
    if clock.rate is not None:
        pace = f"{clock.rate:g} a second"
        if note := reading.run.rate_note:
            pace = f"{clock.rate:g} a second ({note})"
    elif clock.times is not None:
        pace = "as the study states them"
    return (
        Fact("Study", reading.study),
        Fact(f"{clock.word.capitalize()}s scored", f"{len(axis):,}"),
        Fact(
            "Numbered",
            f"{first:,} to {last:,}" + (f", every {axis.step}th" if axis.step > 1 else ""),
        ),
        Fact("Duration", lasted),
        Fact("Frame times", pace),
    )


def _time_note(clock: Clock) -> str:
    if not clock.known:
        return (
            f"The frame rate of this study is not known, so positions and durations are counted in "
            f"{clock.word}s."
        )
    if clock.assumed:
        rate = "rate" if clock.rate is None else f"rate of {clock.rate:g} frames a second"
        return f"Times rest on an assumed {rate}; {clock.word} numbers are exact."
    return "Times count from the first frame of the study."


def _found(events: Sequence[DecodedEvent], clock: Clock) -> tuple[FoundRow, ...]:
    rows = []
    for label in (*FINDINGS, *LANDMARKS):
        mine = [(event, number) for number, event in enumerate(events) if event.label == label]
        if mine:
            first, number = min(mine, key=lambda pair: pair[0].start)
            known = [event.score for event, _ in mine if event.score is not None]
            where = [r for r in REGIONS if any(event.region == r for event, _ in mine)]
            rows.append(
                FoundRow(
                    label,
                    COLUMN[label],
                    len(mine),
                    max(known, default=None),
                    clock.at(first.start),
                    number,
                    ", ".join(where),
                )
            )
    return tuple(rows)


def _headline(events: Sequence[DecodedEvent]) -> str:
    """One sentence for somebody in a hurry."""
    findings = [event for event in events if event.label in FINDINGS]
    regions = [r for r in REGIONS if any(event.label == r for event in events)]
    if not events:
        return "The model reports nothing in this study: no region, no landmark, no finding."
    if not findings:
        seen = (
            f"{counted(len(regions), 'region')} recognised" if regions else "No region recognised"
        )
        return f"{seen}, and no finding reported."
    kinds = len({event.label for event in findings})
    what = counted(len(findings), "possible finding")
    kind = "one kind" if kinds == 1 else f"{kinds} kinds"
    where = f" {counted(len(regions), 'region')} recognised." if regions else ""
    return f"{what} of {kind}, to be checked by a physician.{where}"


def _listed(table: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Whatever a model says about itself, as text; nested tables are flattened one level."""
    facts: list[Fact] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            facts += [Fact(_words(f"{name}: {inner}"), _value(v)) for inner, v in value.items()]
        else:
            facts.append(Fact(_words(name), _value(value)))
    return tuple(facts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value)
    return NOT_SAID if value is None else str(value)


MOST_LISTED = 24


@dataclass(frozen=True)
class Part:
    """A share of the study's frames."""

    name: str
    count: int
    share: float
    kind: str  # for its colour: 'read', 'redundant', 'unreadable'


@dataclass(frozen=True)
class CompletenessPanel:
    """Frames of the study, and what became of them."""

    total: int
    parts: tuple[Part, ...]
    unreadable_known: bool
    redundant_known: bool
    reasons: tuple[tuple[str, int], ...]
    listed: tuple[int, ...]  # the first unreadable frames
    more: int  # unreadable frames beyond these
    gaps: int
    gap_frames: int
    longest_gap: str | None
    stored: str | None  # how frames were stored, when not every one was
    notes: tuple[str, ...]  # oddities of the study's files
    word: str


def completeness_panel(clock: Clock, run: RunRecord, gaps: Sequence[Gap] = ()) -> CompletenessPanel:
    """Frames read, unreadable, skipped as redundant, and missing from the numbering."""
    axis = clock.axis
    total = max(len(axis), run.rows or 0)  # unreadable frames have no row of scores
    bad = min(run.unreadable.count, total) if run.unreadable else 0
    same = min(run.redundant.count, total - bad) if run.redundant else 0
    parts = [Part("looked at one by one", total - bad - same, (total - bad - same) / total, "read")]
    if run.redundant is not None:
        parts.append(Part("taken from an almost equal neighbour", same, same / total, "redundant"))
    if run.unreadable is not None:
        parts.append(Part("could not be read", bad, bad / total, "unreadable"))
    frames = run.unreadable.frames if run.unreadable else ()
    reasons = sorted(run.unreadable.reasons.items(), key=lambda r: -r[1]) if run.unreadable else []
    holes = [(stop - start) for start, stop in gaps]
    stored = None
    if axis.step > 1:
        stored = f"one of every {axis.step} frames is stored"
    return CompletenessPanel(
        total=total,
        parts=tuple(parts),
        unreadable_known=run.unreadable is not None,
        redundant_known=run.redundant is not None,
        reasons=tuple(reasons),
        listed=frames[:MOST_LISTED],
        more=max(0, bad - len(frames[:MOST_LISTED])),
        gaps=len(holes),
        gap_frames=sum(holes),
        longest_gap=counted(max(holes), clock.word) if holes else None,
        stored=stored,
        notes=run.notes,
        word=clock.word,
    )
