"""Hosts that differ from the others: who is named, and that equal hosts are not."""

from __future__ import annotations

from typing import Any

import pytest
from host_reports import anything, program, report
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.preflight.ask_hosts import cleaned
from mslaunch.preflight.check_records import HostReport
from mslaunch.preflight.compare_hosts import HERE, differences
from mslaunch.protocol.check_messages import HostFacts, ProgramFacts


def found(*reports: HostReport) -> list[tuple[tuple[str, ...], str, str, str]]:
    return [(one.hosts, one.check, one.what, "\n".join(one.repair)) for one in differences(reports)]


def others(count: int = 3) -> list[HostReport]:
    return [report(f"n{number:02}") for number in range(2, 2 + count)]


def test_equal_hosts_do_not_differ() -> None:
    assert found(report("n01"), *others()) == []
    assert found(report("n01")) == []
    assert found() == []


@pytest.mark.parametrize(
    ("odd", "check", "what"),
    [
        (
            report("n01", memlock=(65536, 65536)),
            "memlock",
            "64 KiB of memory can be locked (ulimit -l); 3 hosts have a limit of 8 MiB",
        ),
        (report("n01", memory_limit=1 << 30), "cgroup", "allows 1 GiB of memory; 3 hosts have no such limit"),
        (report("n01", cpu_limit=2.0), "cgroup", "its control group allows 2 cpus; 3 hosts have no such limit"),
        (report("n01", devices=("NVIDIA 7",)), "devices", "it has 7 NVIDIA devices; 3 hosts have no accelerator"),
        (
            report("n01", programs=[program(python="3.9.1")]),
            "interpreter",
            "python3 is Python 3.9.1 here and 3.11.2 on 3 hosts",
        ),
        (report("n01", programs=[program(digest="11 abd")]), "program", "train.py differs from that on 3 hosts"),
        (
            report("n01", programs=[program(versions=("2.0",))]),
            "package",
            "package 'numpy' is 2.0 here and 1.26.0 on 3 hosts",
        ),
        (
            report("n01", programs=[program(versions=("-",))]),
            "package",
            "'numpy' is missing here and 1.26.0 on 3 hosts",
        ),
        (report("n01")._replace(offset=-90.0), "clock", "its clock is 90.0 s behind the others"),
        (report("n01", hostname="n02"), "host name", "it calls itself 'n02', as n02 does"),
    ],
)
def test_the_odd_host_is_named(odd: HostReport, check: str, what: str) -> None:
    ((hosts, named, text, todo),) = found(*others(), odd)
    assert (hosts, named) == (("n01",), check)
    assert what in text
    assert todo


def test_more_is_no_fault() -> None:
    assert found(*others(), report("n01", memlock=(-1, -1))) == []
    limited = [report(f"n{number}", memory_limit=1 << 30) for number in range(3)]
    assert found(*limited, report("n9")) == []


def test_of_two_hosts_the_second_is_named() -> None:
    ((hosts, _, what, todo),) = found(report("n01"), report("n02", programs=[program(versions=("2.0",))]))
    assert (hosts, what) == (("n02",), "package 'numpy' is 2.0 here and 1.26.0 on n01")
    assert todo == "ssh n02 '/usr/bin/python3 -m pip install numpy==1.26.0'"


def test_a_package_that_no_host_has() -> None:
    missing = [report(name, programs=[program(versions=("-",))]) for name in ("n01", "n02")]
    todo = "install the package that has the module 'numpy'"
    assert [(hosts, check, told) for hosts, check, _, told in found(*missing)] == [
        (("n01",), "package", todo),
        (("n02",), "package", todo),
    ]


def _with_yaml(version: str, package: str) -> ProgramFacts:
    return program(modules=("yaml",), versions=(version,), packages=(package,))


def test_a_package_is_installed_by_the_name_that_pip_knows() -> None:
    """Of one that most hosts lack, too: it is they that are named."""
    hosts = [report("n01", programs=[_with_yaml("6.0.1", "PyYAML")])]
    hosts += [report(name, programs=[_with_yaml("-", "")]) for name in ("n02", "n03")]
    assert [(hosts, what, todo) for hosts, _, what, todo in found(*hosts)] == [
        (
            (name,),
            "package 'yaml' is missing here and 6.0.1 on n01",
            f"ssh {name} '/usr/bin/python3 -m pip install PyYAML==6.0.1'",
        )
        for name in ("n02", "n03")
    ]


