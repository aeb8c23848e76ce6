"""Text that a recorder writes into its frames is removed; the picture of the gut is kept.

Each case draws the same frames with and without text. The outline is measured on those with text,
and is right if the two kinds are equal once masked.
"""

import cv2
import numpy as np
import pytest

from enteron.phantom import camera as device
from enteron.report.pictures import small
from enteron.study.field_of_view import field_of_view, masked
from tests.conftest import ROOT

SIZE = 480
NAME = "DOE, JANE 1961-04-02"


def tissue(number: int, size: int = SIZE) -> np.ndarray:
    """Smooth colours with highlights, different in every frame."""
    rng = np.random.default_rng(number)
    field = rng.uniform(40, 230, (6, 6, 3)).astype(np.float32)
    image = cv2.resize(field, (size, size), interpolation=cv2.INTER_CUBIC)
    for x, y in rng.integers(0, size, (6, 2)).tolist():
        cv2.circle(image, (x, y), 3, (255, 250, 245), -1)
    return np.clip(image, 0, 255).astype(np.uint8)


def outline(kind: str, size: int = SIZE) -> np.ndarray:
    across = np.abs(np.linspace(-1, 1, size))
    x, y = np.meshgrid(across, across)
    return {
        "circle": np.hypot(x, y) < 0.97,
        "octagon": x + y < 1.6,
        "cut circle": (np.hypot(x, y) < 0.88) & (np.maximum(x, y) < 0.82),
        "square": x < 2,
        "offset": np.hypot(np.meshgrid(across, across)[0], y) < 0.6,
    }[kind][..., None]


