"""Differential test: hypothesis makes hosts, machines and options; mpirun 4.1 and mslaunch must place ranks alike.

The real mpirun prints its placements without starting anything (--do-not-launch), also for machines that do not exist:
HWLOC_SYNTHETIC describes one, and all hosts are assumed to be like it.  mslaunch is asked in process, for speed:
`parse`, `allocate` and `map_job`, with the same words.  Either both refuse, or node, local rank, app context and locale
of each rank are equal.

MSLAUNCH_TEST_EXAMPLES sets the number of examples.  They are the same ones each time, so that a build that passed once
passes again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from mpirunmaps import Place, devel_map, read_places, require
from synthetic import topology

from mslaunch.cli.mpirun.parse import parse
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.datamodel.request import Policy
from mslaunch.errors import LaunchError
from mslaunch.host.files import read_text
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate

EXAMPLES = int(os.environ.get("MSLAUNCH_TEST_EXAMPLES", "1000"))
HERE = os.uname().nodename
#: this host and four that do not exist; addresses, since mpirun looks names up, and may wait for the answer for long
NAMES = ("localhost", "203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4")
OBJECTS = tuple(level for level in LEVELS if level != "board")


class Hosts(NamedTuple):
    """Where an app context may go."""

    text: str = ""  # of -H
    file: str = ""  # the text of a hostfile
    option: str = "--hostfile"

    def words(self, path: Path) -> list[str]:
        """The options; the hostfile is written to `path`."""
        words = []
        if self.file:
            path.write_text(self.file)
            words += [self.option, str(path)]
        return words + (["-H", self.text] if self.text else [])


class Example(NamedTuple):
    """One launch."""

    machine: str  # HWLOC_SYNTHETIC
    words: tuple[str, ...]  # the options of the job
    policy: Policy  # what they mean, for `quirk` and `alike`
    apps: tuple[tuple[int | None, Hosts], ...]  # np and hosts


# ------------------------------------------------------------------------------------------------------ what is tried


@st.composite
def machines(draw: st.DrawFn) -> str:
    """One to four sockets, any caches, one or two threads a core, NUMA nodes above, beside or below the sockets."""
    words = [f"pack:{draw(st.integers(1, 3))}"]
    numa = draw(st.sampled_from(["", "", "numa:2 pack:1", "[numa]", "below"]))
    if numa == "below":
        words.append(f"numa:{draw(st.integers(1, 2))}")
    elif numa == "[numa]":
        words.append(numa)
    elif numa:
        words = [numa]
    for cache in ("l3", "l2", "l1"):
        if draw(st.booleans()):
            words.append(f"{cache}:{draw(st.sampled_from([1, 1, 2]))}")
    return " ".join([*words, f"core:{draw(st.integers(1, 4))}", f"pu:{draw(st.integers(1, 2))}"])


@st.composite
def hosts(draw: st.DrawFn, count: int) -> list[Hosts]:
    """Hosts for `count` app contexts, which may give one host different slots."""
    slots = {name: draw(st.integers(1, 9)) for name in NAMES}
    limits = {name: draw(st.sampled_from(["", "", "", " max_slots=11"])) for name in NAMES}
    bare = draw(st.sets(st.sampled_from(NAMES), max_size=2))
    by_option = draw(st.booleans())
    made = []
    for _ in range(count):
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
        if made and draw(st.booleans()):
            slots = {name: draw(st.integers(1, 9)) for name in NAMES}
        if by_option:
            entries = [name for name in names if name in bare]  # a second mention is one slot more
            entries += [f"{name}:{slots[name]}" if slots[name] > 1 else name for name in names]
            made.append(Hosts(text=",".join(entries)))
        else:
            lines = []
            for name in names:
                lines += [name] * (slots[name] + 1) if name in bare else [f"{name} slots={slots[name]}{limits[name]}"]
            made.append(Hosts(file="\n".join(lines) + "\n"))
    if count == 1 and not by_option and draw(st.integers(0, 3)) == 0:
        made[0] = made[0]._replace(option=draw(st.sampled_from(["--hostfile", "--default-hostfile"])))
        made[0] = made[0]._replace(text=draw(st.sampled_from(["", "+e", "+n0", "+n1", "+n2", "+n1,+n0"])))
    if count > 1 and draw(st.booleans()):
        made[1:] = [Hosts()] * (count - 1)
    return made


@st.composite
def mappings(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, object]]:
    """Words, and the fields of `Policy` that they set."""
    kind = draw(st.sampled_from(["", "by", "by", "by", "by", "ppr", "ppr", "alone", "old"]))
    if not kind:
        return (), {}
    many = draw(st.integers(1, 4))
    if kind == "ppr":
        level = draw(st.sampled_from(["node", *OBJECTS]))
        shorter = {"node": ("-N", str(many)), "socket": ("-npersocket", str(many))}.get(level)
        long = ("--map-by", f"ppr:{many}:{level}")
        return (shorter if shorter and draw(st.booleans()) else long), {"map_by": "ppr", "ppr": ((many, level),)}
    by = draw(st.sampled_from(["slot", "node", *OBJECTS]))
    if kind == "old":
        by = draw(st.sampled_from(["slot", "node", "core"]))
        return (f"-by{by}",), {"map_by": by}
    fields: dict[str, object] = {"map_by": by}
    if kind == "alone":  # modifiers without a policy
        by, fields = "", {}
    modifiers = []
    if draw(st.integers(0, 3)) == 0:
        modifiers.append("SPAN")
        fields["span"] = True
    if draw(st.integers(0, 3)) == 0:
        modifiers.append(f"PE={many}")
        fields["pe"] = many
    if draw(st.integers(0, 5)) == 0:
        fields["oversubscribe"] = draw(st.booleans())
        modifiers.append("OVERSUBSCRIBE" if fields["oversubscribe"] else "NOOVERSUBSCRIBE")
    if draw(st.booleans()):
        by = draw(st.sampled_from([by.upper(), by.capitalize()]))
    if not (by or modifiers):
        return (), {}
    return ("--map-by", by + ":" * bool(modifiers) + ",".join(modifiers)), fields


@st.composite
def examples(draw: st.DrawFn) -> Example:
    words, fields = draw(mappings())
    words = (*words, "--bind-to", "none")
    fields["bind_to"] = "none"
    if draw(st.booleans()):
        by, how = (
            draw(st.sampled_from(["slot", "node", "board", *OBJECTS])),
            draw(st.sampled_from(["", "span", "fill"])),
        )
        words += ("--rank-by", f"{by}:{how}" if how else by)
        fields.update(rank_by=by, rank_how=how)
    over = draw(st.sampled_from([None, None, True, True, False]))
    if over is not None and "oversubscribe" not in fields:
        words += ("--oversubscribe" if over else "--nooversubscribe",)
        fields["oversubscribe"] = over
    for rare, option in (("nolocal", "--nolocal"), ("hwthread_cpus", "--use-hwthread-cpus")):
        if draw(st.integers(0, 9)) == 0:
            words += (option,)
            fields[rare] = True
    count = draw(st.sampled_from([1, 1, 1, 2, 3]))
    nps = st.integers(1, 12) if count == 1 else st.integers(1, 6)
    apps = tuple((draw(nps if count > 1 else st.none() | nps), where) for where in draw(hosts(count)))
    return Example(draw(machines()), words, Policy(**fields), apps)  # type: ignore[arg-type]


@st.composite
def limited(draw: st.DrawFn) -> Example:
    """-N beside a policy.  In mpirun it is a step, not a limit, so no more ranks are asked for than it allows.

    Nor without -np, where mpirun starts a rank a slot, nor more than there are slots, which it overruns.
    """
    each = draw(st.integers(1, 4))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    where = Hosts(text=",".join(f"{name}:{each + draw(st.integers(0, 3))}" for name in names))
    by = draw(st.sampled_from(["slot", "node", *OBJECTS]))
    words = ["--map-by", by, draw(st.sampled_from(["-N", "-npernode", "--N"])), str(each), "--bind-to", "none"]
    np = draw(st.integers(1, each * len(names)))
    policy = Policy(by, ((each, "node"),), bind_to="none")
    return Example(draw(machines()), tuple(words), policy, ((np, where),))


# ---------------------------------------------------------------------------------------------------------- both sides


def command_line(example: Example, folder: Path) -> list[str]:
    """The words of the launch behind the launcher's name; hostfiles are written."""
    words = [*example.words]
    for at, (np, where) in enumerate(example.apps):
        words += [":"] if at else []
        words += where.words(folder / f"hosts{at}")
        words += ["-np", str(np)] if np is not None else []
        words.append("true")
    return words


