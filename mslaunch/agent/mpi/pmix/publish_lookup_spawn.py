"""What ranks ask of the launcher through PMIx: publish and look up names, spawn, data of other ranks (modex).

Published values have types, which travel inside the blobs.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmix import callbacks
from mslaunch.agent.mpi.pmix.job_info import member_of
from mslaunch.agent.mpi.pmix.pmix_values import BOOL, WILDCARD, Typed, pack_typed, raw, unpack_typed
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.agent.mpi.pmix.answers import PmixAnswers
    from mslaunch.agent.mpi.pmix.callbacks import Launched, Upcall
    from mslaunch.agent.mpi.pmix.pmix_values import Item, Memory
    from mslaunch.agent.mpi.pmix.pmix_worlds import Member
    from mslaunch.protocol.mpi import Answer, Question


#: the first word of an answer's error -> the status
_STATUS = {
    "": callbacks.SUCCESS,
    "exists": callbacks.EXISTS,
    "missing": callbacks.NOT_FOUND,
    "slots": callbacks.OUT_OF_RESOURCE,
}
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


class ClientRequests:
    """Questions on their way; `hold` keeps memory until the library has read it."""

    def __init__(self, answers: PmixAnswers, launcher: LauncherCalls, hold: Callable[[Memory], None]) -> None:
        self._answers = answers
        self._launcher = launcher
        self._hold = hold

    def modex(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        """What a rank of another node has put, now and not by a fence."""
        if member[1] >= WILDCARD:  # of a world as a whole all is known here
            self._answers.done(upcall, callbacks.NOT_FOUND)
            return

        def done(answer: Answer) -> None:
            if answer.error or len(answer.blobs) != 1:
                self._answers.done(upcall, status_of(answer) or callbacks.NOT_FOUND)
            else:
                self._answers.blob(upcall, answer.blobs[0])

        self._ask("modex", {"of": [_word(member)]}, (), done)

    def publish(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        """Names with values.  How far they are seen is not kept; of how long, only "until the first read"."""
        named = [item for item in items if not item.key.startswith("pmix.")]
        blobs = tuple(pack_typed(Typed(item.kind, item.value)) for item in named)
        fields: dict[str, Sequence[str]] = {"names": [item.key for item in named], "from": [_word(member)]}
        if any(item.key == "pmix.persist" and item.value == _FIRST_READ for item in items):
            fields["once"] = ["yes"]
        self._ask("publish", fields, blobs, lambda answer: self._answers.done(upcall, status_of(answer)))

    def unpublish(self, upcall: Upcall, member: Member, names: Sequence[str], items: Sequence[Item]) -> None:
        """They are gone."""
        fields = {"names": names, "from": [_word(member)]}
        self._ask("unpublish", fields, (), lambda answer: self._answers.done(upcall, status_of(answer)))

    def lookup(self, upcall: Upcall, member: Member, names: Sequence[str], items: Sequence[Item]) -> None:
        """The values of names; if need be, once they are published."""
        wait = ["yes"] if any(item.key == "pmix.wait" for item in items) else []

        def done(answer: Answer) -> None:
            try:
                found = _found(answer)
            except (ValueError, KeyError):  # published through another family, say
                found = []
            if answer.error or not found:
                self._answers.done(upcall, status_of(answer) or callbacks.NOT_FOUND)
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
                self._answers.done(upcall, status_of(answer) or callbacks.ERROR)
            else:
                self._answers.spawned(upcall, names[0])

        self._ask("spawn", fields, (), done)

    def _ask(
        self, what: str, fields: dict[str, Sequence[str]], blobs: tuple[bytes, ...], done: Callable[[Answer], None]
    ) -> None:
        self._launcher.ask(what, {"family": ["pmix"], **fields}, blobs, done)


def owner(question: Question) -> Member:
    """Whose data a modex question is about."""
    (word,) = question.fields["of"]
    return member_of(word)


def status_of(answer: Answer) -> int:
    """What the library calls its error."""
    return _STATUS.get(answer.error.partition(":")[0], callbacks.ERROR)


def info_words(items: Sequence[Item]) -> list[str]:
    """Key, value, key, value, …: by the names of MPI_Info where they have one there, later ones in place of earlier."""
    known = {}
    for item in items:
        if item.kind == BOOL:
            known[_INFO.get(item.key, item.key)] = "true" if item.value else "false"
        elif isinstance(item.value, (str, int, float)):
            known[_INFO.get(item.key, item.key)] = str(item.value)
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
