import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from enteron.errors import EnteronError, ModelError, StudyError
from enteron.inference.embed import EmbedOptions, EmbedTimes, embed_study
from enteron.inference.encoder import Features, ImageBatch
from enteron.inference.store import UNREADABLE, open_embeddings, started_key
from enteron.inference.views import PLAIN
from enteron.study import content
from enteron.study import open_study as open_by_content
from enteron.study.content import file_digest, sampled_hash
from enteron.study.picture import encode_png
from tests.conftest import ROOT
from tests.inference.stub import StubEncoder, stub_features
from tests.making import picture, write_frames, write_video

open_study = partial(open_by_content, keep_name=True)  # messages name the study by its folder

SMALL = EmbedOptions(chunk=4)


def expected(study):
    """Features of every frame, plain and mirrored, one at a time, without the code under test."""
    features = []
    for frame in study:
        batch = StubEncoder.preprocessing.resize_and_crop(frame.image)[None]
        features.append(np.stack([stub_features(batch)[0], stub_features(batch[..., ::-1])[0]]))
    return np.stack(features)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 23])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_frame_is_encoded_once_and_in_order(tmp_path, count, workers):
    study = open_study(write_frames(tmp_path / "s", range(count)))
    encoder = StubEncoder()
    options = EmbedOptions(chunk=4, workers=workers)
    embeddings = embed_study(study, encoder, tmp_path / "s.npy", options)
    np.testing.assert_allclose(embeddings.features, expected(study), rtol=1e-5)
    assert encoder.seen == 2 * count


def test_a_video_and_its_frames_give_the_same(tmp_path):
    video = write_video(tmp_path / "v.mkv", 30, "ffv1")
    folder = tmp_path / "f"
    folder.mkdir()
    for frame in open_study(video):
        assert frame.image is not None  # for the types; a missing one fails below
        (folder / f"frame_{frame.number:05d}.png").write_bytes(encode_png(frame.image))
    from_video = embed_study(open_study(video), StubEncoder(), tmp_path / "v.npy", SMALL)
    from_frames = embed_study(open_study(folder), StubEncoder(), tmp_path / "f.npy", SMALL)
    np.testing.assert_array_equal(from_video.features, from_frames.features)


def test_a_finished_store_is_opened_and_nothing_is_encoded(tmp_path):
    folder = write_frames(tmp_path / "s", range(9))
    embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL)
    again = StubEncoder()
    advances: list[int] = []
    embed_study(open_study(folder), again, tmp_path / "s.npy", SMALL, advances.append)
    assert again.seen == 0
    assert sum(advances) == 9


def test_unreadable_frames_keep_their_row_and_their_reason(tmp_path):
    folder = write_frames(tmp_path / "s", range(9))
    (folder / "frame_000003.PNG").write_bytes(b"")
    cut = folder / "frame_000008.PNG"
    cut.write_bytes(cut.read_bytes()[:60])
    study = open_study(folder)
    embeddings = embed_study(study, StubEncoder(), tmp_path / "s.npy", SMALL)
    assert embeddings.record.problems == {3: "the file is empty", 8: "the PNG is cut off"}
    assert embeddings.source.tolist() == [0, 1, 2, UNREADABLE, 4, 5, 6, 7, UNREADABLE]
    assert np.isnan(embeddings.features[[3, 8]]).all()
    assert np.isfinite(embeddings.features[embeddings.readable]).all()
    again = open_study(folder)
    embed_study(again, StubEncoder(), tmp_path / "s.npy", SMALL)
    assert again.unreadable == study.unreadable


@pytest.mark.parametrize("finished", [True, False])
def test_a_repaired_frame_is_noticed_even_if_its_file_size_is_the_same(tmp_path, finished):
    folder = write_frames(tmp_path / "s", range(12))
    damaged = folder / "frame_000005.PNG"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:40] + bytes(len(content) - 40))
    path = tmp_path / "s.npy"
    if finished:
        embed_study(open_study(folder), StubEncoder(), path, SMALL)
        damaged.write_bytes(content)
        with pytest.raises(ModelError, match="frame 5 could not be read then and can be now"):
            embed_study(open_study(folder), StubEncoder(), path, SMALL)
        path.unlink()
    else:
        with pytest.raises(KeyboardInterrupt):
            embed_study(open_study(folder), StubEncoder(), path, SMALL, interrupted_after(2))
        damaged.write_bytes(content)
    study = open_study(folder)
    embeddings = embed_study(study, StubEncoder(), path, SMALL)
    np.testing.assert_allclose(embeddings.features, expected(study), rtol=1e-5)
    assert not study.unreadable


