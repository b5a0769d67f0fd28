"""Files that the launcher writes where the user said: opened without following a link, and the user's own.

A file that exists must belong to the user and have no other name: else somebody could have put it there, to read what
is written, or to have another file of the user overwritten.  Character devices, such as /dev/null, may be anybody's.
Links to directories in front of the file's name are followed if they belong to the user or to root.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # FIFOs do not block
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40  # in one path: path_resolution(7)
SQUASHED = 65534  #: the owner of what root makes on a network file system that does not trust it


class OthersLinkError(OSError):
    """A link of another user in the path of a directory."""


def create_own(path: str, flags: int = 0, folder: int | None = None) -> int:
    """Create or empty a file; with `folder`, the descriptor of a directory, `path` is a name there.  Raises OSError."""
    if folder is None:
        return _in_folder(path, lambda name, fd: create_own(name, flags, fd))
    try:
        return os.open(path, _FLAGS | flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    except FileExistsError:
        pass
    fd = open_own(path, flags, folder)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)
    return fd


def replace_own(path: str, text: str, new: str) -> None:
    """Write a file as a whole, so that no reader sees half of it: under the name `new` first.  Raises OSError.

    Only a file that `open_own` would open is replaced; a character device is written to, as it is.
    """
    data = text.encode("utf-8", "replace")
    _in_folder(path, lambda name, fd: _replace(name, data, os.path.basename(new), fd))


def _replace(name: str, data: bytes, new: str, folder: int) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(found.st_mode):
            _write(open_own(name, 0, folder), data)
            return
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "it is no regular file")
        _require_own(found)
    fd = create_own(new, 0, folder)
    try:
        _write(fd, data)
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(new, dir_fd=folder)
        raise


def _write(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def open_own(name: str, flags: int, folder: int) -> int:
    """Open a file that exists, as it is.  Raises OSError, also if it is not the user's own."""
    try:
        fd = os.open(name, _FLAGS | flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and links are not followed") from None
        raise
    try:
        _require_own(os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def _require_own(found: os.stat_result) -> None:
    if stat.S_ISCHR(found.st_mode):
        return
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise OSError(errno.EPERM, "it has another name, a hard link, and mslaunch does not write through links")
    if stat.S_ISBLK(found.st_mode):
        raise OSError(errno.EPERM, "it is a device")


# --- directories in front of a file's name


def _in_folder(path: str, use: Callable[[str, int], T]) -> T:
    """Call `use` with the last name of a path and the descriptor of the directory before it."""
    before, slash, name = path.rpartition("/")
    folder = open_folder(before + slash)
    try:
        return use(name or ".", folder)
    finally:
        os.close(folder)


def open_folder(path: str, make: int | None = None) -> int:
    """Open a directory, also through links, if these belong to the user or to root.  Raises OSError.

    `make`: the mode for a directory that is missing; it is made, and so are those above it, but none that a link names.
    """
    seen = "/" if path.startswith("/") else ""
    fd = os.open(seen or ".", _FOLDER)
    left, links = [name for name in path.split("/")[::-1] if name], 0
    given = len(left)  # names of `path` that are left; those of a link come on top
    try:
        while left:
            seen = os.path.join(seen, left.pop())
            may_make = make is not None and len(left) < given
            given = min(given, len(left))
            entered, target = _enter(fd, seen, (0o777 if left else make) if may_make else None)
            if target:
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), seen)
                if target.startswith("/"):
                    entered, seen = os.open("/", _FOLDER), "/"
                else:
                    seen = os.path.dirname(seen)
                left += [name for name in target.split("/")[::-1] if name]
            if entered >= 0:
                os.close(fd)
                fd = entered
    except BaseException:
        os.close(fd)
        raise
    return fd


def _enter(above: int, path: str, make: int | None) -> tuple[int, str]:
    """The descriptor of the directory with the last name of `path`, and ""; for a link -1, and where it leads to."""
    name = os.path.basename(path)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above), ""
    except FileNotFoundError as error:
        if make is None:
            error.filename = path
            raise
    except OSError as error:
        error.filename = path
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        return _follow(above, path)
    try:
        os.mkdir(name, make, dir_fd=above)
    except FileExistsError:
        pass
    except OSError as error:
        error.filename = path
        raise
    return _enter(above, path, None)


def _follow(above: int, path: str) -> tuple[int, str]:
    """The same for what is no directory."""
    name = os.path.basename(path)
    link = os.open(name, _LINK, dir_fd=above)  # this very link, whatever has its name later
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not _is_trusted(found.st_uid):
            why = f"user {found.st_uid}, whose link {path} is, can let it lead anywhere"
            raise OthersLinkError(errno.EPERM, f"{why}; name the directory itself")
        if found.st_dev == os.stat("/proc").st_dev:  # proc(5): what /proc/self/fd/3 reads as may be no path
            return os.open(name, _FOLDER, dir_fd=above), ""
        return -1, os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _is_trusted(uid: int) -> bool:
    """Whether what belongs to this user is ours or root's."""
    return uid in (0, os.geteuid()) or (uid == SQUASHED and os.geteuid() == 0)
