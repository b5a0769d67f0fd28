"""Stacks of the ranks: from a debugger of this host, or else from /proc.

The first tool that is there is run for each process of each rank (a rank may be a shell with the program below it), a
few at a time.  py-spy is asked for the functions of libraries too (--native), which takes it long where they are large;
when half of the time is over, it is asked for those of Python only.  Each process is looked at in /proc before a tool
stops it: else a tool that does not finish would show itself as what the process waits for.  A process's command line is
never read: the kernel makes the reader wait for a process that hangs while it changes its memory, and such processes
are what one looks for here.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.programs_of_shells import held_back
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess, open_fds
from mslaunch.agent.ranks.trusted_path import is_trusted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, signal
from mslaunch.host.processes import identity, is_ours, link, numbers, stat_fields
from mslaunch.host.system_files import head_of
from mslaunch.protocol.control import StackTrace
from mslaunch.protocol.frames import NO_RANK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.runtime.loop import Loop

_PER_RANK = 8  # processes that are looked at
_TEXT = 1 << 16  # bytes of output kept of one process
_LINE = 300
_THREADS = 32
_WATCHED = 0.25  # seconds in which a thread that computes, or looks again and again, uses the cpu
_BUSY = 0.05  # of that time
_PLACES = ("/usr/local/bin", "/usr/bin", "/bin")
_BEGINS = ("Thread", "TID ", "#0")  # where the part of a tool's output begins that is worth keeping
_STATES = {
    b"R": "running",
    b"S": "sleeping",
    b"D": "sleeping, and no signal wakes it",
    b"T": "stopped",
    b"t": "stopped by a debugger",
    b"Z": "a zombie",
}


#: machine -> number -> name, of the system calls in which programs wait
CALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
        23: "select", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
        46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 128: "rt_sigtimedwait",
        130: "rt_sigsuspend", 202: "futex", 219: "restart_syscall", 230: "clock_nanosleep", 232: "epoll_wait",
        247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
        66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 82: "fsync", 95: "waitid",
        98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall", 133: "rt_sigsuspend",
        137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
        212: "recvmsg", 242: "accept4", 260: "wait4",
    },
}  # fmt: skip


class DebuggerCommand(NamedTuple):
    """A tool that prints the stacks of a process: its name and arguments, PID in place of the number."""

    tool: str
    args: tuple[str, ...]
    python: bool = False  # it knows Python, and nothing else
    slow: bool = False  # perhaps: it is asked while there is time


#: the first that is there is asked
TOOLS = (
    DebuggerCommand("py-spy", ("dump", "--native", "--full-filenames", "--pid", "PID"), python=True, slow=True),
    DebuggerCommand("py-spy", ("dump", "--pid", "PID"), python=True),
    DebuggerCommand("eu-stack", ("-m", "-p", "PID")),
    DebuggerCommand("gstack", ("PID",)),
    DebuggerCommand("gdb", ("-nx", "-batch", "-p", "PID", "-ex", "thread apply all backtrace 64")),
)


class Tracer:
    """Looks once at the ranks `pids` (rank -> process id); `found(rank, traced)` is called for each process.

    At the end, and not later than the seconds given to `begin`, it is called with `(NO_RANK, None)`.
    """

    def __init__(
        self,
        loop: Loop,
        pids: Mapping[int, int],
        environ: Mapping[str, str],
        found: Callable[[int, StackTrace | None], None],
        folders: Sequence[str] = (),
    ) -> None:
        """`folders`: where py-spy may lie besides PATH, as where the programs of the ranks lie."""
        self._loop = loop
        self._found = found
        self._path = environ.get("PATH", "").split(":")
        self._folders = folders
        self._env = {name: environ[name] for name in ("PATH", "HOME", "LANG") if name in environ}
        members = _sessions(set(pids.values()))
        self._waiting = [
            _DebuggerRun(rank, pid) for rank, leader in pids.items() for pid in members[leader][:_PER_RANK]
        ]
        self._looking: list[_DebuggerRun] = []
        self._began = loop.now()
        self._used = {look.pid: _cpu_seconds(look.pid) for look in self._waiting}
        self._hurried = self._stopped = False

    def begin(self, seconds: float) -> None:
        """Start looking; after `seconds`, be content with /proc for what is left."""
        self._loop.after(seconds / 2, self._hurry)
        self._loop.after(seconds, self.stop)
        self._go_on()

    def _hurry(self) -> None:
        """No more slow tools; those that run are ended, and others asked."""
        self._hurried = True
        for look in self._looking:
            if look.process and look.slow and not self._stopped:
                look.process.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End the tools (the kernel lets go of the process that one looks at), and report the rest from /proc."""
        if self._stopped:
            return
        for look in self._looking:
            if look.process:
                look.process.signal(signal.SIGKILL)
            reason = f"{look.tool} took too long; before it stopped the process:" if look.process else look.reason
            self._found(look.rank, self._by_proc(look, reason, _partial(look)))
        for look in self._waiting:
            look.threads = threads_of(look.pid)
            self._found(look.rank, self._by_proc(look, "there was no time to ask a debugger"))
        self._finish()

    def _by_proc(self, look: _DebuggerRun, reason: str, more: Sequence[str] = ()) -> StackTrace:
        """What /proc said, and `more` of the tool."""
        used, seconds = _cpu_seconds(look.pid) - self._used[look.pid], self._loop.now() - self._began
        busy = f", used the CPU for {used:.2f} of {seconds:.2f} s" if used > _BUSY * seconds else ""
        lines = [line + busy * line.startswith(f"thread {look.pid} ") for line in look.threads]
        return StackTrace(look.pid, _read(look.pid, "comm"), "/proc", _bounded([reason, *lines, *more]))

    def _finish(self) -> None:
        self._stopped = True
        self._found(NO_RANK, None)

    def _go_on(self) -> None:
        while not self._stopped and self._waiting and len(self._looking) < max(2, os.cpu_count() or 1):
            look = self._waiting.pop(0)
            look.commands = _commands(look.pid, self._path, self._folders)
            if not look.commands and not is_ours(look.pid):
                look.reason = "it runs as another user, so no debugger was asked"
            look.threads = threads_of(look.pid)
            self._looking.append(look)
            self._ask(look)
        if not self._looking and not self._stopped:
            self._finish()

    def _ask(self, look: _DebuggerRun) -> None:
        """The next tool, or /proc when there is none."""
        while look.commands:
            slow, command = look.commands.pop(0)
            if slow and self._hurried:
                continue
            look.tool, look.slow, look.data = os.path.basename(command[0]), slow, b""
            process = RankProcess(look.rank, self._loop, look.events)
            try:
                process.start(command[0], command, self._env, open_fds(merge=True))
            except OSError as error:
                look.reason = f"{look.tool}: {error.strerror}"
                continue
            look.process = process
            look.then = lambda: self._answered(look)
            process.watch(True)
            return
        look.process = None
        seconds = self._began + _WATCHED - self._loop.now()
        self._loop.after(max(0.0, seconds), lambda: self._give_up(look))

    def _give_up(self, look: _DebuggerRun) -> None:
        if not self._stopped:
            self._report(look, self._by_proc(look, look.reason))

    def _answered(self, look: _DebuggerRun) -> None:
        if self._stopped:
            return
        look.process = None
        output = look.data.decode("utf-8", "replace")
        text = worth_keeping(output)
        if look.killed:  # to save time
            look.reason = f"{look.tool} took too long"
            self._ask(look)
        elif text:
            self._report(look, StackTrace(look.pid, _read(look.pid, "comm"), look.tool, text))
        else:
            words = [line for line in output.splitlines() if line.strip()]
            look.reason = f"{look.tool}: {words[-1][:_LINE]}" if words else f"{look.tool} printed nothing"
            self._ask(look)

    def _report(self, look: _DebuggerRun, traced: StackTrace) -> None:
        self._found(look.rank, traced)
        self._looking.remove(look)
        self._loop.soon(self._go_on)


