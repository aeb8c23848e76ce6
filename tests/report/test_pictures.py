"""Which frames are shown, and their files."""

import json
from base64 import b64decode
from functools import partial

import cv2
import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.errors import EnteronError, StudyError
from enteron.folders.identity import ReadingIdentity
from enteron.labels import COLUMN, FINDINGS
from enteron.report.pictures import (
    MOST_EVENTS,
    MOST_NEIGHBOURS,
    choose_pictures,
    load_album,
    picture_order,
    read_index,
    require_pictures_of,
    save_pictures,
)
from enteron.study import open_study as open_by_content
from enteron.study.content import read_content
from tests.making import number_of, write_video
from tests.report.making import EVENTS, capsule_frame, scores_for, write_frames

open_study = partial(open_by_content, keep_name=True)  # messages name the study by its folder


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted((folder / "pictures").iterdir())}


def test_the_frame_of_highest_probability_is_chosen():
    frames = 5 * np.arange(400)
    events = [DecodedEvent(5 * e.start, 5 * e.stop, e.label, e.score, e.region) for e in EVENTS]
    scores = scores_for(events, frames)
    choice = choose_pictures(scores, events)
    for number, event in enumerate(events):
        if number not in choice.best:
            continue
        inside = (frames >= event.start) & (frames < event.stop)
        column = np.where(inside, scores.values[:, COLUMN[event.label]], -1)
        assert choice.best[number] == frames[column.argmax()]
    assert set(choice.best) == {3, 6, 7, 8}  # the landmark and the findings
    best = choice.best[7]
    assert choice.neighbours[7] == (best - 10, best - 5, best + 5, best + 10)
    assert choice.first_frames[2] == (200, 215, 260)  # rows 0, 3 and 12 of the interval
    assert set(choice.first_frames) == {0, 1, 2, 4, 5}
    assert choice.frames == tuple(sorted(set(choice.frames)))


def test_neighbours_stay_inside_the_study():
    events = [DecodedEvent(0, 1, "polyp", 0.9), DecodedEvent(3, 4, "ulcer", 0.8)]
    choice = choose_pictures(scores_for(events, range(4)), events)
    assert choice.neighbours == {0: (1, 2), 1: (1, 2)}
    alone = choose_pictures(scores_for(events[:1], range(1)), events[:1])
    assert (alone.best, alone.neighbours) == ({0: 0}, {0: ()})


def test_the_number_of_pictures_is_bounded_and_every_label_has_some():
    rng = np.random.default_rng(0)
    events = [DecodedEvent(10 * n, 10 * n + 4, "blood", 0.9) for n in range(2000)]
    events += [DecodedEvent(30 * n + 7, 30 * n + 9, label, 0.1) for n, label in enumerate(FINDINGS)]
    events = [events[index] for index in rng.permutation(len(events))]
    choice = choose_pictures(scores_for(events, range(20_000)), events)
    assert len(choice.best) == MOST_EVENTS
    assert len(choice.neighbours) == MOST_NEIGHBOURS
    assert {events[number].label for number in choice.best} == set(FINDINGS)
    first = [events[number].label for number in picture_order(events)[: len(FINDINGS)]]
    assert sorted(first) == sorted(FINDINGS)


def test_saved_pictures_are_small_and_of_the_right_frame(tmp_path):
    study = open_study(write_frames(tmp_path / "f", range(400), size=400))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    saved = save_pictures(study, choice, tmp_path)
    assert saved.frames == choice.frames
    for number in choice.frames:
        path = tmp_path / "pictures" / f"frame_{number:06d}.jpg"
        image = np.asarray(cv2.imread(str(path), cv2.IMREAD_COLOR_RGB))
        assert image.shape == (288, 288, 3)
        assert path.stat().st_size < 20_000
        wanted = cv2.resize(capsule_frame(number, 400), (288, 288))
        assert (
            np.abs(image[100:188, 20:60].mean((0, 1)) - wanted[100:188, 20:60].mean((0, 1))).max()
            < 4
        )


