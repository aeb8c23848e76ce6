"""Synthetic studies on disk: what is read back is what was drawn, in every layout."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from enteron.datasets.galar import find_studies, read_challenge_file
from enteron.datasets.inspection import inspect
from enteron.datasets.label_table import read_label_table, truth_events
from enteron.datasets.submission import read_submission
from enteron.errors import EnteronError
from enteron.phantom.dataset import PhantomOptions, StudyPlan, make_studies
from enteron.phantom.film import RENDERER
from enteron.priors import load_priors
from enteron.study import open_study
from enteron.types import Unit
from tests.making import write_frames

FRAMES = 9
TRAIN = PhantomOptions(frames=FRAMES, seed=4, rarity=0.3)
TEST = PhantomOptions(frames=FRAMES, seed=5, device="navicam", rarity=0.3)


def made(root: Path, studies: int, options: PhantomOptions, workers: int = 1) -> Path:
    assert sum(make_studies(root, studies, options, workers)) >= 0
    return root


def plan(number: int, options: PhantomOptions) -> StudyPlan:
    return StudyPlan(number, options, load_priors())


def digest(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return made(tmp_path_factory.mktemp("phantom") / "train", 4, TRAIN)


@pytest.fixture(scope="module")
def test(tmp_path_factory):
    return made(tmp_path_factory.mktemp("phantom") / "test", 2, TEST)


def test_what_is_read_back_is_what_was_drawn(train):
    entries = find_studies(train)
    assert list(entries) == ["1", "2", "3", "4"]
    for number, entry in enumerate(entries.values(), start=1):
        drawn = plan(number, TRAIN)
        join = entry.join()
        assert join.coverage == 1
        np.testing.assert_array_equal(join.values, drawn.table.values)
        np.testing.assert_array_equal(join.frames, drawn.table.axis.frames)
        assert not join.images_without_label.size
        film = drawn.film()
        for row, frame in enumerate(entry.open()):
            np.testing.assert_array_equal(frame.image, film.frame(row))


def test_layouts_and_quirks(train):
    assert (train / "Galar_Frames_1_to_10" / "1").is_dir()
    assert (train / "Galar_Frames_1_to_10" / "recording_4").is_dir()
    entries = find_studies(train)
    devices = [entry.metadata.device for entry in entries.values() if entry.metadata]
    assert devices == ["pillcam", "olympus", "pillcam", "olympus"]
    # PillCam at every fifth frame, Olympus at every one
    assert [entry.open().axis.step for entry in entries.values()] == [5, 1, 5, 1]
    shapes = [next(iter(entry.open())).image for entry in entries.values()]
    assert [i.shape[0] for i in shapes if i is not None] == [512, 336, 512, 336]
    # study 3 has corrected labels, and its original ones are wrong somewhere
    assert [entry.updated for entry in entries.values()] == [False, False, True, False]
    original = read_label_table(train / "Labels" / "3.csv")
    assert (original.values != plan(3, TRAIN).table.values).any()
    # study 2 has technical columns in front
    assert (train / "Labels" / "2.csv").read_text().startswith("bubbles,dirt,no view")
    assert (train / "Labels" / "1.csv").read_text().startswith("index,z-line,pylorus")
    header = (train / "Labels" / "1.csv").read_text().splitlines()[0].split(",")
    assert len(header) == 27
    assert all(not inspect(entry, decode=True).problems for entry in entries.values())


def test_the_test_set_keeps_its_truth_aside(test):
    entries = find_studies(test)
    assert list(entries) == ["ukdd_navi_00001", "ukdd_navi_00002"]
    for number, entry in enumerate(entries.values(), start=1):
        table = plan(number, TEST).table
        assert entry.labels is None
        assert entry.template is not None
        file = read_challenge_file(entry.template)
        assert len(file.columns) == 21
        np.testing.assert_array_equal(file.frames, table.axis.frames)
        np.testing.assert_array_equal(entry.open().numbers, table.axis.frames)
        assert next(iter(entry.open())).image is not None
        assert inspect(entry).problems == []
    truth = read_submission(test / "truth.json")
    assert truth == [truth_events(plan(n, TEST).table, Unit.FRAME) for n in (1, 2)]
    names = sorted(path.name for path in (test / "Testdata_ICPR_2026_RARE_Challenge").iterdir())
    assert names[:2] == ["ukdd_navi_00001", "ukdd_navi_00001.csv"]


def test_a_study_knows_its_scale_wherever_it_is(train, test, tmp_path):
    for root, options in ((train, TRAIN), (test, TEST)):
        for number, entry in enumerate(find_studies(root).values(), start=1):
            frames_per_row = plan(number, options).timeline.frames_per_row
            assert entry.open().frames_per_row == pytest.approx(frames_per_row, abs=1e-3)
            assert frames_per_row > 100  # a transit of some 20,000 frames or more in 9 rows
            assert entry.images is not None
            copy = shutil.copytree(entry.images, tmp_path / f"{entry.id}-copied")
            assert open_study(copy).frames_per_row == entry.open().frames_per_row


def test_a_real_study_among_synthetic_ones_has_no_scale(train, tmp_path):
    root = shutil.copytree(train, tmp_path / "root")
    real = write_frames(root / "Galar_Frames_1_to_10" / "77", range(4))
    inside = write_frames(root / "Galar_Frames_1_to_10" / "1" / "real", range(4))
    assert open_study(real).frames_per_row is None
    assert open_study(inside).frames_per_row is None


def test_the_command_s_check_is_clean(train, test, enteron):
    for root in (train, test):
        assert "no problems" in enteron("check", root, "--decode").stdout


@pytest.mark.slow
def test_neither_workers_nor_later_studies_change_a_byte(train, tmp_path):
    other = made(tmp_path / "train", 2, TRAIN, workers=2)
    some = digest(other)
    del some["metadata.csv"]  # it names every study
    whole = digest(train)
    assert all(whole[name] == content for name, content in some.items())
    made(other, 4, TRAIN, workers=2)
    assert digest(other) == whole


def test_fewer_studies_keep_the_listings_of_those_that_stay(train, test, tmp_path):
    """A second run with fewer studies left others without metadata, and without truth."""
    for root, options in ((train, TRAIN), (test, TEST)):
        copy = shutil.copytree(root, tmp_path / root.name)
        before = digest(copy)
        made(copy, 1, options)
        assert digest(copy) == before
        assert all(e.metadata for e in find_studies(copy).values())
    assert len(read_submission(tmp_path / "test" / "truth.json")) == 2


def test_other_options_change_nothing_in_an_existing_folder(train, tmp_path):
    copy = shutil.copytree(train, tmp_path / "train")
    before = digest(copy)
    for change in ({"seed": 5}, {"frames": 10}, {"rarity": 1.0}, {"device": "navicam"}):
        other = TRAIN.model_copy(update=change)
        with pytest.raises(EnteronError, match=f"made with {next(iter(change))} .*; give another"):
            made(copy, 1, other)
    assert digest(copy) == before


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(train, tmp_path):
    root = tmp_path / "train"
    command = [sys.executable, "-m", "enteron", "phantom", str(root), "--studies", "4"]
    command += ["--frames", str(FRAMES), "--seed", "4", "--rarity", "0.3", "--workers", "1"]
    for wanted in (3, 14, 25):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(root.rglob("*.PNG"))) < wanted:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, capture_output=True, check=True).returncode == 0
    assert digest(root) == digest(train)


def test_a_video_per_study(tmp_path):
    options = PhantomOptions(frames=FRAMES, seed=4, rarity=0.3, video=True)
    root = made(tmp_path / "videos", 2, options)
    for number, entry in enumerate(find_studies(root).values(), start=1):
        drawn = plan(number, options)
        assert entry.images is not None
        assert entry.images.suffix == ".mp4"
        np.testing.assert_array_equal(entry.join().values, drawn.table.values)
        assert entry.open().frames_per_row == drawn.metadata.frames_per_row
        copy = shutil.copy(entry.images, tmp_path / f"copied-{number}.mp4")
        assert open_study(copy).frames_per_row == drawn.metadata.frames_per_row
        film = drawn.film()
        for row, frame in enumerate(entry.open()):
            assert frame.image is not None
            difference = frame.image.astype(int) - film.frame(row)
            assert np.abs(difference).mean() < 4


def test_other_options_and_foreign_folders_are_refused(train, tmp_path):
    with pytest.raises(EnteronError, match="made with seed 4, not 9; give another folder"):
        made(train, 4, TRAIN.model_copy(update={"seed": 9}))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(EnteronError, match="exists and is not empty"):
        made(tmp_path, 1, TRAIN)
    (tmp_path / "phantom.json").write_text("{")
    with pytest.raises(EnteronError, match="is not JSON"):
        made(tmp_path, 1, TRAIN)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_studies_of_another_renderer_are_refused(train, tmp_path):
    root = tmp_path / "older"
    root.mkdir()
    manifest = json.loads((train / "phantom.json").read_text())
    del manifest["renderer"]
    (root / "phantom.json").write_text(json.dumps(manifest))
    message = f"pictures of renderer 1, not {RENDERER}; give another folder"
    with pytest.raises(EnteronError, match=message):
        made(root, 4, TRAIN)


def test_the_command_tells_what_it_made(tmp_path, enteron):
    done = enteron("phantom", "out", "--studies", 1, "--frames", 3, "--sheet", "--workers", 1)
    assert "Drew 3 frames in" in done.stdout
    assert (tmp_path / "out" / "sheet.png").stat().st_size > 100_000
    assert json.loads((tmp_path / "out" / "phantom.json").read_text())["options"]["frames"] == 3
    again = enteron("phantom", "out", "--studies", 1, "--frames", 3)
    assert "All 1 studies exist already" in again.stdout
    done = enteron("phantom", "out", "--studies", 1, "--frames", 4, code=1)
    assert "made with frames 3, not 4" in done.stderr
    assert "Invalid value" in enteron("phantom", "x", "--device", "sony", code=2).stderr


def test_slips_are_few(train):
    for number in range(1, 30):
        drawn = plan(number, TRAIN)
        wrong = (drawn.table.values != drawn.uncorrected_table.values).any(axis=1)
        assert wrong.sum() < len(wrong)
