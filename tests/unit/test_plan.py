"""The plans: every variable of every rank as a value, and what travels to which host."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslaunch.errors import UsageError
from mslaunch.model import AppContext, JobMap, Node, NodePlan, OutputPolicy, Placement, Request
from mslaunch.plan.plan import make_plans, missing_exports, stdin_ranks

GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
HERE, THERE = Node("head", 2, "-H", local=True), Node("n1", 2, "-H")
ROWS = tuple(Placement(rank, 0, rank // 2, rank % 2) for rank in range(4))
TWO_BY_TWO = JobMap((HERE, THERE), ROWS, 6)
MEETING = ("10.0.0.1", 10001, 10002)


def plans(app: AppContext, environ: dict[str, str], jobmap: JobMap = TWO_BY_TWO, **more: object) -> list[NodePlan]:
    return make_plans(Request((app,), **more), jobmap, environ, "/home/joe", MEETING, "0123abcd")  # type: ignore[arg-type]


def exported(*env: tuple[str, str | None], environ: dict[str, str] | None = None) -> tuple[str, ...]:
    return plans(AppContext(("x",), env=env), environ or {})[0].apps[0].env


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
    }
    local, remote = plans(AppContext(("x",)), environ)
    known = {word.partition("=")[0] for word in remote.env} & set(environ)
    assert known == {"OMPI_MCA_btl", "OMPI_UNIVERSE_SIZE"} and "OMPI_UNIVERSE_SIZE=6" in remote.env
    assert "OMPI_MCA_btl=tcp" not in local.env, "it is inherited there"


@pytest.mark.parametrize(
    "name",
    ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "RANK", "MS_ROLE", "RANK_TABLE_FILE", "MSLAUNCH_JOBID"],
)  # fmt: skip
def test_a_launch_around_us_leaves_nothing(name: str) -> None:
    for plan in plans(AppContext(("x",)), {}):
        assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in plan.scrub)
        assert not any("PATH".startswith(one.rstrip("*")) for one in plan.scrub)


def test_mca_of_the_command_line_wins_over_the_environment() -> None:
    remote = plans(AppContext(("x",)), {"OMPI_MCA_btl": "tcp"}, mca=(("btl", "self"),))[1]
    assert [word for word in remote.env if "btl" in word] == ["OMPI_MCA_btl=tcp", "OMPI_MCA_btl=self"]


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
    assert (service.port, service.address) == (10002, "10.0.0.1")
    assert {"MS_ROLE=MS_SCHED", "MS_SCHED_PORT=10002", "MS_WORKER_NUM=4"} <= set(service.env)


@pytest.mark.parametrize(
    ("stdin", "expected"), [("0", [(0,), ()]), ("3", [(), (3,)]), ("all", [(0, 1), (2, 3)]), ("none", [(), ()])]
)
def test_who_reads_standard_input(stdin: str, expected: list[tuple[int, ...]]) -> None:
    assert [plan.stdin for plan in plans(AppContext(("x",)), {}, stdin=stdin)] == expected


def test_no_such_rank_to_read() -> None:
    with pytest.raises(UsageError, match="no rank 4"):
        stdin_ranks(Request((AppContext(("x",)),), stdin="4"), 4)


def test_what_an_agent_is_told_besides() -> None:
    plan = plans(AppContext(("x",)), {}, output=OutputPolicy(merge=True, pty="no"), grace=7.0)[0]
    assert (plan.merge, plan.pty, plan.grace) == (True, "no", 7.0)
    assert "PYTHONUNBUFFERED=1" in plan.defaults
