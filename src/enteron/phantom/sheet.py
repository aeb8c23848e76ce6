"""The contact sheet: one page of examples per label and device, and a strip of neighbours."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.phantom.device import DEVICE
from enteron.phantom.film import Film

Image = NDArray[np.uint8]

_CELL = 168  # pixels of one example
_HEAD = 150  # pixels of a row's name
_LINE = 26  # pixels of a heading
_STRIP = 12  # frames of the strip
_EXAMPLES = 3  # per label and device
_HOME = {"lymphangioectasis": "small intestine", "hematin": "small intestine"}


def example_labels(label: str, turn: int) -> NDArray[np.bool_]:
    """(40, 17) labels of a short study that shows a label in its middle, where it belongs."""
    rows = np.zeros((40, len(LABELS)), np.bool_)
    if label in REGIONS:
        region = label
    elif label in LANDMARKS:
        region = LANDMARK_BETWEEN[label][0]
    else:
        region = _HOME.get(label, ("small intestine", "colon", "stomach")[turn % 3])
    rows[:, COLUMN[region]] = True
    rows[10:30, COLUMN[label]] = True
    return rows


def _small(frame: Image, side: int) -> Image:
    return np.asarray(cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def _write(page: Image, text: str, x: int, y: int, scale: float = 0.45) -> None:
    cv2.putText(
        page, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, (235, 235, 235), 1, cv2.LINE_AA
    )


def contact_sheet(seed: int = 1) -> Image:
    """One RGB page: a row per label with examples of every device, then a strip per device."""
    devices = list(DEVICE)
    width = _HEAD + len(devices) * _EXAMPLES * _CELL
    strip_side = (width - _HEAD) // _STRIP
    height = _LINE + len(LABELS) * _CELL + _LINE + len(devices) * strip_side
    page = np.full((height, width, 3), 24, np.uint8)
    for column, device in enumerate(devices):
        _write(page, device, _HEAD + column * _EXAMPLES * _CELL + 6, 18)
    for row, label in enumerate(LABELS):
        top = _LINE + row * _CELL
        _write(page, label, 6, top + _CELL // 2)
        for column, device in enumerate(devices):
            for turn in range(_EXAMPLES):
                film = Film(example_labels(label, turn), device, seed * 1000 + 10 * column + turn)
                left = _HEAD + (column * _EXAMPLES + turn) * _CELL
                page[top : top + _CELL, left : left + _CELL] = _small(film.frame(20), _CELL)
    top = _LINE + len(LABELS) * _CELL
    _write(page, "consecutive frames, the last third with a polyp", 6, top + 18)
    for row, device in enumerate(devices):
        labels = np.zeros((200, len(LABELS)), np.bool_)
        labels[:, COLUMN["small intestine"]] = True
        film = Film(labels, device, seed)
        moving = np.diff(film.moving().activity)
        windows = np.convolve(moving > 0.02, np.ones(_STRIP), "valid")
        start = int(windows.argmax())
        labels[start + 2 * _STRIP // 3 : start + _STRIP, COLUMN[FINDINGS[7]]] = True
        film = Film(labels, device, seed)
        place = top + _LINE + row * strip_side
        _write(page, device, 6, place + strip_side // 2)
        for k in range(_STRIP):
            left = _HEAD + k * strip_side
            small = _small(film.frame(start + k), strip_side)
            page[place : place + strip_side, left : left + strip_side] = small
    return page


def save_sheet(path: Path, seed: int = 1) -> None:
    """Write the contact sheet as PNG."""
    packed = cv2.imencode(".png", cv2.cvtColor(contact_sheet(seed), cv2.COLOR_RGB2BGR))[1]
    path.write_bytes(packed.tobytes())
