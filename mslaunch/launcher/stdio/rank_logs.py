"""Log files of ranks and services: which bytes go to which files of the layouts.

Files of ranks are made before anything is started, those of a service when it starts.  At most 256 stay open; others
are opened again to append.  Streams that share a file are written there line by line.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_plan import SERVICE_BASE, is_service
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.stdio import file_patterns, file_rotation
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.file_rotation import File
from mslaunch.launcher.stdio.line_prefix import LineGuard
from mslaunch.launcher.stdio.log_layouts import layouts
from mslaunch.launcher.stdio.terminal import write_all
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_KEPT_OPEN = 256


class RankLogs:
    """The files of one attempt.  Raises `LaunchError` if one cannot be made.

    `notice` tells the user something; `services` may have left files in an earlier launch.
    """

    def __init__(
        self,
        policy: OutputPolicy,
        places: PatternValues,
        notice: Callable[[str], None],
        attempt: int = 1,
        services: Sequence[int] = (SERVICE_BASE,),
    ) -> None:
        self._places = places
        self._notice = notice
        self._attempt = attempt
        self._layouts = layouts(policy)
        self._kinds = (STDOUT,) if policy.merge else (STDOUT, STDERR)
        self.keeps_stdout = any(layout.out for layout in self._layouts)
        self._files: dict[tuple[int, int], list[File]] = {}
        self._made: set[str] = set()
        self._open: dict[str, int] = {}
        self._failed: dict[str, str] = {}  # path -> why
        self._of_ranks: set[str] = set()
        self._guards: dict[str, LineGuard] = {}  # of shared files
        self.by_line: set[int] = set()  #: the kinds of streams that share files; `write` must get whole lines of them
        self._find_shared()
        if policy.keep and attempt == 1:
            files = {file.path: file for _, file in self._all_files([*places.ranks, *services])}
            file_rotation.rename_old(list(files.values()))
        try:
            for _, file in self._all_files(places.ranks):
                self._fd(file)
        except LaunchError:
            self.close()
            raise

    def add_world(self, ranks: range) -> None:
        """Make the files of new ranks; one that cannot be made is reported, and the job goes on."""
        self._make(ranks)
        self._find_shared()

    def add_service(self, number: int) -> None:
        """A service runs: its files exist from now on, even if it prints nothing."""
        self._make([number])

    def _make(self, numbers: Iterable[int]) -> None:
        for _, file in self._all_files(numbers):
            try:
                self._fd(file)
            except (OSError, LaunchError) as error:
                self._give_up(file, error)

    def _all_files(self, numbers: Iterable[int]) -> list[tuple[int, File]]:
        """The kind of stream and the file, of all streams of these ranks and services."""
        return [(kind, file) for number in numbers for kind in self._kinds for file in self._files_of(kind, number)]

    def _find_shared(self) -> None:
        files = self._all_files(self._places.ranks)
        self._of_ranks = set()
        for _, file in files:
            if file.path in self._of_ranks:
                self._guards.setdefault(file.path, LineGuard())
            self._of_ranks.add(file.path)
        self.by_line = {kind for kind, file in files if file.path in self._guards}

    def path(self, kind: int, rank: int) -> str | None:
        """The first file of a stream; None for a stderr that goes where stdout goes."""
        return next((file.path for file in self._files_of(kind, rank)), None) if kind in self._kinds else None

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """Append; a file that cannot be written is reported once and then left alone."""
        kind = kind if kind in self._kinds else STDOUT
        for file in self._files_of(kind, rank):
            if file.path in self._failed:
                continue
            try:
                self._append(file, (kind, rank), data)
            except (OSError, LaunchError) as error:
                self._give_up(file, error)

    def _give_up(self, file: File, error: OSError | LaunchError) -> None:
        why = error.what if isinstance(error, LaunchError) else f"{file.path}: {error.strerror}"
        if why not in self._failed.values():  # one directory may be in the way of many files
            self._notice(f"{why}; further output is not kept there")
        self._failed[file.path] = why

    def _append(self, file: File, stream: tuple[int, int], data: bytes) -> None:
        fd = self._fd(file)
        if file.path in self._guards:
            data = self._guards[file.path].join(*stream, data)
        write_all(fd, data)

    def _files_of(self, kind: int, rank: int) -> list[File]:
        files = self._files.get((kind, rank))
        if files is None:
            files = self._files[kind, rank] = []
            service, values = is_service(rank), self._values_of(rank)
            for layout in self._layouts:
                below = (service and layout.service) or (layout.out if kind == STDOUT else layout.err)
                path = os.path.join(layout.base, file_patterns.fill(below, values))
                path = file_rotation.of_attempt(path, self._attempt)
                if below and not (service and path in self._of_ranks):
                    files.append(File(path, layout.base, layout.where, layout.private))
        return files

    def _values_of(self, rank: int) -> dict[str, str]:
        """The letters of `Layout`."""
        values = file_patterns.values_of(rank, self._places)
        if is_service(rank):
            name = service_info(rank).name
            return {**values, **dict.fromkeys("ndom", name), "v": name.replace(".", "_")}
        worlds = self._places.worlds
        world, own = worlds.of(rank)
        spawned = world > 1
        ranks = worlds.size(world) + (0 if spawned else self._places.ranks.start)
        number = f"{own:0{len(str(ranks))}d}"
        values.update(n=number, d=f"rank.{number}", m=f"{world}." * spawned + number)
        return {**values, "o": f"{world}/" * spawned + values["d"]}

    def _fd(self, file: File) -> int:
        fd = self._open.get(file.path)
        if fd is None:
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
