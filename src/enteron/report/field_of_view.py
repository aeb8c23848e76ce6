"""The field of view of a capsule: where its frames show the gut, and where text is to be removed.

Recorders burn time, date, serial numbers and sometimes a patient's name into the frame. Nearly all
of it lies in the black border around the picture, so everything outside the picture is removed.
The picture's outline is measured on frames from all over the study: pixels that are bright in some
frame, belong to something wider than a line of text, and change between frames. All lengths are
shares of the frame's shorter side.
"""

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.study.study import RGB

Mask = NDArray[np.bool_]  # (height, width), True where the gut is shown

DARK: Final = 28  # grey level: JPEG noise of a black border stays below
TEXT_HEIGHT: Final = 0.075  # higher than any line of text that recorders write
RIM: Final = 0.012  # taken off the outline, since resizing smears text and border into each other
ENOUGH_FRAMES: Final = 8  # to distinguish tissue, which moves, from what never changes
STROKE_CONTRAST: Final = 45  # grey levels by which strokes of text exceed their surroundings
STROKE_SHARE: Final = 0.25  # of the frames in which a stroke of text lies at the same pixels
CORNER: Final = (0.40, 0.10)  # width and height of the box that recorders write into


def field_of_view(frames: Sequence[RGB]) -> Mask:
    """What to keep of frames that have one size and come from one study."""
    grey = np.stack([frame.max(axis=2) for frame in frames])
    bright = grey.max(axis=0) > DARK
    if len(frames) < ENOUGH_FRAMES:
        # A few frames do not tell text over tissue from tissue, so all four corners are removed.
        keep = _outline(bright)
        return keep & ~_corners(keep, all_four=True)
    # Panels and logos are bright and the same in every frame. Tissue never stands still so long.
    bright &= ~((grey.std(axis=0) < 3) & (grey.mean(axis=0) > DARK))
    keep = _outline(bright) & ~_text_over_tissue(grey)
    return keep & ~_corners(keep, all_four=False)


def masked(frame: RGB, keep: Mask) -> RGB:
    """The frame, black outside the field of view."""
    return np.where(keep[..., None], frame, np.uint8(0)).astype(np.uint8)


def _side(mask: NDArray[Any]) -> int:
    return min(mask.shape[:2])


def _disc(diameter: float) -> NDArray[np.uint8]:
    width = max(1, round(diameter)) | 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (width, width)), np.uint8)


def _outline(bright: Mask) -> Mask:
    """The convex outline of the largest component that is too wide to be text."""
    side = _side(bright)
    # Without a margin OpenCV takes everything beyond the frame as bright.
    margin = round(TEXT_HEIGHT * side) + 1
    padded = np.pad(bright.astype(np.uint8), margin)
    wide = cv2.morphologyEx(padded, cv2.MORPH_OPEN, _disc(TEXT_HEIGHT * side))
    wide = wide[margin:-margin, margin:-margin]
    count, parts, stats, _ = cv2.connectedComponentsWithStats(np.ascontiguousarray(wide))
    outline = np.zeros(bright.shape, np.uint8)
    if count > 1:
        largest = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
        points = np.argwhere(parts == largest)[:, ::-1].astype(np.int32)
        cv2.fillConvexPoly(outline, cv2.convexHull(points), 1)
    if outline.mean() < 0.15:
        # Too dark to see any border. Every capsule shows its picture within this circle, and
        # no recorder writes into it.
        height, width = bright.shape
        outline[:] = 0
        cv2.circle(outline, (width // 2, height // 2), round(0.47 * side), 1, -1)
    rim = 2 * max(1, round(RIM * side)) + 1
    eroded = cv2.erode(np.pad(outline, 1), np.ones((rim, rim), np.uint8))
    return eroded[1:-1, 1:-1] > 0


def _text_over_tissue(grey: NDArray[np.uint8]) -> Mask:
    """Strokes at the same pixels in many frames: text laid over the tissue itself.

    Highlights on wet tissue are as sharp, but they move.
    """
    side = _side(grey[0])
    stroke = _disc(0.03 * side)
    strokes = np.zeros(grey.shape[1:], np.float64)
    for frame in grey:
        strokes += cv2.morphologyEx(frame, cv2.MORPH_TOPHAT, stroke) > STROKE_CONTRAST
    frequent = (strokes / len(grey) > STROKE_SHARE).astype(np.uint8)
    # Letters are joined to lines of text, with some room around them. Anything narrower than two
    # or three letters is a highlight, seen by a capsule that stood still.
    gap = np.ones((1, round(0.06 * side) | 1), np.uint8)
    lines = cv2.morphologyEx(frequent, cv2.MORPH_CLOSE, gap)
    _, parts, stats, _ = cv2.connectedComponentsWithStats(lines)
    is_text = stats[:, cv2.CC_STAT_WIDTH] > 0.06 * side
    is_text[0] = False  # the background
    text = is_text[np.asarray(parts, dtype=np.intp)].astype(np.uint8)
    return cv2.dilate(text, _disc(0.03 * side)) > 0


def _corners(keep: Mask, *, all_four: bool) -> Mask:
    """Boxes in the corners that recorders write into: all four, or those without a black border.

    Where the field of view reaches into the corner itself, text and tissue look alike.
    """
    height, width = keep.shape
    boxes = np.zeros_like(keep)
    tall, wide = round(CORNER[1] * height), round(CORNER[0] * width)
    probe = max(2, round(0.06 * _side(keep)))
    for rows, probe_rows in ((np.s_[:tall], np.s_[:probe]), (np.s_[-tall:], np.s_[-probe:])):
        for columns, probe_columns in (
            (np.s_[:wide], np.s_[:probe]),
            (np.s_[-wide:], np.s_[-probe:]),
        ):
            if all_four or keep[probe_rows, probe_columns].any():
                boxes[rows, columns] = True
    return boxes
