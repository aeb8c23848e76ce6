"""The fleet on Ray: the same bytes as without it, on one machine and with a node that is killed."""

import os
import re
import subprocess
import sys

import pytest

from enteron.fleet import cluster
from enteron.fleet.cluster import RANGE_CHUNKS, Board, pack_chunks, range_chunks, unpack_chunks
from enteron.inference.embed import EmbedOptions, StudyEmbedding
from enteron.reading import Reader, ReadOptions
from enteron.study import open_study
from tests.conftest import ROOT
from tests.fleet.making import make_model, reading_bytes
from tests.inference.stub import StubEncoder
from tests.making import write_frames, write_video

pytest.importorskip("ray", reason="needs the package ray (pip install enteron[ray])")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "model")


def read_alone(root, out, model, *, tta=True):
    """Every study by one `Reader`, as a plain loop would."""
    reader = Reader(model, ReadOptions(threads=1, views="flip" if tta else "none"))
    for path in sorted(root.iterdir()):
        study = open_study(path)
        reader.read(study, out / study.id)
    return reading_bytes(out)


# ---- a study in parts, without a cluster


@pytest.mark.parametrize("kind", ["folder", "video"])
@pytest.mark.parametrize("redundancy", [None, 2.0])
def test_a_study_embedded_in_ranges_has_the_same_bytes(tmp_path, kind, redundancy):
    path = tmp_path / ("77" if kind == "folder" else "77.mkv")
    if kind == "folder":
        write_frames(path, range(70))
        (path / "frame_000020.PNG").write_bytes(b"no picture")
    else:
        write_video(path, 70, "ffv1")
    options = EmbedOptions(chunk=8, redundancy=redundancy)

    def embedding(out):
        return StudyEmbedding(open_study(path), StubEncoder(), out, options)

    embedding(tmp_path / "whole.npy").run()

    def from_others(start):
        for first in range(start, 70, 16):  # every range by another worker
            part = embedding(tmp_path / "nowhere.npy").chunks(first, min(first + 16, 70))
            yield from unpack_chunks(pack_chunks(list(part)))

    shared = embedding(tmp_path / "shared.npy")
    result = shared.run(source=from_others)
    assert (tmp_path / "shared.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not (tmp_path / "nowhere.npy").exists()
    assert set(result.record.problems) == ({20} if kind == "folder" else set())


def test_ranges_are_long_for_long_studies_only():
    assert range_chunks(3, 2) == 1
    assert range_chunks(32, 2) == 4
    assert range_chunks(1000, 40) == 6
    assert range_chunks(1000, 2) == RANGE_CHUNKS


def test_the_board_hands_out_every_range_once():
    board = Board()
    board.post("a", "task", "onnx", [(0, 8), (8, 16)])
    board.post("b", "task", "onnx", [(0, 8)])
    assert board.waiting() == 3
    assert board.take("b") == ("b", "task", "onnx", 0, 8)
    assert board.take("b") is None
    assert [board.take(), board.take(), board.take()] == [
        ("a", "task", "onnx", 0, 8), ("a", "task", "onnx", 8, 16), None,
    ]  # fmt: skip
    board.deliver("a", 0, "chunks")
    assert board.collect("a", 8) is None
    assert board.collect("a", 0) == "chunks"
    assert board.collect("a", 0) is None
    board.withdraw("a")
    board.deliver("a", 8, "late")  # from a worker that was slow: it is not kept
    assert board.collect("a", 8) is None


def test_a_token_of_the_user_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster.os, "environ", {"HOME": str(tmp_path)})
    cluster._require_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert re.fullmatch("[0-9a-f]{64}", os.environ["RAY_AUTH_TOKEN"])
    for own in ({"RAY_AUTH_TOKEN": "mine"}, {"RAY_AUTH_MODE": "disabled"}):
        monkeypatch.setattr(cluster.os, "environ", {"HOME": str(tmp_path), **own})
        cluster._require_token()
        assert dict(os.environ) == {"HOME": str(tmp_path), **own}
    assert list(tmp_path.iterdir()) == []  # nothing is written into the home folder
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("mine")
    monkeypatch.setattr(cluster.os, "environ", {"HOME": str(tmp_path)})
    cluster._require_token()
    assert dict(os.environ) == {"HOME": str(tmp_path)}


# ---- real clusters


@pytest.mark.slow
def test_a_local_cluster_gives_the_same_bytes(tmp_path, model, enteron):
    """Two studies and a broken one; the larger study is shared by the workers."""
    root = tmp_path / "root"
    write_frames(root / "3", range(10))
    write_frames(root / "500", range(130))
    expected = read_alone(root, tmp_path / "alone", model, tta=False)
    (root / "Doe.mp4").write_bytes(b"no video")
    done = enteron(
        "fleet", "run", "root", "--out", "out", "--model", model, "--ray", "local",
        "--split-above", "100", "--no-tta", "--reserve", "0", code=1, timeout=280,
    )  # fmt: skip
    assert "2 read, 1 quarantined" in done.stdout, done.stdout + done.stderr
    assert reading_bytes(tmp_path / "out") == expected
    assert not list((tmp_path / "out").rglob("*.journal"))


def test_no_cluster_is_a_sentence(tmp_path, model, enteron):
    write_frames(tmp_path / "root" / "3", range(2))
    done = enteron(
        "fleet", "run", "root", "--out", "out", "--model", model, "--ray", "auto", code=1
    )
    assert "there is no Ray cluster at 'auto'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_killed_node_changes_nothing(tmp_path, model):
    """12 studies on a head and two worker nodes, one of which is killed in the middle."""
    root = tmp_path / "root"
    for number in range(1, 12):
        write_frames(root / str(number), range(number, number + 70))
    write_frames(root / "500", range(400))
    expected = read_alone(root, tmp_path / "alone", model)
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.fleet.ray_nodes", root, tmp_path / "out", model,
            "--kill", "--split-above", "200",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "killing a node after" in done.stdout
    assert "12 studies: 12 read." in done.stdout
    assert reading_bytes(tmp_path / "out") == expected
