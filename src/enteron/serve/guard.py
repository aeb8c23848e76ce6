"""What is refused before any page sees it.

Host      only the names under which this server was started: a foreign name that was made to point
          here (DNS rebinding) is refused.
Origin    whatever changes something comes from a page of this server: with its Origin, as JSON and
          with a header of our own, which no form and no foreign script can send.
Sizes     bodies and addresses have a limit.
Time      a body has to arrive within seconds; heads and answers are watched by `server.py`.

Every answer carries a content security policy that allows nothing but files of this server, and no
answer carries a traceback or a path.
"""

import asyncio
import sys
import traceback
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from enteron.errors import EnteronError

LARGEST_BODY: Final = 256 << 10  # bytes: reports are text of a few kilobytes
LONGEST_QUERY: Final = 2 << 10
BODY_SECONDS: Final = 10.0
HEADER: Final = "x-enteron"
SAFE: Final = frozenset({"GET", "HEAD"})
UNSAFE: Final = frozenset({"POST"})

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def refusal(status: int, problem: str, remedy: str = "") -> JSONResponse:
    """An answer that says why not."""
    return JSONResponse({"problem": problem, "remedy": remedy}, status)


class Guard:
    """Wraps the application; `hosts` are the allowed values of the header Host, with the port."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refused(scope)
        body = b""
        if refused is None and scope["method"] in UNSAFE:
            try:
                body = await asyncio.wait_for(_read_body(receive), BODY_SECONDS)
            except TimeoutError:
                refused = refusal(408, "the request did not arrive in time", "send it again")
            except OverflowError:
                refused = refusal(413, "the request is too large", "send less at once")
        if refused is not None:
            await refused(scope, receive, guarded_send)
            return
        try:
            await self._app(scope, _replayed(body, receive), guarded_send)
        except ConnectionError:
            return  # the client is gone
        except EnteronError as error:
            answer = refusal(422, error.problem, error.remedy)
            await _answer_late(answer, started, scope, receive, guarded_send)
        except Exception as error:
            _log(error)
            answer = refusal(500, "the server failed to answer", "see its terminal")
            await _answer_late(answer, started, scope, receive, guarded_send)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return refusal(421, "this server does not answer under that name")
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return refusal(414, "the address is too long")
        method = scope["method"]
        if method not in SAFE | UNSAFE:
            return refusal(405, "that method is not used here")
        origin = headers.get("origin")
        own = f"{scope['scheme']}://{hosts[0].lower()}"
        if origin is not None and origin.lower() != own:
            return refusal(403, "requests of other sites are refused")
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if site not in (None, "same-origin", "none") and not (
            method in SAFE and mode == "navigate" and headers.get("sec-fetch-dest") == "document"
        ):
            return refusal(403, "requests of other sites are refused")
        if method in SAFE:
            return None
        if origin is None:
            return refusal(403, "the request does not say which page sent it")
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return refusal(415, "only JSON is taken")
        if headers.get(HEADER) is None:
            return refusal(403, "the request does not come from a page of this server")
        stated = headers.get("content-length", "0")
        if not stated.isdigit() or int(stated) > LARGEST_BODY:
            return refusal(413, "the request is too large", "send less at once")
        return None


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise TimeoutError
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            raise OverflowError
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, then whatever else happens on the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer_late(
    answer: JSONResponse, started: bool, scope: Scope, receive: Receive, send: Send
) -> None:
    if not started:  # else the connection just ends
        await answer(scope, receive, send)


def _log(error: BaseException) -> None:
    """Type and positions in code, for the terminal; an exception's text may hold values."""
    places = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    print(f"enteron serve: {type(error).__name__} at {' < '.join(places[:-6:-1])}", file=sys.stderr)
