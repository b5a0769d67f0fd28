"""The entry point of the agent: what runs first in the process that forks the agent and becomes its guard.

Only this module and `call_launcher` read `os.environ` in an agent.  On a host where nothing of this package is
installed, the stub of `transport.bootstrap` calls `remote_main`; a local agent is forked and calls `agent_main`.
"""

from __future__ import annotations

import fcntl
import os
import sys

from mslaunch.agent import on_demand
from mslaunch.agent.guard import guarded
from mslaunch.errors import exhausted, reason
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.own_addresses import addresses
from mslaunch.host.usable_cpus import count_cores, usable_cpus
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ADDRESSES = 256  # that HELLO names; a host with thousands of containers has more interfaces


def agent_main(
    reader: int, writer: int, ssh: str = "", patience: float = 0, more: Callable[[], None] = lambda: None
) -> int:
    """Become guard and agent of the link `reader`/`writer`; returns the exit code, in the guard.

    `ssh` is SSH_CONNECTION, if the link may be one; `patience`: see `guarded`; `more` gets the other modules.
    """
    try:
        os.setsid()  # a Ctrl-C at the launcher's terminal is the launcher's business
    except OSError:  # a session leader already, as under sshd
        pass
    environ = dict(os.environ)

    def serve_link(guard: int, directories: int) -> None:
        said = False
        try:
            path = _say_hello(writer, environ, ssh)
            said = True
            more()
            from mslaunch.agent.agent import serve

            serve((reader, writer), (guard, directories), environ, path)
        except (OSError, ImportError) as error:  # something is used up; `serve` tells of all else
            text = _cannot_go_on(error)
            _write(writer, frames.encode(frames.FAULT, payload=text) if said else text)
            raise

    return guarded(serve_link, (reader, writer), patience)


def remote_main(size: int) -> None:
    """The link is standard input and output; both are moved to other descriptors, so that nothing can print there.

    `size`: bytes of the program's second half, which follows on the link.
    """
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # of the limit of `transport.bootstrap` for its program
    writer, status = 1, 70
    try:
        reader, writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))  # stderr may be closed
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        os.close(null)
        ssh = os.environ.get("SSH_CONNECTION", "")
        status = agent_main(reader, writer, ssh, left, lambda: _read_more(reader, size, left))
    except (OSError, ImportError) as error:  # no agent was forked
        _write(writer, _cannot_go_on(error) + b"\n")
    os._exit(status)


def _cannot_go_on(error: Exception) -> bytes:
    """What the launcher shows, before HELLO or as FAULT: descriptors, processes or memory are used up."""
    return f"its agent could not go on: {reason(exhausted(error))}; raise the limit there".encode("utf-8", "replace")


def _say_hello(writer: int, environ: Mapping[str, str], ssh: str) -> str:
    """Write the magic and HELLO; returns the path of the session directory, which HELLO names.

    Most of the agent's modules are not here yet, or not loaded: they come, or load, while the launcher reads it.
    srun and others hand on the SSH_CONNECTION of the host that they run on: then the server is not this host.
    Link-local addresses, which have a %, are not among `addresses()`.
    """
    path = os.path.abspath(f"{environ.get('TMPDIR') or '/tmp'}/mslaunch-{os.getpid()}-{os.urandom(8).hex()}")
    cpus, found, seen_from = usable_cpus(), addresses(), ""
    words = ssh.split()  # sshd(8): client, port, server, port
    if len(words) == 4 and (words[2] in found or words[2].startswith("127.") or "%" in words[2]):
        seen_from = words[0]
        found = list(dict.fromkeys([words[2], *found]))
    version = ".".join(map(str, sys.version_info[:3]))
    numbers = (os.getpid(), len(cpus), count_cores(cpus))
    hello = control.Hello(os.uname().nodename, *numbers, version, tuple(found[:_ADDRESSES]), seen_from, path)
    _write(writer, frames.MAGIC + frames.encode(frames.HELLO, payload=control.pack_record(hello)))
    return path


def _write(writer: int, said: bytes) -> None:
    try:
        while said:
            said = said[os.write(writer, said) :]
    except OSError:  # the launcher has gone, as the end of the link tells
        pass


def _read_more(reader: int, size: int, seconds: float) -> None:
    """Read the rest of the modules; SIGALRM ends this process if they do not come."""
    import marshal
    import zlib

    signal.setitimer(signal.ITIMER_REAL, seconds)
    data = bytearray()
    while len(data) < size:
        piece = os.read(reader, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    signal.setitimer(signal.ITIMER_REAL, 0)
    on_demand.add(marshal.loads(zlib.decompress(data)))
