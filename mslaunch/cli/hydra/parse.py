"""The hydra dialect: the command line of MPICH's mpiexec.hydra, read with the table of `hydraoptions`.

Rules and spellings are those of mpiexec.hydra 5.0.2, by experiment: names in any case with one dash or two, values
behind a blank or `=`, options that act on all programs wherever they stand, and a file whose lines are programs
(-configfile).  It maps nothing: `hydrahosts` writes out which host each rank goes to.  Two things surprise: `-env A=b`
is one word where `-env A b` is two, so words are put into one form before the table is asked; and here a rank that
fails ends the job, also one that knows nothing of MPI, where hydra lets the others go on.
"""

from __future__ import annotations

from mslaunch.cli.hydra.options import EXTRAS, TABLE, VARIABLES
from mslaunch.cli.parser import options
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from mslaunch.cli.hydra.machinefile import MachineLine
    from mslaunch.cli.parser.options import Option, Section, Setting
    from mslaunch.datamodel.request import Request

    ReadText = Callable[[str], str]

_PAIRS = ("env", "genv")
_HOSTS = ("hydra.hosts", "hydra.ppn", "hydra.order", "hydra.rankmap")  # given once in the whole command line


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request that a command line (without the program name), the environment and the files make.

    Options win over those of the configuration file, and these over variables.  `read_text` gives the text of a file or
    raises OSError.  Raises `LaunchError`, or `Show`.
    """
    index = options.Index(TABLE, extras)
    found = [options.scan(index, words) for words in _programs(index, argv, read_text)]
    options.require_programs(found, ":" in argv)
    _once(found)
    own = [setting for part in found for setting in part.settings if setting[0].startswith("hydra.")]
    weaker = [*_from_environ(environ), *_from_file(index, environ, read_text)]
    job = options.settle([*weaker, *own])
    weaker += _shared(job, environ)
    request = options.assemble(weaker, [part._replace(settings=_kept(part)) for part in found])
    entries = _entries(job, read_text)
    return _placed(_linked(request, job), job, entries)


def extras() -> list[Option]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun.parse import extras

    return extras(EXTRAS)


def _from_environ(environ: Mapping[str, str]) -> list[Setting]:
    """What the variables set; an empty one counts as absent."""
    settings: list[Setting] = []
    for row in VARIABLES:
        value = environ.get(row.name)
        if value:
            settings += options.settings_of(row.name, row.field, row.read, value)
    return settings


def _from_file(index: Mapping[str, Option], environ: Mapping[str, str], read_text: ReadText) -> list[Setting]:
    """Options in the file that HYDRA_CONFIG_FILE names; as with hydra, one that is not there says nothing."""
    path = environ.get("HYDRA_CONFIG_FILE")
    try:
        words = read_text(path).split() if path else []
    except OSError:
        return []
    section = options.scan(index, _plain(index, words)[0])
    if section.program:
        raise UsageError(f"{section.program[0]!r} is no option", f"HYDRA_CONFIG_FILE={path}", "write options only")
    return list(section.settings)


def _programs(index: Mapping[str, Option], argv: Sequence[str], read_text: ReadText) -> list[list[str]]:
    """The words of each program, in one form: what lone colons part, and the lines of the file of -configfile."""
    programs: list[list[str]] = []
    for words in options.parts(argv):
        plain, path = _plain(index, words)
        programs.append(plain)
        if path is None:
            continue
        if not path:
            raise UsageError("FILE is missing", "-configfile", "write -configfile FILE, at the end of the line")
        for at, line in enumerate(_lines(path, read_text)):
            plain, nested = _plain(index, line)
            if nested is not None:
                raise UsageError(f"{path} names another such file", "-configfile", "write all programs into one file")
            programs[-1:] = [programs[-1] + plain] if not at else [programs[-1], plain]
    return programs


def _lines(path: str, read_text: ReadText) -> list[list[str]]:
    """The programs of a -configfile: one a line, or colons between them; no quotes, `\\` ends a line that goes on."""
    from mslaunch.cli.parser import option_files

    text = option_files.read(read_text, path, "-configfile").replace("\\\n", " ")
    return [part for line in text.splitlines() if line.lstrip()[:1] != "#" for part in options.parts(line.split())]


def _plain(index: Mapping[str, Option], words: Sequence[str]) -> tuple[list[str], str | None]:
    """The words with options in small letters, and `-env A=b` as `-env A b`; and the file of -configfile.

    The program is left as it is.  Raises `UsageError` for words behind that file.
    """
    pending = list(reversed(words))
    plain: list[str] = []
    while pending and pending[-1][:1] == "-" and pending[-1] != "--":
        word, equals, value = pending.pop().partition("=")
        name = _bare(word)
        option = index.get(name)
        if name == "configfile":
            return plain, _config_file(word, value if equals else pending.pop() if pending else "", pending)
        plain.append(word[: len(word) - len(name)] + name)
        if option is None or (equals and name not in _PAIRS):
            plain[-1] += equals + value
        else:
            plain += _following(name, len(option.metavar.split()), [value] if equals else [], pending)
        if option is None:
            break
    return plain + pending[::-1], None


def _config_file(word: str, path: str, pending: Sequence[str]) -> str:
    """The file of -configfile; raises `UsageError` for words behind it."""
    if pending:
        raise UsageError(f"{pending[-1]!r} stands behind its file", word, "the programs are in the file: write it last")
    return path


def _following(name: str, wanted: int, given: list[str], pending: list[str]) -> list[str]:
    """The words of an option, those `given` behind its `=` and others, which are taken off `pending`."""
    if name in _PAIRS:
        first, equals, second = (given or [pending.pop() if pending else ""])[0].partition("=")
        given = [first, second] if equals else [first]
    return [*given, *(pending.pop() for _ in range(min(wanted - len(given), len(pending))))]


def _bare(word: str) -> str:
    """`--Hosts` is `hosts`; "" for a word that is no option."""
    return (word[2:] if word[:2] == "--" else word[1:]).lower() if word[:1] == "-" else ""


def _once(found: Sequence[Section]) -> None:
    """Raises `UsageError` for an option about hosts that is given twice: it acts on all programs."""
    seen: dict[str, str] = {}
    for part in found:
        for source, (path, _) in zip(part.sources, part.settings):
            if path in _HOSTS and path in seen:
                twice = _bare(seen[path]) == _bare(source)
                what = "it was given twice" if twice else f"{seen[path]} was given too"
                raise UsageError(what, source, "give one of them, once for all programs")
            seen[path] = source


def _kept(part: Section) -> tuple[Setting, ...]:
    return tuple(setting for setting in part.settings if not setting[0].startswith("hydra."))


def _shared(job: Mapping[str, Any], environ: Mapping[str, str]) -> list[Setting]:
    """What options for all programs say of each program; those of one program win."""
    hidden = job.get("hydra.hidden")
    forward = (
        job.get("hydra.forward", ("*",)) if hidden is None else tuple(name for name in environ if name not in hidden)
    )
    settings: list[Setting] = [("app.forward", forward), ("app.env+", job.get("hydra.env", ()))]
    settings += [("app." + name, job["hydra." + name]) for name in ("path", "wdir") if "hydra." + name in job]
    return settings


def _linked(request: Request, job: Mapping[str, Any]) -> Request:
    """The way to the hosts: -launcher-exec wins over -launcher."""
    if request.link.agent or job.get("hydra.launcher") != "rsh":
        return request
    return request._replace(link=request.link._replace(agent=("rsh",)))


def _placed(request: Request, job: Mapping[str, Any], entries: Sequence[MachineLine]) -> Request:
    """The request with the number of ranks of each program, and the host of each rank if hosts are named."""
    policy = request.policy
    request = request._replace(notes=_idle_map(job))
    each = sum(entry.ranks for entry in entries) if entries else job.get("hydra.ppn", 1)
    apps = [app if app.np is not None else app._replace(np=each) for app in request.apps]
    if not entries or job.get("hydra.launcher") == "fork":
        policy = policy._replace(map_by=policy.map_by or "slot", bind_to=policy.bind_to or "none")
        return request._replace(apps=tuple(apps), policy=policy)
    hosts = _hosts(entries, sum(app.np or 0 for app in apps), job)
    apps = [app._replace(hosts=(",".join(next(hosts) for _ in range(app.np or 0)),)) for app in apps]
    policy = policy._replace(map_by="seq", bind_to=policy.bind_to or "none", oversubscribe=True)
    return request._replace(apps=tuple(apps), policy=policy)


def _idle_map(job: Mapping[str, Any]) -> tuple[str, ...]:
    """What to tell of a -map-by without -bind-to, which does nothing, as with hydra.

    It is about the order in which objects are bound to, and only the order of -bind-to is to be had: raises
    `UsageError` for another one.
    """
    wanted, bound = job.get("hydra.map_by", ""), job.get("hydra.bound", "")
    if wanted and not bound:
        return ("-map-by has no effect without -bind-to, as with hydra; -ppn says how many ranks a host takes",)
    if wanted and wanted.lower().partition(":")[0] != bound:
        raise UsageError(
            f"ranks bound to a {bound} each get them in order, not by {wanted}", "-map-by",
            f"leave it out, or use the dialect of mpirun: --map-by {wanted} --bind-to {bound}",
        )  # fmt: skip
    return ()


def _entries(job: Mapping[str, Any], read_text: ReadText) -> list[MachineLine]:
    """The hosts that ranks are dealt to; none: nobody named any."""
    where, value = job.get("hydra.hosts", ("", ""))
    if not where:
        for path, option in (("hydra.skip", "-skip-launch-node"), ("hydra.rankmap", "-rankmap")):
            if path in job:
                raise UsageError("no hosts are named", option, "name them with -hosts or -f")
        return []
    from mslaunch.cli.hydra import machinefile
    from mslaunch.cli.parser import option_files

    if where == "-hosts":
        entries = machinefile.merged(machinefile.from_list(value, where))
    else:
        entries = machinefile.merged(machinefile.from_file(option_files.read(read_text, value, where), value))
    if "hydra.skip" in job:
        entries = list(_elsewhere(entries))
        if not entries:
            raise UsageError("all hosts that are named are this one", "-skip-launch-node", "name other hosts")
    if "hydra.ppn" in job:
        entries = [entry._replace(ranks=job["hydra.ppn"]) for entry in entries]
    if "hydra.order" in job:
        entries = machinefile.ordered(entries, job["hydra.order"])
    return entries


def _elsewhere(entries: Iterable[MachineLine]) -> Iterator[MachineLine]:
    from mslaunch.host.own_names import is_local

    return (entry for entry in entries if not is_local(entry.host.rpartition("@")[2].strip("[]")))


def _hosts(entries: Sequence[MachineLine], ranks: int, job: Mapping[str, Any]) -> Iterator[str]:
    from mslaunch.cli.hydra import machinefile

    if ranks > machinefile.MOST:
        raise UsageError(
            f"{ranks} ranks on hosts that are named are too many", "-n", f"ask for {machinefile.MOST} at most"
        )
    numbers = job.get("hydra.rankmap")
    if numbers is None:
        return machinefile.deal(entries)
    if len(numbers) < ranks:
        raise UsageError(
            f"it has hosts for {len(numbers)} ranks, {ranks} start", "-rankmap", "name a host for each rank"
        )
    return machinefile.by_rankmap(entries, numbers)
