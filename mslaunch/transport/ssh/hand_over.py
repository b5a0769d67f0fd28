"""How the ssh program is called for one host, so that it trusts no more than mslaunch's own SSH.

A host, or a relay in front of it, can choose by the algorithms it offers that the ssh program reaches it, before any
host key was checked.  The rules of our own SSH therefore apply to that program, too: which host keys count, no
algorithms except those of our lists and of ssh's defaults, and no open connection (ControlPath) except the user's.
They also apply to each host of ProxyJump: mslaunch gives ssh a ProxyCommand with an ssh program for that host.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from mslaunch.agent.ranks.trusted_path import is_trusted
from mslaunch.errors import LinkError
from mslaunch.host.system_files import who_else
from mslaunch.transport.ssh.authenticate import BY_MASTER, LoginError, no_key
from mslaunch.transport.ssh.config.algorithms import of_program
from mslaunch.transport.ssh.config.ssh_config import HostConfig, refuse_unsafe
from mslaunch.transport.ssh.config.ssh_program import find_ssh
from mslaunch.transport.ssh.host_key_rules import HostKeyError
from mslaunch.transport.ssh.reach_host import split_jump
from mslaunch.transport.ssh_command import SshCommand

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OwnSshError
    from mslaunch.transport.ssh.deadline import Arm
    from mslaunch.transport.ssh.reach_host import Shared

_WAYS = ("-oproxyjump=", "-oproxycommand=")  # as `Resolver.for_program` writes them
_MOST_JUMPS = 4  # each stands inside the command line of the one behind it, in quotes in quotes


def ssh_command(shared: Shared, node: Node, cause: OwnSshError, arm: Arm) -> SshCommand | None:
    """The ssh program for a host that our own SSH cannot reach for this `cause`; None if it could not do so either."""
    program = find_ssh(shared.environ)
    if not program:
        return None
    calls = _Calls(shared, program, cause, arm, "")
    if isinstance(cause, LoginError) and cause.master:
        if _has_master(calls, cause.master):
            calls, cause.ssh_reason = calls._replace(master=cause.master.name), no_key(BY_MASTER)
        elif not cause.without_master:
            return None
        else:
            cause.ssh_reason = no_key(cause.without_master)
    return calls.checked((node.called, node.user, node.port), "", ())


class _Calls(NamedTuple):
    """What the calls of the ssh program for a host and for those on the way to it have in common."""

    shared: Shared
    program: str
    cause: OwnSshError
    arm: Arm
    master: str  # the host whose open connection is used, or ""

    def plain(self, name: str, user: str | None, port: int | None) -> SshCommand:
        """The call for one host, with its rules for host keys."""
        shared = self.shared
        rules = _key_rules(shared, name, user, port)
        if rules:
            shared.trust.refuse_hidden_markers(rules)
        new = rules if rules and not isinstance(self.cause, HostKeyError) and _may_be_new(shared, rules) else None
        words = shared.resolver().for_program(name, user, port, "accept-new" if new else "yes")
        plain = SshCommand(self.program, words, shared.environ, shared.policy.timeout)
        return plain._replace(announce=lambda: shared.trust.announce(new)) if new else plain

    def checked(self, host: tuple[str, str | None, int | None], jumps: str, trail: tuple[str, ...]) -> SshCommand:
        """The call for one host, with its algorithms, its open connection, and the way to it.

        `jumps`: the hosts on that way, as in ProxyJump; "": those of the configuration.  `trail`: whose way it is on.
        """
        name = host[0]
        ours = self.plain(*host)
        if trail:  # plm_rsh_args names the way to the host at its end
            ours = ours._replace(words=[word for word in ours.words if not word.startswith(_WAYS)])
        printed = ours.printed(name, self.arm)
        lists = of_program(printed, self.shared.resolver().lists_host_keys(name))
        shares = [] if name == self.master else ["-oControlPath=none"]
        ours = ours._replace(words=[*shares, *lists, *ours.words])
        jumps = jumps or printed.get("proxyjump", "none")
        return ours if jumps.lower() == "none" else self._through_jump(ours, jumps, (*trail, name))

    def _through_jump(self, ours: SshCommand, jumps: str, trail: tuple[str, ...]) -> SshCommand:
        """The call for a host behind others: for ProxyJump, ssh would start itself without our options."""
        before, _, last = jumps.rpartition(",")
        name, user, port = split_jump(last)
        refuse_unsafe(name, user)
        if name in trail or len(trail) > _MOST_JUMPS:
            what = "goes in a circle" if name in trail else f"has more than {_MOST_JUMPS} hosts"
            raise LinkError(f"ProxyJump {what}: {' -> '.join((*trail, name))}", trail[0])
        jump = self.checked((name, user, port), before, trail)

        def announce() -> None:
            jump.announce()
            ours.announce()

        way = [f"-oProxyCommand={jump.proxy_command(name)}", "-oProxyUseFdpass=no"]
        return ours._replace(words=[*way, *ours.words], announce=announce, jumps=(name, *jump.jumps))


def _has_master(calls: _Calls, host: HostConfig) -> bool:
    """Whether the user has an open connection to a host (ControlPath), which nobody else can have made."""
    asked = calls.plain(host.name, host.user, host.port)
    path = asked.printed(host.name, calls.arm).get("controlpath", "none")
    return _is_ours(path) and asked.has_master(host.name, calls.arm)


def _key_rules(shared: Shared, name: str, user: str | None, port: int | None) -> HostConfig | None:
    try:
        return shared.resolver().key_rules(name, user, port)
    except LinkError:  # such as a name or a file with a token that only ssh knows
        return None


def _may_be_new(shared: Shared, config: HostConfig) -> bool:
    """Whether the key that a host shows is to be accepted: the user says so, and no list has this host.

    `StrictHostKeyChecking no` counts as accept-new here: ssh would take a changed key, and no notice would say so.
    """
    accepts = shared.policy.accept_new or config.strict in ("accept-new", "no")
    return accepts and not shared.trust.lists(config)


def _is_ours(path: str) -> bool:
    """Whether a socket is the user's own, in a directory where nobody else can put another one in its place."""
    try:
        found, directory = os.lstat(path), os.stat(os.path.dirname(path))
    except (OSError, ValueError):
        return False
    ours = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
    return ours and path.startswith("/") and not who_else(directory) and is_trusted(path)