def test_a_study_that_is_mostly_unreadable_is_refused_also_across_runs(tmp_path):
    folder = write_frames(tmp_path / "s", range(16))
    for number in range(9):
        (folder / f"frame_{number:06d}.PNG").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StudyError, match="more than half of study s cannot be read: 9 of 16"):
            embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL)


def test_frames_of_different_sizes(tmp_path):
    folder = write_frames(tmp_path / "s", range(4), size=64)
    write_frames(folder, range(4, 8), size=96)
    embeddings = embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL)
    np.testing.assert_allclose(embeddings.features, expected(open_study(folder)), rtol=1e-5)


def test_half_precision_halves_the_file(tmp_path):
    study = open_study(write_frames(tmp_path / "s", range(8)))
    options = EmbedOptions(precision="float16")
    embeddings = embed_study(study, StubEncoder(), tmp_path / "s.npy", options, views=(PLAIN,))
    assert embeddings.features.dtype == np.float16
    np.testing.assert_allclose(
        embeddings.features[:, 0], expected(study)[:, 0], rtol=2e-3, atol=1e-3
    )


# ---- other files than those that were embedded


def settle(*paths):
    """Let files look as if they were written long ago, as those of a real study are."""
    for path in paths:
        os.utime(path, (1e9, 1e9))


def other_bytes(path, at, size):
    """Change bytes of a file in the middle, and neither its size nor its time of modification."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[at : at + size] = bytes(byte ^ 0xFF for byte in content[at : at + size])
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_noise(folder, numbers, seed):
    """Uncompressed pictures: all files of all studies have the same size."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        image = np.random.default_rng([seed, number]).integers(0, 255, (128, 128, 3), np.uint8)
        options = [cv2.IMWRITE_PNG_COMPRESSION, 0]
        path = folder / f"frame_{number:06d}.png"
        path.write_bytes(cv2.imencode(".png", image, options)[1].tobytes())
    return folder


@pytest.mark.parametrize("finished", [True, False])
def test_another_patient_s_frames_of_equal_sizes(tmp_path, finished):
    """Patient B's frames in place of patient A's: never A's embeddings."""
    folder, path = write_noise(tmp_path / "s", range(12), seed=1), tmp_path / "s.npy"
    sizes = {file.stat().st_size for file in folder.iterdir()}
    interruption = None if finished else interrupted_after(2)
    with contextlib.suppress(KeyboardInterrupt):
        embed_study(open_study(folder), StubEncoder(), path, SMALL, interruption)
    write_noise(folder, range(12), seed=2)
    assert {file.stat().st_size for file in folder.iterdir()} == sizes
    assert len(sizes) == 1
    if finished:
        before = path.read_bytes()
        with pytest.raises(
            ModelError,
            match=r"other files of the study \(frame 0 was another picture then\); delete",
        ):
            embed_study(open_study(folder), StubEncoder(), path, SMALL)
        assert path.read_bytes() == before
        path.unlink()
    encoder = StubEncoder()
    embeddings = embed_study(open_study(folder), encoder, path, SMALL)
    np.testing.assert_allclose(embeddings.features, expected(open_study(folder)), rtol=1e-5)
    assert encoder.seen == 24


@pytest.mark.parametrize("finished", [True, False])
def test_one_frame_that_differs_outside_of_the_samples(tmp_path, finished):
    folder, path = write_noise(tmp_path / "s", range(12), seed=1), tmp_path / "s.npy"
    settle(*folder.iterdir())
    interruption = None if finished else interrupted_after(2)
    with contextlib.suppress(KeyboardInterrupt):
        embed_study(open_study(folder), StubEncoder(), path, SMALL, interruption)
    target = folder / "frame_000005.png"
    samples = sampled_hash([str(target), str(target)])
    other_bytes(target, 200, 64)
    assert sampled_hash([str(target), str(target)]) == samples
    if finished:
        with pytest.raises(ModelError, match="frame 5 was another picture then"):
            embed_study(open_study(folder), StubEncoder(), path, SMALL)
        return
    encoder = StubEncoder()
    embeddings = embed_study(open_study(folder), encoder, path, SMALL)
    assert encoder.seen == 2 * 7  # the second chunk without frame 5, and the third
    assert list(embeddings.record.problems) == [5]  # the PNG's checksum does not fit any more


