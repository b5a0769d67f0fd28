"""What is wrong with a host by itself, from its facts.  Pure."""

from __future__ import annotations

import os

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.preflight.check_records import Finding, copy_to, in_shell, on_host
from mslaunch.protocol.check_messages import DIRECTORY, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import AppContext, Request
    from mslaunch.errors import LaunchError
    from mslaunch.preflight.check_records import HostReport
    from mslaunch.protocol.check_messages import HostFacts, ProgramFacts

MIB = 1 << 20
_SHM = 64 * MIB  # what a container gets if nobody asks for more; data loaders and MPI libraries need more
_DISK = 100 * MIB
_FILES = 1000  # that can be made on a file system
_MEMORY = 64 * MIB  # for a rank: a Python with NumPy takes as much
_DESCRIPTORS = 1024  # what every system grants; torch, JAX and data loaders use more than any older default
_PINNED = 64 * MIB  # memory that RDMA registers, at the least


def of_host(report: HostReport, request: Request) -> Iterator[Finding]:
    """All findings about one host."""
    if report.error:
        yield _unreached(report, report.error)
    if report.facts:
        yield from _of_limits(report, report.facts)
        yield from _of_disks(report, report.facts)
        yield from _of_ports(report, report.facts)
        yield from _of_devices(report, report.facts, request)
    yield from _of_programs(report, request)
    if report.unwell:
        todo = tuple(report.unwell.todo.splitlines())
        command = on_host(report.node, in_shell(*request.health_check))
        yield _found(report, "health", report.unwell.what, *todo, command)


def _found(report: HostReport, check: str, what: str, *repair: str) -> Finding:
    return Finding((report.name,), check, what, repair)


def _unreached(report: HostReport, error: LaunchError) -> Finding:
    return _found(report, getattr(error, "check", "connection"), error.what, *error.todo.splitlines())


def _of_limits(report: HostReport, facts: HostFacts) -> Iterator[Finding]:
    node = report.node
    if facts.short:
        what = f"it cannot start {counted(report.ranks, 'rank')}: {facts.short}"
        yield _found(report, "limits", what, on_host(node, "ulimit -a; cat /proc/self/cgroup"))
    soft = facts.files[0] if facts.files else -1
    if 0 <= soft < _DESCRIPTORS:
        where = "/etc/security/limits.d/mslaunch.conf"
        command = f"echo '* soft nofile 65536' | sudo tee -a {where}"
        what = f"a process may have only {counted(soft, 'open file')} (ulimit -n)"
        yield _found(report, "descriptors", what, on_host(node, command), "then log in again")
    locked = facts.memlock[0] if facts.memlock else -1
    if facts.rdma and 0 <= locked < _PINNED:
        what = f"only {size(locked)} of memory can be locked (ulimit -l), and {facts.rdma[0]} needs much more"
        yield _found(report, "memlock", what, *repair_memlock(report))
    if report.ranks and 0 <= facts.memory_left < report.ranks * _MEMORY:
        what = f"{size(facts.memory_left)} of memory are left for {counted(report.ranks, 'rank')}"
        if 0 <= facts.memory_limit <= facts.memory:
            what += f"; its control group is limited to {size(facts.memory_limit)}"
            yield _found(report, "cgroup", what, *repair_group(report))
        else:
            yield _found(report, "memory", what, on_host(node, "ps aux --sort -rss | head"))


def repair_memlock(report: HostReport) -> tuple[str, ...]:
    """How more memory can be locked."""
    command = "echo '* - memlock unlimited' | sudo tee -a /etc/security/limits.d/mslaunch.conf"
    return on_host(report.node, command), "then log in again"


def repair_group(report: HostReport) -> tuple[str, ...]:
    """How the limit of a control group is seen and lifted."""
    return (
        on_host(report.node, "cat /proc/self/cgroup"),
        "raise memory.max of that group (MemoryMax= in systemd, --memory of a container, resources.limits of a pod)",
    )


