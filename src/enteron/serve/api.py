"""The reader's interface for its pages: readings, pictures, and what people decide.

GET   /api/studies                        what the worklist shows
      /api/studies/{study}                facts of a reading
      /api/studies/{study}/curves         its scores in 8 bits
      /api/studies/{study}/source         where its pictures come from
      /api/studies/{study}/frames         a batch of pictures: ?start=POSITION&count=N
      /api/studies/{study}/picture        one picture: ?frame=N&whole=1
      /api/studies/{study}/review         what people decided; ?after=NUMBER: 204 if nothing is new
      /api/studies/{study}/history        who did what when
      /api/studies/{study}/signed         a signed version: ?version=N
      /api/studies/{study}/export/{format}  json, csv, labels, label-studio, fhir, dicom
POST  /api/studies/{study}/actions        one action, with the version that the person saw
      /api/studies/{study}/undo, redo
"""

import io
import re
import struct
import zipfile
from dataclasses import asdict
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from enteron.folders.reading import RunRecord, event_rows
from enteron.folders.trust import cautions, learnt_from
from enteron.review.actions import deed, parse_action
from enteron.review.exports import ExportFormat, Reviewed, export_study, reviewed
from enteron.review.state import ReviewState
from enteron.review.summary import Finding, summarise
from enteron.serve.access import COOKIE, User
from enteron.serve.opened import OpenedReading
from enteron.serve.pictures import Answer, Flag
from enteron.serve.service import Service
from enteron.types import Event

MOST_FRAMES: Final = 64  # in one batch
AT_ONCE: Final = 4  # pictures after which is looked whether somebody still waits for the batch
PLACEHOLDERS: Final = {
    flag: (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160"><rect width="160" '
        'height="160" fill="#1b242a"/><text x="80" y="84" text-anchor="middle" font-size="13" '
        f'font-family="sans-serif" fill="#a3b1bb">{text}</text></svg>'
    )
    for flag, text in {
        Flag.UNREADABLE: "cannot be read",
        Flag.ABSENT: "no picture stored",
        Flag.CHANGED: "file has changed",
        Flag.WITHHELD: "title card?",
    }.items()
}
NO_STUDY: Final = "there is no reading of that study"

router = APIRouter()


def service_of(request: Request) -> Service:
    """What every answer is made from."""
    return request.app.state.service


def current_user(request: Request) -> User:
    """Who asks; 401 without a session."""
    found = service_of(request).access.user(request.cookies.get(COOKIE))
    if found is None:
        raise HTTPException(401, "log in first")
    return found


Person = Annotated[User, Depends(current_user)]


def current_reader(person: Person) -> User:
    """Who changes something; 403 for viewers."""
    if person.role != "reader":
        raise HTTPException(403, "viewers cannot change anything")
    return person


def opened_reading(study: str, request: Request, person: Person) -> OpenedReading:
    """The reading of the study in the address, for somebody who may see it."""
    reading = service_of(request).readings.get(study)
    if reading is None:
        raise HTTPException(404, NO_STUDY)
    return reading


Reader = Annotated[User, Depends(current_reader)]
Opened = Annotated[OpenedReading, Depends(opened_reading)]
TheService = Annotated[Service, Depends(service_of)]


class NewAction(BaseModel):
    """An action of a person."""

    model_config = ConfigDict(extra="forbid")

    action: dict[str, Any]
    expected: int | None = Field(default=None, ge=0)
    key: str | None = Field(default=None, min_length=8, max_length=64)


class Step(BaseModel):
    """Undo or redo."""

    model_config = ConfigDict(extra="forbid")

    expected: int = Field(ge=0)
    key: str | None = Field(default=None, min_length=8, max_length=64)


# ---- readings


@router.get("/api/studies")
def studies(service: TheService, person: Person) -> JSONResponse:
    """The worklist."""
    return JSONResponse(worklist(service, person))


@router.get("/api/studies/{study}")
def facts(reading: Opened) -> Response:
    """Facts of a reading."""
    return _compressed(reading.facts, "application/json")


@router.get("/api/studies/{study}/curves")
def curves(reading: Opened) -> Response:
    """The scores of a reading in 8 bits."""
    return _compressed(reading.curves, "application/octet-stream")


