"""--progress: what a launch does now, as one line below the output of a terminal, or as lines now and then.

mslaunch: 16/16 ranks on 4 hosts, 12:31, 1.2 MB/s, 1 restart, ranks 3,7 silent for 65 s
mslaunch: sending files to 4 hosts, 120 of 512 MB, 31 MB/s, 13 s left
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import observers as records

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.request import Caller, Request
    from mslaunch.launcher.observers import Observers
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop

_QUIET_START = 2.0  # seconds of running ranks before the line appears unasked
_SILENT = 60.0  # seconds
_WINDOW = 5.0  # seconds over which a rate is taken
_MOST_NAMED = 8  # silent ranks
#: seconds of the launch up to which a plain line comes every so many seconds; afterwards every `_SELDOM`
_PLAIN = ((60.0, 10.0), (600.0, 30.0))
_SELDOM = 60.0


class RecentRate:
    """How fast a number of bytes has grown lately."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []  # times, and the number then

    def add(self, now: float, size: int) -> None:
        """The number is `size` now."""
        if not self._samples or now > self._samples[-1][0]:
            self._samples.append((now, size))
        while len(self._samples) > 2 and (self._samples[1][0] <= now - _WINDOW or len(self._samples) > 64):
            del self._samples[0]

    @property
    def value(self) -> float | None:
        """Bytes per second; None as long as there are not two samples."""
        if len(self._samples) < 2:
            return None
        (began, first), (now, last) = self._samples[0], self._samples[-1]
        return (last - first) / max(1.0, now - began)


class LaunchProgress:
    """What is known of a launch from its records, and what ranks print, in one line of text."""

    def __init__(self, began: float, now: Callable[[], float] = time.monotonic) -> None:
        """`began`: the launch, on the clock `now`."""
        self.started: float | None = None  #: when ranks were started for the first time, in seconds of the launch
        self._began = began
        self._now = now
        self._hosts = 0
        self._ranks = 0
        self._seen: set[int] = set()
        self._running: dict[int, str] = {}  # ranks by their numbers in frames, as messages name them
        self._last: dict[int, float] = {}  # when each of them has printed something or was started
        self._restarts = 0
        self._phase = ""  # "sending", "running", "ending"
        self._staging: records.Staging | None = None
        self._sent = RecentRate()
        self._size = 0  # bytes of all output
        self._printed = RecentRate()
        self._text, self._made = "", -1.0

    def heard(self, kind: int, rank: int, data: bytes) -> None:
        """A process has printed `data`."""
        self._size += len(data)
        if data and rank in self._last:
            self._last[rank] = self._now()

    def observe(self, record: Any) -> None:
        """Note what a record says."""
        self._made = -1.0
        if isinstance(record, records.Connected):
            self._hosts, self._sent = len(record.hosts), RecentRate()
        elif isinstance(record, records.Staging):
            self._staging, self._phase = record, "sending"
            self._sent.add(record.time, record.sent)
        elif isinstance(record, records.AttemptStarted):
            self._phase, self._ranks = "running", record.ranks
            self.started = record.time if self.started is None else self.started
            self._printed.add(self._now(), self._size)
            for one in (self._seen, self._running, self._last):
                one.clear()
        elif isinstance(record, records.RankStarted) and not is_service(record.rank):
            self._seen.add(record.rank)
            self._running[record.rank] = record.name.replace("rank ", "", 1)
            self._last[record.rank] = self._now()
            self._restarts += record.starts > 1
        elif isinstance(record, records.RankEnded):
            self._running.pop(record.rank, None)
            self._last.pop(record.rank, None)
        elif isinstance(record, records.Restarting):
            self._restarts += 1
        elif isinstance(record, records.JobFailed):
            self._phase = "ending"
        elif isinstance(record, (records.AttemptEnded, records.LaunchEnded, records.LaunchRefused, records.Staged)):
            self._phase = ""

    @property
    def seconds(self) -> float:
        """Of the launch until now."""
        return self._now() - self._began

    def text(self) -> str:
        """The line, in ASCII, made anew once a second, or when something happens; "": there is nothing to tell."""
        if not self._phase:
            return ""
        if not 0 <= self.seconds - self._made < 1:
            made = self._sending() if self._phase == "sending" else self._of_ranks()
            self._text, self._made = f"mslaunch: {made}", float(int(self.seconds))
        return self._text

    def _of_ranks(self) -> str:
        total = max(self._ranks, len(self._seen))
        parts = [f"{len(self._running)}/{counted(total, 'rank')} on {counted(self._hosts, 'host')}"]
        if self._phase == "ending":
            parts.append("ending the job")
        parts += [clock(self.seconds), f"{amount(self._rate())}/s"]
        if self._restarts:
            parts.append(counted(self._restarts, "restart"))
        if silent := self._silent():
            parts.append(silent)
        return ", ".join(parts)

    def _rate(self) -> float:
        """Bytes per second that ranks have printed lately."""
        self._printed.add(self._now(), self._size)
        return self._printed.value or 0.0

    def _silent(self) -> str:
        now = self._now()
        since = {rank: now - last for rank, last in self._last.items() if now - last >= _SILENT}
        if not since:
            return ""
        seconds = int(min(since.values()))
        if len(since) == len(self._last):
            return f"silent for {seconds} s"
        names = [self._running[rank] for rank in sorted(since)]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"rank{'s' * (len(names) > 1)} {','.join(names[:_MOST_NAMED])}{more} silent for {seconds} s"

    def _sending(self) -> str:
        """The first second says nothing of the rate: it has filled the buffers of this host."""
        assert self._staging
        _, sent, size, hosts = self._staging
        parts = [f"sending files to {counted(hosts, 'host')}, {amount(sent)} of {amount(size)}"]
        rate = self._sent.value
        if rate is not None:
            parts.append(f"{amount(rate)}/s")
        if rate and rate >= 1:
            parts.append(f"{clock((size - sent) / rate)} left")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """Seconds as `12:31`, or `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def amount(size: float) -> str:
    """Bytes as `980 B`, `1.2 MB`, `31 GB`: powers of 1000."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while round(size, 1) >= 1000 and units[1:]:
        size /= 1000
        units.pop()
    unit = units[-1]
    return f"{size:.1f} {unit}" if unit != "B" and round(size, 1) < 10 else f"{size:.0f} {unit}"


