"""The mpirun dialect: Open MPI 4.1's command line, what 5.0 renamed and added, and options of our own.

Every option of mpirun 4.1 and 5.0 is in `common_options` or `rare_options`: done, passed on to the ranks, or refused
with what to use instead.  Spellings and edge cases are those of 4.1.4 (mpirun(1), tests/compat) unless a help text says
otherwise.  Modules that a launch does not need are not imported.
"""

from __future__ import annotations

from mslaunch.cli.mpirun.common_options import EVERYDAY, EXAMPLES, USAGE, VARIABLES
from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import RECOVERY, Index, Option, ParsedLine, assemble
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mslaunch.cli.parser.dialect_contract import DialectHelp, ReadText
    from mslaunch.datamodel.request import Request

#: how the names of all parameters begin that steer the launch; other names are not even looked up
STEERING = ("errmgr_detector_", "hwloc_", "iof_", "mca_base_", "odls", "orte_", "plm", "prte_", "ras", "rmaps")
#: what the command line says of one program, and --app says for each
_OF_ONE = ("app.np", "app.hosts+", "app.hostfile", "app.wdir")
#: variables of an Intel MPIJob in Kubernetes: its hostfile, and the number of ranks on each host
INTEL_HOSTS, INTEL_PER_HOST = "I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST"
#: of the system and of the user; the library in the ranks reads them itself
SYSTEM_FILE = "/etc/openmpi/openmpi-mca-params.conf"
USER_FILE = ".openmpi/mca-params.conf"


def parse(argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText) -> Request:
    """The request of a command line, the environment and the files; see `parser.dialect_contract`.

    Strongest first: options, -mca, the environment, files of --tune, mca-params.conf of the user, that of the system.
    """
    notes: list[str] = []
    index = Index(EVERYDAY, rare)
    line = options.parse_line(index, options.split_at_colons(argv))
    if "own.appfile" in line.job:
        _read_appfile(index, line, read_text, notes)
    else:
        if "check" in line.job:
            from mslaunch.cli.parser.check_options import without_program

            without_program(line)
        options.require_programs(line.programs, ":" in argv)
    if "output.directory" in line.job or any(path.startswith("policy.") for path in line.job):
        from mslaunch.cli.parser import conflicting_options

        notes += conflicting_options.settle(line.job)
    first = line.programs[0].settings
    for path in ("app.path", "app.prefix"):  # those of the first program also hold for the others, as in mpirun 4.1.4
        if path in first:
            line.shared[path] = first[path]
    line = line.over(_weaker(line, environ, read_text, notes))
    if environ.get(INTEL_PER_HOST) and line.job.last("default_hostfile", "") == environ.get(INTEL_HOSTS):
        _intel_per_host(line, environ[INTEL_PER_HOST])
    request = assemble(line, notes)
    if line.job.keys() & RECOVERY:
        from mslaunch.cli.parser import conflicting_options

        request = conflicting_options.recovering(request, line.job)
    return request._replace(detach=False) if request.do_not_launch else request


def rare() -> tuple[Option, ...]:
    """The rows of the table that few launches need."""
    from mslaunch.cli.mpirun.rare_options import RARE

    return RARE


def version(called: str) -> str:
    """Under mpirun's name, the first line is what scripts look for."""
    from mslaunch import __version__

    if called == "mslaunch":
        return f"mslaunch {__version__}\nmpirun (Open MPI) 4.1.4 is whose command line it takes"
    return f"{called} (Open MPI) 4.1.4\n\nmslaunch {__version__} in its place"


def describe() -> DialectHelp:
    """Every option, group by group, and every parameter and variable that steers the launch."""
    from mslaunch.cli.mpirun.mca_parameters import PARAMETERS
    from mslaunch.cli.mpirun.rare_options import GROUPS, SCREEN
    from mslaunch.cli.parser.dialect_contract import DialectHelp

    table = sorted((*EVERYDAY, *rare()), key=lambda option: GROUPS.index(option.group))
    about = DialectHelp("mpirun", USAGE, tuple(table), parameters=PARAMETERS, variables=VARIABLES, examples=EXAMPLES)
    return about._replace(everyday=SCREEN)


def _intel_per_host(line: ParsedLine, word: str) -> None:
    """I_MPI_PERHOST, where Intel's variables name the hosts: ranks go round them, so many to each."""
    chosen = any(line.sets(path) for path in ("app.hosts+", "app.hostfile", "policy.map_by", "policy.rankfile"))
    if not chosen and word.lower() not in ("all", "allcores"):  # these are the slots of the hosts
        from mslaunch.cli.parser import readers

        each = options.read_words(INTEL_PER_HOST, "policy.ppn", readers.count, word)
        line.put([("policy.map_by", "rounds"), *each, ("policy.oversubscribe", True)], INTEL_PER_HOST)


