"""Cards: one for every event, with the picture in which the model was most confident."""

from collections.abc import Sequence
from dataclasses import dataclass

from enteron.decoding.events import DecodedEvent
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.report.clock import Clock
from enteron.report.pictures import Album, Picture, PictureChoice

NOT_SHOWN = "does not look like the gut and is not shown: it may be a title card."


@dataclass(frozen=True)
class Card:
    """What the page shows of one event."""

    number: int
    label: str
    column: int
    start: int
    stop: int
    score: float | None
    region: str | None
    picture: Picture | None
    picture_note: str | None  # why there is no picture, or not the one of highest probability
    neighbours: tuple[Picture, ...]
    frames: str  # 'frames 1,200 to 1,260'
    time: str | None  # '1:02:51', where times are known
    duration: str
    picture_at: str | None  # frame and time of the picture


@dataclass(frozen=True)
class LabelFilter:
    """A label to filter cards by, and how many have it."""

    label: str
    column: int
    count: int


@dataclass(frozen=True)
class GalleryPanel:
    """Cards of landmarks and findings, and those of regions with their first images."""

    cards: tuple[Card, ...]
    region_cards: tuple[Card, ...]
    filters: tuple[LabelFilter, ...]
    pictured: int  # cards of landmarks and findings with a picture
    masked: bool
    any_pictures: bool
    unreadable: int
    withheld: int  # frames that were chosen and are not shown: they do not look like the gut


def gallery_panel(
    events: Sequence[DecodedEvent], clock: Clock, choice: PictureChoice, album: Album
) -> GalleryPanel:
    """Every event exactly once: among the cards, or among the region cards."""
    cards: list[Card] = []
    region_cards: list[Card] = []
    for number, event in enumerate(events):
        if event.label in REGIONS:
            region_cards.append(_region_card(number, event, clock, choice, album))
        else:
            cards.append(_card(number, event, clock, choice, album))
    counts = [(label, sum(card.label == label for card in cards)) for label in LABELS]
    return GalleryPanel(
        cards=tuple(sorted(cards, key=lambda card: (-(card.score or 0.0), card.start))),
        region_cards=tuple(sorted(region_cards, key=lambda card: card.start)),
        filters=tuple(LabelFilter(label, COLUMN[label], count) for label, count in counts if count),
        pictured=sum(card.picture is not None for card in cards),
        masked=album.masked,
        any_pictures=bool(album.pictures),
        unreadable=len(album.unreadable),
        withheld=len(album.withheld),
    )


def _card(
    number: int, event: DecodedEvent, clock: Clock, choice: PictureChoice, album: Album
) -> Card:
    """A landmark or finding: its frame of highest probability, and the frames around it."""
    best = choice.best.get(number)
    neighbours = choice.neighbours.get(number, ())
    frames = neighbours if best is None else (best, *neighbours)
    picture = None if best is None else album.first_of(frames)
    note = None
    if best is None:
        note = "No picture: only the events with the highest confidence have one."
    elif best in album.unreadable:
        note = f"The {clock.word} of highest probability, {best:,}, cannot be read."
    elif best in album.withheld:
        note = f"The {clock.word} of highest probability, {best:,}, {NOT_SHOWN}"
    elif picture is None:
        note = "No picture was saved."
    others = sorted(set(frames) - ({picture.frame} if picture else set()))
    return _make_card(number, event, clock, picture, note, album.all_of(others))


def _region_card(
    number: int, event: DecodedEvent, clock: Clock, choice: PictureChoice, album: Album
) -> Card:
    """A region: its first images."""
    frames = choice.first_frames.get(number, ())
    pictures = album.all_of(frames)
    note = None
    if frames and frames[0] in album.unreadable:
        note = f"The first {clock.word}, {frames[0]:,}, cannot be read."
    elif frames and frames[0] in album.withheld:
        note = f"The first {clock.word}, {frames[0]:,}, {NOT_SHOWN}"
    elif not pictures:
        note = "No picture was saved."
    return _make_card(number, event, clock, pictures[0] if pictures else None, note, pictures[1:])


def _make_card(
    number: int,
    event: DecodedEvent,
    clock: Clock,
    picture: Picture | None,
    note: str | None,
    neighbours: tuple[Picture, ...],
) -> Card:
    last = event.stop - 1
    frames = f"{clock.word}s {event.start:,} to {last:,}"
    if last == event.start:
        frames = f"{clock.word} {event.start:,}"
    return Card(
        number=number,
        label=event.label,
        column=COLUMN[event.label],
        start=event.start,
        stop=event.stop,
        score=event.score,
        region=event.region,
        picture=picture,
        picture_note=note,
        neighbours=neighbours,
        frames=frames,
        time=clock.timestamp(event.start),
        duration=clock.duration(event.start, event.stop),
        picture_at=None if picture is None else clock.at(picture.frame),
    )
