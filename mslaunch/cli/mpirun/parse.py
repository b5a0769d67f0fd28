"""The mpirun dialect: Open MPI 4.1's command line, what 5.0 renamed and added, and a few options of our own.

Here is how the words, the environment and the files become a request, each weaker than the one before; the tables are
next door: `mpirun_table` what launches use every day, `mpirun_more` the rest, and `parameters` what may also be said
with -mca.  Every option of mpirun 4.1 and 5.0 is in one of them: done, passed on to the ranks, or refused with what to
use instead; none is swallowed.  Spellings and edges are those observed of 4.1.4 (mpirun(1), tests/compat) unless a help
text says otherwise.  The one surprising thing: what a launch does not need is not imported.
"""

from __future__ import annotations

from mslaunch.cli.mpirun.common_options import EVERYDAY, GROUPS, VARIABLES, Version
from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import Index, Show
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mslaunch.cli.parser.options import Option, Section, Setting, Variable
    from mslaunch.datamodel.request import Request

#: how the names of all parameters begin that steer the launch; other names are not even looked up
STEERING = ("hwloc_", "iof_", "mca_base_", "odls_", "orte_", "plm_", "prte_", "ras_", "rmaps")
#: what the command line says of one program, and --app says for each
_OF_ONE = ("app.np", "app.hosts+", "app.hostfile", "app.wdir")
#: of the system and of the user; the library in the ranks reads them itself
SYSTEM_FILE = "/etc/openmpi/openmpi-mca-params.conf"
USER_FILE = ".openmpi/mca-params.conf"


def _no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    read_text: Callable[[str], str] = _no_files,
    called: str = "mslaunch",
) -> Request:
    """The request that a command line (without the program name), the environment and the files make.

    Strongest first: options, -mca, the environment, files of --tune, mca-params.conf of the user, that of the system.
    `read_text` gives the text of a file or raises OSError; `called` is the name that --version answers with.  Raises
    `UsageError`, or `Show` for --help and --version.
    """
    notes: list[str] = []
    index = Index(EVERYDAY, rare)
    try:
        found = options.cut(index, argv)
    except Version:
        raise Show(version_text(called)) from None
    own, found = _settled(*_programs(index, found, ":" in argv, read_text, notes), notes)
    steering, passed = _parameters([*own, *found])
    of_files, of_environ = _from_files(environ, read_text, notes), _from_environ(environ)
    tuned, tuned_on = _tuned([*of_files, *of_environ, *steering], [*own, *found], read_text)
    passed = {**{key: value for key, value in tuned_on.items() if "OMPI_MCA_" + key not in environ}, **passed}
    weaker = [*of_files, *tuned, *of_environ, *steering, ("mca+", tuple(passed.items())), *_settings(own)]
    found = [part._replace(settings=tuple(_plain(part.settings))) for part in _first_for_all(found)]
    request = options.assemble([*_plain(_again(weaker, found)), ("notes+", tuple(notes))], found)
    if request.restart or request.restart_delay or request.min_ranks:
        from mslaunch.cli.parser import recovery_readers

        request = recovery_readers.settled(request)
    return request._replace(detach=False) if request.do_not_launch else request


def rare() -> tuple[Option, ...]:
    """The rows of the table that few launches need."""
    from mslaunch.cli.mpirun.rare_options import RARE

    return RARE


def table() -> tuple[Option, ...]:
    """Every option, group by group."""
    return tuple(sorted((*EVERYDAY, *rare()), key=lambda option: GROUPS.index(option.group)))


def extras(names: Sequence[str]) -> list[Option]:
    """The rows of these first names, for another dialect; its --display-map prints the table that is our own."""
    rows = [row for row in rare() + EVERYDAY if row.names[0] in names]
    return [row._replace(names=(*row.names, "display-map")) if row.names[0] == "display-table" else row for row in rows]


def parameters() -> tuple[Variable, ...]:
    """Every parameter that steers the launch."""
    from mslaunch.cli.mpirun.mca_parameters import PARAMETERS

    return PARAMETERS


def variables() -> tuple[Variable, ...]:
    """The other variables of the environment that are read."""
    return VARIABLES


def version_text(called: str) -> str:
    """What --version prints: as `mpirun` what scripts look for in its first line."""
    from mslaunch import __version__

    dialect = "(Open MPI) 4.1.4"
    if called == "mslaunch":
        return f"mslaunch {__version__}\nmpirun {dialect} is whose command line it takes"
    return f"{called} {dialect}\n\nmslaunch {__version__} in its place"


def _again(weaker: list[Setting], found: Sequence[Section]) -> list[Setting]:
    """With how often ranks are started again, if --restart was given and no number."""
    settings = [*weaker, *_settings(found)]
    if not any(path == "restart" for path, _ in settings):
        return weaker
    from mslaunch.cli.parser import recovery_readers

    return [*weaker, *recovery_readers.weaker(settings)]


def _settings(found: Iterable[Section]) -> list[Setting]:
    return [setting for part in found for setting in part.settings]


def _plain(settings: Iterable[Setting]) -> list[Setting]:
    """Without what is no field of a request, and has been read by now."""
    return [setting for setting in settings if setting[0] not in ("parameter", "tune+", "appfile")]


