"""The torchrun dialect: the command line of PyTorch's launcher, as torch 2.15 has it (torch/distributed/run.py).

One command starts the ranks of this host, and a command with another --node-rank those of the next; with -H or
--hostfile one command starts all.  What torchrun's ranks find, where their logs go and how the command ends is as with
torchrun (docs/dialects.md has the differences).
"""

from __future__ import annotations

import os
import sys

from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import RECOVERY, Option, ParsedLine, Program, assemble, from_environ, own_fields
from mslaunch.cli.parser.readers import is_number
from mslaunch.cli.torchrun import meeting_place, rank_logs, readers
from mslaunch.cli.torchrun.options import (
    EXAMPLES,
    EXTRAS,
    HOSTS_HELP,
    INSTEAD,
    SCREEN,
    SIGNALS,
    SYNTAX,
    TABLE,
    USAGE,
    VARIABLES,
    TorchrunOptions,
)
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.frameworks.table import LONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.cli.parser.dialect_contract import DialectHelp, ReadText
    from mslaunch.datamodel.request import Request

_MACRO = "${local_rank}"
_PATIENCE = 30  # seconds from TERM to KILL
_SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_FAILED = 1  # torchrun's exit code, whatever has failed
_BAD_WORDS = 2  # and argparse's, which knows of these options what they may be
_ARGPARSED = (
    "max",
    "monitor",
    "start",
    "node",
    "master",
    "shutdown",
    "numa",
    "print",
)  # the first words of their names
_VERSION = "2.15"


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request of a command line; see `parser.dialect_contract`."""
    try:
        line = options.parse_line(TorchrunIndex(TABLE, extras), [argv])
        said = line.over(from_environ(VARIABLES, environ))
    except UsageError as error:
        error.code = _code(error)
        raise
    own = TorchrunOptions(**own_fields(said))
    words, settings = line.programs[0]
    if not words:
        todo = "write it after the options: torchrun --nproc-per-node=4 train.py"
        raise UsageError("no script was given", "", todo, _BAD_WORDS)
    line.programs = [Program(program(words, own, environ), settings)]
    line = line.over(ParsedLine([("app.forward", ("*",))]))
    hosts = meeting_place.has_hosts(assemble(line))
    each = _ranks_of(own, hosts, environ)
    own = own._replace(run_id=meeting_place.run_id(own, hosts), each=each)
    if own.backend == "c10d" or own.restarts:
        own = own._replace(secret_file=meeting_place.secret_file(own, environ))
    request = assemble(line.over(ParsedLine([("app.env+", variables(own, environ))])))
    request = meeting_place.placed(request, own)
    request = rank_logs.logged(request, own, environ, own.run_id, hosts)
    if line.job.keys() & RECOVERY:
        from mslaunch.cli.parser.conflicting_options import restarting

        request = restarting(request, line.job)
    return _settled(request, own, environ, "grace" in line.job)


def _ranks_of(own: TorchrunOptions, hosts: bool, environ: Mapping[str, str]) -> int:
    """--nproc-per-node as a number."""
    if isinstance(own.each, int):
        return own.each
    if hosts:
        what = f"{own.each} is counted on this host, and ranks run on others"
        raise UsageError(what, "--nproc-per-node", "write the number of ranks on each host")
    many, counted_what = readers.devices(own.each, environ)
    if not many:
        todo = "write the number of ranks, or cpu; CUDA_VISIBLE_DEVICES and its like hide devices"
        raise UsageError(f"this host has none: no {counted_what}", f"--nproc-per-node {own.each}", todo)
    return many


def _settled(request: Request, own: TorchrunOptions, environ: Mapping[str, str], has_grace: bool) -> Request:
    """The request with what holds for each launch of torchrun."""
    (app,) = request.apps
    if any(_MACRO in word for word in app.argv):
        request = request._replace(local_rank_word=_MACRO)
    if own.virtual:
        variables = (*request.rank_variables, ("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", _devices_of(own, environ)))
        request = request._replace(rank_variables=variables)
    notes = request.notes
    if any(name == "OMP_NUM_THREADS" and value == "1" for name, value in app.env) and own.each != 1:
        notes += ("OMP_NUM_THREADS is 1 for each rank, as torchrun has it; set it for more threads",)
    patience = own.patience
    if patience is None:
        said = environ.get(_SHUTDOWN, "")
        patience = int(said) if is_number(said) else _PATIENCE
    return request._replace(
        grace=request.grace if has_grace else float(patience),
        term_to=request.term_to or "group",
        failure_code=_FAILED,
        notes=notes,
    )


def _devices_of(own: TorchrunOptions, environ: Mapping[str, str]) -> str | tuple[str, ...]:
    """--virtual-local-rank: CUDA_VISIBLE_DEVICES of each local rank, or a pattern."""
    known = environ.get("CUDA_VISIBLE_DEVICES")
    if known is None:
        return "%l"
    devices = tuple(word.strip() for word in known.split(","))
    if isinstance(own.each, int) and len(devices) < own.each:
        what = f"CUDA_VISIBLE_DEVICES={known} has {len(devices)} for {own.each} ranks"
        raise UsageError(what, "--virtual-local-rank", "lower --nproc-per-node")
    return devices


def _code(error: UsageError) -> int:
    """torchrun's exit code for bad words: argparse's for what is no option, or no number; else that of a failure."""
    name = error.where.lstrip("-").removeprefix("PET_").lower()
    late = (
        name[:1] and not name.startswith(_ARGPARSED) and error.what.startswith(("expected", "mslaunch does not have"))
    )
    negative = name.startswith(("max", "shutdown")) and "got '-" in error.what
    return _FAILED if late or negative else _BAD_WORDS


class TorchrunIndex(options.Index):
    """The table, where `--nproc` stands for --nproc-per-node, as with argparse, and `-r3` for -r 3."""

    __slots__ = ()

    def abbreviated(self, written: str, bare: str) -> Option | None:
        """The option that is meant; raises `UsageError` if there are several."""
        if written[:2] != "--":
            short = self.get(bare[:1])
            glued = short is not None and short.metavar and short in TABLE
            return short._replace(metavar="", read=partial(short.read, bare[1:])) if glued else None
        rows = {row.names[0]: row for row in TABLE for name in row.names if len(name) > 1 and name.startswith(bare)}
        if len(rows) > 1:
            names = " or ".join(f"--{name}" for name in sorted(rows))
            raise UsageError("it could be several options", written, f"write {names}")
        return next(iter(rows.values()), None)


def program(words: Sequence[str], own: TorchrunOptions, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command of each rank."""
    if own.plain and not own.run_path:
        if own.module:
            raise UsageError(
                "a program without python is no module", "--no-python", "leave out --module or --no-python"
            )
        return tuple(words)
    python = environ.get("PYTHON_EXEC") or _python(environ)
    return (python, "-u", *(("-m",) if own.module and not own.run_path else ()), *words)


