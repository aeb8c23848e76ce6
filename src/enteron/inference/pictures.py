"""The frames of a study as images for an encoder, decoded and resized ahead of it in threads."""

import queue
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from enteron.model.preprocessing import Preprocessing
from enteron.profile import timed
from enteron.study.field_of_view import FieldsOfView, fields_of_view
from enteron.study.study import Frame, Study


@dataclass(frozen=True, slots=True, eq=False)
class PreparedFrame:
    """One frame, resized and cropped; or the reason why it could not be read."""

    number: int
    image: NDArray[np.uint8] | None  # (3, size, size) RGB
    problem: str | None
    digest: bytes | None = None  # of its own file, if it has one


def study_fields(study: Study, preprocessing: Preprocessing) -> FieldsOfView | None:
    """The fields of view of a study where its borders are to be masked, else None."""
    return fields_of_view(study) if preprocessing.border == "masked" else None


def prepare_frame(
    frame: Frame, preprocessing: Preprocessing, fields: FieldsOfView | None = None
) -> PreparedFrame:
    """Resize and crop one decoded frame; `fields` are its study's, where borders are masked."""
    if frame.image is None:
        return PreparedFrame(frame.number, None, frame.problem, frame.digest)
    with timed("resize"):
        circle = None if fields is None else fields.circle(frame.image)
        image = preprocessing.resize_and_crop(frame.image, circle)
    return PreparedFrame(frame.number, image, None, frame.digest)


def prepared_frames(
    study: Study,
    start: int,
    preprocessing: Preprocessing,
    fields: FieldsOfView | None = None,
    *,
    workers: int = 2,
    ahead: int = 128,
    stop: int | None = None,
) -> Generator[PreparedFrame, None, None]:
    """Every frame from row `start` on, or up to row `stop`; about `ahead` are held in memory."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="enteron-pictures")
    pending: queue.Queue[Future[PreparedFrame] | None] = queue.Queue(ahead)
    stopped = threading.Event()

    def produce() -> None:
        try:
            frames = _submit_frames(pool, study, start, preprocessing, fields)
            for future in islice(frames, None if stop is None else stop - start):
                pending.put(future)
                if stopped.is_set():
                    return
            pending.put(None)  # the end of the study
        except BaseException as error:  # raised again in the consumer
            failed: Future[PreparedFrame] = Future()
            failed.set_exception(error)
            pending.put(failed)

    producer = threading.Thread(target=produce, name="enteron-study", daemon=True)
    producer.start()
    try:
        while (future := pending.get()) is not None:
            yield future.result()
    finally:
        stopped.set()
        while producer.is_alive():  # it may be blocked on a full queue
            _drain(pending)
            producer.join(0.01)
        pool.shutdown(wait=True, cancel_futures=True)


def _submit_frames(
    pool: ThreadPoolExecutor,
    study: Study,
    start: int,
    preprocessing: Preprocessing,
    fields: FieldsOfView | None,
) -> Iterator["Future[PreparedFrame]"]:
    """One future per frame.

    Files are decoded and resized in the pool. A video is decoded in order by threads of its own,
    and the pool only resizes.
    """
    if study.random_access:
        for number in study.numbers[start:].tolist():
            yield pool.submit(
                lambda n: prepare_frame(study.frame(n), preprocessing, fields), number
            )
    else:
        for frame in study.frames(start):
            yield pool.submit(prepare_frame, frame, preprocessing, fields)


def _drain(pending: "queue.Queue[Future[PreparedFrame] | None]") -> None:
    while True:
        try:
            pending.get_nowait()
        except queue.Empty:
            return
