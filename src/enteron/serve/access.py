"""Who may do what.

By default there is one local user, and no login: the server listens on this machine only. With a
token, or with a file of users, everyone logs in: a browser then holds a random session, the server
its hash. A link with a code opens the first browser; it works once.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from enteron.ids import id_problem

Role = Literal["reader", "viewer"]
"""A viewer looks at everything and changes nothing."""

COOKIE: Final = "enteron_session"
SESSION_SECONDS: Final = 12 * 3600.0  # without a request
CODE_SECONDS: Final = 300.0
MOST_SESSIONS: Final = 500
FREE_TRIES: Final = 5  # wrong logins of an address before it has to wait
WAIT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class User:
    """Somebody who uses the reader."""

    name: str
    role: Role


@dataclass
class _Session:
    user: User
    used: float


class TooManyTriesError(Exception):
    """An address has tried too many wrong logins."""


Verify = Callable[[str, str], Role | None]
"""Name and password, or token, to a role; None where they are wrong."""


class Access:
    """Sessions of people who logged in; without `verify` everybody is the local user."""

    def __init__(
        self, local: User, verify: Verify | None = None, *, by_token: bool = False
    ) -> None:
        self._local, self._verify = local, verify
        self.by_token = by_token
        self._sessions: dict[str, _Session] = {}
        self._codes: dict[str, float] = {}
        self._tries: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    @property
    def needs_login(self) -> bool:
        """Whether people have to log in."""
        return self._verify is not None

    def user(self, session: str | None) -> User | None:
        """The user of a session; None where there is none, or no longer."""
        if self._verify is None:
            return self._local
        if session is None:
            return None
        now = time.monotonic()
        with self._lock:
            held = self._sessions.get(_hashed(session))
            if held is None or now - held.used > SESSION_SECONDS:
                self._sessions.pop(_hashed(session), None)
                return None
            held.used = now
            return held.user

    def log_in(self, name: str, secret: str, address: str) -> str | None:
        """A new session; None where name and secret do not belong together."""
        if self._verify is None:
            return None
        now = time.monotonic()
        with self._lock:
            tries = [at for at in self._tries.get(address, []) if now - at < WAIT_SECONDS]
            self._tries[address] = tries
            if len(tries) >= FREE_TRIES:
                raise TooManyTriesError
        role = None if id_problem(name) is not None else self._verify(name, secret)
        if role is None:
            with self._lock:
                self._tries[address].append(now)
                if len(self._tries) > MOST_SESSIONS:
                    self._tries.pop(next(iter(self._tries)))
            return None
        return self._begin(User(name, role))

    def new_code(self) -> str:
        """A code that logs in the local user once, for the browser that is opened at the start."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[_hashed(code)] = time.monotonic() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """A session for a code that was not used before."""
        with self._lock:
            until = self._codes.pop(_hashed(code), None)
        if until is None or until < time.monotonic():
            return None
        return self._begin(self._local)

    def log_out(self, session: str | None) -> None:
        """End a session: its cookie is worth nothing from now on."""
        if session is not None:
            with self._lock:
                self._sessions.pop(_hashed(session), None)

    def _begin(self, user: User) -> str:
        session = secrets.token_urlsafe(32)
        with self._lock:
            if len(self._sessions) >= MOST_SESSIONS:
                oldest = min(self._sessions, key=lambda key: self._sessions[key].used)
                del self._sessions[oldest]
            self._sessions[_hashed(session)] = _Session(user, time.monotonic())
        return session


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def token_verifier(token: str) -> Verify:
    """Everybody who knows the token is a reader, under the name that they give."""
    expected = _hashed(token)

    def verify(_name: str, secret: str) -> Role | None:
        return "reader" if hmac.compare_digest(_hashed(secret), expected) else None

    return verify
