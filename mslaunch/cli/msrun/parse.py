"""The msrun dialect: the command line of MindSpore's launcher, and what it means here.

Options and their meaning are those of msrun 2.10 (its --help, its source, and by experiment; docs/dialects.md).  The
table is next door in `msruntable`, what one option's word becomes in `msrunreaders`, which workers run here and where
they meet in `msrunplace`, and bindings in `msrunbind`.  One command starts the workers of this host, and others may be
started elsewhere by other commands, also by msrun itself; with -H or --hostfile it starts all of them.  The surprising
thing is --join=False, msrun's default: the command returns once the workers run, and the job goes on with a supervisor.
"""

from __future__ import annotations

from mslaunch.cli.msrun import cluster
from mslaunch.cli.msrun.options import EXTRAS, HOSTS_HELP, TABLE
from mslaunch.cli.parser import options
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from mslaunch.cli.parser.options import Option, Setting
    from mslaunch.datamodel.request import Request

_PYTHONS = ("python", "python3", "pytest")  # first words that msrun leaves as they are


def _no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: Callable[[str], str] = _no_files) -> Request:
    """The request that a command line (without the program name) makes.

    `read_text` gives the text of a file or raises OSError.  Raises `LaunchError`, or `Show`.
    """
    section = options.scan(AbbreviatedOptions(TABLE, extras), argv)
    if not section.program:
        todo = "write it after the options: msrun --worker_num=4 --join=True net.py"
        raise UsageError("no script was given", "", todo)
    job = options.settle(setting for setting in section.settings if setting[0].startswith("msrun."))
    section = options.kept(section, lambda setting, _: not setting[0].startswith("msrun."))
    program = section.program if section.program[0] in _PYTHONS else ("python", *section.program)
    # msrun's workers inherit all that its shell has, and so do those on hosts that we start
    weaker = [("app.env+", tuple(_variables(job))), ("app.forward", ("*",)), *_restarts(section.settings)]
    request = options.assemble(weaker, [section._replace(program=program)])
    return _settled(request, job, environ, read_text)


class AbbreviatedOptions(options.Index):
    """The table, where `--worker_l` stands for --worker_log_name, as argparse has it: two dashes, and clear."""

    __slots__ = ()

    def meant(self, written: str, bare: str) -> Option | None:
        """The option of msrun's own whose name begins so; raises `UsageError` if there are several."""
        if written in ("-n", "-np", "--np"):
            todo = "use --worker_num N, or begin with --dialect mpirun"
            raise UsageError("it is a word of mpirun", written, todo)
        rows = {row.names[0]: row for row in TABLE for name in row.names if len(name) > 1 and name.startswith(bare)}
        if not written.startswith("--") or not bare or not rows:
            return None
        if len(rows) > 1:
            names = sorted(f"--{name}" for row in rows.values() for name in row.names if name.startswith(bare))
            raise UsageError("it could be several options", written, f"write {' or '.join(names)}")
        return next(iter(rows.values()))


def extras() -> list[Option]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun.parse import extras

    return [row._replace(help=HOSTS_HELP) if row.names[0] == "H" else row for row in extras(EXTRAS)]


def _restarts(settings: Iterable[Setting]) -> list[Setting]:
    """What --restart alone says of how often."""
    if not any(path == "restart" for path, _ in settings):
        return []
    from mslaunch.cli.parser import recovery_readers

    return recovery_readers.weaker(settings)


def _settled(
    request: Request, job: dict[str, Any], environ: Mapping[str, str], read_text: Callable[[str], str]
) -> Request:
    """The request with all that several options say together."""
    binds = bool(job.get("msrun.core") or job.get("msrun.numa"))
    if binds:
        from mslaunch.cli.msrun import core_binding

        request = core_binding.bound(request, job, environ, read_text)
    request = cluster.placed(request, job, environ)
    if binds and not cluster.has_hosts(request):
        request = request._replace(notes=(*request.notes, *core_binding.idle(request)))
    request = _printing(request, job)
    if request.restart or request.max_restarts or request.restart_delay or request.min_ranks:
        from mslaunch.cli.parser import recovery_readers

        request = recovery_readers.settled(request)
    return request


def _variables(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What all workers get besides: MS_CLUSTER_TIMEOUT is MS_TOPO_TIMEOUT's name before MindSpore 2.4."""
    found = []
    if "msrun.patience" in job:
        found += [(name, str(job["msrun.patience"])) for name in ("MS_TOPO_TIMEOUT", "MS_CLUSTER_TIMEOUT")]
    if job.get("msrun.table"):
        found.append(("RANK_TABLE_FILE", job["msrun.table"]))
    return found


def _printing(request: Request, job: Mapping[str, Any]) -> Request:
    """DIR/NAME_RANK.log for both streams of a worker; the terminal with --join=True, else nobody waits."""
    name = cluster.log_name(request, job)
    join = job.get("msrun.join", False)
    output = request.output._replace(
        outfile=f"{job['msrun.logs']}/{name}" if job.get("msrun.logs") else name,
        merge=True,
        tee=join,
        keep=True,
        shown=job.get("msrun.shown") if join else None,
    )
    request = request._replace(notes=(*request.notes, *_unseen(request, output.shown)))
    away = not join and not request.do_not_launch
    return request._replace(output=output, detach=away, stdin="none" if away else _reader(request, output.shown))


def _unseen(request: Request, shown: tuple[int, ...] | None) -> list[str]:
    """--tail_worker_log names no worker of the job; in a share of one the others may be elsewhere."""
    ranks = request.apps[0].np
    absent = [rank for rank in shown or () if ranks is not None and rank >= ranks]
    if not absent or request.cluster.share:
        return []
    return [f"--tail_worker_log: there is no worker {absent[0]}, workers are 0 to {(ranks or 1) - 1}"]


def _reader(request: Request, shown: tuple[int, ...] | None) -> str:
    """Who gets standard input: the one worker that is shown, for that is how one worker is debugged (pdb).

    msrun's workers inherit the terminal, all of them, and whoever reads first has the line.
    """
    share, ranks = request.cluster.share, request.apps[0].np
    first = (share.first if share else 0) or 0
    alone = shown[0] if shown and len(shown) == 1 else -1
    return str(alone) if first <= alone and (ranks is None or alone < first + ranks) else request.stdin
