"""Binding as the real mpirun does it, on machines that are not there.

hypothesis makes a machine, slots on one host or on two alike, and options for mapping and binding.  mpirun and we must
both refuse, or bind each rank to the same cpus; where mpirun's answer is no measure is written down below, with why.
MSLAUNCH_TEST_EXAMPLES=2000 asks that often; a normal run takes half a minute.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from mpirunmaps import Asked, ask, require
from synthetic import topology

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import LaunchError
from mslaunch.plan.binding import bind, usable, uses_hwthreads
from mslaunch.plan.mapping.mapper import map_job

EXAMPLES = int(os.environ.get("MSLAUNCH_TEST_EXAMPLES", "300"))
OFTEN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
OTHER = "127.0.0.2"  # nobody calls it; a name might be looked up in the DNS, and take seconds
OBJECTS = ("hwthread", "core", "l2cache", "l3cache", "numa", "socket")

pytestmark = [pytest.mark.openmpi, pytest.mark.slow, pytest.mark.limit(3600)]


@pytest.fixture(scope="module", autouse=True)
def _real() -> None:
    require()


# ---------------------------------------------------------------------------------------------- what is asked


@st.composite
def machines(draw: st.DrawFn) -> str:
    """A machine as HWLOC_SYNTHETIC: up to three sockets, numa domains around, in or beside them, caches, threads."""
    sockets = draw(st.integers(1, 3))
    numa = draw(st.sampled_from(["", "[numa]", "numa:2", "outside"]))
    words = ["numa:2"] if numa == "outside" else []
    words += [f"pack:{sockets}"] + ([numa] if numa not in ("", "outside") else [])
    if draw(st.booleans()):
        words.append(f"l3:{draw(st.integers(1, 2))}")
    if draw(st.booleans()):
        words.append(f"l2:{draw(st.integers(1, 2))}")
    words += [f"core:{draw(st.integers(1, 4))}", f"pu:{draw(st.sampled_from([1, 2, 2, 3]))}"]
    text = " ".join(words)
    cpus = len(topology(text).cpus)
    if draw(st.booleans()):  # numbered as Linux does it: first threads of all cores, then second threads
        threads = int(words[-1][3:])
        order = [core + thread * (cpus // threads) for core in range(cpus // threads) for thread in range(threads)]
        text += f"(indexes={','.join(map(str, order))})"
    return text


class Question:
    """A machine, hosts, and what is asked of them, as options and as a policy."""

    def __init__(self, machine: str, slots: tuple[int, ...], np: int, policy: Policy) -> None:
        self.machine, self.slots, self.np, self.policy = machine, slots, np, policy

    def words(self) -> list[str]:
        policy = self.policy
        hosts = ",".join(f"{name}:{slots}" for name, slots in zip(("localhost", OTHER), self.slots))
        words = ["-H", hosts, "-np", str(self.np)]
        target = policy.map_by
        if policy.map_by == "ppr":
            target = f"ppr:{policy.ppr[0][0]}:{policy.ppr[0][1]}"
        if policy.pe:
            target += f":PE={policy.pe}"
        words += ["--map-by", target] if target else []
        if policy.bind_to or policy.overload:
            words += ["--bind-to", policy.bind_to + (":overload-allowed" if policy.overload else "")]
        words += ["--oversubscribe"] if policy.oversubscribe else []
        words += ["--cpu-list", policy.cpu_set] if policy.cpu_set else []
        words += ["--use-hwthread-cpus"] if policy.hwthread_cpus else []
        return words

    def __repr__(self) -> str:
        return f"HWLOC_SYNTHETIC='{self.machine}' mpirun {' '.join(self.words())} --display-devel-map"


@st.composite
def questions(draw: st.DrawFn, nodes: int = 1) -> Question:
    machine = draw(machines())
    cpus = len(topology(machine).cpus)
    slots = tuple(draw(st.integers(1, cpus + 2)) for _ in range(nodes))
    over = draw(st.sampled_from([None, None, None, True]))
    np = draw(st.integers(1, sum(slots) + (3 if over else 0)))
    map_by = draw(st.sampled_from(["", "", "slot", "node", "ppr", *OBJECTS]))
    policy = Policy(
        map_by=map_by,
        ppr=((draw(st.integers(1, 4)), draw(st.sampled_from(["node", *OBJECTS]))),) if map_by == "ppr" else (),
        pe=draw(st.sampled_from([0, 0, 0, 1, 2, 3])) if map_by else 0,
        bind_to=draw(st.sampled_from(["", "", "", "none", *OBJECTS])),
        oversubscribe=over,
        overload=draw(st.sampled_from([False, False, True])),
        hwthread_cpus=draw(st.sampled_from([False, False, False, True])),
    )
    return Question(machine, slots, np, policy)


# ----------------------------------------------------------------------------------------- where mpirun is no measure

BEYOND = "ppr:1:OBJECT:PE=n with smaller objects: mpirun takes cpus beyond them, or fewer; here mapping refuses it"
UNBINDS_ALL = "where the default cannot be met on one node, mpirun without daemons unbinds or refuses the ranks of all"
FULL_NUMA = "mpirun without daemons forgets to empty the numa domains between nodes, and finds them full"


def odd(question: Question, answer: Asked, there: Topology) -> str:
    """Why mpirun's answer to this is no measure; "" if it is."""
    policy = question.policy
    if any(level != "node" and policy.pe > cpus_of_one(there, level, policy) for _, level in policy.ppr):
        return BEYOND
    if "Bind to: NONE" in answer.refusal:
        return UNBINDS_ALL
    refused_or_not = answer.binding in ("", "none")
    return FULL_NUMA if len(question.slots) > 1 and refused_or_not and to_numa(question) else ""