@pytest.mark.parametrize("finished", [True, False])
def test_another_video_of_the_same_size(tmp_path, finished):
    video, path = write_video(tmp_path / "v.avi", 12, "mjpeg"), tmp_path / "v.npy"
    interruption = None if finished else interrupted_after(2)
    with contextlib.suppress(KeyboardInterrupt):
        embed_study(open_study(video), StubEncoder(), path, SMALL, interruption)
    content = video.read_bytes()
    start = content.index(b"JUNK") + 8  # nothing that a decoder looks at
    other_bytes(video, start, 4)
    encoder = StubEncoder()
    if finished:
        with pytest.raises(ModelError, match="its content was another one then"):
            embed_study(open_study(video), encoder, path, SMALL)
        assert encoder.seen == 0
    else:
        embed_study(open_study(video), encoder, path, SMALL)
        assert encoder.seen == 24  # nothing of the earlier run was kept


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("kind", ["folder", "video"])
def test_a_copied_study_is_the_same_study(tmp_path, kind, finished):
    if kind == "folder":
        source = write_frames(tmp_path / "s", range(12))
        shutil.copytree(source, tmp_path / "copy" / "s", copy_function=shutil.copy)
    else:
        source = write_video(tmp_path / "s.mkv", 12, "ffv1")
        (tmp_path / "copy").mkdir()
        shutil.copy(source, tmp_path / "copy" / "s.mkv")
    copy, path = tmp_path / "copy" / source.name, tmp_path / "s.npy"
    interruption = None if finished else interrupted_after(2)
    with contextlib.suppress(KeyboardInterrupt):
        embed_study(open_study(source), StubEncoder(), path, SMALL, interruption)
    before = path.read_bytes() if finished else b""
    encoder = StubEncoder()
    embeddings = embed_study(open_study(copy), encoder, path, SMALL)
    if finished:
        assert encoder.seen == 0
        assert path.read_bytes() == before
    elif kind == "folder":
        assert encoder.seen == 8
    np.testing.assert_allclose(embeddings.features, expected(open_study(copy)), rtol=1e-5)


def test_untouched_files_are_not_read_again_and_touched_ones_are(tmp_path, monkeypatch):
    folder, path = write_frames(tmp_path / "s", range(12)), tmp_path / "s.npy"
    read: list[str] = []

    def counted(file):
        read.append(Path(file).name)
        return file_digest(file)

    monkeypatch.setattr(content, "file_digest", counted)
    # Files that were written a moment ago could be written again without another stamp.
    monkeypatch.setattr(content, "_SETTLED", -(10**12))
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert read == []
    os.utime(folder / "frame_000003.PNG", (5, 5))
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert read == ["frame_000003.PNG"]
    (tmp_path / "s.npy.stamps").write_text("{}")
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert len(read) == 13


@pytest.mark.parametrize("number", [1, 18])
def test_a_file_that_vanishes_during_the_run(tmp_path, number):
    folder = write_frames(tmp_path / "s", range(20))
    with pytest.raises(StudyError, match=rf"frame {number} of study s vanished while .* run again"):
        embed_study(
            open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL,
            when_two_chunks_are_done(lambda: (folder / f"frame_{number:06d}.PNG").unlink()),
        )  # fmt: skip
    assert not (tmp_path / "s.npy").exists()


def test_a_file_that_appears_during_the_run(tmp_path):
    folder = write_frames(tmp_path / "s", range(20))
    with pytest.raises(StudyError, match=r"1 file appeared in study s while .* run again"):
        embed_study(
            open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL,
            when_two_chunks_are_done(lambda: write_frames(folder, [20])),
        )  # fmt: skip
    assert not (tmp_path / "s.npy").exists()


def test_a_video_that_changes_during_the_run(tmp_path):
    video = write_video(tmp_path / "s.mkv", 20, "ffv1")
    with pytest.raises(StudyError, match=r"the file of study s changed while"):
        embed_study(
            open_study(video), StubEncoder(), tmp_path / "s.npy", SMALL,
            when_two_chunks_are_done(lambda: settle(video)),
        )  # fmt: skip
    assert not (tmp_path / "s.npy").exists()


