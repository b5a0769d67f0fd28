"""A file with the program and the token of agents that have no standard input, as the tasks of PBS have none.

It has mode 0600, in a new directory of mode 0700 in the user's home, and in the working directory if that is elsewhere:
either may be shared by the hosts of a job.  It is there only while agents are started.  An agent opens directory and
file without following links, and runs nothing that is not its user's own, or that others may read or write.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "agent"
UNREADABLE = 78  #: exit code of an agent that finds the file in no place (EX_CONFIG of sysexits.h)

#: what such an agent runs; its arguments are its node and the directories
READER = """\
import os, stat, sys
def own(fd):
    facts = os.fstat(fd)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o77:
        raise OSError("not only ours")
    return facts.st_mode
def program(place):
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    own(directory)
    fd = os.open("agent", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    if not stat.S_ISREG(own(fd)) or os.fstat(fd).st_nlink > 1:
        raise OSError("not a file of one name")
    return open(fd, "rb").read()
for place in sys.argv[2:]:
    try:
        text = program(place)
    except OSError:
        continue
    exec(text)
    break
else:
    sys.exit(78)
"""


class TokenFile:
    """The same file in each of some places."""

    def __init__(self, places: Iterable[str], text: bytes) -> None:
        """Write it wherever that is possible.  Paths stay as they are: other hosts may mount the same elsewhere."""
        import tempfile

        self.directories: list[str] = []
        for place in dict.fromkeys(filter(os.path.isabs, places)):
            try:
                directory = tempfile.mkdtemp(prefix=".mslaunch-", dir=place)
                self.directories.append(directory)
                _write(os.path.join(directory, NAME), text)
            except OSError:  # read-only, full, or not ours
                continue

    def remove(self) -> None:
        """Remove all of it.  May be called twice."""
        for directory in self.directories:
            try:
                _remove(directory)
            except OSError:  # it has gone
                pass
        self.directories = []


def _remove(directory: str) -> None:
    """Where all may write, another user may have put a link in its place, which is not followed."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            os.unlink(NAME, dir_fd=fd)
    finally:
        os.close(fd)
        os.rmdir(directory)


def _write(path: str, text: bytes) -> None:
    """With all of it on the file server, where other hosts read it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
