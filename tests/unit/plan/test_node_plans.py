"""The plans: every variable of every rank as a value, and what travels to which host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import ANY_HOST, SERVICE_BASE, NodePlan
from mslaunch.datamodel.request import AppContext, OutputPolicy, Request, ServicePolicy, Share
from mslaunch.errors import UsageError
from mslaunch.frameworks import mindspore
from mslaunch.plan.node_plans import (
    direct_hosts,
    first_services,
    make_plans,
    make_world,
    service_plans,
    stdin_ranks,
    xterm_ranks,
)
from mslaunch.plan.rank_variables import missing_exports

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"
HERE, THERE = Node("head", 2, "-H", local=True), Node("n1", 2, "-H")
ROWS = tuple(Placement(rank, 0, rank // 2, rank % 2) for rank in range(4))
TWO_BY_TWO = JobMap((HERE, THERE), ROWS, 6)
ENDPOINT = Endpoint("10.0.0.1", 10001, 10002)


def plans(app: AppContext, environ: dict[str, str], jobmap: JobMap = TWO_BY_TWO, **more: object) -> list[NodePlan]:
    return make_plans(Request((app,), **more), jobmap, environ, "/home/joe", ENDPOINT, "0123abcd")  # type: ignore[arg-type]


def exported(*env: tuple[str, str | None], environ: dict[str, str] | None = None) -> tuple[str, ...]:
    words = plans(AppContext(("x",), env=env), environ or {})[0].apps[0].env
    return tuple(word for word in words if not word.startswith("OMPI_"))


def rendered(plan: NodePlan) -> str:
    """A plan as text, one value a line."""
    lines = []
    for field, value in plan._asdict().items():
        if field in ("ranks", "apps", "services"):
            for row in value:
                lines.append(f"{field}:")
                lines += [f"  {name}: {inside}" for name, inside in _flat(row._asdict())]
        elif isinstance(value, tuple):
            lines += [f"{field}:", *(f"  {word}" for word in value)]
        else:
            lines.append(f"{field}: {value}")
    return "\n".join(lines) + "\n"


def _flat(row: dict[str, object]) -> list[tuple[str, object]]:
    return [(name, part) for name, value in row.items() for part in (value if isinstance(value, tuple) else (value,))]


def test_the_universe_is_the_slots_also_where_there_are_more_ranks() -> None:
    assert "OMPI_UNIVERSE_SIZE=2" in plans(AppContext(("x",)), {}, TWO_BY_TWO._replace(slots=2))[0].env


@pytest.mark.parametrize("name", ["two-hosts-two-ranks"])
def test_the_plans_of_a_job(name: str, golden: Callable[[str, Path], None]) -> None:
    app = AppContext(("python", "net.py", "--lr", "0.1"), env=(("LR", "0.1"), ("HOME", None)))
    environ = {"HOME": "/home/joe", "PATH": "/bin", "OMPI_MCA_btl": "tcp", "OMPI_COMM_WORLD_RANK": "7"}
    made = plans(app, environ, mca=(("btl_tcp_if_include", "eth0"),))
    text = "\n".join(f"# {node.name}\n{rendered(plan)}" for node, plan in zip(TWO_BY_TWO.nodes, made))
    golden(text, GOLDEN / f"{name}.txt")


def test_many_nodes_do_not_read_the_map_each() -> None:
    """Of 1,000 nodes each would look at 8,000 placements."""

    class Counted(tuple):  # type: ignore[type-arg]
        read = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Counted.read += 1
            return super().__iter__()

    nodes = tuple(Node(f"n{node}", 1, "-H") for node in range(50))
    rows = Counted(Placement(rank, 0, rank, 0) for rank in range(50))
    assert len(plans(AppContext(("a",)), {}, JobMap(nodes, rows, 50))) == 50  # type: ignore[arg-type]
    assert 0 < Counted.read < 10


def test_variables_of_the_launcher_for_remote_ranks() -> None:
    environ = {
        "OMPI_MCA_btl": "tcp",
        "OMPI_COMM_WORLD_RANK": "7",
        "OMPI_UNIVERSE_SIZE": "99",
        "OMPI_MCA_ess_base_jobid": "1",
        "LD_LIBRARY_PATH": "/opt",
        "NCCL_DEBUG": "INFO",
        "OMPIX": "x",
        "PMIX_MCA_gds": "hash",
        "PMIX_NAMESPACE": "stale",
    }
    local, remote = plans(AppContext(("x",)), environ)
    known = {word.partition("=")[0] for word in (*remote.env, *remote.apps[0].env)} & set(environ)
    assert known == {"OMPI_MCA_btl", "PMIX_MCA_gds", "OMPI_UNIVERSE_SIZE", "OMPI_MCA_ess_base_jobid"}
    assert {"OMPI_UNIVERSE_SIZE=6", f"OMPI_MCA_ess_base_jobid={0x01230001}"} <= set(remote.env), "they are ours"
    assert "OMPI_MCA_btl=tcp" not in local.apps[0].env, "it is inherited there"


@pytest.mark.parametrize(
    "name",
    ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "RANK", "MS_ROLE", "RANK_TABLE_FILE", "MSLAUNCH_JOBID",
     "OMPI_MCA_ess_base_jobid", "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_orte_hnp_uri", "PMIX_SERVER_URI41"],
)  # fmt: skip
def test_variables_of_an_outer_launch_are_removed(name: str) -> None:
    for plan in plans(AppContext(("x",)), {}):
        assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in plan.scrub)
        assert not any("PATH".startswith(one.rstrip("*")) for one in plan.scrub)


def test_mca_of_the_command_line_wins_over_the_environment() -> None:
    app = AppContext(("x",), env=(("OMPI_MCA_btl", "sm"),))
    remote = plans(app, {"OMPI_MCA_btl": "tcp"}, mca=(("btl", "self"),))[1]
    assert [word[-4:] for word in remote.apps[0].env if "btl" in word] == ["=tcp", "self", "l=sm"], "the last one wins"


def test_exports() -> None:
    environ = {"A_1": "one", "A_2": "two", "B": "b"}
    assert exported(("B", None), environ=environ) == ("B=b",)
    assert exported(("A_*", None), environ=environ) == ("A_1=one", "A_2=two")
    assert exported(("A_?", None), ("A_1", "mine"), environ=environ) == ("A_1=mine", "A_2=two")
    assert exported(("A_1", "mine"), ("A_*", None), environ=environ) == ("A_1=one", "A_2=two")
    assert exported(("X", "1"), ("X", "2=3")) == ("X=2=3",)
    assert exported(("NONE", None), environ=environ) == ()
    assert exported(("a_*", None), environ=environ) == (), "variables have case"
    for env in (("", "x"), ("X", "a\0b")):
        with pytest.raises(UsageError):
            exported(env)


FULL = {
    "A": "1", "AB": "2", "B": "3", "PATH": "/bin", "HOME": "/root", "PWD": "/x", "HOSTNAME": "head",
    "SSH_TTY": "/dev/tty", "RANK": "7", "MSLAUNCH_JOBID": "7", "OMPI_X": "x", "PMIX_X": "x",
    "NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": "", "K_MPI_JOB_ROLE": "launcher",
}  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (AppContext(()).forward, {"OMPI_X", "PMIX_X"}),
        (("*",), {"A", "AB", "B", "PATH", "HOME", "OMPI_X", "PMIX_X"}),
        ((), set()),
        (("A", "PWD", "RANK"), {"A"}),
        (("A?", "[B]"), {"AB", "B"}),
        (("*B",), {"AB", "B"}),
    ],
)
def test_the_dialect_decides_which_variables_are_forwarded(patterns: tuple[str, ...], names: set[str]) -> None:
    """Variables of an outer launch, or of the launcher's own host and shell, are never forwarded."""
    made = plans(AppContext(("x",), forward=patterns), FULL)[1].apps[0].env
    assert {word.partition("=")[0] for word in made} & set(FULL) == names


