"""The command: finds the dialect of `sys.argv`, parses it, runs what it asks for, and exits.

The dialect is that of --dialect as the first word, else of the command's name, else of a first option that only one
dialect has (`--worker_num=8`), else mpirun's.  The first words of `dialects.ACTIONS` have a meaning under every name.

Two details save milliseconds of a launch that takes forty: the garbage collector, which `mslaunch.__main__` has
stopped, runs again only once the launch begins; and the process leaves by `os._exit`, with its streams flushed.
"""

from __future__ import annotations

import gc
import os
import stat
import sys

from mslaunch.cli.dialects import (
    ACTIONS,
    COMMANDS,
    DIALECTS,
    INFO,
    NAMES,
    OWN,
    SHELLS,
    DialectRow,
    by_name,
    called_as,
    selected,
)
from mslaunch.cli.parser.options import (
    POD_VARIABLES,
    HelpRequested,
    Show,
    UnknownOptionError,
    VersionRequested,
    read_words,
)
from mslaunch.errors import EXIT_USAGE, LaunchError, UsageError, exhausted, limit_of, no_memory
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.attempt import LaunchContext

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SMALL = 1 << 16  # bytes
_ENTERED = 1.0  # seconds after which a launch is in the registry


def main() -> None:
    """The console script: never returns."""
    status = command(sys.argv[1:], sys.argv[0])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError, ValueError):  # closed, or its reader is gone
            pass
    os._exit(status)


def command(argv: Sequence[str], called: str = OWN) -> int:
    """Run a command line; `called` is the path of the command.  Returns the exit code."""
    _open_standard_streams()
    return _run_reported(lambda: _run(argv, called), argv)


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    read_text: Callable[[str], str],
    called: str = OWN,
    *,
    pods: bool = True,
) -> Request:
    """The request of a command line; `called` is the path of the command; not `pods`: the caller asks `in_pod`.

    Raises `LaunchError`, or `Show` for what is not a launch.
    """
    name = called_as(called)
    row = COMMANDS.get(name)
    if argv and argv[0][:1] == "-":
        chosen, argv = _first(argv, environ)
        if chosen is None and row is None and name != INFO and argv:
            chosen = selected(argv)
        if chosen:
            row, name = chosen, OWN
    if name == INFO:
        from mslaunch.cli import ompi_info

        raise Show(ompi_info.answer(argv))
    if row is None:
        row, name = DIALECTS[0], OWN
    dialect = row.load()
    try:
        request = dialect.parse(argv, environ, read_text)
        return in_pod(request, environ) if pods and not row.reads_pods else request
    except VersionRequested:
        text = _version(dialect.version(name), argv, environ)
    except HelpRequested as asked:
        from mslaunch.cli import help_topics

        text = help_topics.text(row.name, asked.topic)
    except UnknownOptionError as error:
        from mslaunch.cli import unknown_options

        refused = unknown_options.refusal(error)
        refused.code = error.code  # which dialects set
        raise refused from None
    raise Show(text)


