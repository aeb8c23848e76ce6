"""The pictures to look at first, and what a promised recall says about them."""

from dataclasses import dataclass

from enteron.folders.suspicious import ListedFrame, Promise, SuspiciousList
from enteron.labels import COLUMN
from enteron.metrics.lesions import ReadingSpeed
from enteron.report.clock import Clock, counted
from enteron.report.pictures import MOST_SUSPICIOUS, Album, Picture

FIRST = 30  # pictures that are shown at once; the others are folded


@dataclass(frozen=True)
class SuspiciousPicture:
    """One picture of the list."""

    rank: int
    frame: int
    label: str
    column: int
    confidence: float
    region: str | None
    event: int | None
    similar: int
    at: str
    picture: Picture | None


@dataclass(frozen=True)
class PromiseNote:
    """A promised recall in words."""

    holds: str  # 'holds', 'does not hold' or 'unknown'; selects the colour
    headline: str
    sentence: str
    basis: str


@dataclass(frozen=True)
class SuspiciousPanel:
    """The beginning of the list."""

    first: tuple[SuspiciousPicture, ...]
    more: tuple[SuspiciousPicture, ...]
    listed: int  # frames in suspicious.json
    calibrated: bool
    by_appearance: bool  # frames that look alike are folded
    weights: str  # of findings, in words; empty: all count the same
    pictured: bool
    promise: PromiseNote | None


def suspicious_panel(
    content: SuspiciousList | None, clock: Clock, album: Album
) -> SuspiciousPanel | None:
    """The first pictures of the list; None where the reading has none."""
    if content is None:
        return None
    shown = [
        _picture(rank, listed, clock, album)
        for rank, listed in enumerate(content.frames[:MOST_SUSPICIOUS], 1)
    ]
    weights = [f"{finding} {weight:g}" for finding, weight in content.weights.items()]
    return SuspiciousPanel(
        first=tuple(shown[:FIRST]),
        more=tuple(shown[FIRST:]),
        listed=len(content.frames),
        calibrated=content.calibrated,
        by_appearance=content.folded_by == "time and appearance",
        weights=", ".join(weights),
        pictured=any(picture.picture is not None for picture in shown),
        promise=None if content.promise is None else promise_note(content.promise),
    )


def _picture(rank: int, listed: ListedFrame, clock: Clock, album: Album) -> SuspiciousPicture:
    return SuspiciousPicture(
        rank,
        listed.frame,
        listed.label,
        COLUMN[listed.label],
        listed.confidence,
        listed.region,
        listed.event,
        listed.similar,
        clock.at(listed.frame),
        album.pictures.get(listed.frame),
    )


def promise_note(promise: Promise) -> PromiseNote:
    """What is promised, whether it holds for this study, and on what it rests."""
    missed = 1 - promise.recall
    minutes = promise.pictures * ReadingSpeed().seconds_per_still / 60
    took = f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
    looked = (
        f"To miss at most {missed:.0%} of the lesions on average, look at the first "
        f"{counted(promise.pictures, 'picture')} of the list ({took} at "
        f"{ReadingSpeed().seconds_per_still:g} s each)."
    )
    headline = {
        "holds": "A recall is promised for this study.",
        "does not hold": "The promised recall does not hold for this study.",
        "unknown": "Whether the promised recall holds for this study cannot be told.",
    }[promise.verdict]
    reason = promise.reason[:1].upper() + promise.reason[1:]
    devices = ", ".join(f"{name} ({count})" for name, count in promise.devices.items())
    basis = f"Fitted on {promise.studies} annotated studies with lesions"
    basis += f"; capsules: {devices}" if devices else "; their capsules were not recorded"
    basis += (
        f"; this study: {promise.device}" if promise.device else "; that of this study is not known"
    )
    if promise.p_value is not None:
        basis += (
            f". Of studies like the fitted ones, about {promise.p_value:.0%} would look at least "
            "as unusual as this one"
        )
    sentence = f"{reason}."
    if promise.verdict != "does not hold":
        sentence = f"{looked} {sentence}"
    sentence += (
        " The promise is an average over studies: a single study may miss more."
        if promise.verdict == "holds"
        else " Do not rely on it: lesions may be missed at any length of the list."
    )
    return PromiseNote(promise.verdict, headline, sentence, basis + ".")