def test_a_pattern_does_not_match_variables_of_an_outer_launch() -> None:
    """-x '*' (--fwd-environment) takes what -genvall does; by name, everything can be given."""
    env = tuple((name, None) for name in ("*", "HOSTNAME", "RANK"))
    made = plans(AppContext(("x",), env=env), FULL)[0].apps[0].env
    names = {word.partition("=")[0] for word in made} & set(FULL)
    assert names == {"A", "AB", "B", "PATH", "HOME", "OMPI_X", "PMIX_X", "HOSTNAME", "RANK"}


def test_each_program_has_its_own_variables() -> None:
    rows = (Placement(0, 0, 0, 0), Placement(1, 1, 0, 1, cpus=(3,)), Placement(2, 1, 1, 0))
    apps = (AppContext(("/opt/a", "-x", "two words")), AppContext(("b",), wdir="run", forward=("A",)))
    made = make_plans(Request(apps), JobMap((HERE, THERE), rows, 4), {"A": "1"}, "/w", ENDPOINT, "ff")
    first, second = made[0].apps
    assert first.env == (
        "OMPI_COMMAND=a",
        "OMPI_MCA_orte_app_num=0",
        "OMPI_MCA_initial_wdir=/w",
        "OMPI_ARGV=-x two words",
    )
    assert second.env == ("OMPI_COMMAND=b", "OMPI_MCA_orte_app_num=1", "OMPI_MCA_initial_wdir=/w/run")
    assert made[1].apps == (first, second._replace(env=("A=1", *second.env)))
    assert {"OMPI_NUM_APP_CTX=2", "OMPI_APP_CTX_NUM_PROCS=1 2", "OMPI_FIRST_RANKS=0 1"} <= set(made[0].env)
    bound = ["OMPI_MCA_orte_bound_at_launch=1" in rank.env for plan in made for rank in plan.ranks]
    assert bound == [False, True, False]