@router.get("/api/studies/{study}/source")
def source(reading: Opened) -> JSONResponse:
    """Where pictures come from now."""
    state = reading.pictures.state
    return JSONResponse(asdict(state))


@router.get("/api/studies/{study}/frames")
async def frames(
    reading: Opened,
    request: Request,
    start: Annotated[int, Query(ge=0)],
    count: Annotated[int, Query(ge=1, le=MOST_FRAMES)] = 1,
    step: Annotated[int, Query(ge=1, le=64)] = 1,
) -> Response:
    """A batch of pictures.

    A video is decoded for one batch after the other, and no longer than somebody waits for it:
    whoever has jumped elsewhere has given up the batches before.
    """
    positions = range(start, min(start + count * step, len(reading.frames)), step)
    answers: list[Answer] = []
    async with reading.turn:
        for first in range(0, len(positions), AT_ONCE):
            if first and await request.is_disconnected():
                return Response(status_code=499)
            some = positions[first : first + AT_ONCE]
            answers += await run_in_threadpool(reading.pictures.jpegs, some)
    return Response(batch(positions, answers), media_type="application/octet-stream")


@router.get("/api/studies/{study}/picture")
def picture(
    reading: Opened,
    frame: Annotated[int, Query(ge=0)],
    whole: bool = False,
    withheld: bool = False,
    placeholder: bool = False,
) -> Response:
    """One picture; where there is none, a drawing that says so (`placeholder`), or 404.

    `whole` is in full size also where a pack has a small one; `withheld` also a title card.
    """
    position = reading.position(frame)
    pictures = reading.pictures
    if withheld:
        flag, jpeg = pictures.withheld(position)
    else:
        flag, jpeg = pictures.whole(position) if whole else pictures.jpegs([position])[0]
    if flag is not Flag.SHOWN:
        if placeholder:
            return Response(PLACEHOLDERS[flag], media_type="image/svg+xml")
        raise HTTPException(404, "there is no picture of this frame")
    return Response(jpeg, media_type="image/jpeg")


# ---- reviews


def review_table(reading: OpenedReading, state: ReviewState, person: User) -> dict[str, Any]:
    """A state with what follows from it, for one person."""
    return {
        "state": state.table(),
        "summary": summarise(state, reading.clock).table(),
        "user": {"name": person.name, "role": person.role},
        "can_undo": bool(state.undoable.get(person.name)),
        "can_redo": bool(state.redoable.get(person.name)),
    }


@router.get("/api/studies/{study}/review")
def review(
    study: str,
    reading: Opened,
    service: TheService,
    person: Person,
    after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """What people decided."""
    state = service.store.state(study, reading.opening)
    if after is not None and state.number <= after and state.reading == reading.opening.reading:
        return Response(status_code=204)
    return JSONResponse(review_table(reading, state, person))


@router.get("/api/studies/{study}/history")
def history(study: str, reading: Opened, service: TheService) -> JSONResponse:
    """Who did what when."""
    entries = service.store.history(study)
    return JSONResponse(
        {
            "entries": [
                {
                    "number": entry.number,
                    "user": entry.user,
                    "time": entry.time,
                    "kind": entry.action.kind,
                    "sentence": f"{entry.user} {deed(entry.action, entry.number)}",
                    "event": getattr(entry.action, "event", None),
                }
                for entry in entries
                if entry.action.kind not in ("viewed", "time")
            ]
        }
    )


@router.get("/api/studies/{study}/signed")
def signed(
    study: str,
    reading: Opened,
    service: TheService,
    person: Person,
    version: Annotated[int | None, Query(ge=1)] = None,
) -> JSONResponse:
    """A signed version."""
    state = service.store.signed(study, version)
    latest = service.store.state(study)
    found = Reviewed(state, reading.reading, service.store.head())
    return JSONResponse(
        {
            **review_table(reading, state, person),
            "versions": len(latest.signatures),
            "about": about_the_reading(reading.reading.run),
            "pictures": {event.id: _best_frame(found, event) for event in found.summary.findings},
        }
    )


def about_the_reading(run: RunRecord) -> list[str]:
    """What a report says of the model whose proposals were reviewed."""
    return [*cautions(run), *(said for said in [learnt_from(run.model)] if said is not None)]


def _best_frame(found: Reviewed, event: Finding) -> int:
    """The frame that a report shows of a finding: a stored one, else that of the highest score."""
    stored = found.key_frame(event)
    if stored is not None:
        return stored
    scores = found.reading.scores
    rows = event_rows(Event(event.start, event.stop, event.label), scores)
    return int(scores.axis.frames[scores.best_row(event.label, rows)])


@router.get("/api/studies/{study}/export/{format}")
def export(
    study: str,
    format: ExportFormat,  # noqa: A002
    reading: Opened,
    service: TheService,
    draft: bool = False,
) -> Response:
    """The last signed version, or what stands now, in a format of other programs."""
    found = reviewed(service.store, reading.reading, draft=draft)
    exported = export_study(found, format)
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", study)
    if len(exported) == 1:
        name, content = exported[0]
        return _download(content, f"{stem}-{name}", _MEDIA.get(Path(name).suffix))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in exported:
            archive.writestr(f"{stem}/{name}", content)
    return _download(packed.getvalue(), f"{stem}-{format}.zip", "application/zip")


_MEDIA: Final = {".json": "application/json", ".csv": "text/csv", ".xml": "application/xml"}


def _download(content: bytes, name: str, media_type: str | None) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type or "application/octet-stream", headers=headers)