class _DebuggerRun:
    """One process that is looked at, and the tool that runs for it."""

    reason = "no debugger was found there: py-spy, eu-stack, gstack or gdb would show more"
    tool = ""
    slow = killed = False  # the tool
    data = b""
    process: RankProcess | None = None
    commands: list[tuple[bool, list[str]]]  # whether it is slow, and its command line
    threads: list[str]  # as they were before the first tool
    then: Callable[[], None]

    def __init__(self, rank: int, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self.events = ProcessEvents(self._output, self._exited)

    def _output(self, kind: int, rank: int, data: bytes) -> None:
        if len(self.data) < _TEXT:
            self.data += data

    def _exited(self, rank: int, status: ExitStatus) -> None:
        self.killed = status.signal == signal.SIGKILL
        if self.killed and not any("T (stopped)" in line for line in self.threads):
            _go_on(self.pid)
        if self.process:
            self.process.retire(self.then)


def _go_on(pid: int) -> None:
    """Wake a process whose debugger was killed while it attached.

    The stop that belongs to attaching (ptrace(2)) may come later; SIGCONT discards it.  A shell that is held back while
    its job is ended is continued by whoever holds it.
    """
    if pid in held_back:
        return
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:  # it has ended
        pass


def _commands(pid: int, path: Sequence[str], folders: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """Slow or not, and the command lines for `pid`, best first; none for a process that runs as another user.

    A tool for Python may also lie beside the interpreter, or in `folders`.  The process may have chosen both, so such a
    tool is run only if nobody but us and root can have put it there.
    """
    before = identity(pid)
    folder, name = os.path.split(link(pid, "exe"))
    python = name.startswith(("python", "pypy"))
    places = [place for place in (*path, *_PLACES) if place.startswith("/")]
    found = []
    for tool, args, only_python, slow in TOOLS:
        if only_python and not python:
            continue
        beside = [f"{each}/{tool}" for each in (folder, *folders) if only_python and each.startswith("/")]
        files = [f"{place}/{tool}" for place in places] + [file for file in beside if is_trusted(file)]
        file = next((file for file in files if os.access(file, os.X_OK)), "")
        if file:
            found.append((slow, [file, *(str(pid) if word == "PID" else word for word in args)]))
    return found if before and identity(pid) == before else []


def worth_keeping(output: str) -> str:
    """A tool's output from the first thread or stack frame on, in bounded lines; "" if there is no stack in it."""
    lines = output.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith(_BEGINS)), None)
    if first is None:
        return ""
    kept = [line[:_LINE] for line in lines[first:] if line.strip() and not line.startswith("[Inferior")]
    text = "\n".join(kept)
    return text if len(text) <= _TEXT else text[:_TEXT].rpartition("\n")[0] + "\n(cut here)"


