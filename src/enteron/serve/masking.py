"""What of a frame is shown, as JPEG: the field of view without what the recorder wrote around it.

Frames that look like title cards, which may hold a name, are recognised here too: at a lower
resolution, by their colours, and near both ends of the study also by letters.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.report.title_cards import LIT, View, measure_view
from enteron.study import Study

if TYPE_CHECKING:
    from enteron.study.study import RGB

SAMPLES: Final = 24  # frames on which the field of view is measured
# Pixels of the longer side: measuring takes a few hundredths of a second a frame at this size.
SAMPLE_SIDE: Final = 144
DARKEST: Final = 0.05  # share of lit pixels below which a frame is too dark to hold text
ENDS: Final = 60  # frames at both ends of a study in which letters are looked for

Keep = NDArray[np.uint8]  # (height, width), 255 inside the field of view


class Masking:
    """The mask of one study; without a view frames are shown as they are."""

    def __init__(self, view: View | None = None) -> None:
        self._view = view  # in small
        self._keep: dict[tuple[int, int], Keep] = {}

    @classmethod
    def of_study(cls, study: Study) -> "Masking":
        """Measure the field of view on some frames of a study."""
        import cv2

        rows = np.unique(np.linspace(0, len(study) - 1, SAMPLES).round().astype(int))
        images: list[RGB] = []
        for row in rows:
            image = study.frame(int(study.numbers[row])).image
            if image is not None:
                scale = SAMPLE_SIDE / max(image.shape[:2])
                size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
                small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
                images.append(np.asarray(small, np.uint8))
        shapes = [image.shape for image in images]
        commonest = max(set(shapes), key=shapes.count, default=None)
        view = measure_view([image for image in images if image.shape == commonest])
        if view is None:
            raise EnteronError(
                "no frame of the study looks like the gut, so that it is not clear what to mask",
                "start with --device-text to show the frames as they are",
            )
        return cls(view)

    @classmethod
    def from_record(cls, record: dict[str, object]) -> "Masking | None":
        """The mask that `to_record` stored; None where there is none."""
        try:
            height, width = int(str(record["height"])), int(str(record["width"]))
            masks = [
                np.unpackbits(np.frombuffer(bytes.fromhex(str(record[name])), np.uint8))
                for name in ("mask", "border")
            ]
            keep, border = (mask[: height * width].reshape(height, width) > 0 for mask in masks)
        except (KeyError, ValueError):
            return None
        return cls(View(keep, border))

    def to_record(self) -> dict[str, object]:
        """What `from_record` reads, as JSON holds it."""
        if self._view is None:
            return {}
        height, width = self._view.keep.shape
        masks = {"mask": self._view.keep, "border": self._view.border}
        packed = {name: np.packbits(bits).tobytes().hex() for name, bits in masks.items()}
        return {"height": height, "width": width, **packed}

    def is_card(self, image: "RGB", row: int, rows: int) -> bool:
        """Whether a frame looks like a title card; a dark one cannot be read, and is none.

        `row` is its place among the study's `rows` frames.
        """
        import cv2

        if self._view is None:
            return False
        size = self._view.keep.shape[::-1]
        small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
        if (small.max(axis=2) > LIT).mean() < DARKEST:
            return False
        near_end = min(row, rows - 1 - row) < ENDS
        return not self._view.shows(small) if near_end else self._view.is_plain(small)

    def jpeg(self, image: "RGB", side: int, quality: int) -> bytes:
        """A frame as JPEG, masked, its longer side at most so many pixels."""
        import cv2
        import simplejpeg

        height, width = image.shape[:2]
        if self._view is not None:
            keep = self._keep_of(image, self._view)
            image = np.asarray(cv2.bitwise_and(image, image, mask=keep), np.uint8)
        scale = side / max(height, width)
        if scale < 1:
            size = (max(1, round(width * scale)), max(1, round(height * scale)))
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
        return simplejpeg.encode_jpeg(
            np.ascontiguousarray(image), quality=quality, colorspace="RGB", colorsubsampling="420"
        )

    def _keep_of(self, image: "RGB", view: View) -> Keep:
        """255 inside the field of view, in the size of the image."""
        import cv2

        shape = (image.shape[0], image.shape[1])
        if shape not in self._keep:
            small = np.where(view.keep, np.uint8(255), np.uint8(0))
            smooth = cv2.resize(cv2.GaussianBlur(small, (5, 5), 0), shape[::-1])
            self._keep[shape] = np.where(np.asarray(smooth) > 127, 255, 0).astype(np.uint8)
        return self._keep[shape]