def cpus_of_one(there: Topology, level: str, policy: Policy) -> int:
    """How many cpus an object of the level has; a machine of these tests has them all alike."""
    numbers = there.objects[LEVELS.index(level)]
    cpus = there.objects[LEVELS.index("hwthread" if uses_hwthreads(policy) else "core")]
    return len({cpu for cpu, number in zip(cpus, numbers) if number == 0})


def to_numa(question: Question) -> bool:
    """Whether binding is to the numa domains, or would be."""
    policy = question.policy
    by_default = not policy.pe and (policy.map_by == "numa" or (policy.map_by not in OBJECTS and question.np > 2))
    return policy.bind_to == "numa" or (not policy.bind_to and by_default)


def measured(question: Question, answer: Asked) -> int:
    """Of how many nodes mpirun's bindings can be compared.

    Binding in place (to what was mapped by) it leaves to the daemon of each node; for the numa domains see FULL_NUMA.
    """
    alone = answer.rows and answer.binding in (answer.policy, "numa")
    return 1 if alone else len(question.slots)


# ---------------------------------------------------------------------------------------------- the comparison


def ours(question: Question, there: Topology, nodes: int) -> list[tuple[int, ...]]:
    """Our binding of the ranks on the first `nodes`; those of the others count as bound."""
    hosts = tuple(Node(name, slots, "-H") for name, slots in zip(("head0", "other"), question.slots))
    topologies = usable(question.policy, {node.name: there for node in hosts})
    request = Request((AppContext(("true",), question.np),), question.policy)
    jobmap = map_job(request, Allocation(hosts, declared=True), topologies)
    names = [node.name for node in hosts[:nodes]]
    rows = [row if jobmap.nodes[row.node].name in names else row._replace(cpus=(-1,)) for row in jobmap.placements]
    bound = bind(jobmap._replace(placements=tuple(rows)), question.policy, topologies)
    return [row.cpus for row in bound.placements if row.cpus != (-1,)]


def compare(question: Question) -> None:
    there = topology(question.machine)
    answer = ask(question.machine, question.words(), len(there.cpus))
    skip(odd(question, answer, there))
    nodes = measured(question, answer)
    try:
        cpus = ours(question, there, nodes)
    except LaunchError as error:
        assert answer.refusal, f"refused: {error}\nmpirun: {shown(answer)}"
        event("refused by both")
        return
    assert not answer.refusal, f"mpirun refused: {answer.refusal}\nours: {cpus}"
    skip(UNBINDS_ALL if nodes > 1 and answer.binding == "none" and len(set(map(bool, cpus))) > 1 else "")
    event("bound alike" if any(cpus) else "unbound by both")
    want = [tuple(sorted(there.cpus[place] for place in row.bound)) for row in answer.rows if row.node < nodes]
    assert cpus == want, shown(answer)


def skip(why: str) -> None:
    if why:
        event(why)
    assume(not why)


def shown(answer: Asked) -> str:
    return "\n".join([answer.policy, answer.binding, *map(str, answer.rows)])


@OFTEN
@given(questions())
def test_one_node(question: Question) -> None:
    compare(question)


@OFTEN
@given(questions(nodes=2))
def test_two_nodes_alike(question: Question) -> None:
    compare(question)


@settings(OFTEN, max_examples=EXAMPLES // 5)
@given(st.integers(1, 3), st.integers(2, 4), st.data())
def test_a_cpu_of_the_list_for_each_rank(sockets: int, cores: int, data: st.DataObject) -> None:
    """With one thread a core: where there are two, mpirun deals these out, and we the listed cores.

    And with two cpus at least, for mpirun shows who has all of the list as it shows who has all of the machine.
    """
    chosen = data.draw(st.sets(st.integers(0, sockets * cores - 1), min_size=2, max_size=6))
    np = data.draw(st.integers(1, 4))
    policy = Policy(bind_to="cpu-list:ordered", cpu_set=",".join(map(str, data.draw(st.permutations(sorted(chosen))))))
    compare(Question(f"pack:{sockets} core:{cores} pu:1", (np,), np, policy))
