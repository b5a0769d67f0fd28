"""libpmix, loaded as a server of the ranks of this node; its upcalls are queued for the event loop.

The library makes its upcalls on a thread of its own.  The arguments are copied there and queued, and a byte in a pipe
wakes the event loop, whose thread answers.  The library reads the environment by C's getenv, where a launch around us
may have left variables that mislead it.  They are removed there, which does not change Python's `os.environ`.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections import deque

from mslaunch.agent.mpi.pmix.libpmix_callbacks import (  # fmt: skip
    BAD_PARAM,
    COUNT,
    DONE,
    FETCHED,
    INFOS,
    INT,
    PLAIN,
    PROCS,
    SLOTS,
    SUCCESS,
    TEXT,
    TEXTS,
    VOID,
    PmixAnswers,
    Upcall,
)
from mslaunch.agent.mpi.pmix.pmix_job_info import place_items, topology_items
from mslaunch.agent.mpi.pmix.pmix_values import Memory, Proc, raw, text
from mslaunch.agent.mpi.pmix.pmix_values import read_strings as strings
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from mslaunch.agent.mpi.pmix.libpmix_callbacks import Slot
    from mslaunch.agent.mpi.pmix.pmix_values import Item

OLDEST = (3, 2)
OURS = ("PMIX_", "OMPI_", "PRTE_")  #: variables of a launch around us


class PmixLibrary:
    """The library as a server.  One for the whole life of a process: a second one would abort it."""

    def __init__(self, path: str, items: Sequence[Item], settings: Sequence[tuple[str, str]] = ()) -> None:
        """`settings`: what the library finds in its environment."""
        self._libc = _libc()
        _clean(self._libc, settings)
        self._library, self.version = _load(path)
        self.answers = PmixAnswers(self._libc)
        self._queue: deque[Upcall] = deque()
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd = self._pipe[0]  #: readable when there is something to `take`
        #: larger than any library's, and zero: what is new in a later one is not there
        self._module = (VOID * 64)()
        self._functions = [self._function(slot, place) for place, slot in SLOTS.items()]
        self._fetched = FETCHED(self._on_fetched)
        self._dismissed = PLAIN(self._on_dismissed)
        memory = Memory()
        status = self._library.PMIx_server_init(self._module, memory.infos(items), len(items))
        if status not in (SUCCESS, DONE):
            raise LaunchError(
                f"this library of PMIx does not start: {self.error(status)}", path, "start with --mpi pmix:PATH another"
            )
        self.topology = topology_items(self._library)

    # --- upcalls: on the library's thread

    def _function(self, slot: Slot, place: int) -> object:
        """The function that C calls for a slot.  It must not raise: ctypes would print that, and return garbage."""

        def called(*arguments: Any) -> int | None:
            try:
                *given, answer, data = arguments
                blob = self._blob(given) if slot.name == "fence" else ()
                copied = slot.copy(*given)
                if copied is None:
                    return DONE if slot.returns == SUCCESS else slot.returns
                handle = (answer or 0, data or 0) if slot.returns in (SUCCESS, None) else (0, 0)
                self._post(Upcall(slot.name, copied + blob, handle))
            except Exception:  # whatever it is, the rank that asked gets an error
                if slot.returns is not None:
                    return BAD_PARAM
                PLAIN(arguments[-2])(BAD_PARAM, arguments[-1])
            return slot.returns

        function = ctypes.CFUNCTYPE(INT if slot.returns is not None else None, *slot.takes)(called)
        self._module[place] = ctypes.cast(function, VOID).value
        return function

    def _blob(self, given: list[Any]) -> tuple[bytes]:
        """The data of a fence, which we have to free."""
        size, data = given.pop(), given.pop()
        blob = ctypes.string_at(data, size) if data and size else b""
        self._libc.free(data)
        return (blob,)

    def _on_fetched(self, status: int, data: int | None, size: int, number: int | None) -> None:
        blob = ctypes.string_at(data, size) if data and size else b""
        self._post(Upcall("fetched", (number or 0, status, blob), (0, 0)))

    def _post(self, upcall: Upcall) -> None:
        self._queue.append(upcall)
        try:
            os.write(self._pipe[1], b"!")
        except OSError:  # full: the loop is woken already; closed: the agent is ending
            pass

    # --- for the loop

    def take(self) -> list[Upcall]:
        """The upcalls since the last call."""
        try:
            os.read(self._pipe[0], 4096)
        except BlockingIOError:
            pass
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def error(self, status: int) -> str:
        """The library's words for a status."""
        return text(self._library.PMIx_Error_string(status))

    def place(self, cpus: Iterable[int]) -> list[Item]:
        """Job info of a rank that is bound to `cpus`."""
        return place_items(self._library, cpus)

    def register(self, namespace: str, local: int, items: Sequence[Item]) -> None:
        """Register a world with `local` ranks on this node.  Blocks until that is done: milliseconds."""
        memory = Memory()
        infos = memory.infos(items)
        status = self._library.PMIx_server_register_nspace(raw(namespace), local, infos, len(items), None, None)
        self._check(status, "a world of ranks")

    def admit(self, namespace: str, rank: int) -> None:
        """Let a rank of this node connect, as the same user as this process."""
        proc, user = Proc(raw(namespace), rank), (os.getuid(), os.getgid())
        self._check(self._library.PMIx_server_register_client(proc, *user, None, None, None), "a rank")

    def environment(self, namespace: str, rank: int) -> dict[str, str]:
        """The variables by which a rank finds this server."""
        words = TEXTS()
        status = self._library.PMIx_server_setup_fork(Proc(raw(namespace), rank), ctypes.byref(words))
        self._check(status, "a rank's environment")
        found = strings(words)
        for index in range(len(found)):
            self._libc.free(ctypes.cast(words, ctypes.POINTER(VOID))[index])
        self._libc.free(words)
        return dict(word.partition("=")[::2] for word in found)

    def fetch(self, namespace: str, rank: int, number: int) -> int:
        """Ask for what a local rank puts; once it has, an upcall "fetched" brings it, with `number`."""
        status: int = self._library.PMIx_server_dmodex_request(Proc(raw(namespace), rank), self._fetched, number)
        return status

    def dismiss(self, members: Sequence[tuple[str, int]], seconds: float) -> None:
        """Remove the files that these ranks, which have ended, wanted removed.  Waits no longer than `seconds`."""
        for name, rank in members:
            self._library.PMIx_server_deregister_client(Proc(raw(name), rank), self._dismissed, None)
        left, end = len(members), time.monotonic() + seconds
        while left > 0 and select.select([self._pipe[0]], [], [], max(0.0, end - time.monotonic()))[0]:
            left -= sum(upcall.name == "dismissed" for upcall in self.take())

    def _on_dismissed(self, status: int, _: int | None) -> None:
        self._post(Upcall("dismissed", (status,), (0, 0)))

    def _check(self, status: int, what: str) -> None:
        if status not in (SUCCESS, DONE):
            raise LaunchError(f"libpmix does not take {what}: {self.error(status)}")


