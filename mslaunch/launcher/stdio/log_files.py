"""Log files of ranks and services: which bytes go to which files, how these are created, and what is renamed.

`log_layouts` says where the files are.  Those of ranks are created before anything is started, those of a service when
it starts.  At most 256 stay open; others are opened again to append.  Streams that share a file are written there line
by line.

Logs often lie in /tmp, so no link is followed, and directories below the one that the user named must be the user's
own.  With `OutputPolicy.keep` all files of an earlier launch are renamed to the same number, the lowest that none of
them has used: worker_0.log.2 and scheduler.log.2 are of one launch, though one of them may have been empty.
"""

from __future__ import annotations

import os
import stat

from mslaunch.datamodel.node_plan import SERVICE_BASE, is_service
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.stdio import file_patterns
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.line_prefix import LineGuard
from mslaunch.launcher.stdio.log_folders import File, LogFolders
from mslaunch.launcher.stdio.log_layouts import layouts
from mslaunch.launcher.stdio.stream_choice import stream_choice
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
        chosen = policy.streams is None or bool(policy.streams.redirects or policy.streams.tee)
        self.keeps_stdout = chosen and any(layout.out for layout in self._layouts)
        self._files: dict[tuple[int, int], list[File]] = {}
        self._made: set[str] = set()
        self._open: dict[str, int] = {}
        self._folders = LogFolders(notice)
        self._failed: dict[str, str] = {}  # path -> why
        self._of_ranks: set[str] = set()
        self._streams = stream_choice(policy, places)
        self._guards: dict[str, LineGuard] = {}  # of shared files
        self.by_line: set[int] = set()  #: the kinds of streams that share files; `write` must get whole lines of them
        self._find_shared()
        try:
            if policy.keep and attempt == 1:
                files = {file.path: file for _, file in self._all_files([*places.ranks, *services])}
                rename_old(list(files.values()), self._folders)
            for _, file in self._all_files(places.ranks):
                self._fd(file)
            self._make_folders()
        except LaunchError:
            self.close()
            raise

    def error_file(self, rank: int) -> File | None:
        """The error.json of a rank that has a directory of its own; the rank makes it."""
        layout = next((layout for layout in self._layouts if layout.folder), None)
        if layout is None:
            return None
        path = os.path.join(layout.base, file_patterns.fill(layout.folder, self._values_of(rank)), "error.json")
        return File(path, layout.base, layout.where, layout.private)

    def head(self, file: File, size: int) -> bytes:
        """The first bytes of a file below directories that were made here; through no link."""
        return self._folders.head(file, size)

    def _make_folders(self) -> None:
        """Make the directories of all ranks that have one of their own."""
        for file in map(self.error_file, self._places.ranks):
            if file is not None:
                self._folders.make(file)

    def add(self, numbers: Iterable[int]) -> None:
        """Make the files of new ranks or services; one that cannot be made is reported, and the job goes on."""
        for _, file in self._all_files(numbers):
            try:
                self._fd(file)
            except (OSError, LaunchError) as error:
                self._give_up(file, error)
        self._find_shared()

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
            if file.path not in self._failed:
                try:
                    guard = self._guards.get(file.path)
                    write_all(self._fd(file), guard.join(kind, rank, data) if guard else data)
                except (OSError, LaunchError) as error:
                    self._give_up(file, error)

    def _give_up(self, file: File, error: OSError | LaunchError) -> None:
        why = error.what if isinstance(error, LaunchError) else f"{file.path}: {error.strerror}"
        if why not in self._failed.values():  # one bad directory may affect many files
            self._notice(f"{why}; further output is not kept there")
        self._failed[file.path] = why

    def _files_of(self, kind: int, rank: int) -> list[File]:
        files = self._files.get((kind, rank))
        if files is None:
            files = self._files[kind, rank] = []
            service, values = is_service(rank), self._values_of(rank)
            for layout in self._layouts if self._streams is None or self._streams.kept(kind, rank) else ():
                below = (service and layout.service) or (layout.out if kind == STDOUT else layout.err)
                path = os.path.join(layout.base, file_patterns.fill(below, values))
                path = path if layout.folder else of_attempt(path, self._attempt)
                if below and not (service and path in self._of_ranks):
                    files.append(File(path, layout.base, layout.where, layout.private))
        return files

    def _values_of(self, rank: int) -> dict[str, str]:
        """The letters of `Layout`."""
        values = {**self._places.of(rank), "t": str(self._attempt - 1)}
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
            fd = self._folders.reopen(file) if file.path in self._made else self._folders.create(file)
            self._made.add(file.path)
            if len(self._open) >= _KEPT_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[file.path] = fd
        return fd

    def close(self) -> bool:
        """Close all files.  Returns True if nothing was lost."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._folders.close()
        for layout in self._layouts:
            if layout.passing:
                remove_empty(layout.base)
        return not self._failed


def remove_empty(top: str) -> None:
    """Remove a directory that was made for this launch, as far as nothing is in it."""
    for path, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(path)
        except OSError:  # it has files
            pass


# --- files of earlier launches and attempts


def of_attempt(path: str, attempt: int) -> str:
    """The path for an attempt: worker_0.log, worker_0.attempt-2.log; a device such as /dev/null stays as it is."""
    if attempt == 1 or (os.path.exists(path) and not os.path.isfile(path)):
        return path
    stem, extension = os.path.splitext(path)
    if extension[1:].isdecimal():  # it is a rank's number
        stem, extension = path, ""
    return f"{stem}.attempt-{attempt}{extension}"


def rename_old(files: Sequence[File], folders: LogFolders) -> None:
    """Rename what an earlier launch has left in these files, and in those of later attempts, to FILE.N.

    Raises `LaunchError`.
    """
    found = [file for file in files if _size(file, folders) >= 0]
    attempt = 2
    while later := [file for file in (_later(file, attempt) for file in files) if _size(file, folders) >= 0]:
        found += later
        attempt += 1
    if not any(_size(file, folders) for file in found):
        return
    number = _free_number({file.path for file in [*files, *found]})
    for file in found:
        try:
            folder = folders.of(file)
            os.rename(file.name, f"{file.name}.{number}", src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            what = f"{file.path} is from an earlier launch and cannot be renamed: {error.strerror}"
            raise LaunchError(what, file.where, "name another place") from None


def _later(file: File, attempt: int) -> File:
    later = of_attempt(file.path, attempt)
    return file._replace(path=later if later != file.path else "")  # "": there is no such file


def _size(file: File, folders: LogFolders) -> int:
    """The size of a regular file in directories of the user; -1 if there is none."""
    try:
        found = os.stat(file.name, dir_fd=folders.of(file), follow_symlinks=False)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _free_number(paths: set[str]) -> int:
    """The lowest N for which no PATH.N exists, or is itself one of the paths."""
    found = set(paths)
    for prefix in {path[: path.rfind("/") + 1] for path in paths}:
        try:
            found.update(prefix + name for name in os.listdir(prefix or "."))
        except OSError:  # it will be made
            continue
    used = {number for head, _, number in (path.rpartition(".") for path in found) if head in paths}
    return next(number for number in range(1, len(used) + 2) if str(number) not in used)
