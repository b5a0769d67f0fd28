"""How the ssh program is called for one host, so that it trusts no more than mslaunch's own SSH.

A host, or whoever is in between, can choose by the algorithms it offers that the ssh program reaches it, before any
host key was checked.  So what holds for our own SSH has to hold there: which host keys count, no algorithms but those
of our lists and of ssh's own defaults, and no open connection (ControlPath) but the user's.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mslaunch.agent.ranks.trusted_path import is_trusted
from mslaunch.errors import LinkError
from mslaunch.host.system_files import who_else
from mslaunch.transport.ssh.authenticate import BY_MASTER, LoginError
from mslaunch.transport.ssh.config.algorithms import of_program
from mslaunch.transport.ssh.config.ssh_program import find_ssh
from mslaunch.transport.ssh.host_key_rules import HostKeyError
from mslaunch.transport.ssh_command import SshCommand

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OwnSshError
    from mslaunch.transport.ssh.config.ssh_config import HostConfig
    from mslaunch.transport.ssh.deadline import Arm
    from mslaunch.transport.ssh.reach_host import Shared


def ssh_command(shared: Shared, node: Node, cause: OwnSshError, arm: Arm) -> SshCommand | None:
    """The ssh program for a host that our own SSH cannot reach for this `cause`; None if it could not do so either."""
    program = find_ssh(shared.environ)
    if not program:
        return None

    def command(name: str, user: str | None, port: int | None) -> SshCommand:
        new = None if isinstance(cause, HostKeyError) else _may_be_new(shared, name, user, port)
        words = shared.resolver().for_program(name, user, port, "accept-new" if new else "yes")
        plain = SshCommand(program, words, shared.environ, shared.policy.timeout)
        return plain._replace(announce=lambda: shared.trust.announce(new)) if new else plain

    login = cause if isinstance(cause, LoginError) else None
    master = login.master if login else None
    if login and master:
        asked = command(master.name, master.user, master.port)
        path = asked.printed(master.name, arm).get("controlpath", "none")
        if _is_ours(path) and asked.has_master(master.name, arm):
            login.ssh_reason = login.ssh_reason.replace(login.without_master or BY_MASTER, BY_MASTER, 1)
        elif login.without_master:
            login.ssh_reason = login.ssh_reason.replace(BY_MASTER, login.without_master, 1)
            master = None
        else:
            return None
    ours = command(node.called, node.user, node.port)
    lists = of_program(ours.printed(node.called, arm), shared.resolver().lists_host_keys(node.called))
    shares = [] if master and master.name == node.called else ["-oControlPath=none"]
    return ours._replace(words=[*shares, *lists, *ours.words])


def _may_be_new(shared: Shared, name: str, user: str | None, port: int | None) -> HostConfig | None:
    """The host, if the key that it shows is to be accepted: the user says so, and no list has this host.

    `StrictHostKeyChecking no` counts as accept-new here: ssh would take a changed key, and no notice would say so.
    """
    try:
        config = shared.resolver().key_rules(name, user, port)
        accepts = shared.policy.accept_new or config.strict in ("accept-new", "no")
        return config if accepts and not shared.trust.lists(config) else None
    except LinkError:  # such as a name or a file with a token that only ssh knows
        return None


def _is_ours(path: str) -> bool:
    """Whether a socket is the user's own, in a directory where nobody else can put another one in its place."""
    try:
        found, directory = os.lstat(path), os.stat(os.path.dirname(path))
    except (OSError, ValueError):
        return False
    ours = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
    return ours and path.startswith("/") and not who_else(directory) and is_trusted(path)
