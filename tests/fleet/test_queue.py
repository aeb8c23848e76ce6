"""The queue, in one process: retries, quarantine, shared work, full disks, names of patients."""

import errno
import json

import pytest

from enteron.errors import EnteronError
from enteron.fleet.discovery import find_tasks, task_key
from enteron.fleet.ledger import Ledger, without_names
from enteron.fleet.queue import MIB, Queue, QueueOptions
from enteron.fleet.task import study_stamp
from enteron.fleet.work import Assignment, ExpectedReading, Outcome, failure_sentence, is_full_disk
from enteron.folders.identity import ReadingIdentity
from enteron.folders.reading import RunRecord, RuntimeFacts
from enteron.locks import folder_lock
from enteron.progress import SilentProgress
from enteron.reading import ReadOptions, read_settings
from tests.fleet.making import InlineBackend, break_studies, cheap_reader, make_model
from tests.making import write_frames


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def reader(model):
    return cheap_reader(model)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


class Listener(SilentProgress):
    def __init__(self):
        self.said = []

    def message(self, text):
        self.said.append(text)


def make_queue(root, out, model, reader, *, interfere=lambda task: None, options=None, **changes):
    queue_arguments = {
        name: changes.pop(name) for name in ("free_space", "clock") if name in changes
    }
    assignment = Assignment(model=str(model), options=ReadOptions(), out=str(out), **changes)
    backend = InlineBackend(assignment, lambda model, options: reader, interfere)
    listener = Listener()
    queue = Queue(
        assignment, backend, options or QueueOptions(reserve=0), listener, **queue_arguments
    )
    queue.add(find_tasks(root, out).tasks)
    return queue, backend, listener


def test_broken_studies_are_quarantined_and_the_others_read(tmp_path, out, model, reader):
    root = tmp_path / "root"
    for name in ("3", "12"):
        write_frames(root / name, range(4))
    broken = break_studies(root)
    queue, backend, _ = make_queue(root, out, model, reader)
    result = queue.run()
    assert result.counts == {"read": 2, "quarantined": 5}
    assert not result.complete
    assert all(backend.started.count(name) == 2 for name in broken)  # tried again, once
    assert backend.started.count("3") == 1
    sentences = {result.tasks[f.key].name: f.sentence for f in result.quarantined}
    assert sorted(sentences) == broken
    assert "a text file" in sentences["Doe_text.mp4"]
    assert len(set(sentences.values())) == 5  # each has its own
    for path in (out / "fleet").rglob("*"):
        assert "Doe" not in path.name
        assert not path.is_file() or b"Doe" not in path.read_bytes()
    # Once more: nothing is opened again, until somebody asks for it.
    queue, backend, _ = make_queue(root, out, model, reader)
    assert queue.run().counts == {"kept": 2, "quarantined": 5}
    assert sorted(backend.started) == ["12", "3"]
    queue, backend, _ = make_queue(root, out, model, reader, options=QueueOptions(retry=True))
    assert queue.run().counts["quarantined"] == 5
    assert len(backend.started) == 2 + 2 * 5


def test_a_mended_study_is_taken_up_by_itself(tmp_path, out, model, reader):
    bad = tmp_path / "root" / "77.mp4"
    bad.parent.mkdir()
    bad.write_bytes(b"no video")
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    assert queue.run().counts == {"quarantined": 1}
    bad.unlink()
    write_frames(tmp_path / "root" / "77.mp4", range(4))  # a folder of that name
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    result = queue.run()
    assert result.counts == {"read": 1, "quarantined": 0}
    assert result.complete
    assert Ledger(out).all() == []


def test_a_study_that_another_run_reads_is_left_to_it_and_looked_at_again(
    tmp_path, out, model, reader
):
    write_frames(tmp_path / "root" / "3", range(4))
    (task,) = find_tasks(tmp_path / "root", out).tasks
    times = iter(range(0, 10_000, 10))
    queue, backend, _ = make_queue(
        tmp_path / "root", out, model, reader, clock=lambda: float(next(times))
    )
    with Ledger(out).claim(task.key):
        queue.step(0)
        queue.step(0)
        assert not queue.is_idle
        assert queue.result.outcomes == {}
    assert queue.run().counts == {"read": 1, "quarantined": 0}
    assert backend.started.count("3") >= 2


def test_a_folder_that_enteron_read_writes_to_is_left_alone(tmp_path, out, model, reader):
    write_frames(tmp_path / "root" / "3", range(4))
    queue, _, _ = make_queue(tmp_path / "root", out, model, reader)
    (out / "3").mkdir()
    with folder_lock(out / "3"):
        queue.step(0)
        assert not queue.is_idle
        assert Ledger(out).all() == []


