"""The entry point of the agent: what runs first in the process that forks the agent and becomes its guard.

Only this module and `call_launcher` read `os.environ` in an agent.  On a host where nothing of this package is
installed, the stub of `transport.bootstrap` calls `remote_main`; a local agent is forked and calls `agent_main`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys

from mslaunch.agent import on_demand
from mslaunch.agent.guard import guarded
from mslaunch.errors import WireError, exhausted, reason
from mslaunch.faststd import TYPE_CHECKING, partial, signal
from mslaunch.host.own_addresses import addresses
from mslaunch.host.usable_cpus import count_cores, usable_cpus
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.protocol.sealed_records import Seals


def agent_main(
    reader: int,
    writer: int,
    ssh: str = "",
    patience: float = 0,
    more: Callable[[], None] = lambda: None,
    seals: Seals | None = None,
) -> int:
    """Become guard and agent of the link `reader`/`writer`; returns the exit code, in the guard.

    `ssh` is SSH_CONNECTION, if the link may be one; `patience`: see `guarded`; `more` gets the other modules.
    `seals`: of the bytes of the link, where an agent has called back.
    """
    try:
        os.setsid()  # a Ctrl-C at the launcher's terminal is the launcher's business
    except OSError:  # a session leader already, as under sshd
        pass
    environ = dict(os.environ)

    def serve_link(guard: int, directories: int) -> None:
        said = False
        try:
            path = _say_hello(writer, environ, ssh, seals)
            said = True
            more()
            from mslaunch.agent.agent import serve

            gc.freeze()
            gc.enable()  # the loader of `transport.bootstrap` has disabled it
            serve((reader, writer), (guard, directories), environ, path, seals)
        except (OSError, ImportError) as error:  # something is used up; `serve` tells of all else
            text = _cannot_go_on(error)
            _write(writer, frames.encode(frames.FAULT, payload=text) if said else text, seals)
            raise

    return guarded(serve_link, (reader, writer), patience)


def remote_main(size: int, seals: Seals | None = None) -> None:
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
        more = partial(_read_more, (reader, writer), size, left, seals)
        status = agent_main(reader, writer, ssh, left, more, seals)
    except (OSError, ImportError) as error:  # no agent was forked
        _write(writer, _cannot_go_on(error) + b"\n", seals)
    os._exit(status)


def _cannot_go_on(error: Exception) -> bytes:
    """What the launcher shows, before HELLO or as FAULT: descriptors, processes or memory are used up."""
    return f"its agent could not go on: {reason(exhausted(error))}; raise the limit there".encode("utf-8", "replace")


def _say_hello(writer: int, environ: Mapping[str, str], ssh: str, seals: Seals | None) -> str:
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
    hello = control.Hello(os.uname().nodename, *numbers, version, tuple(found[: control.ADDRESSES]), seen_from, path)
    _write(writer, frames.MAGIC + frames.encode(frames.HELLO, payload=control.pack_record(hello)), seals)
    return path


def _write(writer: int, said: bytes, seals: Seals | None) -> None:
    writev = seals.sealer.writev if seals else os.writev
    try:
        while said:
            said = said[writev(writer, [said]) :]
    except OSError:  # the launcher has gone, as the end of the link tells
        pass


def _read_more(link: tuple[int, int], size: int, seconds: float, seals: Seals | None) -> None:
    """Read the rest of the modules; SIGALRM ends this process if they do not come."""
    import marshal
    import zlib

    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        data = seals.opener.read(size, lambda most: os.read(link[0], most)) if seals else _read(link[0], size)
    except WireError as error:
        _write(link[1], frames.encode(frames.FAULT, payload=error.what.encode()), seals)
        raise
    signal.setitimer(signal.ITIMER_REAL, 0)
    on_demand.add(marshal.loads(zlib.decompress(data)))


def _read(reader: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(reader, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
