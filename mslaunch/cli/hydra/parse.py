"""The hydra dialect: the command line of MPICH's mpiexec.hydra.

Rules and spellings are those of mpiexec.hydra 5.0.2, by experiment: names in any case with one dash or two, values
after a blank or `=`, and options that act on all programs wherever they stand.  Unlike with hydra, a rank that fails
ends the job, also one that does not use MPI.
"""

from __future__ import annotations

from mslaunch.cli.hydra import config_file
from mslaunch.cli.hydra.options import EXAMPLES, EXTRAS, OTHERS, SCREEN, TABLE, USAGE, VARIABLES, HydraOptions
from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import Index, Option, assemble, own_fields
from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mslaunch.cli.parser.dialect_contract import DialectHelp, ReadText
    from mslaunch.cli.parser.options import ParsedLine
    from mslaunch.datamodel.jobmap import HostLine
    from mslaunch.datamodel.request import Policy, Request

_ONCE = ("own.ppn", "own.order", "own.rankmap")  # at most once in the whole command line


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request of a command line, the environment and the files; see `parser.dialect_contract`.

    Options override those of the configuration file, and these override variables.
    """
    index = Index(TABLE, extras)
    line = options.parse_line(index, config_file.programs_of(index, argv, read_text))
    if "check" in line.job:
        from mslaunch.cli.parser.check_options import without_program

        without_program(line)
    options.require_programs(line.programs, ":" in argv)
    _require_once(line)
    of_each = {setting.program: setting.value for setting in line.job.get("own.hosts", ())}
    line = line.over(
        config_file.shared_options(index, environ, read_text).over(options.from_environ(VARIABLES, environ))
    )
    own = HydraOptions(**own_fields(line))
    forward = own.forward if own.hidden is None else tuple(name for name in environ if name not in own.hidden)
    shared = {"app.forward": forward, "app.env+": own.env, "app.path": own.path, "app.wdir": own.wdir}
    line.put((path, value) for path, value in shared.items() if value is not None)  # those of a program are stronger
    request = assemble(line, _idle_map(own))
    if own.launcher or own.manager:
        from mslaunch.cli.hydra import batch_systems

        request = batch_systems.chosen(request, own.launcher, own.manager, own.hosts is not None)
    if len(of_each) > 1:
        return _placed_apart(request, own, of_each, read_text)
    if own.hosts is None and own.launcher != "fork" and _in_job(request, environ):
        return _placed_in_job(request, own)
    return _placed(request, own, _entries(own, read_text))


def extras() -> tuple[Option, ...]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun.rare_options import rows

    return rows(EXTRAS)


def version(_called: str) -> str:
    """The first lines of hydra's own, which scripts look for."""
    from mslaunch import __version__

    return f"mslaunch {__version__}, in the dialect of\nHYDRA build details:\n" + "\n".join(
        f"    {name:<40} {value}"
        for name, value in (("Version:", "5.0.2"), ("Launchers available:", "ssh rsh fork"),
                            ("Resource management kernels available:", "user"))
    )  # fmt: skip


def describe() -> DialectHelp:
    """Every option and variable."""
    from mslaunch.cli.parser.dialect_contract import DialectHelp

    return DialectHelp("mpiexec.hydra", USAGE, TABLE, extras(), (), VARIABLES, OTHERS, EXAMPLES, everyday=SCREEN)


def _require_once(line: ParsedLine) -> None:
    """Raises `UsageError` for options that may be given once; each program may have hosts of its own."""
    for path in ("own.hosts", *_ONCE):
        seen: dict[int, str] = {}
        for setting in line.job.get(path, ()):
            first = seen.setdefault(setting.program if path == "own.hosts" else 0, setting.source)
            if first is not setting.source:
                twice = config_file.bare_name(first) == config_file.bare_name(setting.source)
                what = "it was given twice" if twice else f"{first} was given too"
                raise UsageError(what, setting.source, "give one of them, once for all programs")


def _in_job(request: Request, environ: Mapping[str, str]) -> bool:
    """Whether the hosts may be those that a resource manager has granted."""
    from mslaunch.launcher.launch import MANAGERS, NO_MANAGER

    wanted = request.resource_manager
    return wanted != NO_MANAGER and (wanted != "" or any(variable in environ for variable, _ in MANAGERS.values()))


def _placed_in_job(request: Request, own: HydraOptions) -> Request:
    """The request, where the hosts and their slots are those of a batch job."""
    for given, option in ((own.skip, "-skip-launch-node"), (own.order, "-order-nodes"), (own.rankmap, "-rankmap")):
        if given:
            raise UsageError("it needs hosts that are named", option, "name those of the job with -hosts or -f")
    policy = request.policy._replace(
        map_by="rounds", ppn=own.ppn or 0, oversubscribe=True, bind_to=request.policy.bind_to or "none"
    )
    return request._replace(policy=policy)


