"""Why the ssh program ended: its last words on standard error as one error, with what to do.

The words are OpenSSH's (sshconnect.c, sshconnect2.c, hostfile.c, kex.c, misc.c), which it never translates.
"""

from __future__ import annotations

import copy

from mslaunch.errors import LinkError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mslaunch.transport.base import OwnSshError

_LONGEST = 300  # letters of a line


class SshProgramError(LinkError):
    """The ssh program did not reach a host, or has lost it."""

    check = "connection"  #: as --check names what has failed


class SshWords(NamedTuple):
    """One thing that ssh says, and what it means."""

    pattern: str  # the first group, if there is one, stands for {} in `what`
    what: str
    todo: str
    check: str = "connection"


_NO_WAY = b"closed by UNKNOWN port "  #: ssh says so if its ProxyCommand has ended
_CHECK_KEY = "host key"
_LOGIN = "login"
_WAY_OUT = "--rsh-agent ssh"
_ASK = "Do not connect; ask the host's administrator."
_KNOWN_BY = "KnownHostsCommand, known_hosts or a certificate has to say which key it has; compare its fingerprint first"
#: the first that matches counts, so causes come before what follows from them
_ROWS = (
    SshWords(
        r"Offending \S+ key in (.*)",
        "its host key has CHANGED; another one is in {}",
        "Somebody may be in between, or the host was installed anew: its administrator knows.",
        _CHECK_KEY,
    ),
    SshWords(r"HOST IDENTIFICATION HAS CHANGED", "its host key has CHANGED", _ASK, _CHECK_KEY),
    SshWords(r"^(.* revoked by file .*)", "its host key is revoked: {}", _ASK, _CHECK_KEY),
    SshWords(r"^(.* is marked as revoked)", "its host key is revoked: {}", _ASK, _CHECK_KEY),
    SshWords(
        r"^Certificate invalid: (.*)",
        "its host certificate is not valid: {}",
        "Have a new certificate signed for the host, with the name by which you call it.",
        _CHECK_KEY,
    ),
    SshWords(r"^(KnownHostsCommand\S* .* failed.*)", "its host key is not known: {}", "", _CHECK_KEY),
    SshWords(r"^No (\S+) host key is known for", "its host key is not known ({})", _KNOWN_BY, _CHECK_KEY),
    SshWords(r"^(Error checking host key.*)", "{}", "", _CHECK_KEY),
    SshWords(r"^(Host key verification failed)", "its host key is not known", _KNOWN_BY, _CHECK_KEY),
    SshWords(
        r"Permission denied \((.*)\)",
        "authentication: the ssh program was not let in; it takes {}",
        "It asks nobody here: a key must be in ssh-agent or without a passphrase; for GSSAPI, kinit first.",
        _LOGIN,
    ),
    SshWords(r"(Too many authentication failures)", "authentication: {}", "", _LOGIN),
    SshWords(r"Could not resolve hostname (.*)", "no address: {}", "Check the spelling, or HostName in ~/.ssh/config."),
    SshWords(r"^ssh: connect to host (.*)", "{}", "Is sshd running there, and reachable from here?"),
    SshWords(r"^(Bad owner or permissions on .*)", "{}", "Others can write it, and could name a command."),
    SshWords(r"^Unable to negotiate with .*: (no matching .*)", "key exchange: {}", ""),
    SshWords(r"^(.*: Bad configuration option: .*)", "{}", "IgnoreUnknown passes over it."),
)


def explained(ended: LinkError, said: bytes, first: OwnSshError, jumps: Sequence[str] = ()) -> LinkError:
    """The error for a program that has ended with 255.

    `first`: why it was called, the error of mslaunch's own SSH.  `jumps`: the hosts on the way, the one next to the
    host first; each is reached by an ssh of its own, and all of these share one standard error.
    """
    lines = [line.strip()[:_LONGEST] for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    other = SshWords("", "the ssh program ended: {}", "")
    row, text = next(_matches(lines), (other, lines[-1] if lines else "it said nothing"))
    failed = min(said.count(_NO_WAY), len(jumps)) if row is not other else 0
    if row.check == _LOGIN == getattr(first, "check", "") and not failed:
        refused = copy.copy(first)  # which says what was tried
        tried = [line for line in first.todo.splitlines() if _WAY_OUT not in line]
        more = f"The ssh program was refused as well; it was used because {first.ssh_reason}."
        refused.todo = "\n".join(filter(None, [*tried, more, first.ssh_todo]))
        return refused
    todo = "\n".join(filter(None, [row.todo, f"The ssh program was used because {first.ssh_reason}."]))
    host = first.where if first.where.split(" ")[0] == ended.where else ended.where  # ours may be a line of a file
    error = SshProgramError(row.what.format(text), host, todo)
    if failed:
        error.what += f" (on the way to {ended.where}, ProxyJump)"
        error.where = jumps[failed - 1]
    error.check = row.check
    error.passing = ended.passing
    return error


def _matches(lines: list[str]) -> Iterator[tuple[SshWords, str]]:
    """The rows that match, each with what its group has found."""
    import re

    for row in _ROWS:
        for line in lines:
            found = re.search(row.pattern, line)
            if found:
                yield row, (found[1] if found.groups() else line).rstrip(". \r")
