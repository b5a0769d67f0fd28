"""Recorded cases of the real mpirun: what they need, and how one is run.

A case says which files lie in a directory, which words follow the launcher's name, what is done meanwhile (`actions`),
and the result (`expect`): exit code, placement, stdout, files, calls of rsh, processes left.  Cases were recorded with
Open MPI 4.1.4 as root on a host called head0 with two cores.  A case runs as process 1 of its own PID namespace
(`stage.py`), so that processes that it leaves behind are seen, and die with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CPUS = {0, 1}  #: what the recording host had; on a larger one the cases run on these alone
BOUND = 60.0  # seconds; what a case may take is in the case, this is for the stage itself
Case = dict[str, Any]


def cases() -> list[Case]:
    """All of them, in the order of their files."""
    return [case for path in sorted((HERE / "cases").glob("*.json")) for case in json.loads(path.read_text())["cases"]]


def unmet(case: Case) -> str:
    """Why it cannot run here; "" if it can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    if case.get("requires", {}) and not os.sched_getaffinity(0) >= CPUS:
        return "was recorded on a host whose cpus are 0 and 1"
    return ""


def play(case: Case) -> dict[str, Any]:
    """Run it; what came of it, as `stage.py` tells, with "work": its directory.  AssertionError: the stage fell."""
    top = Path(tempfile.mkdtemp(prefix="mslaunch-recorded-"))
    try:
        top.chmod(0o755)
        (top / "work" / "home").mkdir(parents=True)
        job = {
            "case": case,
            "launcher": launcher(case),
            "work": str(top / "work"),
            "cpus": sorted(CPUS),
        }
        (top / "job").write_text(json.dumps(job))
        stage = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation"]
        ended = subprocess.run(
            [*stage, "private", sys.executable, str(HERE / "stage.py"), str(top)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=case.get("timeout", 30) + BOUND, check=False,
            start_new_session=True,
        )  # fmt: skip
        assert (top / "result").exists(), ended.stderr.decode(errors="replace")
        return {"work": str(top / "work"), **json.loads((top / "result").read_text())}
    finally:
        shutil.rmtree(top, ignore_errors=True)


def launcher(case: Case) -> list[str]:
    """The words before those of the case."""
    words = [sys.executable, str(HERE / "programs" / "mslaunch")]
    rsh = f"{sys.executable} {HERE / 'programs' / 'rsh'}"
    return words if case["single_host"] else [*words, "--agent-python", sys.executable, "--mca", "plm_rsh_agent", rsh]