@pytest.mark.parametrize(("slots", "said"), [(1, "1"), (2, "0"), (None, "0")])
def test_a_node_with_more_ranks_than_slots(slots: int | None, said: str) -> None:
    jobmap = JobMap((HERE._replace(slots=slots), THERE), ROWS, 6)
    first, second = plans(AppContext(("x",)), {}, jobmap)
    assert f"OMPI_MCA_mpi_oversubscribe={said}" in first.env and "OMPI_MCA_mpi_oversubscribe=0" in second.env


def test_directories_of_programs() -> None:
    """--prefix is taken from the launch directory; --path on the host, from the working directory there."""
    apps = (AppContext(("a",), path="x:/y", prefix="opt/"), AppContext(("b",)), AppContext(("c",), prefix="/p"))
    rows = tuple(Placement(rank, rank, 0, rank) for rank in range(3))
    made = make_plans(Request(apps), JobMap((HERE,), rows, 3), {}, "/w", ENDPOINT, "ff")[0].apps
    assert [app.path for app in made] == ["x:/y", "", ""]
    ours = ("PATH=/w/opt/bin", "LD_LIBRARY_PATH=/w/opt/lib")
    assert [app.front for app in made] == [ours, (), ("PATH=/p/bin", "LD_LIBRARY_PATH=/p/lib")]


@pytest.mark.parametrize(
    ("app", "session", "inside", "name"),
    [
        (AppContext(("bin/a", "b")), False, False, "bin/a"),
        (AppContext(("bin/a", "b"), preload_files=("x",)), True, False, "bin/a"),
        (AppContext(("bin/a", "b"), session_dir=True), True, True, "bin/a"),
        (AppContext(("bin/a", "b"), session_dir=True, wdir="/"), True, False, "bin/a"),
        (AppContext(("bin/a", "b"), preload_binary=True, wdir="/"), True, True, "./a"),
    ],
)
def test_session_directories(app: AppContext, session: bool, inside: bool, name: str) -> None:
    plan = plans(app, {})[1]
    assert (plan.session, plan.apps[0].in_session, plan.apps[0].argv) == (session, inside, (name, "b"))
    assert "OMPI_COMMAND=a" in plan.apps[0].env


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", (0,)),
        ("0,2-3", (0, 2, 3)),
        ("1!", (1,)),
        (" 1 - 2 , 0", (1, 2, 0)),
        ("-1", (0, 1, 2, 3)),
        ("2,-1!", (0, 1, 2, 3)),
    ],
)
def test_windows(text: str, ranks: tuple[int, ...]) -> None:
    made = plans(AppContext(("x",)), {"DISPLAY": "head:0"}, output=OutputPolicy(xterm=text))
    rows = [rank for plan in made for rank in plan.ranks]
    hold = ("-hold",) if "!" in text else ()
    assert {row.rank for row in rows if row.wrapper} == set(ranks)
    assert all(row.wrapper == ("xterm", "-T", f"Rank {row.rank}", *hold, "-e") for row in rows if row.wrapper)
    assert "DISPLAY=head:0" in made[1].defaults
    assert "DISPLAY=head:0" not in plans(AppContext(("x",)), {"DISPLAY": "head:0"})[1].defaults


@pytest.mark.parametrize("text", ["x", "", "!", "0,", "4", "0-4", "3-2", "1-", "-2", "0-99999999999"])
def test_windows_of_no_rank(text: str) -> None:
    with pytest.raises(UsageError):
        xterm_ranks(Request((AppContext(("x",)),), output=OutputPolicy(xterm=text)), 4)


def test_exports_without_a_value_are_reported() -> None:
    app = AppContext(("x",), env=(("NONE", None), ("B", None), ("C*", None), ("D", "1"), ("E?", None)))
    assert missing_exports(Request((app, AppContext(("y",), env=(("Z", None),)))), {"B": "b"}) == ["NONE", "Z"]


@pytest.mark.parametrize(
    ("wdir", "expected"),
    [(None, "/home/joe"), ("/data", "/data"), ("run", "/home/joe/run"), ("../x", "/home/joe/../x")],
)
def test_working_directories_of_ranks(wdir: str | None, expected: str) -> None:
    assert plans(AppContext(("x",), wdir=wdir), {})[1].apps[0].wdir == expected


