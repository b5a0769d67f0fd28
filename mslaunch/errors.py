"""Errors as a user reads them: what happened, where, and what to do about it.

Every refusal in the package is a `LaunchError`; `cli.main` prints it once and exits with its code.  Exit codes that
scripts may already test for are Open MPI 4.1's or the shell's (docs/exit-codes.md).
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_USAGE = 1  #: bad option, hostfile, allocation or mapping; also: ended by SIGINT, SIGTERM or SIGHUP
EXIT_FOUND = 3  #: --check has found something; no rank was started
EXIT_NO_PROGRESS = 93  #: attempt after attempt did not get ahead: do not requeue (as NVIDIA's ft_launcher)
EXIT_TIMEOUT = 110  #: --timeout was reached (ETIMEDOUT, as mpirun)
EXIT_NOT_STARTED = 126  #: the program is no executable, or its working directory is missing
EXIT_NOT_FOUND = 127  #: the program was not found
EXIT_LOST = 205  #: the agent of a host was lost while ranks ran (as mpirun)
EXIT_UNREACHED = 255  #: a host could not be reached (as ssh)

_ENOENT, _EAGAIN, _ENOMEM, _ENFILE, _EMFILE = 2, 11, 12, 23, 24
_NAME = 300  # characters of a name that a host says
_SENTENCE, _LINE, _LINES = 1000, 200, 8  # characters of what a host calls an error, of its other lines; their number


def printable(text: str) -> str:
    """`text` for a terminal: what is neither printable nor a blank becomes "?", since it may come from another host."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def quoted_lines(text: str, most: int = _LINES) -> list[str]:
    """Quote the last lines of another host's text, so that none looks like a line of mslaunch."""
    lines = [line for line in printable(text).splitlines() if line.strip()]
    return [f"| {line[:_LINE]}" for line in lines[-most:]]


def sentence_of(text: str) -> tuple[str, list[str]]:
    """What a host calls an error: one line, and its other lines as `quoted_lines`."""
    first, _, rest = printable(text.strip("\n")).partition("\n")
    return first[:_SENTENCE], quoted_lines(rest) if rest else []


def one_line(text: str, most: int = _NAME) -> str:
    """A name, or a few words, that another host has said, as a part of a sentence."""
    return printable(" ".join(text[:most].split()))


def limit_of(number: int | None) -> str:
    """` (ulimit -n is 12)`, of this process, if that is what an error number means; "" for other errors.

    It opens no file, and imports nothing: that is what may not be possible any more.
    """
    if number == _EMFILE:
        return f" (ulimit -n is {os.sysconf('SC_OPEN_MAX')})"
    most = os.sysconf("SC_CHILD_MAX") if os.geteuid() else -1  # root has no such limit
    if number == _EAGAIN:
        return f" (ulimit -u is {most})" if most >= 0 else " (pids.max of its control group, or kernel.pid_max)"
    if number == _ENOMEM:
        return " (ulimit -v, or memory.max of its control group)"
    return " (fs.file-max)" if number == _ENFILE else ""


def exhausted(error: Exception) -> OSError:
    """An error as what the system said; an import fails in other words where no file can be opened."""
    if isinstance(error, OSError):
        return error
    said = str(error)
    known = (
        number for number in (_EMFILE, _ENFILE, _ENOMEM) if said.endswith((os.strerror(number), f"Error {number}"))
    )
    number = next(known, 0)  # of dlopen(3)
    try:
        os.close(os.open(".", os.O_RDONLY))
    except OSError as refused:
        return refused
    return OSError(number, os.strerror(number) if number else said)


def reason(error: OSError) -> str:
    """`/dev/null is missing`, or what the system said, with the file if there is one, or the limit that was met."""
    said = f"{error.strerror or error}{limit_of(error.errno)}"
    if error.filename is None or error.errno in (_EMFILE, _ENFILE):
        return said
    return f"{error.filename} is missing" if error.errno == _ENOENT else f"{error.filename}: {said}"


def counted(number: float, word: str) -> str:
    """`1 slot`, `2 slots`, `0.5 seconds`."""
    if number == 1:
        return f"1 {word}"
    return f"{number:g} {word}s" if isinstance(number, float) else f"{number} {word}s"


class LaunchError(Exception):
    """A refusal or a failure of the launch itself.

    `what` is one sentence without a final full stop; `where` names file:line, option or host; `todo` says what to
    do, and may have several lines.  `code` is the exit code.
    """

    def __init__(self, what: str, where: str = "", todo: str = "", code: int = EXIT_USAGE) -> None:
        super().__init__(what, where, todo, code)
        self.what = what
        self.where = where
        self.todo = todo
        self.code = code

    def __str__(self) -> str:
        head, *more = (f"{self.where}: {self.what}" if self.where else self.what).split("\n")
        lines = [*(f"| {line}" for line in more), *self.todo.splitlines()]
        return printable("\n".join([head, *("  " + line for line in lines)]))


def no_memory() -> LaunchError:
    """What a MemoryError of the launcher means."""
    return LaunchError(
        "mslaunch has no more memory, and has ended the job", "", "ulimit -v and control groups limit it"
    )


class UsageError(LaunchError):
    """The command line cannot be understood; `where` is the option."""


class HostfileError(LaunchError):
    """A line of a hostfile, or the file itself, cannot be understood; `where` is `file:line`."""


class AllocationError(LaunchError):
    """There are no nodes, or not enough slots."""


class WireError(LaunchError):
    """The other end of a link sent something that is no frame of ours."""


class LinkError(LaunchError):
    """A host could not be reached, or its agent did not start; `what` may be that host's words."""

    passing = ""  #: why another try may do: it may only be starting

    def __init__(self, what: str, where: str = "", todo: str = "", code: int = EXIT_UNREACHED) -> None:
        if "\n" in what or len(what) > _SENTENCE:
            what, more = sentence_of(what)
            todo = "\n".join([*more, *filter(None, [todo])])
        super().__init__(what, where, todo, code)


class UnreachedError(LaunchError):
    """Hosts could not be used; connections to the others are kept."""

    def __init__(self, by_node: Mapping[str, LaunchError], hosts: int) -> None:
        """`by_node` has an error for each, by the name of the node; `hosts`: how many were asked for."""
        self.by_node = dict(sorted(by_node.items(), key=lambda item: item[1].where))
        self.errors = list(self.by_node.values())
        first = self.errors[0]
        super().__init__(first.what, first.where, first.todo, first.code)
        self.hosts = hosts
