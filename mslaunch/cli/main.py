"""The command: parses `sys.argv`, runs what it asks for, and exits.

Two details save milliseconds of a launch that takes forty: the garbage collector rests until the launch has begun,
because importing makes no garbage; and the process leaves by `os._exit`, with its streams flushed.
"""

from __future__ import annotations

import gc
import os
import sys

from mslaunch.cli.dialects import OWN
from mslaunch.cli.dispatch import parse
from mslaunch.cli.parser.options import Show
from mslaunch.errors import EXIT_USAGE, LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXHAUSTED = (11, 12, 23, 24)  # EAGAIN, ENOMEM, ENFILE, EMFILE


def main(argv: Sequence[str] | None = None) -> None:
    """The console script: never returns."""
    gc.disable()
    status = command(sys.argv[1:] if argv is None else argv, sys.argv[0])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError, ValueError):  # closed, or its reader is gone
            pass
    os._exit(status)


def command(argv: Sequence[str], called: str = OWN) -> int:
    """Run a command line; `called` is the path of the command.  Returns the exit code."""
    _open_standard_streams()
    return _run_reported(lambda: _run(argv, called))


def _run(argv: Sequence[str], called: str) -> int:
    request = parse(argv, os.environ, read_text, called)
    for note in request.notes if not request.quiet else ():
        _write_error(f"mslaunch: note: {note}\n")
    from mslaunch.launcher.launch import run
    from mslaunch.launcher.launch_context import Caller

    if request.backend:
        from mslaunch.backends.backend_table import run

    caller = Caller(os.environ, _cwd())
    gc.freeze()
    gc.enable()
    if request.detach:
        from mslaunch.cli.job_commands import recorded
        from mslaunch.detached.detach import detach

        return detach(
            request,
            recorded(request, (called, *argv)),
            caller.environ,
            caller.cwd,
            lambda observer: run(request, caller._replace(observers=(observer,))),
            _run_reported,
        )
    return run(request, caller).code


def _run_reported(act: Callable[[], int]) -> int:
    """The exit code of `act`; prints the text that it shows or the error that it raises."""
    try:
        return act()
    except Show as shown:
        return _show(shown)
    except LaunchError as error:
        _refuse(error)
        return error.code
    except OSError as error:
        hint = "ulimit -a shows the limits of this shell" if error.errno in _EXHAUSTED else ""
        _refuse(LaunchError(f"the system refused: {error.strerror or error}", error.filename or "", hint))
        return EXIT_USAGE
    except KeyboardInterrupt:  # before the launch handles it
        return 1


def _show(shown: Show) -> int:
    """The exit code; 1 if the text cannot be written.  A reader that has gone (`| head`) is no error."""
    try:
        sys.stdout.buffer.write(shown.text.rstrip("\n").encode("utf-8", "replace") + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        _refuse(LaunchError(f"cannot be written: {error.strerror}", "standard output"))
        return EXIT_USAGE
    return shown.code


def read_text(path: str) -> str:
    """The text of a file; bytes that are not UTF-8 are kept."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


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


def _cwd() -> str:
    try:
        return os.environ["PWD"] if os.path.samefile(os.environ["PWD"], ".") else os.getcwd()
    except (KeyError, OSError):
        pass
    try:
        return os.getcwd()
    except OSError:
        raise LaunchError("the current directory is gone", todo="change to one that exists") from None


def _refuse(error: LaunchError) -> None:
    from mslaunch.launcher.messages.closing_report import unreached_text

    errors = getattr(error, "errors", None)
    _write_error(unreached_text(errors, error.hosts) if errors else f"mslaunch: {error}\n")  # type: ignore[attr-defined]


def _write_error(text: str) -> None:
    try:
        sys.stderr.buffer.write(text.encode("utf-8", "replace"))
    except (OSError, AttributeError):
        pass
