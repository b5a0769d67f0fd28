"""Why no agent answered: the output of hosts, and the message."""

from __future__ import annotations

import errno
import os

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LinkError, exhausted, reason
from mslaunch.launcher.agents.diagnose_start import explain, unanswered
from mslaunch.transport.base import Link
from mslaunch.transport.fork import LIMITS


class Silent(Link):
    """A link that ended before HELLO."""

    def __init__(self, noise: bytes = b"", failure: LinkError | None = None, status: int | None = None) -> None:
        super().__init__(Node("n7", 1, "-H"), -1, -1)
        self._noise, self._failure, self.exit_status = noise, failure, status

    def noise(self) -> bytes:
        return self._noise

    def failure(self) -> LinkError | None:
        return self._failure


MISSING = "it has no Python that the agent could run with"


@pytest.mark.parametrize(
    ("printed", "what", "todo"),
    [
        (b"bash: line 1: exec: python3: not found\n", MISSING, "--agent-python"),
        (b"bash: python3: command not found\n", MISSING, "--agent-python"),
        (b"fish: Unknown command: python3\n", MISSING, "--agent-python"),
        (
            b"mslaunch: python 3.6.15 is older than 3.8\n",
            "its Python is too old for the agent, which needs 3.8",
            "--agent-python",
        ),
        (b"This account is currently not available.\n", "its account allows no commands", "user@host"),
    ],
)
@pytest.mark.parametrize("on_link", [True, False])
def test_messages_of_shells_are_explained(printed: bytes, what: str, todo: str, on_link: bool) -> None:
    error = explain(Silent(noise=printed), b"") if on_link else explain(Silent(), printed)
    assert error.what == what and error.where == "n7" and todo in error.todo
    assert f"  | {printed.decode().strip()}" in error.todo
    assert getattr(error, "check", "") == ("login" if b"account" in printed else "python3")


def test_exit_code_127_without_a_message_is_explained() -> None:
    assert explain(Silent(status=127), b"").what == MISSING


def test_an_error_of_the_link_is_kept() -> None:
    known = LinkError("no route to host", "n7", "is it on?", 255)
    error = explain(Silent(b"ssh: trouble\n", known), b"")
    assert (error.what, error.where, error.code) == ("no route to host", "n7", 255)
    assert error.todo == "is it on?\nit printed:\n  | ssh: trouble"


def test_output_of_other_programs_is_quoted() -> None:
    error = explain(Silent(), b"Welcome to n7\r\nTODAY: maintenance\n")
    assert error.what == "it answered, but no agent started there"
    assert error.todo == "it printed:\n  | Welcome to n7\n  | TODAY: maintenance"


def test_a_link_that_ends_silently_is_reported() -> None:
    assert (
        explain(Silent(status=3), b"").what
        == "it accepted the login, but no agent started there (its shell ended with status 3)"
    )
    assert "status" not in explain(Silent(), b"").what


def test_quoted_output_is_short_and_printable() -> None:
    error = explain(Silent(), b"".join(b"line %d\n" % number for number in range(20)) + b"\x1b[31mred" + b"x" * 500)
    lines = error.todo.splitlines()
    assert len(lines) == 7 and lines[1] == "  | line 15"
    assert "\x1b" not in error.todo and max(map(len, lines)) <= 204


def test_a_host_that_does_not_answer_in_time_is_shown_with_what_it_printed() -> None:
    said = unanswered(Silent(b"Password:\n"), b"Welcome\n").splitlines()
    assert said[0].startswith("does its login shell wait for input?")
    assert said[1:] == ["it printed:", "  | Welcome", "  | Password:"]
    assert unanswered(Silent(), b"").count("\n") == 0


class Local(Silent):
    """The same of an agent on this host."""

    here = True


@pytest.mark.parametrize(
    ("said", "what", "todo"),
    [
        (b"/dev/null is missing", "no agent could be started here: /dev/null is missing", ""),
        (b"", "no agent could be started here", ""),
        (b"two\nlines\n", "no agent could be started here: lines", "it printed:\n  | two"),
        (b"Too many (ulimit -n is 7)", "no agent could be started here: Too many (ulimit -n is 7)", LIMITS),
        (b"\x1b[31mred", "no agent could be started here: [31mred", ""),
    ],
)
def test_nobody_has_logged_in_on_this_host(said: bytes, what: str, todo: str) -> None:
    error = explain(Local(), said)
    assert (error.what, error.todo, error.where) == (what, todo, "n7")


def test_what_the_system_refused_is_named_with_its_file() -> None:
    assert reason(FileNotFoundError(errno.ENOENT, "No such file", "/dev/null")) == "/dev/null is missing"
    assert reason(PermissionError(errno.EACCES, "Permission denied", "/x")) == "/x: Permission denied"
    assert reason(OSError(errno.EIO, "try again")) == "try again"
    assert reason(OSError(errno.EMFILE, "Too many", "/x")) == f"Too many (ulimit -n is {os.sysconf('SC_OPEN_MAX')})"
    limit = "pids.max of its control group" if os.geteuid() == 0 else "ulimit -u is "
    assert reason(OSError(errno.EAGAIN, "try again")).startswith(f"try again ({limit}")


def test_an_import_that_failed_for_a_limit_says_so() -> None:
    error = exhausted(ImportError("x.so: cannot open shared object file: Too many open files"))
    assert (error.errno, error.strerror) == (errno.EMFILE, "Too many open files")
    error = exhausted(ImportError("x.so: cannot open shared object file: Error 24"))
    assert error.errno == errno.EMFILE
    assert reason(exhausted(ImportError("No module named x"))) == "No module named x"
    assert reason(OSError("odd")) == "odd"
