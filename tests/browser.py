"""A headless Chromium for tests and benchmarks, driven by Playwright."""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import BrowserContext, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-default-apps", "--mute-audio", "--hide-scrollbars",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
)  # fmt: skip

LATE = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"""


def chromium() -> str | None:
    """Path of Chromium, or None."""
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


class BrowserError(RuntimeError):
    """Chromium cannot be used."""


class Browser:
    """One Chromium with a profile of its own."""

    def __init__(self, timeout: float = 60.0, flags: Sequence[str] = ()) -> None:
        path = chromium()
        if path is None:
            raise BrowserError("Chromium is not installed")
        self.timeout = timeout  # seconds to wait for something
        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(
            executable_path=path, args=[*FLAGS, *flags]
        )

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
        self._chromium.close()
        self._playwright.stop()

    def open(
        self,
        place: Path | str,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        scale: float = 1,
    ) -> "Tab":
        """Load a file or an address in a new tab."""
        context = self._chromium.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        return Tab(self, context, place if isinstance(place, str) else place.resolve().as_uri())


class Tab:
    """One page, and what happened on it."""

    def __init__(self, browser: Browser, context: BrowserContext, address: str) -> None:
        self._browser, self._context = browser, context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(1000 * browser.timeout)
        self._complaints: list[str] = []
        self._requests: list[str] = []
        self._dialogs: list[str] = []
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._requests.append(request.url))
        self._protocol = context.new_cdp_session(self.page)
        self.page.goto(address)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self._complaints.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol."""
        return self._protocol.send(method, params)

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited.

        Over the protocol, and not as Playwright does it: a page's policy may forbid evaluation.
        """
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
        until = time.monotonic() + self._browser.timeout
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise BrowserError(f"never became true: {expression}")
            self.page.wait_for_timeout(20)

    def wait(self, seconds: float) -> None:
        """Let the page go on for some seconds."""
        self.page.wait_for_timeout(1000 * seconds)

    def settle(self) -> None:
        """Let the page draw; where what was pressed leads to another page, that one."""
        try:
            self.run(LATE)
        except PlaywrightError as error:
            if "navigated" not in str(error) and "destroyed" not in str(error):
                raise
            self.page.wait_for_load_state()
            self.run(LATE)

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
        self.page.mouse.move(x, y)
        self.page.mouse.click(x, y)
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

    def key(self, key: str) -> None:
        """Press and release a key, such as 'ArrowRight', '+' or 'Shift+D'."""
        self.page.keyboard.press(key)
        self.settle()

    def screenshot(self, *, whole: bool = False, quality: int | None = None) -> bytes:
        """The page as PNG, or as JPEG of a quality."""
        if quality is None:
            return self.page.screenshot(full_page=whole)
        return self.page.screenshot(full_page=whole, type="jpeg", quality=quality)

    def pdf(self) -> bytes:
        """The page as printed on A4."""
        return self.page.pdf(print_background=True, format="A4")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        self.page.wait_for_timeout(50)
        return self._complaints

    def dialogs(self) -> list[str]:
        """Texts of alerts and questions that the page has shown."""
        self.page.wait_for_timeout(50)
        return self._dialogs

    def requests(self) -> list[str]:
        """Addresses that the page requested, except files and embedded data."""
        return [
            address
            for address in self._requests
            if not address.startswith(("data:", "file:", "about:", "blob:"))
        ]

    def close(self) -> None:
        self._context.close()