def _placed_apart(
    request: Request, own: HydraOptions, of_each: Mapping[int, tuple[str, str]], read_text: ReadText
) -> Request:
    """The request where several programs have hosts of their own, as with Intel's -host; others get all of these."""
    if own.rankmap is not None:
        raise UsageError("each program has hosts of its own", "-rankmap", "leave it out, or name all hosts once")
    from mslaunch.cli.hydra import machinefile

    read = {hosts: _entries(own._replace(hosts=hosts), read_text) for hosts in dict.fromkeys(of_each.values())}
    lists = {at: read[hosts] for at, hosts in of_each.items()}
    together = machinefile.merged(entry for entries in lists.values() for entry in entries)
    apps = []
    for at, app in enumerate(request.apps):
        entries = lists.get(at, together)
        ranks = sum(entry.slots or 0 for entry in entries) if app.np is None else app.np
        hosts = _hosts(entries, ranks, own)
        apps.append(app._replace(np=ranks, sequence=tuple(next(hosts) for _ in range(ranks))))
    return request._replace(apps=tuple(apps), policy=_dealt(request))


def _dealt(request: Request) -> Policy:
    """The policy of ranks that go to hosts which are listed."""
    policy = request.policy
    return policy._replace(map_by="seq", oversubscribe=True, bind_to=policy.bind_to or "none")


def _placed(request: Request, own: HydraOptions, entries: Sequence[HostLine]) -> Request:
    """The request with the number of ranks of each program, and the host of each rank if hosts are named."""
    policy = request.policy._replace(bind_to=request.policy.bind_to or "none")
    each = sum(entry.slots or 0 for entry in entries) if entries else own.ppn or 1
    apps = [app if app.np is not None else app._replace(np=each) for app in request.apps]
    if not entries or own.launcher == "fork":
        return request._replace(apps=tuple(apps), policy=policy._replace(map_by=policy.map_by or "slot"))
    hosts = _hosts(entries, sum(app.np or 0 for app in apps), own)
    apps = [app._replace(sequence=tuple(next(hosts) for _ in range(app.np or 0))) for app in apps]
    return request._replace(apps=tuple(apps), policy=_dealt(request))


def _idle_map(own: HydraOptions) -> tuple[str, ...]:
    """The note about -map-by without -bind-to, which does nothing, as with hydra.

    It orders the objects that ranks are bound to, and only the order of -bind-to is supported: raises `UsageError` for
    another one.
    """
    if own.map_by and not own.bound:
        return ("-map-by has no effect without -bind-to, as with hydra; -ppn says how many ranks a host takes",)
    if own.map_by and own.map_by.lower().partition(":")[0] != own.bound:
        raise UsageError(
            f"ranks bound to a {own.bound} each get them in order, not by {own.map_by}", "-map-by",
            f"leave it out, or use the dialect of mpirun: --map-by {own.map_by} --bind-to {own.bound}",
        )  # fmt: skip
    return ()


def _entries(own: HydraOptions, read_text: ReadText) -> list[HostLine]:
    """The hosts that ranks are dealt to; empty if none are named."""
    if own.hosts is None:
        for given, option in ((own.skip, "-skip-launch-node"), (own.rankmap is not None, "-rankmap")):
            if given:
                raise UsageError("no hosts are named", option, "name them with -hosts or -f")
        return []
    from mslaunch.cli.hydra import machinefile

    where, value = own.hosts
    if where == "-hosts":
        entries = machinefile.merged(machinefile.from_list(value, where))
    else:
        entries = machinefile.merged(machinefile.from_file(options.read_file(read_text, value, where), value))
    if own.skip:
        from mslaunch.host.own_addresses import is_local

        entries = [entry for entry in entries if not is_local(entry.name)]
        if not entries:
            raise UsageError("all hosts that are named are this one", "-skip-launch-node", "name other hosts")
    if own.ppn is not None:
        entries = [entry._replace(slots=own.ppn) for entry in entries]
    return machinefile.ordered(entries, own.order) if own.order else entries


def _hosts(entries: Sequence[HostLine], ranks: int, own: HydraOptions) -> Iterator[HostLine]:
    from mslaunch.cli.hydra import machinefile

    if ranks > machinefile.MOST:
        todo = f"ask for {machinefile.MOST} at most"
        raise UsageError(f"{ranks} ranks on hosts that are named are too many", "-n", todo)
    if own.rankmap is None:
        return machinefile.deal(entries)
    if len(own.rankmap) < ranks:
        what = f"it has hosts for {counted(len(own.rankmap), 'rank')}, {ranks} start"
        raise UsageError(what, "-rankmap", "name a host for each rank")
    return machinefile.by_rankmap(entries, own.rankmap)