def test_the_scheduler_is_on_the_node_of_rank_0() -> None:
    swapped = JobMap((HERE, THERE), tuple(row._replace(node=1 - row.node) for row in ROWS), 4)
    first, second = plans(AppContext(("x",)), {}, swapped)
    assert (len(first.services), len(second.services)) == (0, 1)
    service = second.services[0]
    assert service.port == 10002
    assert {"MS_SCHED_HOST=10.0.0.1", "MS_ROLE=MS_SCHED", "MS_SCHED_PORT=10002", "MS_WORKER_NUM=4"} <= set(service.env)


@pytest.mark.parametrize(
    ("stdin", "expected"), [("0", [(0,), ()]), ("3", [(), (3,)]), ("all", [(0, 1), (2, 3)]), ("none", [(), ()])]
)
def test_ranks_that_read_standard_input(stdin: str, expected: list[tuple[int, ...]]) -> None:
    assert [plan.stdin for plan in plans(AppContext(("x",)), {}, stdin=stdin)] == expected


def test_an_unknown_rank_for_standard_input_is_refused() -> None:
    with pytest.raises(UsageError, match="no rank 4"):
        stdin_ranks(Request((AppContext(("x",)),), stdin="4"), 4)


def test_other_fields_of_a_plan() -> None:
    how = OutputPolicy(merge=True, pty="no")
    plan = plans(AppContext(("x",)), {}, output=how, grace=7.0, index_argv=True)[0]
    assert (plan.merge, plan.pty, plan.grace, plan.index_argv) == (True, "no", 7.0, True)
    assert "PYTHONUNBUFFERED=1" in plan.defaults


def values(words: tuple[str, ...]) -> dict[str, str]:
    found = dict(word.split("=", 1) for word in words)
    assert len(found) == len(words), "nothing is said twice"
    return found


# --- attempts, and waiting times under two names


def test_ranks_know_the_number_of_their_attempt() -> None:
    """-x does not override it, nor does a variable of an outer launch."""
    app = AppContext(("x",), env=(("MSLAUNCH_ATTEMPT", None), ("MSLAUNCH_ATTEMPT", "7"), ("*", None)))
    environ = {"MSLAUNCH_ATTEMPT": "9"}
    for attempt in (1, 3):
        for plan in make_plans(Request((app,)), TWO_BY_TWO, environ, "/", ENDPOINT, "ff", attempt=attempt):
            assert values(plan.env)["MSLAUNCH_ATTEMPT"] == str(attempt)
            assert not any("MSLAUNCH_ATTEMPT" in word for word in plan.apps[0].env)


LOWER, UPPER = "MS_RETRY_INTERVAL_LOWER", "MS_RETRY_INTERVAL_UPPER"


@pytest.mark.parametrize(
    ("env", "environ", "ours"),
    [((), {}, True), (((LOWER, "4"),), {}, False), ((), {UPPER: "9"}, False), ((("A", "1"),), {}, True)],
)
def test_workers_poll_their_scheduler_often_unless_the_user_sets_the_interval(
    env: tuple[tuple[str, str | None], ...], environ: dict[str, str], ours: bool
) -> None:
    for plan in plans(AppContext(("x",), env=env), environ):
        found = values(plan.defaults)
        assert (found.get(LOWER), found.get(UPPER)) == (("1", "1") if ours else (None, None))


def test_very_many_workers_poll_at_the_interval_of_mindspore() -> None:
    few, many = (mindspore.defaults(size, (), False) for size in (256, 257))
    assert LOWER in few and LOWER not in many


@pytest.mark.parametrize(
    ("env", "environ", "seconds"),
    [
        ((), {}, "600"),
        ((), {"MS_CLUSTER_TIMEOUT": "30"}, "30"),
        ((), {"MS_TOPO_TIMEOUT": "40", "MS_CLUSTER_TIMEOUT": ""}, "40"),
        ((("MS_TOPO_TIMEOUT", "50"),), {"MS_CLUSTER_TIMEOUT": "30"}, "50"),
        ((("MS_CLUSTER_TIMEOUT", None),), {"MS_CLUSTER_TIMEOUT": "30"}, "30"),
    ],
)
def test_waiting_times_are_set_under_both_names(
    env: tuple[tuple[str, str | None], ...], environ: dict[str, str], seconds: str
) -> None:
    for plan in plans(AppContext(("x",), env=env), environ):
        found = values(plan.defaults)
        assert found["MS_TOPO_TIMEOUT"] == found["MS_CLUSTER_TIMEOUT"] == seconds


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, False),
        ({"restart": "none", "max_restarts": 2}, False),
        ({"max_restarts": 2}, True),
        ({"restart": "rank"}, True),
        ({"restart": "group"}, True),
    ],
)
def test_restarted_workers_may_register_again(how: dict[str, object], said: bool) -> None:
    for plan in plans(AppContext(("x",)), {}, **how):
        assert (values(plan.defaults).get("MS_ENABLE_RECOVERY") == "1") == said


