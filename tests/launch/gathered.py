"""Commands that start one job together, on this host: torchrun's line, without numbers or with them."""

from __future__ import annotations

from pathlib import Path

from launching import Job, Result, environment, free_port, wait_until


class Hosts:
    """Commands that meet at one endpoint of this host; each has an environment of its own."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.home = home
        self.jobs: list[Job] = []

    def start(
        self,
        *words: object,
        nnodes: str = "2",
        home: str = "home",
        conf: str = "join_timeout=40",
        number: int | None = None,
    ) -> Job:
        if number is None:
            meet = [f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        else:
            meet = [f"--nnodes={nnodes}", f"--node-rank={number}", "--master-addr=127.0.0.1"]
            meet += [f"--master-port={self.port}"]
        argv = ["--dialect", "torchrun", *meet, f"--rdzv-conf={conf}", *map(str, words)]
        env = environment(HOME=str(self.home / home), XDG_CONFIG_HOME="", OMP_NUM_THREADS="1")
        self.jobs.append(Job(argv, env))
        return self.jobs[-1]

    def wait_listening(self) -> None:
        """Until the first command listens at the endpoint."""
        state = f":{self.port:04X} 00000000:0000 0A"
        wait_until(lambda: state in Path("/proc/net/tcp").read_text())

    def ends(self) -> list[Result]:
        ends = [job.end() for job in self.jobs]
        for job in self.jobs:
            job.wait_gone()
        return ends
