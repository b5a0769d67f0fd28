"""The ssh program as the carrier of a link: how it is called, and the notice that says why.

It reaches a host whose configuration mslaunch's own SSH cannot honour (`LinkError.ssh_reason`).  It must ask nobody,
forward nothing, run nothing on this host, and leave no connection open.  ssh keeps the first value of each option, so
ours come before those of the user (ssh_config(5)).
"""

from __future__ import annotations

import math

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mslaunch.transport.base import HandedOver
    from mslaunch.transport.rsh_program import ProcessLink

_OPTIONS = (
    "BatchMode=yes", "ClearAllForwardings=yes", "ControlMaster=no", "ForwardAgent=no", "ForwardX11=no",
    "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no", "Tunnel=no",
    "AddKeysToAgent=no", "UpdateHostKeys=no",  # what is known and held stays as it is
    "LogLevel=INFO",  # else its last words may say nothing
)  # fmt: skip
_ADDED = "Warning: Permanently added"  # the key of a new host, as the user has allowed (sshconnect.c)
_LONGEST_CHECK = 5.0  # seconds; a master that does not answer is none


class SshCommand(NamedTuple):
    """The ssh program, with the options for one host."""

    program: str  # an absolute path
    words: Sequence[str]  # `Resolver.for_program`
    environ: Mapping[str, str]
    seconds: float  # in which it must connect

    def argv(self, host: str, *command: str) -> list[str]:
        """The words that run a command on a host; what follows `--` is never read as an option."""
        ours = [f"-o{option}" for option in (*_OPTIONS, f"ConnectTimeout={max(1, math.ceil(self.seconds))}")]
        return [self.program, *ours, *self.words, "--", host, *command]

    def environment(self) -> dict[str, str]:
        """The environment of the program, and of one that it starts for a host on the way: neither opens a window."""
        return {**self.environ, "SSH_ASKPASS_REQUIRE": "never"}

    def has_master(self, host: str, arm: Callable[[Callable[[], None]], None]) -> bool:
        """Whether the user has a connection to the host open (ControlPath); `arm` gets what ends the wait."""
        import subprocess

        *words, _, host = self.argv(host)
        silent = subprocess.DEVNULL
        try:
            check = subprocess.Popen(
                [*words, "-O", "check", "--", host], env=self.environment(), stdin=silent, stdout=silent, stderr=silent
            )
        except OSError:
            return False
        try:
            arm(check.kill)
            return not check.wait(_LONGEST_CHECK)
        except subprocess.TimeoutExpired:
            return False
        finally:
            check.kill()
            check.wait()


def tell(carriers: Iterable[tuple[str, ProcessLink]], handed_over: HandedOver, notice: Callable[[str], None]) -> None:
    """Say once which hosts the ssh program reaches, and why; `carriers`: the name of each host and its program."""
    by_reason: dict[str, list[str]] = {}
    for name, carrier in carriers:
        if name in handed_over.told or carrier.wait(0.0):  # one that has ended is the subject of an error
            continue
        handed_over.told.add(name)
        by_reason.setdefault(handed_over.causes[name].ssh_reason, []).append(name)
        said = carrier.noise().decode("utf-8", "replace").splitlines()
        for line in (line for line in said if line.startswith(_ADDED)):
            notice(f"{name}: {line}")
    for reason, names in by_reason.items():
        notice(f"{fold(names)}: reached by the ssh program: {reason}")
