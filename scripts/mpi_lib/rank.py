"""Runs mpi4py's test/main.py as one rank and records how each of its tests ended: `rank.py DIRECTORY main.py …`.

The tests are not changed: their runner gets a result class that also writes a line to a file.  The start of a test is
recorded too, so that a run that hung shows where each rank was.
"""

from __future__ import annotations

import os
import runpy
import sys
import unittest
from typing import Any

_directory = ""
_lines: Any = None


def _note(word: str, test: Any) -> None:
    global _lines
    if _lines is None:  # by now the tests have imported and initialized MPI
        rank = sys.modules["mpi4py.MPI"].COMM_WORLD.Get_rank()
        _lines = open(os.path.join(_directory, f"rank-{rank}"), "w", encoding="utf-8", buffering=1)  # noqa: SIM115
    _lines.write(f"{word} {test.id() if test else ''}\n")


class Noted(unittest.TextTestResult):
    """What unittest does with results, and a line for each event."""

    def startTest(self, test):  # noqa: N802
        _note("began", test)
        super().startTest(test)

    def addSuccess(self, test):  # noqa: N802
        _note("ok", test)
        super().addSuccess(test)

    def addFailure(self, test, err):  # noqa: N802
        _note("failed", test)
        super().addFailure(test, err)

    def addError(self, test, err):  # noqa: N802
        _note("error", test)
        super().addError(test, err)

    def addSkip(self, test, reason):  # noqa: N802
        _note("skipped", test)
        super().addSkip(test, reason)

    def addExpectedFailure(self, test, err):  # noqa: N802
        _note("ok", test)
        super().addExpectedFailure(test, err)

    def addUnexpectedSuccess(self, test):  # noqa: N802
        _note("failed", test)
        super().addUnexpectedSuccess(test)

    def addSubTest(self, test, subtest, err):  # noqa: N802
        if err is not None:
            _note("failed" if issubclass(err[0], test.failureException) else "error", test)
        super().addSubTest(test, subtest, err)

    def stopTestRun(self):  # noqa: N802
        _note("over", None)
        super().stopTestRun()


def main() -> None:
    """Become main.py, with the words that are for it."""
    global _directory
    _directory, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(script)
    unittest.TextTestRunner.resultclass = Noted
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