def theirs(example: Example, folder: Path) -> list[Place] | None:
    """Where mpirun puts the ranks; None: it refuses."""
    words = command_line(example, folder)
    shown, said = devel_map(example.machine, words)
    note(f"HWLOC_SYNTHETIC='{example.machine}' mpirun {' '.join(words)}\n{shown}\n{said}")
    return read_places(shown)


def ours(example: Example, folder: Path) -> list[Place] | None:
    """Where we put them; None: we refuse."""
    machine = topology(example.machine)
    cores = len(set(machine.objects[LEVELS.index("core")]))
    try:
        request = parse(command_line(example, folder), {}, read_text)
        allocation = allocate(request, _read_text, ("localhost", HERE).__contains__, HERE, cores)
        allocation = allocation.with_cores({node.name: cores for node in allocation.nodes})
        jobmap = map_job(request, allocation, {node.name: machine for node in allocation.nodes})
    except LaunchError as error:
        note(f"ours: {error}")
        return None
    return [
        (one.rank, jobmap.nodes[one.node].name, one.local_rank, one.app, _covered(machine, one.locale))
        for one in jobmap.placements
    ]


def _read_text(path: str) -> str:
    return Path(path).read_text()


def _covered(machine: Topology, locale: tuple[str, int]) -> frozenset[int]:
    level, number = locale
    row = machine.objects[LEVELS.index(level)] if level else ()
    found = frozenset(at for at, other in enumerate(row) if other == number)
    return found if len(found) < len(machine.cpus) else frozenset()


