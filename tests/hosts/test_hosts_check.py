"""--check on real hosts: each of many faults is named with its host and what repairs it, and nothing else is.

All faults are there at once, each on a host of its own: that none of them hides another, and that no host is blamed for
what is wrong with another, is a part of what is tested.  The launch itself is never made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import MARKS, Cluster, Job, Result, cluster_of, edited, names_of, wait_until

pytestmark = MARKS
HOSTS = 20
PORT = 29511
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: a clock that is ahead, for all that the agent of a host asks
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && id == CLOCK_REALTIME) at->tv_sec += 90;
    return failed;
}
"""
PROGRAM = "import tidewater\nprint(tidewater.__name__)\n"
#: host -> the check that has to name it, words of what is found, and words of what is to be done
FAULTS = {
    "n99": ("name", "no address", "/etc/hosts"),
    "n02": ("host key", "CHANGED", "ssh-keygen -f"),
    "n03": ("login", "no key was accepted", "ssh-copy-id"),
    "n04": ("python3", "no Python", "--agent-python"),
    "n05": ("clock", "ahead of the others", "ssh n05 'sudo chronyc makestep"),
    "n06": ("package", "'tidewater' is 2.0", "-m pip install tidewater==1.0"),
    "n07": ("directory", "does not exist", "ssh n07 'mkdir -p "),
    "n08": ("program", "does not exist", "scp -p "),
    "10.77.1.9": ("same machine", "n09", "leave out 10.77.1.9"),
    "n01": ("port", f"port {PORT} is taken by process", "ssh n01 \"ss -ltnp 'sport = :29511'\""),
    "n10": ("devices", "1 NVIDIA device is too few for 2 ranks", "nvidia-smi"),
    "n11": ("memlock", "64 KiB of memory can be locked", "memlock unlimited"),
    "n12": ("/dev/shm", "has 32 MiB", "ssh n12 'sudo mount -o remount,size=50%"),
    "n13": ("/dev/shm", "is full", "ssh n13 'ls -lS /dev/shm'"),
    "n14": ("disk", "is full", "ssh n14 'du -xh "),
    "n15": ("cgroup", "160 MiB", "MemoryMax="),
    "n20": ("health", "'sh', failed: ended with exit code 7", "| the fan of n20 stands still"),
}
#: what else these faults make odd
MORE = {
    ("n10", "devices"),  # its number differs from that of the others
    ("n11", "descriptors"),
    ("n06", "interpreter"),
}

ODD_LINKS = ("n16", "n17", "n18", "n19")  #: from the first to the second a delay, from the third to the fourth a loss


@contextlib.contextmanager
def _listener(cluster: Cluster, host: str, port: int) -> Iterator[None]:
    """A process of that host that has the port."""
    program = f"import socket; s = socket.create_server(('', {port})); print('ready', flush=True); s.accept()"
    job = Job(cluster.command("exec", host, sys.executable, "-c", program), cwd="/")
    try:
        job.expect(b"ready")
        yield
    finally:
        job.destroy()


@contextlib.contextmanager
def _limited_memory(cluster: Cluster, host: str, size: int) -> Iterator[bool]:
    """A control group with a limit around a host's sshd; False where this machine has no such groups."""
    state = json.loads((cluster.directory / "state.json").read_text())
    pid = next(place[2][0] for place in state["places"] if place[0] == host)
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"mslaunch-check-{os.getpid()}")
        before = Path(root, "cgroup.procs")
        if not before.exists():
            continue
        try:
            group.mkdir()
            (group / name).write_text(str(size))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            yield True
        finally:
            before.write_text(str(pid))
            with contextlib.suppress(OSError):  # something may run there still; the group ends with the machine
                group.rmdir()
        return
    yield False


