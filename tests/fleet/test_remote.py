"""Studies at a URL: listed, fetched, read, and not fetched again."""

import pytest

from enteron.errors import StudyError
from enteron.fleet import remote
from enteron.fleet.discovery import find_tasks
from enteron.fleet.work import Assignment
from enteron.reading import ReadOptions
from tests.fleet.making import InlineBackend, cheap_reader, make_model, reading_bytes
from tests.making import write_frames, write_video

fsspec = pytest.importorskip("fsspec", reason="needs the package fsspec")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def bucket(tmp_path):
    """A folder and a video in fsspec's memory; no file of this machine."""
    write_frames(tmp_path / "source" / "3", range(4))
    write_video(tmp_path / "source" / "Doe.mp4", 6)
    system = fsspec.filesystem("memory")
    system.put(str(tmp_path / "source"), "/bucket/studies", recursive=True)
    system.pipe("/bucket/studies/notes.txt", b"")
    yield system
    system.rm("/bucket", recursive=True)


def test_a_study_at_a_url_is_the_study_of_its_files(tmp_path, model, bucket, monkeypatch):
    out, local = tmp_path / "out", tmp_path / "local"
    out.mkdir()
    local.mkdir()
    tasks = find_tasks("memory://bucket/studies", out).tasks
    assert [task.name for task in tasks] == ["3", "Doe.mp4"]
    assignment = Assignment(model=str(model), options=ReadOptions(), out=str(out))
    backend = InlineBackend(assignment, cheap_reader)
    assert [backend.worker.work(task).status for task in tasks] == ["read", "read"]
    same = InlineBackend(assignment.model_copy(update={"out": str(local)}), cheap_reader)
    for task in find_tasks(tmp_path / "source", local).tasks:
        assert same.worker.work(task).status == "read"
    assert reading_bytes(out) == reading_bytes(local)
    for path in out.rglob("*"):
        assert not path.is_file() or b"Doe" not in path.read_bytes()

    def refuse(task):
        raise AssertionError("it was fetched again")

    with monkeypatch.context() as patched:
        patched.setattr(remote, "_open", refuse)
        assert [backend.worker.work(task).status for task in tasks] == ["kept", "kept"]
    bucket.pipe("/bucket/studies/Doe.mp4", b"no video")
    changed = find_tasks("memory://bucket/studies", out).tasks[1]
    assert changed.stamp != tasks[1].stamp
    outcome = backend.worker.work(changed)
    assert outcome.status == "failed"
    assert "a text file" in (outcome.sentence or "")


def test_errors(tmp_path):
    with pytest.raises(StudyError, match="the studies at nothing:// cannot be reached"):
        find_tasks("nothing://bucket", tmp_path)
    with pytest.raises(StudyError, match="neither frames nor videos at this URL"):
        find_tasks("memory://empty", tmp_path)
