"""The ssh program as the carrier of a link: how it is called, and the notice that says why.

It reaches a host whose configuration mslaunch's own SSH cannot honour (`LinkError.ssh_reason`).  It must ask nobody,
forward nothing, run nothing on this host, and leave no connection open.  ssh keeps the first value of each option, so
ours come before those of the user (ssh_config(5)).
"""

from __future__ import annotations

import math

from mslaunch.errors import LinkError
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
    "NoHostAuthenticationForLocalhost=no",  # host keys are always checked
    "LogLevel=INFO",  # else its last words may say nothing
)  # fmt: skip
_FAILED = 255  # exit status of ssh for a mistake in its configuration
_LATE = 124  # stands for that of a program that does not end
_LONGEST_ANSWER = 5.0  # seconds; a master that does not answer is none


class SshCommand(NamedTuple):
    """The ssh program, with the options for one host."""

    program: str  # an absolute path
    words: Sequence[str]  # `Resolver.for_program`
    environ: Mapping[str, str]
    seconds: float  # in which it must connect
    announce: Callable[[], None] = lambda: None  # say that it has added the key of a new host, if it has
    jumps: Sequence[str] = ()  # the hosts on the way (ProxyJump), that next to the host first

    def argv(self, host: str, *command: str) -> list[str]:
        """The words that run a command on a host; what follows `--` is never read as an option."""
        ours = [f"-o{option}" for option in (*_OPTIONS, f"ConnectTimeout={max(1, math.ceil(self.seconds))}")]
        return [self.program, *ours, *self.words, "--", host, *command]

    def proxy_command(self, host: str) -> str:
        """The line of ProxyCommand with which another ssh connects through `host`.

        That ssh replaces tokens in the line, and then a shell reads it.
        """
        *words, dashes, host = (word.replace("%", "%%") for word in self.argv(host))
        return " ".join([*map(_quoted, words), "-W", "'[%h]:%p'", dashes, _quoted(host)])

    def environment(self) -> dict[str, str]:
        """The environment of the program, and of one that it starts for a host on the way: neither opens a window."""
        return {**self.environ, "SSH_ASKPASS_REQUIRE": "never"}

    def printed(self, host: str, arm: Callable[[Callable[[], None]], None]) -> dict[str, str]:
        """What `ssh -G` prints for a host, with our options: keyword -> value; {} if it fails, as ssh will then.

        Raises LinkError if it says neither, since nothing could be taken from lists of algorithms that are not known.
        """
        code, text = self._ask(host, "-G", arm)
        if code not in (0, _FAILED):
            late = f"gave no answer within {_LONGEST_ANSWER:g} s" if code == _LATE else f"ended with status {code}"
            todo = "Does a command of Match exec, or the name service, take that long?" if code == _LATE else ""
            raise LinkError(f"ssh -G {late}", host, todo)
        lines = (line.partition(" ") for line in text.decode("utf-8", "surrogateescape").split("\n"))
        return {key: value for key, _, value in lines} if code == 0 else {}

    def has_master(self, host: str, arm: Callable[[Callable[[], None]], None]) -> bool:
        """Whether the user has a connection to the host open (ControlPath); `arm` gets what ends the wait."""
        return self._ask(host, "-Ocheck", arm)[0] == 0

    def _ask(self, host: str, question: str, arm: Callable[[Callable[[], None]], None]) -> tuple[int, bytes]:
        """The exit status of the program and its output; it connects nowhere."""
        import subprocess

        from mslaunch.host.helper_programs import end_session

        *words, _, host = self.argv(host)
        silent = subprocess.DEVNULL
        try:
            asked = subprocess.Popen(
                [*words, question, "--", host],
                env=self.environment(),
                stdin=silent,
                stdout=subprocess.PIPE,
                stderr=silent,
                start_new_session=True,  # with its commands of Match exec
            )
        except OSError:
            return 127, b""
        try:
            arm(lambda: end_session(asked))
            text = asked.communicate(timeout=_LONGEST_ANSWER)[0]
            return asked.returncode, text
        except subprocess.TimeoutExpired:
            return _LATE, b""
        finally:
            end_session(asked)
            asked.communicate()


def _quoted(word: str) -> str:
    """A word for a shell, in a line whose quotes ssh counts as well: to ssh, a backslash within quotes escapes one."""
    special = {"\\": "\\\\", "'": '"\'"'}
    parts = "".join(f"\0{char}\0" if char in special else char for char in word).split("\0")
    return "".join(special.get(part, f"'{part}'") for part in parts if part) or "''"


def tell(
    carriers: Iterable[tuple[str, ProcessLink, Callable[[], None]]],
    handed_over: HandedOver,
    notice: Callable[[str], None],
) -> None:
    """Say once which hosts the ssh program reaches, and why.

    `carriers`: the name of each host, its program, and `SshCommand.announce`.  What the program says is not repeated:
    on its standard error, the words of a host look like those of ssh.
    """
    by_reason: dict[str, list[str]] = {}
    for name, carrier, announce in carriers:
        if name in handed_over.told or carrier.wait(0.0):  # one that has ended is the subject of an error
            continue
        handed_over.told.add(name)
        by_reason.setdefault(handed_over.causes[name].ssh_reason, []).append(name)
        announce()
    for reason, names in by_reason.items():
        notice(f"{fold(names)}: reached by the ssh program: {reason}")