def _partial(look: _DebuggerRun) -> list[str]:
    """What a tool had said that has not finished."""
    text = worth_keeping(look.data.decode("utf-8", "replace"))
    return [f"what {look.tool} had said by then:", *text.splitlines()] if text else []


def _cpu_seconds(pid: int) -> float:
    """What its main thread has used of the cpu."""
    fields = stat_fields(f"{pid}/task/{pid}")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else 0.0


def _bounded(lines: list[str]) -> str:
    return "\n".join(line[:_LINE] for line in lines)


def threads_of(pid: int) -> list[str]:
    """The state of each thread and where it sleeps, and its kernel stack if we may see that: lines from /proc."""
    threads = sorted(numbers(f"/proc/{pid}/task"), key=lambda thread: (thread != pid, thread))  # numbers may wrap
    lines = []
    calls = CALLS.get(os.uname().machine, {})
    for thread in threads[:_THREADS]:
        task = f"{pid}/task/{thread}"
        state = stat_fields(task)[:1]
        where = [f"{state[0].decode()} ({_STATES.get(state[0], 'see proc(5)')})"] if state else ["gone"]
        sleeps, call = _read(task, "wchan"), _read(task, "syscall").split(" ")[0]
        where += [f"in {sleeps}"] if sleeps not in ("", "0") else []
        name = calls.get(int(call)) if call.isdigit() else None
        where += [f"system call {call}" + f" ({name})" * bool(name)] if call.isdigit() else []
        lines.append(f"thread {thread} {_read(task, 'comm')}: {', '.join(where)}")
        lines += [f"  {line}" for line in _read(task, "stack").splitlines()]
    if len(threads) > _THREADS:
        lines.append(f"and {len(threads) - _THREADS} more threads")
    if not threads:
        lines.append("it has ended meanwhile")
    return lines


def _sessions(leaders: set[int]) -> dict[int, list[int]]:
    """The processes of each session, its leader first: a rank is the leader of one."""
    found = {leader: [leader] for leader in leaders}
    for pid in numbers():
        fields = stat_fields(pid)
        if len(fields) > 3 and pid not in leaders and int(fields[3]) in leaders:
            found[int(fields[3])].append(pid)
    return found


def _read(task: object, name: str) -> str:
    return head_of(f"/proc/{task}/{name}", _TEXT).decode("utf-8", "replace").strip()