def test_recovery_variables_of_the_launcher_go_to_all_hosts() -> None:
    environ = {"MS_ENABLE_RECOVERY": "0", "MS_RECOVERY_PATH": "/shared", "MS_OTHER": "x"}
    local, remote = plans(AppContext(("x",)), environ)
    assert {"MS_ENABLE_RECOVERY=0", "MS_RECOVERY_PATH=/shared"} <= set(remote.apps[0].env)
    assert not any("MS_" in word for word in local.apps[0].env), "it is inherited there"
    assert "MS_OTHER=x" not in remote.apps[0].env
    nothing = plans(AppContext(("x",), forward=()), environ)[1]
    assert not any(word.startswith("MS_") for word in nothing.apps[0].env), "hydra's -genvnone"


# --- services

THIRD = Node("n2", 0, "--scheduler")
APART = TWO_BY_TWO._replace(nodes=(HERE, THERE, THIRD), service=2)
ELSEWHERE = ENDPOINT._replace(service_address="10.0.0.3")


def first_plans(cluster: ServicePolicy, jobmap: JobMap = TWO_BY_TWO, attempt: int = 1) -> dict[int, NodePlan]:
    request = Request((AppContext(("python", "x.py"), env=(("A", "1"),)),), cluster=cluster)
    return service_plans(request, jobmap, {}, "/w", ELSEWHERE, "ff", attempt)


def test_a_scheduler_may_start_first() -> None:
    cluster = ServicePolicy(first=True, program="light", cpus=(1, 3))
    ((node, plan),) = first_plans(cluster, attempt=2).items()
    (service,) = plan.services
    assert (node, plan.ranks, plan.world.here) == (0, (), -1)
    assert service[2:-1] == (SERVICE_BASE, True, "light", (1, 3), "mindspore", "scheduler", "mindspore")
    assert service.port == 10002
    assert plan.apps[0].argv == ("python", "x.py") and "A=1" in plan.apps[0].env, "whose interpreter and variables"
    assert values(plan.env)["MSLAUNCH_ATTEMPT"] == "2" and "MS_TOPO_TIMEOUT" in values(plan.defaults)
    assert not any(made.services for made in plans(AppContext(("x",)), {}, cluster=cluster)), "it runs by then"


def test_a_scheduler_on_a_host_without_ranks() -> None:
    """No rank of that host would connect to it, so it starts first in any case."""
    ((node, plan),) = first_plans(ServicePolicy("n2"), APART).items()
    assert (node, plan.services[0].first) == (2, True)
    assert values(plan.services[0].env)["MS_SCHED_HOST"] == "10.0.0.3"
    request = Request((AppContext(("x",)),), cluster=ServicePolicy("n2"))
    *made, last = make_plans(request, APART, {}, "/", ELSEWHERE, "ff")
    assert last == NodePlan((), (), (), world=made[0].world._replace(here=-1))
    assert made[0].world.hosts == ("head", "n1") and [plan.world.here for plan in made] == [0, 1]
    for plan in made:
        env = values(plan.env)
        assert (env["MS_SCHED_HOST"], env["MASTER_ADDR"]) == ("10.0.0.3", "10.0.0.1")
        assert env["OMPI_MCA_orte_num_nodes"] == "2" and not plan.services


def test_a_scheduler_beside_ranks_starts_at_the_first_connection() -> None:
    jobmap = TWO_BY_TWO._replace(service=1)
    first, second = plans(AppContext(("x",)), {}, jobmap, cluster=ServicePolicy("n1"))
    assert not first.services and [service.first for service in second.services] == [False]
    assert len(second.ranks) == 2 and first_plans(ServicePolicy("n1"), jobmap) == {}


def test_parameter_servers_are_planned_beside_the_scheduler() -> None:
    """They are on its node, and all ranks know how many there are."""
    ((node, plan),) = first_plans(ServicePolicy(servers=2), TWO_BY_TWO._replace(service=1)).items()
    assert node == 1 and [service.number for service in plan.services] == [
        SERVICE_BASE,
        SERVICE_BASE - 1,
        SERVICE_BASE - 2,
    ]
    assert all(service.first for service in plan.services)
    assert [values(service.env)["MS_ROLE"] for service in plan.services] == ["MS_SCHED", "MS_PSERVER", "MS_PSERVER"]
    assert {values(service.env)["MS_SERVER_NUM"] for service in plan.services} == {"2"}
    assert [service.program for service in plan.services] == ["auto", "ranks", "ranks"]
    assert [service.port for service in plan.services] == [10002, 0, 0]
    for rank_plan in plans(AppContext(("x",)), {}, cluster=ServicePolicy(servers=2)):
        assert values(rank_plan.env)["MS_SERVER_NUM"] == "2"
    assert "MS_SERVER_NUM" not in values(plans(AppContext(("x",)), {})[0].env)


