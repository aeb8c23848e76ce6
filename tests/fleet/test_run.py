"""`enteron fleet run` as a person starts it: real processes, killed ones, two at once."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from enteron.fleet import processes
from enteron.fleet.processes import plan_workers, worker_memory
from enteron.reading import Reader, ReadOptions
from tests.fleet.making import break_studies, make_model, reading_bytes
from tests.making import write_frames


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "model")


def start_run(tmp_path, model, *arguments):
    return subprocess.Popen(
        [
            sys.executable, "-m", "enteron", "fleet", "run", "root", "--out", "out",
            "--model", str(model), "--reserve", "0", *arguments,
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def read_alone(root, out, model):
    reader = Reader(model, ReadOptions(threads=1))
    for path in sorted(path for path in root.iterdir() if path.name.isdigit()):
        reader.read(path, out / path.name)
    return reading_bytes(out)


@pytest.mark.slow
def test_studies_are_read_by_processes_and_a_lost_one_is_replaced(tmp_path, model):
    """The first worker is killed in the middle of its study: an attempt, and the study is read."""
    for name in ("3", "12"):
        write_frames(tmp_path / "root" / name, range(8))
    (tmp_path / "root" / "Doe.mp4").write_bytes(b"no video")
    process = start_run(tmp_path, model, "--workers", "1")
    lock = tmp_path / "out" / "3" / ".lock"
    until = time.monotonic() + 240
    while not (lock.exists() and lock.read_text()):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 1
    assert "3: failed, will be tried again: the process that read the study ended (it was" in said
    assert "3 studies: 2 read, 1 quarantined." in said
    assert "Doe.mp4: quarantined: 'Doe.mp4' is a text file" in said
    assert "Encoded 16 frames in this run; a worker took at most" in said
    assert reading_bytes(tmp_path / "out") == read_alone(
        tmp_path / "root", tmp_path / "alone", model
    )
    assert (tmp_path / "out" / "index.html").is_file()
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"Doe" not in path.read_bytes()


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing_and_two_runs_share_the_work(tmp_path, model):
    for number in range(1, 13):
        write_frames(tmp_path / "root" / str(number), range(number, number + 8 * number))
    break_studies(tmp_path / "root")
    expected = read_alone(tmp_path / "root", tmp_path / "alone", model)
    rng = random.Random(0)
    for _ in range(5):
        process = start_run(tmp_path, model, "--workers", "2")
        time.sleep(rng.uniform(4, 20))
        process.kill()
        process.communicate()
    runs = [start_run(tmp_path, model, "--workers", "1") for _ in range(2)]
    for run in runs:
        said, _ = run.communicate(timeout=900)
        assert run.returncode == 1
        assert "5 quarantined" in said
    assert reading_bytes(tmp_path / "out") == expected


def test_errors_come_before_the_work(tmp_path, model, command):
    code, _, error = command("fleet", "run", "nowhere", "--out", "out", "--model", model)
    assert code == 1
    assert "there is no 'nowhere'" in error
    (tmp_path / "empty").mkdir()
    code, _, error = command("fleet", "run", "empty", "--out", "out", "--model", model)
    assert code == 1
    assert "'empty' holds neither frames nor videos" in error
    write_frames(tmp_path / "root" / "3", range(2))
    code, _, error = command("fleet", "run", "root", "--out", "out", "--model", "none")
    assert code == 1
    assert error.count("\n") == 1
    code, _, error = command(
        "fleet", "run", "root", "--out", "out", "--model", model, "--workers", "0"
    )
    assert code == 1
    assert "0 workers read nothing; give at least 1." in error
    code, _, error = command(
        "fleet", "run", "root", "--out", "out", "--model", model, "--preset", "clinical"
    )
    assert code == 1  # a preset that was never fitted, before any study is opened
    assert error.count("\n") == 1


def test_workers_are_as_many_as_cores_and_memory_allow(model, monkeypatch):
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda pid: set(range(8)))
    need = worker_memory(model)
    monkeypatch.setattr(processes, "usable_memory", lambda: 100 * need)
    assert plan_workers(None, model, 50) == (8, 1)
    assert plan_workers(None, model, 2) == (2, 4)
    monkeypatch.setattr(processes, "usable_memory", lambda: 4 * need)
    assert plan_workers(None, model, 50) == (3, 2)
    monkeypatch.setattr(processes, "usable_memory", lambda: 0)
    assert plan_workers(None, model, 50) == (1, 8)
    assert plan_workers(16, model, 50) == (16, 1)


def test_memory_of_this_machine_is_known():
    assert 64 << 20 < processes.usable_memory() < 1 << 50
