"""A folder of readings with the studies behind them, and a server for the tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from enteron.appearance import Likeness
from enteron.decoding.events import DecodedEvent
from enteron.folders.reading import ModelFacts, RunRecord
from enteron.folders.suspicious import write_suspicious
from enteron.priors import load_priors
from enteron.serve.access import Access, User, Verify
from enteron.serve.app import create_app
from enteron.serve.guard import Guard
from enteron.serve.server import allowed_hosts, listen, make_server
from enteron.serve.service import Service
from enteron.study import open_study
from enteron.study.content import read_content
from enteron.types import TrainingSource
from tests.report.making import EVENTS, RUN, scores_for, write_folder, write_frames

PORT = 8000
ORIGIN = f"http://127.0.0.1:{PORT}"
HEADERS = {"origin": ORIGIN, "x-enteron": "1", "content-type": "application/json"}

FINDINGS = (
    DecodedEvent(130, 134, "angiectasia", 0.95, "small intestine"),
    DecodedEvent(150, 161, "blood", 0.91, "small intestine"),
    DecodedEvent(180, 190, "ulcer", 0.85, "small intestine"),
    DecodedEvent(200, 230, "erosion", 0.62, "small intestine"),
    DecodedEvent(250, 252, "erythema", 0.55, "small intestine"),
    DecodedEvent(290, 295, "lymphangioectasis", 0.5, "small intestine"),
    DecodedEvent(350, 351, "polyp", 0.41, "colon"),
)
REVIEWED = (*EVENTS[:6], *FINDINGS)


def write_root(
    root: Path,
    study: str = "s1",
    *,
    pictures: bool = False,
    size: int = 96,
    seconds: float = 0.5,
) -> Path:
    """A reading `root/reading` of the study in `root/studies`; 400 frames, so many seconds each."""
    frames = write_frames(root / "studies" / study, range(400), size)
    opened = open_study(frames, study_id=study)
    scores = scores_for(REVIEWED, study=study, times=np.arange(400) * seconds)
    folder = write_folder(root / "reading", REVIEWED, scores, {**RUN, "unreadable": None})
    content = read_content(opened.numbers, opened.files(), per_row=True)
    run = RunRecord.load(folder)
    assert run is not None
    assert run.identity is not None
    identity = run.identity.model_copy(update={"content": content.hash})
    _rewrite(folder, identity.content)
    run.model_copy(update={"identity": identity}).save(folder)
    write_suspicious(folder, scores, REVIEWED, load_priors(), None)
    if pictures:
        from enteron.report.pictures import choose_pictures, save_pictures

        save_pictures(opened, choose_pictures(scores, REVIEWED), folder, content=content)
    return root


def make_unlike(root: Path) -> None:
    """Let the reading be of a study unlike all that its model knows, which is drawings."""
    folder = root / "reading"
    run = RunRecord.load(folder)
    assert run is not None
    source = TrainingSource(
        title="drawn", kind="drawings", studies=3, frames=9, labels=("stomach",)
    )
    model = ModelFacts(name="tiny", sources=(source,), unproven={"polyp": "never tested"})
    likeness = Likeness(verdict="unlike", nearest="drawings", distances={"drawings": 1.5})
    run.model_copy(update={"model": model, "likeness": likeness}).save(folder)


def _rewrite(folder: Path, content: str | None) -> None:
    import json

    events = json.loads((folder / "events.json").read_text())
    events["identity"]["content"] = content
    (folder / "events.json").write_text(json.dumps(events))


@contextmanager
def client(
    root: Path,
    *,
    verify: Verify | None = None,
    by_token: bool = False,
    studies: Path | None = None,
    device_text: bool = False,
) -> Iterator[TestClient]:
    """The application behind its guard, without a socket."""
    access = Access(User("anna", "reader"), verify, by_token=by_token)
    service = Service.open(root, access, studies=studies, device_text=device_text)
    try:
        app = Guard(create_app(service), allowed_hosts("127.0.0.1", PORT))
        with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as made:
            yield made
    finally:
        service.close()


@contextmanager
def server(
    root: Path, *, verify: Verify | None = None, studies: Path | None = None
) -> Iterator[str]:
    """The application on a socket of this machine; its address."""
    access = Access(User("anna", "reader"), verify)
    service = Service.open(root, access, studies=studies)
    listening = listen("127.0.0.1", 0)
    port = int(listening.getsockname()[1])
    uvicorn = make_server(Guard(create_app(service), allowed_hosts("127.0.0.1", port)))
    thread = threading.Thread(target=lambda: uvicorn.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not uvicorn.started and time.monotonic() < until:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        uvicorn.should_exit = True
        thread.join(20)
        service.close()
