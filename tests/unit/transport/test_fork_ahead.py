"""The agent that the command forks before it knows the nodes: taken by the first local one, or ended.

Each case is a process of its own, since a process with threads forks none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import os, threading
from types import SimpleNamespace
from mslaunch.datamodel.jobmap import Node
from mslaunch.host.processes import children
from mslaunch.transport import fork

def mine():
    return set(children(os.getpid()))

def opened(*names):
    links = []
    nodes = [Node(name, 1, "-H", local=True) for name in names]
    fork.open_local(nodes, SimpleNamespace(fork=True, opened=links.append))
    return links

"""
TAKEN = """
fork.fork_ahead()
fork.fork_ahead()
(ahead,) = mine()
links = opened("a", "b")
assert ahead in mine() and len(mine()) == 2, mine()
for link in links:
    assert os.read(link.reader, 1), "each says HELLO"
    link.close()
    assert link.wait(10)
assert not mine()
"""
DISCARDED = """
fds = set(os.listdir("/proc/self/fd"))
fork.fork_ahead()
assert mine()
fork.discard_ahead()
fork.discard_ahead()
assert not mine() and set(os.listdir("/proc/self/fd")) == fds
"""
#: as in a batch job whose hosts are all others
RELEASED = """
from mslaunch.errors import UsageError
from mslaunch.transport.transport_table import open_remote

fork.fork_ahead()
(ahead,) = mine()
try:
    open_remote([Node("far", 1, "-H")], SimpleNamespace(policy=SimpleNamespace(transport="none such")))
except UsageError:
    pass
os.waitid(os.P_PID, ahead, os.WEXITED | os.WNOWAIT)
fork.discard_ahead()
assert not mine()
"""
THREADS = """
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
fork.fork_ahead()
done.set()
thread.join()
assert not mine()
"""


@pytest.mark.parametrize(
    "script", [TAKEN, DISCARDED, RELEASED, THREADS], ids=["taken", "discarded", "released", "threads"]
)
def test_what_becomes_of_it(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script], capture_output=True, timeout=30, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", [["-n", "1", "--map-by", "l9", "true"], ["-n", "9", "--nooversubscribe", "true"], ["-n", "1", "-wdir"]]
)
def test_a_refused_launch_ends_with_its_message(words: list[str], tmp_path: Path) -> None:
    """And with the ends of its streams, which an agent does not keep open."""
    done = subprocess.run(
        [sys.executable, "-m", "mslaunch", *words], capture_output=True, timeout=20, check=False, cwd=tmp_path
    )
    assert done.returncode == 1 and done.stderr and b"Traceback" not in done.stderr


#: in a process that goes on, so that nothing ends with it
REFUSED = """
from mslaunch.cli.main import command

assert command(["-n", "9", "--nooversubscribe", "true"]) == 1
assert not fork._ahead and not mine()
"""


def test_a_refused_launch_has_ended_its_agent_when_it_returns() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + REFUSED], capture_output=True, timeout=30, check=False, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
