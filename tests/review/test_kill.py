"""kill -9 at any moment loses no acknowledged action: of the store, and of the server."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from enteron.review.store import REVIEWS, ReviewStore
from tests.review.many_readers import make_root, run_load

WRITER = """
import sys
from enteron.review.actions import Comment, Confirm, Reject
from enteron.review.store import ConflictError, ReviewStore
from tests.review.test_store import OPENING

name, path = sys.argv[1:]
store = ReviewStore(path)
number = 0
while True:
    number += 1
    key = f"{name}-{number}"
    action = (Confirm(event="m3"), Reject(event="m4"), Comment(text=key))[number % 3]
    try:
        version = store.state("s1", OPENING).version
        store.append("s1", name, action, expected=version, opening=OPENING, key=key)
    except ConflictError:
        continue
    print(key, flush=True)
"""


def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path):
    path = tmp_path / REVIEWS
    ReviewStore(path).close()
    files = [tmp_path / f"{name}.txt" for name in "abcd"]
    processes: list[subprocess.Popen[bytes]] = []
    for file in files:
        with file.open("wb") as out:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", WRITER, file.stem, str(path)],
                    stdout=out, stderr=subprocess.PIPE, cwd=os.getcwd(),  # noqa: PTH109
                )
            )  # fmt: skip
    try:
        for process, file in zip(processes, files, strict=True):  # each at another moment
            until = time.monotonic() + 120
            while file.stat().st_size < 100 and process.poll() is None:
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
    finally:
        for process in processes:
            process.kill()
            _, errors = process.communicate()
            assert process.returncode == -signal.SIGKILL, errors.decode()
    # A line that was cut off was not acknowledged to anybody.
    acknowledged = {line for f in files for line in f.read_text().split("\n")[:-1]}
    assert len(acknowledged) > 20
    connection = sqlite3.connect(path)
    recorded = [key for (key,) in connection.execute("SELECT key FROM record WHERE key NOT NULL")]
    connection.close()
    assert acknowledged <= set(recorded)
    assert len(recorded) == len(set(recorded))
    with ReviewStore(path) as store:
        found = store.verify()
        assert found.problems == ()
        assert found.rows == len(recorded) + 1  # and the opening
        assert store.state("s1").number == found.rows


@pytest.mark.slow
def test_twenty_readers_and_a_server_that_is_killed(tmp_path):
    outcome = run_load(make_root(tmp_path), readers=20, seconds=40, kills=3, pause=0.5)
    assert outcome.kills == 3
    assert outcome.lost == 0
    assert outcome.problems == ()
    assert len(outcome.acknowledged) > 100
    # 409: somebody else was faster; 422: nothing to undo. Nothing else happens.
    assert {answer.split()[1] for answer in outcome.answers} <= {"200", "409", "400", "422"}
