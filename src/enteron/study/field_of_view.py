"""The field of view of a capsule: where its frames show the gut.

Pages show what lies inside of it; a model may be given the circle inside of it (`fields_of_view`),
the same shape for every capsule, so that no border tells which capsule took a picture.

Recorders burn time, date, serial numbers and sometimes a patient's name into the frame. Nearly all
of it lies in the black border around the picture, so everything outside the picture is removed.
The picture's outline is measured on frames from all over the study: pixels that are bright in some
frame, belong to something wider than a line of text, and change between frames. All lengths are
shares of the frame's shorter side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.study.study import RGB, Study

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


# ---- the circle inside the field of view

SAMPLED_FRAMES: Final = 48  # of a study, evenly spread, on which the circle is measured
LIT_SHARE: Final = 0.1  # of the frames in which a pixel of the field of view is lit, at least
SMALLEST_RADIUS: Final = 0.3  # a smaller circle is a few bright spots, not a field of view
DEFAULT_RADIUS: Final = 0.47  # where nothing can be measured


@dataclass(frozen=True)
class Circle:
    """A circle in a picture, in pixels from its top left corner."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class FieldsOfView:
    """The circle inside the field of view for the pictures of one study."""

    circles: Mapping[tuple[int, int], Circle] = field(default_factory=dict)
    """By height and width of a picture."""
    each_alone: bool = False
    """Whether every picture is measured alone: they are of several capsules."""

    def circle(self, picture: RGB) -> Circle:
        """The circle in this picture."""
        if self.each_alone:
            return inner_circle([picture])
        height, width = picture.shape[:2]
        return self.circles.get((height, width)) or default_circle(height, width)

    def __str__(self) -> str:
        """Short text for the key of stored embeddings."""
        if self.each_alone:
            return "each picture alone"
        return "; ".join(
            f"{width} x {height}: {circle.x:.1f} {circle.y:.1f} {circle.radius:.1f}"
            for (height, width), circle in sorted(self.circles.items())
        )


def fields_of_view(study: Study) -> FieldsOfView:
    """Measure the pictures of a study on a fixed sample of its frames.

    The sample depends on the number of frames only, so the result is the same in every run on the
    same files. A size of picture that the sample lacks gets a circle in the middle.
    """
    if not study.one_camera:
        return FieldsOfView(each_alone=True)
    rows = np.unique(np.linspace(0, len(study) - 1, min(SAMPLED_FRAMES, len(study))).astype(int))
    by_size: dict[tuple[int, int], list[RGB]] = {}
    for row in rows:
        image = study.frame(int(study.numbers[row])).image
        if image is not None:
            by_size.setdefault((image.shape[0], image.shape[1]), []).append(image)
    return FieldsOfView({size: inner_circle(frames) for size, frames in by_size.items()})


def inner_circle(frames: Sequence[RGB]) -> Circle:
    """The largest circle inside the field of view of frames of one size and one camera."""
    height, width = frames[0].shape[:2]
    grey = np.stack([frame.max(axis=2) for frame in frames])
    lit = (grey > DARK).mean(axis=0)
    bright = lit > 0
    if len(frames) >= ENOUGH_FRAMES:
        # A title card is bright up to the corners, but few frames are title cards.
        bright = (lit >= LIT_SHARE) & ~((grey.std(axis=0) < 3) & (grey.mean(axis=0) > DARK))
    outline = np.pad(_outline(bright).astype(np.uint8), 1)
    distance = cv2.distanceTransform(outline, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    radius = float(distance.max()) - 0.5
    if radius < SMALLEST_RADIUS * min(height, width):
        return default_circle(height, width)
    rows, columns = np.nonzero(distance >= distance.max() - 0.5)
    return Circle(float(columns.mean()) + 0.5, float(rows.mean()) + 0.5, radius)


def default_circle(height: int, width: int) -> Circle:
    """The circle that every capsule's picture contains, in the middle of the frame."""
    return Circle(width / 2, height / 2, DEFAULT_RADIUS * min(height, width))


# ---- what pages show


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
