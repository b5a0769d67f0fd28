"""torchrun's line on each of two hosts: ranks see what those of the real torchrun saw there, or differ on purpose.

The answers of the real one are recorded (`compat/torchrun_two_hosts.py`, torch 2.13).  What differs is on the page,
docs/dialects.md: rank 0 serves the store, node 0 is the host of the endpoint, MASTER_ADDR is an address, and all hosts
count a restart.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import ROOT, Cluster, cluster_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "compat"))
from torchrun_lines import answers
from torchrun_two_hosts import ANSWERS, LINES, Line, run

pytestmark = pytest.mark.limit(150)
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
#: a host that did not fail counts no restart there, and its torchrun ends when something else makes it
COUNTED = {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT"}


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(2, tmp_path_factory.mktemp("hosts") / "c") as cluster:
        yield cluster


def ours(line: Line, cluster: Cluster, home: Path) -> dict[str, Any]:
    """What comes of a line with mslaunch."""
    environ = [f"PYTHONPATH={ROOT}", f"PYTHON_EXEC={sys.executable}", f"HOME={home}"]
    launcher = ["env", *environ, sys.executable, "-m", "mslaunch", "--dialect", "torchrun"]
    answer: dict[str, Any] = json.loads(json.dumps(run(line, launcher, cluster.command("exec"))))
    return answer


def compared(seen: dict[str, dict[str, str]], without: set[str]) -> dict[str, dict[str, str]]:
    """What ranks see, but for what differs on purpose."""
    left_out = {"TORCHELASTIC_USE_AGENT_STORE", "MASTER_ADDR", *without}
    return {who: {name: value for name, value in env.items() if name not in left_out} for who, env in seen.items()}


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.endpoint == "n01" and not line.plan], ids=Line.name.fget
)
def test_ranks_see_what_they_saw_under_torchrun(line: Line, two_hosts: Cluster, tmp_path: Path) -> None:
    theirs, found = answers(ANSWERS)[line.name], ours(line, two_hosts, tmp_path)
    assert (found["rc"], found["logs"]) == (theirs["rc"], theirs["logs"]), found
    assert compared(found["seen"], set()) == compared(theirs["seen"], set())
    (address,) = {env["MASTER_ADDR"] for env in found["seen"].values()}
    assert ADDRESS.fullmatch(address)


@pytest.mark.parametrize("line", [line for line in LINES if "max-restarts" in line.words], ids=Line.name.fget)
def test_all_hosts_start_again_in_the_same_rounds(line: Line, two_hosts: Cluster, tmp_path: Path) -> None:
    theirs, found = answers(ANSWERS)[line.name], ours(line, two_hosts, tmp_path)
    assert found["rc"] == theirs["rc"], found
    assert compared(found["seen"], COUNTED) == compared(theirs["seen"], COUNTED)
    for who, env in found["seen"].items():
        assert env["TORCHELASTIC_RESTART_COUNT"] == who.rpartition(".")[2], "the rounds are counted on each host"


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.plan and "max-restarts" not in line.words], ids=Line.name.fget
)
def test_a_failure_has_the_codes_of_torchrun(line: Line, two_hosts: Cluster, tmp_path: Path) -> None:
    assert ours(line, two_hosts, tmp_path)["rc"] == answers(ANSWERS)[line.name]["rc"]


def test_every_line_on_two_hosts_was_recorded() -> None:
    assert [line.name for line in LINES] == list(answers(ANSWERS))