class PlainLines:
    """Writes the line with `say` every ten seconds, and less often the longer the launch takes."""

    def __init__(self, loop: Loop, progress: LaunchProgress, say: Callable[[str], None]) -> None:
        self._loop = loop
        self._progress = progress
        self._say = say
        self._due = loop.after(_PLAIN[0][1], self._tell)

    def _tell(self) -> None:
        now = self._progress.seconds
        pause = next((pause for until, pause in _PLAIN if now < until - pause / 2), _SELDOM)
        self._due = self._loop.after(pause, self._tell)
        text = self._progress.text()
        if text:
            self._say(f"{text}\n")

    def close(self) -> None:
        """The launch is over."""
        self._due.cancel()


def way_of(request: Request, caller: Caller, xml_there: bool) -> str:
    """How --progress is shown: "line", "plain", "" not at all; `xml_there`: the terminal shows XML.

    --quiet silences what nobody has asked for.
    A program that launches through the Python API prints past us, which would tear the line: it has to ask for one.
    """
    asked = request.monitor.progress
    if asked == "no" or request.detach or request.do_not_launch or request.backend:
        return ""
    if asked == "auto" and request.quiet:
        return ""
    term = caller.environ.get("TERM", "")
    line = os.isatty(caller.stderr) and term not in ("", "dumb") and not xml_there
    if asked == "auto":
        return "line" if line and caller.command is not list else ""
    return "line" if line and asked == "yes" else "plain"


def add_status(loop: Loop, request: Request, caller: Caller, observers: Observers, console: Console) -> None:
    """Show the progress of a launch that begins now, if the request, the terminal and the surroundings let us."""
    xml = request.output.as_xml and request.output.xml_file is None
    way = way_of(request, caller, xml and os.isatty(caller.stdout))
    if not way:
        return
    progress = LaunchProgress(observers.began)
    observers.add(progress.observe)
    observers.listen(progress.heard)
    if way == "plain":
        observers.on_close(PlainLines(loop, progress, console.print).close)
        return
    from mslaunch.launcher.messages.message_colors import wants_colors
    from mslaunch.launcher.monitoring.terminal_line import TerminalLine

    wait = 0.0 if request.monitor.progress == "yes" else _QUIET_START

    def text() -> str:
        started = progress.started
        return "" if started is not None and progress.seconds < started + wait else progress.text()

    dim = wants_colors(request.color, caller.environ, caller.stderr)
    line = TerminalLine(loop, console.stderr, caller.stderr, text, console.beside, dim)
    observers.add(lambda record: line.close() if isinstance(record, records.LaunchEnded) else None)
    observers.on_close(line.close)
