"""The parts of `scripts/cluster`: real SSH hosts on one machine, made of Linux namespaces; see docs/cluster.md.

From the bottom up: `kernel` (system calls), `tools` (programs), `files` (the cluster's directory and state), `outfit`
(files that hosts read), `network` (links between hosts), `switch` (a program of its own: a switch with delay and loss),
`build` (creating the hosts), `enter` (running a command on a host) and `verbs` (the other commands).  Nothing here
imports mslaunch: a test tool must not break together with what it tests.
"""

from __future__ import annotations


class ClusterError(Exception):
    """A refusal or a failure: one sentence for a person, without a final full stop."""