def _of_disks(report: HostReport, facts: HostFacts) -> Iterator[Finding]:
    node = report.node
    if not facts.shm:
        what = "there is no /dev/shm that can be written to, which ranks of a host use to talk to each other"
        yield _found(report, "/dev/shm", what, on_host(node, "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm"))
    elif facts.shm[0] <= _SHM:
        what = f"/dev/shm has {size(facts.shm[0])}; data loaders and MPI libraries need more"
        command = on_host(node, "sudo mount -o remount,size=50% /dev/shm")
        yield _found(report, "/dev/shm", what, f"{command}; of a container: --shm-size=8g")
    elif facts.shm[1] < _SHM:
        what = f"/dev/shm is full: {size(facts.shm[1])} of {size(facts.shm[0])} are free"
        yield _found(report, "/dev/shm", what, on_host(node, "ls -lS /dev/shm"), "remove what no process uses")
    if not facts.tmp_free:
        what = f"nothing can be written in {facts.tmp}"
        yield _found(
            report, "disk", what, on_host(node, in_shell("ls", "-ld", facts.tmp)), "or give another with -x TMPDIR=DIR"
        )
    elif facts.tmp_free[0] < _DISK:
        yield _found(report, "disk", *full_disk(report, facts.tmp, facts.tmp_free[0]))
    elif 0 <= facts.tmp_free[1] < _FILES:
        what = f"only {counted(facts.tmp_free[1], 'file')} more can be made in {facts.tmp} (df -i)"
        yield _found(
            report, "disk", what, on_host(node, f"{in_shell('du', '--inodes', '-xS', facts.tmp)} | sort -n | tail")
        )
    for program in report.programs:
        if 0 <= program.wdir_free < _DISK and facts.tmp_free:
            yield _found(report, "disk", *full_disk(report, program.wdir, program.wdir_free, "its working directory "))
            break


def full_disk(report: HostReport, folder: str, free: int, called: str = "") -> tuple[str, str]:
    """What is found of a full file system, and the command that shows what takes the room."""
    what = f"the disk of {called}{folder} is full: {size(free)} are free"
    return what, on_host(report.node, f"{in_shell('du', '-xh', folder)} | sort -h | tail")


def _of_ports(report: HostReport, facts: HostFacts) -> Iterator[Finding]:
    for port, why in zip(report.ports, facts.busy):
        if why:
            command = on_host(report.node, f"ss -ltnp 'sport = :{port}'")
            yield _found(report, "port", why, f"{command}; end that process, or name another port")


def _of_devices(report: HostReport, facts: HostFacts, request: Request) -> Iterator[Finding]:
    counts = [int(row.rpartition(" ")[2]) for row in facts.devices if row.rpartition(" ")[2].isdecimal()]
    most, ranks, each = max(counts, default=0), report.ranks, request.devices.each
    command = on_host(report.node, "nvidia-smi -L; npu-smi info -l; ls /dev/davinci* /dev/nvidia* /dev/kfd")
    if request.devices.asked and not counts:
        what = "it has no device of NVIDIA, Ascend, AMD or Intel (--devices-per-rank, --devices)"
        yield _found(report, "devices", what, command)
    elif each and most < ranks * each:
        what = (
            f"{devices_of(facts)} {'is' if most == 1 else 'are'} too few for {counted(ranks, 'rank')} with {each} each"
        )
        yield _found(report, "devices", what, command, "or give it fewer ranks: its slots= in the hostfile, or -N")
    elif counts and not request.devices.asked and ranks > most and any(one.python for one in report.programs):
        what = f"{counted(ranks, 'rank')} would share {devices_of(facts)}"
        yield _found(report, "devices", what, f"-N {most} gives each a device of its own", command)


def devices_of(facts: HostFacts) -> str:
    """`8 NVIDIA devices`; "": none."""
    rows = [row.rpartition(" ")[::2] for row in facts.devices]
    return " and ".join(counted(int(count), f"{kind} device") for kind, count in rows if count.isdecimal())


def _of_programs(report: HostReport, request: Request) -> Iterator[Finding]:
    for program in report.programs:
        if not program.error:
            continue
        app = request.apps[program.app] if program.app < len(request.apps) else None
        if app and (app.preload_binary or app.preload_files or app.session_dir):
            continue  # what is sent there does not exist yet
        check = DIRECTORY if program.kind == DIRECTORY else PROGRAM
        repair = [line for line in program.todo.splitlines() if line]
        if not report.node.local:  # whoever controls the host could have a command run here
            repair = [f"{report.name} says: {line}" for line in repair]
        yield _found(report, check, program.error, *_put_there(report.node, program, app), *repair)


def _put_there(node: Node, program: ProgramFacts, app: AppContext | None) -> list[str]:
    """The command that makes a directory, or brings a program that is here."""
    path = program.missing
    if not path:
        return []
    if program.kind == DIRECTORY:
        return [on_host(node, in_shell("mkdir", "-p", path))]
    # a host that lies must not be given a file of this one which the launch does not name
    named = any(word and f"/{path}".endswith(f"/{word}") for word in (app.argv if app else ()))
    if named and not node.local and os.path.isfile(path):
        return [copy_to(node, path)]
    return [on_host(node, in_shell("ls", "-ld", path))]


def size(count: int) -> str:
    """`64 MiB`, `1.5 GiB`."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"