def when_two_chunks_are_done(act):
    """An `advance` that does something once, between two chunks."""
    advances: list[int] = []

    def advance(rows):
        advances.append(rows)
        if len(advances) == 3:  # the first call reports the frames of earlier runs
            act()

    return advance


# ---- damage and company while a store is written


def test_rows_that_do_not_reach_the_disk_are_noticed_at_the_end(tmp_path):
    """As if a second process had overwritten them: zeros where the first chunk was."""
    folder, path = write_frames(tmp_path / "s", range(12)), tmp_path / "s.npy"

    def overwrite():
        with (tmp_path / "s.npy.part").open("r+b") as part:
            part.seek(128 + 100)
            part.write(bytes(4096))

    with pytest.raises(
        EnteronError,
        match=r"of study s are not on the disk as they were computed .*frames 0 and 3\); run again",
    ):
        embed_study(
            open_study(folder), StubEncoder(), path, SMALL, when_two_chunks_are_done(overwrite)
        )
    assert not path.exists()
    encoder = StubEncoder()
    embeddings = embed_study(open_study(folder), encoder, path, SMALL)
    assert encoder.seen == 24
    np.testing.assert_allclose(embeddings.features, expected(open_study(folder)), rtol=1e-5)


def test_a_store_has_one_writer(tmp_path):
    folder, path = write_frames(tmp_path / "s", range(12)), tmp_path / "s.npy"
    refusals: list[str] = []

    def second():
        with pytest.raises(EnteronError, match=r"is writing to 's\.npy'; wait for it") as refused:
            embed_study(open_study(folder), StubEncoder(), path, SMALL)
        refusals.append(str(refused.value))

    first = embed_study(
        open_study(folder), StubEncoder(), path, SMALL, when_two_chunks_are_done(second)
    )
    assert len(refusals) == 1
    np.testing.assert_allclose(first.features, expected(open_study(folder)), rtol=1e-5)
    again = StubEncoder()
    embed_study(open_study(folder), again, path, SMALL)
    assert again.seen == 0


@pytest.mark.parametrize("suffix", [".part", ".journal"])
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_nothing_is_written_through_links(tmp_path, suffix, kind):
    folder, path = write_frames(tmp_path / "s", range(4)), tmp_path / "out" / "s.npy"
    path.parent.mkdir()
    victim, link = tmp_path / "victim", tmp_path / "out" / f"s.npy{suffix}"
    victim.write_text("mine")
    link.symlink_to(victim) if kind == "symbolic" else link.hardlink_to(victim)
    with pytest.raises(EnteronError, match=rf"s\.npy{suffix}'.*; delete 's\.npy{suffix}'"):
        embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert victim.read_text() == "mine"
    link.unlink()
    path.symlink_to(victim)
    victim.unlink()
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert not victim.exists()
    assert not path.is_symlink()


# ---- interrupted runs


def interrupted_after(chunks):
    """An `advance` that breaks the run off like a kill would, between two chunks."""
    advances: list[int] = []

    def advance(rows):
        advances.append(rows)
        if len(advances) == chunks + 1:  # the first call reports the frames of earlier runs
            raise KeyboardInterrupt

    return advance


@pytest.mark.parametrize("options", [SMALL, EmbedOptions(chunk=4, redundancy=8.0)])
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path, options):
    folder = write_frames(tmp_path / "s", range(23))
    embed_study(open_study(folder), StubEncoder(), tmp_path / "uninterrupted.npy", options)
    encoders = []
    for chunks in (2, 1, 0):
        encoders.append(StubEncoder())
        with pytest.raises(KeyboardInterrupt):
            embed_study(
                open_study(folder),
                encoders[-1],
                tmp_path / "s.npy",
                options,
                interrupted_after(chunks),
            )
    encoders.append(StubEncoder())
    embed_study(open_study(folder), encoders[-1], tmp_path / "s.npy", options)
    assert (tmp_path / "s.npy").read_bytes() == (tmp_path / "uninterrupted.npy").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "s", "s.npy", "s.npy.stamps", "uninterrupted.npy", "uninterrupted.npy.stamps",
    ]  # fmt: skip
    if options is SMALL:
        assert [e.seen for e in encoders] == [16, 8, 0, 22]


