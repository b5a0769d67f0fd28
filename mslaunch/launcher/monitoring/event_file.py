"""--events FILE: a line of JSON for each event of a launch; the last is `end` in every case.

If the launcher is killed, it cannot write the last line.  A second process, which is started with the first event, does
that: it waits at a pipe whose other end only the launcher holds.  It needs no more than an interpreter.
"""

from __future__ import annotations

import os
import sys

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.monitoring.event_texts import json_text
from mslaunch.launcher.stdio.own_files import create_own
from mslaunch.launcher.stdio.terminal import FLUSH_SECONDS, OutputFd

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.monitoring.event_texts import EventTexts
    from mslaunch.runtime.loop import Loop

OPTION = "--events"
#: what the second process runs; its standard input is the pipe, its standard output the file
_KEEPER = """
import os, select, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
try:
    with open("/proc/self/comm", "w") as name:
        name.write("mslaunch-events")
except OSError:
    pass
said = b""
while True:
    got = os.read(0, 65536)
    said += got
    if not got or said.endswith(b"\\nover"):
        break
head, line, rest = said.partition(b"\\n")
if line and not rest:
    now = time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)
    began, head = head.split(b" ", 1)
    seconds = "%.3f" % (now - float(began))
    last = head.replace(b"@time@", when.encode()).replace(b'"@seconds@"', seconds.encode()) + b"\\n"
    while last:
        try:
            last = last[os.write(1, last):]
        except BlockingIOError:
            select.select([], [1], [], 60)
            if time.time() > now + 60:
                break
"""


class EventFile:
    """The file, open.  Raises `LaunchError` if it cannot be made."""

    def __init__(self, loop: Loop, path: str, texts: EventTexts, notice: Callable[[str], None]) -> None:
        try:
            fd = create_own(path, os.O_APPEND)
        except OSError as error:
            todo = "name a file that you can write to" + ("; start its reader first" if error.errno == 6 else "")
            raise LaunchError(f"{path} cannot be written: {error.strerror}", OPTION, todo) from None
        self._loop = loop
        self._texts = texts
        self._file = OutputFd(loop, fd, path, notice, owned=True)
        self._pipe = -1
        self._keeper: Any = None
        self._fd = fd

    def begin(self, began: float, **facts: Any) -> None:
        """Write the first event, and start the process that writes the last if we cannot; `began` is wall time."""
        self.take("begin", self._texts.begin(**facts))
        cause = {"text": "the launcher was killed", "rank": None, "host": None, "code": 137}
        last = self._texts.text("end", 0.0, {"attempt": None, "code": 137, "cause": cause})  # which one, nobody knows
        import json

        event = {**json.loads(last), "seconds": "@seconds@", "time": "@time@"}
        self._start_keeper(f"{began} {json_text(event)}\n".encode())

    def _start_keeper(self, message: bytes) -> None:
        import subprocess

        try:
            reader, self._pipe = os.pipe()
        except OSError:  # no descriptor is left: the ranks will tell
            return
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER],
                stdin=reader,
                stdout=self._fd,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            os.write(self._pipe, message)
        except OSError:  # no process can be made: the ranks will tell
            pass
        finally:
            os.close(reader)

    def take(self, name: str, text: str) -> None:
        """Write one event."""
        self._file.send(f"{text}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        """Wait a moment for a slow reader, and close."""
        self._loop.run(lambda: not self._file.pending, FLUSH_SECONDS)
        if self._pipe >= 0:
            try:
                os.write(self._pipe, b"over")
            except OSError:  # it was killed
                pass
            os.close(self._pipe)
            self._pipe = -1
        if self._keeper:
            import subprocess

            try:
                self._keeper.wait(FLUSH_SECONDS)
            except subprocess.TimeoutExpired:  # it was stopped; it is nobody's child then
                pass
        self._file.close()
