"""The scheduler of the real MindSpore, started before there are ranks, killed, and started again.

MSLAUNCH_TEST_MINDSPORE_PYTHON names the interpreter of a venv with examples/mindspore/requirements.txt.
"""

from __future__ import annotations

import os
import signal
import socket

import pytest
from agents import BOUND, wait_gone

from mslaunch.datamodel.node_plan import SERVICE_BASE, AppPlan, NodePlan, ServicePlan
from mslaunch.protocol import control, frames

PYTHON = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.access(PYTHON, os.X_OK),
        reason=f"MSLAUNCH_TEST_MINDSPORE_PYTHON is {PYTHON!r}: it should name a Python that has MindSpore",
    ),
]

CONFIGURES = """\
import os, mindspore
mindspore.set_ps_context(enable_ssl=False)
print("own", os.environ["MS_ROLE"], os.environ["RANK_ID"], flush=True)
mindspore.communication.init()
"""


def scheduler(agent, folder, program: str) -> tuple[int, NodePlan]:
    """Its port, and a plan for it alone."""
    agent.send(frames.RESERVE, payload=b"0 0")
    port = control.unpack_record(control.Reserved, agent.expect(frames.RESERVED).payload).ports[1]
    env = ("MS_SCHED_HOST=127.0.0.1", f"MS_SCHED_PORT={port}", "MS_WORKER_NUM=2", "MS_ROLE=MS_SCHED", "RANK_ID=0")
    service = ServicePlan(port, env, first=True, program=program, kind="mindspore")
    return port, NodePlan((), (AppPlan((PYTHON, "net.py"), str(folder)),), (), services=(service,))


@pytest.mark.parametrize("program", ["light", "auto"])
def test_a_killed_scheduler_is_restarted(agent, tmp_path, program):
    """It listens as soon as SERVES is said, and again at the same port."""
    (tmp_path / "net.py").write_text(CONFIGURES)
    port, plan = scheduler(agent, tmp_path, program)
    agent.launch(plan)
    for life in range(2):
        pid = int(agent.expect(frames.STARTED, SERVICE_BASE).payload)
        agent.expect(frames.SERVES, SERVICE_BASE)
        with socket.create_connection(("127.0.0.1", port), BOUND):
            pass
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            assert (b"mslaunch-scheduler" in file.read()) == (program == "light")
        os.kill(pid, signal.SIGKILL)
        said = agent.output(frames.STDOUT, SERVICE_BASE)
        assert said == (b"" if program == "light" else b"own MS_SCHED 0\n")
        agent.output(frames.STDERR, SERVICE_BASE)
        assert agent.exit(SERVICE_BASE).signal == signal.SIGKILL
        if not life:
            agent.send(frames.RESTART, SERVICE_BASE, b"1")


def test_the_scheduler_leaves_nothing_behind(agent, tmp_path):
    _, plan = scheduler(agent, tmp_path, "light")
    agent.launch(plan)
    agent.expect(frames.SERVES, SERVICE_BASE)
    pid = int(agent.expect(frames.STARTED, SERVICE_BASE).payload)
    agent.hang_up()
    assert agent.wait() == 0
    wait_gone(pid)