def test_a_full_disk_pauses_the_queue_and_it_goes_on(tmp_path, out, model, reader):
    for name in ("3", "12"):
        write_frames(tmp_path / "root" / name, range(4))
    space = iter([600, 100, 100, 100, 700, 700])
    clock = iter(range(0, 10_000, 20))
    full = [True]

    def interfere(task):
        if task.name == "12" and full:  # in the middle of a study, whatever was free before
            full.pop()
            return Outcome(key=task.key, status="full")
        return None

    queue, _, listener = make_queue(
        tmp_path / "root",
        out,
        model,
        reader,
        interfere=interfere,
        options=QueueOptions(reserve=512 * MIB),
        free_space=lambda folder: next(space, 700) * MIB,
        clock=lambda: float(next(clock)),
    )
    result = queue.run()
    assert result.counts == {"read": 2, "quarantined": 0}
    assert Ledger(out).all() == []  # a full disk is no attempt
    assert result.pauses == 2
    assert "the queue pauses; free some space" in listener.said[0]
    assert listener.said[1] == "There is space on the disk again: the queue goes on."
    assert len(listener.said) == 4


def test_a_lost_worker_is_an_attempt(tmp_path, out, model, reader):
    write_frames(tmp_path / "root" / "3", range(4))
    losses = [True]

    def interfere(task):
        if losses:
            losses.pop()
            return Outcome(key=task.key, status="lost", sentence="the process ended; try again.")
        return None

    queue, _, _ = make_queue(tmp_path / "root", out, model, reader, interfere=interfere)
    assert queue.run().counts == {"read": 1, "quarantined": 0}
    queue, _, _ = make_queue(
        tmp_path / "root",
        out,
        model,
        reader,
        interfere=lambda task: Outcome(key=task.key, status="lost", sentence="it ended; again."),
    )
    assert queue.run().counts == {"quarantined": 1}


# ---- what is finished, and fits


def test_another_model_or_other_options_are_noticed_and_replaced_only_if_asked(
    tmp_path, out, model, reader
):
    write_frames(tmp_path / "root" / "3", range(4))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    queue.run()
    before = (out / "3" / "events.json").read_bytes()
    options = ReadOptions(preset="gap-merge")
    assignment = Assignment(model=str(model), options=options, out=str(out))
    tasks = find_tasks(tmp_path / "root", out).tasks
    loaded = []

    def load(model, options):
        loaded.append(options.preset)
        return cheap_reader(model, options)

    outcome = InlineBackend(assignment, load).worker.work(tasks[0])
    assert outcome.status == "other"
    assert "of another model or with other options; give --replace" in (outcome.sentence or "")
    assert loaded == []  # the weights are not needed to see it
    assert (out / "3" / "events.json").read_bytes() == before
    stored = (out / "3" / "embeddings.npy").stat().st_mtime_ns
    again = InlineBackend(assignment.model_copy(update={"replace": True}), load)
    assert again.worker.work(tasks[0]).status == "read"
    assert (out / "3" / "embeddings.npy").stat().st_mtime_ns == stored  # these are the same
    without = ReadOptions(preset="gap-merge", views="none")
    fewer = assignment.model_copy(update={"replace": True, "options": without})
    assert InlineBackend(fewer, load).worker.work(tasks[0]).status == "read"
    assert (out / "3" / "embeddings.npy").stat().st_mtime_ns != stored


def test_a_reading_of_other_files_under_the_same_id_is_noticed(tmp_path, out, model, reader):
    folder = write_frames(tmp_path / "root" / "3", range(4))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    queue.run()
    (folder / "frame_000003.PNG").write_bytes((folder / "frame_000001.PNG").read_bytes())
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    result = queue.run()
    assert result.counts == {"other": 1, "quarantined": 0}
    (outcome,) = result.outcomes.values()
    assert "a reading of other files" in (outcome.sentence or "")


def test_a_copied_study_is_the_same_study(tmp_path, out, model, reader):
    """Times and inodes differ, the content does not; and two copies are read once."""
    write_frames(tmp_path / "root" / "a" / "Doe", range(4))
    write_frames(tmp_path / "root" / "b" / "Doe_again", range(4))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    result = queue.run()
    assert result.counts == {"read": 1, "kept": 1, "quarantined": 0}


def test_embeddings_may_be_dropped(tmp_path, out, model, reader):
    write_frames(tmp_path / "root" / "3", range(4))
    write_frames(tmp_path / "root" / "Doe", range(5))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader, keep_embeddings=False)
    assert queue.run().counts["read"] == 2
    assert not list(out.rglob("embeddings.npy*"))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader, keep_embeddings=False)
    assert queue.run().counts["kept"] == 2
    (tmp_path / "root" / "3" / "frame_000002.PNG").write_bytes(b"other")
    queue, *_ = make_queue(tmp_path / "root", out, model, reader, keep_embeddings=False)
    assert queue.run().counts["other"] == 1


