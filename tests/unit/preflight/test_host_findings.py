"""What is found of one host, from facts: nothing of one that is well, and each want by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from host_reports import GIB, REQUEST, anything, facts, program, report
from hypothesis import example, given

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import AppContext, DevicePolicy, Request
from mslaunch.errors import LaunchError, LinkError
from mslaunch.preflight.ask_hosts import cleaned
from mslaunch.preflight.check_records import HostReport, copy_between, copy_to, on_host
from mslaunch.preflight.host_findings import MIB, of_host, size
from mslaunch.protocol.check_messages import HostFacts, ProgramFacts
from mslaunch.transport.batch_tasks import NoPythonError
from mslaunch.transport.ssh.authenticate import LoginError
from mslaunch.transport.ssh.host_key_rules import HostKeyError
from mslaunch.transport.ssh.tcp_and_proxy import NoAddressError


def found(one: HostReport, request: Request = REQUEST) -> list[tuple[str, str, str]]:
    return [(finding.check, finding.what, "\n".join(finding.repair)) for finding in of_host(one, request)]


def test_nothing_is_found_of_a_host_that_is_well() -> None:
    assert found(report("n01")) == []


@pytest.mark.parametrize(
    ("changed", "check", "words", "repair"),
    [
        ({"files": (256, 4096)}, "descriptors", "256 open files", "ssh n01 "),
        ({"rdma": ("mlx5_0",), "memlock": (65536, 65536)}, "memlock", "mlx5_0 needs much more", "memlock unlimited"),
        ({"shm": ()}, "/dev/shm", "no /dev/shm", "mount -t tmpfs"),
        ({"shm": (64 * MIB, 64 * MIB)}, "/dev/shm", "has 64 MiB", "--shm-size"),
        ({"shm": (GIB, MIB)}, "/dev/shm", "full: 1 MiB of 1 GiB", "ls -lS"),
        ({"tmp_free": ()}, "disk", "nothing can be written in /tmp", "TMPDIR"),
        ({"tmp_free": (0, 5000)}, "disk", "/tmp is full: 0 bytes", "du -xh /tmp"),
        ({"tmp_free": (GIB, 1)}, "disk", "only 1 file more", "--inodes"),
        ({"memory_left": 10 * MIB}, "memory", "10 MiB of memory are left for 2 ranks", "ps aux"),
        ({"memory_left": MIB, "memory_limit": 99 * MIB}, "cgroup", "limited to 99 MiB", "MemoryMax="),
        ({"short": "3 processes of a user (ulimit -u)"}, "limits", "cannot start 2 ranks: 3 processes", "ulimit -a"),
    ],
)
def test_each_want_is_named(changed: dict[str, Any], check: str, words: str, repair: str) -> None:
    ((named, what, todo),) = found(report("n01", **changed))
    assert (named, words in what, repair in todo) == (check, True, True), (what, todo)


def test_limits_that_do_not_matter_are_not_told() -> None:
    assert found(report("n01", memlock=(65536, 65536))) == []  # no RDMA
    assert found(report("n01", ranks=0, memory_left=0)) == []  # no ranks
    assert found(report("n01", tmp_free=(GIB, -1))) == []  # a file system that counts no files


def test_a_port_that_is_taken() -> None:
    one = report("n01", busy=("", "port 29500 is taken by process 7"))._replace(ports=(8118, 29500))
    ((check, what, todo),) = found(one)
    assert (check, what) == ("port", "port 29500 is taken by process 7")
    assert "sport = :29500" in todo


def test_devices() -> None:
    asked = REQUEST._replace(devices=DevicePolicy(2))
    assert found(report("n01", devices=("NVIDIA 4",)), asked) == []
    ((_, what, _),) = found(report("n01", devices=("NVIDIA 3",)), asked)
    assert what == "3 NVIDIA devices are too few for 2 ranks with 2 each"
    ((_, what, _),) = found(report("n01"), asked)
    assert "it has no device" in what
    ((_, what, _),) = found(report("n01", devices=("Ascend 1",)))
    assert what == "2 ranks would share 1 Ascend device"
    assert found(report("n01", devices=("NVIDIA 1",), programs=[program(python="")])) == []  # it may need none


def test_programs_and_directories() -> None:
    gone = "the working directory /work dir does not exist"
    wrong = program(error=gone, todo="make it there", kind="directory", missing="/work dir")
    ((check, what, todo),) = found(report("n01", programs=[wrong]))
    assert (check, what, todo.splitlines()[0]) == ("directory", gone, """ssh n01 "mkdir -p '/work dir'\"""")
    no_directory = wrong._replace(error="the working directory /a is not a directory", missing="")
    assert [row[2] for row in found(report("n01", programs=[no_directory]))] == ["n01 says: make it there"]
    missing = program(error="the script 'a.py' does not exist", kind="program", missing="/nowhere/a.py")
    assert found(report("n01", programs=[missing])) == [("program", missing.error, "ssh n01 'ls -ld /nowhere/a.py'")]
    sent = Request((AppContext(("./a",), preload_binary=True),))
    assert found(report("n01", programs=[missing]), sent) == []  # it will be there