@router.post("/api/studies/{study}/actions")
def act(
    study: str, new: NewAction, reading: Opened, service: TheService, person: Reader
) -> JSONResponse:
    """Record an action."""
    state = service.store.append(
        study,
        person.name,
        parse_action(new.action),
        expected=new.expected,
        opening=reading.opening,
        key=new.key,
    )
    return JSONResponse(review_table(reading, state, person))


@router.post("/api/studies/{study}/undo")
def undo(
    study: str, step: Step, reading: Opened, service: TheService, person: Reader
) -> JSONResponse:
    """Take back the person's last decision."""
    state = service.store.undo(study, person.name, expected=step.expected, key=step.key)
    return JSONResponse(review_table(reading, state, person))


@router.post("/api/studies/{study}/redo")
def redo(
    study: str, step: Step, reading: Opened, service: TheService, person: Reader
) -> JSONResponse:
    """Bring back what was undone."""
    state = service.store.redo(study, person.name, expected=step.expected, key=step.key)
    return JSONResponse(review_table(reading, state, person))


def worklist(service: Service, person: User) -> dict[str, Any]:
    """The readings with their state."""
    listing = service.catalogue.listing()
    reviewed = set(service.store.studies())
    rows: list[dict[str, Any]] = []
    for entry in listing.entries.values():
        state = service.store.state(entry.study) if entry.study in reviewed else None
        decided = [] if state is None else list(state.findings)
        rows.append(
            {
                "study": entry.study,
                "frames": entry.frames,
                "read": entry.finished,
                "machine": entry.findings,
                "confirmed": len(decided),
                "status": "unread" if state is None else state.status,
                "readers": [] if state is None else list(state.readers),
                "last": None if state is None else state.last_time,
                "versions": 0 if state is None else len(state.signatures),
                "minutes": 0.0
                if state is None
                else round(sum(spent.active for spent in state.times.values()) / 60, 1),
            }
        )
    return {
        "studies": rows,
        "problems": [
            {"folder": problem.folder, "sentence": problem.sentence} for problem in listing.problems
        ],
        "user": {"name": person.name, "role": person.role},
        "needs_login": service.access.needs_login,
        "version": package_version("enteron"),
    }


def batch(positions: range, answers: list[Answer]) -> bytes:
    """Pictures in one answer: how many, then position, flag and length of each, then the JPEGs."""
    head = [struct.pack("<I", len(answers))]
    head += [
        struct.pack("<III", position, int(flag), len(jpeg))
        for position, (flag, jpeg) in zip(positions, answers, strict=True)
    ]
    return b"".join(head) + b"".join(jpeg for _, jpeg in answers)


def _compressed(content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type, headers={"content-encoding": "gzip"})
