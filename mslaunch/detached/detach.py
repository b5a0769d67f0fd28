"""Detached jobs: the command returns once all ranks run, and a launcher without a terminal stays with them.

The command forks before anything is opened: its grandchild, in a session of its own, is the launcher, and all that it
says goes to a file of the register.  The command waits on a pipe for one of three words: the ranks run; the launch was
refused; the job has ended already.  Until then it shows what the launcher says and hands its signals on, so that
whatever is wrong looks as ever.  Here no rank is known, and no rule of a launch.  The surprising thing: this is the
only fork of the launcher that is no agent; it must come before threads and links.
"""

from __future__ import annotations

import os
import sys
import time

from mslaunch.cli.dialects import OWN
from mslaunch.detached.job_registry import JobRegistry, LauncherProcess, process
from mslaunch.errors import EXIT_NOT_FOUND, EXIT_USAGE, LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.datamodel.request import Request
    from mslaunch.detached.job_registry import JobEntry
    from mslaunch.launcher.launch_context import Caller

    Told = Callable[[Callable[[], int]], int]  # prints what an act refuses; returns the exit code

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_MUCH = 1 << 20  #: bytes of the launcher's words that the command repeats
_HIDDEN = "…"


def detach(
    request: Request,
    typed: Sequence[str],
    around: Caller,
    launch: Callable[[Caller], Outcome],
    told: Told,
) -> int:
    """Start the launcher of a job, and wait until all ranks run; returns the exit code of the command.

    `typed` is the command line, `launch` does what a launcher does.  Raises `LaunchError`.
    """
    if request.backend:
        todo = "leave it out, or stay with the job"
        raise LaunchError("an installed Open MPI cannot start a job that is to be left alone", "--backend", todo)
    _check_scripts(request, around.cwd)
    me = process(os.getpid())
    if me is None:
        raise LaunchError("without it no job that is left alone could be found again", "/proc", "stay with the job")
    entry = JobRegistry(around.environ).add(**_facts(request, typed, around.cwd, me))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reader, writer = os.pipe()
    with _Relay() as relay:
        child = os.fork()
        if not child:
            os.close(reader)
            relay.stop()
            _leave(entry, around, launch, told, writer)
        os.close(writer)
        os.waitpid(child, 0)
        with open(reader, encoding="ascii") as words:
            return _wait(entry, words.readline, relay, request.quiet)


def _check_scripts(request: Request, cwd: str) -> None:
    """A Python that does not find its script has started well, and nobody would see what it says of it.

    What lies on other hosts is not known here.
    """
    for app in request.apps:
        elsewhere = app.hosts or app.hostfile is not None or request.default_hostfile is not None
        python = os.path.basename(app.argv[0]).rstrip("0123456789.") == "python"
        if elsewhere or app.session_dir or not python or len(app.argv) < 2 or app.argv[1][:1] in ("-", ""):
            continue
        path = os.path.join(cwd, app.wdir or "", app.argv[1])
        if not os.path.exists(path):
            raise LaunchError(f"there is no file {path} for {app.argv[0]}", code=EXIT_NOT_FOUND)


def _facts(request: Request, typed: Sequence[str], cwd: str, me: LauncherProcess) -> dict[str, object]:
    """What is written down of a job before it begins; no values of variables."""
    from mslaunch.launcher.stdio.rank_logs import layouts

    bases = [os.path.join(cwd, layout.base) for layout in layouts(request.output)]
    counts = [app.np for app in request.apps]
    return {
        "command": _without_values(request, typed),
        "cwd": cwd,
        "began": time.time(),
        "process": me,
        "ranks": sum(filter(None, counts)) if None not in counts else None,
        "logs": os.path.normpath(bases[0]) if bases else None,
        "grace": request.grace,
    }


def _without_values(request: Request, typed: Sequence[str]) -> list[str]:
    """The words that were typed, with what variables are set to left out: -x KEY=…"""
    pairs = {(name, value) for app in request.apps for name, value in app.env if value}
    name = os.path.basename(typed[0])
    words = [OWN if name == "__main__.py" else name, *typed[1:]]
    for name, value in pairs:
        for at, word in enumerate(words):
            if word.endswith(f"{name}={value}"):
                words[at] = word[: -len(value)] + _HIDDEN
            elif word == value and words[at - 1] == name:
                words[at] = _HIDDEN
    return words


# --- the launcher


def _leave(entry: JobEntry, around: Caller, launch: Callable[[Caller], Outcome], told: Told, writer: int) -> None:
    """Become a process that nobody waits for, and from there the launcher; never returns."""
    status = EXIT_USAGE
    try:
        os.setsid()
        status = 0 if os.fork() else _be_launcher(entry, around, launch, told, writer)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # a mistake of ours: it goes to the file
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(status)


