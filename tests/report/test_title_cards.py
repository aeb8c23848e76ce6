"""Frames that do not show the gut are never shown: title cards, start screens, blue screens."""

import json

import cv2
import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, load_album, read_index, save_pictures, small
from enteron.report.title_cards import measure_view
from enteron.study import open_study
from tests.conftest import ROOT
from tests.report.making import capsule_frame, scores_for, write_folder

SIZE = 336
LINES = ("DOE, JANE", "Born 02.04.1961", "ID 3984417")


def written(image: np.ndarray, ink: tuple[int, int, int], scale: float = 1.0) -> np.ndarray:
    """The image with a name, a birth date and a number across its middle."""
    image = image.copy()
    for number, text in enumerate(LINES):
        place = (24, round(110 + 44 * number * scale))
        cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, ink, 2, cv2.LINE_AA)
    return image


def ground(colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((SIZE, SIZE, 3), colour, np.uint8)


def graded() -> np.ndarray:
    fade = np.linspace(0.4, 1.2, SIZE)[:, None, None] * np.array((110, 70, 40))
    return np.broadcast_to(fade, (SIZE, SIZE, 3)).astype(np.uint8)


def inset() -> np.ndarray:
    card = ground((0, 0, 0))
    card[180:330, 100:250] = cv2.resize(capsule_frame(5, SIZE), (150, 150))
    return written(card, (255, 255, 255), 0.7)


CARDS = {
    "white on black": written(ground((0, 0, 0)), (255, 255, 255)),
    "yellow on black, small": written(ground((0, 0, 0)), (255, 220, 0), 0.6),
    "black on white": written(ground((255, 255, 255)), (0, 0, 0)),
    "white on blue": written(ground((10, 20, 140)), (255, 255, 255)),
    "black on beige": written(ground((235, 215, 180)), (0, 0, 0)),
    "white on red brown": written(ground((120, 60, 30)), (255, 255, 255)),
    "white on a gradient": written(graded(), (255, 255, 255)),
    "inset picture": inset(),
    "blue screen": ground((0, 0, 200)),
    "white on tissue": written(capsule_frame(7, SIZE), (255, 255, 255)),
}


def write_study(folder, cards, count=80):
    """Frames of a capsule, some of them replaced by cards."""
    folder.mkdir()
    for number in range(count):
        image = cards.get(number, capsule_frame(number, SIZE))
        data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1]
        (folder / f"frame_{number:06d}.png").write_bytes(data.tobytes())
    return folder


@pytest.mark.parametrize("name", CARDS)
def test_a_title_card_is_never_shown(tmp_path, name):
    """First, in the middle and last; the frames around it are shown in its place."""
    cards = {0: CARDS[name], 40: CARDS[name], 79: CARDS[name]}
    study = open_study(write_study(tmp_path / "frames", cards))
    events = [
        DecodedEvent(0, 30, "mouth", 0.9, "mouth"),
        DecodedEvent(40, 41, "polyp", 0.9, "mouth"),
        DecodedEvent(78, 80, "blood", 0.9, "mouth"),
    ]
    scores = scores_for(events, range(80), study=study.id)
    choice = choose_pictures(scores, events)
    saved = save_pictures(study, choice, tmp_path)
    assert {0, 40} <= set(saved.withheld) <= {0, 40, 79}
    files = {path.name for path in (tmp_path / "pictures").glob("*.jpg")}
    assert not files & {"frame_000000.jpg", "frame_000040.jpg", "frame_000079.jpg"}
    assert set(saved.frames) == set(choice.frames) - {0, 40, 79}
    album = load_album(tmp_path, choice, device_text=False)
    assert not {0, 40, 79} & set(album.pictures)
    assert read_index(tmp_path / "pictures") == saved


def test_the_page_says_what_was_left_out(tmp_path):
    events = [DecodedEvent(40, 41, "polyp", 0.9), DecodedEvent(0, 30, "mouth", 0.9, "mouth")]
    scores = scores_for(events, range(80), study="7")
    folder = write_folder(tmp_path / "reading", events, scores)
    cards = {0: CARDS["white on black"], 40: CARDS["inset picture"]}
    frames = write_study(tmp_path / "frames", cards)
    choice = choose_pictures(scores, events)
    save_pictures(open_study(frames, study_id="7"), choice, folder)
    page = write_report(folder).read_text()
    assert "2 frames that do not look like the gut were left out" in page
    assert "The frame of highest probability, 40, does not look like the gut" in page
    assert "everything outside the measured field of view was made black" in page
    assert "names) was removed" not in page
    # Kept on demand, and removed again from what was saved with it.
    save_pictures(open_study(frames, study_id="7"), choice, folder, mask_text=False)
    assert "title cards are shown" in write_report(folder, device_text=True).read_text()
    album = load_album(folder, choice, device_text=False)
    assert {0, 40} == set(album.withheld)
    assert not {0, 40} & set(album.pictures)


def test_a_card_of_an_earlier_run_does_not_stay_in_the_folder(tmp_path):
    study = open_study(write_study(tmp_path / "frames", {40: CARDS["white on black"]}))
    events = [DecodedEvent(40, 41, "polyp", 0.9)]
    choice = choose_pictures(scores_for(events, range(80), study=study.id), events)
    save_pictures(study, choice, tmp_path, mask_text=False)
    assert (tmp_path / "pictures" / "frame_000040.jpg").exists()
    save_pictures(study, choice, tmp_path)
    assert not (tmp_path / "pictures" / "frame_000040.jpg").exists()
    index = json.loads((tmp_path / "pictures" / "index.json").read_text())
    assert index["withheld"] == [40]


def test_cards_among_the_samples_do_not_widen_the_field_of_view():
    """A white card is bright everywhere, also in the corners that recorders write into."""
    frames = [small(capsule_frame(number, SIZE)) for number in range(24)]
    alone = measure_view(frames)
    mixed = measure_view([*frames, small(CARDS["black on white"]), small(CARDS["blue screen"])])
    assert alone is not None
    assert mixed is not None
    np.testing.assert_array_equal(alone.keep, mixed.keep)


def test_a_study_of_cards_alone_shows_nothing(tmp_path):
    cards = {number: written(ground((0, 0, 0)), (255, 255, 255)) for number in range(12)}
    study = open_study(write_study(tmp_path / "frames", cards, 12))
    events = [DecodedEvent(0, 12, "mouth", 0.9, "mouth")]
    choice = choose_pictures(scores_for(events, range(12), study=study.id), events)
    assert save_pictures(study, choice, tmp_path).frames == ()


def test_real_frames_are_shown():
    folder = ROOT.parent / "shared" / "images" / "kvasir-capsule-seg"
    if not folder.exists():
        pytest.skip("needs ../shared/images, which is not here")
    frames = [
        small(np.asarray(cv2.imread(str(path), cv2.IMREAD_COLOR_RGB), np.uint8))
        for path in sorted(folder.glob("*.jpg"))
    ]
    view = measure_view(frames)
    assert view is not None
    assert all(view.shows(frame) for frame in frames)
