"""The summary at the top of the page, the completeness of the study, and the facts at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from enteron.decoding.events import DecodedEvent
from enteron.folders.reading import CombinationFacts, CombinedMember, Reading, RunRecord
from enteron.folders.trust import drawn_only_labels, learnt_from, other_kind, unlike_study
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.report.clock import Clock, counted
from enteron.types import Gap

# ---- the summary


@dataclass(frozen=True)
class ReportedLabel:
    """One finding or landmark of the summary's table."""

    label: str
    column: int
    count: int
    highest: float | None  # confidence
    first: str  # frame and time of its first event
    first_number: int
    regions: str
    drawn_only: bool  # whether the model knows it from drawings only


@dataclass(frozen=True)
class SummaryPanel:
    """What somebody in a hurry reads."""

    headline: str
    reported: tuple[ReportedLabel, ...]
    not_found: tuple[str, ...]  # findings without an event
    silenced: tuple[str, ...]  # findings that the decoder never reports with these settings
    unproven: tuple[tuple[str, str], ...]  # labels that it was never shown to recognise, and why
    learnt_from: str | None  # a sentence
    unlike: str | None  # a sentence, where the study looks unlike all that the model knows
    other_kind: str | None  # a sentence, where it looks like what taught no findings
    any_drawn_only: bool
    thresholds_known: bool  # so that the two can be told apart
    time_note: str


def summary_panel(events: Sequence[DecodedEvent], clock: Clock, run: RunRecord) -> SummaryPanel:
    """Findings first, then landmarks; regions are the subject of the transit panel."""
    drawn_only = drawn_only_labels(run.model)
    reported = tuple(
        row
        for label in (*FINDINGS, *LANDMARKS)
        if (row := _reported(label, events, clock, label in drawn_only))
    )
    unproven = {} if run.model is None else run.model.unproven
    absent = [label for label in FINDINGS if label not in {row.label for row in reported}]
    # A label whose threshold is None is never emitted (decision 21).
    silenced = [label for label in absent if run.thresholds.get(label, 0.0) is None]
    silent = {*silenced, *(label for label in absent if label in unproven)}
    return SummaryPanel(
        headline=_headline(events),
        reported=reported,
        not_found=tuple(label for label in absent if label not in silent),
        silenced=tuple(label for label in silenced if label not in unproven),
        unproven=_by_reason({label: unproven[label] for label in absent if label in unproven}),
        learnt_from=learnt_from(run.model),
        unlike=unlike_study(run),
        other_kind=other_kind(run),
        any_drawn_only=any(event.label in drawn_only for event in events),
        thresholds_known=bool(run.thresholds),
        time_note=_time_note(clock),
    )


