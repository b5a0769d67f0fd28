"""Log files: which bytes of which rank are kept where.

A layout is data: a directory, and below it a pattern for standard output and one for standard error.  Open MPI 4.1's
is DIR/1/rank.N/stdout and stderr (mpirun(1), --output-filename), N padded to the digits of the number of ranks; 5.0's
`file=F` and hydra's patterns are others.  For ranks that were spawned, the number of their world stands for the 1.  It
knows neither terminals nor what a line means.  The surprising thing: files are opened without following links, and
directories that a layout makes must be the user's own, since /tmp is a favourite place for logs.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.errors import LaunchError
from mslaunch.launcher import pattern
from mslaunch.launcher.pattern import Places
from mslaunch.launcher.prefix import Seams
from mslaunch.lean import TYPE_CHECKING, NamedTuple
from mslaunch.model import SERVICE, OutputPolicy
from mslaunch.wire.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_KEPT_OPEN = 256
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last: never wait for a FIFO

_WHY = {
    errno.ELOOP: "a link, and mslaunch writes through none",
    errno.EEXIST: "not a directory",
    errno.ENXIO: "a FIFO that nobody reads",
}


class Layout(NamedTuple):
    """Where streams are kept: `base` as it was named, made if it is missing, and patterns of the paths below it.

    Beside the letters of `pattern`, %d is rank.N and %n is N, both with N padded; for the scheduler, `scheduler`.  %o
    and %m are the same for other layouts than Open MPI's: with the number of the world in front, but for the job's own.
    """

    base: str
    out: str  # "": not kept
    err: str
    where: str  # what a refusal names


class _File(NamedTuple):
    path: str
    base: str
    where: str


def layouts(policy: OutputPolicy) -> list[Layout]:
    """All that were asked for.  Raises `UsageError` for a pattern that cannot be read."""
    found = []
    if policy.directory is not None:
        top = "%w/%d/" if policy.jobid else "%o/"
        found.append(Layout(policy.directory, f"{top}stdout", f"{top}stderr", "--output-filename"))
    if policy.file is not None:
        base, name = os.path.split(policy.file)
        name = name.replace("%", "%%")
        found.append(Layout(base, f"{name}.%m.out", f"{name}.%m.err", "--output file="))
    if policy.outfile is not None:
        where = f"output files {policy.outfile}"
        base, below = _split(policy.outfile, where)
        found.append(Layout(base, below, "", where))
    if policy.errfile is not None:
        where = f"error files {policy.errfile}"
        base, below = _split(policy.errfile, where)
        found.append(Layout(base, "", below, where))
    return found


def _split(path: str, where: str) -> tuple[str, str]:
    """A user's pattern: the directories before its first letter, and what is below them."""
    pattern.check(path, where)
    base = os.path.dirname(path.partition("%")[0])
    return base, path[len(base) :].lstrip("/")