def test_a_dry_run_has_no_rendezvous() -> None:
    """And -x RANK_ID=512, as --sim_rank_id has it, is not overwritten from Open MPI's variables."""
    cluster = ServicePolicy(simulated=True, first=True, servers=1)
    assert first_plans(cluster) == {}
    for plan in plans(AppContext(("x",)), {}, cluster=cluster):
        assert plan.services == ()
        for rank in plan.ranks:
            env = {**values(plan.env), **values(rank.env)}
            assert env["RANK_ID"] == str(rank.rank) and env["MS_WORKER_NUM"] == env["RANK_SIZE"] == "4"
            assert not [name for name in env if name.startswith(("OMPI_", "MS_SCHED", "MS_ROLE", "MS_NODE"))]
        for name in ("MS_ROLE", "MS_NODE_ID", "MS_SCHED_HOST", "MS_SCHED_PORT"):
            assert name in plan.scrub


# --- a share of a job

PART = JobMap((HERE,), tuple(Placement(rank + 4, 0, 0, rank) for rank in range(2)), 2)
SHARE = Share(8, 4, "10.0.0.9", 8118, False)
AT_MASTER = Endpoint("10.0.0.9", 10001, 8118, "10.0.0.9")


def test_ranks_on_other_hosts_get_the_variables_of_a_batch_job() -> None:
    """Names, or names with another value; no variable that a launch around us has left, or of our host or task."""
    environ = {"JOB_NAME": "net", "PATH": "/tmp/7:/bin", "QRSH_PORT": "n1:1", "RANK": "3", "PWD": "/x", "OTHER": "1"}
    words = ("JOB_NAME", "QRSH_PORT", "RANK", "PWD", "GONE", "PATH=/bin")
    app = AppContext(("x",), env=(("JOB_NAME", "asked"),))
    near, far = plans(app, environ, shared=words, scrub=("QRSH_*",))
    assert not {"JOB_NAME=net", "PATH=/bin"} & set(near.apps[0].env)
    assert far.apps[0].env[:2] == ("JOB_NAME=net", "PATH=/bin")
    assert far.apps[0].env[-1] == "JOB_NAME=asked"
    names = {word.partition("=")[0] for word in far.apps[0].env}
    assert not names & {"QRSH_PORT", "RANK", "PWD", "GONE", "OTHER"}


def shared(share: Share, jobmap: JobMap = PART, stdin: str = "0") -> NodePlan:
    request = Request((AppContext(("x",)),), cluster=ServicePolicy(first=True, share=share), stdin=stdin)
    (plan,) = make_plans(request, jobmap, {}, "/", AT_MASTER, "ff")
    assert bool(service_plans(request, jobmap, {}, "/", AT_MASTER, "ff")) == share.master
    assert bool(first_services(request, jobmap)) == share.master
    return plan


def test_ranks_of_a_share_have_their_real_numbers() -> None:
    plan = shared(SHARE)
    assert [rank.rank for rank in plan.ranks] == [4, 5] and plan.services == () and plan.stdin == ()
    job = values(plan.env)
    assert (job["MS_SCHED_HOST"], job["MS_SCHED_PORT"], job["MS_WORKER_NUM"]) == ("10.0.0.9", "8118", "8")
    assert (job["WORLD_SIZE"], job["NODE_RANK"], job["LOCAL_WORLD_SIZE"]) == ("8", "2", "2")
    assert (job["OMPI_MCA_orte_num_nodes"], job["OMPI_UNIVERSE_SIZE"]) == ("4", "8")
    for number, rank in enumerate(plan.ranks):
        env = values(rank.env)
        assert env["RANK_ID"] == env["MS_NODE_ID"] == env["OMPI_COMM_WORLD_RANK"] == str(4 + number)
        assert env["DEVICE_ID"] == env["LOCAL_RANK"] == str(number)
    assert (plan.world.first, plan.world.ranks, plan.world.size) == (4, ((0, 1),), 2)
    assert plan.apps[0].mpi == "none", "the others are not ours"


