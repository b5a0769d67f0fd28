"""The session directory of a node: the files that were sent to it, and a directory for each rank with links to them.

It is private (mode 700), below TMPDIR, made when first needed and removed when the agent ends.  Should the agent be
killed, its guard removes it: the guard has the name before anything is there.  There is one copy of the files for all
ranks of the node; each rank sees it through links in a directory of its own, so that what ranks write does not mix (as
mpirun 4.1.4, which names that directory in OMPI_FILE_LOCATION).
"""

from __future__ import annotations

import os
import sys
import time

from mslaunch.errors import EXIT_NOT_STARTED, LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATIENCE = 10.0  # seconds in which folders of other users are emptied with their rights, all together

#: Empties the folder that is its descriptor 3 with the rights of a user, the argument.  The group is nobody's: what
#: others may do for being in a group of that user is not wanted.
_EMPTIES = """\
import os, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(*[int(sys.argv[1])] * 3)
os.fchdir(3)
os.execv("/bin/sh", ["sh", "-c", "chmod -R u+rwX .; exec find . -mindepth 1 -delete"])
"""
_FOLDERS = 1 << 20  # that are removed: others may go on making some


class SessionDir:
    """One node's session directory."""

    def __init__(self, path: str, guard: int, stored: Callable[[str, str], None]) -> None:
        """`guard` is its descriptor; `stored` is called for each file: "" and "", or what is wrong and what to do."""
        self.path = path
        self._base = os.path.dirname(path)
        self._stored = stored
        self._made = False
        self._file: BinaryIO | None = None
        self._mode = 0
        try:
            os.write(guard, os.fsencode(self.path) + b"\0")
        except OSError:  # the guard has ended: the agent is about to notice it, and ends too
            pass

    def _below(self, *parts: str) -> str:
        if not self._made:
            os.mkdir(self.path, 0o700)
            self._made = True
        return os.path.join(self.path, *parts)

    # --- files, one after the other

    def begin(self, name: str, mode: int) -> None:
        """The file `name`, a relative path, is about to come; its permissions will be `mode`."""
        try:
            path = self._below("files", name)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            self._file = open(path, "xb")  # noqa: SIM115  (it is closed when its end has come)
            self._mode = mode
        except OSError as error:
            self._fail(name, error)

    def write(self, data: bytes) -> None:
        """More of it; b"" is its end.  What follows an error is dropped."""
        if self._file is None:
            return
        try:
            if data:
                self._file.write(data)
                return
            os.fchmod(self._file.fileno(), self._mode & 0o777)
            self._file.close()
        except OSError as error:
            self._fail(os.path.relpath(self._file.name, os.path.join(self.path, "files")), error)
            return
        self._file = None
        self._stored("", "")

    def _fail(self, name: str, error: OSError) -> None:
        file, self._file = self._file, None
        try:
            if file:
                file.close()
        except OSError:  # there is no space for its last bytes either
            pass
        what = f"the file {name} could not be stored in {self._base}: {error.strerror}"
        self._stored(what, "TMPDIR, as that host's login sets it, names the directory to use")

    # --- ranks

    def rank_dir(self, name: str) -> str:
        """The directory of a rank or service, with links to the files and folders that came; raises `LaunchError`."""
        folder = self.folder(name, exist_ok=True)
        files = os.path.join(self.path, "files")
        try:
            for file in set(listed(files)) - set(os.listdir(folder)):
                os.symlink(os.path.join(files, file), os.path.join(folder, file))
        except OSError as error:
            raise self._cannot_make(error) from None
        return folder

    def folder(self, name: str, exist_ok: bool = False) -> str:
        """A directory, also for a library that keeps files; raises `LaunchError`."""
        try:
            folder = self._below(name)
            os.makedirs(folder, 0o700, exist_ok)
        except OSError as error:
            raise self._cannot_make(error) from None
        return folder

    def _cannot_make(self, error: OSError) -> LaunchError:
        what = f"no session directory could be made in {self._base}: {error.strerror}"
        return LaunchError(
            what,
            todo="TMPDIR names another place, on this host or in a start-up file of that one",
            code=EXIT_NOT_STARTED,
        )

    def close(self) -> None:
        """Remove it with all that is in it."""
        if self._made:
            remove(self.path)


def remove(path: str) -> None:
    """Remove a tree of ours, also where a rank has made a folder that nobody may write to.

    A rank may have given parts of it to another user, who can exchange a folder for a link at any moment, and can move
    there what only we could delete.  So what is below a folder of another user is removed with that user's rights, if
    we are root, or stays, and a line on standard error says so.  Each folder is reached by a descriptor, never through
    a link, and a folder in a folder is moved to the top before it is looked at: then two descriptors are enough,
    however deep it was.  A link in the place of the tree, which only a TMPDIR without the sticky bit allows, stays, and
    so does what it leads to.
    """
    top = _open_folder(path)
    if top is None:
        return
    if os.fstat(top).st_uid == os.geteuid():
        _empty(top)
    os.close(top)
    _quietly(os.rmdir, path)
    if os.path.lexists(path):
        text = f"mslaunch: {path} stays: it has a folder of another user, and in that what this user cannot remove\n"
        _quietly(os.write, 2, os.fsencode(text))


def _empty(top: int) -> None:
    due = time.monotonic() + _PATIENCE
    prefix, moved = os.urandom(8).hex(), 0
    waiting = [name for name in _entries(top) if not _unlinked(name, top)]
    while waiting and moved < _FOLDERS:
        name = waiting.pop()
        folder = _open_folder(name, top)
        if folder is None:
            continue
        owner = os.fstat(folder).st_uid
        if owner != os.geteuid():
            _empty_as(owner, folder, due)
        for below in _entries(folder) if owner == os.geteuid() else ():
            if not _unlinked(below, folder):
                moved += 1
                waiting += _moved(below, folder, f"{prefix}{moved}", top)
        os.close(folder)
        _quietly(os.rmdir, name, dir_fd=top)


def _empty_as(user: int, folder: int, due: float) -> None:
    """Empty a folder of another user with the rights of that user, as far as they go; only root can take them.

    That user may have moved there what only we can delete.  It is no matter what happens there meanwhile: the process
    has no more rights than who does it.
    """
    if os.geteuid() or not sys.executable or time.monotonic() > due:
        return
    argv = [sys.executable, "-I", "-S", "-c", _EMPTIES, str(user)]
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawn(argv[0], argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, folder, 3), *nothing], setpgroup=0)
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > due:
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.005)
    except OSError:  # no process more, or it was waited for
        pass


def _open_folder(name: str, above: int | None = None) -> int | None:
    """A descriptor of a folder, which is made writable if it is ours; None if there is none, or a link to one."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=above)
        try:
            found = os.fstat(fd)
            if found.st_uid == os.geteuid() and found.st_mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{fd}", 0o700)  # there is no other way from a descriptor without rights
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:  # gone already, or not to be had
        return None


def _entries(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _unlinked(name: str, folder: int) -> bool:
    """Remove what is no folder; False for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    except OSError:  # gone already, or not to be had
        pass
    return True


def _moved(name: str, folder: int, new: str, top: int) -> list[str]:
    """Move a folder to the top, under a new name; [] if that cannot be done."""
    fd = _open_folder(name, folder)  # one that nobody may write to cannot be moved
    if fd is not None:
        os.close(fd)
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    except OSError:  # gone already, or of another user's
        return []
    return [new]


def _quietly(act: Callable[..., object], *args: object, **how: object) -> None:
    try:
        act(*args, **how)
    except OSError:  # gone already, or not to be had
        pass
