"""The hot folder: what is whole, what becomes of it, and restarts."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from enteron.fleet import watch as watch_module
from enteron.fleet.ledger import Ledger
from enteron.fleet.run import FleetOptions
from enteron.fleet.watch import Inbox, WatchOptions, read_mark, watch_inbox
from enteron.fleet.work import Assignment
from enteron.reading import Reader, ReadOptions
from tests.fleet.making import InlineBackend, cheap_reader, make_model, reading_bytes
from tests.making import write_frames, write_video


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "model")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def inbox(tmp_path, clock):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "out").mkdir()
    return Inbox(tmp_path / "inbox", tmp_path / "out", WatchOptions(settle=60), clock=clock)


def names(tasks):
    return [task.name for task in tasks]


# ---- what is whole


def test_a_study_copied_slowly_is_not_read_before_it_is_whole(inbox, clock):
    """A frame every 50 seconds: never 60 seconds without a change, until the last one."""
    folder = inbox.folder / "3"
    for number in range(5):
        write_frames(folder, [number])
        assert inbox.look() == []
        clock.now += 50
        assert inbox.look() == []
    assert inbox.waiting == 1
    clock.now += 9
    assert inbox.look() == []
    clock.now += 1
    assert names(inbox.look()) == ["3"]
    assert inbox.look() == []  # handed out once
    assert inbox.waiting == 0


def test_a_video_that_grows_is_not_whole(inbox, clock, tmp_path):
    content = write_video(tmp_path / "3.mp4", 20).read_bytes()
    target = inbox.folder / "3.mp4"
    for end in (len(content) // 3, len(content) // 2, len(content)):
        target.write_bytes(content[:end])
        assert inbox.look() == []
        clock.now += 59
    assert inbox.look() == []
    clock.now += 1
    assert names(inbox.look()) == ["3.mp4"]


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_with_a_marker_only_the_marker_counts(inbox, clock, place):
    inbox.options = WatchOptions(settle=1, marker=".done")
    folder = write_frames(inbox.folder / "3", range(3))
    inbox.look()
    clock.now += 10_000
    assert inbox.look() == []
    (folder / ".done" if place == "inside" else inbox.folder / "3.done").touch()
    assert names(inbox.look()) == ["3"]


def test_a_study_that_changes_after_it_was_read_arrives_again(inbox, clock):
    folder = write_frames(inbox.folder / "3", range(3))
    inbox.look()
    clock.now += 60
    (task,) = inbox.look()
    write_frames(folder, [3])  # while it is being read
    inbox.dismiss(task, "3")
    assert read_mark(folder) is None
    inbox.look()
    clock.now += 60
    assert names(inbox.look()) == ["3"]


def test_a_marked_study_is_not_handed_out_after_a_restart(inbox, clock):
    folder = write_frames(inbox.folder / "3", range(3))
    inbox.look()
    clock.now += 60
    (task,) = inbox.look()
    inbox.dismiss(task, "3")
    assert (inbox.folder / "3.read").read_text().split()[1] == "3"
    again = Inbox(inbox.folder, inbox.out, WatchOptions(settle=0), clock=clock)
    assert again.look() == []
    assert again.waiting == 0
    write_frames(folder, [3])
    assert names(again.look()) == ["3"]


def test_what_was_read_is_moved_and_nothing_is_overwritten(inbox, clock, tmp_path):
    inbox.options = WatchOptions(settle=0, done=tmp_path / "done")
    for _ in range(2):
        write_frames(inbox.folder / "3", range(3))
        (task,) = inbox.look()
        inbox.dismiss(task, "3")
        assert inbox.look() == []
    assert sorted(path.name for path in (tmp_path / "done").iterdir()) == ["3", "3-2"]


def test_half_a_copy_that_makes_no_sense_is_told_once_and_passes(inbox, clock):
    told = []
    inbox.on_problem = told.append
    inbox.options = WatchOptions(settle=0)
    write_frames(inbox.folder, [1, 2, 3])
    write_frames(inbox.folder / "4", range(3))
    assert inbox.look() == []
    assert inbox.look() == []
    assert len(told) == 1
    for path in inbox.folder.glob("*.PNG"):
        path.unlink()
    assert names(inbox.look()) == ["4"]


# ---- the loop


def watch_here(tmp_path, model, monkeypatch, **options):
    """`watch_inbox` with workers in this process; the names that were read."""
    outcomes = []

    def backend(out, model, read_options, fleet, tasks):
        assignment = Assignment(model=str(model), options=read_options, out=str(out))
        return InlineBackend(assignment, cheap_reader), assignment

    monkeypatch.setattr(watch_module, "make_backend", backend)
    watch_inbox(
        tmp_path / "inbox",
        tmp_path / "out",
        model=model,
        options=ReadOptions(threads=1),
        fleet=FleetOptions(reserve_mib=0),
        watch=WatchOptions(once=True, **options),
        on_outcome=lambda task, outcome: outcomes.append((task.name, outcome.status)),
    )
    return outcomes


def test_the_loop_reads_what_arrives_and_leaves_what_fails(tmp_path, model, monkeypatch):
    write_frames(tmp_path / "inbox" / "3", range(4))
    (tmp_path / "inbox" / "Doe.mp4").write_bytes(b"no video")
    late = threading.Timer(0.3, write_frames, (tmp_path / "inbox" / "12", range(4)))
    late.start()
    outcomes = watch_here(tmp_path, model, monkeypatch, settle=0.5, done=tmp_path / "done")
    late.join()
    assert [status for name, status in outcomes if name == "Doe.mp4"] == ["failed", "failed"]
    assert ("3", "read") in outcomes
    assert ("12", "read") in outcomes
    assert sorted(path.name for path in (tmp_path / "inbox").iterdir()) == ["Doe.mp4"]
    assert (tmp_path / "out" / "index.html").is_file()
    assert (tmp_path / "out" / "catalogue.parquet").is_file()
    (failure,) = Ledger(tmp_path / "out").all()
    assert failure.quarantined
    # Moved, but the move was killed before: the next start finds a finished reading and moves it.
    shutil.move(tmp_path / "done" / "3", tmp_path / "inbox" / "3")
    outcomes = watch_here(tmp_path, model, monkeypatch, settle=0.1, done=tmp_path / "done")
    assert outcomes == [("3", "kept")]
    assert not (tmp_path / "inbox" / "3").exists()


def test_errors_of_the_command(tmp_path, model, command):
    code, _, error = command("fleet", "watch", "nowhere", "--out", "out", "--model", model)
    assert code == 1
    assert "there is no folder 'nowhere'" in error
    (tmp_path / "inbox").mkdir()
    code, _, error = command("fleet", "watch", "inbox", "--out", "inbox/out", "--model", model)
    assert code == 1
    assert "--out lies in the inbox" in error
    code, _, error = command("fleet", "watch", "inbox", "--out", "out", "--model", "none")
    assert code == 1
    assert "none" in error


# ---- as a process


@contextmanager
def watching(tmp_path, model, *arguments):
    """`enteron fleet watch` as a process, which ends with the block whatever happens there."""
    command = [
        sys.executable, "-m", "enteron", "fleet", "watch", "inbox", "--out", "out",
        "--model", str(model), "--workers", "1", "--settle", "1", *arguments,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(condition, seconds=240):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_reading_loses_nothing(tmp_path, model):
    write_frames(tmp_path / "inbox" / "3", range(400))
    journal = tmp_path / "out" / "3" / "embeddings.npy.journal"
    with watching(tmp_path, model):
        wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 3)
    assert journal.read_bytes().count(b"\n") > 3
    assert not (tmp_path / "out" / "3" / "embeddings.npy").exists()
    with watching(tmp_path, model) as (process, _):
        wait_until(lambda: (tmp_path / "inbox" / "3.read").exists())
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "Stopped." in said
    Reader(model, ReadOptions(threads=1)).read(tmp_path / "inbox" / "3", tmp_path / "alone" / "3")
    assert reading_bytes(tmp_path / "out") == reading_bytes(tmp_path / "alone")


@pytest.mark.slow
def test_a_real_full_disk_pauses_and_goes_on(tmp_path, model):
    """A tmpfs of 24 MiB that is filled up, and emptied while the queue waits."""
    out = tmp_path / "out"
    out.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", out], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        filler = out / "filler"
        filler.write_bytes(bytes((24 << 20) - (3 << 19)))
        write_frames(tmp_path / "inbox" / "3", range(640))  # 2.6 MiB of embeddings
        with watching(tmp_path, model, "--reserve", "1") as (process, output):
            os.set_blocking(output.fileno(), False)
            said = ""

            def has_paused():
                nonlocal said
                with suppress(BlockingIOError):  # nothing new
                    said += os.read(output.fileno(), 1 << 16).decode()
                return "the queue pauses" in said

            wait_until(has_paused)
            assert process.poll() is None
            assert Ledger(out).all() == []
            filler.unlink()
            wait_until(lambda: (tmp_path / "inbox" / "3.read").exists())
            assert (out / "3" / "report.html").is_file()
    finally:
        subprocess.run(["umount", "-l", out], check=True)
