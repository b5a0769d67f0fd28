"""Dialects: each is a row of one table and has an answer for every option of mslaunch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mslaunch.backends.openmpi
from mslaunch.backends.openmpi import translate_options
from mslaunch.cli import dialects
from mslaunch.cli.hydra.options import EXTRAS as HYDRA_EXTRAS
from mslaunch.cli.hydra.options import HydraOptions
from mslaunch.cli.mpirun.parse import describe
from mslaunch.cli.msrun.options import EXTRAS as MSRUN_EXTRAS
from mslaunch.cli.msrun.options import MsrunOptions
from mslaunch.cli.parser.options import DONE, PASSED, REFUSED
from mslaunch.cli.torchrun.options import EXTRAS as TORCHRUN_EXTRAS
from mslaunch.cli.torchrun.options import TorchrunOptions
from mslaunch.datamodel.request import (
    AppContext,
    DevicePolicy,
    HangPolicy,
    LinkPolicy,
    MonitorPolicy,
    OutputPolicy,
    Policy,
    Request,
    ServicePolicy,
)

CLI = Path(dialects.__file__).parent
MODULES = [path for path in sorted(CLI.rglob("*.py")) if path.name not in ("dialects.py", "__init__.py")]
MPIRUN = [row for row in describe().own if row.status != REFUSED]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CLI)))
def test_dialects_are_found_through_the_table_alone(path: Path) -> None:
    """No module compares with the name of a dialect, or imports one of another folder but mpirun's shared rows."""
    folder = path.parent.name if path.parent != CLI else ""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            words = {one.value for part in (node.left, *node.comparators) for one in ast.walk(part)
                     if isinstance(one, ast.Constant)}  # fmt: skip
            assert not words & set(dialects.NAMES), f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mslaunch.cli."):
            other = (node.module or "").split(".")[2]
            shared = node.module == "mslaunch.cli.mpirun.rare_options"
            assert other not in dialects.NAMES or other == folder or shared, f"line {node.lineno}"


def test_commands_belong_to_one_dialect() -> None:
    commands = [command for row in dialects.DIALECTS for command in (*row.shims, *row.commands)]
    assert len(commands) == len(set(commands)) == len(dialects.COMMANDS)


@pytest.mark.parametrize("row", dialects.DIALECTS, ids=lambda row: row.name)
def test_each_option_sets_an_existing_field(row: dialects.DialectRow) -> None:
    own = {"hydra": HydraOptions, "msrun": MsrunOptions, "torchrun": TorchrunOptions}.get(row.name)
    records = {"": Request, "app": AppContext, "policy": Policy, "output": OutputPolicy, "link": LinkPolicy}
    known = {f"{name}.{field}".lstrip(".") for name, record in records.items() for field in record._fields}
    known |= {f"cluster.{field}" for field in ServicePolicy._fields}
    known |= {f"monitor.{field}" for field in MonitorPolicy._fields}
    known |= {f"devices.{field}" for field in DevicePolicy._fields}
    known |= {f"hang.{field}" for field in HangPolicy._fields}
    known |= {f"own.{field}" for field in (own._fields if own else ("parameter", "appfile", "tune"))}
    about = row.load().describe()
    fields = {row.field.rstrip("+") for row in (*about.table, *about.variables, *about.parameters) if row.field}
    unknown = fields - known
    assert not unknown, f"add {unknown} to a record of datamodel/request.py, or correct the last column of its row"