def write_text(frame: np.ndarray, number: int) -> None:
    """A running clock, a date, a name and a logo, in the four corners."""
    size = frame.shape[0]
    font, white = cv2.FONT_HERSHEY_SIMPLEX, (240, 240, 240)
    clock = f"{number // 60:02d}:{number % 60:02d}:{number * 37 % 60:02d}"
    scale = 0.42 * size / 480
    for text, x, y in (
        (clock, 3, 14),
        ("13 OCT 21", size - 88 * size // 480, 14),
        (NAME[:9], 3, size - 18),
        (NAME[10:], 3, size - 4),
        ("SB*3", size - 44 * size // 480, size - 5),
    ):
        cv2.putText(frame, text, (x, y), font, scale, white, 1, cv2.LINE_AA)


def pairs(kind: str, count: int, size: int = SIZE) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Frames with text and without, as small as the page shows them."""
    with_text, without = [], []
    for number in range(count):
        clean = np.where(outline(kind, size), tissue(number, size), 0).astype(np.uint8)
        written = clean.copy()
        write_text(written, number)
        with_text.append(small(written))
        without.append(small(clean))
    return with_text, without


def differing(first: np.ndarray, second: np.ndarray) -> int:
    """How many pixels of two pictures differ."""
    return int((first != second).any(axis=2).sum())


@pytest.mark.parametrize("kind", ["circle", "octagon", "cut circle", "square", "offset"])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_no_pixel_of_text_survives(kind, count):
    written, clean = pairs(kind, count)
    assert differing(written[0], clean[0]) > 500  # there was something to remove
    keep = field_of_view(written)
    for with_text, without in zip(written, clean, strict=True):
        assert differing(masked(with_text, keep), masked(without, keep)) == 0


@pytest.mark.parametrize(
    ("kind", "least"),
    [("circle", 0.9), ("octagon", 0.9), ("cut circle", 0.88), ("square", 0.75), ("offset", 0.85)],
)
def test_what_the_capsule_shows_is_kept(kind, least):
    written, _ = pairs(kind, 40)
    keep = field_of_view(written)
    shown = small(np.repeat(outline(kind), 3, axis=2).astype(np.uint8) * 255)[..., 0] > 127
    assert keep[shown].mean() > least
    assert not keep[~shown].any()


@pytest.mark.parametrize("name", list(device.DEVICES))
def test_phantom_devices(name, monkeypatch):
    """The three drawn capsules with the text that their recorders burn in."""
    capsule = device.find_device(name)

    def frames() -> list[np.ndarray]:
        pictures = (tissue(n, capsule.inner).astype(np.float32) / 255 for n in range(12))
        return [
            small(device.develop(name, picture, 997 * n, 3, (5 * n, 7 * n)))
            for n, picture in enumerate(pictures)
        ]

    written = frames()
    monkeypatch.setattr(device, "_burn_in", lambda *_: None)
    clean = frames()
    assert (sum(map(differing, written, clean)) > 0) == (name != "olympus")
    keep = field_of_view(written)
    assert (
        sum(
            differing(masked(a, keep), masked(b, keep)) for a, b in zip(written, clean, strict=True)
        )
        == 0
    )
    assert keep.mean() > 0.55


def test_text_over_the_tissue_itself():
    """A name across the middle of the picture, and a clock that runs there."""
    written, clean = [], []
    for number in range(40):
        frame = np.where(outline("circle"), tissue(number), 0).astype(np.uint8)
        clean.append(small(frame))
        frame = frame.copy()
        font = cv2.FONT_HERSHEY_SIMPLEX
        cv2.putText(frame, NAME, (120, 60), font, 0.5, (255, 255, 255), 2, cv2.LINE_AA)
        written.append(small(frame))
    keep = field_of_view(written)
    left = max(
        differing(masked(a, keep), masked(b, keep)) for a, b in zip(written, clean, strict=True)
    )
    assert differing(written[0], clean[0]) > 400
    assert left == 0
    assert keep.mean() > 0.6


@pytest.mark.parametrize("count", [1, 3, 40])
def test_text_close_to_the_picture(count):
    """A logo in large letters directly below the picture, as PillCam COLON 2 has it."""
    written, clean = [], []
    for number in range(count):
        frame = np.where(outline("cut circle"), tissue(number), 0).astype(np.uint8)
        clean.append(small(frame))
        frame = frame.copy()
        font, position = cv2.FONT_HERSHEY_SIMPLEX, (110, round(0.91 * SIZE) + 19)
        cv2.putText(frame, "Pill*COLON2", position, font, 0.6, (250, 250, 250), 2, cv2.LINE_AA)
        written.append(small(frame))
    keep = field_of_view(written)
    assert differing(written[0], clean[0]) > 400
    for with_text, without in zip(written, clean, strict=True):
        assert differing(masked(with_text, keep), masked(without, keep)) == 0


def test_a_panel_beside_the_picture_is_removed():
    """A recorder's screen: the picture at the left, a grey panel with text at the right."""
    frames = []
    for number in range(20):
        screen = np.full((480, 800, 3), 0, np.uint8)
        screen[:, :480] = np.where(outline("circle"), tissue(number), 0)
        screen[20:460, 500:780] = (70, 80, 90)
        cv2.putText(screen, NAME, (510, 60), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (255, 255, 255), 1)
        frames.append(screen)
    keep = field_of_view(frames)
    assert not keep[:, 490:].any()
    assert keep[:, :480].mean() > 0.6


def test_a_black_study_keeps_a_disc():
    keep = field_of_view([np.zeros((200, 200, 3), np.uint8)])
    assert 0.5 < keep.mean() < 0.75
    assert not keep[:20, :20].any()


def test_real_frames_keep_their_picture():
    folder = ROOT.parent / "shared" / "images" / "kvasir-capsule-seg"
    if not folder.exists():
        pytest.skip("needs ../shared/images, which is not here")
    frames = [
        small(np.asarray(cv2.imread(str(path), cv2.IMREAD_COLOR_RGB), np.uint8))
        for path in sorted(folder.glob("*.jpg"))
    ]
    keep = field_of_view(frames)
    lit = np.max(frames, axis=0).max(axis=2) > 40
    assert keep[lit].mean() > 0.85
