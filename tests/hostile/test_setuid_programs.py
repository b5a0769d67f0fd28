"""A rank's setuid program, which an ordinary user cannot kill, starts processes of that user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from other_user import BOUND, OUR_UID

pytestmark = pytest.mark.usefixtures("second_user")

#: what a guard does at its end; it prints whether the last process of the chain lives, and whether the root one does
GUARD = """
import os, signal, subprocess, sys
signal.alarm(60)
from mslaunch.agent import guard
from mslaunch.agent.mpi import shm_cleanup
from mslaunch.host import processes
assert guard.adopt_orphans()
user, *words = sys.argv[1:]
os.setgroups([])
os.setresgid(int(user), int(user), int(user))
os.setresuid(int(user), int(user), int(user))
child = subprocess.Popen(words, stdout=subprocess.PIPE)
ours = int(child.stdout.readline())
while processes.strings(ours, "cmdline")[:1] != ["sleep"]:
    pass
assert processes.is_ours(ours) and not processes.is_ours(child.pid)
guard._end_orphans()
print(os.path.exists(f"/proc/{ours}") and not processes.is_exiting(ours), processes.ids(child.pid, b"Uid:"))
"""


def test_what_a_setuid_program_has_started_as_our_user_is_ended(commons: Path) -> None:
    setuid = commons / "setpriv"
    shutil.copy(str(shutil.which("setpriv")), setuid)
    setuid.chmod(0o4755)
    ours = f"setpriv --reuid={OUR_UID} --regid={OUR_UID} --clear-groups env -i sleep 300"
    inner = f"{ours} >&2 & echo $!; wait; exec sleep 300"
    root = [setuid, "--reuid=0", "--clear-groups", "sh", "-c", inner]
    words = [sys.executable, "-c", GUARD, str(OUR_UID), *map(str, root)]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(words, cwd="/", start_new_session=True, **how)
    try:
        assert process.stdout and process.stdout.readline() == "False {0}\n"
        assert process.wait(BOUND) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