def test_anything_after_the_last_journalled_chunk_is_discarded(tmp_path):
    folder = write_frames(tmp_path / "s", range(23))
    path = tmp_path / "s.npy"
    uninterrupted = embed_study(
        open_study(folder), StubEncoder(), tmp_path / "uninterrupted.npy", SMALL
    )
    part, journal = tmp_path / "s.npy.part", tmp_path / "s.npy.journal"
    with pytest.raises(KeyboardInterrupt):
        embed_study(open_study(folder), StubEncoder(), path, SMALL, interrupted_after(3))
    features_before, journal_before = part.read_bytes(), journal.read_bytes()
    for features, lines in [
        (features_before + b"half a chunk", journal_before),
        (features_before, journal_before + b'{"checksum": 12'),
        (features_before[:-100], journal_before),  # the disk lost what the journal promises
        (features_before, b""),
        (b"", journal_before),
        (features_before, journal_before[:-1]),
    ]:
        part.write_bytes(features)
        journal.write_bytes(lines)
        embed_study(open_study(folder), StubEncoder(), path, SMALL)
        assert path.read_bytes() == (tmp_path / "uninterrupted.npy").read_bytes()
        path.unlink()
    assert len(uninterrupted) == 23


def test_a_partial_store_of_other_weights_is_refused_and_kept(tmp_path):
    folder = write_frames(tmp_path / "s", range(9))
    path = tmp_path / "s.npy"
    with pytest.raises(KeyboardInterrupt):
        embed_study(open_study(folder), StubEncoder(), path, SMALL, interrupted_after(1))
    before = (tmp_path / "s.npy.part").read_bytes()
    with pytest.raises(ModelError, match=r"'s.npy.journal' holds .* other weights"):
        embed_study(open_study(folder), StubEncoder("others"), path, SMALL)
    assert (tmp_path / "s.npy.part").read_bytes() == before
    key = started_key(path)
    assert key
    assert key.backbone == "weights"


# ---- failures during a run


def test_nan_stops_the_run_with_the_frames_and_leaves_no_store(tmp_path):
    folder = write_frames(tmp_path / "s", range(0, 60, 5))
    path = tmp_path / "s.npy"
    # Chunks of four frames, plain before mirrored: images 8 to 15 are the second chunk.
    with pytest.raises(ModelError, match=r"\(stub\) gave no finite embedding for frames 25 to 35"):
        embed_study(open_study(folder), StubEncoder(bad=frozenset({9, 15})), path, SMALL)
    assert not path.exists()
    embed_study(open_study(folder), StubEncoder(), path, SMALL)
    assert np.isfinite(open_embeddings(path).features).all()


def test_features_too_large_for_half_precision_are_reported(tmp_path):
    class Large(StubEncoder):
        def encode(self, images):
            return super().encode(images) + 1e6

    study = open_study(write_frames(tmp_path / "s", range(3)))
    with pytest.raises(ModelError, match=r"frames 0 to 2 of study s are too large for float16"):
        embed_study(study, Large(), tmp_path / "s.npy", EmbedOptions(precision="float16"))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("same_size", [False, True])
def test_a_file_that_changes_during_the_run(tmp_path, late, same_size):
    folder = write_frames(tmp_path / "s", range(20))
    target = folder / f"frame_{1 if late else 18:06d}.PNG"

    def change(rows, seen=[]):  # noqa: B006 (counts the calls)
        seen.append(rows)
        if len(seen) == 3:  # two chunks are done: frame 1 was read before, frame 18 was not
            size = target.stat().st_size
            replacement = cv2.imencode(".png", picture(999))[1].tobytes()
            target.write_bytes(target.read_bytes()[:size] if same_size else replacement)

    with pytest.raises(StudyError, match=r"frame (1|18) of study s changed while"):
        embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL, change)
    assert not (tmp_path / "s.npy").exists()
    if same_size:
        embeddings = embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL)
        np.testing.assert_allclose(embeddings.features, expected(open_study(folder)), rtol=1e-5)
    else:
        with pytest.raises(ModelError, match="other files of the study"):
            embed_study(open_study(folder), StubEncoder(), tmp_path / "s.npy", SMALL)


