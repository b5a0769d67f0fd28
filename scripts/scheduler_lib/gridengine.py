"""Grid Engine: sge_qmaster on the head, a sge_execd on each host.

The cell is in the directory of the cluster, where all hosts see it, with files instead of a database (classic
spooling).  Parallel environments: `mpi` gives slots in turn to the hosts, `fill` fills one after the other, `loose` is
`mpi` without control of the tasks on other hosts (`qrsh -inherit` is refused), and `wide` takes slots of two queues,
so that hosts have two lines in PE_HOSTFILE.  Hosts come in the order of their names.  Each has a TMPDIR of its own:
with one for all, they delete the files of one another's tasks, and qrsh fails or waits for ever.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import time
from collections.abc import Mapping

from scheduler_lib.command import Hosts, SchedulerError, System

PROGRAMS = "/usr/lib/gridengine"  # of Debian's packages
DEFAULTS = "/usr/share/gridengine"
ARC = "lx-amd64"
QMASTER_STARTS = 30.0  # seconds that it may take on a busy machine

_BOOTSTRAP = """\
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {dir}/default/common;{dir}/qmaster
binary_path             {dir}/bin
qmaster_spool_dir       {dir}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
_PE = """\
pe_name            {name}
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    {rule}
control_slaves     {control}
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""
_PES = (
    ("mpi", "$round_robin", "TRUE"),
    ("fill", "$fill_up", "TRUE"),
    ("loose", "$round_robin", "FALSE"),
    ("wide", "$fill_up", "TRUE"),
)
_QUEUES = (("all.q", 0, "mpi fill loose"), ("second.q", 2, "wide"), ("third.q", 1, "wide"))  # 0: as many slots as cpus
_SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "queue_sort_method": "seqno",
}


def _environ(directory: str) -> dict[str, str]:
    root = os.path.join(directory, "system")
    path = f"{root}/bin/{ARC}:{os.environ.get('PATH', os.defpath)}"
    ports = {"SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}
    return {"SGE_ROOT": root, "SGE_CELL": "default", **ports, "PATH": path}


def _start(hosts: Hosts) -> None:
    environ = _environ(hosts.directory)
    _write_cell(hosts)
    _initialize(hosts, environ)
    _start_qmaster(hosts, environ)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        execds = [pool.submit(hosts.on, name, "sge_execd", environ=environ) for name in hosts.names]  # 1 s each
        _configure(hosts, environ)
        for execd in execds:
            execd.result()


def _start_qmaster(hosts: Hosts, environ: dict[str, str]) -> None:
    """Start it, and wait until it answers: its command returns before it listens, on a busy machine long before."""
    hosts.on("head", "sge_qmaster", environ=environ)
    deadline = time.monotonic() + QMASTER_STARTS
    while True:
        try:
            hosts.on("head", "qconf", "-sh", environ=environ)
        except SchedulerError as error:
            if time.monotonic() > deadline:
                raise SchedulerError(f"{error}; sge_qmaster says: {_said_by_qmaster(hosts)}") from None
            time.sleep(0.05)  # it has no event for it
        else:
            return


def _said_by_qmaster(hosts: Hosts) -> str:
    """The end of its log."""
    with contextlib.suppress(OSError), open(hosts.path("qmaster/messages"), encoding="utf-8", errors="replace") as file:
        return " ".join(file.read()[-300:].split())
    return "nothing"


def _write_cell(hosts: Hosts) -> None:
    """The directories, and the files that the daemons look for first."""
    spools = [f"tmp.{name}" for name in hosts.names]
    for name in ("bin", "utilbin", "spool", "default/common", "qmaster/job_scripts", *spools):
        os.makedirs(hosts.path(name), mode=0o755)
    for name in ("bin", "utilbin"):
        os.symlink(PROGRAMS, hosts.path(name, ARC))
    os.symlink(f"{DEFAULTS}/util", hosts.path("util"))
    _write(hosts, "default/common/bootstrap", _BOOTSTRAP.format(dir=os.path.join(hosts.directory, "system")))
    _write(hosts, "default/common/act_qmaster", "head\n")
    with open(f"{DEFAULTS}/default-configuration", encoding="ascii") as file:
        conf = file.read()
    ids = {"min_uid": "0", "min_gid": "0", "gid_range": "20000-20999"}  # root may have jobs
    _write(hosts, "configuration", _changed(conf, {"execd_spool_dir": hosts.path("spool"), **ids}))


def _initialize(hosts: Hosts, environ: Mapping[str, str]) -> None:
    """The spool of qmaster, as Debian's scripts/init_cluster does it, and what qconf would add one by one."""
    params = f"{hosts.path('default/common')};{hosts.path('qmaster')}"
    script = f"""
cd {PROGRAMS}
./spoolinit classic libspoolc '{params}' init
./spooldefaults configuration {hosts.path("configuration")}
./spooldefaults complexes {DEFAULTS}/util/resources/centry
./spooldefaults usersets {DEFAULTS}/util/resources/usersets
./spooldefaults managers root
"""
    hosts.on("head", "sh", "-ec", script, environ=dict(environ))
    for name in ("head", *hosts.names):
        for kind in ("admin_hosts", "submit_hosts"):
            _write(hosts, f"qmaster/{kind}/{name}", f"hostname {name}\n")
    _write(hosts, "qmaster/hostgroups/@allhosts", f"group_name @allhosts\nhostlist {' '.join(hosts.names)}\n")
    for name, rule, control in _PES:
        _write(hosts, f"qmaster/pe/{name}", _PE.format(name=name, rule=rule, control=control))


