"""The directories of log files: made, checked, and held by descriptors, so that nobody can exchange them.

The directory that the user named is used as it is, unless a link of another user leads to it.  Those below it must be
the user's own, and stay the same: each is entered from the descriptor of the one above, without following links, and a
file is opened again in the directory in which it was made.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.system_files import head_of
from mslaunch.launcher.stdio.own_files import SQUASHED, OthersLinkError, create_own, open_folder, open_own

if TYPE_CHECKING:
    from collections.abc import Callable

_HELD = 32  # descriptors of directories, beside those that the user named
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_PRIVATE = 0o700
_PUBLIC = 0o777
_TODO = "name a place you can write to"

#: explanations of errors whose own text is not enough
_WHY = {
    errno.ELOOP: "a link, and mslaunch does not write through links",
    errno.ENOTDIR: "not a directory",
    errno.ENXIO: "a FIFO that nobody reads",
}


class File(NamedTuple):
    """The file of a stream."""

    path: str
    base: str  # the directory that the user named; made if it is missing
    where: str  # what an error names
    private: bool = False  # a `base` that is made is for the user alone

    @property
    def name(self) -> str:
        """Its name in its directory."""
        return os.path.basename(self.path)


class LogFolders:
    """The directories of one attempt; `notice` tells the user something."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._bases: dict[str, int] = {}
        self._held: dict[str, int] = {}  # below these, by path; the one that was used last is the last
        self._warned: set[str] = set()  # bases
        self._known: dict[str, tuple[int, int]] = {}  # path -> device and inode

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (*self._bases.values(), *self._held.values()):
            os.close(fd)
        self._bases.clear()
        self._held.clear()

    def create(self, file: File) -> int:
        """Create or empty the file, and make its directories.  Raises `LaunchError` if one is not the user's own."""
        try:
            return create_own(file.name, os.O_APPEND, self.of(file, make=True))
        except OSError as error:
            raise _failure(error, file) from None

    def make(self, file: File) -> None:
        """Make the directories of a file, not the file.  Raises `LaunchError`."""
        try:
            self.of(file, make=True)
        except OSError as error:
            raise _failure(error, file) from None

    def reopen(self, file: File) -> int:
        """Open a file that was made before, to append.  Raises OSError and `LaunchError`."""
        return open_own(file.name, os.O_APPEND, self.of(file))

    def head(self, file: File, size: int) -> bytes:
        """The first bytes of a file, also after `close`; b"" if it or a directory below the base is not what it was."""
        closed = not self._bases
        try:
            return head_of(file.name, size, flags=os.O_NOFOLLOW, folder=self.of(file))
        except (OSError, LaunchError):
            return b""
        finally:
            if closed:
                self.close()

    def of(self, file: File, make: bool = False) -> int:
        """The descriptor of the directory of a file, until the next call; `make`: make what is missing.

        Raises OSError, and `LaunchError` for a directory that is not the user's own, or no longer the same.
        """
        fd, path = self._base(file, make), file.base
        for name in os.path.dirname(file.path[len(file.base) :]).split("/"):
            if name:
                path = os.path.join(path, name)
                fd = self._below(fd, path, file.where, make)
        return fd

    def _base(self, file: File, make: bool) -> int:
        if file.base not in self._bases:
            mode = _PRIVATE if file.private else _PUBLIC
            fd = self._bases[file.base] = open_folder(file.base, mode if make else None)
            if file.base not in self._warned:
                self._warned.add(file.base)
                self._warn(os.fstat(fd), file.base or os.getcwd())
        return self._bases[file.base]

    def _warn(self, found: os.stat_result, path: str) -> None:
        """Name who else can remove files from a directory that the user named."""
        trusted = {0, os.geteuid()} if os.geteuid() else {0, SQUASHED}
        if found.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            self._notice(
                f"every user can write to {path}, and remove or replace log files there; chmod o-w changes that"
            )
        elif found.st_uid not in trusted:  # also with the sticky bit
            self._notice(f"user {found.st_uid}, whose directory {path} is, can remove or replace log files there")

    def _below(self, above: int, path: str, where: str, make: bool) -> int:
        fd = self._held.pop(path, -1)
        if fd < 0:
            fd = self._enter(above, path, where, make)
            if len(self._held) >= _HELD:
                os.close(self._held.pop(next(iter(self._held))))
        self._held[path] = fd
        return fd

    def _enter(self, above: int, path: str, where: str, make: bool) -> int:
        """Open a directory in the one above it, and check it."""
        name, made = os.path.basename(path), False
        try:
            if make:
                try:
                    os.mkdir(name, dir_fd=above)
                    made = True
                except FileExistsError:
                    pass
            fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError:
            raise LaunchError(f"{path} exists and is not a directory of yours", where, "name another place") from None
        except OSError as error:
            error.filename = path
            raise
        found = os.fstat(fd)
        squashed = made and os.geteuid() == 0 and found.st_uid == SQUASHED
        wrong = ""
        if found.st_uid != os.geteuid() and not squashed:
            wrong = "exists and is not a directory of yours"
        elif self._known.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
            wrong = "is no longer the directory that it was"
        if wrong:
            os.close(fd)
            raise LaunchError(f"{path} {wrong}", where, "name another place")
        return fd


def _failure(error: OSError, file: File) -> LaunchError:
    path = error.filename if error.filename and error.filename != file.name else file.path
    todo = "" if isinstance(error, OthersLinkError) else _TODO
    return LaunchError(f"{path}: {_WHY.get(error.errno or 0, error.strerror)}", file.where, todo)