def _version(text: str, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """What --version shows: more if --verbose stands beside it."""
    if argv[1:] or len(argv[0]) == len("-Vv"):
        from mslaunch.cli import bug_report

        if bug_report.wanted(argv):
            from mslaunch.launcher.launch import MANAGERS

            return bug_report.report(text, environ, {word: variable for word, (variable, _) in MANAGERS.items()})
    return text


def in_pod(request: Request, environ: Mapping[str, str]) -> Request:
    """The request of one pod's part, where an operator of Kubernetes starts each pod of a job by itself."""
    if any(name in environ for name in POD_VARIABLES):
        from mslaunch.cli.pods import pod_part

        return pod_part.of_others(request, environ)
    return request


def _first(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[DialectRow | None, Sequence[str]]:
    """The dialect that --dialect names, and the words after it; raises `Show` for the other first words."""
    action, equals, value = argv[0].lstrip("-").partition("=")
    if not any(action in row.names for row in ACTIONS):
        return None, argv
    words = [value, *argv[1:]] if equals else list(argv[1:])
    if action == "dialect":
        return by_name(_one_of("--dialect", NAMES, words)), words[1:]
    if action == "install-shims":
        from mslaunch.cli import shims

        raise Show(shims.install(words))
    if action in ("status", "stop"):
        from mslaunch.cli.actions import job_commands

        raise (job_commands.status if action == "status" else job_commands.stop)(words, environ)
    if action in ("top", "stacks"):
        from mslaunch.cli.actions import live_commands

        raise (live_commands.top if action == "top" else live_commands.stacks)(words, environ)
    if action == "logs":
        from mslaunch.cli.actions import job_logs

        raise job_logs.logs(words, environ)
    if action == "report":
        from mslaunch.cli.actions import report_command

        raise report_command.report(words)
    if action == "completion":
        from mslaunch.cli import completion

        shell = _one_of("--completion", SHELLS, words)
        _require_end("--completion", words[1:])
        raise Show(completion.script(shell))
    from mslaunch.cli import manpage

    _require_end("--man", words)
    raise Show(manpage.page())


def _one_of(option: str, known: Sequence[str], words: Sequence[str]) -> str:
    from mslaunch.cli.parser import readers

    if not words:
        raise UsageError("its value is missing", option, f"write {option} {readers.one_of(known)}")
    return str(read_words(option, "value", readers.choice(*known), words[0])[0][1])


def _require_end(option: str, words: Sequence[str]) -> None:
    if words:
        raise UsageError(f"it takes nothing more, got {words[0]!r}", option, "leave out what follows it")


def _run(argv: Sequence[str], called: str) -> int:
    name, equals, value = argv[0].partition("=") if argv else ("", "", "")
    if name in ("--rerun", "--rerun-untrusted"):
        from mslaunch.cli.actions import rerun

        words = [value, *argv[1:]] if equals else argv[1:]
        argv, called, shown = rerun.command_line(
            name, words, os.environ, lambda *line: parse(line[0], os.environ, _read_text, line[1])
        )
        _write_error(f"mslaunch: {name} {shown}\n", "notice", argv)
    request = parse(argv, os.environ, _read_text, called)
    for note in request.notes if not request.quiet else ():
        _write_error(f"mslaunch: note: {note}\n", "notice", argv)
    from mslaunch.transport.fork import discard_ahead, fork_ahead

    if not (request.names_hosts or request.backend or request.detach or request.do_not_launch or request.check):
        fork_ahead()
    try:
        return _launched(request, argv, called)
    finally:
        discard_ahead()


def _launched(request: Request, argv: Sequence[str], called: str) -> int:
    from mslaunch.datamodel.request import Caller
    from mslaunch.launcher.launch import MANAGERS, run

    granting = any(variable in os.environ for variable, _ in MANAGERS.values())
    if request.backend:
        from mslaunch.backends.backend_table import run
    elif request.check:
        from mslaunch.preflight.run_check import run

        request = request._replace(detach=False)
    caller = Caller(os.environ, _cwd(), command=lambda: _recorded(request, argv, called))
    if request.names_hosts or granting:  # not for `api.launch`: the process is its caller's
        from mslaunch.runtime.reused_memory import reuse_freed_memory

        gc.set_threshold(20_000, 50)  # plans are records without circles; looking for some takes a sixth of the time
        caller = caller._replace(on_loop=reuse_freed_memory())
    gc.freeze()
    gc.enable()
    if request.detach:
        from mslaunch.jobs.detach import detach

        return detach(
            request,
            caller.command(),
            caller.environ,
            caller.cwd,
            lambda observer, on_context: run(request, caller._replace(observers=(observer,), on_context=on_context)),
            _run_reported,
        )
    if not request.backend:
        caller = caller._replace(on_context=lambda context: _enter_later(context, request))
    return run(request, caller).code


def _enter_later(context: LaunchContext, request: Request) -> None:
    """Once the launch has run for a second, others may ask what it does."""

    def enter() -> None:
        from mslaunch.jobs.live_job import enter

        enter(context, request)

    context.loop.after(_ENTERED, enter)


def _recorded(request: Request, argv: Sequence[str], called: str) -> list[str]:
    """The words of the command line without values of variables."""
    from mslaunch.cli.actions.job_commands import recorded

    return recorded(request, (called, *argv))


def _run_reported(act: Callable[[], int], argv: Sequence[str] = ()) -> int:
    """The exit code of `act`; prints the text that it shows or the error that it raises."""
    try:
        return act()
    except Show as shown:
        return _show(shown)
    except LaunchError as error:
        _refuse(error, argv)
        return error.code
    except MemoryError:
        _refuse(no_memory(), argv)
        return EXIT_USAGE
    except (OSError, ImportError) as error:
        refused = exhausted(error)
        limit = limit_of(refused.errno)
        if isinstance(error, ImportError) and not limit:
            raise
        hint = "raise it: ulimit -a shows the limits of this shell" if limit else ""
        where = str(refused.filename or "")
        if where.startswith(_PACKAGE):  # a module that could not be imported: no file of the user's
            where = ""
        _refuse(LaunchError(f"the system refused: {refused.strerror or refused}{limit}", where, hint), argv)
        return EXIT_USAGE
    except KeyboardInterrupt:  # before the launch handles it
        return 1


def _show(shown: Show) -> int:
    """The exit code; 1 if the text cannot be written.  A reader that has gone (`| head`) is no error."""
    try:
        if shown.text:
            sys.stdout.buffer.write(shown.text.rstrip("\n").encode("utf-8", "replace") + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        _refuse(LaunchError(f"cannot be written: {error.strerror}", "standard output"))
        return EXIT_USAGE
    return shown.code


def _open_standard_streams() -> None:
    """A stream that is closed (`<&-`) becomes /dev/null, or the next file that we open would get its number."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open("/dev/null", os.O_RDWR)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            stream = os.fdopen(fd, "w", encoding="utf-8", errors="replace", closefd=False)
            setattr(sys, name, stream)


def _read_text(path: str) -> str:
    """A file that the user has named; raises OSError.  A small one, as those of Open MPI are, is only opened.

    Pipes, devices, and files of /proc, whose size is 0, are for `host.files`, which need not be imported otherwise.
    """
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode) and 0 < status.st_size < _SMALL:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    from mslaunch.host.files import read_text

    return read_text(path)


def _cwd() -> str:
    try:
        return os.environ["PWD"] if os.path.samefile(os.environ["PWD"], ".") else os.getcwd()
    except (KeyError, OSError):
        pass
    try:
        return os.getcwd()
    except OSError:
        raise LaunchError("the current directory is gone", todo="change to one that exists") from None


def _refuse(error: LaunchError, argv: Sequence[str] = ()) -> None:
    errors = getattr(error, "errors", None)
    text = f"mslaunch: {error}\n"
    if errors:
        from mslaunch.launcher.messages.closing_report import unreached_text

        text = unreached_text(errors, error.hosts)  # type: ignore[attr-defined]
    _write_error(text, "error", argv)


def _write_error(text: str, kind: str, argv: Sequence[str]) -> None:
    try:
        from mslaunch.launcher.messages.message_colors import choice_of, painter

        paint = painter(choice_of(argv), os.environ, 2)
        text = paint(kind, text) if paint else text
    except (ImportError, OSError, MemoryError):  # what is to be told may be that nothing more can be opened
        pass
    try:
        sys.stderr.buffer.write(text.encode("utf-8", "replace"))
        sys.stderr.buffer.flush()  # the launch writes past it
    except (OSError, AttributeError):
        pass
