"""A worker: a process that reads the studies it is sent, one line of JSON each.

It is started by `processes.WorkerProcesses` as `python -m enteron.fleet.worker`. The first line on
its standard input is the assignment, every other one a task; it answers on its standard output with
`{"frames": n}` while a study is being encoded and `{"outcome": ...}` at its end. It ends with its
parent, however that ends.
"""

import ctypes
import os
import resource
import signal
import sys
from typing import IO, Any

from enteron.errors import EnteronError
from enteron.files import json_text
from enteron.fleet.task import Task
from enteron.fleet.work import Assignment, StudyWorker

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    """Answer tasks until the input ends."""
    parent = os.getppid()
    _end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Whatever a library prints must not look like an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        worker = StudyWorker(Assignment.model_validate_json(sys.stdin.readline()))
    except EnteronError as error:
        _answer(answers, {"refused": [error.problem, error.remedy]})
        return
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        outcome = worker.work(
            Task.model_validate_json(line), lambda count: _answer(answers, {"frames": count})
        )
        _answer(answers, {"outcome": outcome.model_dump(mode="json"), "memory": _peak_memory()})


def _answer(answers: IO[str], content: dict[str, Any]) -> None:
    answers.write(json_text(content) + "\n")
    answers.flush()


def _peak_memory() -> int:
    """Bytes of memory that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _end_with_parent(parent: int) -> None:
    """Ask the kernel to end this process with its parent, even if that is killed."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended in between
            os._exit(1)


if __name__ == "__main__":
    main()