def _configure(hosts: Hosts, environ: Mapping[str, str]) -> None:
    """What is made of the defaults of qmaster: scheduling each second instead of each 15, and the queues."""
    script = "qconf -ssconf; echo ----; qconf -sq"
    scheduler, queue = hosts.on("head", "sh", "-ec", script, environ=dict(environ)).split("----\n")
    _write(hosts, "scheduler", _changed(scheduler, _SCHEDULER))
    script = f"qconf -Msconf {hosts.path('scheduler')}\n"
    for name, slots, pes in _QUEUES:
        _write(hosts, name, _changed(queue, _queue(hosts, name, slots or hosts.cpus, pes)))
        script += f"qconf -Aq {hosts.path(name)}\n"
    hosts.on("head", "sh", "-ec", script, environ=dict(environ))


def _queue(hosts: Hosts, name: str, slots: int, pes: str) -> dict[str, str]:
    order = ",".join(f"[{host}={number}]" for number, host in enumerate(hosts.names, 1))
    places = ",".join(f"[{host}={hosts.path(f'tmp.{host}')}]" for host in hosts.names)
    return {
        "qname": name,
        "hostlist": "@allhosts",
        "seq_no": f"0,{order}",
        "load_thresholds": "NONE",  # this machine may be busy
        "pe_list": pes,
        "slots": str(slots),
        "tmpdir": f"/tmp,{places}",
        "shell_start_mode": "unix_behavior",  # scripts are run by their first line
        "notify": "00:00:02",
    }


def _changed(text: str, values: Mapping[str, str]) -> str:
    """Lines `NAME VALUE` with other values."""
    for name, value in values.items():
        text, count = re.subn(rf"(?m)^{name}\s.*", lambda _, line=f"{name} {value}": line, text)
        assert count == 1, name
    return text


def _write(hosts: Hosts, name: str, text: str) -> None:
    with open(hosts.path(name), "w", encoding="ascii") as file:
        file.write(text)


GRID_ENGINE = System(
    "gridengine",
    "Grid Engine",
    ("sge_qmaster", "sge_execd", "qconf", "qsub", "qrsh"),
    "gridengine-master, gridengine-exec and gridengine-client",
    _start,
    _environ,
    ("qhost",),
    ARC,
)
