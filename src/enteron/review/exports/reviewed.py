"""A reviewed study as exports take it: the state, what follows from it, and its key pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from enteron.errors import EnteronError
from enteron.files import PICTURE_LIMIT, read_bytes
from enteron.folders.reading import Reading
from enteron.labels import COLUMN
from enteron.report.clock import Clock
from enteron.report.pictures import INDEX, PICTURES, picture_name, read_index
from enteron.review.record import Head
from enteron.review.state import ReviewEvent, ReviewState
from enteron.review.store import ReviewStore
from enteron.review.summary import Finding, Summary, summarise


@dataclass(frozen=True)
class Reviewed:
    """What an export holds, and nothing of the patient or of this machine."""

    state: ReviewState
    reading: Reading
    head: Head  # of the record when this was exported

    @property
    def study(self) -> str:
        return self.state.study

    @cached_property
    def clock(self) -> Clock:
        return Clock.of(self.reading.scores, self.reading.run)

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.state, self.clock)

    @property
    def is_signed(self) -> bool:
        return self.state.status == "signed"

    @property
    def time(self) -> str:
        """When it was signed, or when something was last decided or noted."""
        if self.is_signed:
            return self.state.signatures[-1].time
        return self.state.last_time or ""

    @cached_property
    def stored_pictures(self) -> tuple[int, ...]:
        """Frames whose pictures lie in the reading folder, ascending."""
        folder = self.reading.folder / PICTURES
        return read_index(folder).frames if (folder / INDEX).is_file() else ()

    def key_frame(self, event: ReviewEvent | Finding) -> int | None:
        """The stored picture of an event that shows it best, by the model; None without one."""
        inside = [f for f in self.stored_pictures if event.start <= f < event.stop]
        if not inside:
            return None
        scores = self.reading.scores
        rows = np.searchsorted(scores.axis.frames, inside).clip(max=len(scores.axis) - 1)
        return inside[int(scores.values[rows, COLUMN[event.label]].argmax())]

    def picture(self, frame: int) -> bytes:
        """The JPEG of a stored picture."""
        path = self.reading.folder / PICTURES / picture_name(frame)
        return read_bytes(path, PICTURE_LIMIT, "write the pictures again with `enteron report`")


def reviewed(
    store: ReviewStore, reading: Reading, *, draft: bool = False, version: int | None = None
) -> Reviewed:
    """The last signed version of a study, another one, or what stands now (`draft`).

    Without a signature it is what stands now. A study that nobody reviewed is refused.
    """
    head = store.head()
    current = store.state(reading.study)
    if current.reading is None:
        raise EnteronError(
            f"study {reading.study} was not reviewed", "review it first with `enteron serve`"
        )
    if version is not None or (current.signatures and not draft):
        current = store.signed(reading.study, version)
    return Reviewed(current, reading, head)


def event_rows_of(events: Sequence[ReviewEvent]) -> list[ReviewEvent]:
    """Events in the order of time, as all tables list them."""
    return sorted(events, key=lambda event: (event.start, event.stop, event.label, event.id))
