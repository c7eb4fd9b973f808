"""A headless Chromium driven over the DevTools protocol through a pipe: no port, no dependency.

Protocol: chromedevtools.github.io/devtools-protocol (1.3). Messages are JSON ended by a NUL byte; Chromium reads them
from file descriptor 3 and writes to 4 (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)


class Browser:
    """One browser with one page; use it as a context manager."""

    def __init__(self, executable: str, timeout_s: float = 60) -> None:
        self.executable, self.timeout_s = executable, timeout_s
        self.events: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        ours, theirs = [], []
        for ends, end in ((os.pipe(), 0), (os.pipe(), 1)):
            theirs.append(fcntl.fcntl(ends[end], fcntl.F_DUPFD_CLOEXEC, 10))  # out of the way of 3 and 4
            ours.append(fcntl.fcntl(ends[1 - end], fcntl.F_DUPFD_CLOEXEC, 10))
            for descriptor in ends:
                os.close(descriptor)
        self._write, self._read = ours
        quiet = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, theirs[0], 3), (os.POSIX_SPAWN_DUP2, theirs[1], 4)]
        command = [self.executable, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._pid = os.posix_spawn(self.executable, command, os.environ, file_actions=actions, setpgroup=0)
        for descriptor in (*theirs, quiet):
            os.close(descriptor)
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], self.timeout_s)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError("the browser has gone")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def show(self, page: Path, width: int, height: int, scheme: str) -> None:
        """Open a local page in a window of that size with a colour scheme, `light` or `dark`."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.prefer(scheme)
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def prefer(self, scheme: str) -> None:
        """Switch the colour scheme of the page that is open."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; its exception is an error."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "exception"))
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript condition holds."""
        end = time.monotonic() + self.timeout_s
        while not self.eval(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never came true: {condition}")
            time.sleep(0.05)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of the window, or of the whole page."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    @property
    def complaints(self) -> list[str]:
        """Console errors, warnings and exceptions since the page was opened."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
            if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
                found.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
                found.append(params["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """Every URL that the page asked for since it was opened."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]
