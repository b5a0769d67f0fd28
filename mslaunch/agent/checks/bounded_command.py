"""A command that is run for a check: for a bounded time, and of its output the end is kept."""

from __future__ import annotations

import os

from mslaunch.agent.ranks.programs_of_shells import end_group
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess, open_fds
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.protocol.frames import NO_RANK

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.runtime.loop import Loop


def run_command(
    loop: Loop,
    argv: list[str],
    env: dict[str, str],
    seconds: float,
    kept: int,
    done: Callable[[int, bytes, bool], None],
    wdir: str = "",
) -> None:
    """Start `argv`, whose first word is a path, in the directory `wdir` ("": that of the agent); raises OSError.

    `done` gets its exit code as a shell has it, the last `kept` bytes of what it printed, and whether it had to be
    killed after `seconds`.
    """
    command = _BoundedCommand(kept, done)
    process = RankProcess(NO_RANK, loop, ProcessEvents(command.printed, command.exited))
    _start_in(wdir, lambda: process.start(argv[0], argv, env, open_fds(merge=True)))
    command.process = process
    command.cancel = loop.after(seconds, command.expire).cancel
    process.watch(True)


def _start_in(wdir: str, start: Callable[[], None]) -> None:
    """Call `start` in a directory; "": where we are.  posix_spawn has no word for it, so we go there and come back."""
    if not wdir:
        start()
        return
    try:
        before = os.open(".", os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a place that we may not enter, to which there is no way back
        before = -1
    try:
        os.chdir(wdir)
        start()
    finally:
        if before >= 0:
            os.fchdir(before)
            os.close(before)


class _BoundedCommand:
    """One command, from its start to the end of its output."""

    process: RankProcess
    cancel: Callable[[], None]

    def __init__(self, kept: int, done: Callable[[int, bytes, bool], None]) -> None:
        self._kept = kept
        self._done = done
        self._output = b""
        self._code = 0
        self._late = False

    def printed(self, kind: int, rank: int, data: bytes) -> None:
        """It printed something."""
        self._output = (self._output + data)[-self._kept :]

    def expire(self) -> None:
        """It takes too long."""
        self._late = True
        self.process.signal(signal.SIGKILL)

    def exited(self, rank: int, status: ExitStatus) -> None:
        """It has ended; what it has started may still hold its output."""
        self.cancel()
        self._code = status.shell_code
        end_group(self.process.pid)
        self.process.retire(self._finish)

    def _finish(self) -> None:
        self._done(self._code, self._output, self._late)
