"""What only other programs can tell about an SSH configuration: `ssh -G`, and the commands of Match exec."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mslaunch.errors import LinkError
from mslaunch.host.helper_programs import find_helper
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, lines_of


def succeeds(command: str, environ: Mapping[str, str]) -> bool:
    """Whether a command of Match exec ends with 0, in the user's shell as ssh runs it."""
    import subprocess

    shell = environ.get("SHELL") or "/bin/sh"
    return subprocess.run([shell, "-c", command], stdin=subprocess.DEVNULL, check=False).returncode == 0


def find_ssh(environ: Mapping[str, str]) -> str:
    """The path of the ssh program; "" without one.  Directories of PATH that are not absolute do not count."""
    return find_helper("ssh", environ)


def ask_ssh(name: str, args: Sequence[str], environ: Mapping[str, str], reason: str) -> dict[str, list[str]]:
    """What `ssh -G` prints for a host and differs from what it prints without any configuration.  Raises LinkError."""
    program = find_ssh(environ)
    if not program:
        raise LinkError(f"{reason}, and there is no ssh program to ask", name, f"Rewrite it. {WAY_OUT}")
    found, usual = (_printed(program, [*each, "--", name], environ, reason) for each in (args, ["-F", "none"]))
    return {key: values for key, values in found.items() if values != usual.get(key)}


def _printed(program: str, args: Sequence[str], environ: Mapping[str, str], reason: str) -> dict[str, list[str]]:
    import subprocess

    done = subprocess.run(
        [program, "-G", *args], env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise LinkError(f"{reason}, and ssh -G says: {said}", args[-1], WAY_OUT)
    values: dict[str, list[str]] = {}
    text = done.stdout.decode("utf-8", "surrogateescape")
    for line in lines_of("\n".join(each for each in text.split("\n") if " " in each), "ssh -G"):
        values.setdefault(line.key, []).append(line.rest)
    return values


def account_file(home: str, account_home: str, system: str) -> list[str]:
    """The arguments by which ssh reads the configuration below HOME; by itself it reads that of the account."""
    if home == account_home:
        return []
    mine = f"{home}/.ssh/config"
    return ["-F", mine if os.path.exists(mine) else system if os.path.exists(system) else "none"]