def test_only_a_file_that_the_launch_names_is_copied(tmp_path: Path) -> None:
    for name in ("train.py", "id_ed25519"):
        (tmp_path / name).touch()
    for name, command in (("train.py", "scp -p "), ("id_ed25519", "ssh n01 'ls -ld ")):
        missing = program(error="it does not exist", kind="program", missing=str(tmp_path / name))
        ((_, _, todo),) = found(report("n01", programs=[missing]))
        assert todo.startswith(command)


def test_a_full_working_directory_is_named() -> None:
    ((check, what, todo),) = found(report("n01", programs=[program(wdir="/my work", wdir_free=0)]))
    assert (check, what) == ("disk", "the disk of its working directory /my work is full: 0 bytes are free")
    assert todo == """ssh n01 "du -xh '/my work' | sort -h | tail\""""


@pytest.mark.parametrize("changed", [{"tmp_free": ()}, {"tmp_free": (0, 5000)}, {"tmp_free": (GIB, 1)}])
def test_a_path_of_a_host_is_one_word_of_a_command(changed: dict[str, Any]) -> None:
    one = report("n01", tmp="/t; reboot", **changed)
    ((_, _, todo),) = found(one._replace(node=one.node._replace(local=True)))
    assert "'/t; reboot'" in todo


@pytest.mark.parametrize(
    ("kind", "what", "check"),
    [
        (NoAddressError, "the name n9 has no address: unknown", "name"),
        (HostKeyError, "its host key has CHANGED", "host key"),
        (LoginError, "authentication: no key was accepted", "login"),
        (NoPythonError, "execve(): /opt/py: No such file or directory", "python3"),
        (LinkError, "no answer to TCP within 3 s", "connection"),
        (LinkError, "python-gpu1 port 22: Connection refused", "connection"),
        (LaunchError, "it did not answer, has no address, no account and no host key", "connection"),
    ],
)
def test_hosts_that_cannot_be_reached(kind: type[LaunchError], what: str, check: str) -> None:
    """The check is that of the kind of the error, whatever its words are."""
    error = kind(what, "n9", "first line\nsecond line")
    assert found(HostReport(Node("n9", 1, ""), error=error)) == [(check, what, "first line\nsecond line")]


@example(facts("n01", devices=("\u00b2",)), program())
@given(anything(HostFacts), anything(ProgramFacts))
def test_any_facts_become_findings_or_none(said: Any, of_program: Any) -> None:
    one = report("n01")._replace(facts=cleaned(said), programs=(cleaned(of_program),), ports=(1, 2))
    for request in (REQUEST, REQUEST._replace(devices=DevicePolicy(1))):
        for finding in of_host(one, request):
            assert finding.hosts == ("n01",)
            assert all(text.isprintable() for text in (finding.check, finding.what))


def test_command_lines() -> None:
    node = Node("n01", 1, "", user="me", port=2222, address="n01.site")
    assert on_host(node, "df -h /tmp") == "ssh -p 2222 me@n01.site 'df -h /tmp'"
    assert on_host(node, "ss 'sport = :1'") == "ssh -p 2222 me@n01.site \"ss 'sport = :1'\""
    assert on_host(node, "echo '$x'") == """ssh -p 2222 me@n01.site 'echo '"'"'$x'"'"''"""
    assert on_host(Node("here", 1, "", local=True), "df /") == "df /"
    assert copy_to(node, "/a b") == "scp -p -P 2222 '/a b' 'me@n01.site:/a b'"
    assert copy_to(Node("::1", 1, ""), "/a") == "scp -p /a '[::1]:/a'"
    other = Node("n02", 1, "")
    assert copy_between(other, "/a", Node("n03", 1, ""), "/b") == "scp -p -3 n02:/a n03:/b"
    assert copy_between(other, "/a", Node("here", 1, "", local=True), "/b") == "scp -p n02:/a /b"
    assert copy_between(other, "/a", node, "/b") == "scp -p -3 scp://n02//a scp://me@n01.site:2222//b"


def test_sizes() -> None:
    assert [size(one) for one in (0, 2048, 3 * MIB, 1610612736)] == ["0 bytes", "2 KiB", "3 MiB", "1.5 GiB"]
