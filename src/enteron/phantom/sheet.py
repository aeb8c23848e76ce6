"""The contact sheet: examples of every label and device on one page, and strips of neighbours."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.phantom.film import Film
from enteron.phantom.trace import Bytes

_CELL = 168  # pixels of one example
_HEAD = 150  # pixels of a row's name
_LINE = 26  # pixels of a heading
_STRIP = 12  # frames of the strip
_EXAMPLES = 3  # per label and device
_EXAMPLE_ROWS = 40
_HOME = {"lymphangioectasis": "small intestine", "hematin": "small intestine"}


def example_labels(label: str, example: int) -> NDArray[np.bool_]:
    """(40, 17) labels of a short study that shows a label in its middle, in a fitting region."""
    rows = np.zeros((_EXAMPLE_ROWS, len(LABELS)), np.bool_)
    if label in REGIONS:
        region = label
    elif label in LANDMARKS:
        region = LANDMARK_BETWEEN[label][0]
    else:
        region = _HOME.get(label, ("small intestine", "colon", "stomach")[example % 3])
    rows[:, COLUMN[region]] = True
    rows[10:30, COLUMN[label]] = True
    return rows


def _small(frame: Bytes, side: int) -> Bytes:
    return np.asarray(cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def _write(page: Bytes, text: str, x: int, y: int, scale: float = 0.45) -> None:
    cv2.putText(
        page, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, (235, 235, 235), 1, cv2.LINE_AA
    )


def contact_sheet(
    seed: int = 1,
    labels: tuple[str, ...] = LABELS,
    devices: tuple[str, ...] = ("olympus", "pillcam", "navicam"),
) -> Bytes:
    """One RGB page: a row per label with examples of every device, then a strip per device."""
    width = _HEAD + len(devices) * _EXAMPLES * _CELL
    strip_side = (width - _HEAD) // _STRIP
    height = _LINE + len(labels) * _CELL + _LINE + len(devices) * strip_side
    page = np.full((height, width, 3), 24, np.uint8)
    for column, device in enumerate(devices):
        _write(page, device, _HEAD + column * _EXAMPLES * _CELL + 6, 18)
        for example in range(_EXAMPLES):
            # One patient per column, with all labels one after the other.
            rows = np.concatenate([example_labels(label, example) for label in labels])
            film = Film(rows, device, seed * 1000 + 10 * column + example, stalls=0.2)
            left = _HEAD + (column * _EXAMPLES + example) * _CELL
            for row in range(len(labels)):
                top = _LINE + row * _CELL
                frame = film.frame(row * _EXAMPLE_ROWS + 20)
                page[top : top + _CELL, left : left + _CELL] = _small(frame, _CELL)
    for row, label in enumerate(labels):
        _write(page, label, 6, _LINE + row * _CELL + _CELL // 2)
    top = _LINE + len(labels) * _CELL
    _write(page, "consecutive frames, the last third with a polyp", 6, top + 18)
    for row, device in enumerate(devices):
        rows = np.zeros((200, len(LABELS)), np.bool_)
        rows[:, COLUMN["small intestine"]] = True
        # The strip is taken where the capsule moves most.
        moves = np.diff(Film(rows, device, seed).motion.activity) > 0.02
        start = int(np.convolve(moves, np.ones(_STRIP), "valid").argmax())
        rows[start + 2 * _STRIP // 3 : start + _STRIP, COLUMN["polyp"]] = True
        film = Film(rows, device, seed)
        strip_top = top + _LINE + row * strip_side
        _write(page, device, 6, strip_top + strip_side // 2)
        for k in range(_STRIP):
            left = _HEAD + k * strip_side
            small = _small(film.frame(start + k), strip_side)
            page[strip_top : strip_top + strip_side, left : left + strip_side] = small
    return page


def save_sheet(path: Path, seed: int = 1) -> None:
    """Write the contact sheet as PNG."""
    packed = cv2.imencode(".png", cv2.cvtColor(contact_sheet(seed), cv2.COLOR_RGB2BGR))[1]
    path.write_bytes(packed.tobytes())
