"""The parts of `scripts/cluster`: real SSH hosts on one machine, out of Linux namespaces; see docs/cluster.md.

From the bottom up: `kernel` (system calls), `tools` (programs), `files` (the cluster's directory and state), `outfit`
(what hosts read), `network` (how they are joined), `switch` (a program of its own: the switch that delays and loses),
`build` (what becomes the hosts), `enter` (running a command there) and `verbs` (the rest of what the command line asks
for).  Nothing here imports from mslaunch: a tool to test with must not break with what it tests.
"""

from __future__ import annotations


class ClusterError(Exception):
    """A refusal or a failure: one sentence for a person, without a final full stop."""