def test_a_full_disk_stops_the_run_with_the_frames_and_a_rerun_completes(tmp_path):
    folder = write_frames(tmp_path / "s", range(30))
    path = tmp_path / "s.npy"
    row = 2 * 512 * 4
    code = (
        "import sys; from pathlib import Path\n"
        "from enteron.inference.embed import EmbedOptions, embed_study\n"
        "from enteron.study import open_study\n"
        "from enteron.errors import EnteronError\n"
        "from tests.inference.stub import StubEncoder\n"
        "try:\n"
        "    embed_study(open_study(sys.argv[1], study_id='s'), StubEncoder(), Path(sys.argv[2]),"
        " EmbedOptions(chunk=4))\n"
        "except EnteronError as error:\n"
        "    sys.exit(str(error))\n"
    )

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 * row, 10 * row))

    done = subprocess.run(
        [sys.executable, "-c", code, folder, path],
        preexec_fn=small_disk, cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the embeddings of frames 8 to 11 of study s could not be written" in done.stderr
    assert "run again; it resumes at these frames" in done.stderr
    assert not path.exists()
    encoder = StubEncoder()
    embed_study(open_study(folder), encoder, path, SMALL)
    assert encoder.seen == 2 * (30 - 8)
    uninterrupted = tmp_path / "uninterrupted.npy"
    embed_study(open_study(folder), StubEncoder(), uninterrupted, SMALL)
    assert path.read_bytes() == uninterrupted.read_bytes()


def test_a_path_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    study = open_study(write_frames(tmp_path / "s", range(3)))
    with pytest.raises(EnteronError, match=r"'s\.npy' could not be written"):
        embed_study(study, StubEncoder(), tmp_path / "file" / "s.npy", SMALL)


# ---- killed processes


CHILD = """
import os, sys, time
from pathlib import Path
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.study import open_study
from tests.inference.stub import StubEncoder

log = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

class Logging(StubEncoder):
    def encode(self, images):
        time.sleep(0.01)
        os.write(log, b"." * len(images))
        return super().encode(images)

print("ready", flush=True)
study = open_study(sys.argv[1], study_id="s")
embed_study(study, Logging(), Path(sys.argv[2]), EmbedOptions(chunk=4))
print("done", flush=True)
"""


def kill_until_done(folder: Path, path: Path, log: Path, kills: int, seed: int) -> int:
    """Run, kill after a random time, run again; then let it end. How often it was killed."""
    random = np.random.default_rng(seed)
    command = [sys.executable, "-c", CHILD, folder, path, log]
    for killed in range(kills):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0, 0.25))
            if child.poll() is not None:
                return killed
            child.kill()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return kills


@pytest.mark.parametrize(
    ("kills", "frames"), [(3, 60), pytest.param(20, 400, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_the_bytes_are_the_same(tmp_path, kills, frames):
    folder = write_frames(tmp_path / "s", range(frames))
    uninterrupted, path, log = tmp_path / "uninterrupted.npy", tmp_path / "s.npy", tmp_path / "log"
    embed_study(open_study(folder), StubEncoder(), uninterrupted, SMALL)
    killed = kill_until_done(folder, path, log, kills, seed=kills)
    assert killed == kills
    assert path.read_bytes() == uninterrupted.read_bytes()
    encoded_pictures = log.stat().st_size
    chunk = 2 * 4
    assert 2 * frames <= encoded_pictures <= 2 * frames + killed * chunk


def test_times_say_where_the_seconds_went(tmp_path):
    study = open_study(write_frames(tmp_path / "s", range(9)))
    times = EmbedTimes()
    embed_study(study, StubEncoder(), tmp_path / "s.npy", SMALL, times=times)
    assert (times.rows, times.encoded) == (9, 18)
    assert 0 <= times.waiting_share <= 1


def test_appearance_is_without_mirror_images_evidence_and_unreadable_frames(tmp_path):
    """Lists fold frames that look alike; what a model believes of them is another matter."""

    class EvidentStub(StubEncoder):
        width = 521

        def encode(self, images: ImageBatch) -> Features:
            features = super().encode(images)
            return np.concatenate([features, np.full((len(images), 9), 1e3, np.float32)], axis=1)

    folder = write_frames(tmp_path / "s", range(6))
    (folder / "frame_000002.PNG").write_bytes(b"")
    embeddings = embed_study(open_study(folder), EvidentStub(), tmp_path / "e.npy", SMALL)
    plain = embed_study(open_study(folder), StubEncoder(), tmp_path / "p.npy", SMALL)
    assert embeddings.features.shape == (6, 2, 521)
    np.testing.assert_array_equal(embeddings.appearance, plain.features[[0, 1, 3, 4, 5], 0])
