"""Output of ranks: from frames through transforms (line prefixes, XML) to sinks (the launcher's streams, log files).

Bytes pass unchanged and in order, unless an option needs whole lines.  Modules that most launches do not need are
imported late.  A stream may end more than once, because a rank may be started again; its files are continued.  If all
ranks are started again, each attempt has an Output of its own on the same terminals, which it does not close.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import SERVICE_BASE, is_service
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, partial
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.outcome import Failure, RankStatus
    from mslaunch.launcher.stdio.file_patterns import PatternValues
    from mslaunch.launcher.stdio.fold_lines import FoldedOutput
    from mslaunch.launcher.stdio.line_prefix import LineGuard, LineSplitter, Prefix
    from mslaunch.launcher.stdio.log_files import RankLogs
    from mslaunch.launcher.stdio.stream_choice import StreamChoice
    from mslaunch.launcher.stdio.xml import XmlDocument
    from mslaunch.runtime.loop import Loop

_TRACEBACK = b"Traceback (most recent call last):"
_TAIL = 4096  #: bytes of stderr that are kept of each rank, for the report of a failure


class AttemptInfo(NamedTuple):
    """The number of an attempt, and what it may involve."""

    attempt: int = 1
    more: bool = False  # another attempt may follow: the XML document on stdout stays open until `Output.end`
    services: tuple[int, ...] = (SERVICE_BASE,)  # those that may be started
    limit: float | None = None  # --timeout, whose report tells who printed a traceback before


_ONLY = AttemptInfo()


class Output:
    """Where the bytes of all ranks and services go.

    `places` is needed for files, prefixes, XML and --fold.  `terminals` are the sinks for STDOUT and STDERR, one object
    if both are one device; `xml_file` takes the XML document instead of stdout; `fold` takes what the terminals show;
    `notice` tells the user something, once.
    """

    def __init__(
        self,
        policy: OutputPolicy,
        places: PatternValues | None,
        terminals: Mapping[int, OutputFd],
        notice: Callable[[str], None],
        xml_file: OutputFd | None = None,
        info: AttemptInfo = _ONLY,
        fold: FoldedOutput | None = None,
    ) -> None:
        self._places = places
        self._fold = fold
        self._terminals = terminals
        self._devices = list(dict.fromkeys([*terminals.values(), *([xml_file] if xml_file else [])]))
        self._xml_file = xml_file
        self._continues = info.more and not xml_file  # the XML document does, with the next attempt
        self._merged = policy.merge  # the agents send stderr as stdout
        self.logs: RankLogs | None = None
        self._prefix: Prefix | None = None
        self._document: XmlDocument | None = None
        self._guards: dict[int, LineGuard] = {}  # for each stream that shows lines, that of its device
        self._lines: dict[int, LineSplitter] = {}  # streams that are cut into lines
        self._tails: dict[int, bytes] = {}
        #: when each rank has printed the head of a traceback last (time.monotonic); None: nobody will ask
        self.tracebacks: dict[int, float] | None = {} if info.limit else None
        self._streams: StreamChoice | None = None
        if places:
            if policy.streams:
                from mslaunch.launcher.stdio.stream_choice import stream_choice

                self._streams = stream_choice(policy, places)
            self._add_transform(policy, places, info.attempt)
            if policy.paths:
                from mslaunch.launcher.stdio.log_files import RankLogs

                self.logs = RankLogs(policy, places, notice, info.attempt, info.services)
                self._cut_shared()
        self.sorts = bool(self.logs or self._lines)  #: whether it matters which rank printed what
        self._shown = self._choose_terminals(policy)
        self._ranks_shown = None if policy.shown is None else frozenset(policy.shown)

    def _add_transform(self, policy: OutputPolicy, places: PatternValues, attempt: int) -> None:
        """Set up XML or prefixes, if they were asked for."""
        from mslaunch.launcher.stdio.line_prefix import LineGuard, LineSplitter, Prefix

        if policy.as_xml:
            from mslaunch.launcher.stdio.xml import XmlDocument, elements

            begun = attempt > 1 and self._xml_file is None  # a file is a document of its own
            self._document = XmlDocument(self._xml_file or self._terminals[STDOUT], begun)
            transform: Callable[[int, int, bytes], bytes] = partial(
                elements, places.worlds, policy.timestamp and policy.style == "5.0"
            )
        elif policy.has_prefix:
            self._prefix = Prefix(policy, places)
            transform = self._prefix.format
            guards = {device: LineGuard() for device in self._devices}
            self._guards = {kind: guards[device] for kind, device in self._terminals.items()}
        else:
            return
        self._lines = dict.fromkeys((STDOUT, STDERR), LineSplitter(transform))

    def _cut_shared(self) -> None:
        """Cut streams that share a file into lines."""
        missing = self.logs.by_line - set(self._lines) if self.logs else set()
        if missing:
            from mslaunch.launcher.stdio.line_prefix import LineSplitter

            self._lines.update(dict.fromkeys(missing, LineSplitter(lambda kind, rank, lines: lines)))

    def _choose_terminals(self, policy: OutputPolicy) -> dict[int, OutputFd | XmlDocument]:
        patterns = {STDOUT: policy.outfile, STDERR: policy.errfile}
        return {
            kind: self._document or self._terminals[kind]
            for kind, pattern in patterns.items()
            if policy.copy and (pattern is None or policy.tee)
        }

    # --- while the job runs

    def add_world(self, rows: Sequence[tuple[str, int]]) -> None:
        """The ranks of one more world are about to start; `rows` has the host of each, and its number."""
        ranks = self._places.add_world(rows) if self._places else range(0)
        if self.logs:
            self.logs.add(ranks)
            self._cut_shared()

    def started(self, rank: int, pid: int) -> None:
        """A rank or a service runs, for the first time or again."""
        self._tails.pop(rank, None)  # of its previous process
        if is_service(rank):
            if self.logs:
                self.logs.add([rank])
        elif self._prefix:
            self._prefix.started(rank, pid)

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """`data` was printed by a rank or service on STDOUT or STDERR; b"" ends the stream."""
        service = is_service(rank)
        if kind == STDERR or self._merged or service:
            self._tails[rank] = (self._tails.get(rank, b"") + data[-_TAIL:])[-_TAIL:]
            if self.tracebacks is not None and _TRACEBACK in data:
                self.tracebacks[rank] = time.monotonic()
        kept, streams = data, self._streams  # with `streams` files have what was printed, without prefixes
        if kind in self._lines and not service and (streams is None or streams.prefixed(kind, rank)):
            data = self._lines[kind].feed(kind, rank, data)
        kept = kept if streams else data
        if kept and self.logs:
            self.logs.write(kind, rank, kept)
        chosen = streams.shown(kind, rank) if streams else self._ranks_shown is None or rank in self._ranks_shown
        if service or not chosen or kind not in self._shown:
            return
        if self._fold:
            self._fold.feed(kind, rank, data)
        elif data:
            self._shown[kind].send(self._guards[kind].join(kind, rank, data) if self._guards else data)

    def write_unsorted(self, kind: int, data: bytes) -> None:
        """Show bytes of no known rank: without a tag, in no file, and on standard error if lines are transformed."""
        self._terminals[STDERR if self._lines else kind].send(data)

    def show_map(self, jobmap: JobMap) -> None:
        """--display-map within --xml."""
        from mslaunch.launcher.stdio.xml import map_element

        assert self._document
        self._document.send(map_element(jobmap))

    @property
    def pending(self) -> int:
        """Bytes that the slowest device has not taken yet."""
        return max(device.pending for device in self._devices)

    @property
    def unread(self) -> bool:
        """Standard output has no reader any more, and no file keeps it."""
        return self._terminals[STDOUT].unread and not (self.logs and self.logs.keeps_stdout)

    def on_progress(self, written: Callable[[], None]) -> None:
        """Call `written` whenever a device has taken bytes."""
        for device in self._devices:
            device.progress = written

    def abandon(self) -> None:
        """Show nothing more on devices that do not take it; the other devices and log files go on."""
        for device in self._devices:
            if device.pending:
                device.drop()
                if self._fold:
                    self._fold.drop(device)
                self._shown = {kind: sink for kind, sink in self._shown.items() if self._device(sink) is not device}

    def _device(self, sink: OutputFd | XmlDocument) -> OutputFd:
        return sink if isinstance(sink, OutputFd) else self._xml_file or self._terminals[STDOUT]

    # --- the end

    def finish(self) -> None:
        """All streams have ended, or are lost: show unfinished lines.  Called once."""
        for lines in self._lines.values():
            for kind, rank in lines.unfinished():
                self.write(kind, rank, b"")
        if self._fold:
            self._fold.finish()
        if self._document and self._continues:
            self._document.begin()
        elif self._document:
            self._document.end()

    def end(self) -> None:
        """No attempt follows, although `AttemptInfo.more` said that one might."""
        if self._document and self._continues:
            self._document.end()

    def with_logs(self, status: RankStatus) -> RankStatus:
        """The status of a rank or service with the paths of its log files."""
        if not self.logs:
            return status
        return status._replace(stdout=self.logs.path(STDOUT, status.rank), stderr=self.logs.path(STDERR, status.rank))

    def log_of(self, failure: Failure | None) -> str | None:
        """The file that says most about the rank that failed."""
        if not self.logs or failure is None or failure.rank is None:
            return None
        return self.logs.path(STDERR, failure.rank) or self.logs.path(STDOUT, failure.rank)

    def tail(self, rank: int, lines: int = 20) -> list[str]:
        """The last lines that a rank wrote on stderr, unescaped (`messages.closing_report` escapes what it quotes)."""
        text = self._tails.get(rank, b"").decode("utf-8", "replace")
        kept = text.splitlines()
        if len(text) >= _TAIL and len(kept) > lines:
            kept = kept[1:]  # the first may be half a line
        return kept[-lines:]

    def close(self) -> bool:
        """Close the files; True if every byte is where it was asked for."""
        if self._fold:  # of a launch that ends by an error
            self._fold.finish()
        kept = self.logs.close() if self.logs else True
        if self._xml_file:
            self._xml_file.close()
        return kept and not any(device.failed for device in self._devices)


def open_output(
    policy: OutputPolicy,
    jobmap: JobMap,
    loop: Loop,
    terminals: Mapping[int, OutputFd],
    notice: Callable[[str], None],
    addresses: Callable[[int], str] | None = None,
    info: AttemptInfo = _ONLY,
) -> Output:
    """Make directories and files before anything is started.

    `addresses` gives those of hosts by their index in the map, if `policy.needs_addresses`.  Raises `LaunchError` if a
    file or directory cannot be made, or a pattern cannot be read.
    """
    if not (policy.paths or policy.has_prefix or policy.as_xml or policy.fold):
        return Output(policy, None, terminals, notice, info=info)
    from mslaunch.launcher.stdio.file_patterns import values_of_job

    places = values_of_job(jobmap, addresses)
    fold = None
    if policy.fold:
        from mslaunch.launcher.stdio.fold_lines import FoldedOutput

        ranks = len(places.ranks if policy.shown is None else policy.shown)
        fold = FoldedOutput(loop, terminals, places.worlds, ranks)
    xml_file = None if policy.xml_file is None else _open_xml(loop, policy, policy.xml_file, notice, info.attempt)
    try:
        return Output(policy, places, terminals, notice, xml_file, info, fold)
    except LaunchError:
        if xml_file:
            xml_file.close()
        raise


def _open_xml(loop: Loop, policy: OutputPolicy, path: str, notice: Callable[[str], None], attempt: int) -> OutputFd:
    from mslaunch.launcher.stdio import log_files
    from mslaunch.launcher.stdio.log_folders import File, LogFolders

    file, folders = File(path, os.path.dirname(path), "--xml-file"), LogFolders(notice)
    try:
        if policy.keep and attempt == 1:
            log_files.rename_old([file], folders)
        file = file._replace(path=log_files.of_attempt(path, attempt))
        return OutputFd(loop, folders.create(file), file.path, notice, owned=True)
    finally:
        folders.close()
