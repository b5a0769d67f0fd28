"""This tree beside another checkout of mslaunch: what both import and send, and how sure a ratio of their times is."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping, Sequence

from bench_lib import BenchError
from bench_lib.contenders import BASE, OURS, Launcher
from bench_lib.timing import clean_environ

UPPER_END = 1.03  #: of the interval: what no change may exceed
COUNT_HEAD = ("count", "this tree", "base", "")
_PAYLOAD = """\
try:
    from mslaunch.transport.bootstrap.agent_program import program_for
    from mslaunch.protocol.call_proof import bytecode
    print(len(program_for(bytecode())))
except ImportError:
    from mslaunch.transport.bootstrap import payload
    print(len(payload()))
"""
_LAUNCH = "import sys; sys.argv[1:] = ['-n', '1', 'true']; from mslaunch.__main__ import main; main()"


def counts(launchers: Mapping[str, Launcher]) -> tuple[list[Sequence[str]], bool]:
    """Rows of a table, and whether this tree has more of anything."""
    ours, theirs = (_counts(os.path.join(os.path.dirname(launchers[name].path), "python")) for name in (OURS, BASE))
    rows = [(what, str(ours[what]), str(theirs[what]), "" if ours[what] <= theirs[what] else "MORE") for what in ours]
    return rows, any(row[3] for row in rows)


def _counts(python: str) -> dict[str, int]:
    """Of what `mslaunch -n 1 true` imports in launcher, guard and agent, which are forks of one process."""
    timed = _run([python, "-I", "-X", "importtime", "-c", _LAUNCH]).stderr
    names = {line.rpartition("|")[2].strip() for line in timed.splitlines() if line.startswith("import time:")}
    ours = {name for name in names if name.partition(".")[0] == "mslaunch"}
    packages = {name for name in ours if any(other.startswith(f"{name}.") for other in ours)}
    return {
        "bytes of the program for an SSH host": int(_run([python, "-I", "-c", _PAYLOAD]).stdout),
        "modules of mslaunch that a launch imports": len(ours - packages),
        "packages of mslaunch that it imports": len(packages),
        "other modules that it imports": len(names - ours) - 1,  # the heading
    }


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=clean_environ())
    if done.returncode:
        raise BenchError(f"{argv[0]} failed: {done.stderr.strip()[-300:]}")
    return done


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % for the median of the ratios of neighbouring runs; (nan, nan) for fewer than 6 of them.

    It is that of the sign test: the k-th smallest and the k-th largest ratio, with the largest k for which a fair coin
    thrown once a pair shows fewer than k heads in at most 2.5 % of all cases.  It assumes no distribution.
    """
    found = sorted(ratios)
    k, chance = 0, 0.5 ** len(found)
    while chance <= 0.025:
        k += 1
        chance += math.comb(len(found), k) * 0.5 ** len(found)
    return (found[k - 1], found[-k]) if k else (math.nan, math.nan)
