"""What the programs of a launch are on this host: whether they can be started, and what their Python has.

An interpreter is asked for its version and for those of the packages that the script imports.  Nothing of these is
imported for that, and the script is not run: others may be able to write where it lies, and put a `csv.py` there.  So
the question takes its own modules from the interpreter alone, and only then looks where the script would look.
"""

from __future__ import annotations

import os

from mslaunch.agent.checks.bounded_command import run_command
from mslaunch.agent.checks.script_imports import find_script, imported_names
from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.programs import check_wdir, command, find_program, is_python, is_python_name
from mslaunch.host.system_files import head_of
from mslaunch.protocol.check_messages import DIRECTORY, PROGRAM, ProgramFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.datamodel.node_plan import NodePlan, RankPlan

_SECONDS = 8.0  # for an interpreter that is asked; all of the answer has to be there in ten
_KEPT = 1 << 15  # bytes of its answer
_TEXT = 2000  # characters of an error
_DIGESTED = 16 << 20  # bytes of a file
_SAFE = "PYTHONSAFEPATH"  # with it Python 3.11 and later put no folder in front of sys.path
#: What an interpreter is asked to run: its arguments are the folder of the script ("": it would not be looked at),
#: PYTHONPATH as the script would get it, and the names of modules.  Without PYTHONSAFEPATH the first entry of sys.path
#: is the working directory here; from 3.13 on Python imports linecache from there, before a line of this runs.
_PROBE = r"""
import sys
sys.path[:] = own = [entry for entry in sys.path if entry]
import os
from importlib.util import find_spec
try:
    import zlib
    from importlib import metadata
except ImportError:
    metadata = None
folder, given, *asked = sys.argv[1:]
front = [folder] if folder else []
front += [os.path.abspath(entry) for entry in given.split(os.pathsep)] if given else []
full = front + [entry for entry in own if entry not in front]
def found(name):
    # as the script would find it; only the search itself is made there
    sys.path[:] = full
    try:
        return find_spec(name)
    finally:
        sys.path[:] = own
known = set(sys.builtin_module_names) | set(getattr(sys, "stdlib_module_names", ()))
indexed = {}
def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 24)
    except (OSError, ValueError):
        return ""
def index(folder):
    # module -> the folders that describe the packages which have it
    if folder in indexed:
        return indexed[folder]
    found = indexed[folder] = {}
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        entries = []
    for entry in entries:
        if not entry.endswith((".dist-info", ".egg-info")):
            continue
        about = os.path.join(folder, entry)
        names = set(read(about, "top_level.txt").split())
        record = read(about, "RECORD").splitlines()
        if not names and not record:  # as Debian leaves it: one module, which is called as the package is
            names.add(entry.rpartition(".")[0].partition("-")[0].lower())
        for line in () if names else record:
            first, slash, _ = line.partition(",")[0].partition("/")
            if slash or first.endswith((".py", ".so")):
                names.add(first if slash else first.partition(".")[0])
        for name in names:
            found.setdefault(name, []).append(about)
    return found
def described(about):
    text = read(about, "METADATA") or read(about, "PKG-INFO")
    fields = dict(line.partition(": ")[::2] for line in reversed(text.partition("\n\n")[0].splitlines()))
    name, _, version = os.path.basename(about).rpartition(".")[0].partition("-")
    return fields.get("Version") or version.partition("-")[0], fields.get("Name") or name
def package(name, spec):
    # the version of a module, and the name of its package if that is certain
    folders = list(spec.submodule_search_locations or ())
    place = os.path.dirname(folders[0] if folders else spec.origin or "")
    places = [place] if place == os.path.abspath(full[0]) else [place] + full[1:]
    for entry in places:
        about = index(entry).get(name) if entry else None
        if about:
            version, package = described(about[0])
            return version, package if len(about) == 1 else ""
    try:
        return next(iter(metadata.distributions(name=name, path=full))).version, ""
    except Exception:
        return "", ""
print("mslaunch:", sys.version.split()[0], sys.prefix)
for name in asked:
    if name in known:
        continue
    try:
        spec = found(name)
        told = ("-", "") if spec is None else package(name, spec)
        print(name, *("".join(word.split())[:100] for word in told))
    except Exception:
        print(name, "")
"""


class _InterpreterQuestion(NamedTuple):
    """An interpreter that is to be asked."""

    facts: ProgramFacts
    argv: list[str]
    env: dict[str, str]
    wdir: str


def collect(context: AgentContext, plan: NodePlan, done: Callable[[list[ProgramFacts]], None]) -> None:
    """Look at each program of the plan; `done` gets the facts, in a few seconds at most."""
    base = inherited(context.environ, plan)
    firsts = sorted({rank.app: rank for rank in reversed(plan.ranks)}.items())
    found: list[ProgramFacts] = []
    probes: list[_InterpreterQuestion] = []
    for app, rank in firsts:
        facts, probe = _look(plan, app, rank, base)
        if probe:
            probes.append(probe)
        else:
            found.append(facts)
    left = [len(probes)]

    def answered(facts: ProgramFacts) -> None:
        found.append(facts)
        left[0] -= 1
        if not left[0]:
            done(sorted(found))

    for probe in probes:
        _ask(context, probe, answered)
    if not probes:
        done(found)


