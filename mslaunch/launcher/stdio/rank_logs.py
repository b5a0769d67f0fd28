"""Log files: which bytes of which rank are kept where.

A layout is data: a directory, and below it a pattern for standard output and one for standard error.  Open MPI 4.1's
is DIR/1/rank.N/stdout and stderr (mpirun(1), --output-filename), N padded to the digits of the number of ranks; 5.0's
`file=F` and hydra's patterns are others.  For ranks that were spawned, the number of their world stands for the 1.  It
knows neither terminals nor what a line means, and how a file is made is next door (`logfiles`).  The surprising thing:
where one file takes both streams of a rank by a pattern, as msrun's worker_%r.log, the name of a service stands for all
of the name up to %r: scheduler.log.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_plan import SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.stdio import file_patterns, file_rotation
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.file_rotation import File
from mslaunch.launcher.stdio.line_prefix import LineGuard
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_KEPT_OPEN = 256


class Layout(NamedTuple):
    """Where streams are kept: `base` as it was named, made if it is missing, and patterns of the paths below it.

    Beside the letters of `pattern`, %d is rank.N and %n is N, both with N padded; for a service, its name.  %o
    and %m are the same for other layouts than Open MPI's: with the number of the world in front, but for the job's own.
    """

    base: str
    out: str  # "": not kept
    err: str
    where: str  # what a refusal names
    service: str = ""  # the file of a service, if these patterns are for ranks alone; %v is its name
    private: bool = False  # a directory that is made is for the user alone


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
        service = _of_service(below) if policy.merge else ""
        if service:  # msrun's: what was named is the directory
            where = f"log files in {base or '.'}"
        found.append(Layout(base, below, "", where, service, private=bool(service)))
    if policy.errfile is not None:
        where = f"error files {policy.errfile}"
        base, below = _split(policy.errfile, where)
        found.append(Layout(base, "", below, where))
    return found


def _split(path: str, where: str) -> tuple[str, str]:
    """A user's pattern: the directories before its first letter, and what is below them."""
    file_patterns.check(path, where)
    end = path.replace("%%", "..").find("%")
    base = os.path.dirname(path[:end] if end >= 0 else path)
    return base.replace("%%", "%"), path[len(base) :].lstrip("/")


def _of_service(below: str) -> str:
    """logs/worker_%r.log -> logs/%v.log; "" if ranks are not told apart by their name."""
    folder, name = os.path.split(below)
    head, letter, rest = name.rpartition("%r")
    plain = (len(head) - len(head.rstrip("%"))) % 2 == 0  # else it is a percent sign and an r
    return os.path.join(folder, f"%v{rest}") if letter and plain else ""


class RankLogs:
    """The files of a job's attempt; `notice` tells the user something; of `services` files may lie about.

    All files of ranks are made at once, those of a service when it starts.  Raises `LaunchError`.
    """

    def __init__(
        self,
        policy: OutputPolicy,
        places: PatternValues,
        notice: Callable[[str], None],
        attempt: int = 1,
        services: Sequence[int] = (SERVICE,),
    ) -> None:
        self._merge = policy.merge
        self._places = places
        self._layouts = layouts(policy)
        self._notice = notice
        self._attempt = attempt
        self._files: dict[tuple[int, int], list[File]] = {}
        self._made: set[str] = set()
        self._open: dict[str, int] = {}
        self._failed: set[str] = set()
        self._said: set[str] = set()
        self._of_ranks: set[str] = set()
        self._seams: dict[str, LineGuard] = {}
        #: the kinds of streams that share files; they must be written here as whole lines
        self.by_line: set[int] = set()
        self._look_for_shared(places.ranks)
        if policy.keep and attempt == 1:
            self._set_aside([*places.ranks, *services])
        try:
            for stream in self._streams(places.ranks):
                for file in self._files_of(*stream):
                    self._fd(file)
        except LaunchError:
            self.close()
            raise

    def _set_aside(self, numbers: Iterable[int]) -> None:
        files = {file.path: file for stream in self._streams(numbers) for file in self._files_of(*stream)}
        file_rotation.set_aside(list(files.values()))

    def add_world(self, ranks: range) -> None:
        """These are new among the places; of their files, one that cannot be made is named, and the job goes on."""
        self._make(ranks)
        self._look_for_shared(self._places.ranks)

    def add_service(self, number: int) -> None:
        """It runs: its files are there from now on, even if it says nothing."""
        self._make([number])

    def _make(self, numbers: Iterable[int]) -> None:
        for stream in self._streams(numbers):
            for file in self._files_of(*stream):
                try:
                    self._fd(file)
                except (OSError, LaunchError) as error:
                    self._give_up(file, error)

    def _streams(self, ranks: Iterable[int]) -> list[tuple[int, int]]:
        return [(kind, rank) for rank in ranks for kind in ((STDOUT,) if self._merge else (STDOUT, STDERR))]

    def _look_for_shared(self, ranks: Iterable[int]) -> None:
        paths = [(file.path, kind) for kind, rank in self._streams(ranks) for file in self._files_of(kind, rank)]
        self._of_ranks = {path for path, _ in paths}
        for path in _repeated([path for path, _ in paths]):
            self._seams.setdefault(path, LineGuard())
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

    def _give_up(self, file: File, error: OSError | LaunchError) -> None:
        if file.path not in self._failed:
            self._failed.add(file.path)
            why = error.what if isinstance(error, LaunchError) else f"{file.path}: {error.strerror}"
            if why not in self._said:  # a directory may be in the way of many files
                self._said.add(why)
                self._notice(f"{why}; what follows is not kept there")

    def _append(self, file: File, stream: tuple[int, int], data: bytes) -> None:
        fd = self._fd(file)
        if file.path in self._seams:
            data = self._seams[file.path].join(*stream, data)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def _files_of(self, kind: int, rank: int) -> list[File]:
        if (kind, rank) not in self._files:
            values = self._values_of(rank)
            found = self._files[kind, rank] = []
            for layout in self._layouts:
                below = layout.out if kind == STDOUT else layout.err
                if rank < 0 and layout.service:
                    below = layout.service
                path = os.path.join(layout.base, file_patterns.fill(below, values))
                path = file_rotation.of_attempt(path, self._attempt)
                if below and (rank >= 0 or path not in self._of_ranks):  # a service is no rank
                    found.append(File(path, layout.base, layout.where, layout.private))
        return self._files[kind, rank]

    def _values_of(self, rank: int) -> dict[str, str]:
        values = file_patterns.values_of(rank, self._places)
        if rank < 0:
            name = file_patterns.service_name(rank)
            values.update(dict.fromkeys("ndom", name), v=name.replace(".", "_"))
            return values
        worlds = self._places.worlds
        world, own = worlds.of(rank)
        ranks = worlds.size(world) + (0 if world > 1 else self._places.ranks.start)
        number = f"{own:0{len(str(ranks))}d}"
        spawned = world > 1
        values.update(n=number, d=f"rank.{number}")
        values.update(m=f"{world}.{number}" if spawned else number, o=f"{world}/" * spawned + values["d"])
        return values

    def _fd(self, file: File) -> int:
        fd = self._open.get(file.path)
        if fd is not None:
            return fd
        fd = os.open(file.path, file_rotation.FLAGS) if file.path in self._made else file_rotation.create(file)
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


def _repeated(paths: Sequence[str]) -> set[str]:
    once: set[str] = set()
    more: set[str] = set()
    for path in paths:
        (more if path in once else once).add(path)
    return more
