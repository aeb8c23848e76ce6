"""Where a capsule's frames show the gut, and where the recorder wrote on them.

Recorders burn time, date, serial numbers and sometimes a patient's name into the frame. Nearly all
of it lies in the black border around the picture, so whatever lies outside the picture is removed.
The picture's outline is measured on frames from all over the study: what is ever bright, is wide
enough not to be writing, and is not always the same. All lengths are shares of the frame's side.
"""

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.study.study import RGB

Mask = NDArray[np.bool_]  # (height, width), True where the gut is shown

DARK: Final = 28  # grey level: JPEG noise of a black border stays below
WRITING: Final = 0.075  # higher than any line of text that recorders write
RIM: Final = 0.012  # taken off the outline, since resizing smears text and border into each other
ENOUGH: Final = 8  # frames from which what never changes can be told from tissue
SHARP: Final = 45  # grey levels that strokes of text rise above what is around them
OFTEN: Final = 0.25  # share of frames in which a stroke lies in the same place
CORNER: Final = (0.40, 0.10)  # width and height of the box that recorders write into


def field_of_view(frames: Sequence[RGB]) -> Mask:
    """What to keep of frames of one size and one study; nothing written outside of it survives."""
    grey = np.stack([frame.max(axis=2) for frame in frames])
    shown = grey.max(axis=0) > DARK
    if len(frames) >= ENOUGH:
        # Panels and logos: bright, and the same in every frame. Tissue never stands still so long.
        shown &= ~((grey.std(axis=0) < 3) & (grey.mean(axis=0) > DARK))
    keep = _outline(shown)
    if len(frames) >= ENOUGH:
        keep &= ~_writing_inside(grey)
        return keep & ~_corners(keep, everywhere=False)
    # From a few frames writing over tissue cannot be told: the corners are not to be trusted.
    return keep & ~_corners(keep, everywhere=True)


def masked(frame: RGB, keep: Mask) -> RGB:
    """The frame, black outside the field of view."""
    return np.where(keep[..., None], frame, np.uint8(0)).astype(np.uint8)


def _side(mask: NDArray[Any]) -> int:
    return min(mask.shape[:2])


def _disc(diameter: float) -> NDArray[np.uint8]:
    width = max(1, round(diameter)) | 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (width, width)), np.uint8)


def _outline(shown: Mask) -> Mask:
    """The convex outline of the largest thing that is too wide to be writing."""
    side = _side(shown)
    # Beyond the frame nothing is known: without a margin OpenCV takes it as bright.
    margin = round(WRITING * side) + 1
    padded = np.pad(shown.astype(np.uint8), margin)
    wide = cv2.morphologyEx(padded, cv2.MORPH_OPEN, _disc(WRITING * side))
    wide = wide[margin:-margin, margin:-margin]
    count, parts, stats, _ = cv2.connectedComponentsWithStats(np.ascontiguousarray(wide))
    outline = np.zeros(shown.shape, np.uint8)
    if count > 1:
        largest = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
        points = np.argwhere(parts == largest)[:, ::-1].astype(np.int32)
        cv2.fillConvexPoly(outline, cv2.convexHull(points), 1)
    if outline.mean() < 0.15:
        # Too dark to see any border. Every capsule shows its picture within this circle, and
        # none writes into it.
        height, width = shown.shape
        outline[:] = 0
        cv2.circle(outline, (width // 2, height // 2), round(0.47 * side), 1, -1)
    rim = 2 * max(1, round(RIM * side)) + 1
    eroded = cv2.erode(np.pad(outline, 1), np.ones((rim, rim), np.uint8))
    return eroded[1:-1, 1:-1] > 0


def _writing_inside(grey: NDArray[np.uint8]) -> Mask:
    """Strokes that lie in the same place in many frames: text laid over the tissue itself.

    Highlights on wet tissue are as sharp, but move.
    """
    side = _side(grey[0])
    stroke = _disc(0.03 * side)
    strokes = np.zeros(grey.shape[1:], np.float64)
    for frame in grey:
        strokes += cv2.morphologyEx(frame, cv2.MORPH_TOPHAT, stroke) > SHARP
    often = (strokes / len(grey) > OFTEN).astype(np.uint8)
    # Letters to lines of text, then some room around them. What is narrower than two or three
    # letters is a highlight of a capsule that stood still.
    lines = cv2.morphologyEx(often, cv2.MORPH_CLOSE, np.ones((1, round(0.06 * side) | 1), np.uint8))
    _, parts, stats, _ = cv2.connectedComponentsWithStats(lines)
    text = stats[:, cv2.CC_STAT_WIDTH] > 0.06 * side
    text[0] = False  # the background
    shown = text[np.asarray(parts, dtype=np.intp)].astype(np.uint8)
    return cv2.dilate(shown, _disc(0.03 * side)) > 0


def _corners(keep: Mask, *, everywhere: bool) -> Mask:
    """Boxes in the corners that recorders write into: all four, or those without a black border.

    Where the field of view reaches into the corner itself, nothing tells text from tissue.
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
            if everywhere or keep[probe_rows, probe_columns].any():
                boxes[rows, columns] = True
    return boxes
