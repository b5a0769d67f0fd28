"""MPI_Comm_spawn in the launcher: placement of ranks, and frames to agents that only receive."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

import pytest
from histories import exited, failure_of
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Allocation, Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import NodePlan, World
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, LaunchError, LinkError, UsageError, WireError
from mslaunch.launcher.job.events import Interrupted, Kill, LinkEnded, Prepared, Started, StreamEnded
from mslaunch.launcher.job.events import Spawned as SpawnedEvent
from mslaunch.launcher.job.job_state import ENDING, JobState
from mslaunch.launcher.messages.notices import notice_text
from mslaunch.launcher.mpi.mpi_frames import Joined, Left, MpiFrames, RunningJob
from mslaunch.launcher.mpi.spawn_ranks import SpawnContext, Spawner
from mslaunch.plan.mapping.spawn_placement import SpawnCommand, SpawnPlacement, place_spawned, understand
from mslaunch.protocol import control, frames
from mslaunch.protocol.mpi import Answer, Question, pack_with_blobs, unpack_with_blobs

PARENT = AppContext(("python", "a.py"), 1, (("A", "1"),), wdir="/work", path="/p", prefix="/opt", mpi="pmi1")

EXPORTS = ("A", "FORWARDED")  # variables that the job's ranks have from the launcher

# --- MPI_Info


def app_of(wdir: str = "", env: tuple[str, ...] = (), **info: str) -> SpawnPlacement:
    return understand(SpawnCommand(("child", "x"), 2, wdir, env, tuple(info.items())), PARENT)


def test_a_child_inherits_the_settings_of_its_parent() -> None:
    assert app_of() == SpawnPlacement(PARENT._replace(argv=("child", "x"), np=2))
    assert app_of(env=("B=2=3",)).app.env == (("A", "1"), ("B", "2=3"))
    files = PARENT._replace(preload_binary=True, preload_files=("f",), session_dir=True, hosts=("n1",))
    assert understand(SpawnCommand(("child", "x"), 2), files) == app_of(), "these are not its"


@pytest.mark.parametrize(
    ("info", "field", "value"),
    [
        ({"host": "n1,n2:2"}, "hosts", ("n1,n2:2",)),
        ({"pmix.host": "n1"}, "hosts", ("n1",)),
        ({"WDIR": "/tmp"}, "wdir", "/tmp"),
        ({"wd": "sub"}, "wdir", "/work/sub"),
        ({"path": "/q"}, "path", "/q"),
        ({"ompi_prefix": "/o"}, "prefix", "/o"),
        ({"env": "B=2\nA\nFORWARDED"}, "env", (("A", "1"), ("B", "2"))),
        ({"soft": "1:4", "arch": "x86", "host": ""}, "hosts", ()),
        ({"ompi_non_mpi": "true"}, "mpi", "none"),
        ({"ompi_non_mpi": "false", "preload_binary": "0"}, "mpi", "pmi1"),
    ],
    ids=str,
)
def test_info_sets_fields_of_the_program(info: dict[str, str], field: str, value: object) -> None:
    assert (
        getattr(understand(SpawnCommand(("child", "x"), 2, info=tuple(info.items())), PARENT, EXPORTS).app, field)
        == value
    )


def test_info_about_hosts() -> None:
    assert app_of(map_by="node").by_node and not app_of(map_by="slot").by_node
    for info in ({"npernode": "3"}, {"map_by": "ppr:3:node"}, {"ppr": "3:node"}, {"pmix.ppr": "3:n"}, {"ppr": "3"}):
        assert app_of(**info).each == 3, info
    assert app_of(pernode="true").each == 1
    assert app_of(map_by="ppr:3:socket").each == app_of(npernode="many").each == 0


@pytest.mark.parametrize("words", ["HOME", "*", "A*", "B=1\nHOME", "?", "AA"])
def test_no_variable_of_the_launcher_is_given_away(words: str) -> None:
    """Neither by MPI_Info nor by an app's own environment."""
    for command in (SpawnCommand(("x",), 1, info=(("env", words),)), SpawnCommand(("x",), 1, "", (words,))):
        with pytest.raises(UsageError, match="does not export") as caught:
            understand(command._replace(env=tuple(words.split())) if command.env else command, PARENT, EXPORTS)
        assert caught.value.todo.startswith("give -x ")


