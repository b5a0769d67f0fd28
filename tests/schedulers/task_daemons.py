"""Stand-ins for the daemons of PBS, LSF and Flux, which start tasks on the hosts of a cluster.

The stand-ins for their commands are in `stand_ins/`.  They connect to a socket beside themselves and hand over what a
task is given; a thread here runs it on its host.  What the daemons do is from their sources:

- PBS (openpbs src/resmom): a task is a session (`set_job` in linux/mom_start.c), with /dev/null as its input, the job's
  files as its output, umask 077, the home as its directory and the job's variables, not those of the command
  (`start_process` in start_exec.c).  A program that cannot be run is exit code 254.  qdel: SIGTERM to the session of
  the script, SIGKILL after kill_delay; with the script's end SIGKILL to the sessions of all tasks, on other hosts by
  IM_KILL_JOB (`kill_session` in linux/mom_mach.c, `kill_job` in mom_main.c, catch_child.c).
- Flux (flux-core src/common/libsubprocess/server.c): a task is a process group, with the variables and the directory of
  `flux exec`, but FLUX_URI.  A command that goes, and the end of the instance, are SIGKILL to the group.
- LSF (IBM, blaunch(8) and bkill(1)): a task has the variables of the job.  bkill is SIGINT, SIGTERM and SIGKILL to all
  processes of the job, on all hosts.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batch_systems import BOUND, ROOT, Ended, wait_until

SCRIPT = ROOT / "scripts" / "cluster"
STAND_INS = Path(__file__).parent / "stand_ins"
#: makes a task what the daemon of its system makes it
BECOME = """
import json, os, sys
how = json.loads(sys.argv[1])
os.umask(how["umask"])
os.chdir(how["cwd"] or os.environ["HOME"])
if how["session"] and os.getsid(0) != os.getpid():
    os.setsid()
