"""Many people review at once while the server is killed: is anything lost, how long do they wait?

The server is `enteron serve` in a process of its own; readers are threads that speak HTTP, as
browsers do: they send an action with a key of its own until it is answered, and log in again after
the server was killed. What was answered is compared with the record afterwards.
"""

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enteron.review.store import REVIEWS, ReviewStore
from tests.review.making import EVENTS, FRAMES, write_reading, write_study

TOKEN = "a token for the test of load"
STUDIES = ("1", "2", "3", "4")


@dataclass
class Outcome:
    """What the readers saw, and what the record holds."""

    acknowledged: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)  # of every answer
    answers: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    server_seconds: float = 0.0  # of CPU
    slowness: list[float] = field(default_factory=list)  # seconds that 5 ms of CPU took meanwhile
    lost: int = 0
    rows: int = 0
    problems: tuple[str, ...] = ()

    def percentile(self, share: float) -> float:
        """Seconds within which a share of answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def make_root(root: Path) -> Path:
    """A folder of four readings."""
    for study in STUDIES:
        write_reading(root / "readings" / study, write_study(root / "studies", study), study)
    return root / "readings"


class Server:
    """`enteron serve` on a fixed port, to be killed and started again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.cpu_seconds = 0.0

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "enteron", "serve", str(self._root), "--no-open", "--token",
             "--port", str(self.port)],
            env={**os.environ, "ENTERON_TOKEN": TOKEN},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}")
            time.sleep(0.05)
        raise RuntimeError("the server does not answer")

    def kill(self) -> None:
        """Kill -9."""
        assert self._process is not None
        self.cpu_seconds += _cpu_seconds(self._process.pid)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def _cpu_seconds(process: int) -> float:
    """CPU that a process has used; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _five_milliseconds() -> float:
    """How long 5 ms of CPU take on this machine now, which others may use as well."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < 0.005:
        pass
    return time.perf_counter() - wall


class Reader(threading.Thread):
    """One person: looks, decides, comments, undoes, signs; in a random order, with pauses."""

    def __init__(
        self, number: int, port: int, outcome: Outcome, until: float, pause: float, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._user, self._study = f"reader{number}", STUDIES[number % len(STUDIES)]
        self._port, self._outcome, self._until, self._pause = port, outcome, until, pause
        self._random = random.Random(f"{seed}-{number}")
        self._connection: http.client.HTTPConnection | None = None
        self._cookie = ""
        self._version = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self._until:
                time.sleep(self._random.expovariate(1 / self._pause))
                self._step()
        except BaseException as error:
            self.failure = error
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _step(self) -> None:
        kind = self._random.choices(
            ("look", "viewed", "time", "decide", "comment", "undo", "redo", "sign"),
            (20, 20, 10, 30, 10, 5, 3, 2),
        )[0]
        path = f"/api/studies/{self._study}"
        if kind == "look":
            self._send("GET", f"{path}/review", None)
            return
        key = uuid.uuid4().hex
        if kind in ("undo", "redo"):
            status = self._send("POST", f"{path}/{kind}", {"expected": self._version, "key": key})
        else:
            action = self._action(kind)
            expected = None if kind in ("viewed", "time", "comment") else self._version
            body = {"action": action, "expected": expected, "key": key}
            status = self._send("POST", f"{path}/actions", body)
        self._outcome.answers[f"{kind} {status}"] += 1
        if status == 200:
            self._outcome.acknowledged.add(key)
        elif status == 409:
            self._send("GET", f"{path}/review", None)  # see what the other one did

    def _action(self, kind: str) -> dict[str, Any]:
        draw = self._random
        if kind == "viewed":
            start = draw.randrange(FRAMES - 20)
            return {"kind": "viewed", "intervals": [[start, start + 20]], "rate": 10}
        if kind == "time":
            return {"kind": "time", "active": 10.0, "idle": 0.5}
        if kind == "comment":
            return {"kind": "comment", "text": f"a remark of {self._user}"}
        if kind == "sign":
            return {"kind": "sign"}
        event = f"m{draw.randrange(3, len(EVENTS))}"
        return draw.choice(
            [
                {"kind": "confirm", "event": event},
                {"kind": "reject", "event": event},
                {"kind": "relabel", "event": event, "label": "erosion"},
                {"kind": "move-landmark", "landmark": "first caecal image",
                 "frame": draw.randrange(450, 550)},
                {"kind": "edit-report", "field": "conclusion", "text": f"by {self._user}"},
            ]
        )  # fmt: skip

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> int:
        """Send until there is an answer, however often the server is killed meanwhile."""
        while True:
            started = time.perf_counter()
            try:
                status, answer = self._once(method, path, body)
            except (OSError, http.client.HTTPException):
                self._hang_up()
                if time.monotonic() > self._until + 120:
                    raise
                time.sleep(0.1)
                continue
            if status == 401:
                self._log_in()
                continue
            self._outcome.seconds.append(time.perf_counter() - started)
            if status == 200 and "state" in answer:
                self._version = answer["state"]["version"]
            return status

    def _log_in(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            self._once("POST", "/api/login", {"name": self._user, "secret": TOKEN})

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {
            "Origin": f"http://127.0.0.1:{self._port}",
            "X-Enteron": "1",
            "Content-Type": "application/json",
            "Cookie": self._cookie,
        }
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if cookie := answer.getheader("Set-Cookie"):
            self._cookie = cookie.partition(";")[0]
        return answer.status, json.loads(text) if text[:1] == b"{" else {}


def run_load(
    root: Path, *, readers: int, seconds: float, kills: int, pause: float, seed: int = 1
) -> Outcome:
    """Let people review for some time, kill the server in between, then check the record."""
    outcome = Outcome()
    server = Server(root)
    server.start()
    until = time.monotonic() + seconds
    people = [Reader(n, server.port, outcome, until, pause, seed) for n in range(readers)]
    try:
        for person in people:
            person.start()
        draw = random.Random(seed)
        for number in range(kills):
            remaining = until - time.monotonic()
            time.sleep(max(0.0, remaining / (kills - number + 1) * draw.uniform(0.8, 1.2)))
            outcome.slowness.append(_five_milliseconds())
            server.kill()
            outcome.kills += 1
            server.start()
        for person in people:
            person.join(seconds + 240)
    finally:
        server.kill()
        outcome.server_seconds = server.cpu_seconds
    failures = [person.failure for person in people if person.failure is not None]
    if failures:
        raise failures[0]
    connection = sqlite3.connect(root / REVIEWS)
    recorded = {key for (key,) in connection.execute("SELECT key FROM record")}
    connection.close()
    outcome.lost = len(outcome.acknowledged - recorded)
    with ReviewStore(root / REVIEWS) as store:
        found = store.verify()
    outcome.rows, outcome.problems = found.rows, found.problems
    return outcome