def test_ranks_with_unknown_numbers_get_none() -> None:
    jobmap = PART._replace(placements=tuple(row._replace(rank=row.local_rank) for row in PART.placements))
    plan = shared(SHARE._replace(first=None, master=True), jobmap)
    assert [rank.rank for rank in plan.ranks] == [0, 1]
    for rank in plan.ranks:
        env = {**values(plan.env), **values(rank.env)}
        known = [name for name in env if "RANK" in name or name.endswith(("_NODE_ID", "_vpid"))]
        assert set(known) == {
            "LOCAL_RANK", "LOCAL_RANK_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK",
            "OMPI_FIRST_RANKS",
        }, "a framework sets the number of a rank only if `place.numbered`; or name it here, if it is none"  # fmt: skip
        assert env["DEVICE_ID"] == str(rank.rank) and env["OMPI_MCA_orte_ess_node_rank"] == str(rank.rank)


@pytest.mark.parametrize(
    ("role", "named", "own"), [("scheduler", "MS_SCHED", {"RANK_ID": "0"}), ("server", "MS_PSERVER", {})]
)
def test_a_process_that_is_no_rank_has_the_variables_of_its_role(role: str, named: str, own: dict[str, str]) -> None:
    """The only process of an operator's pod gets what `services` gets, and no number."""
    plan = shared(SHARE._replace(first=None, role=role), JobMap((HERE,), (Placement(0, 0, 0, 0),), 1))
    job, rank = values(plan.env), values(plan.ranks[0].env)
    assert (job["MS_ROLE"], job["MS_SCHED_HOST"], job["MS_WORKER_NUM"]) == (named, "10.0.0.9", "8")
    assert {name: rank[name] for name in rank if name in ("RANK_ID", "MS_NODE_ID", "DEVICE_ID", "RANK")} == own


def test_where_the_ranks_of_a_share_meet() -> None:
    """In PyTorch's pods of the Ascend operator at the port of the first pod, and there is no scheduler."""
    from mslaunch.launcher.agents.rendezvous import Rendezvous, RendezvousRequest
    from mslaunch.protocol import control

    found = []
    cluster = ServicePolicy(share=SHARE._replace(port=0, meeting=2222))
    hello = control.Hello(1, "n1", 1, (), "", "/usr/bin/python3")
    rendezvous = Rendezvous(
        {0: hello}, str, RendezvousRequest(0, 0, cluster, True), lambda *_: None, lambda at, _: found.append(at)
    )
    rendezvous.begin()
    rendezvous.reserved(0, control.Reserved((40000,), 0, b""))
    (endpoint,) = found
    assert (endpoint.address, endpoint.port, endpoint.service_port) == ("10.0.0.9", 2222, 0)
    request = Request((AppContext(("x",)),), cluster=cluster)
    (plan,) = make_plans(request, PART, {}, "/", endpoint, "ff")
    job = values(plan.env)
    assert (job["MASTER_ADDR"], job["MASTER_PORT"], job["WORLD_SIZE"], job["NODE_RANK"]) == (
        "10.0.0.9",
        "2222",
        "8",
        "2",
    )
    assert "MS_ROLE" not in job and [values(rank.env)["RANK"] for rank in plan.ranks] == ["4", "5"]


@pytest.mark.parametrize(("stdin", "readers"), [("0", ()), ("5", (5,)), ("all", (4, 5)), ("none", ())])
def test_ranks_of_a_share_that_read_standard_input(stdin: str, readers: tuple[int, ...]) -> None:
    assert shared(SHARE, stdin=stdin).stdin == readers
    with pytest.raises(UsageError, match="no rank 8 among 8"):
        shared(SHARE, stdin="8")


def test_windows_of_ranks_of_a_share() -> None:
    request = Request((AppContext(("x",)),), cluster=ServicePolicy(share=SHARE))
    assert xterm_ranks(request._replace(output=OutputPolicy(xterm="0,5")), 2, 4) == (0, 5)
    assert tuple(xterm_ranks(request._replace(output=OutputPolicy(xterm="-1")), 2, 4)) == (4, 5)


# --- for any map


@st.composite
def maps(draw: st.DrawFn) -> tuple[JobMap, ServicePolicy]:
    """Ranks in any order on some nodes, a scheduler anywhere, or the part of a job that one host has."""
    shares = draw(st.booleans())
    count = 1 if shares else draw(st.integers(1, 4))
    on = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=9).map(lambda more: [*range(count), *more]))
    first = draw(st.sampled_from([0, 3, 8])) if shares else 0
    rows = tuple(Placement(first + at, 0, node, on[:at].count(node)) for at, node in enumerate(on))
    nodes = tuple(Node(f"n{at}", 4, "-H", local=not at) for at in range(count))
    if shares:
        share = Share(first + len(rows) + draw(st.integers(0, 3)), first, "10.0.0.9", 8118, draw(st.booleans()))
        return JobMap(nodes, rows, 4), ServicePolicy(first=draw(st.booleans()), share=share)
    where = draw(st.integers(-1, count))
    nodes += (Node("apart", 0, "--scheduler"),) * (where == count)
    return JobMap(nodes, rows, 4 * count, service=where), ServicePolicy(
        first=draw(st.booleans()), servers=draw(st.integers(0, 2)), simulated=draw(st.booleans())
    )


