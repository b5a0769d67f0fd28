"""When hosts that may only be starting are tried again: with a clock of the test's, and with a port that opens late."""

from __future__ import annotations

import pytest
from virtual_time import FastClock

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LinkError
from mslaunch.launcher.agents.host_retries import HostRetries
from mslaunch.runtime.loop import Loop
from mslaunch.transport.base import OpenContext

HOST = Node("n1", 1, "-H")


def tries(wait: float | None, environ: dict[str, str]) -> tuple[list[float], str, list[str]]:
    """When a host that never comes is tried again, the last error, and what the user is told meanwhile."""
    told: list[str] = []
    times: list[float] = []
    loop = Loop(FastClock(100.0))
    context = OpenContext(LinkPolicy(wait=wait), environ, told.append, print, print, loop, [])
    errors: list[LinkError] = []

    def again(node: Node) -> None:
        if node is not None:
            times.append(round(loop.now() - 100, 3))
        error = LinkError("refused", node.name)
        error.passing = "refused"
        if not retries.schedule(node, error):
            errors.append(error)

    retries = HostRetries(context, loop.now(), again)
    again(HOST)
    loop.run(lambda: bool(errors), 1000)
    loop.close()
    return times[1:], errors[0].what, told


def test_what_is_told_of_hosts_that_are_tried_again() -> None:
    loop = Loop(FastClock(100.0))
    context = OpenContext(LinkPolicy(wait=60), {}, print, print, print, loop, [])
    retries = HostRetries(context, loop.now(), lambda node: None)
    hosts = [f"w-{at}" for at in range(6)]
    assert retries.about(hosts) == ""
    for host in hosts:
        what = "its name has no address" if host == "w-1" else "connection refused"
        error = LinkError("no link", host)
        error.passing = what
        assert retries.schedule(Node(host, 1, "-H"), error)
    clock = loop.now() + 12.4
    loop.run(lambda: loop.now() >= clock, 12.4)
    refused = "w-0, w-2, w-3 and 2 more: connection refused"
    assert retries.about(hosts) == f"12 of 60 s, {refused}; w-1: its name has no address"
    assert retries.about(["w-1"]) == "12 of 60 s, w-1: its name has no address"
    loop.close()


def test_pauses_grow_and_the_last_try_is_at_the_end() -> None:
    times, what, told = tries(10, {})
    pauses = [later - earlier for earlier, later in zip([0.0, *times], times)]
    assert times[-1] == pytest.approx(10)
    assert 0.12 <= pauses[0] <= 0.25 and max(pauses) <= 2
    assert 7 <= len(times) <= 16
    assert what == f"refused ({len(times) + 1} tries in 10 s)"
    assert told == ["n1: refused; such hosts are tried again for 10 s (--wait-hosts)"]


@pytest.mark.parametrize(
    ("wait", "environ", "seconds"),
    [
        (None, {}, 0),
        (None, {"K_MPI_JOB_ROLE": "launcher"}, 300),
        (None, {"VC_TASK_INDEX": "0"}, 300),
        (0, {"K_MPI_JOB_ROLE": "launcher"}, 0),
        (5, {"K_MPI_JOB_ROLE": "launcher"}, 5),
    ],
)
def test_operators_of_kubernetes_imply_it(wait: float | None, environ: dict[str, str], seconds: float) -> None:
    times, what, told = tries(wait, environ)
    assert (times[-1] if times else 0) == pytest.approx(seconds)
    assert (what == "refused") == (seconds == 0) == (told == [])
