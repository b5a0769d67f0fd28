"""Output, the desk: which bytes go to which terminal and to the log files, in the order in which they came.

It knows neither frames nor how a rank ends.  Bytes pass unchanged unless somebody asked for lines: tags, XML, a file
that ranks share.  Rooms that most launches do not need (`logs`, `prefix`, `xml`) are entered only then.  The surprising
thing: a stream may end more than once, since a rank that failed may be started again; its files just go on.  Where all
ranks are started again, each attempt has a desk and files of its own, on the same terminals.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.launcher.stdio.line_prefix import LineGuard, LineSplitter, Prefix
    from mslaunch.launcher.stdio.rank_logs import RankLogs
    from mslaunch.launcher.stdio.xml import XmlDocument
    from mslaunch.runtime.loop import Loop

_TAIL = 4096


class AttemptInfo(NamedTuple):
    """Which start of all ranks this is."""

    attempt: int = 1
    more: bool = False  # it may fail, and another one follows: the XML document stays open until `Output.end`
    services: tuple[int, ...] = (SERVICE,)  # numbers of those that may be started


_ONLY = AttemptInfo()


class Output:
    """Where all bytes go.

    `terminals` are the launcher's own, for STDOUT and STDERR; `places` tells where ranks are; `xml_file` takes what
    would be shown as XML; `notice` tells the user something, once.
    """

    def __init__(
        self,
        policy: OutputPolicy,
        places: PatternValues,
        terminals: dict[int, OutputFd],
        notice: Callable[[str], None],
        xml_file: OutputFd | None = None,
        turn: AttemptInfo = _ONLY,
    ) -> None:
        self._places = places
        self._turn = turn
        self._terminals = terminals
        self._xml_file = xml_file
        self._merged = policy.merge  # stderr of a rank comes as its stdout
        self.logs: RankLogs | None = None
        self._prefix: Prefix | None = None
        self._document: XmlDocument | None = None
        self._seams: dict[int, LineGuard] = {}  # of the terminals, where lines are shown
        self._tails: dict[int, bytes] = {}
        self._lines: dict[int, LineSplitter] = {}  # what cuts the streams of each kind; none: they pass unchanged
        if policy.xml or policy.xml_file is not None:
            self._show_xml(policy)
        elif policy.tag or policy.prepend or policy.timestamp:
            self._show_prefixes(policy)
        if any(path is not None for path in (policy.directory, policy.file, policy.outfile, policy.errfile)):
            self._keep_logs(policy, notice)
        self._shown = self._choose_terminals(policy)
        self._kept = any(path is not None for path in (policy.directory, policy.file, policy.outfile))
        self._ranks_shown = None if policy.shown is None else frozenset(policy.shown)

    def _show_xml(self, policy: OutputPolicy) -> None:
        from mslaunch.launcher.stdio.line_prefix import LineSplitter
        from mslaunch.launcher.stdio.xml import Elements, XmlDocument

        begun = self._turn.attempt > 1 and self._xml_file is None  # a file is a document of its own
        self._document = XmlDocument(self._xml_file or self._terminals[STDOUT], begun)
        lines = LineSplitter(Elements(policy.timestamp and policy.style == "5.0", self._places.worlds).format)
        self._lines = {STDOUT: lines, STDERR: lines}

    def _show_prefixes(self, policy: OutputPolicy) -> None:
        from mslaunch.launcher.stdio.line_prefix import LineGuard, LineSplitter, Prefix

        self._prefix = Prefix(policy, self._places)
        lines = LineSplitter(self._prefix.format)
        self._lines = {STDOUT: lines, STDERR: lines}
        self._seams = {STDOUT: LineGuard(), STDERR: LineGuard()}

    def _keep_logs(self, policy: OutputPolicy, notice: Callable[[str], None]) -> None:
        from mslaunch.launcher.stdio.rank_logs import RankLogs

        self.logs = RankLogs(policy, self._places, notice, self._turn.attempt, self._turn.services)
        self._cut_shared()

    def _cut_shared(self) -> None:
        """Streams that share a file are written there line by line."""
        missing = self.logs.by_line - set(self._lines) if self.logs else set()
        if missing:
            from mslaunch.launcher.stdio.line_prefix import LineSplitter

            self._lines.update(dict.fromkeys(missing, LineSplitter(lambda kind, rank, lines: lines)))

    def _choose_terminals(self, policy: OutputPolicy) -> dict[int, OutputFd | XmlDocument]:
        if not policy.copy:
            return {}
        shown: dict[int, OutputFd | XmlDocument] = {}
        if policy.outfile is None or policy.tee:
            shown[STDOUT] = self._document or self._terminals[STDOUT]
        if policy.errfile is None or policy.tee:
            shown[STDERR] = self._document or self._terminals[STDERR]
        return shown

    # --- while the job runs

    def add_world(self, places: Sequence[tuple[str, int]]) -> None:
        """One more world, whose ranks are about to start."""
        ranks = self._places.add_world(places)
        if self.logs:
            self.logs.add_world(ranks)
            self._cut_shared()

    def started(self, rank: int, pid: int) -> None:
        """A rank or a service runs, for the first time or again."""
        self._tails.pop(rank, None)  # the last words of the one that failed before
        if rank >= 0:
            if self._prefix:
                self._prefix.started(rank, pid)
        elif self.logs:
            self.logs.add_service(rank)

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """`data` was printed by `rank` (below 0: a service) on STDOUT or STDERR; b"" ends the stream."""
        if kind == STDERR or self._merged or rank < 0:
            self._tails[rank] = (self._tails.get(rank, b"") + data[-_TAIL:])[-_TAIL:]
        if rank >= 0 and kind in self._lines:
            data = self._lines[kind].feed(kind, rank, data)
        if not data:
            return
        if self.logs:
            self.logs.write(kind, rank, data)
        if self._is_shown(rank) and kind in self._shown:
            self._shown[kind].send(self._seams[kind].join(kind, rank, data) if self._seams else data)

    def _is_shown(self, rank: int) -> bool:
        return rank >= 0 and (self._ranks_shown is None or rank in self._ranks_shown)

    def write_unsorted(self, kind: int, data: bytes) -> None:
        """Bytes of no known rank: without a tag, in no file, and on standard error where lines are changed."""
        self._terminals[STDERR if self._lines else kind].send(data)

    @property
    def sorts(self) -> bool:
        """Whether it matters which rank printed what."""
        return bool(self.logs or self._lines)

    def show_map(self, jobmap: JobMap) -> None:
        """--display-map within --xml."""
        from mslaunch.launcher.stdio.xml import map_element

        assert self._document
        self._document.send(map_element(jobmap))

    @property
    def pending(self) -> int:
        """Bytes that a terminal has not taken yet."""
        return max((terminal.pending for terminal in self._all()), default=0)

    @property
    def unread(self) -> bool:
        """Nobody will ever see what ranks print on standard output: its reader has gone, and there are no files."""
        return self._terminals[STDOUT].unread and not self._kept

    def on_progress(self, written: Callable[[], None]) -> None:
        """Call `written` whenever a terminal has taken bytes."""
        for terminal in self._all():
            terminal.progress = written

    def abandon(self) -> None:
        """Wait no longer for readers that do not read; files go on, and so does who takes what comes."""
        for terminal in self._all():
            if terminal.pending:
                terminal.drop()

    def _all(self) -> list[OutputFd]:
        return [*self._terminals.values(), *([self._xml_file] if self._xml_file else [])]

    # --- the end

    def finish(self) -> None:
        """Whatever line is unfinished now will stay so: a lost rank cannot end its own.  Called once."""
        for lines in self._lines.values():
            for kind, rank in lines.unfinished():
                self.write(kind, rank, b"")
        if self._document and self._turn.more and not self._xml_file:
            self._document.begin()
        elif self._document:
            self._document.end()

    def end(self) -> None:
        """No attempt follows, though `AttemptInfo.more` said that one might."""
        if self._document and self._turn.more and not self._xml_file:
            self._document.end()

    def log_path(self, rank: int) -> str | None:
        """The file that tells most about a rank; None if there is none."""
        return (self.logs.path(STDERR, rank) or self.logs.path(STDOUT, rank)) if self.logs else None

    def tail(self, rank: int, lines: int = 20) -> list[str]:
        """The last lines that a rank wrote on stderr."""
        text = self._tails.get(rank, b"").decode("utf-8", "replace")
        kept = text.splitlines()
        if len(text) >= _TAIL and len(kept) > lines:
            kept = kept[1:]  # the first may be half a line
        return [printable(line) for line in kept[-lines:]]

    def close(self) -> bool:
        """Close files and terminals; True if every byte is where it was asked for."""
        kept = self.logs.close() if self.logs else True
        self._terminals[STDOUT].close()
        if self._xml_file:
            self._xml_file.close()
        return kept and not any(terminal.failed for terminal in self._all())


def open_output(
    policy: OutputPolicy,
    jobmap: JobMap,
    loop: Loop,
    fds: dict[int, int],
    stderr: OutputFd,
    notice: Callable[[str], None],
    *,
    attempt: int = 1,
    addresses: Callable[[int], str] | None = None,
    more: bool = False,
    services: Sequence[int] = (SERVICE,),
) -> Output:
    """Make directories, files and terminals; `fds` has the descriptor for STDOUT, `stderr` is shared with the launcher.

    `addresses` tells those of hosts, by their index in the map, where `pattern.needs_addresses`; for the others see
    `AttemptInfo`.  Raises `LaunchError` if a file or directory cannot be had, or a pattern means nothing; nothing was
    started then.
    """
    rows = [(jobmap.nodes[placement.node].name, placement.node) for placement in jobmap.placements]
    service = (jobmap.nodes[jobmap.service].name, jobmap.service) if jobmap.service >= 0 else None
    terminals = {STDOUT: OutputFd(loop, fds[STDOUT], "standard output", notice), STDERR: stderr}
    xml_file = None
    try:
        if policy.xml_file is not None:
            xml_file = _open_xml(loop, policy.xml_file, notice, policy.keep, attempt)
        places = PatternValues(rows, jobmap.first, service, addresses)
        return Output(policy, places, terminals, notice, xml_file, AttemptInfo(attempt, more, tuple(services)))
    except LaunchError:
        for terminal in (terminals[STDOUT], xml_file):
            if terminal:
                terminal.close()
        raise


def _open_xml(loop: Loop, path: str, notice: Callable[[str], None], keep: bool, attempt: int) -> OutputFd:
    from mslaunch.launcher.stdio import file_rotation

    file = file_rotation.File(path, os.path.dirname(path), "--xml-file")
    if keep and attempt == 1:
        file_rotation.set_aside([file])
    file = file._replace(path=file_rotation.of_attempt(path, attempt))
    return OutputFd(loop, file_rotation.create(file), file.path, notice, owned=True)
