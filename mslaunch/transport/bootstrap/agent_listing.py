"""The listing for security teams: command lines of agents, and the size and SHA-256 of all that is sent to hosts.

    python3 -m mslaunch.transport.bootstrap.agent_listing [--agent-python PROGRAM] [--connect-timeout S] [--write DIR]

It reads the installed package, makes everything as a launch does, and starts nothing.  --write makes files of it, the
modules as the source that hosts of another Python get.  docs/endpoint-protection.md explains them.
"""

from __future__ import annotations

import os
import shlex
import sys

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.call_proof import bytecode
from mslaunch.transport.bootstrap import command_lines
from mslaunch.transport.bootstrap.agent_program import pack_part, part, program_for, source_of
from mslaunch.transport.bootstrap.manifest import CORE, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PLACES = ["HOST", "DIRECTORY"]  # of a command line that names them


def lines_on_hosts(python: str, timeout: float) -> dict[str, str]:
    """Ways to start an agent, each with the command line that its host sees."""
    plain = [python, "-I", "-S", "-"]
    return {
        "SSH, --rsh-agent, kubectl": command_lines.boot_line(python, timeout),
        "srun, for all hosts": shlex.join(command_lines.calling_argv(python, timeout)[0]),
        "srun, for a host that cannot call back": shlex.join(command_lines.boot_argv(python, timeout)),
        "Grid Engine": command_lines.calling_line(python, timeout)[0],
        "LSF, Flux": shlex.join(plain),
        "PBS": shlex.join(command_lines.file_argv(python, timeout, _PLACES[1:], _PLACES[0])),
    }


def sent() -> dict[str, bytes]:
    """What is sent to a host, by file names: the program, in two forms, and the parts that few jobs need."""
    found = {f"program.{bytecode()}": program_for(bytecode()), "program.source": program_for("")}
    return {**found, **{f"part.{name}": pack_part(part(name)) for name in PARTS}}


def listing(python: str, timeout: float) -> Iterator[str]:
    """The lines that the command prints."""
    from hashlib import sha256

    for way, line in lines_on_hosts(python, timeout).items():
        yield f"{way}:"
        yield from (f"    {row}" for row in line.splitlines())
    yield "sent on the link:"
    for name, data in sent().items():
        yield f"    {sha256(data).hexdigest()}  {len(data):>6} bytes  {name}"


def write(folder: str) -> None:
    """Write what is sent, and below `modules` the source of each module."""
    os.makedirs(folder)
    for name, data in sent().items():
        _write(os.path.join(folder, name), data)
    for module in dict.fromkeys((*CORE, *(name for modules in PARTS.values() for name in modules))):
        package, source = source_of(module)
        path = os.path.join(folder, "modules", *module.split("."))
        _write(os.path.join(path, "__init__.py") if package else f"{path}.py", source.encode())


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)


def main(words: Sequence[str]) -> int:
    """The command; returns its exit code."""
    from argparse import ArgumentParser

    parser = ArgumentParser("python3 -m mslaunch.transport.bootstrap.agent_listing", description=__doc__.split("\n")[0])
    parser.add_argument("--agent-python", default="python3", metavar="PROGRAM", help="as it is given to mslaunch")
    parser.add_argument("--connect-timeout", type=float, default=15.0, metavar="SECONDS", help="likewise")
    parser.add_argument("--write", metavar="DIR", help="write what is sent into a new directory")
    asked = parser.parse_args(words)
    try:
        if asked.write:
            write(asked.write)
        print(*listing(asked.agent_python, asked.connect_timeout), sep="\n")
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    except UsageError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