def _be_launcher(entry: JobEntry, around: Caller, launch: Callable[[Caller], Outcome], told: Told, writer: int) -> int:
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(entry.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    os.close(null)
    os.close(log)
    _note(entry, process=process(os.getpid()))
    report = _Report(writer)
    report.say("process", os.getpid())

    def started() -> None:
        if not report.over:
            _note(entry, running=time.time())
            report.say("started", os.fstat(1).st_size)

    def act() -> int:
        outcome = launch(around._replace(started=started))
        outcomes.append(outcome)
        return outcome.code

    outcomes: list[Outcome] = []
    code = told(act)
    sys.stderr.flush()
    ranks = len(outcomes[0].ranks) if outcomes else entry.facts["ranks"]
    _note(entry, ended=time.time(), code=code, how=_how(outcomes), ranks=ranks)
    report.say("ended" if any(map(_ran, outcomes)) else "refused", os.fstat(1).st_size)
    return code


def _note(entry: JobEntry, **facts: object) -> None:
    """Write down; the job goes on if that cannot be done."""
    try:
        entry.note(**facts)
    except OSError as error:
        sys.stderr.write(f"mslaunch: {entry.folder}: {error.strerror}; --status will not know\n")


def _ran(outcome: Outcome) -> bool:
    """Some of its ranks were started, now or in an earlier attempt."""
    return bool(outcome.attempts) or any(rank.pid for rank in outcome.ranks)


def _how(outcomes: Sequence[Outcome]) -> str:
    """How the job ended, in a sentence."""
    if not outcomes:
        return "nothing was started"
    failure = outcomes[0].failure
    if failure is None:
        return "all ranks ended well"
    return failure.what + (f" on {failure.host}" if failure.host else "")


class _Report:
    """The launcher's end of the pipe."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self.over = False  # the last word was said

    def say(self, word: str, number: int) -> None:
        """One word to the command, which may have been killed."""
        if self.over:
            return
        try:
            os.write(self._writer, f"{word} {number}\n".encode())
        except BrokenPipeError:
            pass
        if word != "process":
            self.over = True
            os.close(self._writer)


# --- the command


def _wait(entry: JobEntry, hear: Callable[[], str], relay: _Relay, quiet: bool) -> int:
    """Until the launcher has said how it went; shows what it has said to the user up to then."""
    word, _, number = hear().partition(" ")
    if word == "process":
        relay.to(process(int(number)))
        word, _, number = hear().partition(" ")
    _show(entry.log, int(number or _MUCH))
    entry.reload()
    if word == "refused":
        entry.remove()
    if word in ("refused", "ended"):
        return int(entry.facts["code"])
    if word != "started":
        raise LaunchError("the launcher was killed before all ranks ran", f"job {entry.number}", f"see {entry.log}")
    _say(f"{entry.number if quiet else _started(entry)}\n")
    return 0


def _say(line: str) -> None:
    """To standard output; the job runs, so if that takes nothing, its number must be seen elsewhere."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.write(line)
            stream.flush()
            return
        except OSError:
            continue


def _started(entry: JobEntry) -> str:
    job = entry.number
    return (
        f"mslaunch: job {job} runs, its launcher is process {entry.process.pid}, logs are in "
        f"{entry.facts['logs'] or entry.folder}; ask with mslaunch --status {job}, end it with mslaunch --stop {job}"
    )


def _show(path: str, size: int) -> None:
    """The launcher's words, to standard error."""
    try:
        with open(path, "rb") as file:
            said = file.read(min(size, _MUCH))
        sys.stderr.buffer.write(said)
        sys.stderr.flush()
    except (OSError, AttributeError):
        pass


class _Relay:
    """Signals to the command go to the launcher, since a Ctrl-C at the terminal does not reach it."""

    def __init__(self) -> None:
        self._launcher: LauncherProcess | None = None
        self._waiting: list[int] = []
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> _Relay:
        for name in _SIGNALS:
            signum = getattr(signal, name)
            if signal.getsignal(signum) != signal.SIG_IGN:  # as nohup(1) leaves it
                self._before.append((signum, signal.signal(signum, self._take)))
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Signals mean again what they meant before."""
        for signum, before in self._before:
            signal.signal(signum, before)  # type: ignore[arg-type]

    def to(self, launcher: LauncherProcess | None) -> None:
        """This is the launcher."""
        self._launcher = launcher
        waiting, self._waiting = self._waiting, []
        for signum in waiting:
            self._take(signum, None)

    def _take(self, signum: int, frame: FrameType | None) -> None:
        if self._launcher:
            self._launcher.send(signum)
        else:
            self._waiting.append(signum)
