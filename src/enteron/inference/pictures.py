"""The pictures of a study as an encoder wants them, decoded and resized ahead of it."""

import queue
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from enteron.inference.encoder import Squares
from enteron.model.preprocessing import Preprocessing
from enteron.study.study import Frame, Study


@dataclass(frozen=True, slots=True, eq=False)
class Square:
    """One frame, resized; or the reason why there is none."""

    number: int
    pixels: Squares | None  # (3, size, size)
    problem: str | None


def squares(
    study: Study, start: int, preprocessing: Preprocessing, *, workers: int = 2, ahead: int = 128
) -> Generator[Square, None, None]:
    """Every frame from row `start` on, in order, with about `ahead` of them held in memory."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="enteron-pictures")
    made: queue.Queue[Future[Square] | None] = queue.Queue(ahead)
    stopped = threading.Event()

    def produce() -> None:
        try:
            for future in _submitted(pool, study, start, preprocessing):
                made.put(future)
                if stopped.is_set():
                    return
            made.put(None)
        except BaseException as error:  # handed on to whoever waits for the next picture
            failed: Future[Square] = Future()
            failed.set_exception(error)
            made.put(failed)

    producer = threading.Thread(target=produce, name="enteron-study", daemon=True)
    producer.start()
    try:
        while (future := made.get()) is not None:
            yield future.result()
    finally:
        stopped.set()
        while producer.is_alive():  # it may be waiting for a place in the queue
            _drain(made)
            producer.join(0.01)
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(
    pool: ThreadPoolExecutor, study: Study, start: int, preprocessing: Preprocessing
) -> Iterator["Future[Square]"]:
    """One future a frame.

    Files are read in the pool; a video comes out in order, decoded by threads of its own, and only
    the resizing is left to the pool.
    """
    if study.random_access:
        for number in study.numbers[start:].tolist():
            yield pool.submit(lambda n: square_of(study.frame(n), preprocessing), number)
    else:
        for frame in study.frames(start):
            yield pool.submit(square_of, frame, preprocessing)


def square_of(frame: Frame, preprocessing: Preprocessing) -> Square:
    """One frame, resized as the preprocessing asks."""
    if frame.image is None:
        return Square(frame.number, None, frame.problem)
    picture = torch.from_numpy(frame.image).permute(2, 0, 1).unsqueeze(0)
    return Square(frame.number, preprocessing.square(picture)[0].contiguous().numpy(), None)


def _drain(made: "queue.Queue[Future[Square] | None]") -> None:
    while True:
        try:
            made.get_nowait()
        except queue.Empty:
            return