def test_a_second_run_reads_no_frame(tmp_path, monkeypatch):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    first = save_pictures(study, choice, tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(type(study), "frame", None)
    assert save_pictures(study, choice, tmp_path) == first
    assert contents(tmp_path) == before


def test_a_killed_run_is_finished_with_the_same_bytes(tmp_path):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    save_pictures(study, choice, tmp_path)
    before = contents(tmp_path)
    (tmp_path / "pictures" / "index.json").unlink()  # it is written last
    (tmp_path / "pictures" / f"frame_{choice.frames[0]:06d}.jpg").write_bytes(b"half a")
    save_pictures(study, choice, tmp_path)
    assert contents(tmp_path) == before
    (tmp_path / "pictures" / f"frame_{choice.frames[3]:06d}.jpg").unlink()
    save_pictures(study, choice, tmp_path)
    assert contents(tmp_path) == before


def test_pictures_of_another_choice_replace_the_old_index(tmp_path):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    scores = scores_for(EVENTS)
    save_pictures(study, choose_pictures(scores, EVENTS), tmp_path)
    fewer = choose_pictures(scores, EVENTS[:3])
    assert save_pictures(study, fewer, tmp_path).frames == fewer.frames
    assert read_index(tmp_path / "pictures").frames == fewer.frames


def test_unreadable_frames_are_listed(tmp_path):
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    folder = write_frames(tmp_path / "f", range(400))
    bad = choice.best[6]
    (folder / f"frame_{bad:06d}.png").write_bytes(b"")
    saved = save_pictures(open_study(folder), choice, tmp_path)
    assert saved.unreadable == ((bad, "the file is empty"),)
    assert not (tmp_path / "pictures" / f"frame_{bad:06d}.jpg").exists()
    assert read_index(tmp_path / "pictures") == saved
    album = load_album(tmp_path, choice, device_text=False)
    assert album.unreadable == {bad: "the file is empty"}
    # A neighbour stands in for it.
    shown = album.first_of((bad, *choice.neighbours[6]))
    assert shown is not None
    assert shown.frame == bad - 2


@pytest.mark.parametrize("suffix", ["mp4", "avi"])
def test_a_video_gives_the_frames_of_its_rows(tmp_path, suffix, monkeypatch):
    """AVI with B-frames cannot be entered in the middle: it must be passed through once."""
    video = open_study(write_video(tmp_path / f"s.{suffix}", 60))
    events = [DecodedEvent(10, 14, "polyp", 0.9), DecodedEvent(50, 51, "ulcer", 0.8)]
    choice = choose_pictures(scores_for(events, range(60)), events)
    fetched = []
    fetch = video.frame
    monkeypatch.setattr(video, "frame", lambda number: (fetched.append(number), fetch(number))[1])
    with video:
        save_pictures(video, choice, tmp_path, mask_text=False)
    assert fetched == sorted(fetched)
    assert list(choice.frames) == fetched
    for number in choice.frames:
        path = tmp_path / "pictures" / f"frame_{number:06d}.jpg"
        assert number_of(np.asarray(cv2.imread(str(path)))) == number


def test_mixed_sizes_have_an_outline_each(tmp_path):
    folder = write_frames(tmp_path / "f", range(200))
    write_frames(tmp_path / "f", range(200, 400), size=64)
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    save_pictures(open_study(folder), choice, tmp_path)
    sizes = {
        np.asarray(cv2.imread(str(path))).shape[0] for path in (tmp_path / "pictures").glob("*.jpg")
    }
    assert sizes == {96, 64}


def test_a_damaged_index_is_refused(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "index.json").write_text('{"frames": 3}')
    with pytest.raises(EnteronError, match=r"index.json is damaged; delete the folder"):
        load_album(tmp_path, choose_pictures(scores_for(EVENTS), EVENTS), device_text=False)


def test_the_album_keeps_to_its_budget(tmp_path):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    save_pictures(study, choice, tmp_path)
    full = load_album(tmp_path, choice, device_text=False)
    assert set(full.pictures) == set(choice.frames)
    budget = sum(len(picture.data) for picture in full.pictures.values()) * 2 // 3
    limited = load_album(tmp_path, choice, device_text=False, budget=budget)
    assert sum(len(picture.data) for picture in limited.pictures.values()) <= budget
    assert limited.left_out == len(choice.frames) - len(limited.pictures)
    assert limited.left_out > 0
    # What matters most is there: the first images of regions and the best frames.
    first_frames = {frame for group in choice.first_frames.values() for frame in group}
    assert first_frames | set(choice.best.values()) <= set(limited.pictures)


def test_text_that_was_saved_is_removed_from_the_page(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    for number in range(400):
        frame = capsule_frame(number, 288)
        cv2.putText(frame, "DOE", (2, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1)
        data = cv2.imencode(".png", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))[1].tobytes()
        (folder / f"frame_{number:06d}.png").write_bytes(data)
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    save_pictures(open_study(folder), choice, tmp_path, mask_text=False)
    assert json.loads((tmp_path / "pictures" / "index.json").read_text())["masked"] is False

    def corner(device_text: bool) -> int:
        """The brightest pixel that the page shows of the corner with the name."""
        album = load_album(tmp_path, choice, device_text=device_text)
        assert album.masked is not device_text
        data = next(iter(album.pictures.values())).data.partition(",")[2]
        image = cv2.imdecode(np.frombuffer(b64decode(data), np.uint8), cv2.IMREAD_GRAYSCALE)
        return int(np.asarray(image)[:14, :40].max())

    assert corner(device_text=True) > 200
    assert corner(device_text=False) < 8


# ---- pictures belong to the frames that were read


def content_of(study):
    return read_content(study.numbers, study.files(), per_row=True)


def test_a_frame_that_changed_gets_a_new_picture(tmp_path):
    """Also where the folder of pictures was kept while the embeddings were made again."""
    folder = write_frames(tmp_path / "f", range(400))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    save_pictures(open_study(folder), choice, tmp_path)
    shown = tmp_path / "pictures" / f"frame_{choice.frames[0]:06d}.jpg"
    before = shown.read_bytes()
    target = folder / f"frame_{choice.frames[0]:06d}.png"
    target.write_bytes((folder / "frame_000399.png").read_bytes())
    save_pictures(open_study(folder), choice, tmp_path)
    assert shown.read_bytes() != before


def test_a_frame_that_is_not_the_one_that_was_read_is_refused(tmp_path):
    folder = write_frames(tmp_path / "f", range(400))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    content = content_of(open_study(folder))
    number = choice.frames[0]
    (folder / f"frame_{number:06d}.png").write_bytes((folder / "frame_000399.png").read_bytes())
    with pytest.raises(StudyError, match=rf"frame {number} of study f is not the one that was rea"):
        save_pictures(open_study(folder), choice, tmp_path, content=content)
    assert not (tmp_path / "pictures" / "index.json").exists()


def test_pictures_of_another_study_are_replaced_and_never_shown(tmp_path):
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    ours = open_study(write_frames(tmp_path / "a", range(400)), study_id="s1")
    others = tmp_path / "b"
    others.mkdir()
    for number in range(400):
        content = (tmp_path / "a" / f"frame_{399 - number:06d}.png").read_bytes()
        (others / f"frame_{number:06d}.png").write_bytes(content)
    theirs = open_study(others, study_id="s1")
    save_pictures(theirs, choice, tmp_path / "r", content=content_of(theirs))
    foreign = contents(tmp_path / "r")
    identity = ReadingIdentity(study="s1", content=content_of(ours).hash)
    with pytest.raises(EnteronError, match="'pictures' holds pictures of other frames than those"):
        require_pictures_of(tmp_path / "r", identity)
    save_pictures(ours, choice, tmp_path / "r", content=content_of(ours))
    require_pictures_of(tmp_path / "r", identity)
    assert contents(tmp_path / "r")["frame_000000.jpg"] != foreign["frame_000000.jpg"]
    # A single file of theirs, in the place of one of ours.
    name = "frame_000000.jpg"
    (tmp_path / "r" / "pictures" / name).write_bytes(foreign[name])
    with pytest.raises(EnteronError, match=rf"pictures/{name} is not the picture that .* names"):
        load_album(tmp_path / "r", choice, device_text=False)


def test_pictures_that_the_index_does_not_name_are_not_shown(tmp_path):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    scores = scores_for(EVENTS)
    fewer, all_of_them = (choose_pictures(scores, events) for events in (EVENTS[:3], EVENTS))
    save_pictures(study, all_of_them, tmp_path)
    kept = (tmp_path / "pictures" / f"frame_{all_of_them.best[6]:06d}.jpg").read_bytes()
    save_pictures(study, fewer, tmp_path)
    stale = tmp_path / "pictures" / f"frame_{all_of_them.best[6]:06d}.jpg"
    assert not stale.exists()
    stale.write_bytes(kept)
    assert all_of_them.best[6] not in load_album(tmp_path, all_of_them, device_text=False).pictures


@pytest.mark.parametrize("kind", ["picture", "folder"])
def test_pictures_are_not_written_through_links(tmp_path, kind):
    study = open_study(write_frames(tmp_path / "f", range(400)))
    choice = choose_pictures(scores_for(EVENTS), EVENTS)
    outside = tmp_path / "outside"
    outside.mkdir()
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
        (out / "pictures").symlink_to(outside)
        with pytest.raises(EnteronError, match="'pictures' is a symbolic link, and nothing is wri"):
            save_pictures(study, choice, out)
    else:
        (out / "pictures").mkdir(parents=True)
        for name in (f"frame_{choice.frames[0]:06d}.jpg", "index.json"):
            (outside / name).write_text("mine")
            (out / "pictures" / name).symlink_to(outside / name)
        save_pictures(study, choice, out)
        assert {path.read_text() for path in outside.iterdir()} == {"mine"}
        assert not any(path.is_symlink() for path in (out / "pictures").iterdir())
    assert len(list(outside.iterdir())) == (0 if kind == "folder" else 2)