def _package(folder: Path, version: str) -> Path:
    """A package `tidewater` of this version."""
    (folder / f"tidewater-{version}.dist-info").mkdir(parents=True)
    (folder / f"tidewater-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tidewater\nVersion: {version}\n"
    )
    (folder / "tidewater.py").write_text("")
    return folder


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _rules(folder: Path) -> str:
    """What the sshd of each host says: sshd takes the first value of an option that fits."""
    usual, other = _package(folder / "packages", "1.0"), _package(folder / "other", "2.0")
    (folder / "tmp").mkdir()
    clock = ""
    if shutil.which("cc"):
        (folder / "clock.c").write_text(CLOCK)
        built = ["cc", "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"]
        subprocess.run(built, check=True, capture_output=True)
        clock = f"LD_PRELOAD={folder}/clock.so "
    _script(folder / "late" / "python3", f'#!/bin/sh\n{clock}exec /usr/bin/python3 "$@"\n')
    (folder / "newer").mkdir()
    (folder / "newer" / "python3").symlink_to(os.path.realpath(sys.executable))
    tmp = f"TMPDIR={folder}/tmp"
    both = f"CUDA_VISIBLE_DEVICES=0,1 {tmp} PYTHONPATH={usual}"
    rules = {
        3: "DenyUsers root",
        4: "SetEnv PATH=/nonexistent",
        5: f"SetEnv PATH={folder}/late:{SYSTEM} {both}",
        6: f"SetEnv PATH={folder}/newer:{SYSTEM} CUDA_VISIBLE_DEVICES=0,1 {tmp} PYTHONPATH={other}",
        10: f"SetEnv CUDA_VISIBLE_DEVICES=0 {tmp} PYTHONPATH={usual}",
    }
    lines = [f"Match LocalAddress 10.77.1.{number}\n{rule}\n" for number, rule in rules.items()]
    return "".join(lines) + f"Match All\nSetEnv {both}\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Twenty hosts with a fault on most of them, and the folder of the program."""
    folder = tmp_path_factory.mktemp("check")
    (folder / "rules").write_text(_rules(folder))
    work = folder / "place" / "work"
    script = _script(folder / "scripts" / "train.py", PROGRAM)
    work.mkdir(parents=True)
    with (
        cluster_of(HOSTS, folder / "c", "--delay", 0, "--sshd-option", f"Include {folder}/rules") as cluster,
        contextlib.ExitStack() as faults,
    ):
        known = cluster.home("head") / ".ssh" / "known_hosts"
        key = " ".join((cluster.directory / "keys" / "n03.pub").read_text().split()[:2])
        others = [line for line in known.read_text().splitlines(True) if not line.startswith("n02,")]
        faults.enter_context(edited(known, f"n02,10.77.1.2 {key}\n" + "".join(others)))
        cluster.on("n07", f"mount -t tmpfs none {work.parent}")
        cluster.on("n08", f"mount -t tmpfs none {script.parent}")
        cluster.on("n11", "prlimit --pid 1 --memlock=65536:65536 --nofile=512:1024")
        cluster.on("n12", "mount -o remount,size=32m /dev/shm")
        cluster.on("n13", "mount -o remount,size=96m /dev/shm; head -c 80m /dev/zero > /dev/shm/model")
        cluster.on("n14", f"mount -t tmpfs -o size=16m none {folder}/tmp")
        if json.loads((cluster.directory / "state.json").read_text())["network"] == "switch":
            cluster("set", "delay", 10, *ODD_LINKS[:2])
            cluster("set", "loss", 6, *ODD_LINKS[2:])
            (folder / "links").touch()
        faults.enter_context(_listener(cluster, "n01", PORT))
        if faults.enter_context(_limited_memory(cluster, "n15", 160 << 20)):
            (folder / "limited").touch()
        yield cluster, script
        cluster("set", "delay", 0)