def _programs(
    index: Index, found: list[Section], colons: bool, read_text: Callable[[str], str], notes: list[str]
) -> tuple[list[Section], list[Section]]:
    """(what the command line says of the whole job, the programs): those of --app, or of the command line itself."""
    names = [value for path, value in _settings(found) if path == "appfile"]
    if not names:
        options.require_programs(found, colons)
        return [], found
    from mslaunch.cli.parser import option_files

    programs = option_files.programs(index, option_files.read(read_text, names[-1], "--app"), names[-1])
    idle = [f"the program {part.program[0]}" for part in found if part.program]
    idle += [source for part in found for source, (path, _) in zip(part.sources, part.settings) if path in _OF_ONE]
    if idle:
        notes.append(f"without effect beside --app: {', '.join(idle)}; {names[-1]} has them for each program")
    return [options.kept(part, lambda setting, _: setting[0] not in _OF_ONE) for part in found], programs


def _settled(own: list[Section], found: list[Section], notes: list[str]) -> tuple[list[Section], list[Section]]:
    """Both without what another option overrides."""
    paths = [path for path, _ in [*_settings(own), *_settings(found)]]
    if paths.count("output.directory") < 2 and not any(path.startswith("policy.") for path in paths):
        return own, found
    from mslaunch.cli.mpirun import conflicts

    kept, more = conflicts.settled([*own, *found])
    notes += more
    return kept[: len(own)], kept[len(own) :]


def _first_for_all(found: Sequence[Section]) -> list[Section]:
    """The sections, where --path and --prefix of the first also hold for the others, as in mpirun 4.1.4."""
    first = tuple(setting for setting in found[0].settings if setting[0] in ("app.path", "app.prefix"))
    return [found[0], *(part._replace(settings=(*first, *part.settings)) for part in found[1:])]


def _from_files(environ: Mapping[str, str], read_text: Callable[[str], str], notes: list[str]) -> list[Setting]:
    """What mca-params.conf of the system and of the user set, weakest first; what they do not have is no error."""
    settings: list[Setting] = []
    home = environ.get("HOME")
    for path in (SYSTEM_FILE, *([f"{home}/{USER_FILE}"] if home else [])):
        try:
            text = read_text(path)
        except OSError:
            continue
        from mslaunch.cli.parser import option_files

        settings += _steered(option_files.parameters(text, path, notes))[0]
    return settings


def _from_environ(environ: Mapping[str, str]) -> list[Setting]:
    """What variables set; an empty one counts as absent."""
    settings: list[Setting] = []
    for row in VARIABLES:
        if environ.get(row.name):
            settings += options.settings_of(row.name, row.field, row.read, environ[row.name])
    for prefix in ("PRTE_MCA_", "OMPI_MCA_"):
        given = [name for name in environ if name.startswith(prefix) and environ[name]]
        settings += _steered({name[len(prefix) :]: (environ[name], name) for name in given})[0]
    return settings


def _parameters(found: Sequence[Section]) -> tuple[list[Setting], dict[str, str]]:
    """What all -mca parameters set, and those that are for the ranks.

    Who names one twice must give it the same value; mpirun 4.1.4 refuses that as well, but real scripts do it.
    """
    values: dict[str, str] = {}
    for path, pair in _settings(found):
        key, value = pair if path == "parameter" else ("", "")
        if key and values.setdefault(key, value) != value:
            raise UsageError(
                f"the parameter {key} was given two values, {values[key]!r} and {value!r}",
                "-mca",
                "it acts on all programs: give it once, with commas if it is a list",
            )
    if "mca_base_env_list" in values and any(path == "app.env+" for path, _ in _settings(found)):
        raise UsageError("mca_base_env_list and -x do not mix", "-mca", "write all variables with -x")
    return _steered({key: (value, f"-mca {key}") for key, value in values.items()})


def _tuned(
    weaker: Iterable[Setting], found: Iterable[Section], read_text: Callable[[str], str]
) -> tuple[list[Setting], dict[str, str]]:
    """What the files of --tune and -am set, and the parameters in them that are for the ranks; the last one counts.

    They are named by options, and by parameters among the `weaker` settings.
    """
    named = [("mca_base_param_file_prefix", setting) for setting in weaker]
    named += [pair for part in found for pair in zip(part.sources, part.settings)]
    given: dict[str, tuple[str, str]] = {}
    variables_: list[Setting] = []
    for source, name in [(source, name) for source, (path, names) in named if path == "tune+" for name in names]:
        from mslaunch.cli.parser import option_files

        values, exported = option_files.tune(option_files.read(read_text, name, source), name)
        given.update(values)
        variables_.append(("app.env+", exported))
    steering, passed = _steered(given)
    return [*steering, *variables_], passed


def _steered(given: Mapping[str, tuple[str, str]]) -> tuple[list[Setting], dict[str, str]]:
    """What parameters set that steer the launch, of KEY -> (value, where); and KEY -> value of the others."""
    rest = {name: value for name, (value, _) in given.items()}
    settings: list[Setting] = []
    for row in parameters() if any(name.startswith(STEERING) for name in given) else ():
        if row.name in given:
            value, where = given[row.name]
            settings += options.settings_of(where, row.field, row.read, value)
            del rest[row.name]
    return settings, rest
