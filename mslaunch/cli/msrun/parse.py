"""The msrun dialect: the command line of MindSpore's launcher.

Options and their meaning are those of msrun 2.10 (its --help, its source, and by experiment; docs/dialects.md).  One
command starts the workers of this host, and other commands may start others elsewhere, also msrun itself; with -H or
--hostfile one command starts all.  With --join=False, msrun's default, the command returns once the workers run, and
the job goes on in the background.
"""

from __future__ import annotations

from mslaunch.cli.msrun import cluster
from mslaunch.cli.msrun.options import EXAMPLES, EXTRAS, HOSTS_HELP, SCREEN, SYNTAX, TABLE, USAGE, MsrunOptions
from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import RECOVERY, Option, ParsedLine, Program, assemble, own_fields
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.mindspore import TIMEOUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.cli.parser.dialect_contract import DialectHelp, ReadText
    from mslaunch.datamodel.request import Request

_PYTHONS = ("python", "python3", "pytest")  # first words that msrun leaves as they are


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request of a command line; see `parser.dialect_contract`."""
    line = options.parse_line(AbbreviatedOptions(TABLE, extras), [argv])
    words, settings = line.programs[0]
    if not words:
        todo = "write it after the options: msrun --worker_num=4 --join=True net.py"
        raise UsageError("no script was given", "", todo)
    line.programs = [Program(words if words[0] in _PYTHONS else ("python", *words), settings)]
    own = MsrunOptions(**own_fields(line))
    # msrun's workers inherit all that its shell has, and so do those on hosts that we start
    variables = [(name, str(own.patience)) for name in TIMEOUTS if own.patience is not None]
    variables += [("RANK_TABLE_FILE", own.table)] if own.table else []
    request = assemble(line.over(ParsedLine([("app.env+", tuple(variables)), ("app.forward", ("*",))])))
    if line.job.keys() & RECOVERY:
        from mslaunch.cli.parser import conflicting_options

        request = conflicting_options.recovering(request, line.job)
    return _settled(request, own, environ, read_text)


class AbbreviatedOptions(options.Index):
    """The table, where `--worker_l` stands for --worker_log_name, as with argparse: two dashes, and unambiguous."""

    __slots__ = ()

    def abbreviated(self, written: str, bare: str) -> Option | None:
        """The option of msrun's own whose name begins so; raises `UsageError` if there are several."""
        if written in ("-n", "-np", "--np"):
            todo = "use --worker_num N, or begin with --dialect mpirun"
            raise UsageError("it is an option of mpirun", written, todo)
        rows = {row.names[0]: row for row in TABLE for name in row.names if len(name) > 1 and name.startswith(bare)}
        if not written.startswith("--") or not bare:
            return None
        if len(rows) > 1:
            names = sorted(f"--{name}" for row in rows.values() for name in row.names if name.startswith(bare))
            raise UsageError("it could be several options", written, f"write {' or '.join(names)}")
        return next(iter(rows.values()), None)


def extras() -> tuple[Option, ...]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun.rare_options import rows

    return tuple(row._replace(help=HOSTS_HELP) if row.names[0] == "H" else row for row in rows(EXTRAS))


def version(_called: str) -> str:
    """One line."""
    from mslaunch import __version__

    return f"mslaunch {__version__}, in the dialect of msrun 2.10"


def describe() -> DialectHelp:
    """Every option."""
    from mslaunch.cli.parser.dialect_contract import DialectHelp

    return DialectHelp("msrun", USAGE, TABLE, extras(), examples=EXAMPLES, syntax=SYNTAX, everyday=SCREEN)


def _settled(request: Request, own: MsrunOptions, environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request with what follows from several options together."""
    if own.core or own.numa:
        from mslaunch.cli.msrun import core_binding

        request = core_binding.bound(request, own, environ, read_text)
    request = cluster.placed(request, own, environ)
    if (own.core or own.numa) and not cluster.has_hosts(request):
        request = request._replace(notes=(*request.notes, *core_binding.idle(request)))
    return _printing(request, own)


def _printing(request: Request, own: MsrunOptions) -> Request:
    """DIR/NAME_RANK.log for both streams of a worker; the terminal with --join=True, else the job is detached.

    The command of an operator's pod stays unless it is told not to: the pod ends with its command.
    """
    name, share = cluster.log_name(request, own), request.cluster.share
    in_pod = share is not None and share.by_operator
    join = in_pod if own.join is None else own.join
    outfile, shown = f"{own.logs}/{name}" if own.logs else name, own.shown if join else None
    output = request.output._replace(outfile=outfile, merge=True, tee=join, keep=True, shown=shown)
    detach = not join and not request.do_not_launch
    notes = _unseen(request, output.shown)
    if detach and in_pod:
        notes.append("--join=False: if this command is the pod's own, the pod ends as soon as the workers run")
    request = request._replace(notes=(*request.notes, *notes))
    return request._replace(output=output, detach=detach, stdin="none" if detach else _reader(request, output.shown))


def _unseen(request: Request, shown: tuple[int, ...] | None) -> list[str]:
    """The note about a worker of --tail_worker_log that the job does not have; other hosts may have it."""
    ranks = request.apps[0].np
    absent = [rank for rank in shown or () if ranks and rank >= ranks and not request.cluster.share]
    last = (ranks or 1) - 1
    return [f"--tail_worker_log: there is no worker {rank}, workers are 0 to {last}" for rank in absent[:1]]


def _reader(request: Request, shown: tuple[int, ...] | None) -> str:
    """Which worker gets standard input: the only one that is shown, so that it can be debugged with pdb.

    msrun's workers all inherit the terminal, and whichever reads first gets the line.
    """
    share, ranks = request.cluster.share, request.apps[0].np
    first = (share.first if share else 0) or 0
    alone = shown[0] if shown and len(shown) == 1 else -1
    return str(alone) if first <= alone and (ranks is None or alone < first + ranks) else request.stdin