class Logs:
    """The files of a job; `notice` tells the user something.

    All files are made at once, but the scheduler's, which most jobs do not have.  Raises `LaunchError`.
    """

    def __init__(self, policy: OutputPolicy, places: Places, notice: Callable[[str], None]) -> None:
        self._merge = policy.merge
        self._places = places
        self._layouts = layouts(policy)
        self._notice = notice
        self._files: dict[tuple[int, int], list[_File]] = {}
        self._made: set[str] = set()
        self._open: dict[str, int] = {}
        self._failed: set[str] = set()
        self._said: set[str] = set()
        self._of_ranks: set[str] = set()
        self._seams: dict[str, Seams] = {}
        #: the kinds of streams that share files; they must be written here as whole lines
        self.by_line: set[int] = set()
        ranks = range(places.worlds.ranks)
        try:
            for stream in self._streams(ranks):
                for file in self._files_of(*stream):
                    self._fd(file)
        except LaunchError:
            self.close()
            raise
        self._look_for_shared(ranks)

    def add_world(self, ranks: range) -> None:
        """These are new among the places; of their files, one that cannot be made is named, and the job goes on."""
        for stream in self._streams(ranks):
            for file in self._files_of(*stream):
                try:
                    self._fd(file)
                except (OSError, LaunchError) as error:
                    self._give_up(file, error)
        self._look_for_shared(range(ranks.stop))

    def _streams(self, ranks: Iterable[int]) -> list[tuple[int, int]]:
        return [(kind, rank) for rank in ranks for kind in ((STDOUT,) if self._merge else (STDOUT, STDERR))]

    def _look_for_shared(self, ranks: Iterable[int]) -> None:
        paths = [(file.path, kind) for kind, rank in self._streams(ranks) for file in self._files[kind, rank]]
        self._of_ranks = {path for path, _ in paths}
        for path in _repeated([path for path, _ in paths]):
            self._seams.setdefault(path, Seams())
        self.by_line = {kind for path, kind in paths if path in self._seams}

    def path(self, kind: int, rank: int) -> str | None:
        """The first file of a stream; None if it has none, or stderr goes where stdout goes and `kind` is stderr."""
        if self._merge and kind == STDERR:
            return None
        return next((file.path for file in self._files_of(kind, rank)), None)

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """Append; a file that cannot be written is named once and then left alone."""
        kind = STDOUT if self._merge else kind
        for file in self._files_of(kind, rank):
            if file.path in self._failed:
                continue
            try:
                self._append(file, (kind, rank), data)
            except (OSError, LaunchError) as error:
                self._give_up(file, error)

    def _give_up(self, file: _File, error: OSError | LaunchError) -> None:
        if file.path not in self._failed:
            self._failed.add(file.path)
            why = error.what if isinstance(error, LaunchError) else f"{file.path}: {error.strerror}"
            if why not in self._said:  # a directory may be in the way of many files
                self._said.add(why)
                self._notice(f"{why}; what follows is not kept there")

    def _append(self, file: _File, stream: tuple[int, int], data: bytes) -> None:
        fd = self._fd(file)
        if file.path in self._seams:
            data = self._seams[file.path].join(*stream, data)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def _files_of(self, kind: int, rank: int) -> list[_File]:
        if (kind, rank) not in self._files:
            values = self._values_of(rank)
            found = self._files[kind, rank] = []
            for layout in self._layouts:
                below = layout.out if kind == STDOUT else layout.err
                path = os.path.join(layout.base, pattern.fill(below, values))
                if below and (rank != SERVICE or path not in self._of_ranks):  # the scheduler is no rank
                    found.append(_File(path, layout.base, layout.where))
        return self._files[kind, rank]

    def _values_of(self, rank: int) -> dict[str, str]:
        values = pattern.values_of(rank, self._places)
        if rank == SERVICE:
            values.update(dict.fromkeys("ndom", "scheduler"))
            return values
        worlds = self._places.worlds
        world, own = worlds.of(rank)
        number = f"{own:0{len(str(worlds.size(world)))}d}"
        spawned = world > 1
        values.update(n=number, d=f"rank.{number}")
        values.update(m=f"{world}.{number}" if spawned else number, o=f"{world}/" * spawned + values["d"])
        return values

    def _fd(self, file: _File) -> int:
        fd = self._open.get(file.path)
        if fd is not None:
            return fd
        fd = os.open(file.path, _FLAGS) if file.path in self._made else create(*file)
        self._made.add(file.path)
        if len(self._open) >= _KEPT_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[file.path] = fd
        return fd

    def close(self) -> bool:
        """True if nothing was lost."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        return not self._failed


def create(path: str, base: str, where: str) -> int:
    """A descriptor of `path`, made or emptied.

    `base` is made if it is missing, or taken as it is; directories below it must be the user's own, and `path` no link.
    Raises `LaunchError`, which names `where`.
    """
    folder = base
    try:
        if base:
            os.makedirs(base, exist_ok=True)
        for name in os.path.dirname(path[len(base) :]).split("/"):
            if name:
                folder = os.path.join(folder, name)
                _own_directory(folder, where)
        return os.open(path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror)
        raise LaunchError(f"{error.filename or path}: {why}", where, "name a place you can write to") from None


def _own_directory(path: str, where: str) -> None:
    """Make `path`, or see that it is a directory of this user."""
    try:
        os.mkdir(path)
        return
    except FileExistsError:
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LaunchError(f"{path} is there, and is not a directory of yours", where, "name another place")


def _repeated(paths: Sequence[str]) -> set[str]:
    once: set[str] = set()
    more: set[str] = set()
    for path in paths:
        (more if path in once else once).add(path)
    return more
