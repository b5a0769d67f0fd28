"""Shared by all tests: golden files, a time limit for each test, skips that are always reported, and parallel runs.

A test that needs a real part (an sshd, Open MPI, MindSpore, root) skips itself if the part is missing.  On a
developer's machine the summary counts and names these skips.  Where `CI` is set each of them fails the run, because
every part must be present there, and a silent skip would be a test that cannot fail.  The exceptions (`OUTSIDE`) are
files that lie beside the project, not in it, frameworks that take too long to install, and versions of Python that no
registry has.

The limit is an alarm signal, not a thread, so it ends a test that hangs in a system call; a second timer prints the
stack of every thread if even that does not help.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# where CI is set hypothesis has no deadline by itself; its 0.2 s for each example are less than a busy machine may stop
settings.register_profile("mslaunch", settings(deadline=None))
settings.load_profile("mslaunch")

#: in a module whose tests start MindSpore, or msrun's line
MINDSPORE = re.compile(r'from trainings import|mark\.mindspore|MINDSPORE_PYTHON|"--dialect", "msrun"')
TESTS = Path(__file__).parent
#: in a skip for a part that no command can install, or that takes too long to install each time; it fails no run
OUTSIDE = ("no schemas of operators", "tested on demand", "not installed: Python 3.")
LIMIT = 120.0  #: seconds a test may take; the marker limit(seconds) gives it another bound


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew, to be reviewed as a diff"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Path], None]:
    """`golden(text, path)`: the text is that of the file, or becomes it with --update-golden."""

    def compare(text: str, path: Path) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        kept = path.read_text(encoding="utf-8") if path.is_file() else ""
        command = f"scripts/test {request.path.relative_to(TESTS)} --update-golden"
        assert text == kept, f"{path.name} differs; if that is intended: {command}, then review git diff tests/golden"

    return compare


@pytest.fixture
def need() -> Callable[..., str]:
    """`need("sshd", "/usr/sbin/sshd")`: the path of the first of these programs that is there, or a loud skip."""

    def find(*programs: str) -> str:
        found = next(filter(None, map(shutil.which, programs)), None)
        if found is None:
            pytest.skip(f"NOT TESTED, not installed: {programs[0]}")
        return found

    return find


# --- skips


_skipped: list[tuple[str, str]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append((report.nodeid, _reason(report)))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped and (report.nodeid, _reason(report)) not in _skipped:  # each process collects all
        _skipped.append((report.nodeid, _reason(report)))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _failing() and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _failing() -> list[tuple[str, str]]:
    """Skips that fail the run."""
    return [(name, why) for name, why in _skipped if not any(map(why.count, OUTSIDE))] if os.environ.get("CI") else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _skipped:
        return
    terminalreporter.write_line(
        f"{len(_skipped)} skipped: {', '.join(sorted({why for _, why in _skipped}))}", yellow=True
    )
    if _failing():
        terminalreporter.write_line("CI is set, where no test may be skipped:", red=True)
        for name, why in _failing():
            terminalreporter.write_line(f"  {name}: {why}", red=True)


# --- time


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out the tests themselves: hundreds of megabytes that stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _limited(request: pytest.FixtureRequest) -> Iterator[None]:
    assert faulthandler.is_enabled(), "run the tests with faulthandler (it is pytest's default)"
    marker = request.node.get_closest_marker("limit")
    seconds = float(marker.args[0]) if marker else LIMIT

    def too_long(signum: int, frame: object) -> None:
        raise TimeoutError(f"the test took longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + 10, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


# --- two at one time (pytest-xdist's -n, as scripts/test runs all of them)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A module's tests share hosts and have an order; those with MindSpore share its ports, and need both cores."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return "mindspore" if uses_mindspore(config.rootpath / module) else module

    return ByModule(config, log)


@functools.cache
def uses_mindspore(module: Path) -> bool:
    """Then schedulers and first workers of its tests want port 8118 of this machine."""
    return bool(MINDSPORE.search(module.read_text()))