def _read_appfile(index: Index, line: ParsedLine, read_text: ReadText, notes: list[str]) -> None:
    """Replace the programs by those of --app; options for one program have no effect on the command line then."""
    from mslaunch.cli.mpirun import option_files

    path = line.job.last("own.appfile")
    typed, line.programs = line.programs, []
    idle = [f"the program {program.argv[0]}" for program in typed if program.argv]
    for program in typed:
        for name, settings in program.settings.items():
            if name in _OF_ONE:
                idle += [setting.source for setting in settings]
            else:
                line.shared.setdefault(name, []).extend(settings)
    if idle:
        notes.append(f"without effect beside --app: {', '.join(idle)}; {path} has them for each program")
    option_files.add_programs(index, line, options.read_file(read_text, path, "--app"), path)


def _weaker(line: ParsedLine, environ: Mapping[str, str], read_text: ReadText, notes: list[str]) -> ParsedLine:
    """What -mca, the environment and the files set."""
    of_files = _from_files(environ, read_text, notes)
    of_environ = options.from_environ(VARIABLES, environ)
    for prefix in ("PRTE_MCA_", "OMPI_MCA_"):
        given = [name for name in environ if name.startswith(prefix) and environ[name]]
        of_environ = steered({name[len(prefix) :]: (environ[name], name) for name in given})[0].over(of_environ)
    of_options, passed = _from_parameters(line)
    tuned, tuned_on = _tuned([of_files, of_environ, of_options, line], read_text)
    passed = {**{key: value for key, value in tuned_on.items() if "OMPI_MCA_" + key not in environ}, **passed}
    of_options.put([("mca+", tuple(passed.items()))])
    return of_options.over(of_environ.over(tuned.over(of_files)))


def _from_files(environ: Mapping[str, str], read_text: ReadText, notes: list[str]) -> ParsedLine:
    """What mca-params.conf of the system and of the user set; a missing file is no error.

    Parameters in them that do not steer the launch are left to the library.
    """
    line = ParsedLine()
    home = environ.get("HOME")
    for path in (SYSTEM_FILE, *([f"{home}/{USER_FILE}"] if home else [])):
        try:
            text = read_text(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError as error:
            notes.append(f"{path} is ignored: {error.strerror}")
            continue
        if all(row.lstrip()[:1] in ("", "#") for row in text.splitlines()):  # as a package of Open MPI installs it
            continue
        from mslaunch.cli.mpirun import option_files

        line = steered(option_files.parameters(text, path, notes))[0].over(line)
    return line


def _from_parameters(line: ParsedLine) -> tuple[ParsedLine, dict[str, str]]:
    """What all -mca parameters set, and those that are for the ranks.

    A parameter that is named twice must have the same value; mpirun 4.1.4 refuses that too, but real scripts do it.
    """
    values: dict[str, str] = {}
    for key, value in (setting.value for setting in line.job.get("own.parameter", ())):
        if values.setdefault(key, value) != value:
            raise UsageError(
                f"the parameter {key} was given two values, {values[key]!r} and {value!r}",
                "-mca",
                "it acts on all programs: give it once, with commas if it is a list",
            )
    if "mca_base_env_list" in values and line.sets("app.env+"):
        raise UsageError("mca_base_env_list and -x do not mix", "-mca", "write all variables with -x")
    return steered({key: (value, f"-mca {key}") for key, value in values.items()})


def _tuned(sources: Iterable[ParsedLine], read_text: ReadText) -> tuple[ParsedLine, dict[str, str]]:
    """What the files of --tune and -am set, and the parameters in them that are for the ranks; the last one counts."""
    given: dict[str, tuple[str, str]] = {}
    exported = []
    named = (setting for line in sources for setting in line.job.get("own.tune+", ()))
    for source, name in [(setting.source, name) for setting in named for name in setting.value]:
        from mslaunch.cli.mpirun import option_files

        values, variables = option_files.tune(options.read_file(read_text, name, source), name)
        given.update(values)
        exported.append(("app.env+", variables))
    line, passed = steered(given)
    line.put(exported)
    return line, passed


def steered(given: Mapping[str, tuple[str, str]]) -> tuple[ParsedLine, dict[str, str]]:
    """What parameters set that steer the launch, of KEY -> (value, where); and KEY -> value of the others."""
    rest = {name: value for name, (value, _) in given.items()}
    line = ParsedLine()
    if any(name.startswith(STEERING) for name in given):
        from mslaunch.cli.mpirun.mca_parameters import PARAMETERS

        for row in PARAMETERS:
            if row.name in given:
                value, where = given[row.name]
                line.put(options.read_words(where, row.field, row.read, value), where)
                del rest[row.name]
    return line, rest
