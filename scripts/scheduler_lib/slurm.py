"""Slurm: slurmctld and munged on the head, a slurmd on each host.

One munged serves all hosts, through its socket, which is a file that all of them see.  Processes are tracked by parents
and sessions (proctrack/linuxproc), which needs no cgroup of this machine and kills less than proctrack/cgroup would:
what a job leaves behind stays, and a test can see it.
"""

from __future__ import annotations

import os

from scheduler_lib.command import Hosts, System

_CONF = """\
ClusterName=lab
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge.socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
TmpFS={dir}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
InactiveLimit=0
KillWait=5
MinJobAge=300
SlurmctldTimeout=60
SlurmdTimeout=10
Waittime=0
NodeName=n[01-{last:02d}] CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def _environ(directory: str) -> dict[str, str]:
    return {"SLURM_CONF": os.path.join(directory, "system", "slurm.conf")}


def _start(hosts: Hosts) -> None:
    conf, key, sock = (hosts.path(name) for name in ("slurm.conf", "munge.key", "munge.socket"))
    with open(conf, "w", encoding="ascii") as file:
        file.write(_CONF.format(dir=hosts.path(), last=len(hosts.names), cpus=hosts.cpus))
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as secret:
        secret.write(os.urandom(1024))
    for name in ("state", *(f"tmp.{host}" for host in hosts.names)):
        os.mkdir(hosts.path(name), 0o755)
    files = [f"--{name}-file={hosts.path(f'munged.{name}')}" for name in ("pid", "log", "seed")]
    hosts.on("head", "munged", "--force", f"--key-file={key}", f"--socket={sock}", "--num-threads=2", *files)
    hosts.on("head", "slurmctld", "-f", conf, "-c")
    for name in hosts.names:
        hosts.on(name, "slurmd", "-f", conf, "-N", name)


SLURM = System(
    "slurm",
    "Slurm",
    ("slurmctld", "slurmd", "srun", "sbatch", "munged"),
    "slurm-wlm and munge",
    _start,
    _environ,
    ("sinfo", "--noheader", "-N", "-o", "%N %T"),
    "idle",
)