# -------------------------------------------------------------------------------------------------------------- quirks


def quirk(example: Example) -> str:
    """Why this example is not asked: what mpirun 4.1.4 does here is a bug, or we differ on purpose."""
    policy, nps = example.policy, [np for np, _ in example.apps]
    alone = any(word.startswith(":") and len(word) > 1 for word in example.words)
    if alone and not policy.pe and not policy.span:
        return "--map-by :OVERSUBSCRIBE is also by socket in mpirun; here it is the same as --oversubscribe"
    if alone and policy.pe and (policy.nolocal or len(nps) > 1):
        return "--map-by :PE=N is by socket, with --nolocal or a second program by numa; here always by socket"
    if (policy.oversubscribe or policy.span) and any("max_slots" in where.file for _, where in example.apps):
        return "max_slots: we keep it, mpirun overruns it with --oversubscribe or SPAN"
    if None in nps and policy.map_by == "ppr" and policy.ppr[0][1] == "socket":
        return "ppr:N:socket without -np: mpirun --do-not-launch counts the sockets of hosts it has not asked, and dies"
    if None in nps and policy.nolocal:
        return "--nolocal without -np: mpirun asks for the slots of the excluded host as well"
    return ""


def alike(example: Example, there: list[Place] | None, here: list[Place] | None) -> bool:
    """Whether the two placed the ranks alike, as far as mpirun means what it shows."""
    policy = example.policy
    if there is None and example.apps[0][0] is None and policy.map_by == "ppr" and policy.ppr[0][1] != "node":
        return True  # on purpose: without -np we start as many as the pattern has room for, mpirun asks for all slots
    ranked = policy.rank_by in LEVELS or (policy.span and not policy.rank_by)
    if (
        there
        and here
        and (
            (policy.span and ranked)  # mpirun ranks by the objects of the mapping, and then deals them out anew
            or (
                len(example.apps) > 1 and (ranked or policy.oversubscribe)
            )  # the same; and full nodes lose their objects
        )
    ):
        return [place[:4] for place in there] == [place[:4] for place in here]
    return there == here


# ---------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.openmpi
@pytest.mark.limit(60 + EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(examples() | limited())
def test_mpirun_and_we_place_ranks_alike(mpirun: Path, example: Example) -> None:
    assume(not quirk(example))
    there, here = theirs(example, mpirun), ours(example, mpirun)
    assert alike(example, there, here), f"mpirun: {there}\nours:   {here}"


@pytest.fixture(scope="module")
def mpirun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for hostfiles, if the right mpirun is there."""
    require()
    return tmp_path_factory.mktemp("hosts")


def test_a_map_is_read() -> None:
    lines = (
        " Data for node: bb\tState: 3\tFlags: 18",
        " \tData for proc: [[5751,1],1]",
        " \t\tPid: 0\tLocal rank: 0\tNode rank: 0\tApp rank: 1",
        " \t\tState: INITIALIZED\tApp_context: 2",
        " \t\tLocale:  [../..][BB/..]",
        " \tData for proc: [[5751,1],0]",
        " \t\tPid: 0\tLocal rank: 1\tNode rank: 1\tApp rank: 0",
        " \t\tState: INITIALIZED\tApp_context: 0",
        " \t\tLocale:  NODE",
    )
    assert read_places("\n".join(lines)) == [(0, "bb", 1, 0, frozenset()), (1, "bb", 0, 2, frozenset({4, 5}))]
    assert read_places("mpirun: Error") is None
