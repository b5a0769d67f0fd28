"""The agent's end of the link to the launcher: frames both ways, signs of life, back-pressure on what ranks print.

While the launcher does not keep up, or after it has sent PAUSE, the output of ranks is not read.  The link itself
always is, so that an order to end the ranks arrives.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol import control, frames
from mslaunch.protocol.frames import NO_RANK
from mslaunch.runtime.fd_writer import HIGH, LOW, Writer
from mslaunch.runtime.loop import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.errors import LaunchError
    from mslaunch.protocol.frames import Frame
    from mslaunch.protocol.sealed_records import Seals
    from mslaunch.runtime.loop import Loop

_TEXT = 1 << 13  # characters of an error: its frame has a bound, and an argument may be longer


class LauncherLink:
    """Reads and writes frames until it is closed."""

    def __init__(
        self,
        loop: Loop,
        fds: tuple[int, int],
        received: Callable[[Frame], None],
        lost: Callable[[], None],
        watch: Callable[[bool], None],
        seals: Seals | None = None,
    ) -> None:
        """`fds`: the reader and the writer; `lost` is called at the end of either.

        `watch(False)` asks to stop reading what ranks print, `watch(True)` to go on.  `seals`: of an agent that has
        called back; they may have received frames already.
        """
        self._loop = loop
        self._reader = fds[0]
        self._received = received
        self._lost = lost
        self._watch = watch
        self._decoder = frames.Decoder(frames.DOWN, opener=seals and seals.opener)
        self._writer = Writer(loop, fds[1], lambda error: lost(), self._wrote, sealer=seals and seals.sealer)
        self._heard = self._spoke = self._due = 0.0  # when bytes came and went, and when `_beat` is due
        self._heartbeat = self._lease = 0.0  # in seconds, as the launcher has said
        self._timer = Timer(0.0, None)
        self._busy = False  # the launcher was told so
        self._full = False  # much waits for the launcher to take it
        self._held = False  # the launcher has said PAUSE
        os.set_blocking(self._reader, False)
        loop.reader(self._reader, self._read)
        if seals:
            loop.soon(lambda: self._take(b""))

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._heard = self._loop.now()
        try:
            found = self._decoder.feed(data)
        except WireError as error:
            self.fault(error.what)
            self._lost()
            return
        for frame in found:
            if frame.kind in (frames.PAUSE, frames.RESUME):
                self._hold(self._full, frame.kind == frames.PAUSE)
            elif frame.kind != frames.LEASE:
                self._received(frame)
            elif frame.payload:
                self._agree(*map(float, frame.payload.split()))
                self._received(frame)
            elif self._lease:
                self._speak(self._heard)
                self._wait(1.25)  # the launcher's timer is the one that counts: it reads many answers at once

    @property
    def pending(self) -> int:
        """Bytes that the launcher has not taken yet."""
        return self._writer.pending

    def close(self) -> None:
        """Read nothing more and drop what is sent; ranks are read again."""
        self._loop.reader(self._reader, None)
        self._writer.close()
        self._hold(False, False)
        self._timer.cancel()

    def _wrote(self, size: int) -> None:
        self._spoke = self._loop.now()
        if self._full and self._writer.pending < LOW:
            self._hold(False, self._held)

    def _hold(self, full: bool, held: bool) -> None:
        before = self._full or self._held
        self._full, self._held = full, held
        if before != (full or held):
            self._watch(before)

    # --- the lease

    def _agree(self, heartbeat: float, lease: float) -> None:
        """How often each side speaks, and after how much silence it gives the other up; 0: never."""
        self._heartbeat, self._lease = heartbeat, lease
        if lease:
            self._wait()
        else:
            self._timer.cancel()
            self.send(frames.ALIVE, payload=frames.SUSPENDED)

    def _wait(self, heartbeats: float = 1.0) -> None:
        self._timer.cancel()
        self._due = self._loop.now() + heartbeats * self._heartbeat
        self._timer = self._loop.after(heartbeats * self._heartbeat, self._beat)

    def _speak(self, now: float) -> None:
        if now - self._spoke > self._heartbeat / 2 and not self._writer.pending:
            self.send(frames.ALIVE)

    def _beat(self) -> None:
        """Look whether the launcher was heard, and let it hear of us."""
        now = self._loop.now()
        if now - self._due > self._heartbeat:  # stopped, or busy: what has come meanwhile is still to be read
            self._heard = now
        if now - self._heard > self._lease:
            self.send(frames.ALIVE, payload=b"%s %d" % (frames.GIVEN_UP, now - self._heard))
            self._writer.flush()
            self._lost()
            return
        self._speak(now)
        self._wait()

    def busy(self, on: bool) -> None:
        """Say that a process is being started: a file system may take long for that.  False: all are."""
        now = self._loop.now()
        if self._lease and (on != self._busy or (on and now - self._spoke > self._heartbeat / 2)):
            self._busy, self._spoke = on, now
            self.send(frames.ALIVE, payload=frames.BUSY if on else b"")
            if on:
                self._writer.flush()

    # --- frames

    def send(self, kind: int, rank: int = NO_RANK, payload: bytes = b"") -> None:
        """Any frame."""
        self._writer.send(frames.encode(kind, rank, payload))

    def output(self, kind: int, rank: int, data: bytes) -> None:
        """What a process has printed on STDOUT or STDERR; b"" is the end of the stream."""
        self._writer.send(frames.header(kind, len(data), rank), data)
        if self._writer.pending > HIGH and not self._full:
            self._hold(True, self._held)

    def started(self, rank: int, pid: int) -> None:
        """A process runs."""
        self.send(frames.STARTED, rank, str(pid).encode())

    def exited(self, rank: int, status: ExitStatus) -> None:
        """A process has ended, or never ran."""
        self.send(frames.EXIT, rank, control.pack_record(status))

    def not_started(self, rank: int, error: LaunchError) -> None:
        """A process does not run, and will not; NO_RANK: what the node should have held cannot be had."""
        self.exited(rank, ExitStatus(error.code, None, error.what[:_TEXT], error.todo[:_TEXT]))

    def stdin_taken(self, rank: int, size: int) -> None:
        """So many bytes of standard input need not be kept any longer."""
        if size:
            self.send(frames.STDIN_TAKEN, rank, str(size).encode())

    def notice(self, number: int, text: str) -> None:
        """What the user should know about a service, though nothing ends for it."""
        self.send(frames.NOTICE, number, text.encode("utf-8", "replace"))

    def fault(self, text: str) -> None:
        """Why this agent cannot go on: an error of our own with its traceback, or a sentence; no more is sent."""
        self.send(frames.FAULT, NO_RANK, text[-_TEXT:].encode("utf-8", "replace"))
        self._writer.flush()


class AgentContext(NamedTuple):
    """What the parts of one agent share."""

    loop: Loop
    link: LauncherLink
    environ: Mapping[str, str]  # what ranks inherit
    session: Callable[[], SessionDir]  # made when it is first asked for
    need: Callable[[str, Callable[[], None]], None]  # goes on when a module is here
