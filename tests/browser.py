"""A headless Chromium, driven over a pipe with the DevTools protocol; it needs no package.

Messages are JSON, each ended by a zero byte; Chromium reads them from descriptor 3 and writes to 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-default-apps", "--mute-audio", "--hide-scrollbars",
    "--disable-features=Translate,MediaRouter,OptimizationHints", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """Path of Chromium, or None."""
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


class BrowserError(RuntimeError):
    """Chromium failed to execute a command."""


class Browser:
    """One Chromium with a profile of its own."""

    def __init__(self, timeout: float = 60.0) -> None:
        path = chromium()
        if path is None:
            raise BrowserError("Chromium is not installed")
        self._timeout = timeout  # seconds to wait for an answer
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        to_read, self._to_write = os.pipe()
        self._from_read, from_write = os.pipe()
        # The shell moves the pipes to the two descriptors that Chromium requires.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        arguments = [path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, *arguments],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop Chromium and remove its profile."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        os.close(self._to_write)
        os.close(self._from_read)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events received meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to_write, data) :]
        while True:
            answer = self._receive(self._timeout)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def collect(self, seconds: float) -> None:
        """Receive events for some seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self.events.append(self._receive(left))
            except TimeoutError:
                return

    def _receive(self, timeout: float) -> dict[str, Any]:
        until = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._from_read], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._from_read, 1 << 20)
            if not data:
                raise BrowserError("Chromium has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(
        self,
        path: Path,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        scale: float = 1,
    ) -> "Tab":
        """Load a file in a new tab."""
        return Tab(self, path, width, height, dark, scale)


class Tab:
    """One page, and what happened on it."""

    def __init__(
        self, browser: Browser, path: Path, width: int, height: int, dark: bool, scale: float
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height, scale)
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for('document.readyState === "complete"')

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            message = details.get("exception", {}).get("description", details.get("text"))
            raise BrowserError(f"{expression}: {message}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + self._browser._timeout
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise BrowserError(f"never became true: {expression}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Let the page draw."""
        self.run("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """`kind` is mousePressed, mouseReleased, mouseMoved or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """Scroll an element into view and click its middle once it stands still."""
        x, y = self.middle(selector)
        while True:
            self.settle()
            before, (x, y) = (x, y), self.middle(selector)
            if before == (x, y):
                break
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element, after scrolling it into view."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        return box[0], box[1]

    def key(self, key: str, **more: Any) -> None:
        """Press and release a key, such as 'ArrowRight' or '+'."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)
        self.settle()

    def screenshot(self, *, whole: bool = False, quality: int | None = None) -> bytes:
        """The page as PNG, or as JPEG of a quality."""
        options: dict[str, Any] = {"format": "png"}
        if quality is not None:
            options = {"format": "jpeg", "quality": quality}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **options)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as printed on A4."""
        answer = self.call(
            "Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69
        )
        return base64.b64decode(answer["data"])

    def seen(self, method: str) -> list[dict[str, Any]]:
        """Events of this tab so far."""
        self._browser.collect(0.05)
        events = (e for e in self._browser.events if e.get("sessionId") == self._session)
        return [event["params"] for event in events if event["method"] == method]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        messages = [e["exceptionDetails"]["text"] for e in self.seen("Runtime.exceptionThrown")]
        messages += [e["entry"]["text"] for e in self.seen("Log.entryAdded")]
        messages += [
            json.dumps(e["args"])
            for e in self.seen("Runtime.consoleAPICalled")
            if e["type"] in ("error", "warning", "assert")
        ]
        return messages

    def requests(self) -> list[str]:
        """Addresses that the page requested, except files and embedded data."""
        urls = [e["request"]["url"] for e in self.seen("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith(("data:", "file:", "about:"))]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