def _python(environ: Mapping[str, str]) -> str:
    """`python`, found in PATH by each host; ours, if PATH has none here."""
    folders = environ.get("PATH", "").split(":")
    return "python" if any(os.access(os.path.join(each, "python"), os.X_OK) for each in folders) else sys.executable


def variables(own: TorchrunOptions, environ: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """What torchrun adds to the variables of frameworks."""
    known = {"ROLE_NAME": own.role, "TORCHELASTIC_RUN_ID": own.run_id, "TORCHELASTIC_SIGNALS_TO_HANDLE": SIGNALS}
    if "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in environ:
        known["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    if own.local_address and own.port is None and not own.endpoint:
        known["MASTER_ADDR"] = own.local_address
    if own.each == 1:
        lone = (word.partition("=") for word in LONE)
        known.update({name: value for name, _, value in lone if name not in environ})
    elif "OMP_NUM_THREADS" not in environ:
        known["OMP_NUM_THREADS"] = "1"
    return tuple(known.items())


def extras() -> tuple[Option, ...]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun.rare_options import rows

    return tuple(row._replace(help=HOSTS_HELP) if row.names[0] == "H" else row for row in rows(EXTRAS))


def version(_called: str) -> str:
    """One line."""
    from mslaunch import __version__

    return f"mslaunch {__version__}, in the dialect of torchrun {_VERSION}"


def describe() -> DialectHelp:
    """Every option."""
    from mslaunch.cli.parser.dialect_contract import DialectHelp

    about = DialectHelp("torchrun", USAGE, TABLE, extras(), variables=VARIABLES, examples=EXAMPLES, syntax=SYNTAX)
    return about._replace(everyday=SCREEN, instead=INSTEAD)