@pytest.mark.parametrize("key", ["hostfile", "pmix.hostfile", "add-hostfile", "Hostfile", "pmix.addhostfile"])
def test_no_file_is_opened_that_a_rank_names(key: str) -> None:
    with pytest.raises(UsageError, match="no hostfile is read"):
        understand(SpawnCommand(("x",), 1, info=((key, "/etc/shadow"),)), PARENT)


def test_unsupported_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="files cannot be sent"):
        app_of(ompi_preload_binary="true")
    for many in (-1, 1 << 40):
        with pytest.raises(AllocationError, match="cannot be started"):
            understand(SpawnCommand(("x",), many), PARENT)


def test_a_relative_directory_is_below_that_of_the_parent() -> None:
    assert app_of("sub").app.wdir == "/work/sub"
    assert understand(SpawnCommand(("x",), 1, "sub"), PARENT._replace(wdir=None)).app.wdir == "sub", "of the launch"


# --- placement


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[SpawnPlacement], Allocation, dict[str, int]]:
    count = draw(st.integers(1, 5))
    nodes = tuple(Node(f"n{at}", draw(st.integers(1, 4)), "-H") for at in range(count))
    running = {node.name: draw(st.integers(0, 5)) for node in nodes}
    commands = [
        SpawnPlacement(
            AppContext(("x",), draw(st.integers(0, 6))), draw(st.booleans()), draw(st.sampled_from([0, 0, 1, 2]))
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return commands, Allocation(nodes, draw(st.booleans())), running


@given(worlds(), st.sampled_from([None, False, True]))
def test_every_rank_once_and_no_more_than_slots(
    drawn: tuple[list[SpawnPlacement], Allocation, dict[str, int]], oversubscribe: bool | None
) -> None:
    commands, allocation, running = drawn
    names = [node.name for node in allocation.nodes]
    wanted = sum(command.app.np or 0 for command in commands)
    free = {node.name: max(0, (node.slots or 0) - running[node.name]) for node in allocation.nodes}
    over = oversubscribe if oversubscribe is not None else not allocation.declared
    try:
        jobmap = place_spawned(commands, allocation, Policy(oversubscribe=oversubscribe), running, [names] * 3)
    except AllocationError:
        capped = any(command.each for command in commands)
        assert not wanted or capped or (not over and wanted > sum(free.values()))
        return
    assert [placement.rank for placement in jobmap.placements] == list(range(wanted))
    assert [jobmap.placements[rank].app for rank in range(wanted)] == sorted(p.app for p in jobmap.placements)
    for app, command in enumerate(commands):
        assert sum(placement.app == app for placement in jobmap.placements) == command.app.np
    for index, node in enumerate(jobmap.nodes):
        here = [placement for placement in jobmap.placements if placement.node == index]
        assert [placement.local_rank for placement in here] == list(range(len(here)))
        assert node.slots == free[node.name]
        assert over or len(here) <= free[node.name]
        if len(commands) == 1 and commands[0].each:
            assert len(here) <= commands[0].each


def test_free_slots_are_used_first_in_the_order_of_nodes() -> None:
    nodes = tuple(Node(f"n{at}", 2, "-H") for at in range(3))

    def nodes_of(np: int, over: bool, running: dict[str, int], *names: str, **how: Any) -> list[str]:
        commands = [SpawnPlacement(AppContext(("x",), np), **how)]
        jobmap = place_spawned(
            commands, Allocation(nodes, True), Policy(oversubscribe=over), running, [names or ("n0", "n1", "n2")]
        )
        return [jobmap.nodes[placement.node].name for placement in jobmap.placements]

    assert nodes_of(3, False, {"n0": 1, "n1": 1}) == ["n0", "n1", "n2"]
    assert nodes_of(3, False, {"n0": 1}, by_node=True) == ["n0", "n1", "n2"]
    assert nodes_of(2, False, {"n0": 2}, "n2", "n0") == ["n2", "n2"]
    assert nodes_of(2, True, {"n0": 2, "n1": 2, "n2": 2}) == ["n0", "n1"]
    assert nodes_of(3, False, {}, each=1) == ["n0", "n1", "n2"]
    with pytest.raises(AllocationError, match="3 ranks asked for, 2 slots free"):
        nodes_of(3, False, {}, "n1")
    with pytest.raises(AllocationError, match="with 1 on each node: 1 more rank"):
        nodes_of(4, True, {}, each=1)
    with pytest.raises(AllocationError, match="no rank was asked for"):
        nodes_of(0, True, {})


# --- frames


class Agent:
    """The launcher's connection to an agent that only receives."""

    def __init__(self, node: Node) -> None:
        self.node = node


class Hosts:
    """A job of one rank a node on the first of n0, n1, n2, …, each with `slots` slots; what is sent is kept."""

    def __init__(self, ranks: int = 1, nodes: int = 3, slots: int = 2, joined: int = -1, **request: Any) -> None:
        local = request.pop("local", -1)
        all_nodes = tuple(Node(f"n{at}", slots, "-H", local=at == local) for at in range(nodes))
        rows = tuple(Placement(rank, 0, rank, 0) for rank in range(ranks))
        jobmap = JobMap(all_nodes[:ranks], rows, slots * nodes)
        self.state = JobState(jobmap)
        self.sent: list[tuple[int, frames.Frame]] = []
        self.notices: list[str] = []
        self.actions: list[Any] = []
        self.calls: list[tuple[list[str], Callable[[list[Any], list[LaunchError]], None]]] = []
        self.added: list[tuple[World, list[int], bool]] = []
        asked = Request((PARENT._replace(np=ranks, **request.pop("app", {})),), **request)
        endpoint = Endpoint("127.0.0.1", 5, 6)
        allocation = Allocation(all_nodes, True)

        def named(apps: Sequence[AppContext]) -> Allocation:
            """As from `allocate`; each has one host."""
            mine = tuple((int(app.hosts[0][1:]),) for app in apps)
            return Allocation((*all_nodes, Node("other", 1, "-H")), True, mine)

        job = SpawnContext(asked, allocation, jobmap, {}, "/", "00070000", endpoint, named, self._call)
        table = self.state.table
        running = RunningJob(
            table.hosts, table.names, table.running, table.in_mpi, table.ended, lambda: self.state.phase == ENDING,
            self.send, lambda node: False, lambda node, call: None, self.on, self.notify, self.add_agent,
            self.add_world,
        )  # fmt: skip
        self.spawning = Spawner(job, running)
        self.mpi = MpiFrames(running, lambda job: self.spawning)
        self.name = str(0x70001)
        self.mpi.add_world(World(self.name, 0, tuple(self.state.table.hosts), tuple((rank,) for rank in range(ranks))))
        self.on(Prepared(), *(Started(rank, 100 + rank, rank) for rank in range(ranks)))
        self.on(*(Joined(rank) for rank in range(joined if joined >= 0 else ranks)))

    def _call(self, nodes: Sequence[Node], done: Callable[[list[Any], list[LaunchError]], None]) -> None:
        self.calls.append(([node.name for node in nodes], done))

    def come(self, errors: Sequence[LaunchError] = ()) -> None:
        """Hosts that were requested become available."""
        names, done = self.calls.pop(0)
        gone = {error.where for error in errors}
        done([Agent(Node(name, 2, "-H")) for name in names if name not in gone], list(errors))

    # what the controller does

    def send(self, node: int, *pieces: bytes) -> None:
        self.sent += ((node, one) for one in frames.Decoder().feed(b"".join(pieces)))

    def notify(self, kind: str, facts: Any) -> None:
        self.notices.append(notice_text(kind, facts, self.state.table.names, self.state.table.hosts))

    def add_agent(self, peer: Any) -> int:
        return self.state.table.add_node(peer.node.name)

    def add_world(self, world: World, nodes: Sequence[int], mpi: bool) -> None:
        assert self.state.table.add_world(nodes, mpi) == world.first
        self.mpi.add_world(world)
        self.added.append((world, list(nodes), mpi))

    def on(self, *happened: Any) -> None:
        for event in happened:
            for action in self.state.on(event):
                self.actions.append(action)
                if isinstance(action, SpawnedEvent):
                    self.mpi.settled(action.world, action.error)

    # frames of agents

    def ask(self, number: int, ranks: int, parent: str = "", node: int = 0, **more: list[str]) -> None:
        asked = {"from": [parent or f"{self.name}.0"], "argv.0": ["child"], "app.0": [str(ranks), ""]}
        fields = {"family": ["pmi"], "count": ["1"], **asked}
        fields.update((name.replace("_", "."), values) for name, values in more.items())
        payload = pack_with_blobs(Question(number, "spawn", fields))
        self.mpi.on_frame(node, frames.Frame(frames.ASK, frames.NO_RANK, payload))

    def answers(self) -> list[tuple[int, Answer]]:
        found = [
            (node, unpack_with_blobs(Answer, frame.payload)) for node, frame in self.sent if frame.kind == frames.ANSWER
        ]
        self.sent = [one for one in self.sent if one[1].kind != frames.ANSWER]
        return found

    def plans(self) -> list[tuple[int, NodePlan]]:
        found = [(node, control.unpack_plan(f.payload)) for node, f in self.sent if f.kind == frames.LAUNCH]
        self.sent = [one for one in self.sent if one[1].kind != frames.LAUNCH]
        return found


SECOND, THIRD = str(0x70002), str(0x70003)


def test_nodes_with_ranks_of_the_world_get_their_plan_last() -> None:
    hosts = Hosts(2)
    hosts.ask(7, 1, preput=["key", "value"])
    (other, empty), (own, plan) = hosts.plans()
    assert (other, own) == (1, 0)
    assert empty == NodePlan((), (), (), world=plan.world._replace(here=-1))
    expected = World(SECOND, 2, ("n0",), ((0,),), 0, (1,), 6, f"{hosts.name}.0", ("key", "value"))
    assert plan.world == expected
    (rank,) = plan.ranks
    assert rank.rank == 2, "as frames count"
    env = {*plan.env, *rank.env}
    assert {"RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "RANK_SIZE=1", "MASTER_PORT=5"} <= env
    assert (plan.stdin, plan.services, plan.apps[0].wdir, plan.apps[0].argv) == ((), (), "/work", ("child",))
    assert hosts.answers() == []
    hosts.on(Started(2, 55, 0))
    assert hosts.answers() == [(0, Answer(7, "", {"world": [SECOND]}))]
    assert hosts.added == [(expected._replace(here=-1), [0], True)]


def test_several_commands_make_one_world() -> None:
    hosts = Hosts()
    commands = {"count": ["2"], "argv_1": ["other", "word"], "app_1": ["2", "sub"], "env_1": ["E=1"], "info_1": ["a"]}
    hosts.ask(1, 1, **commands)
    assert hosts.calls[0][0] == ["n1"]
    hosts.come()
    plans = hosts.plans()
    assert [(node, plan.world.name) for node, plan in plans] == [(1, hosts.name), (0, SECOND), (1, SECOND)]
    world, (first, second) = plans[1][1].world, plans[1][1].apps
    assert (world.sizes, world.hosts, world.ranks) == ((1, 2), ("n0", "n1"), ((0,), (1, 2)))
    assert (first.wdir, second.wdir, second.argv) == ("/work", "/work/sub", ("other", "word"))
    assert "E=1" in second.env and "E=1" not in first.env and "A=1" in second.env
    assert "OMPI_NUM_APP_CTX=2" in plans[1][1].env
    assert [[(rank.rank, rank.app) for rank in plan.ranks] for _, plan in plans[1:]] == [[(1, 0)], [(2, 1), (3, 1)]]


def test_missing_slots_are_an_error_of_the_parent() -> None:
    hosts = Hosts(nodes=1)
    hosts.ask(3, 2)
    ((node, answer),) = hosts.answers()
    assert (node, answer.number, answer.error) == (0, 3, "slots")
    why = "not enough slots: 2 ranks asked for, 1 slot free"
    todo = "ask for fewer ranks, give the hosts more slots (slots=N, -H HOST:N), or add --oversubscribe"
    assert hosts.notices == [f"rank 0 could not spawn 2 ranks of child: {why} ({todo})"]
    assert not hosts.plans() and hosts.state.failure is None
    hosts.ask(4, 1)
    assert len(hosts.plans()) == 1, "another one is not in its way"


def test_spawned_ranks_may_oversubscribe_as_the_job_may() -> None:
    hosts = Hosts(nodes=1, policy=Policy(oversubscribe=True))
    hosts.ask(3, 4)
    ((_, plan),) = hosts.plans()
    assert len(plan.ranks) == 4 and "OMPI_MCA_mpi_oversubscribe=1" in plan.env


def test_slots_are_free_again_once_ranks_have_ended() -> None:
    hosts = Hosts(nodes=1)
    for number in (1, 2):
        hosts.ask(number, 1)
        assert len(hosts.plans()) == 1
        hosts.on(Started(number, 5), Joined(number), Left(number))
        hosts.ask(9, 1)
        assert not hosts.plans(), "the other one runs"
        hosts.on(exited(number, 0, 0, None))
    assert hosts.state.failure is None


def test_a_child_that_ends_without_mpi_init_fails_the_job() -> None:
    hosts = Hosts()
    hosts.ask(1, 1)
    hosts.on(Started(1, 5), exited(1, 0, 0, None))
    failure = failure_of(hosts.state)
    assert failure and failure.what == (
        "rank 0 of world 2, for which those who spawned it wait, ended without MPI_Init"
    )


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_program_that_cannot_be_started_is_an_error_of_the_parent(how: str) -> None:
    """The other ranks of its world are ended, and the job goes on."""
    hosts = Hosts(2)
    hosts.ask(3, 2)
    assert len(hosts.plans()) == 2
    failed = exited(3, 1, 127, None, "the program 'child' was not found", "give its path")
    started = Started(2, 50, 0)
    hosts.on(*((failed, started) if how == "before" else (started, failed)))
    assert Kill(2, 0) in hosts.actions
    ((_, answer),) = hosts.answers()
    assert answer.error == "start", "an agent learns no more"
    assert hosts.notices == ["rank 0 could not spawn 2 ranks of child: the program 'child' was not found, on n1"]
    hosts.on(exited(2, 0, None, 9), StreamEnded(2), StreamEnded(2))
    hosts.on(Left(0), Left(1))
    for rank in (0, 1):
        assert not hosts.state.finished
        hosts.on(exited(rank, rank, 0, None), StreamEnded(rank), StreamEnded(rank))
    assert hosts.state.finished and hosts.state.code == 0 and hosts.state.failure is None


def test_hosts_are_requested_for_one_spawn_at_a_time() -> None:
    """The second request counts the slots that the first has taken."""
    hosts = Hosts(slots=1)
    hosts.ask(1, 1)
    hosts.ask(2, 1)
    assert [names for names, _ in hosts.calls] == [["n1"]]
    hosts.come()
    assert [names for names, _ in hosts.calls] == [["n2"]]
    hosts.come()
    assert hosts.state.table.hosts == ["n0", "n1", "n2"]
    assert [(node, plan.world.name, plan.world.here) for node, plan in hosts.plans()] == [
        (1, hosts.name, -1), (0, SECOND, -1), (1, SECOND, 0),
        (2, hosts.name, -1), (2, SECOND, -1), (0, THIRD, -1), (1, THIRD, -1), (2, THIRD, 0),
    ]  # fmt: skip
    hosts.on(Started(2, 5, 2), Started(1, 5, 1))
    assert [(answer.number, answer.fields["world"]) for _, answer in hosts.answers()] == [(2, [THIRD]), (1, [SECOND])]


def test_an_unreachable_host_is_an_error_of_the_parent() -> None:
    hosts = Hosts(slots=1)
    hosts.ask(1, 2)
    hosts.ask(2, 1)
    hosts.come([LinkError("no route to host", "n2", "is it up?")])
    ((_, answer),) = hosts.answers()
    assert answer.error == "start"
    assert hosts.notices == ["rank 0 could not spawn 2 ranks of child: n2: no route to host (is it up?)"]
    assert [(node, plan.world.name) for node, plan in hosts.plans()] == [(1, hosts.name), (0, SECOND), (1, SECOND)]


def test_lost_hosts_get_no_ranks() -> None:
    hosts = Hosts(slots=1)
    hosts.ask(1, 1)
    hosts.come()
    hosts.on(Started(1, 5, 1), Joined(1), Left(1), exited(1, 1, 0, None), StreamEnded(1), StreamEnded(1), LinkEnded(1))
    assert hosts.state.failure is None, "nothing ran there any more"
    hosts.ask(2, 1)
    hosts.come()
    assert hosts.state.table.hosts == ["n0", "n1", "n2"] and hosts.plans()[-1][0] == 2


def test_a_host_may_be_lost_while_another_is_requested() -> None:
    hosts = Hosts(slots=1, nodes=4)
    hosts.ask(1, 2)
    names, done = hosts.calls.pop()
    assert names == ["n1", "n2"]

    assert hosts.state.table.add_node("n1") == 1
    hosts.on(LinkEnded(1))
    done([Agent(Node("n2", 1, "-H"))], [])
    assert [answer.error for _, answer in hosts.answers()] == ["start"]
    assert hosts.notices == ["rank 0 could not spawn 2 ranks of child: n1: the host was lost meanwhile"]


def test_info_may_name_hosts_of_the_job() -> None:
    hosts = Hosts()
    hosts.ask(1, 1, info_0=["host", "n2"])
    assert hosts.calls[0][0] == ["n2"]
    hosts.come()
    hosts.ask(2, 1, info_0=["host", "n3"])  # the allocation's fourth: `other`
    (answer,) = [answer for _, answer in hosts.answers()]
    assert answer.error == "slots" and "other is not among the hosts of this job" in hosts.notices[0]


def test_spawned_ranks_may_spawn() -> None:
    hosts = Hosts()
    hosts.ask(1, 1, env_0=["OF=child"], app_0=["1", "/deep"])
    hosts.on(Started(1, 5), Joined(1))
    hosts.plans()
    hosts.ask(2, 1, parent=f"{SECOND}.0")
    hosts.come()
    ((_, plan),) = [(node, plan) for node, plan in hosts.plans() if plan.ranks]
    assert plan.world.parent == f"{SECOND}.0" and plan.world.first == 2
    assert plan.apps[0].wdir == "/deep" and "OF=child" in plan.apps[0].env


@pytest.mark.parametrize(
    "wrong",
    [
        {"from": ["x"]}, {"from": ["1.0"]}, {"from": [f"{0x70001}.7"]}, {"from": []}, {"count": ["0"]},
        {"count": ["2"]}, {"count": ["x"]}, {"app.0": ["1"]}, {"app.0": ["many", ""]},
        {"from": [f"{0x70001}.{'9' * 5000}"]}, {"count": ["9" * 5000]}, {"app.0": ["9" * 5000, ""]},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_request_is_an_error_of_its_agent(wrong: dict[str, list[str]]) -> None:
    hosts = Hosts()
    with pytest.raises(WireError, match=r"means? nothing here|no rank of this job|does not run"):
        hosts.ask(1, 1, **{name.replace(".", "_"): values for name, values in wrong.items()})
    hosts.ask(1, 1)
    assert len(hosts.plans()) == 1


@pytest.mark.parametrize("argv", [[], [""]], ids=str)
def test_a_missing_program_is_an_error_of_the_parent(argv: list[str]) -> None:
    hosts = Hosts()
    hosts.ask(1, 1, argv_0=argv)
    assert hosts.answers() == [(0, Answer(1, "start"))]
    assert "no program was named" in hosts.notices[0]


def test_nothing_is_started_in_a_job_that_ends() -> None:
    """END has already been sent, and would not reach ranks that start afterwards."""
    hosts = Hosts(slots=1)
    hosts.ask(1, 1)
    hosts.on(Interrupted("SIGTERM"))
    hosts.ask(2, 1)
    hosts.come()
    assert [answer.error for _, answer in hosts.answers()] == ["start"] * 2
    assert hosts.added == [] and not [plan for _, plan in hosts.plans() if plan.ranks]


def test_spawns_in_a_job_that_ends_are_not_reported() -> None:
    hosts = Hosts()
    hosts.ask(1, 1)
    hosts.on(Interrupted("SIGTERM"), exited(1, 0, 1, None, "the job is being ended"))
    assert hosts.notices == [] and failure_of(hosts.state).what == "ended by SIGTERM"


def test_a_non_mpi_program_need_not_join() -> None:
    hosts = Hosts()
    hosts.ask(1, 1, info_0=["ompi_non_mpi", "1"])
    assert hosts.added[0][2] is False
    hosts.on(Started(1, 5), exited(1, 0, 0, None))
    assert hosts.state.failure is None


# --- who may spawn, and where

AUTO = {"mpi": "auto", "argv": ("sleep", "9")}  # nobody says that it is an MPI program, and it is none


def refused(hosts: Hosts, why: str) -> None:
    """Nothing was started, the rank has an error and the user a line."""
    assert [(answer.error, len(answer.fields)) for _, answer in hosts.answers()] == [("start", 0)]
    assert len(hosts.notices) == 1 and why in hosts.notices[0], hosts.notices
    assert hosts.plans() == [] and hosts.calls == []


def test_spawn_no() -> None:
    hosts = Hosts(spawn="no")
    hosts.ask(1, 1)
    refused(hosts, "--spawn no was given")


def test_only_a_rank_in_mpi_may_spawn() -> None:
    before = Hosts(2, joined=1)
    before.ask(1, 1, parent=f"{before.name}.1", node=1)
    refused(before, "it is not between MPI_Init and MPI_Finalize")
    after = Hosts(spawn="yes")
    after.on(Left(0))
    after.ask(1, 1)
    refused(after, "it is not between")
    ended = Hosts(2, spawn="yes")
    ended.on(Left(0), exited(0, 0, 0, None))
    ended.ask(1, 1)
    refused(ended, "it is not between")


def test_a_node_may_not_ask_for_a_rank_of_another() -> None:
    hosts = Hosts(2, spawn="yes")
    with pytest.raises(WireError, match="a rank that it does not run"):
        hosts.ask(1, 1, node=1)
    assert hosts.plans() == [] and hosts.answers() == []


def test_the_word_of_one_host_does_not_make_a_job_one_of_mpi() -> None:
    hosts = Hosts(2, joined=1, app=AUTO)
    hosts.ask(1, 1)
    refused(hosts, "only its host, n0, says that sleep is an MPI program (if it is one, give --spawn yes)")
    alone = Hosts(app=AUTO)
    alone.ask(1, 1)
    refused(alone, "only its host")


@pytest.mark.parametrize(
    ("ranks", "how"),
    [
        (1, {"spawn": "yes", "app": AUTO}),
        (1, {"app": {**AUTO, "mpi": "pmix:/lib/libpmix.so"}}),
        (2, {"app": AUTO}),  # both hosts say so
        (1, {"app": AUTO, "local": 0}),  # our own agent says so
    ],
    ids=["--spawn yes", "--mpi", "all hosts", "the launching host"],
)
def test_a_job_of_mpi_may_spawn(ranks: int, how: dict[str, Any]) -> None:
    hosts = Hosts(ranks, **how)
    hosts.ask(1, 1)
    assert any(plan.ranks for _, plan in hosts.plans()) and not hosts.notices


def test_a_program_that_is_linked_to_mpi_is_one_of_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.agent.mpi.library_of_program.find", lambda *what, strict: strict)
    hosts = Hosts(app=AUTO)
    hosts.ask(1, 1)
    assert len(hosts.plans()) == 1
    missing = Hosts(app={**AUTO, "argv": ("/nonexistent",)})
    missing.ask(1, 1)
    refused(missing, "only its host")


def test_no_program_is_looked_at_that_a_host_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that was spawned is judged as the program of the job whose rank asked for it."""
    looked: list[str] = []

    def find(path: str, argv: Sequence[str], *more: Any, strict: bool = False) -> bool:
        looked.extend(argv)
        return True

    monkeypatch.setattr("mslaunch.agent.mpi.library_of_program.find", find)
    monkeypatch.setattr("mslaunch.host.programs.find_program", lambda name, path, wdir: looked.append(name))
    hosts = Hosts(app=AUTO)
    hosts.ask(1, 1, argv_0=["/tmp/named-by-a-host"])
    hosts.on(Started(1, 55, 0), Joined(1))
    hosts.plans(), hosts.answers()
    hosts.ask(2, 1, parent=f"{SECOND}.0")
    assert len([plan for _, plan in hosts.plans() if plan.ranks]) + len(hosts.calls) == 1, hosts.notices
    assert looked == ["sleep", "sleep", "9"]


def test_the_launching_host_takes_nothing_from_others() -> None:
    """Not for --spawn yes either, and not by its name."""
    hosts = Hosts(spawn="yes", slots=1, local=1)
    hosts.ask(1, 1)
    assert hosts.calls.pop()[0] == ["n2"]
    named = Hosts(spawn="yes", slots=1, local=1)
    named.ask(1, 1, info_0=["host", "n1"])
    refused(named, "no rank that has called MPI_Init runs on the launching host")
    full = Hosts(spawn="yes", slots=1, local=1, nodes=2)
    full.ask(1, 1)
    ((_, answer),) = full.answers()
    assert answer.error == "slots" and "on the launching host, so none is started there" in full.notices[0]


def test_the_launching_host_takes_ranks_where_it_has_some_in_mpi() -> None:
    hosts = Hosts(2, spawn="yes", local=1)
    hosts.ask(1, 1, info_0=["host", "n1"])
    assert [node for node, plan in hosts.plans() if plan.ranks] == [1]
    hosts.on(Started(2, 7, 1), exited(1, 1, 0, None), Joined(2), Left(2))
    hosts.answers()
    hosts.ask(2, 1, info_0=["host", "n1"])
    assert [answer.error for _, answer in hosts.answers()] == ["start"]


def test_failures_of_a_host_are_told_sixteen_times() -> None:
    hosts = Hosts(spawn="no")
    for number in range(100):
        hosts.ask(number, 1)
    assert len(hosts.notices) == 16 and hosts.notices[-1].endswith("; more failures of this host are not shown")
    assert len(hosts.answers()) == 100


def test_what_a_host_sends_is_quoted_in_part() -> None:
    hosts = Hosts(spawn="no")
    hosts.ask(1, 1, argv_0=["x" * 100_000])
    assert len(hosts.notices[0]) < 1000


def test_spawns_that_wait_are_bounded() -> None:
    hosts = Hosts(slots=1)
    for number in range(300):
        hosts.ask(number, 1)
    assert len(hosts.answers()) == 300 - 1 - 256


def large_words(thing: object) -> set[str]:
    """Strings of more than 100 kB that can be reached from `thing`."""
    found: set[str] = set()
    seen: set[int] = set()
    left = [thing]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found |= {one} if len(one) > 100_000 else set()
        elif id(one) not in seen and not isinstance(one, (type, ModuleType)):
            seen.add(id(one))
            left += gc.get_referents(one.__closure__ if isinstance(one, FunctionType) else one)
    return found


def test_nothing_large_is_kept_of_a_world_that_has_ended() -> None:
    """A host may spawn as often as it likes, each time with arguments of megabytes."""
    hosts = Hosts(slots=9)
    hosts.ask(1, 2, argv_0=["child", "x" * 200_000], preput=["key", "y" * 200_000])
    hosts.on(Started(1, 5), Started(2, 6), Joined(1), Joined(2))
    hosts.ask(2, 1)  # a plan is kept until the next one
    for seen in (hosts.sent, hosts.added, hosts.actions):
        seen.clear()  # type: ignore[attr-defined]
    hosts.mpi.ended(1)
    assert len(large_words(hosts.spawning)) == 2, "rank 1 of it may spawn"
    hosts.mpi.ended(2)
    assert not large_words(hosts.spawning) | large_words(hosts.mpi)
    hosts.on(Left(1), Left(2), exited(1, 0, 0, None), exited(2, 0, 0, None))
    hosts.ask(3, 1, parent=f"{SECOND}.0")
    assert [answer.error for _, answer in hosts.answers()] == ["start"]
    assert "is not between MPI_Init and MPI_Finalize" in hosts.notices[-1]


def test_what_is_kept_of_the_worlds_of_a_host_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.launcher.mpi.spawn_ranks._RUNNING_SIZE", 1 << 20)
    hosts = Hosts(slots=9)
    for number in (1, 2):
        hosts.ask(number, 1, argv_0=["child", "x" * 400_000])
        hosts.on(Started(number, 5), Joined(number))
    hosts.ask(3, 1, argv_0=["child", "x" * 400_000])
    assert [answer.error for _, answer in hosts.answers()] == ["", "", "start"]
    assert "still run take more than 1 MiB of arguments and variables" in hosts.notices[-1]
    hosts.mpi.ended(1)
    hosts.ask(4, 1, argv_0=["child", "x" * 400_000])
    hosts.on(Started(3, 5), Joined(3))
    assert [answer.error for _, answer in hosts.answers()] == [""]