def _launch(cluster: Cluster, script: Path, *options: object) -> Result:
    """--check of a whole launch line, from the head."""
    (script.parent.parent / "hosts").write_text(
        "".join(f"{name} slots=2\n" for name in [*names_of(HOSTS), "10.77.1.9", "n99"])
    )
    health = 'sh -c \'if test "$(hostname)" = n20; then echo "the fan of n20 stands still"; exit 7; fi\''
    words = ("--check", *options, "--hostfile", script.parent.parent / "hosts", "--devices-per-rank", 1)
    words += ("-x", f"MASTER_PORT={PORT}", "--wdir", script.parent.parent / "place" / "work", "--health-check", health)
    job = cluster.start(*words, "python3", script, cwd=script.parent.parent)
    try:
        return job.end(bound=120)
    finally:
        job.destroy()


@pytest.fixture(scope="module")
def found(places: tuple[Cluster, Path]) -> Iterator[dict]:
    """What --check --json has found."""
    ended = _launch(*places, "--json")
    assert ended.code == 3, ended
    assert ended.err == ""
    yield json.loads(ended.out)


def _missing(host: str, script: Path) -> str:
    """Why the fault of a host could not be made here."""
    if host == "n05" and not shutil.which("cc"):
        return "NOT TESTED, not installed: cc"
    limited = (script.parent.parent / "limited").exists()
    return "NOT TESTED: control groups cannot be made here" if host == "n15" and not limited else ""


@pytest.mark.parametrize("host", FAULTS)
def test_each_fault_is_named_with_its_host_and_repair(places: tuple[Cluster, Path], found: dict, host: str) -> None:
    check, words, repair = FAULTS[host]
    if reason := _missing(host, places[1]):
        pytest.skip(reason)
    matching = [
        one
        for one in found["findings"]
        if one["hosts"] == [host] and one["check"] == check and words in f"{one['what']}\n" + "\n".join(one["repair"])
    ]
    assert len(matching) == 1, [one for one in found["findings"] if host in one["hosts"]]
    assert repair in "\n".join(matching[0]["repair"])


@pytest.mark.skipif(not shutil.which("cc"), reason="NOT TESTED, not installed: cc")
def test_the_clock_of_a_host_is_read_to_a_second(found: dict) -> None:
    offsets = {host["name"]: host["clock"]["offset"] for host in found["hosts"] if host["clock"]}
    assert 89 < offsets.pop("n05") < 91
    assert all(abs(offset) < 1 for offset in offsets.values()), offsets


def test_the_odd_links_are_named(places: tuple[Cluster, Path], found: dict) -> None:
    if not (places[1].parent.parent / "links").exists():
        pytest.skip("NOT TESTED: this kernel has netem, and the switch of scripts/cluster is not used")
    links = [(one["hosts"], one["what"]) for one in found["findings"] if one["check"] in ("link", "network")]
    by_hosts = {tuple(sorted(hosts)): what for hosts, what in links}
    assert set(by_hosts) == {("n16", "n17"), ("n18", "n19")}, by_hosts
    assert "round trip " in by_hosts["n16", "n17"]
    assert "packets are lost" in by_hosts["n18", "n19"]


def test_no_host_is_blamed_for_anything_else(places: tuple[Cluster, Path], found: dict) -> None:
    expected = {(host, check) for host, (check, _, _) in FAULTS.items()} | MORE
    if (places[1].parent.parent / "links").exists():
        expected |= {(host, "link") for host in ODD_LINKS}
    blamed = {(host, one["check"]) for one in found["findings"] for host in one["hosts"]}
    assert blamed - expected == set(), found["findings"]


def test_the_table_has_a_line_for_each(places: tuple[Cluster, Path]) -> None:
    ended = _launch(*places)
    text = ended.out.decode()
    assert (ended.code, ended.err) == (3, "")
    assert "Traceback" not in text
    lines = text.splitlines()
    assert lines[1].split() == ["HOST", "CHECK", "WHAT"]
    at, to = lines[1].index("CHECK"), lines[1].index("WHAT")
    of_host, shown = "", set()
    for line in lines[2:]:
        of_host = line[:at].strip() or of_host
        shown.add((of_host, line[at:to].strip()))
    for host, (check, _, _) in FAULTS.items():
        assert (host, check) in shown or _missing(host, places[1]), (host, check, text)