@given(maps())
def test_every_rank_and_service_is_planned_once(drawn: tuple[JobMap, ServicePolicy]) -> None:
    jobmap, cluster = drawn
    request = Request((AppContext(("x",)),), cluster=cluster)
    made = make_plans(request, jobmap, {}, "/", ELSEWHERE, "ff")
    before = service_plans(request, jobmap, {}, "/", ELSEWHERE, "ff")
    ranks = [rank for plan in made for rank in plan.ranks]
    assert sorted(rank.rank for rank in ranks) == [placement.rank for placement in jobmap.placements]
    assert [len(plan.ranks) for plan in made] == [
        sum(placement.node == node for placement in jobmap.placements) for node in range(len(jobmap.nodes))
    ]
    for plan in made:
        assert all(values(rank.env)["RANK_ID"] == str(rank.rank) for rank in plan.ranks)
        assert (plan.world.here >= 0) == bool(plan.ranks)
        if plan.ranks:
            mine = plan.world.ranks[plan.world.here]
            assert [plan.world.first + rank for rank in mine] == sorted(rank.rank for rank in plan.ranks)
    services = [service.number for plan in (*made, *before.values()) for service in plan.services]
    wanted = not cluster.simulated and (cluster.share is None or cluster.share.master)
    assert services == ([SERVICE_BASE, SERVICE_BASE - 1, SERVICE_BASE - 2][: 1 + cluster.servers] if wanted else [])
    assert first_services(request, jobmap) == tuple(
        service.number for plan in before.values() for service in plan.services
    )


def test_the_name_of_a_world_has_a_number_for_all_and_a_secret() -> None:
    request = Request((AppContext(("x",)),))
    world = make_world(request, APART, "00ff0000", 2, 3, secret="5ec4e7")
    assert (world.name, world.number) == (f"{0x01010002}-5ec4e7@2", 0x01010002)
    (plan, *_) = make_plans(request, APART, {}, "/", ELSEWHERE, "00ff0000", secret="5ec4e7")
    assert plan.world.name.endswith("-5ec4e7@1")
    assert not any("5ec4e7" in word for rank in plan.ranks for word in (*plan.env, *rank.env))


def openmpi5_jobid(namespace: str) -> int:
    """As `opal_pmix_convert_nspace` (opal/mca/pmix/base/pmix_base_fns.c of 5.0.8) has it, with OPAL_HASH_STR."""
    family, _, local = namespace.partition("@")
    value, word = 0, 0xFFFFFFFF
    for byte in family.encode():
        value = value + byte & word
        value = value + (value << 10) & word
        value ^= value >> 6
    value = value + (value << 3) & word
    value ^= value >> 11
    value = value + (value << 15) & word
    return (value >> 16 ^ value & 0xFFFF) << 16 | int(local or 0) & 0xFFFF


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(1, 0x7FFF), min_size=2, max_size=9, unique=True))
@example(bytes.fromhex("fad93b19c06e5ee9cbaf313c734df6ce"), [1, 2])
def test_the_worlds_of_a_job_are_apart_for_open_mpi(secret: bytes, numbers: list[int]) -> None:
    """Of the example both had 43592 once: the ranks of a world took those of the other for themselves, and crashed."""
    names = [
        make_world(Request((AppContext(("x",)),)), APART, "abcd0000", number, secret=secret.hex()).name
        for number in numbers
    ]
    assert len(set(map(openmpi5_jobid, names))) == len(numbers)
    assert len({int(name.partition("-")[0]) for name in names}) == len(numbers)  # Open MPI 4.1


def test_a_world_contains_only_hosts_with_ranks() -> None:
    assert make_world(Request((AppContext(("x",)),)), APART, "ff").hosts == ("head", "n1")


def test_the_hosts_that_ranks_reach_without_a_proxy() -> None:
    """Their addresses as well; of so many hosts that the variable would be too long, where the ranks meet."""
    endpoint = Endpoint("10.0.0.1", 1, 2, "10.0.0.2", ("10.0.0.1", "10.0.0.3"))
    this = ("localhost", "127.0.0.1", "::1")
    assert direct_hosts(endpoint, ["a", "b"]) == ("10.0.0.1", "10.0.0.2", *this, "a", "b", "10.0.0.3")
    assert direct_hosts(endpoint._replace(service_address="", hosts=(ANY_HOST,)), []) == ("10.0.0.1", *this)
    assert direct_hosts(endpoint, [f"node{number}" for number in range(9999)]) == ("10.0.0.1", *this)
