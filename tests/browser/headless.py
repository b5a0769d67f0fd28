"""A real Chromium without a window, and what its pages do: complaints, requests, and what is seen.

It is told what to do over two pipes, in the DevTools protocol: JSON objects that end with a NUL.  Every wait is for an
answer or an event, and bounded.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

BOUND = 60.0  #: seconds for anything that should take less than one; the machine may be busy
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WORDS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


class Browser:
    """One process, and one page of it."""

    def __init__(self, program: str, folder: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()  # (read, write) of what it says and of what it is told
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs[0], ours[1])]  # 3 and 4 become free
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT, 0o600)
        actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4),
                   (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]  # fmt: skip
        argv = [program, *WORDS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        environ = {**os.environ, "HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        self.pid = os.posix_spawn(program, argv, environ, file_actions=actions, setpgroup=0)
        for fd in (theirs[0], ours[1], log, *high):
            os.close(fd)
        self._read, self._write = ours[0], theirs[1]
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self) -> None:
        """End it, and all its processes."""
        self._session = ""
        try:
            self.call("Browser.close")
        except (OSError, EOFError):
            pass
        with os.fdopen(os.pidfd_open(self.pid)) as handle:
            if not select.select([handle], [], [], BOUND)[0]:
                os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one call; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        answer = self._until(lambda found: found.get("id") == self._number)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + BOUND
        while True:
            while b"\0" not in self._buffer:
                left = deadline - time.monotonic()
                assert left > 0 and select.select([self._read], [], [], left)[0], "the browser does not answer"
                more = os.read(self._read, 1 << 20)
                if not more:
                    raise EOFError("the browser has ended")
                self._buffer += more
            first, _, self._buffer = self._buffer.partition(b"\0")
            found: dict[str, Any] = json.loads(first)
            if "id" not in found:
                self.events.append(found)
            if wanted(found):
                return found

    # --- pages

    def open(
        self, path: Path, width: int = 1240, height: int = 900, scheme: str = "light", scripts: bool = True
    ) -> None:
        """Show a file, until it has loaded and is drawn; not `scripts`: those of pages are switched off."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.media(scheme)
        self.events.clear()
        loader = self.call("Page.navigate", url=path.as_uri())["loaderId"]

        def is_loaded(event: dict[str, Any]) -> bool:
            found = event.get("params", {})
            return (found.get("name"), found.get("loaderId")) == ("load", loader)

        if not any(map(is_loaded, self.events)):
            self._until(is_loaded)
        if scripts:
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def media(self, scheme: str, medium: str = "screen") -> None:
        """Prefer light or dark, on a screen or in print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Move the pointer and click."""
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, height: float | None = None) -> None:
        """Write the page, or its upper part, as PNG."""
        width, whole = self.run("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height or whole, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def paper(self) -> bytes:
        """The page as PDF, as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    # --- what has happened since the page was opened

    def complaints(self) -> list[str]:
        """What the console shows, exceptions, and dialogs."""
        texts = {
            "Log.entryAdded": lambda found: found["entry"]["text"],
            "Runtime.consoleAPICalled": lambda found: str(found["args"]),
            "Runtime.exceptionThrown": lambda found: found["exceptionDetails"]["text"],
            "Page.javascriptDialogOpening": lambda found: found["message"],
        }
        return [texts[event["method"]](event["params"]) for event in self.events if event.get("method") in texts]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for, itself included."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