def test_no_rank_was_started(places: tuple[Cluster, Path]) -> None:
    cluster, script = places
    marker = script.parent.parent / "started"
    job = cluster.start("--check", "-H", "n09,n16", "touch", marker, cwd=script.parent.parent)
    try:
        ended = job.end()
    finally:
        job.destroy()
    assert (ended.code, marker.exists()) == (0, False), ended


# --- hosts that are well


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Eight hosts without a fault."""
    with cluster_of(8, tmp_path_factory.mktemp("eight") / "c") as cluster:
        yield cluster


def _run(cluster: Cluster, folder: Path, *words: object) -> Result:
    job = cluster.start(*words, cwd=folder)
    try:
        ended = job.end(bound=60)
    finally:
        job.destroy()
    cluster.wait_quiet(8)
    return ended


def test_nothing_is_found_of_eight_hosts_that_are_well(eight: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, json\nraise SystemExit('it was run')\n")
    (tmp_path / "hosts").write_text("".join(f"{name} slots=2\n" for name in names_of(8)))
    for _ in range(3):
        ended = _run(eight, tmp_path, "--check", "--hostfile", "hosts", "python3", "train.py")
        assert (ended.code, ended.err) == (0, ""), ended
        assert ended.out.startswith(b"mslaunch: no problem found for 16 ranks on 8 hosts")
        assert b"28 links measured" in ended.out
    assert _run(eight, tmp_path, "--check", "--hostfile", "hosts").code == 0


def test_a_spare_takes_the_place_of_a_host_whose_health_check_fails(eight: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n01 slots=1\nn02 slots=1\nn03 slots=1 spare\n")
    log = tmp_path / "log"
    health = f"sh -c 'echo $(hostname) >> {log}; test \"$(hostname)\" != n02'"
    words = ("--hostfile", "hosts", "--restart", "group", "--health-check", health, "hostname")
    ended = _run(eight, tmp_path, *words)
    assert (ended.code, ended.lines) == (0, ["n01", "n03"]), ended
    assert "mslaunch: n02: the command of --health-check, 'sh', failed: ended with exit code 1" in ended.err
    assert "n03 takes the place of n02" in ended.err
    assert sorted(log.read_text().split()) == ["n01", "n02", "n03"]  # each once


def test_without_a_spare_the_launch_is_refused(eight: Cluster, tmp_path: Path) -> None:
    health = "sh -c 'test \"$(hostname)\" != n02'"
    ended = _run(eight, tmp_path, "-H", "n01,n02", "--health-check", health, "touch", "started")
    assert (ended.code, (tmp_path / "started").exists()) == (255, False)
    assert "n02: " in ended.err
    assert "nothing was started on the other hosts" in ended.err


def test_a_host_that_is_cut_off_while_it_is_checked(eight: Cluster, tmp_path: Path) -> None:
    """It is named once its lease has run out, and the others are looked at all the same."""
    told, cut = tmp_path / "told", tmp_path / "cut"
    health = f"sh -c 'touch {told}.$(hostname); until test -e {cut}; do sleep 0.1; done'"
    words = ("--check", "--json", "--lease", 4, "-H", "n01,n02,n03", "--health-check", health)
    job = eight.start(*words, cwd=tmp_path)
    try:
        wait_until(Path(f"{told}.n02").exists)
        eight("cut", "n02")
        cut.touch()
        ended = job.end(bound=60)
    finally:
        eight("heal", "n02")
        job.destroy()
    found = {tuple(one["hosts"]): one["what"] for one in json.loads(ended.out)["findings"]}
    assert (ended.code, set(found)) == (3, {("n02",)}), found
    eight.wait_quiet(8, 20.0)
