"""One writer per folder: between processes and threads, and never after the writer is gone."""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enteron.errors import EnteronError
from enteron.locks import folder_lock, locks_folder
from tests.conftest import ROOT

HOLD = """
import sys, time
from pathlib import Path
from enteron.locks import folder_lock

def sleep():
    time.sleep(120)

if __name__ == "__main__":
    with folder_lock(Path(sys.argv[1])):
        workers = []
        kind = sys.argv[2]
        if kind == "fork":
            import os
            ready, started = os.pipe()
            worker = os.fork()
            if worker == 0:
                os.write(started, b"1")  # by now it has closed what it must not hold
                sleep()
                os._exit(0)
            os.read(ready, 1)
            workers = [worker]
        elif kind != "alone":
            import multiprocessing
            process = multiprocessing.get_context(kind).Process(target=sleep)
            process.start()
            workers = [process.pid]
        print(*workers, flush=True)
        sleep()
"""


@contextmanager
def holder(folder, tmp_path, kind="alone"):
    """A process that holds the lock of a folder, and the ids of its workers."""
    script = tmp_path / "hold.py"
    script.write_text(HOLD)
    command = [sys.executable, script, folder, kind]
    # Its own group, so that forgotten workers end with the test, whatever happens.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        try:
            yield process, workers
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_alive(process):
    return Path(f"/proc/{process}").exists()


def test_a_second_process_is_told_who_writes(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    with holder(folder, tmp_path) as (process, _):
        with (
            pytest.raises(
                EnteronError,
                match=rf"another enteron \(process {process.pid}, started [-0-9]+ [:0-9]+\) is "
                r"writing to 'out'; wait for it, or give another folder\.",
            ),
            folder_lock(folder),
        ):
            pass
        process.kill()
        process.wait()
        assert (folder / ".lock").exists()  # the file of a killed process, without a lock
        with folder_lock(folder):
            pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["fork", "forkserver", "spawn"])
def test_workers_do_not_keep_the_lock_of_a_killed_parent(tmp_path, kind):
    with holder(tmp_path, tmp_path, kind) as (process, (worker,)):
        with pytest.raises(EnteronError, match="is writing"), folder_lock(tmp_path):
            pass
        process.kill()
        process.wait()
        assert is_alive(worker)
        with folder_lock(tmp_path):
            pass


def test_threads_of_one_process_exclude_each_other(tmp_path):
    refusals: list[str] = []

    def second():
        with pytest.raises(EnteronError) as refused, folder_lock(tmp_path):
            pass
        refusals.append(str(refused.value))

    with folder_lock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refusals) == 1
    assert refusals[0].startswith("this process already (since ")
    with folder_lock(tmp_path):
        pass
    assert not (tmp_path / ".lock").exists()


COUNT = """
import sys
from pathlib import Path
from enteron.errors import EnteronError
from enteron.locks import folder_lock

folder, counted = Path(sys.argv[1]), 0
while counted < 200:
    try:
        with folder_lock(folder):
            number = int((folder / "number").read_text())
            (folder / "number").write_text(str(number + 1))
        counted += 1
    except EnteronError:
        continue
"""


def test_the_file_of_a_lock_comes_and_goes_without_two_holders(tmp_path):
    """Each holder removes the file; whoever opened it before must not believe that he holds it."""
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", COUNT, tmp_path]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "600"


@pytest.mark.parametrize("kind", ["symbolic link", "folder", "pipe"])
def test_the_name_of_the_lock_may_be_taken(tmp_path, kind):
    victim, lock = tmp_path / "victim", tmp_path / "out" / ".lock"
    lock.parent.mkdir()
    victim.write_text("mine")
    if kind == "symbolic link":
        lock.symlink_to(victim)
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    refused = pytest.raises(EnteronError, match=r"'out' cannot be locked \('.lock'")
    with refused, folder_lock(lock.parent):
        pass
    assert victim.read_text() == "mine"


def test_a_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    def refuse(path, flags, mode=0o777):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("enteron.locks.os.open", refuse)
    (tmp_path / "out").mkdir()
    said = r"^'out' cannot be written \(Permission denied\); give an existing folder that you may"
    with pytest.raises(EnteronError, match=said), folder_lock(tmp_path / "out"):
        pass


def test_what_stands_in_the_file_of_a_lock_is_not_believed(tmp_path):
    with folder_lock(tmp_path):
        (tmp_path / ".lock").write_text("\x1b[31m9999999999999 is writing; rm -rf")
        refused = pytest.raises(EnteronError, match=r"^another enteron is writing to")
        with refused, folder_lock(tmp_path):
            pass


def test_a_function_that_locks_its_folder(tmp_path):
    @locks_folder
    def write(folder: Path, name: str) -> bool:
        (folder / name).write_text("")
        return (folder / ".lock").exists()

    assert write(tmp_path, "a")
    with folder_lock(tmp_path), pytest.raises(EnteronError, match="is writing to"):
        write(tmp_path, "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none", "c")


# ---- every command that writes to a folder


@pytest.fixture
def commands(tmp_path):
    from enteron.cli.export import Format, export
    from enteron.cli.report import report
    from enteron.demo import DemoOptions, run_demo
    from enteron.fitting.calibrate import calibrate_model
    from enteron.phantom.dataset import PhantomOptions, make_studies
    from enteron.progress import SilentProgress

    return {
        "report": lambda: report(tmp_path),
        "export": lambda: export(tmp_path, Format.LABEL_STUDIO),
        "phantom": lambda: list(make_studies(tmp_path, 1, PhantomOptions(frames=50))),
        "calibrate": lambda: calibrate_model(tmp_path, tmp_path),
        "demo": lambda: run_demo(tmp_path, DemoOptions(), SilentProgress()),
    }


@pytest.mark.parametrize("name", ["report", "export", "phantom", "calibrate", "demo"])
def test_commands_refuse_a_folder_that_is_being_written(tmp_path, commands, name):
    with folder_lock(tmp_path), pytest.raises(EnteronError, match=r"is writing to .*; wait for it"):
        commands[name]()
    assert list(tmp_path.iterdir()) == []


def test_a_training_holds_the_lock_of_its_model_folder(tmp_path):
    from enteron.training.distributed import Processes
    from enteron.training.run import _claimed

    request = SimpleNamespace(out=tmp_path / "model", resume=False)
    plan: Any = SimpleNamespace(request=request)
    with _claimed(plan, Processes()):
        with (
            pytest.raises(EnteronError, match="is writing to 'model'"),
            _claimed(plan, Processes()),
        ):
            pass
        with _claimed(plan, Processes(rank=1, size=2)):  # torchrun's others write nothing there
            pass
        (request.out / "model.json").write_text("{}")
    # What another process finished after the plan was made is not overwritten.
    with pytest.raises(EnteronError, match="already holds a model"), _claimed(plan, Processes()):
        pass


WORKERS = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from enteron.phantom.dataset import _end_with_parent

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 120)
        time.sleep(120)
"""


def test_workers_that_draw_end_with_their_parent(tmp_path):
    """They write without the lock that vanished with it."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    with subprocess.Popen(
        [sys.executable, script], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert is_alive(worker)
        process.kill()
        process.wait()
        try:
            # The pipe is open as long as the worker lives.
            assert process.stdout.read() == ""
            assert not is_alive(worker) or "Z" in Path(f"/proc/{worker}/stat").read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
