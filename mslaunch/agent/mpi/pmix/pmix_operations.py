"""What ranks do through PMIx with other nodes: fences, connects, groups, names, spawns, and data of one rank (modex).

The launcher gathers collectives and answers questions.  Published values have types, which travel inside the blobs.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmix.libpmix_callbacks import ERROR, EXISTS, NOT_FOUND, OUT_OF_RESOURCE, SUCCESS
from mslaunch.agent.mpi.pmix.pmix_job_info import member_of
from mslaunch.agent.mpi.pmix.pmix_values import (  # fmt: skip
    BOOL,
    BYTE_OBJECT,
    DATA_ARRAY,
    SIZE,
    WILDCARD,
    Item,
    Typed,
    first,
    pack_typed,
    raw,
    unpack_typed,
)
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.protocol.mpi import Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.agent.mpi.mpi_servers import LauncherCalls
    from mslaunch.agent.mpi.pmix.libpmix_callbacks import Launched, PmixAnswers, Upcall
    from mslaunch.agent.mpi.pmix.pmix_job_info import Member, PmixWorlds
    from mslaunch.agent.mpi.pmix.pmix_values import Memory
    from mslaunch.protocol.mpi import Answer, Released

    Finish = Callable[[tuple[bytes, ...]], None]


#: the first word of an answer's error -> the status
_STATUS = {"": SUCCESS, "exists": EXISTS, "missing": NOT_FOUND, "slots": OUT_OF_RESOURCE}
#: keys of PMIx -> what MPI_Info calls it, where the library has translated it
_INFO = {
    "pmix.host": "host",
    "pmix.hostfile": "hostfile",
    "pmix.addhost": "add-host",
    "pmix.addhostfile": "add-hostfile",
    "pmix.wdir": "wdir",
    "pmix.prefix": "ompi_prefix",
    "pmix.mapper": "mapper",
    "pmix.mapby": "map_by",
    "pmix.rankby": "rank_by",
    "pmix.bindto": "bind_to",
    "pmix.ppr": "ppr",
    "pmix.preloadbin": "preload_binary",
    "pmix.preloadfiles": "preload_files",
    "pmix.nonpmi": "ompi_non_mpi",
}
_FIRST_READ = 1  # PMIX_PERSIST_FIRST_READ: gone once somebody has read it


class PmixOperations:
    """Those under way on one node.  Each method is the upcall of its name."""

    def __init__(
        self, answers: PmixAnswers, launcher: LauncherCalls, worlds: PmixWorlds, hold: Callable[[Memory], None]
    ) -> None:
        """`hold` keeps memory until the library has read it."""
        self._answers = answers
        self._launcher = launcher
        self._worlds = worlds
        self._hold = hold
        #: the nth part that we gave for a key belongs to the nth release
        self._open: dict[tuple[str, tuple[str, ...]], list[Finish]] = {}
        self._groups: dict[tuple[str, tuple[str, ...]], int] = {}  # how many there were of this name

    # --- collectives

    def fence(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item], blob: bytes) -> None:
        """All members exchange what they have put."""
        self._collect("fence", members, blob, lambda blobs: self._answers.blob(upcall, b"".join(blobs)))

    def connect(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item]) -> None:
        """Connect and disconnect."""
        self._collect(upcall.name, members, b"", lambda _: self._answers.done(upcall))

    def group(self, upcall: Upcall, operation: int, name: str, members: Sequence[Member], items: list[Item]) -> None:
        """A group of processes (MPI Sessions) is made (0) or ended (1).

        Who makes it gets a number for it, the same on all nodes and no other group's.
        """
        words = self._worlds.members(members)
        op = f"group:{name}:{'destruct' if operation else 'construct'}"
        self._groups[op, words] = count = self._groups.get((op, words), 0) + 1

        def finish(blobs: tuple[bytes, ...]) -> None:
            made = [
                Item("pmix.grp.ctxid", SIZE, _context(op, words, count)),
                Item("pmix.grp.endpt", BYTE_OBJECT, b"".join(blobs)),
                Item("pmix.grp.mbrs", DATA_ARRAY, list(members)),
            ]
            self._hold(self._answers.items(upcall, [] if operation else made))

        endpoint = first(items, "pmix.grp.endpt")
        self._collect(op, members, endpoint if isinstance(endpoint, bytes) else b"", finish)

    def _collect(self, op: str, members: Sequence[Member], blob: bytes, finish: Finish) -> None:
        """All members of this node are in.  Other nodes are asked only if they have members, too."""
        words = self._worlds.members(members)
        if all(self._worlds.is_local(*member) for member in members):
            finish((blob,))
        else:
            self._open.setdefault((op, words), []).append(finish)
            self._launcher.gather(Gathering(op, words, (blob,)))

    def released(self, whole: Released) -> None:
        """A collective is complete.  One in which this node has no part is dropped: its ranks have ended."""
        queue = self._open.get((whole.op, whole.members))
        if queue:
            queue.pop(0)(whole.blobs)

    # --- questions

    def modex(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        """What a rank of another node has put, now and not by a fence."""

        def done(answer: Answer) -> None:
            if answer.error or len(answer.blobs) != 1:
                self._answers.done(upcall, status_of(answer) or NOT_FOUND)
            else:
                self._answers.blob(upcall, answer.blobs[0])

        if member[1] >= WILDCARD:  # data of a world as a whole are all known here
            self._answers.done(upcall, NOT_FOUND)
        else:
            self._ask("modex", {"of": [_word(member)]}, (), done)

    def publish(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        """Names with values.  How far they are seen is not kept; of how long, only "until the first read"."""
        named = {item.key: pack_typed(Typed(*item[1:])) for item in items if not item.key.startswith("pmix.")}
        once = ["yes"] if first(items, "pmix.persist") == _FIRST_READ else []
        fields: dict[str, Sequence[str]] = {"names": list(named), "from": [_word(member)], "once": once}
        self._ask("publish", fields, tuple(named.values()), partial(self._done, upcall))

    def unpublish(self, upcall: Upcall, member: Member, names: Sequence[str], items: Sequence[Item]) -> None:
        """Remove published names."""
        self._ask("unpublish", {"names": names, "from": [_word(member)]}, (), partial(self._done, upcall))

    def _done(self, upcall: Upcall, answer: Answer) -> None:
        self._answers.done(upcall, status_of(answer))

    def lookup(self, upcall: Upcall, member: Member, names: Sequence[str], items: Sequence[Item]) -> None:
        """The values of names; if need be, once they are published."""
        wait = ["yes"] if any(item.key == "pmix.wait" for item in items) else []

        def done(answer: Answer) -> None:
            try:
                found = _found(answer)
            except (ValueError, KeyError):  # published through another family, say
                found = []
            if answer.error or not found:
                self._answers.done(upcall, status_of(answer) or NOT_FOUND)
            else:
                self._hold(self._answers.found(upcall, found))

        self._ask("lookup", {"names": names, "wait": wait, "from": [_word(member)]}, (), done)

    def spawn(self, upcall: Upcall, member: Member, items: Sequence[Item], apps: Sequence[Launched]) -> None:
        """MPI_Comm_spawn: a new world."""
        fields: dict[str, Sequence[str]] = {"from": [_word(member)], "count": [str(len(apps))], "preput": []}
        for index, app in enumerate(apps):
            fields[f"argv.{index}"] = app.argv
            fields[f"app.{index}"] = [str(app.number), app.wdir]
            fields[f"env.{index}"] = app.env
            fields[f"info.{index}"] = info_words([*items, *app.items])

        def done(answer: Answer) -> None:
            names = list(answer.fields.get("world", ()))
            if answer.error or not names:
                self._answers.done(upcall, status_of(answer) or ERROR)
            else:
                self._answers.spawned(upcall, names[0])

        self._launcher.ask_spawn(self._worlds.rank_of(member), {"family": ["pmix"], **fields}, done)

    def _ask(
        self, what: str, fields: dict[str, Sequence[str]], blobs: tuple[bytes, ...], done: Callable[[Answer], None]
    ) -> None:
        self._launcher.ask(what, {"family": ["pmix"], **fields}, blobs, done)


def _context(op: str, words: tuple[str, ...], count: int) -> int:
    """A number of 63 bits that all nodes find by themselves, and that two groups do not share."""
    from hashlib import blake2b

    name = raw("\0".join((op, *words, str(count))))
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1


def status_of(answer: Answer) -> int:
    """What the library calls its error."""
    return _STATUS.get(answer.error.partition(":")[0], ERROR)


def info_words(items: Sequence[Item]) -> list[str]:
    """Key, value, key, value, …: by the names of MPI_Info where they have one there, later ones in place of earlier."""
    known = {
        _INFO.get(key, key): str(bool(value)).lower() if kind == BOOL else str(value)
        for key, kind, value in items
        if kind == BOOL or isinstance(value, (str, int, float))
    }
    return [word for pair in known.items() for word in pair]


def log_text(items: Sequence[Item]) -> bytes:
    """What a library wants people to read; 4.1 sends its help as a message to a daemon of its own kind."""
    for item in items:
        if item.key in ("pmix.log.stderr", "pmix.log.stdout") and isinstance(item.value, (str, bytes)) and item.value:
            return raw(item.value) if isinstance(item.value, str) else item.value
        if item.key == "pmix.log.msg" and isinstance(item.value, bytes):
            return _help_of(item.value)
    return b""


def _help_of(data: bytes) -> bytes:
    """The last of three strings: file, topic, text.  Each has its number, 1, and its size in front, and a NUL."""
    at, found = 0, b""
    for between in (0, 0, 5):  # a number and a flag come before the text
        start = at + between + 8
        at = start + int.from_bytes(data[start - 4 : start], "big")
        found = data[start:at]
    return found[:-1] if at == len(data) and found[-1:] == b"\0" else b""


def _word(member: Member) -> str:
    return f"{member[0]}.{member[1]}"


def _found(answer: Answer) -> list[tuple[str, int, str, Typed]]:
    rows = zip(answer.fields.get("names", ()), answer.fields.get("from", ()), answer.blobs)
    return [(*member_of(word), name, unpack_typed(blob)) for name, word, blob in rows]
