"""What tells one study's files from another's."""

import hashlib
import os

import numpy as np
import pytest

from enteron.errors import ModelError, StudyError
from enteron.inference.store import open_embeddings
from enteron.study import open_study
from enteron.study.archive import archived_pictures
from enteron.study.content import (
    UNOPENED,
    BackgroundDigest,
    StudyContent,
    as_digests,
    digest,
    file_digest,
    file_stamps,
    sampled_hash,
    stamp_tokens,
)
from enteron.study.naming import default_id
from tests.making import write_frames, write_video


def test_a_digest_is_half_of_sha_256(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"content")
    assert file_digest(str(path)) == digest(b"content") == hashlib.sha256(b"content").digest()[:16]
    assert file_digest(str(tmp_path / "none")) == UNOPENED
    background = BackgroundDigest(str(path), "s")
    assert background.result() == background.so_far == digest(b"content")
    with pytest.raises(StudyError, match=r"of study s cannot be read to its end \(No such file"):
        BackgroundDigest(str(tmp_path / "none"), "s").result()


def test_every_frame_of_a_folder_carries_the_digest_of_its_file(tmp_path):
    study = open_study(write_frames(tmp_path / "s", range(3)))
    for frame, path in zip(study, study.files(), strict=True):
        assert frame.digest == file_digest(path)
    (tmp_path / "s" / "frame_000001.PNG").unlink()
    assert study.frame(1).digest == UNOPENED


def test_the_hash_of_a_study_depends_on_numbers_and_content_of_frames_only(tmp_path):
    study = open_study(write_frames(tmp_path / "a", range(3)))
    renamed = open_study(write_frames(tmp_path / "b", range(3), name="x{}.png"))
    shifted = open_study(write_frames(tmp_path / "c", range(3)))

    def content(study, numbers=(0, 1, 2)):
        digests = as_digests([file_digest(path) for path in study.files()])
        return StudyContent(np.array(numbers), digests, per_row=True)

    assert content(study).hash == content(renamed).hash
    assert content(shifted, (0, 1, 3)).hash != content(study).hash
    assert content(study).digest_of(2) == study.frame(2).digest
    assert content(study).digest_of(7) is None
    video = open_study(write_video(tmp_path / "v.mkv", 3))
    single = as_digests([file_digest(video.files()[0])])
    assert StudyContent(np.arange(3), single, per_row=False).hash == (
        StudyContent(np.arange(4), single, per_row=False).hash
    )
    assert StudyContent(np.arange(3), as_digests([]), per_row=False).hash is None


@pytest.mark.parametrize("size", [1, 4096, 16_384, 16_385, 150_000, 5_000_000])
def test_samples_hold_the_size_the_end_and_blocks_in_between(tmp_path, size):
    one, other = tmp_path / "a", tmp_path / "b"
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    one.write_bytes(content)

    def differs(changed):
        other.write_bytes(changed)
        return sampled_hash([str(one)] * 2) != sampled_hash([str(other)] * 2)

    assert not differs(content)
    assert differs(content + b"\0")
    assert differs(content[:-1] + bytes([content[-1] ^ 1]))
    for part in (0.25, 0.5, 0.75):
        at = round(part * (size - 4096)) if size > 16_384 else int(part * size)
        assert differs(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_the_last_block_of_a_png_depends_on_every_pixel(tmp_path):
    """Its checksums do: so a single other pixel is noticed without reading the file."""
    import cv2

    image = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        path.write_bytes(cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 0])[1].tobytes())
        image[3, 3] ^= 1
    assert paths[0].stat().st_size == paths[1].stat().st_size > 100_000
    assert paths[0].read_bytes()[-64:] != paths[1].read_bytes()[-64:]


def test_a_stamp_tells_any_write_even_where_the_time_of_modification_is_restored(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    os.utime(path, ns=(10**18, 10**18))
    before = file_stamps([str(path)])
    assert (file_stamps([str(path)]) == before).all()
    path.write_bytes(b"two")
    os.utime(path, ns=(10**18, 10**18))
    assert (file_stamps([str(path)]) != before).any()
    assert file_stamps([str(tmp_path / "none")]).tolist() == [[-1] * 4]


def test_a_stamp_that_is_too_fresh_is_not_trusted(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    stamps = file_stamps([str(path), str(tmp_path / "none")])
    changed = int(stamps[0, 1:3].max())
    assert stamp_tokens(stamps, changed + 1) == ["", ""]
    (token, missing) = stamp_tokens(stamps, changed + 3 * 10**9)
    assert len(token) == 16
    assert missing == ""
    assert stamp_tokens(stamps + 1, changed + 3 * 10**9)[0] not in ("", token)


def test_files_that_appear_are_counted(tmp_path):
    folder = write_frames(tmp_path / "s", range(3))
    study = open_study(folder)
    assert study.new_files() == 0
    (folder / "notes.txt").write_text("")
    assert study.new_files() == 0
    write_frames(folder, [7, 8])
    assert study.new_files() == 2


def test_files_that_are_not_regular_are_not_waited_for(tmp_path):
    """Opening a FIFO without a writer would never return."""
    pipe = tmp_path / "frame_000001.png"
    os.mkfifo(pipe)
    assert file_digest(str(pipe)) == UNOPENED
    assert sampled_hash([str(pipe)]) == sampled_hash([str(tmp_path / "none")])
    video = tmp_path / "film.mp4"
    os.mkfifo(video)
    with pytest.raises(
        StudyError, match=r"'film.mp4' cannot be read \(it is a pipe, not a regular"
    ):
        default_id(video)
    archive = tmp_path / "pictures.tar"
    os.mkfifo(archive)
    with pytest.raises(StudyError, match=r"pictures.tar cannot be read \(it is a pipe"):
        list(archived_pictures(archive))
    store = tmp_path / "embeddings.npy"
    os.mkfifo(store)
    with pytest.raises(ModelError, match=r"embeddings.npy cannot be read \(it is a pipe"):
        open_embeddings(store)