def _by_reason(unproven: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Labels with a reason in common, and the reason."""
    return tuple(
        (", ".join(label for label in unproven if unproven[label] == reason), reason)
        for reason in dict.fromkeys(unproven.values())
    )


def _headline(events: Sequence[DecodedEvent]) -> str:
    findings = [event for event in events if event.label in FINDINGS]
    regions = {event.label for event in events if event.label in REGIONS}
    recognised = f"{counted(len(regions), 'region')} recognised"
    if not events:
        return "The model reports nothing in this study: no region, no landmark, no finding."
    if not findings:
        return f"{recognised if regions else 'No region recognised'}, and no finding reported."
    kinds = len({event.label for event in findings})
    kind = "one kind" if kinds == 1 else f"{kinds} kinds"
    headline = (
        f"{counted(len(findings), 'possible finding')} of {kind}, to be checked by a physician."
    )
    return f"{headline} {recognised}." if regions else headline


def _reported(
    label: str, events: Sequence[DecodedEvent], clock: Clock, drawn_only: bool
) -> ReportedLabel | None:
    """The row of a label; None where it has no event."""
    numbered = [(number, event) for number, event in enumerate(events) if event.label == label]
    if not numbered:
        return None
    number, first = min(numbered, key=lambda pair: pair[1].start)
    scores = [event.score for _, event in numbered if event.score is not None]
    regions = {event.region for _, event in numbered}
    return ReportedLabel(
        label,
        COLUMN[label],
        count=len(numbered),
        highest=max(scores, default=None),
        first=clock.at(first.start),
        first_number=number,
        regions=", ".join(region for region in REGIONS if region in regions),
        drawn_only=drawn_only,
    )


def _time_note(clock: Clock) -> str:
    if not clock.has_times:
        return (
            f"The frame rate of this study is not known, so positions and durations are counted in "
            f"{clock.word}s."
        )
    if clock.rate_assumed:
        rate = "rate" if clock.rate is None else f"rate of {clock.rate:g} frames a second"
        return f"Times rest on an assumed {rate}; {clock.word} numbers are exact."
    return "Times count from the first frame of the study."


# ---- completeness

MOST_LISTED: Final = 24  # unreadable frames that are listed by number


@dataclass(frozen=True)
class Part:
    """A share of the study's frames."""

    name: str
    count: int
    share: float
    kind: str  # selects the colour: 'read', 'redundant' (also: not looked at) or 'unreadable'


@dataclass(frozen=True)
class CompletenessPanel:
    """Frames of the study, and what became of them."""

    total: int
    parts: tuple[Part, ...]
    unreadable: int | None  # None where this was not recorded
    reasons: tuple[tuple[str, int], ...]  # why frames were unreadable, the commonest first
    listed: tuple[int, ...]  # the first unreadable frames
    more: int  # unreadable frames beyond these
    gaps: int
    gap_frames: int
    longest_gap: str | None
    stored: str | None  # how frames were stored, if not every one was
    notes: tuple[str, ...]  # oddities of the study's files
    missing: str | None  # a sentence, where the recording is cut off
    coarse: str | None  # a sentence, where not every frame was looked at
    word: str


def completeness_panel(clock: Clock, run: RunRecord, gaps: Sequence[Gap] = ()) -> CompletenessPanel:
    """Frames analysed, unreadable, skipped as redundant, and missing from the numbering."""
    step = clock.axis.step
    total = max(len(clock.axis), run.rows or 0)  # unreadable frames have no row of scores
    unreadable = min(run.unreadable.count, total) if run.unreadable else 0
    redundant = min(run.redundant.count, total - unreadable) if run.redundant else 0
    skipped = min(run.coarse.skipped, total - unreadable - redundant) if run.coarse else 0
    analysed = total - unreadable - redundant - skipped
    parts = [Part("analysed one by one", analysed, analysed / total, "read")]
    if run.redundant is not None:
        name = f"almost identical to an earlier {clock.word}, whose result was used"
        parts.append(Part(name, redundant, redundant / total, "redundant"))
    if run.coarse is not None:
        name = f"not looked at: the result of the nearest {clock.word} that was is used"
        parts.append(Part(name, skipped, skipped / total, "redundant"))
    if run.unreadable is not None:
        parts.append(Part("could not be read", unreadable, unreadable / total, "unreadable"))
    listed = run.unreadable.frames[:MOST_LISTED] if run.unreadable else ()
    reasons = run.unreadable.reasons if run.unreadable else {}
    lengths = [stop - start for start, stop in gaps]
    return CompletenessPanel(
        total=total,
        parts=tuple(parts),
        unreadable=None if run.unreadable is None else unreadable,
        reasons=tuple(sorted(reasons.items(), key=lambda reason: -reason[1])),
        listed=listed,
        more=max(0, unreadable - len(listed)),
        gaps=len(lengths),
        gap_frames=sum(lengths),
        longest_gap=counted(max(lengths), clock.word) if lengths else None,
        stored=f"one of every {step} frames is stored" if step > 1 else None,
        notes=(*run.notes, *(f"not read, beside the frames: {text}" for text in run.ignored)),
        missing=None if run.missing is None else _capitalised(run.missing.sentence) + ".",
        coarse=None if run.coarse is None else _capitalised(run.coarse.sentence) + ".",
        word=clock.word,
    )


# ---- facts

NOT_RECORDED: Final = "not recorded"

ENCODERS: Final = {"lite": "EfficientNet-Lite0 (lite)", "biomedclip": "BiomedCLIP"}
RUNTIMES: Final = {"onnx": "ONNX Runtime", "torch": "PyTorch", "openvino": "OpenVINO"}
VIEWS: Final = {
    "none": "no",
    "flip": "yes",
    "flips": "yes, with three mirrored copies",
    "d4": "yes, with seven mirrored and turned copies",
}
STAGES: Final = {
    "read": "Reading the scores",
    "embed": "Encoding the frames",
    "score": "Scoring the frames",
    "decode": "Finding events",
    "pictures": "Saving pictures",
    "report": "Writing this page",
}
TRAINING_NAMES: Final = {
    "regime": "What was trained",
    "epochs": "Passes through the data",
    "best epoch": "Best pass, which was kept",
    "seed": "Random seed",
}
REGIMES: Final = {
    "frozen": "the final layers; the image encoder was kept as it was",
    "full": "the whole network",
}
RESULT_NAMES: Final = {
    "macro ap": "Average precision, mean of all labels",
    "macro ap present": "Average precision, mean of labels that occur",
    "findings ap": "Average precision, mean of findings",
    "macro f1": "F1 score, mean of all labels",
    "region accuracy": "Share of frames in the right region",
}


@dataclass(frozen=True)
class Fact:
    """A name and its value."""

    name: str
    value: str


@dataclass(frozen=True)
class FactGroup:
    """Facts under one heading; long lists are folded behind a sentence that sums them up."""

    title: str
    facts: tuple[Fact, ...]
    sentence: str = ""
    folded: bool = False


@dataclass(frozen=True)
class FactsPanel:
    """Facts of the study, the model and the run."""

    groups: tuple[FactGroup, ...]
    scaling: str | None


def facts_panel(reading: Reading, clock: Clock) -> FactsPanel:
    """Facts as far as they are recorded; missing ones are marked as such."""
    run = reading.run
    groups = (
        FactGroup("Study", _study_facts(reading, clock)),
        FactGroup("Model", _model_facts(run)),
        FactGroup("Processing", _processing_facts(run)),
        _training_group(run.model.trained_on if run.model else {}),
        _results_group(run.model.results if run.model else {}),
        FactGroup(
            "Software",
            tuple(Fact(name, version) for name, version in sorted(run.versions.items())),
            f"enteron {run.versions['enteron']}" if "enteron" in run.versions else "",
            folded=True,
        ),
        FactGroup(
            "Time taken",
            tuple(
                Fact(STAGES.get(stage, _capitalised(stage)), _seconds(seconds))
                for stage, seconds in run.timings.items()
            ),
            f"{_seconds(sum(run.timings.values()))} in all",
            folded=True,
        ),
    )
    return FactsPanel(
        groups=tuple(group for group in groups if group.facts or group.title == "Training"),
        scaling=None if run.scaling is None else _capitalised(run.scaling.rstrip(".")) + ".",
    )


def _study_facts(reading: Reading, clock: Clock) -> tuple[Fact, ...]:
    axis = clock.axis
    first, last = int(axis.frames[0]), int(axis.frames[-1])
    numbers = f"{first:,} to {last:,}"
    if axis.step > 1:
        numbers += f", in steps of {axis.step}"
    times = NOT_RECORDED
    if clock.times is not None:
        times = "as the study states them"
    elif clock.rate is not None:
        times = f"{clock.rate:g} per second"
        if note := reading.run.rate_note:
            times += f" ({note})"
    return (
        Fact("Study", reading.study),
        Fact(f"{clock.word.capitalize()}s scored", f"{len(axis):,}"),
        Fact(f"{clock.word.capitalize()} numbers", numbers),
        Fact("Duration", clock.duration(first, clock.end) if clock.has_times else "not known"),
        Fact("Frame times", times),
    )


def _model_facts(run: RunRecord) -> tuple[Fact, ...]:
    model = run.model
    backbone = model.backbone if model else None
    fingerprint = model.hash[:16] if model and model.hash else NOT_RECORDED
    calibrated = {True: "yes", False: "no", None: NOT_RECORDED}[run.is_calibrated]
    if run.combination is not None:
        return (
            Fact("Scores", _combined(run.combination)),
            *(
                Fact(f"Model {number}", _member(member))
                for number, member in enumerate(run.combination.members, 1)
            ),
            Fact("Fingerprint", fingerprint),
            Fact("Confidence calibrated", calibrated),
        )
    facts = [
        Fact("Image encoder", ENCODERS.get(backbone, backbone) if backbone else NOT_RECORDED),
        Fact("Fingerprint", fingerprint),
        Fact("Confidence calibrated", calibrated),
    ]
    frames = run.frame_calibration
    if frames is not None and frames.context is not None:
        facts.append(
            Fact(
                "Scores include those of the minutes around a frame",
                ", ".join(frames.context.used_for),
            )
        )
    if run.event_context is not None:
        facts.append(Fact("Findings are judged by", "their scores and those of the minutes around"))
    if model and model.split:
        facts.append(
            Fact("Fingerprint of the split into training and validation", model.split[:16])
        )
    return tuple(facts)


def _combined(combination: CombinationFacts) -> str:
    scores = "calibrated" if combination.averaged == "calibrated" else "raw"
    kind = "probabilities" if combination.mean == "probability" else "log-odds"
    return f"mean of the {scores} {kind} of {len(combination.members)} models"


def _member(member: CombinedMember) -> str:
    encoder = ENCODERS.get(member.backbone or "", member.backbone or "encoder not recorded")
    fingerprint = member.model[:16] if member.model else NOT_RECORDED
    return f"{encoder}, fingerprint {fingerprint}, weight {member.weight:.3g}"


def _training_group(trained_on: Mapping[str, Any]) -> FactGroup:
    if not trained_on:
        return FactGroup("Training", (), "What the model was trained on was not recorded.")
    trained = _amount(trained_on, "studies", "frames")
    checked = _amount(trained_on, "validation studies", "validation frames")
    sentence = f"Trained on {trained}" if trained else ""
    if trained and checked:
        sentence += f", checked on {checked} that it was not trained on"
    named = {TRAINING_NAMES.get(name, name): value for name, value in trained_on.items()}
    regime = trained_on.get("regime")
    if isinstance(regime, str):
        named[TRAINING_NAMES["regime"]] = REGIMES.get(regime, regime)
    return FactGroup("Training", _listed(named), f"{sentence}." if sentence else "", folded=True)


def _amount(table: Mapping[str, Any], studies: str, frames: str) -> str:
    """'9 studies (3,600 frames)', or '' where it is not recorded."""
    count, size = table.get(studies), table.get(frames)
    if not isinstance(count, int):
        return ""
    text = f"{count:,} {'study' if count == 1 else 'studies'}"
    return f"{text} ({counted(size, 'frame')})" if isinstance(size, int) else text


def _results_group(results: Mapping[str, Any]) -> FactGroup:
    named = {
        RESULT_NAMES.get(name.replace("_", " "), name): value for name, value in results.items()
    }
    return FactGroup(
        "Results of the model",
        _listed(named),
        "Frame by frame, on annotated studies that it was not trained on. 1 is best.",
        folded=True,
    )


def _processing_facts(run: RunRecord) -> tuple[Fact, ...]:
    facts = [
        Fact("Command", NOT_RECORDED if run.command is None else without_folders(run.command)),
        Fact("Settings for finding events", run.preset or NOT_RECORDED),
    ]
    if runtime := run.runtime:
        name = RUNTIMES.get(runtime.name or "", runtime.name or NOT_RECORDED)
        facts.append(Fact("Computed with", f"{name} ({runtime.why})" if runtime.why else name))
        if runtime.views is not None:
            averaged = VIEWS[runtime.views]
            facts.append(Fact("Averaged with mirrored copies of the frames", averaged))
        if runtime.neighbour_step is not None:
            step = runtime.neighbour_step
            facts.append(
                Fact("Frames compared with", f"those {step} and {2 * step} stored frames before")
            )
    return tuple(facts)


def without_folders(command: str) -> str:
    """A command with its files and folders by their last name only: paths may name patients."""
    return " ".join(word.rstrip("/").rsplit("/", 1)[-1] for word in command.split())


def _listed(table: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Whatever a model states about itself, as text; nested tables are flattened one level."""
    facts: list[Fact] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            facts += [Fact(_title(f"{name}: {key}"), _text(item)) for key, item in value.items()]
        else:
            facts.append(Fact(_title(name), _text(value)))
    return tuple(facts)


def _title(name: str) -> str:
    return _capitalised(name.replace("_", " "))


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return NOT_RECORDED if value is None else str(value)


def _seconds(seconds: float) -> str:
    return "less than 0.1 s" if seconds < 0.1 else f"{seconds:.1f} s"
