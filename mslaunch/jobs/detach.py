"""Detached jobs: the command returns once all ranks run, and a launcher in a session of its own goes on.

The command forks before anything is opened: threads and connections would not survive it.  Until the launcher reports
that the ranks run, that the launch was refused or that the job has ended, the command shows the launcher's messages and
hands its own signals on, so that errors look as in a launch that is not detached.
"""

from __future__ import annotations

import os
import sys

from mslaunch.agent.guard import set_name
from mslaunch.errors import EXIT_USAGE, LaunchError, reason
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.programs import check_script
from mslaunch.host.system_files import head_of
from mslaunch.jobs import background_launcher
from mslaunch.jobs.background_launcher import RELAYED
from mslaunch.jobs.job_facts import job_facts
from mslaunch.jobs.job_registry import JobEntry, JobRegistry
from mslaunch.jobs.launcher_pid import ProcessIdentity, process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from mslaunch.datamodel.request import Request
    from mslaunch.jobs.background_launcher import Launch, Runner

_MUCH = 1 << 20  #: bytes of the launcher's messages that the command repeats


def detach(
    request: Request,
    command: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    launch: Launch,
    run_reported: Runner,
) -> int:
    """Start the launcher of a job, and wait until all ranks run; returns the exit code of the command.

    `command` is the command line for the registry, without secrets; `launch` runs the job.  Raises `LaunchError`.
    """
    if request.backend:
        what = "a job of an installed Open MPI cannot be detached"
        raise LaunchError(what, "--backend", "leave it out, or stay with the job")
    _check_scripts(request, cwd)
    this = process(os.getpid())
    if this is None:
        raise LaunchError("without it a detached job could not be found again", "/proc", "stay with the job")
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise LaunchError(f"no detached job can be started here: {reason(error)}", "--detach") from None
    entry = JobRegistry(environ).add(command=list(command), process=this, **job_facts(request, cwd))
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with _SignalRelay() as relay:
        child = os.fork()
        if not child:
            os.close(reader)
            signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)  # until the launch takes them
            relay.stop()
            _daemonize(lambda: background_launcher.run(entry, launch, run_reported, writer))
        os.close(writer)
        os.waitpid(child, 0)
        with open(reader, encoding="ascii") as lines:
            return _wait(entry, lines.readline, relay, request.quiet)


def _check_scripts(request: Request, cwd: str) -> None:
    """Refuse a Python script that is not on this host, before there are log files; agents check the others."""
    for app in request.apps:
        elsewhere = app.hosts or app.sequence or app.hostfile is not None or request.default_hostfile is not None
        if not elsewhere and not app.session_dir:
            check_script(app.argv, os.path.join(cwd, app.wdir or ""))


def _daemonize(act: Callable[[], int]) -> None:
    """Run `act` in a grandchild, in a session of its own, that is nobody's child; never returns."""
    status = EXIT_USAGE
    try:
        os.setsid()
        set_name("mslaunch")
        status = 0 if os.fork() else act()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # an internal error: it goes to the log
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(status)


def _wait(entry: JobEntry, read_line: Callable[[], str], relay: _SignalRelay, quiet: bool) -> int:
    """Wait for the launcher's report, and show its messages up to then; returns the exit code."""
    word, _, number = read_line().partition(" ")
    if word == "process":
        relay.to(process(int(number)))
        word, _, number = read_line().partition(" ")
    _show(entry.log, int(number or _MUCH))
    entry.reload()
    if word == "refused":
        entry.remove()
    if word in ("refused", "ended"):
        return int(entry.facts["code"])
    if word != "started":
        raise LaunchError("the launcher was killed before all ranks ran", f"job {entry.number}", f"see {entry.log}")
    job = entry.number
    text = (
        f"mslaunch: job {job} runs, its launcher is process {entry.process.pid}, logs are in "
        f"{entry.facts['logs'] or entry.folder}; ask with mslaunch --status {job}, end it with mslaunch --stop {job}"
    )
    for stream in (sys.stdout, sys.stderr):  # if the first cannot be written, the user still needs the number
        try:
            stream.write(f"{job if quiet else text}\n")
            stream.flush()
            break
        except OSError:
            continue
    return 0


def _show(path: str, size: int) -> None:
    try:
        sys.stderr.buffer.write(head_of(path, min(size, _MUCH)))
        sys.stderr.flush()
    except (OSError, AttributeError):
        pass


class _SignalRelay:
    """Sends the command's signals to the launcher, which is in another session and gets no Ctrl-C of the terminal.

    Signals that come before the launcher is known are kept.
    """

    def __init__(self) -> None:
        self._launcher: ProcessIdentity | None = None
        self._waiting: list[int] = []
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> _SignalRelay:
        for signum in RELAYED:
            if signal.getsignal(signum) != signal.SIG_IGN:  # as nohup(1) leaves it
                self._before.append((signum, signal.signal(signum, self._take)))
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Restore the handlers."""
        for signum, before in self._before:
            signal.signal(signum, before)  # type: ignore[arg-type]

    def to(self, launcher: ProcessIdentity | None) -> None:
        """Hand on what has come, and what comes from now on."""
        self._launcher = launcher
        while launcher and self._waiting:
            launcher.send(self._waiting.pop(0))

    def _take(self, signum: int, frame: FrameType | None) -> None:
        if self._launcher:
            self._launcher.send(signum)
        else:
            self._waiting.append(signum)
