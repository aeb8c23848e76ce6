"""Cards: one for every event, with the picture in which the model was surest."""

from collections.abc import Sequence
from dataclasses import dataclass

from enteron.decode.events import DecodedEvent
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.report.clock import Clock, counted
from enteron.report.pictures import Album, Chosen, Picture


@dataclass(frozen=True)
class Card:
    """What the page tells about one event."""

    number: int
    label: str
    column: int
    start: int
    stop: int
    score: float | None
    region: str | None
    picture: Picture | None
    picture_note: str | None  # why there is no picture, or why it is not the one of the maximum
    neighbours: tuple[Picture, ...]
    where: str  # 'frames 1,200 to 1,260'
    when: str | None  # '1:02:51', where time is known
    lasted: str
    best_at: str | None  # frame and time of the picture


@dataclass(frozen=True)
class Choice:
    """A label to filter by."""

    label: str
    column: int
    count: int


@dataclass(frozen=True)
class GalleryPanel:
    """Cards of landmarks and findings, and those of the regions with their first images."""

    cards: tuple[Card, ...]
    stays: tuple[Card, ...]
    choices: tuple[Choice, ...]
    pictured: int  # cards of landmarks and findings with a picture
    masked: bool
    left_out: int
    any_pictures: bool
    unreadable: int


def gallery_panel(
    events: Sequence[DecodedEvent], clock: Clock, chosen: Chosen, album: Album
) -> GalleryPanel:
    """Every event exactly once: regions among the stays, the others among the cards."""
    cards: list[Card] = []
    stays: list[Card] = []
    for number, event in enumerate(events):
        if event.label in REGIONS:
            stays.append(_stay(number, event, clock, chosen, album))
        else:
            cards.append(_card(number, event, clock, chosen, album))
    counts = [(label, sum(card.label == label for card in cards)) for label in LABELS]
    return GalleryPanel(
        cards=tuple(sorted(cards, key=lambda card: (-(card.score or 0.0), card.start))),
        stays=tuple(sorted(stays, key=lambda card: card.start)),
        choices=tuple(Choice(label, COLUMN[label], n) for label, n in counts if n),
        pictured=sum(card.picture is not None for card in cards),
        masked=album.masked,
        left_out=album.left_out,
        any_pictures=bool(album.pictures),
        unreadable=len(album.unreadable),
    )


def _card(number: int, event: DecodedEvent, clock: Clock, chosen: Chosen, album: Album) -> Card:
    best = chosen.best.get(number)
    around = chosen.neighbours.get(number, ())
    picture = None if best is None else album.first_of((best, *around))
    note = None
    if best is None:
        note = "No picture: only the surest events have one."
    elif best in album.unreadable:
        note = f"The {clock.word} of highest probability, {best:,}, cannot be read."
    elif picture is None:
        note = "No picture was saved."
    shown = None if picture is None else picture.frame
    wanted = set(around) if best is None else {best, *around}
    others = sorted(wanted - {shown})
    return _made(number, event, clock, picture, note, album.all_of(others))


def _stay(number: int, event: DecodedEvent, clock: Clock, chosen: Chosen, album: Album) -> Card:
    firsts = chosen.firsts.get(number, ())
    pictures = album.all_of(firsts)
    note = None
    if firsts and firsts[0] in album.unreadable:
        note = f"The first {clock.word}, {firsts[0]:,}, cannot be read."
    elif not pictures:
        note = "No picture was saved."
    return _made(number, event, clock, pictures[0] if pictures else None, note, pictures[1:])


def _made(
    number: int,
    event: DecodedEvent,
    clock: Clock,
    picture: Picture | None,
    note: str | None,
    neighbours: tuple[Picture, ...],
) -> Card:
    last = event.stop - 1
    where = f"{clock.word}s {event.start:,} to {last:,}"
    if last == event.start:
        where = f"{clock.word} {event.start:,}"
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
        where=where,
        when=clock.stamp(event.start),
        lasted=clock.lasting(event.start, event.stop)
        if clock.known
        else counted(len(event), clock.word),
        best_at=None if picture is None else clock.at(picture.frame),
    )
