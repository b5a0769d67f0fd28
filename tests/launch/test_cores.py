"""Slots that nobody gave: a host has one for each core, as its agent counts them, or for each hardware thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mslaunch.datamodel.request import AppContext, Caller, LinkPolicy, Policy, Request
from mslaunch.errors import LaunchError
from mslaunch.host.usable_cpus import cores_here, count_cores
from mslaunch.launcher.launch import run

AGENT = """\
import sys
sys.path.insert(0, {root!r})
from mslaunch.datamodel.node_report import Topology
from mslaunch.protocol import control, frames
sys.stdout.buffer.write(b"\\0mslaunch python x\\n")
hello = control.Hello("there", 1, 8, 4, "3.8.0", ())
sys.stdout.buffer.write(frames.MAGIC + frames.encode(frames.HELLO, payload=control.pack_record(hello)))
machine = Topology((0, 1), ((0, 1), (0, 0), (), (), (), (0, 0), (0, 0), ()))
sys.stdout.buffer.write(frames.encode(frames.TOPOLOGY, payload=control.pack_topology(machine)))
sys.stdout.flush()
sys.stdin.buffer.read()
"""


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        (Policy(), 4),
        (Policy(map_by="hwthread"), 4),
        (Policy(bind_to="hwthread"), 8),
        (Policy(hwthread_cpus=True), 8),
    ],
)
def test_a_host_with_two_threads_a_core(policy: Policy, slots: int, tmp_path: Path) -> None:
    """One rank more than there are slots is refused, and the refusal has their number."""
    agent, hosts = tmp_path / "agent.py", tmp_path / "hosts"
    agent.write_text(AGENT.format(root=str(Path(__file__).parents[2])))
    hosts.write_text("there\n")
    request = Request(
        (AppContext(("true",), np=slots + 1, hostfile=str(hosts)),),
        policy=policy._replace(oversubscribe=False),
        link=LinkPolicy(agent=(sys.executable, str(agent))),
    )
    with pytest.raises(LaunchError) as refused:
        run(request, Caller(dict(os.environ), str(tmp_path), signals=False))
    assert f"{slots} " in str(refused.value) and f"{slots + 1} " in str(refused.value), refused.value


def test_this_host() -> None:
    usable = os.sched_getaffinity(0)
    assert (cores_here(), cores_here(hwthreads=True)) == (count_cores(usable), len(usable))