if not how["session"] and os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
os.environ.update(how["environ"])
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(how["lost"])
"""


class TaskOfJob:
    """A process on a host, and all of its session."""

    def __init__(self, host: str, process: subprocess.Popen[bytes]) -> None:
        self.host = host
        self.process = process
        self.pid = _first_child(process)  # as this machine counts

    def signal(self, number: int, group: bool = False) -> None:
        """To its session, or to its process group."""
        if not self.pid:
            return
        field = 2 if group else 3
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[field]) == self.pid:
                    os.kill(int(name), number)


def _first_child(process: subprocess.Popen[bytes]) -> int:
    """0 if it has ended before it was seen."""
    found: list[str] = []

    def look() -> bool:
        ended = process.poll() is not None
        with contextlib.suppress(OSError):
            found[:] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return ended or bool(found)

    wait_until(look)
    return int(found[0]) if found else 0


class JobSystem:
    """One of the systems, with a job on some hosts of a cluster; it may be used by several threads."""

    def __init__(self, cluster: Path, commands: Path, work: Path, system: str) -> None:
        """`commands`: an empty directory, for PATH.  `system`: pbs, torque, lsf or flux."""
        self.system = system
        self.work = work
        self.environ: dict[str, str] = {}  # of the job
        self.tasks: list[TaskOfJob] = []
        self.lost: set[str] = set()  # hosts whose daemon does not answer
        self._cluster = cluster
        self._commands = commands
        self._numbers = iter(range(1, 1000))
        self._output = open(work / "job.out", "ab")  # noqa: SIM115  (it lives as long as the job)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(str(commands / "socket"))
        self._server.listen(64)
        names = {"pbs": ["pbs_tmrsh"], "torque": ["pbsdsh"], "lsf": ["blaunch"], "flux": ["flux"]}[system]
        for name in names:
            (commands / name).write_text(f"#!{sys.executable} -S\n" + (STAND_INS / f"{name}.py").read_text())
            (commands / name).chmod(0o755)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()
        for task in self.tasks:
            task.signal(signal.SIGKILL)
            task.process.wait(BOUND)
        self._output.close()

    @property
    def output(self) -> str:
        """What the job has printed."""
        return (self.work / "job.out").read_text(errors="replace")

    # --- jobs

    def submit(self, script: str, environ: Mapping[str, str]) -> TaskOfJob:
        """Run a shell script on the first host, as a batch job."""
        self.environ = {"PATH": f"{self._commands}:{os.environ['PATH']}", **environ}
        path = self.work / "job.sh"
        path.write_text(script)
        task = self._start("n01", ["/bin/sh", str(path)], self.environ, str(self.work), [], session=True)
        self.tasks.append(task)
        return task

    def run(self, script: str, environ: Mapping[str, str]) -> Ended:
        """The same, to its end and that of the job."""
        task = self.submit(script, environ)
        code = task.process.wait(BOUND)
        self.kill_tasks()
        return Ended(code, self.output, self.output)

    def kill_tasks(self) -> None:
        """What the daemons do when the script has ended."""
        for task in self.tasks[1:]:
            task.signal(signal.SIGKILL, group=self.system == "flux")

    def delete(self, delay: float) -> None:
        """qdel, bkill, or the end of the instance: `delay` seconds between the signals, and all is dead."""
        script = self.tasks[0]
        for number in (signal.SIGINT, signal.SIGTERM) if self.system == "lsf" else (signal.SIGTERM,):
            for task in self.tasks if self.system == "lsf" else [script]:
                task.signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                script.process.wait(delay)
        script.signal(signal.SIGKILL)
        script.process.wait(BOUND)
        self.kill_tasks()

    # --- tasks

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """One command: what is asked for with three descriptors, then signals; the answer is the status, or none."""
        with connection:
            asked, fds = _received(connection)
            try:
                if asked["host"] in self.lost:
                    connection.recv(1)  # until the command goes
                    return
                environ, cwd, standard = self._of_system(asked, fds)
                task = self._start(asked["host"], asked["argv"], environ, cwd, standard, self.system != "flux")
            finally:
                for fd in fds:
                    os.close(fd)
            self.tasks.append(task)
            waiter = threading.Thread(target=self._tell_end, args=(connection, task))
            waiter.start()
            while data := connection.recv(64):
                if not data.startswith(b"done"):
                    task.signal(int(data), group=self.system == "flux")
                else:
                    break
            else:
                if self.system == "flux":
                    task.signal(signal.SIGKILL, group=True)
            waiter.join(BOUND)

    @staticmethod
    def _tell_end(connection: socket.socket, task: TaskOfJob) -> None:
        status = task.process.wait()
        with contextlib.suppress(OSError):
            connection.send(str(status).encode())

    def _of_system(self, asked: dict[str, Any], fds: list[int]) -> tuple[dict[str, str], str, list[int]]:
        """Variables, directory and descriptors of a task."""
        if self.system == "flux":
            return {**asked["environ"], "FLUX_URI": f"local:///{asked['host']}"}, asked["cwd"], fds
        number = next(self._numbers)
        if self.system == "lsf":
            return {**self.environ, "LSF_PM_TASKID": str(number), "LS_JOBPID": "1"}, asked["cwd"], fds
        own = {"PBS_TASKNUM": f"{number:08X}", "PBS_NODENUM": "1", "OMP_NUM_THREADS": "2", "NCPUS": "2"}
        own["CUDA_VISIBLE_DEVICES"] = f"device of {asked['host']}"  # as by a hook of the site
        job = {name: value for name, value in self.environ.items() if name not in ("PBS_NODEFILE", "HOME")}
        return {**job, **own, "PBS_ENVIRONMENT": "PBS_BATCH"}, "", []

    def _start(
        self, host: str, argv: list[str], environ: Mapping[str, str], cwd: str, standard: list[int], session: bool
    ) -> TaskOfJob:
        pbs = self.system in ("pbs", "torque")
        how = {"umask": 0o77 if pbs else 0o22, "cwd": cwd, "session": session, "lost": 254 if pbs else 127}
        how["environ"] = {name: environ[name] for name in ("HOME",) if name in environ}
        command = [sys.executable, "-S", str(SCRIPT), "exec", "--dir", str(self._cluster), host]
        process = subprocess.Popen(
            [*command, sys.executable, "-S", "-c", BECOME, json.dumps(how), *argv],
            stdin=standard[0] if standard else subprocess.DEVNULL,
            stdout=standard[1] if standard else self._output,
            stderr=standard[2] if standard else self._output,
            env=dict(environ),
            cwd="/",
        )
        return TaskOfJob(host, process)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    fds = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(1 << 18, socket.CMSG_SPACE(3 * fds.itemsize))
    for _, _, found in ancillary:
        fds.frombytes(found)
    return json.loads(data), list(fds)


@contextmanager
def job_system(cluster: Path, work: Path, system: str) -> Iterator[JobSystem]:
    """One, in an empty directory for work that all hosts see."""
    commands = work / "bin"
    commands.mkdir()
    made = JobSystem(cluster, commands, work, system)
    try:
        yield made
    finally:
        made.close()
