"""The transport `local`: an agent on this host, forked, or in a fresh interpreter if this process has threads.

The command forks it ahead (`fork_ahead`), as soon as its words are read: the agent imports its modules while the
launcher imports its own, on another core.  That takes a fifth off the start of few ranks (docs/performance.md).

The two pipes of a forked agent are a mebibyte each, which is worth a third of the throughput of large outputs.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import select
import time

from mslaunch.errors import LinkError, reason
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.transport.base import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OpenContext

_F_SETPIPE_SZ = 1031
_PIPE_SIZE = 1 << 20
LIMITS = "raise the limit in the shell that starts mslaunch, or that of its control group"  # where fork or pipe fails
_KILLED = 2.0  # seconds that a guard has for the rest, once its agent was killed


class ForkLink(Link):
    """A link to an agent that is a child of this process."""

    here = True

    def __init__(self, node: Node, reader: int, writer: int, pid: int) -> None:
        super().__init__(node, reader, writer)
        self._pid = pid

    def wait(self, seconds: float) -> bool:
        """Wait for the guard to end, and reap it."""
        if self._pid and not _reaped(self._pid, seconds):
            return False
        self._pid = 0
        return True

    def kill(self) -> None:
        """Kill the children of the guard, the agent among them, which may be stopped; the guard then kills the rest."""
        from mslaunch.host.processes import children

        if self._pid:
            os.kill(self._pid, signal.SIGCONT)
            for pid in children(self._pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            if not self.wait(_KILLED):
                os.kill(self._pid, signal.SIGKILL)


def _reaped(pid: int, seconds: float) -> bool:
    """Whether `pid`, a child, ends in this time; then it is reaped."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        _wait_for_end(pid, deadline)


def _wait_for_end(pid: int, deadline: float) -> None:
    """Wait until `pid`, a child, has ended; a millisecond where the kernel has no event for that."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # before Linux 5.3, or elsewhere
        time.sleep(0.001)
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    os.close(fd)


#: the agent that was forked ahead: its pid, and our ends of its pipes; [] once it is taken
_ahead: list[tuple[int, int, int]] = []
_released: list[int] = []  # pids of those that nobody has taken


def fork_ahead() -> None:
    """Fork an agent now, for the first local node to come; nothing where this process has threads."""
    if not _ahead and _count_threads() == 1:
        # what both need is loaded once
        from mslaunch.host import own_addresses, usable_cpus  # noqa: F401
        from mslaunch.protocol import control, frames  # noqa: F401
        from mslaunch.runtime import fd_writer, loop  # noqa: F401

        _ahead.append(_fork([]))


def release_ahead() -> None:
    """Let the agent that was forked ahead end, if no node has taken it: the end of its link is its order to end."""
    while _ahead:
        pid, reader, writer = _ahead.pop()
        os.close(reader)
        os.close(writer)
        _released.append(pid)


def discard_ahead() -> None:
    """The same, and wait for its end."""
    release_ahead()
    while _released:
        pid = _released.pop()
        if not _reaped(pid, _KILLED):
            os.kill(pid, signal.SIGKILL)


def open_local(nodes: Sequence[Node], context: OpenContext) -> None:
    """An agent for each node; see `base.Opener`."""
    links: list[Link] = []
    for node in nodes:
        if context.fork and _ahead:
            pid, reader, writer = _ahead.pop()
            links.append(ForkLink(node, reader, writer, pid))
        elif context.fork and _count_threads() == 1:
            links.append(_open_fork(node, [fd for link in links for fd in (link.reader, link.writer)]))
        else:
            import sys

            from mslaunch.transport.bootstrap.command_lines import boot_argv
            from mslaunch.transport.rsh_program import ProcessLink

            links.append(ProcessLink(node, boot_argv(sys.executable, context.policy.timeout), context.loop))
            links[-1].here = True
    for link in links:
        context.opened(link)


def _count_threads() -> int:
    """The threads of this process; the kernel counts those of extensions as well."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def _open_fork(node: Node, close: Iterable[int]) -> ForkLink:
    """Fork an agent for `node`; for `close` see `_fork`."""
    pid, reader, writer = _fork(close)
    return ForkLink(node, reader, writer, pid)


def _fork(close: Iterable[int]) -> tuple[int, int, int]:
    """The pid of a forked agent, and our ends of its pipes.

    It keeps none of our descriptors.  `close` are the ends of other links, which matter most, for systems without
    /proc, where it cannot see which descriptors there are.
    """
    opened: list[int] = []
    try:
        opened += _pipe()
        opened += _pipe()
        pid = os.fork()
    except OSError as error:
        for fd in opened:
            os.close(fd)
        raise LinkError(f"no agent could be started here: {reason(error)}", todo=LIMITS) from None
    down, up = opened[:2], opened[2:]
    if not pid:
        status = 70
        try:
            status = _be_agent(down[0], up[1], [down[1], up[0], *close])
        except OSError as error:  # before the agent spoke, so it is taken for what a host says in place of HELLO
            os.write(up[1], reason(error).encode("utf-8", "replace"))
        finally:
            os._exit(status)
    os.close(down[0])
    os.close(up[1])
    for fd in (down[1], up[0]):
        try:
            fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_SIZE)
        except OSError:  # not Linux, or this user has enough large pipes
            pass
    return pid, up[0], down[1]


def _be_agent(reader: int, writer: int, others: list[int]) -> int:
    from mslaunch.agent.main import agent_main

    gc.freeze()  # the command has stopped it for its imports
    gc.enable()
    signal.set_wakeup_fd(-1)  # this is the launcher's
    null = os.open("/dev/null", os.O_RDWR)
    try:
        others = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        pass
    # replaced, not closed: objects of the launcher may still close these numbers, so they must not be reused
    for fd in {0, 1, 2, *others} - {reader, writer, null}:
        try:
            os.dup2(null, fd, inheritable=False)
        except OSError:  # its number is above today's limit
            os.close(fd)
    return agent_main(reader, writer)


def _pipe() -> tuple[int, int]:
    """A pipe with descriptors above 2, even if standard input is closed (`<&-`)."""
    ends = os.pipe()
    moved: list[int] = []
    try:
        for fd in ends:
            moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))
    except OSError as error:  # EINVAL: 3 is above the limit
        for fd in moved:
            os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
    finally:
        for fd in ends:
            os.close(fd)
    return moved[0], moved[1]
