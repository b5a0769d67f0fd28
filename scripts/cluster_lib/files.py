"""The directory of a cluster: its owner, its lock, and the state that the commands share.

The lock is a file of the directory that `down` deletes, so a process that got the lock checks that the file still has
that name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from cluster_lib import ClusterError
from cluster_lib.kernel import Process

HEAD = "head"
MAX_HOSTS = 200  # the switch waits with select(2), which ends at descriptor 1023; no machine has room for more anyway


class Place(NamedTuple):
    """A host, or the head; its name is also that of its port on the bridge or switch."""

    name: str
    address: str
    process: Process | None = None  # its pid 1, once started
    cut: bool = False


class State(NamedTuple):
    """What the verbs need to know of a running cluster; DIR/state.json."""

    anchor: Process  # everything else dies with it
    complete: bool  # False: `up` is still at work, or died at it
    network: str = "bridge"  # bridge, netem, switch
    delay: float = 0.0  # ms, one way
    loss: float = 0.0  # percent
    shell: str = "/bin/sh"
    places: tuple[Place, ...] = ()

    @property
    def hosts(self) -> tuple[Place, ...]:
        """All places but the head."""
        return tuple(place for place in self.places if place.name != HEAD)

    def find(self, name: str) -> Place:
        """The place of that name.  Raises ClusterError."""
        for place in self.places:
            if place.name == name:
                return place
        names = [place.name for place in self.hosts]
        known = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        raise ClusterError(f"there is no {name} in this cluster, only {HEAD} and {known}")

    def find_alive(self, name: str) -> tuple[Place, Process]:
        """The place of that name and its pid 1.  Raises ClusterError if there is none or it was killed."""
        place = self.find(name)
        if place.process is None or not place.process.alive:
            raise ClusterError(f"{name} has been killed; hosts come back with the next `up` only")
        return place, place.process

    def replace_place(self, new: Place) -> State:
        """With that place instead of the one of the same name."""
        return self._replace(places=tuple(new if place.name == new.name else place for place in self.places))


def name_places(count: int) -> tuple[Place, ...]:
    """The head and `count` hosts: n01 is 10.77.1.1."""
    return (Place(HEAD, "10.77.0.1"), *(Place(f"n{i:02d}", f"10.77.1.{i}") for i in range(1, count + 1)))


class Directory:
    """The directory of one cluster; `path` is absolute, and no symbolic link leads there."""

    def __init__(self, path: str) -> None:
        parent, name = os.path.split(os.path.abspath(path))
        self.path = os.path.join(os.path.realpath(parent), name)  # a link as its last part is refused, see check_owner
        if re.search(r'[\s:%"#]', self.path):  # they mean something in passwd or sshd_config
            raise ClusterError(f'--dir: white space and any of :%"# cannot be in the path: {self.path!r}')

    def join(self, *parts: str) -> str:
        """A path inside."""
        return os.path.join(self.path, *parts)

    def home(self, name: str) -> str:
        """The home directory of a place."""
        return self.join("home", name)

    # -- the lock -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, timeout: float = 25.0) -> Iterator[None]:
        """Make the directory if need be and hold its lock.

        Raises ClusterError if the directory is not ours, or if others hold the lock for `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self._claim()
            fd = os.open(self.join("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock_by(fd, deadline, self.path)
                if _same_file(fd, self.join("lock")):
                    yield
                    return
            finally:
                os.close(fd)

    def _claim(self) -> None:
        try:
            os.makedirs(self.path, mode=0o700)
        except FileExistsError:
            self.check_owner()
            if os.listdir(self.path) and not os.path.exists(self.join("lock")):
                raise ClusterError(f"{self.path} is in use and not by a cluster: name another with --dir") from None
        os.chmod(self.path, 0o700)

    def check_owner(self) -> None:
        """Raise ClusterError if the path is not a directory of this user (anyone may make names in /tmp)."""
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ClusterError(f"{self.path} is not a directory of this user: name another with --dir")

    # -- the state ----------------------------------------------------------------------------------------------

    def load(self) -> State | None:
        """The state, or None if there is none.  Raises ClusterError if it is another user's."""
        try:
            self.check_owner()
            with open(self.join("state.json"), encoding="utf-8") as file:
                raw = json.load(file)
        except FileNotFoundError:
            return None
        places = tuple(Place(n, a, Process(*p) if p else None, c) for n, a, p, c in raw.pop("places"))
        return State(**{**raw, "anchor": Process(*raw["anchor"]), "places": places})

    def running(self) -> State:
        """The state of a cluster that is up.  Raises ClusterError."""
        state = self.load()
        if state is None or not state.complete or not state.anchor.alive:
            raise ClusterError(f"no cluster is up in {self.path}: `up N` starts one")
        return state

    def save(self, state: State) -> None:
        """Replace the state in one step: a reader needs no lock."""
        write(self.join("state.json.new"), json.dumps(state._asdict()), 0o600)
        os.replace(self.join("state.json.new"), self.join("state.json"))

    def clear(self) -> None:
        """Delete everything that a cluster made here, but for the lock."""
        import shutil  # slow to import, and `exec` need not

        for name in ("home", "etc", "keys", "log"):
            shutil.rmtree(self.join(name), ignore_errors=True)
        for name in ("switch.sock", "state.json.new", "state.json"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.join(name))

    def remove(self) -> None:
        """Delete everything, the lock too, and the directory itself if that leaves it empty."""
        self.clear()
        with contextlib.suppress(OSError):
            os.unlink(self.join("lock"))
            os.rmdir(self.path)


def _lock_by(fd: int, deadline: float, path: str) -> None:
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ClusterError(f"another cluster command has been at work in {path} for too long") from None
            time.sleep(0.02)  # flock(2) has no bound of its own


def _same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def write(path: str, text: str, mode: int = 0o644) -> None:
    """A whole small file, its mode set before anything is in it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