@pytest.mark.parametrize(
    ("version", "package"), [("6.0.1", ""), ("", "PyYAML"), ("6.0; reboot", "PyYAML"), ("6.0", "a; reboot")]
)
def test_no_command_is_made_of_what_is_not_certain(version: str, package: str) -> None:
    ((hosts, _, _, todo),) = found(
        report("n01", programs=[_with_yaml(version, package)]), report("n02", programs=[_with_yaml("-", "")])
    )
    assert (hosts, todo) == (("n02",), "bring the module 'yaml' there as it is on n01")


def test_the_path_of_an_interpreter_is_one_word() -> None:
    odd = _with_yaml("-", "")._replace(path="/a b/python3")
    ((_, _, _, todo),) = found(report("n01", programs=[_with_yaml("6", "PyYAML")]), report("n02", programs=[odd]))
    assert "\"'/a b/python3' -m pip" in todo


def test_a_script_that_differs_is_copied_from_a_host_that_has_the_usual_one() -> None:
    odd = program(digest="11 abd", wdir="/my work")
    ((hosts, _, what, todo),) = found(*others(), report("n01", programs=[odd]))
    assert (hosts, what) == (("n01",), "train.py differs from that on 3 hosts")
    assert todo.splitlines() == [
        """ssh n01 "cksum '/my work/train.py'\"""",
        "scp -p -3 n02:/work/train.py 'n01:/my work/train.py'",
    ]


@pytest.mark.parametrize("changed", [{"path": "/a; reboot", "python": "3.9"}, {"script": "a; reboot", "digest": "x"}])
def test_what_a_host_says_is_one_word_of_a_command(changed: dict[str, str]) -> None:
    one = report("n01", programs=[program(**changed)])
    ((_, _, _, todo),) = found(*others(), one._replace(node=one.node._replace(local=True)))
    assert all("; reboot'" in line for line in todo.splitlines() if "reboot" in line)
    assert "reboot" in todo


def test_programs_of_the_system_may_differ() -> None:
    binary = program(path="/usr/bin/hostname", script="", python="", digest="1 a", modules=(), versions=())
    assert found(report("n01", programs=[binary]), report("n02", programs=[binary._replace(digest="1 b")])) == []
    own = binary._replace(path="/home/me/sim")
    assert len(found(report("n01", programs=[own]), report("n02", programs=[own._replace(digest="1 b")]))) == 1


def test_two_names_of_one_machine() -> None:
    one, two = report("n01"), report("alias", machine="boot-of-n01 pid net", hostname="n01")
    ((hosts, check, what, todo),) = found(one, two)
    assert (hosts, check) == (("alias",), "same machine")
    assert "the same machine as n01" in what
    assert "leave out alias (hosts:1)" in todo


def test_a_clock_of_this_host_that_is_wrong() -> None:
    hosts = [report(f"n{number}")._replace(offset=50.0) for number in range(3)]
    assert [(hosts, what) for hosts, _, what, _ in found(*hosts)] == [
        ((HERE,), "its clock is 50.0 s behind those of the hosts")
    ]


def test_of_one_other_host_it_is_told_what_it_has() -> None:
    ((_, _, what, _),) = found(report("n01", memory_limit=1 << 31), report("n02", memory_limit=1 << 30))
    assert what == "its control group allows 1 GiB of memory; n01 has a limit of 2 GiB"


def test_what_is_not_known_for_certain_is_not_told() -> None:
    slow = report("n01")._replace(offset=3.0, doubt=3.0)
    assert found(*others(), slow) == []


@given(st.lists(st.tuples(anything(HostFacts), anything(ProgramFacts)), max_size=4))
def test_any_facts_become_findings_or_none(said: list[Any]) -> None:
    reports = [
        report(f"n{at}")._replace(facts=cleaned(facts), programs=(cleaned(of_program),))
        for at, (facts, of_program) in enumerate(said)
    ]
    for finding in differences(reports):
        assert set(finding.hosts) <= {HERE, *(one.name for one in reports)}
