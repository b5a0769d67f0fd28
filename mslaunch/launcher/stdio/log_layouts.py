"""Log layouts: for each option that names log files, where the streams of each rank are kept.

Contract of a row of `LAYOUTS`: the key is the field of the `OutputPolicy` that its option sets.  The function takes the
policy and the value of the field, and returns a `Layout`.  It raises `UsageError` for a pattern that cannot be read,
and touches no file.  Several rows may apply at once.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.request import OutputPolicy
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.stdio import file_patterns

if TYPE_CHECKING:
    from collections.abc import Callable


class Layout(NamedTuple):
    """`base`, a directory as it was named, made if it is missing, and patterns of the paths below it.

    Beside `file_patterns.LETTERS`: %n is the number of a rank, padded to the digits of the number of ranks, %d is
    rank.%n; %m and %o are these two with the number of the world in front, but for the job's own world.  For a service
    all four are its name, and %v is that with _ for the dot.  %t, with `folder` only, is the number of restarts before.
    """

    base: str
    out: str  # "": not kept
    err: str
    where: str  # what an error names
    service: str = ""  # the pattern for services; "": that of ranks
    private: bool = False  # a directory that is made is for the user alone
    folder: str = ""  # a directory of each rank, which is there even if no stream is kept; paths then have the attempt
    passing: bool = False  # `base` is removed at the end if nothing is in it


def openmpi4(policy: OutputPolicy, path: str) -> Layout:
    """mpirun(1) of 4.1, --output-filename: DIR/1/rank.N/stdout and stderr; 1 is the number of the world."""
    folder = "%w/%d" if policy.jobid else "%o"
    return Layout(path, f"{folder}/stdout", f"{folder}/stderr", "--output-filename")


def openmpi5(policy: OutputPolicy, path: str) -> Layout:
    """--output file=F of 5.0: F.N.out and F.N.err."""
    base, name = os.path.split(path)
    name = name.replace("%", "%%")
    return Layout(base, f"{name}.%m.out", f"{name}.%m.err", "--output file=")


def outfile(policy: OutputPolicy, path: str) -> Layout:
    """hydra's -outfile-pattern, and msrun's logs: both streams in DIR/worker_%r.log, services in DIR/scheduler.log."""
    where = f"output files {path}"
    base, below = _split(path, where)
    service = _of_service(below) if policy.merge else ""
    if service:  # msrun: the user named the directory
        where = f"log files in {base or '.'}"
    return Layout(base, below, "", where, service, private=bool(service))


def errfile(policy: OutputPolicy, path: str) -> Layout:
    """hydra's -errfile-pattern."""
    where = f"error files {path}"
    base, below = _split(path, where)
    return Layout(base, "", below, where)


def rank_logs(policy: OutputPolicy, path: str) -> Layout:
    """torchrun's --log-dir: DIR/RUN_xxx/attempt_0/LOCAL_RANK/stdout.log and stderr.log, with error.json beside them."""
    assert policy.streams
    folder, made = policy.streams.folder, policy.streams.made
    where = f"log files in {path}"
    return Layout(path, f"{folder}/stdout.log", f"{folder}/stderr.log", where, "", made, folder, made)


#: field of the `OutputPolicy` -> its layout
LAYOUTS: dict[str, Callable[[OutputPolicy, str], Layout]] = {
    "directory": openmpi4,
    "file": openmpi5,
    "outfile": outfile,
    "errfile": errfile,
    "rank_logs": rank_logs,
}


def layouts(policy: OutputPolicy) -> list[Layout]:
    """All layouts that were asked for; messages refer to the first."""
    return [row(policy, path) for field, row in LAYOUTS.items() if (path := getattr(policy, field)) is not None]


def _split(path: str, where: str) -> tuple[str, str]:
    """A user's pattern: the directories before its first letter, and the pattern below them."""
    file_patterns.check(path, where)
    end = path.replace("%%", "..").find("%")
    base = os.path.dirname(path[:end] if end >= 0 else path)
    return base.replace("%%", "%"), path[len(base) :].lstrip("/")


def _of_service(below: str) -> str:
    """logs/worker_%r.log -> logs/%v.log; "" if the name of the file has no %r."""
    folder, name = os.path.split(below)
    head, letter, rest = name.rpartition("%r")
    plain = (len(head) - len(head.rstrip("%"))) % 2 == 0  # else it is a percent sign and an r
    return os.path.join(folder, f"%v{rest}") if letter and plain else ""