#: options of the table of mpirun that make no sense in the other dialects, or have a name of their own there
NOT_IN_HYDRA = {
    "H", "N", "allow-run-as-root", "app", "backend", "bind-to-core", "bind-to-none", "bind-to-socket", "bycore",
    "bynode", "byslot", "cpu-set", "cpus-per-proc", "d", "default-hostfile", "detach", "disable-recovery", "display",
    "display-comm", "display-comm-finalize", "display-devel-map", "display-diffable-map", "display-map",
    "display-topo", "do-not-resolve", "enable-recovery", "forward-signals", "fwd-environment",
    "get-stack-traces", "hetero-nodes", "hostfile", "index-argv-by-rank", "initial-errhandler",
    "leave-session-attached", "map-by", "max-restarts", "mca", "memory-alloc-kinds", "min-ranks", "mpi",
    "no-aggregate-help", "nolocal", "nooversubscribe", "noprefix", "novm", "output", "output-directory",
    "output-filename", "oversubscribe", "pernode", "personality", "pmixmca", "ppr", "prefix", "preload-files",
    "npersocket", "device-wait", "max-no-progress", "max-restart-delay", "progress-file",
    "prtemca", "rank-by", "report-bindings", "report-child-jobs-separately",
    "report-pid",
    "report-state-on-timeout", "report-uri", "restart", "restart-delay", "rf", "runtime-options", "s",
    "scheduler", "scheduler-runs", "server_num", "set-cwd-to-session-dir", "stream-buffering", "tag-output",
    "timestamp-output", "tune", "use-hwthread-cpus", "use-regexp", "with-ft", "x", "xml", "xml-file", "xterm",
}  # fmt: skip
NOT_IN_MSRUN = NOT_IN_HYDRA - set(MSRUN_EXTRAS) | {
    "horovod",
    "env-for",
    "bind-to",
    "fill",
    "ready",
    "ready-timeout",
    "spawn",
    "merge-stderr-to-stdout",
    "n",
    "path",
    "show-ranks",
    "stdin",
    "wdir",
}
#: torchrun has streams and restarts of its own, and no services
NOT_IN_TORCHRUN = (NOT_IN_MSRUN | set(MSRUN_EXTRAS)) - set(TORCHRUN_EXTRAS) - {"max-restarts"}


@pytest.mark.parametrize(
    ("name", "extras", "absent"),
    [
        ("hydra", HYDRA_EXTRAS, NOT_IN_HYDRA),
        ("msrun", MSRUN_EXTRAS, NOT_IN_MSRUN),
        ("torchrun", TORCHRUN_EXTRAS, NOT_IN_TORCHRUN),
    ],
)
def test_every_option_of_mslaunch_is_offered_by_a_dialect_or_left_out_on_purpose(
    name: str, extras: tuple[str, ...], absent: set[str]
) -> None:
    own = {option for row in dialects.by_name(name).load().describe().own for option in row.names}
    names = {row.names[0] for row in MPIRUN}
    assert set(extras) <= names and absent <= names, "a name that is no longer there"
    assert set(extras) & absent == set()
    unanswered = {row.names[0] for row in MPIRUN if not own.intersection(row.names)} - set(extras) - absent
    assert unanswered == set(), f"add them to EXTRAS of cli/{name}/options.py, or to the list above"


def test_options_that_all_dialects_have_select_none() -> None:
    common = set(MSRUN_EXTRAS) & set(TORCHRUN_EXTRAS)
    alike = [row for row in MPIRUN if row.names[0] in common]
    assert {name for row in alike if not row.metavar for name in row.names} == dialects.COMMON_FLAGS
    assert {name for row in alike if row.metavar for name in row.names} == dialects.COMMON_VALUED
    chosen = {
        "--check -H a,b --worker_num=8 net.py": "msrun",
        "--hang-timeout=600 -x A=1 --nproc-per-node 2 net.py": "torchrun",
        "--check -n 2 net --worker_num=8": "",
        "--check": "",
        "--hostfile": "",
        "--check prog --worker_num=8": "",
    }
    for line, name in chosen.items():
        row = dialects.selected(line.split())
        assert (row.name if row else "") == name, line


#: fields that the command, the allocation or the launcher's output uses with every backend; and those of our
#: own agents, which mean nothing without them (--check never comes to a backend)
NOT_FOR_A_BACKEND = {
    "app.hosts", "app.mpi", "backend", "check", "cluster.first", "default_hostfile", "detach", "device_wait",
    "do_not_launch", "health_timeout", "json", "link.python", "link.timeout", "max_no_progress", "min_ranks",
    "output.timestamp", "output.xml",
    "output.xml_file", "policy.per_host", "report_pid", "report_uri", "restart_delay", "verbose", "color",
}  # fmt: skip


def test_every_option_is_handed_over_to_a_backend_or_refused_there() -> None:
    refused = {field for field, _, _ in translate_options.REFUSED}
    folder = Path(str(mslaunch.backends.openmpi.__path__[0]))
    read = {
        node.attr
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    fields = {row.field.rstrip("+") for row in MPIRUN if row.field and row.status in (DONE, PASSED)}
    fields = {field for field in fields if not field.startswith("own.")}
    unanswered = {field for field in fields if field.rpartition(".")[2] not in refused | read} - NOT_FOR_A_BACKEND
    assert unanswered == set(), "hand it over in translate_options, refuse it there, or argue in NOT_FOR_A_BACKEND"