def test_an_unfinished_or_incomplete_reading_is_read_again(tmp_path, out, model, reader):
    write_frames(tmp_path / "root" / "3", range(4))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    queue.run()
    expected = ExpectedReading.of(model, ReadOptions())
    record = RunRecord.load(out / "3")
    assert record is not None
    assert expected.matches(record)
    (out / "3" / "report.html").unlink()
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    assert queue.run().counts["read"] == 1
    assert (out / "3" / "report.html").is_file()
    run = json.loads((out / "3" / "run.json").read_text())
    (out / "3" / "run.json").write_text(json.dumps({**run, "state": "scored"}))
    queue, *_ = make_queue(tmp_path / "root", out, model, reader)
    assert queue.run().counts["read"] == 1


@pytest.mark.parametrize(
    ("asked", "made", "fits"),
    [
        (None, "torch", True), (None, "onnx-int8", False), ("exact", "torch", True),
        ("exact", "onnx", False), ("auto", "onnx-int8", True), ("onnx", "onnx", True),
    ],
)  # fmt: skip
def test_the_runtime_must_fit(model, asked, made, fits):
    expected = ExpectedReading.of(model, ReadOptions(runtime=asked))
    record = RunRecord(
        identity=ReadingIdentity(study="3", model=expected.model, decoding=expected.decoding),
        settings=read_settings(expected.options),
        runtime=RuntimeFacts(name=made),
    )
    assert expected.matches(record) is fits
    assert not expected.matches(record.model_copy(update={"settings": {}}))


# ---- names, keys, sentences


def test_keys_say_nothing_and_stay(tmp_path, out):
    write_frames(tmp_path / "root" / "Doe_John", range(2))
    first = find_tasks(tmp_path / "root", out).tasks
    assert find_tasks(tmp_path / "root", out).tasks == first
    assert first[0].key != task_key("Doe_John", "")
    (tmp_path / "other").mkdir()
    assert find_tasks(tmp_path / "root", tmp_path / "other").tasks[0].key != first[0].key


def test_readings_inside_the_root_are_not_studies(tmp_path, model, reader):
    root = tmp_path / "root"
    write_frames(root / "3", range(4))
    (root / "out").mkdir()
    for _ in range(2):
        queue, *_ = make_queue(root, root / "out", model, reader)
        assert len(queue.run().tasks) == 1


def test_a_study_cannot_take_the_folder_of_the_fleet(tmp_path, out, model, reader):
    write_frames(tmp_path / "root" / "fleet", range(2))
    assignment = Assignment(model=str(model), options=ReadOptions(), out=str(out))
    (task,) = find_tasks(tmp_path / "root", out, keep_names=True).tasks
    outcome = InlineBackend(assignment, lambda model, options: reader).worker.work(task)
    assert "is the folder of the fleet's own files; rename the study" in (outcome.sentence or "")


def test_a_stamp_changes_with_every_write(tmp_path):
    folder = write_frames(tmp_path / "3", range(3))
    stamps = {study_stamp(folder)}
    (folder / "frame_000009.PNG").write_bytes(b"x")
    stamps.add(study_stamp(folder))
    (folder / "frame_000009.PNG").write_bytes(b"xy")
    stamps.add(study_stamp(folder))
    (folder / "frame_000009.PNG").rename(folder / "frame_000008.PNG")
    stamps.add(study_stamp(folder))
    assert len(stamps) == 4


def test_sentences_lose_names_of_patients(tmp_path):
    path = tmp_path / "Mueller Anna" / "Doe_John_1951.mp4"
    sentence = (
        "'Doe_John_1951.mp4' and 'Doe_John_0001.png' of Doe_John_1951 in 'Mueller Anna' do not "
        "fit 'run.json'; see 'embeddings.npy'."
    )
    neutral = without_names(sentence, path)
    assert "Doe" not in neutral
    assert "Mueller" not in neutral
    assert "'run.json'" in neutral
    assert "'embeddings.npy'" in neutral


def test_full_disks_are_found_behind_other_errors():
    def wrapped(number):
        error = EnteronError("a file could not be written", "free space")
        error.__cause__ = OSError(number, "no")
        return error

    assert is_full_disk(wrapped(errno.ENOSPC))
    assert is_full_disk(wrapped(errno.EDQUOT))
    assert not is_full_disk(wrapped(errno.EACCES))


def test_unforeseen_errors_show_no_values():
    with pytest.raises(AttributeError) as caught:
        ExpectedReading.matches(None, None)  # pyright: ignore
    sentence = failure_sentence(caught.value)
    assert "AttributeError at fleet/work.py:" in sentence
    assert "NoneType" not in sentence
