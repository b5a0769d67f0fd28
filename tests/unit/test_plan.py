"""The plans: every variable of every rank as a value, and what travels to which host."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslaunch.errors import UsageError
from mslaunch.model import AppContext, JobMap, Node, NodePlan, OutputPolicy, Placement, Request
from mslaunch.plan.plan import make_plans, missing_exports, stdin_ranks, xterm_ranks

GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
HERE, THERE = Node("head", 2, "-H", local=True), Node("n1", 2, "-H")
ROWS = tuple(Placement(rank, 0, rank // 2, rank % 2) for rank in range(4))
TWO_BY_TWO = JobMap((HERE, THERE), ROWS, 6)
MEETING = ("10.0.0.1", 10001, 10002)


def plans(app: AppContext, environ: dict[str, str], jobmap: JobMap = TWO_BY_TWO, **more: object) -> list[NodePlan]:
    return make_plans(Request((app,), **more), jobmap, environ, "/home/joe", MEETING, "0123abcd")  # type: ignore[arg-type]


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
def test_the_plans_of_a_job(name: str, request: pytest.FixtureRequest) -> None:
    app = AppContext(("python", "net.py", "--lr", "0.1"), env=(("LR", "0.1"), ("HOME", None)))
    environ = {"HOME": "/home/joe", "PATH": "/bin", "OMPI_MCA_btl": "tcp", "OMPI_COMM_WORLD_RANK": "7"}
    made = plans(app, environ, mca=(("btl_tcp_if_include", "eth0"),))
    text = "\n".join(f"# {node.name}\n{rendered(plan)}" for node, plan in zip(TWO_BY_TWO.nodes, made))
    golden = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden", default=False):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_what_a_remote_rank_gets_of_our_environment() -> None:
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
def test_a_launch_around_us_leaves_nothing(name: str) -> None:
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
def test_what_is_forwarded_is_the_dialects_to_say(patterns: tuple[str, ...], names: set[str]) -> None:
    """Never what a launch around us left, nor what describes the launcher's own host and shell."""
    made = plans(AppContext(("x",), forward=patterns), FULL)[1].apps[0].env
    assert {word.partition("=")[0] for word in made} & set(FULL) == names


def test_a_pattern_is_no_order_to_repeat_the_launch_around_us() -> None:
    """-x '*' (--fwd-environment) takes what -genvall does; by name, everything can be given."""
    env = tuple((name, None) for name in ("*", "HOSTNAME", "RANK"))
    made = plans(AppContext(("x",), env=env), FULL)[0].apps[0].env
    names = {word.partition("=")[0] for word in made} & set(FULL)
    assert names == {"A", "AB", "B", "PATH", "HOME", "OMPI_X", "PMIX_X", "HOSTNAME", "RANK"}


def test_each_program_has_its_own_variables() -> None:
    rows = (Placement(0, 0, 0, 0), Placement(1, 1, 0, 1, cpus=(3,)), Placement(2, 1, 1, 0))
    apps = (AppContext(("/opt/a", "-x", "two words")), AppContext(("b",), wdir="run", forward=("A",)))
    made = make_plans(Request(apps), JobMap((HERE, THERE), rows, 4), {"A": "1"}, "/w", MEETING, "ff")
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


def test_where_programs_are_looked_for() -> None:
    """--prefix is taken from the launch directory; --path on the host, from the working directory there."""
    apps = (AppContext(("a",), path="x:/y", prefix="opt/"), AppContext(("b",)), AppContext(("c",), prefix="/p"))
    rows = tuple(Placement(rank, rank, 0, rank) for rank in range(3))
    made = make_plans(Request(apps), JobMap((HERE,), rows, 3), {}, "/w", MEETING, "ff")[0].apps
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


def test_exports_without_a_value_are_worth_a_word() -> None:
    app = AppContext(("x",), env=(("NONE", None), ("B", None), ("C*", None), ("D", "1"), ("E?", None)))
    assert missing_exports(Request((app, AppContext(("y",), env=(("Z", None),)))), {"B": "b"}) == ["NONE", "Z"]


@pytest.mark.parametrize(
    ("wdir", "expected"),
    [(None, "/home/joe"), ("/data", "/data"), ("run", "/home/joe/run"), ("../x", "/home/joe/../x")],
)
def test_where_ranks_start(wdir: str | None, expected: str) -> None:
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
def test_who_reads_standard_input(stdin: str, expected: list[tuple[int, ...]]) -> None:
    assert [plan.stdin for plan in plans(AppContext(("x",)), {}, stdin=stdin)] == expected


def test_no_such_rank_to_read() -> None:
    with pytest.raises(UsageError, match="no rank 4"):
        stdin_ranks(Request((AppContext(("x",)),), stdin="4"), 4)


def test_what_an_agent_is_told_besides() -> None:
    how = OutputPolicy(merge=True, pty="no")
    plan = plans(AppContext(("x",)), {}, output=how, grace=7.0, index_argv=True)[0]
    assert (plan.merge, plan.pty, plan.grace, plan.index_argv) == (True, "no", 7.0, True)
    assert "PYTHONUNBUFFERED=1" in plan.defaults
