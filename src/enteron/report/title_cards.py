"""Frames that do not show the gut: title cards with a name, start screens, blue screens, text.

Recorders and editing programs put such frames before, between and after the frames of a capsule.
They are never shown. A frame is judged by what lies inside the field of view: tissue is warm in
colour, nowhere quite flat, and has no lines of letters; and it leaves the black border black.
The limits were chosen on real frames and on drawn cards: `enteron bench title_cards` measures both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.study.field_of_view import DARK, Mask, field_of_view
from enteron.study.study import RGB

FLAT: Final = 0.60  # share of pixels that have one and the same colour, to within 6 levels
SMOOTH: Final = 0.50  # share of pixels that hardly differ from their neighbours
COLD: Final = 0.15  # share of lit pixels that have more blue than red
BORDER: Final = 0.04  # share of the border, black in nearly all frames, that is lit
LETTERS: Final = 9  # letters in one line
FEW_LETTERS: Final = 6  # in a frame that is flat, smooth or cold by half of the limits
LIT: Final = 40  # grey level of the brightest channel
STROKE: Final = 50  # grey levels by which a letter exceeds its surroundings


@dataclass(frozen=True)
class Look:
    """What tells a title card from a frame of the gut; shares of the field of view."""

    flat: float
    smooth: float
    cold: float
    border: float  # share of the black border
    letters: int  # in the longest line of text

    @property
    def is_title_card(self) -> bool:
        """Whether a frame with this look may hold text about a patient, and is not shown."""
        if self.flat > FLAT or self.smooth > SMOOTH or self.cold > COLD or self.border > BORDER:
            return True
        half = self.flat > FLAT / 2 or self.smooth > SMOOTH / 2 or self.cold > COLD / 2
        return self.letters >= (FEW_LETTERS if half else LETTERS)


def look_of(frame: RGB, keep: Mask, border: Mask, *, letters: bool = True) -> Look:
    """Measure one frame; `border` are the pixels that are black in the frames of its study.

    Without `letters` none are looked for, which takes a fiftieth of the time.
    """
    inside = frame[keep].astype(np.int16)
    if not len(inside):
        return Look(1.0, 1.0, 0.0, 0.0, 0)
    lit = inside[inside.max(axis=1) > LIT]
    cold = float((lit[:, 2] > lit[:, 0] + 8).mean()) if len(lit) > 0.02 * len(inside) else 0.0
    outside = frame[border]
    bright = float((outside.max(axis=1) > 2 * DARK).mean()) if border.mean() > 0.005 else 0.0
    found = _letters(frame, keep) if letters else 0
    return Look(_flat(inside), _smooth(frame, keep), cold, bright, found)


def black_border(frames: NDArray[np.uint8], keep: Mask) -> Mask:
    """Pixels outside the field of view that are black in nearly all of (n, h, w, 3) frames."""
    lit = (frames.max(axis=3) > DARK).mean(axis=0)
    near = cv2.dilate(keep.astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
    return ~near & (lit < 0.1)


@dataclass(frozen=True)
class View:
    """What the frames of one size show of the gut, and where they are black."""

    keep: Mask
    border: Mask

    def shows(self, frame: RGB) -> bool:
        """Whether a frame may be shown: it looks like the gut, within the field of view."""
        return not look_of(frame, self.keep, self.border).is_title_card

    def is_plain(self, frame: RGB) -> bool:
        """Whether a frame is a title card by its colours alone; quick enough for every frame."""
        return look_of(frame, self.keep, self.border, letters=False).is_title_card


def measure_view(frames: Sequence[RGB]) -> View | None:
    """Measure frames of one size from all over a study; None when none of them shows the gut.

    Title cards among them are left out first: a single white one would make the whole frame part
    of the field of view, and so keep what recorders write into its corners.
    """
    if not frames:
        return None
    height, width = frames[0].shape[:2]
    disc = np.zeros((height, width), np.uint8)
    cv2.circle(disc, (width // 2, height // 2), round(0.38 * min(height, width)), 1, -1)
    middle, nowhere = disc > 0, np.zeros((height, width), np.bool_)
    shown = [f for f in frames if not look_of(f, middle, nowhere).is_title_card]
    if not shown:
        return None
    keep = field_of_view(shown)
    return View(keep, black_border(np.stack(shown), keep))


def _flat(inside: NDArray[np.int16]) -> float:
    """Share of pixels of the commonest colour."""
    coarse = inside.astype(np.int64) >> 3
    keys = coarse[:, 0] << 12 | coarse[:, 1] << 6 | coarse[:, 2]
    colours, counts = np.unique(keys, return_counts=True)
    colour = np.median(inside[keys == colours[counts.argmax()]], axis=0)
    return float((np.abs(inside - colour).max(axis=1) <= 6).mean())


def _smooth(frame: RGB, keep: Mask) -> float:
    """Share of pixels that differ by at most one level from the pixels to the left and above."""
    blurred = cv2.GaussianBlur(frame, (3, 3), 0).astype(np.int16)
    across = np.abs(np.diff(blurred, axis=1, prepend=blurred[:, :1])).max(axis=2)
    down = np.abs(np.diff(blurred, axis=0, prepend=blurred[:1])).max(axis=2)
    return float(((across + down)[keep] <= 1).mean())


def _letters(frame: RGB, keep: Mask) -> int:
    """Letters in the longest line of text: strokes of one height, side by side on one line."""
    # Letters of five pixels, the smallest that can be read, are ten pixels high in this size.
    large = cv2.resize(frame, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    inside = cv2.resize(keep.astype(np.uint8), large.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    side = min(large.shape[:2])
    return max(
        _longest_line(_strokes(tone, round(width * side) | 1, inside), side)
        for tone in _tones(np.asarray(large, np.uint8))
        for width in (0.03, 0.07)  # of the strokes' surroundings: thin and bold letters
    )


def _tones(frame: RGB) -> Iterator[NDArray[np.uint8]]:
    """Grey levels in which letters of some colour are lighter than tissue."""
    red, green, blue = cv2.split(frame)
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    yield np.asarray(grey, np.uint8)  # yellow
    yield np.asarray(blue, np.uint8)  # white: tissue has little blue
    yield np.asarray(255 - grey, np.uint8)  # black
    yield np.asarray(cv2.subtract(cv2.max(green, blue), red), np.uint8)  # green, cyan, blue


def _strokes(tone: NDArray[np.uint8], width: int, inside: NDArray[Any]) -> NDArray[np.int32]:
    """Connected strokes inside the field of view: left, top, width, height and area of each."""
    square = np.ones((width, width), np.uint8)  # separable, and so much faster than a disc
    strokes = cv2.morphologyEx(tone, cv2.MORPH_TOPHAT, square) > STROKE
    marked = (strokes & (inside > 0)).astype(np.uint8)
    return np.asarray(cv2.connectedComponentsWithStats(marked)[2][1:], np.int32)


def _longest_line(parts: NDArray[np.int32], side: int) -> int:
    """Most parts (left, top, width, height, area) that stand side by side like letters."""
    _, _, widths, heights, areas = parts.T
    boxes = widths * heights
    like_letters = (
        (heights >= 0.016 * side)
        & (heights <= 0.14 * side)
        & (widths <= 4 * heights)
        & (areas >= 0.12 * boxes)
        & (areas <= 0.95 * boxes)
    )
    letters = parts[like_letters]
    if len(letters) < FEW_LETTERS:
        return len(letters)
    letters = letters[np.argsort(letters[:, 0], kind="stable")]
    lefts, tops, heights = letters[:, 0], letters[:, 1], letters[:, 3]
    rights, bottoms = lefts + letters[:, 2], tops + heights
    lengths = np.ones(len(letters), dtype=np.int64)  # of the longest line that ends with a letter
    for number in range(1, len(letters)):
        taller = np.maximum(heights[:number], heights[number])
        similar = np.minimum(heights[:number], heights[number]) >= 0.62 * taller
        on_line = (np.abs(bottoms[:number] - bottoms[number]) <= 0.22 * taller) | (
            np.abs(tops[:number] - tops[number]) <= 0.18 * taller
        )
        gaps = lefts[number] - rights[:number]
        beside = (gaps >= -0.3 * taller) & (gaps <= 1.2 * taller)
        before = np.flatnonzero(similar & on_line & beside)
        if before.size:
            lengths[number] = 1 + lengths[before].max()
    return int(lengths.max())
