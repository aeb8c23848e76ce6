import hashlib
import subprocess
import sys

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from enteron.errors import EnteronError, LabelError
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.phantom.camera import DEVICES
from enteron.phantom.film import Film
from enteron.phantom.motion import STALL
from enteron.study.picture import encode_png

HOME = {"z-line": "esophagus", "pylorus": "stomach", "ileocecal valve": "small intestine"}


def study(n: int, region: str = "small intestine", **runs: tuple[int, int]) -> NDArray[np.bool_]:
    labels = np.zeros((n, 17), np.bool_)
    labels[:, COLUMN[region]] = True
    for name, (start, stop) in runs.items():
        labels[start:stop, COLUMN[name]] = True
    return labels


def digest(frame: NDArray[np.uint8]) -> str:
    return hashlib.sha256(frame.tobytes()).hexdigest()


def changed(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Pixels that differ by more than what storing a frame as JPEG does."""
    return np.abs(first.astype(int) - second.astype(int)).max(axis=2) > 24


MIXED = study(60)
MIXED[20:30, COLUMN["polyp"]] = True
MIXED[25:40, COLUMN["blood"]] = True

IN_ANOTHER_PROCESS = """
import hashlib
import numpy as np
from enteron.labels import COLUMN
from enteron.phantom.film import Film
labels = np.zeros((60, 17), np.bool_)
labels[:, COLUMN["small intestine"]] = True
labels[20:30, COLUMN["polyp"]] = True
labels[25:40, COLUMN["blood"]] = True
print(hashlib.sha256(Film(labels, "olympus", 9).frame(27).tobytes()).hexdigest())
"""


def test_a_frame_is_the_same_in_any_order_and_from_any_film() -> None:
    film = Film(MIXED, "olympus", 9)
    forwards = {i: digest(film.frame(i)) for i in (0, 27, 35, 59)}
    other = Film(MIXED, "olympus", 9)
    backwards = {i: digest(other.frame(i)) for i in (59, 35, 27, 0)}
    assert forwards == backwards
    assert len(set(forwards.values())) == 4


def test_a_frame_is_the_same_in_another_process() -> None:
    here = digest(Film(MIXED, "olympus", 9).frame(27))
    there = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == here


def test_seeds_make_different_patients() -> None:
    frames = [Film(MIXED, "olympus", seed).frame(5).mean(axis=(0, 1)) for seed in range(4)]
    assert np.ptp(np.array(frames), axis=0).max() > 8


@pytest.mark.parametrize("device", list(DEVICES))
def test_frames_have_the_device_s_size_and_a_black_border(device: str) -> None:
    size = {"olympus": 336, "pillcam": 512, "navicam": 480}[device]
    frame = Film(study(3), device, 4).frame(1)
    assert frame.shape == (size, size, 3)
    assert frame.dtype == np.uint8
    assert frame.flags.c_contiguous
    across = (np.arange(size) + 0.5) * 2 / size - 1
    x, y = np.abs(np.meshgrid(across, across))
    outside = x + y > 1.7 if device == "olympus" else np.hypot(x, y) > 1.0
    lit = frame[outside].max(axis=1) > 0
    if device == "olympus":
        assert not lit.any()
    else:
        assert 0 < lit.mean() < 0.12  # burnt-in text, nothing else
    middle = frame[size // 4 : -size // 4, size // 4 : -size // 4]
    assert middle.mean() > 15


@pytest.mark.parametrize("label", FINDINGS)
def test_a_finding_changes_its_own_frames_and_no_other(label: str) -> None:
    sizes: list[float] = []
    for seed in (11, 12):
        with_it, without = study(40), study(40)
        with_it[15:25, COLUMN[label]] = True
        marked, plain = (Film(labels, "olympus", seed) for labels in (with_it, without))
        sizes += [changed(marked.frame(i), plain.frame(i)).mean() for i in (15, 20, 24)]
        for i in (0, 14, 25, 39):
            assert digest(marked.frame(i)) == digest(plain.frame(i))
    assert min(sizes) > 0.0004, sizes  # about 50 pixels
    assert np.median(sizes) > 0.004, sizes
    assert np.median(sizes) < 0.6, sizes


@pytest.mark.parametrize("label", LANDMARKS)
def test_a_landmark_changes_its_own_frames_and_no_other(label: str) -> None:
    with_it, without = study(20, HOME[label]), study(20, HOME[label])
    with_it[8:12, COLUMN[label]] = True
    marked, plain = (Film(labels, "pillcam", 3) for labels in (with_it, without))
    assert changed(marked.frame(9), plain.frame(9)).mean() > 0.05
    assert digest(marked.frame(2)) == digest(plain.frame(2))


def test_another_finding_does_not_move_a_lesion() -> None:
    both = Film(study(40, polyp=(10, 20), blood=(5, 30)), "olympus", 2)
    one = Film(study(40, polyp=(10, 20)), "olympus", 2)
    assert [x for x in both.lesions if x.label == "polyp"] == one.lesions


def test_lesions_cover_every_labelled_frame_once() -> None:
    film = Film(study(3000, ulcer=(100, 900), polyp=(1500, 1501)), "olympus", 8)
    ulcers = np.zeros(3000, int)
    for lesion in film.lesions:
        ulcers[lesion.start : lesion.stop] += 1
    assert (ulcers[100:900] == 1).all()
    assert ulcers.sum() == 801


def test_stalls_are_nearly_still_and_jumps_are_not() -> None:
    film = Film(study(6000), "olympus", 21)
    motion = film.motion
    assert 0.06 < (motion.kind == STALL).mean() < 0.22
    still = np.flatnonzero((motion.kind[1:] == STALL) & ~motion.jump[1:])[50:400:70] + 1
    jumps = np.flatnonzero(motion.jump)[:5]

    def difference(i: int) -> float:
        pair = [film.frame(k).astype(float).mean(axis=2) for k in (int(i) - 1, int(i))]
        small = [p[:336, :336].reshape(42, 8, 42, 8).mean(axis=(1, 3)) for p in pair]
        return float(np.abs(small[0] - small[1]).mean())

    assert max(difference(i) for i in still) < 4
    assert np.median([difference(i) for i in jumps]) > 10


def test_frames_far_apart_move_further() -> None:
    every, fifth = (
        Film(study(2000), "olympus", 1, frame_numbers=np.arange(2000) * step) for step in (1, 5)
    )
    assert fifth.motion.activity[-1] > 1.5 * every.motion.activity[-1]


def test_a_study_of_one_frame() -> None:
    frame = Film(study(1, polyp=(0, 1)), "navicam", 0).frame(0)
    assert frame.shape == (480, 480, 3)


def test_rows_without_a_region_continue_the_one_before() -> None:
    labels = study(10, "colon")
    gap = labels.copy()
    gap[4:7] = False
    plain, holed = Film(labels, "olympus", 6), Film(gap, "olympus", 6)
    assert digest(plain.frame(5)) == digest(holed.frame(5))
    assert Film(np.zeros((3, 17), np.bool_), "olympus", 6).frame(1).mean() > 10


def test_two_regions_in_one_row_are_tolerated() -> None:
    labels = study(6, "stomach")
    labels[3, COLUMN["small intestine"]] = True
    assert Film(labels, "pillcam", 6).frame(3).mean() > 5


@pytest.mark.parametrize("region", REGIONS)
def test_every_region_is_lit(region: str) -> None:
    film = Film(study(400, region), "olympus", 31)
    tones = np.array([film.frame(i).mean(axis=(0, 1)) for i in (50, 350)])
    assert (tones.mean(axis=1) > 25).all()
    assert (tones.mean(axis=1) < 200).all()
    assert (tones[:, 0] >= tones[:, 2]).all()  # tissue is never blue


def test_wrong_input_is_named() -> None:
    with pytest.raises(LabelError, match="17 columns"):
        Film(np.zeros((4, 16), np.bool_), "olympus", 0)
    with pytest.raises(LabelError, match="one number per row"):
        Film(study(4), "olympus", 0, frame_numbers=np.arange(3))
    with pytest.raises(EnteronError, match="did you mean 'olympus'"):
        Film(study(4), "olimpus", 0)
    with pytest.raises(IndexError, match="frame 4 of 4"):
        Film(study(4), "olympus", 0).frame(4)


def test_png_keeps_the_colours_in_order() -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    frame[..., 0] = 200
    back = cv2.imdecode(np.frombuffer(encode_png(frame), np.uint8), cv2.IMREAD_COLOR)
    assert back is not None
    assert back[0, 0].tolist() == [0, 0, 200]
