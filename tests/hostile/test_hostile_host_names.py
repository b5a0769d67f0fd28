"""A variable of a resource manager that names an option instead of a host: refused before a command sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from launching import COMMAND, environment
from other_user import BOUND

JOBS = {
    "slurm": {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "{}", "SLURM_TASKS_PER_NODE": "1"},
    "lsf": {"LSB_JOBID": "7", "LSB_HOSTS": "{}"},
}


@pytest.mark.parametrize("system", JOBS)
def test_no_agent_gets_an_option_for_a_host(tmp_path: Path, system: str) -> None:
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    agent.chmod(0o755)
    variables = {
        name: value.format(f"-oProxyCommand=touch${{IFS}}{tmp_path}/owned") for name, value in JOBS[system].items()
    }
    line = [*COMMAND, "--mca", "plm", "rsh", "--rsh-agent", str(agent), "true"]
    done = subprocess.run(line, env=environment(**variables), capture_output=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert "is not the name of a host" in done.stderr.decode() and done.stderr.count(b"mslaunch: ") == 1
    assert not (tmp_path / "called").exists() and not (tmp_path / "owned").exists()
