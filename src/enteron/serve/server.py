"""The listening socket: one process, on one address, with limits on slow clients."""

import asyncio
import ipaddress
import socket
import struct
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from enteron.errors import EnteronError

HEAD_SECONDS: Final = 10.0  # for the head of a request to arrive
KEEP_SECONDS: Final = 30  # for the next request to follow
TAKE_SECONDS: Final = 30.0  # in which a client has to take `LEAST_TAKEN` of what waits for it
LEAST_TAKEN: Final = 64 << 10  # bytes: 2 kB/s, less than any line on which a study could be read
MOST_CONNECTIONS: Final = 400


class PatientProtocol(H11Protocol):
    """HTTP, where clients that never end a request's head, or never take an answer, are cut off.

    uvicorn waits for ever: it only knows a limit between two requests, and then closes a connection
    in good order, which waits for the client once more.
    """

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Give the first request some seconds."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Give every further request as many."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            if self._deadline is None:
                self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._disarm()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch whether the client takes anything of what is waiting for it."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._stop_watching()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection on which nothing was asked for some time."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self._hang_up()
        else:
            super().timeout_keep_alive_handler()

    def _watch(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(TAKE_SECONDS, self._require_progress, waiting)

    def _require_progress(self, waiting: int) -> None:
        """Go on only with a client that takes its answer; a drop now and then is not enough.

        Nothing is added while writing is paused, so that the wait for any answer has an end.
        """
        if waiting - self.transport.get_write_buffer_size() >= LEAST_TAKEN:
            self._watch()
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """End the connection at once, and forget what waits for the client.

        Without the option the system would go on holding up to some megabytes for the client, and
        the client would not be told: closing only ends the connection after what was sent.
        """
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:  # the client may be gone already
            at_once = struct.pack("ii", 1, 0)  # linger: on, for 0 s
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.transport.abort()

    def _stop_watching(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on one address of this machine."""
    try:
        if ipaddress.ip_address(host).is_unspecified:
            raise EnteronError(
                f"'{host}' stands for every address of this machine",
                "give the one address under which others reach it",
            )
    except ValueError as error:
        if host != "localhost":
            raise EnteronError(
                f"'{host}' is not an address", "give one such as 127.0.0.1 or 192.168.1.20"
            ) from error
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise EnteronError(
            f"port {port} of {host} cannot be used ({error.strerror})",
            "give another one with --port, or 0 for any free one",
        ) from error
    listening.listen(128)
    return listening


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """Values of the header Host under which the server answers."""
    names = {f"[{host}]" if ":" in host else host}
    if is_loopback(host):
        names |= {"127.0.0.1", "localhost", "[::1]"}
    return frozenset(f"{name}:{port}" for name in names)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server that logs nothing: addresses hold ids of studies."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=3,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=32 << 10,
    )
    return uvicorn.Server(config)
