"""In what hosts differ from each other that should be alike: clocks, versions, files, limits, names.  Pure."""

from __future__ import annotations

import os

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.preflight.check_records import Finding, copy_between, in_shell, on_host
from mslaunch.preflight.host_findings import devices_of, repair_group, repair_memlock, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mslaunch.preflight.check_records import HostReport
    from mslaunch.protocol.check_messages import ProgramFacts

_CLOCK = 1.0  # seconds
_OF_SYSTEM = ("/usr/", "/bin/", "/sbin/")  # programs that may well differ between systems
_MISSING = "-"  # a version: there is no such module
_NO_VERSION = "without a version"
_NO_LIMIT = "no such limit"
HERE = "this host"


class _Odd(NamedTuple):
    """A host whose value differs from that of most."""

    report: HostReport
    value: str
    usual: str
    others: str  # where the usual value is: "n01", "7 hosts"
    first: HostReport  # one of those

    @property
    def have(self) -> str:
        """`n01 has`, `7 hosts have`."""
        return f"{self.others} {'has' if self.others == self.first.name else 'have'}"


def differences(reports: Sequence[HostReport]) -> Iterator[Finding]:
    """All findings about hosts that differ."""
    usable = [report for report in reports if report.facts]
    yield from _clocks(usable)
    yield from _same_machine(usable)
    yield from _same_names(usable)
    yield from _limits(usable)
    yield from _devices(usable)
    for app in sorted({program.app for report in usable for program in report.programs}):
        yield from _of_program(usable, app)


def _odd(reports: Sequence[HostReport], value: Callable[[HostReport], str]) -> Iterator[_Odd]:
    """The hosts whose value is not the most frequent one; of several, that of the first host is.  "" does not count."""
    values = [(report, said) for report in reports if (said := value(report))]
    if not values:
        return
    usual, others = _usual(values)
    for report, word in values:
        if word != usual:
            yield _Odd(report, word, usual, others, next(one for one, said in values if said == usual))


def _usual(values: Sequence[tuple[HostReport, str]]) -> tuple[str, str]:
    """The most frequent of values, and where it is."""
    words = [word for _, word in values]
    usual = max(dict.fromkeys(words), key=words.count)
    having = [report.name for report, word in values if word == usual]
    return usual, having[0] if len(having) == 1 else f"{len(having)} hosts"