def _look(
    plan: NodePlan, number: int, rank: RankPlan, base: dict[str, str]
) -> tuple[ProgramFacts, _InterpreterQuestion | None]:
    """The facts that files tell, and the interpreter that can tell more."""
    app = plan.apps[number]
    env = rank_variables(base, app, rank, {"PWD": app.wdir}, plan)
    search = env.get("PATH", os.defpath)
    if app.in_session:  # neither the directory nor what is sent there exists yet
        return ProgramFacts(number), None
    facts = ProgramFacts(number, wdir=app.wdir)
    try:
        check_wdir(app.wdir)
    except LaunchError as error:
        return _wrong(facts, DIRECTORY, error, "" if os.path.exists(app.wdir) else app.wdir), None
    try:
        path, argv = command(app, rank._replace(wrapper=()), False, search, app.wdir)
    except LaunchError as error:
        path = os.path.join(app.wdir, app.argv[0]) if "/" in app.argv[0] else ""
        return _wrong(facts, PROGRAM, error, "" if os.path.exists(path) else path), None
    path = os.path.join(app.wdir, path)
    facts = facts._replace(path=path, wdir_free=_free(app.wdir))
    interpreter = _interpreter(path, argv, search, app.wdir)
    if not interpreter:
        return facts._replace(digest=_digest(path)), None
    python, words = interpreter
    kind, script = find_script(words)
    if kind == "file":
        whole = os.path.join(app.wdir, script)
        if not os.path.exists(whole):
            gone = LaunchError(f"the script {script!r} does not exist", todo=f"looked at {whole}")
            return _wrong(facts, PROGRAM, gone, whole), None
        facts = facts._replace(script=script, digest=_digest(whole))
        folder, names = os.path.dirname(whole), imported_names(head_of(whole, _DIGESTED))
    elif kind == "module":
        folder, names = app.wdir, [script.partition(".")[0]]
    else:
        folder, names = app.wdir, imported_names(script.encode("utf-8", "surrogateescape"))
    return facts, _question(facts, python, "" if env.get(_SAFE) else folder, names, env, app.wdir)


def _question(
    facts: ProgramFacts, python: str, folder: str, names: list[str], env: dict[str, str], wdir: str
) -> _InterpreterQuestion:
    """What to ask: as the script would be run, without entries of PYTHONPATH that are the working directory.

    An empty entry is one, too.  Python would take even the modules that it needs to begin from there.
    """
    given = env.get("PYTHONPATH", "")
    env = {**env, "PYTHONPATH": ":".join(one for one in given.split(":") if not _is_wdir(one, wdir)), _SAFE: "1"}
    return _InterpreterQuestion(facts, [python, "-c", _PROBE, folder, given, *names], env, wdir)


def _is_wdir(entry: str, wdir: str) -> bool:
    """Whether an entry of PYTHONPATH depends on the working directory, or leads to it."""
    try:
        return not entry.startswith("/") or os.path.samefile(entry, wdir)
    except (OSError, ValueError):  # there is nothing
        return False


def _wrong(facts: ProgramFacts, kind: str, error: LaunchError, missing: str) -> ProgramFacts:
    return facts._replace(error=error.what[:_TEXT], todo=error.todo[:_TEXT], kind=kind, missing=missing)


def _interpreter(path: str, argv: list[str], search: str, wdir: str) -> tuple[str, list[str]] | None:
    """The Python that a program is or that its first line names, and the words after it; None for other programs."""
    if is_python_name(path):
        return path, argv[1:]
    if not is_python(path):
        return None
    words = head_of(path, 256).split(b"\n", 1)[0][2:].decode("utf-8", "surrogateescape").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    try:
        return os.path.join(wdir, find_program(words[0], search, wdir)), [*words[1:], path, *argv[1:]]
    except (LaunchError, IndexError):
        return None


def _ask(context: AgentContext, probe: _InterpreterQuestion, answered: Callable[[ProgramFacts], None]) -> None:
    def ended(code: int, output: bytes, late: bool) -> None:
        answered(probe.facts if late or code else _told(probe.facts, output.decode("utf-8", "replace")))

    try:
        run_command(context.loop, probe.argv, probe.env, _SECONDS, _KEPT, ended, probe.wdir)
    except OSError:
        answered(probe.facts)


def _told(facts: ProgramFacts, output: str) -> ProgramFacts:
    """The facts with what the interpreter has printed; start-up files of its own may have printed more."""
    lines = output.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith("mslaunch: ")), None)
    if first is None:
        return facts
    _, version, prefix = (lines[first] + "  ").split(" ", 2)
    rows = [(line + "  ").split(" ")[:3] for line in lines[first + 1 :]]
    names, versions, packages = (tuple(row[at] for row in rows) for at in range(3))
    return facts._replace(python=version, prefix=prefix.strip(), modules=names, versions=versions, packages=packages)


def _free(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize


def _digest(path: str) -> str:
    """Alike for files of the same content; of a large one its size and its beginning count."""
    import zlib

    data = head_of(path, _DIGESTED)
    try:
        size = os.stat(path).st_size
    except OSError:
        return ""
    return f"{size} {zlib.crc32(data):08x}"