# --- loading


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = VOID, (COUNT,)
    libc.free.restype, libc.free.argtypes = None, (VOID,)
    libc.setenv.argtypes = (TEXT, TEXT, INT)
    libc.unsetenv.argtypes = (TEXT,)
    return libc


def _clean(libc: Any, settings: Sequence[tuple[str, str]]) -> None:
    """Remove what a launch around us has left from C's environment, and put `settings` there."""
    for word in strings(TEXTS.in_dll(libc, "environ")):
        if word.startswith(OURS):
            libc.unsetenv(raw(word.partition("=")[0]))
    for name, value in settings:
        libc.setenv(raw(name), raw(value), 1)


def _load(path: str) -> tuple[Any, tuple[int, ...]]:
    """The library and its version.  Not a `PyDLL`: a call that waits for an upcall would never return."""
    todo = "name another libpmix.so.2 with --mpi pmix:PATH, or install one (Debian: libpmix2)"
    try:
        library = ctypes.CDLL(path)
    except OSError as why:
        raise LaunchError(f"libpmix cannot be loaded: {why}", todo=todo) from None
    try:
        library.PMIx_Get_version.restype = library.PMIx_Error_string.restype = TEXT
        library.PMIx_server_init.argtypes = (VOID, INFOS, COUNT)
        library.PMIx_server_register_nspace.argtypes = (TEXT, INT, INFOS, COUNT, VOID, VOID)
        library.PMIx_server_register_client.argtypes = (PROCS, ctypes.c_uint32, ctypes.c_uint32, VOID, VOID, VOID)
        library.PMIx_server_setup_fork.argtypes = (PROCS, ctypes.POINTER(TEXTS))
        library.PMIx_server_dmodex_request.argtypes = (PROCS, FETCHED, VOID)
        library.PMIx_server_deregister_client.argtypes = (PROCS, PLAIN, VOID)
        library.PMIx_server_deregister_client.restype = None
    except AttributeError:
        raise LaunchError("this is no library of PMIx, or one without a server", path, todo) from None
    version = version_of(text(library.PMIx_Get_version()))
    if version < OLDEST:
        raise LaunchError(f"this is PMIx {'.'.join(map(str, version))}, and 3.2 is needed", path, todo)
    return library, version


def version_of(words: str) -> tuple[int, ...]:
    """(4, 2, 2) of "OpenPMIx 4.2.2rc2, repo rev: …"; () if there is no number."""
    word = next((word for word in words.replace(",", " ").split() if word[0].isdigit()), "")
    numbers = [part[: len(part) - len(part.lstrip("0123456789"))] for part in word.split(".")]
    return tuple(int(digits) for digits in numbers[:3] if digits)
