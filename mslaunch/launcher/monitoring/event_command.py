"""--on-event CMD: a command that is run when a launch fails, restarts, hangs or ends.

The event is on its standard input.  It cannot change how the launch goes: its exit code is only told, and after ten
seconds it is killed.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.runtime.loop import Loop

OPTION = "--on-event"
EVENTS = ("failed", "restart", "hang", "end")  #: for which it is run
SECONDS = 10.0
_AT_ONCE = 8  # commands that run at one time
_LOOK = 0.05  # seconds
_KILLED = 1.0  # seconds in which a process that was killed has to be gone; one that waits for a disk may not be


class EventCommand:
    """Runs `words`, without a shell, once for each event of `EVENTS`; the variable MSLAUNCH_EVENT has its name."""

    def __init__(
        self,
        loop: Loop,
        words: Sequence[str],
        environ: Mapping[str, str],
        cwd: str,
        stderr: int,
        notice: Callable[[str], None],
    ) -> None:
        """`stderr` gets what the command prints.  Raises `LaunchError` if there is no such program."""
        self._file = _program(words[0], environ, cwd)
        self._stderr = stderr
        self._loop = loop
        self._words = list(words)
        self._environ = environ
        self._cwd = cwd
        self._notice = notice
        self._running: list[subprocess.Popen[bytes]] = []
        self._told = False

    def take(self, name: str, text: str) -> None:
        """Run the command, if this event is one of those."""
        if name not in EVENTS:
            return
        if len(self._running) >= _AT_ONCE:
            self._tell(f"not run for {name!r}: {_AT_ONCE} commands are still running")
            return
        try:
            process = self._start(name, text)
        except OSError as error:
            self._tell(f"{self._words[0]} cannot be run: {error.strerror}")
            return
        self._running.append(process)
        self._watch(process, self._loop.now() + SECONDS)

    def _start(self, name: str, text: str) -> subprocess.Popen[bytes]:
        """Start the command, with the event on its standard input.  Raises OSError.

        The text is in a file in memory: a pipe takes 64 KiB, and then waits for a command that reads late.
        """
        import subprocess

        with open(os.memfd_create("mslaunch"), "wb+") as standard_input:
            standard_input.write(text.encode("utf-8", "replace") + b"\n")
            standard_input.seek(0)
            return subprocess.Popen(
                [self._file, *self._words[1:]],
                stdin=standard_input,
                stdout=self._stderr,
                stderr=self._stderr,
                env={**self._environ, "MSLAUNCH_EVENT": name},
                cwd=self._cwd,
                start_new_session=True,
            )

    def _watch(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Look again and again whether it has ended: a launch in a thread gets no SIGCHLD."""
        late = self._loop.now() - deadline
        if late > 0 and process.poll() is None:
            self._tell(f"{self._words[0]} was killed after {SECONDS:g} seconds")
            _kill_group(process)
            if late > _KILLED:
                self._running.remove(process)
                return
        if process.poll() is None:
            self._loop.after(_LOOK, lambda: self._watch(process, deadline))
            return
        self._running.remove(process)
        _kill_group(process)  # what it has left behind
        if process.returncode > 0:
            self._tell(f"{self._words[0]} ended with exit code {process.returncode}")

    def _tell(self, text: str) -> None:
        if not self._told:  # once is enough
            self._told = True
            self._notice(f"{OPTION}: {text}")

    def close(self) -> None:
        """Wait for what still runs."""
        self._loop.run(lambda: not self._running, SECONDS + _KILLED + 1.0)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:  # there is none, or it is another user's by now (sudo)
        pass


def _program(name: str, environ: Mapping[str, str], cwd: str) -> str:
    """The file to run; raises `LaunchError` rather than when the first event comes."""
    from mslaunch.host.helper_programs import find_typed

    found = find_typed(name, environ, cwd)
    if not found:
        raise LaunchError(f"there is no program {name!r}", OPTION, "give its whole path")
    return found
