"""Addresses of the reader's pages, and how failures are answered.

/                           the worklist
/read/{study}               the reader
/report/{study}?version=N   a signed report, to print
/login, /open?code=...      where people log in
/assets/{name}              scripts and styles
/api/...                    enteron.serve.api
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from enteron.errors import EnteronError
from enteron.report.page import asset as report_asset
from enteron.report.page import label_styles
from enteron.review.store import ConflictError, describe
from enteron.serve import api
from enteron.serve.access import COOKIE, TooManyTriesError
from enteron.serve.api import TheService
from enteron.serve.guard import refusal
from enteron.serve.service import Service
from enteron.study.content import digest

PAGES: Final = ("worklist.html", "reader.html", "report.html", "login.html")
FROM_REPORT: Final = ("curves.js", "drawing.js", "timeline.js", "theme.js", "page.css")
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

router = APIRouter()


class Login(BaseModel):
    """A name with a token or a password."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    secret: str = Field(min_length=1, max_length=1024)


def create_app(service: Service) -> FastAPI:
    """The application; `enteron.serve.guard.Guard` has to be around it."""
    app = FastAPI(title="enteron", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service = service
    app.state.assets = _assets()
    app.include_router(router)
    app.include_router(api.router)

    @app.exception_handler(ConflictError)
    def conflict(_: Request, error: ConflictError) -> JSONResponse:
        return JSONResponse(
            {
                "problem": error.problem,
                "remedy": error.remedy,
                "changes": [describe(entry) for entry in error.changes],
            },
            409,
        )

    @app.exception_handler(EnteronError)
    def bad(_: Request, error: EnteronError) -> JSONResponse:
        return refusal(422, error.problem, error.remedy)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:80]
        return refusal(422, f"'{where}' is not as it should be", str(first["msg"])[:200].lower())

    @app.exception_handler(HTTPException)
    def missing(_: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail).lower())

    return app


# ---- who


@router.post("/api/login")
def log_in(login: Login, request: Request, service: TheService) -> Response:
    """Begin a session."""
    address = "" if request.client is None else request.client.host
    try:
        session = service.access.log_in(login.name, login.secret, address)
    except TooManyTriesError:
        return refusal(429, "there were too many wrong tries", "wait half a minute")
    if session is None:
        return refusal(401, "the name and the secret do not belong together", "try again")
    return _with_session(JSONResponse({}), session)


@router.post("/api/logout")
def log_out(request: Request, service: TheService) -> Response:
    """End a session."""
    service.access.log_out(request.cookies.get(COOKIE))
    answer = JSONResponse({})
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


@router.get("/open")
def open_link(code: Annotated[str, Query(max_length=100)], service: TheService) -> Response:
    """Begin a session with a code that works once."""
    session = service.access.redeem(code)
    if session is None:
        return refusal(401, "this link was used already, or is too old", "log in instead")
    return _with_session(RedirectResponse("/", 303), session)


# ---- pages


def page(name: str, request: Request) -> Response:
    """A page, or the way to the login."""
    if request.app.state.service.access.user(request.cookies.get(COOKIE)) is None:
        return RedirectResponse("/login", 303)
    return asset_of(name, request)


@router.get("/")
def worklist_page(request: Request) -> Response:
    """The worklist."""
    return page("worklist.html", request)


@router.get("/read/{study}")
def reader_page(study: str, request: Request) -> Response:
    """The reader."""
    return page("reader.html", request)


@router.get("/report/{study}")
def report_page(study: str, request: Request) -> Response:
    """A signed report."""
    return page("report.html", request)


@router.get("/login")
def login_page(request: Request, service: TheService) -> Response:
    """Where people log in."""
    if not service.access.needs_login:
        return RedirectResponse("/", 303)
    return asset_of("login.html", request)


@router.get("/assets/{name}")
def asset(name: str, request: Request) -> Response:
    """A script or a style sheet."""
    if name in PAGES:
        raise HTTPException(404, "there is no such file")
    return asset_of(name, request)


@router.get("/favicon.ico")
def icon(request: Request) -> Response:
    """The icon."""
    return asset_of("icon.svg", request)


# ---- files


@dataclass(frozen=True)
class _Asset:
    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """Changes with the content."""
        return f'"{digest(self.content).hex()}"'


def _assets() -> dict[str, _Asset]:
    """Every file that is served, by name: nothing else is ever opened for an address."""
    texts: dict[str, str] = {}
    for entry in (files("enteron.serve") / "assets").iterdir():
        texts[entry.name] = entry.read_text(encoding="utf-8")
    for name in FROM_REPORT:
        texts[name] = report_asset(name)
    texts["labels.css"] = label_styles()
    return {
        name: _Asset(text.encode(), TYPES[Path(name).suffix])
        for name, text in texts.items()
        if Path(name).suffix in TYPES
    }


def asset_of(name: str, request: Request) -> Response:
    """A file of `assets/`; browsers ask whether they still have the right one."""
    held: _Asset | None = request.app.state.assets.get(name)
    if held is None:
        raise HTTPException(404, "there is no such file")
    headers = {"etag": held.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == held.tag:
        return Response(status_code=304, headers=headers)
    return Response(held.content, media_type=held.media_type, headers=headers)


def _with_session(answer: Response, session: str) -> Response:
    answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", path="/")
    return answer