def _clocks(reports: Sequence[HostReport]) -> Iterator[Finding]:
    offsets = sorted([0.0, *(report.offset for report in reports)])
    if len(offsets) < 2:
        return
    usual = offsets[(len(offsets) - 1) // 2]
    command = "sudo chronyc makestep || sudo timedatectl set-ntp true"
    if abs(usual) > _CLOCK and not any(report.node.local for report in reports):
        yield Finding((HERE,), "clock", f"its clock is {_ahead(-usual)} those of the hosts", (command,))
    for report in reports:
        if abs(report.offset - usual) > _CLOCK + report.doubt:
            what = f"its clock is {_ahead(report.offset - usual)} the others"
            yield Finding((report.name,), "clock", what, (on_host(report.node, command),))


def _ahead(seconds: float) -> str:
    amount = f"{abs(seconds):.1f} s" if abs(seconds) < 600 else f"{abs(seconds) / 60:.0f} min"
    return f"{amount} {'ahead of' if seconds > 0 else 'behind'}"


def _same_machine(reports: Sequence[HostReport]) -> Iterator[Finding]:
    first: dict[str, HostReport] = {}
    for report in reports:
        machine = report.facts.machine if report.facts else ""
        other = first.setdefault(machine, report)
        if other is not report:
            what = f"it is the same machine as {other.name}, so each of its cpus and devices would be used twice"
            lines = [_source(report), "or give one name all of the slots"]
            yield Finding((report.name,), "same machine", what, tuple(lines))


def _source(report: HostReport) -> str:
    source = report.node.source
    return f"leave out {report.name}" + (f" ({source})" if ":" in source else "")


def _same_names(reports: Sequence[HostReport]) -> Iterator[Finding]:
    first: dict[str, HostReport] = {}
    for report in reports:
        if not report.facts:
            continue
        other = first.setdefault(report.facts.hostname, report)
        if other is not report and other.facts and other.facts.machine != report.facts.machine:
            name = report.facts.hostname
            what = f"it calls itself {name!r}, as {other.name} does; programs that count the ranks of a host take both "
            command = on_host(report.node, in_shell("sudo", "hostnamectl", "set-hostname", report.name))
            yield Finding((report.name,), "host name", what + "for one", (command,))


def _limits(reports: Sequence[HostReport]) -> Iterator[Finding]:
    def locked(report: HostReport) -> str:
        return str(report.facts.memlock[0]) if report.facts and report.facts.memlock else ""

    for odd in _odd(reports, locked):
        value, usual = int(odd.value), int(odd.usual)
        if value >= 0 and (usual < 0 or value < usual) and not _pins(odd.report):
            what = f"{size(value)} of memory can be locked (ulimit -l); {odd.have} {_amount(usual)}"
            yield Finding((odd.report.name,), "memlock", what, repair_memlock(odd.report))

    def memory(report: HostReport) -> str:
        facts = report.facts
        return str(facts.memory_limit if facts and facts.memory_limit >= 0 else -1)

    for odd in _odd(reports, memory):
        value, usual = int(odd.value), int(odd.usual)
        if value >= 0 and (usual < 0 or value < usual):
            what = f"its control group allows {size(value)} of memory; {odd.have} {_amount(usual)}"
            yield Finding((odd.report.name,), "cgroup", what, repair_group(odd.report))

    def cpus(report: HostReport) -> str:
        facts = report.facts
        return f"{facts.cpu_limit:g}" if facts and facts.cpu_limit >= 0 else "-1"

    for odd in _odd(reports, cpus):
        if float(odd.value) >= 0 and not 0 <= float(odd.usual) <= float(odd.value):
            usually = f"a limit of {odd.usual}" if float(odd.usual) >= 0 else _NO_LIMIT
            what = f"its control group allows {odd.value} {'cpu' if odd.value == '1' else 'cpus'}; {odd.have} {usually}"
            yield Finding((odd.report.name,), "cgroup", what, (on_host(odd.report.node, "cat /proc/self/cgroup"),))


def _pins(report: HostReport) -> bool:
    """Whether `host_findings` has told of its limit already."""
    return bool(report.facts and report.facts.rdma)


def _amount(count: int) -> str:
    return _NO_LIMIT if count < 0 else f"a limit of {size(count)}"


def _devices(reports: Sequence[HostReport]) -> Iterator[Finding]:
    def having(report: HostReport) -> str:
        return devices_of(report.facts) or "no accelerator" if report.facts else ""

    for odd in _odd(reports, having):
        what = f"it has {odd.value}; {odd.have} {odd.usual}"
        command = on_host(odd.report.node, "nvidia-smi -L; npu-smi info -l; dmesg | tail")
        yield Finding((odd.report.name,), "devices", what, (command,))


def _of_program(reports: Sequence[HostReport], app: int) -> Iterator[Finding]:
    """The versions and files of one program."""

    def program(report: HostReport) -> ProgramFacts | None:
        return next((one for one in report.programs if one.app == app), None)

    def python(report: HostReport) -> str:
        found = program(report)
        return found.python if found else ""

    for odd in _odd(reports, python):
        path = _path(program(odd.report))
        what = f"the interpreter {path} is Python {odd.value} here and {odd.usual} on {odd.others}"
        repair = on_host(odd.report.node, in_shell(path, "--version")), "name one that all hosts have, by its path"
        yield Finding((odd.report.name,), "interpreter", what, repair)

    def digest(report: HostReport) -> str:
        found = program(report)
        return found.digest if found and (found.script or not found.path.startswith(_OF_SYSTEM)) else ""

    for odd in _odd(reports, digest):
        here, there = program(odd.report), program(odd.first)
        assert here and there
        what = f"{here.script or here.path} differs from that on {odd.others}"
        # each path as its own host says it: none shall choose which file of another is copied
        source, target = _file_of(there), _file_of(here)
        repair = (
            on_host(odd.report.node, in_shell("cksum", target)),
            copy_between(odd.first.node, source, odd.report.node, target),
        )
        yield Finding((odd.report.name,), "program", what, repair)
    yield from _packages(reports, app, program)


def _packages(
    reports: Sequence[HostReport], app: int, program: Callable[[HostReport], ProgramFacts | None]
) -> Iterator[Finding]:
    found = {report.name: one for report in reports if (one := program(report)) and one.python}
    names = dict.fromkeys(name for one in found.values() for name in one.modules)
    for name in names:

        def version(report: HostReport, name: str = name) -> str:
            one = found.get(report.name)
            versions = dict(zip(one.modules, one.versions)) if one else {}
            return f"v{versions[name]}" if name in versions else ""

        asked = [report for report in reports if version(report)]
        missing = [report for report in asked if version(report) == f"v{_MISSING}"]
        having = [report for report in asked if version(report) != f"v{_MISSING}"]
        if not having:
            what = f"package {name!r} that the program imports is missing"
            for report in missing:
                yield Finding((report.name,), "package", what, (f"install the package that has the module {name!r}",))
            continue
        usual, others = _usual([(report, version(report)) for report in having])
        known = (_package_of(found[report.name], name) for report in having if version(report) == usual)
        package = next(filter(None, known), "")
        for report in asked:
            if version(report) != usual:
                there = "missing" if report in missing else version(report)[1:] or _NO_VERSION
                what = f"package {name!r} is {there} here and {usual[1:] or _NO_VERSION} on {others}"
                repair = _install(report, found[report.name], package, usual[1:])
                todo = f"bring the module {name!r} there as it is on {others}"
                yield Finding((report.name,), "package", what, repair or (todo,))


def _file_of(program: ProgramFacts) -> str:
    """The script, or the program, by its whole path."""
    return os.path.join(program.wdir, program.script) if program.script else program.path


def _package_of(program: ProgramFacts, name: str) -> str:
    """What pip calls the package that has a module of a host; "": not known."""
    return dict(zip(program.modules, program.packages)).get(name, "")


def _install(report: HostReport, program: ProgramFacts, package: str, version: str) -> tuple[str, ...]:
    """The command that installs a package; none if it is not known for certain.  Other hosts have said its words."""
    if not (_plain(package) and _plain(version, "+!")):
        return ()
    named = program.path.rpartition("/")[2].startswith(("python", "pypy"))
    python = program.path if named else f"{program.prefix}/bin/python3"
    return (on_host(report.node, in_shell(python, "-m", "pip", "install", f"{package}=={version}")),)


def _plain(word: str, more: str = "") -> bool:
    """Whether a word is a name or a version as pip knows them, and nothing else to a shell."""
    return word[:1].isalnum() and all(one.isascii() and (one.isalnum() or one in f"._-{more}") for one in word)


def _path(program: ProgramFacts | None) -> str:
    return program.path if program else ""


def summary_of(reports: Sequence[HostReport]) -> str:
    """`on 8 hosts`, or `for 16 ranks on 8 hosts` if they would get some."""
    ranks = sum(report.ranks for report in reports)
    return (f"for {counted(ranks, 'rank')} " if ranks else "") + f"on {counted(len(reports), 'host')}"
