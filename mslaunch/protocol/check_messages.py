"""What the launcher asks hosts for --check and --health-check (CHECK), and what agents answer (CHECKED), as records.

A payload is a word, a line break, and the fields of the record that belongs to the word.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.control import pack_record, unpack_record

if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

#: the words: facts of the host; what its ranks would run; a port for measurements; a measurement; a command
HOST, PROGRAMS, LISTEN, MEASURE, COMMAND = "host", "programs", "listen", "measure", "command"

DIRECTORY, PROGRAM = "directory", "program"  # kinds of errors of `ProgramFacts`
LINK_SECONDS = 6.0  #: after which an agent gives up a measurement
_LONGEST = 1 << 16  # bytes of an answer (`frames.UP`)


class HostQuestion(NamedTuple):
    """HOST."""

    ranks: int  # that this host would get
    ports: tuple[int, ...]  # that must be free here
    tmp: str = ""  # the TMPDIR that the command line gives the ranks; "": that of the login


class HostFacts(NamedTuple):
    """The answer to HOST.  Sizes are in bytes, times in seconds since 1970; -1: unlimited, or unknown."""

    came: float  # when the question was read, by the host's clock
    went: float  # and when the answer was sent
    hostname: str
    machine: str  # alike where two agents share one machine, its processes and its network
    memlock: tuple[int, ...]  # RLIMIT_MEMLOCK, soft and hard
    files: tuple[int, ...]  # RLIMIT_NOFILE, soft and hard
    rdma: tuple[str, ...]  # devices of InfiniBand and its like
    shm: tuple[int, ...]  # size and free bytes of /dev/shm; (): there is none that can be written to
    tmp: str  # the directory for temporary files
    tmp_free: tuple[int, ...]  # free bytes and files there; (): nothing can be written there
    memory: int  # of the machine
    memory_left: int  # for new processes, by the machine and by control groups
    memory_limit: int  # of control groups
    cpu_limit: float  # in cpus, of control groups
    devices: tuple[str, ...]  # kind and number of accelerators: "NVIDIA 8"
    busy: tuple[str, ...]  # for each port of the question why it is not free; "": it is
    short: str  # what lets fewer ranks start than the question says; "": nothing


class ProgramFacts(NamedTuple):
    """What one program of the launch is on a host; the answer to PROGRAMS has one for each."""

    app: int  # its number among the programs of the launch
    error: str = ""  # why it cannot be started; "": it can
    todo: str = ""
    path: str = ""  # the file
    digest: str = ""  # of the program, or of the script that an interpreter gets
    script: str = ""  # that script, as it was written
    wdir_free: int = -1  # free bytes in its working directory
    python: str = ""  # the version of the interpreter; "": none, or it did not answer
    prefix: str = ""  # where that Python's packages are
    modules: tuple[str, ...] = ()  # that the script imports
    versions: tuple[str, ...] = ()  # of each; "": it is there, and has none; "-": it is not there
    packages: tuple[str, ...] = ()  # what pip calls that which has the module; "": not known
    wdir: str = ""  # its working directory
    kind: str = ""  # of the error: DIRECTORY, that is about the working directory, or PROGRAM
    missing: str = ""  # the directory or file that is needed and is not there


class Listening(NamedTuple):
    """The answer to LISTEN, which has no record: where others may measure."""

    port: int
    token: str  # the key of proofs, which nobody else knows
    error: str = ""  # why nobody can


class LinkQuestion(NamedTuple):
    """MEASURE: a host, and how it knows us."""

    addresses: tuple[str, ...]  # the most likely first
    port: int
    token: str
    seconds: float  # for the transfer


class LinkFacts(NamedTuple):
    """The answer to MEASURE."""

    error: str = ""  # why there was no measurement
    address: str = ""
    delay: float = 0.0  # seconds, there and back, the least of several
    rate: float = 0.0  # bytes a second, one way
    sent: int = 0  # segments of TCP
    again: int = 0  # those of them that had to be sent again


class CommandQuestion(NamedTuple):
    """COMMAND."""

    argv: tuple[str, ...]
    seconds: float


class CommandFacts(NamedTuple):
    """The answer to COMMAND."""

    error: str = ""  # why it was not started, or had to be ended
    code: int = 0  # as a shell has it in $?
    output: str = ""  # the end of what it printed


def pack_check(word: str, record: Any = None) -> bytes:
    """The payload of CHECK and CHECKED.  The text of a record may hold anything, a NUL too."""
    return word.encode() + b"\n" + (pack_record(_without_nul(record)) if record else b"")


def _without_nul(record: Any) -> Any:
    """The record; a NUL would end a word of its fields."""

    def clean(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        return value.replace("\0", " ") if isinstance(value, str) else value

    return type(record)(*map(clean, record))


def word_of(payload: bytes) -> tuple[str, bytes]:
    """The word of a payload, and what follows it."""
    word, _, rest = payload.partition(b"\n")
    return word.decode("ascii", "replace"), rest


def unpack_check(word: str, kind: type[T], payload: bytes) -> T:
    """The record of an answer to the question `word`; raises `WireError` for anything else."""
    said, rest = word_of(payload)
    if said != word:
        raise WireError(f"it answered {said[:20]!r} where it was asked for {word!r}")
    return unpack_record(kind, rest)


def pack_programs(found: list[ProgramFacts]) -> bytes:
    """The answer to PROGRAMS: records one behind the other, a number before each says how long it is.

    Of more programs than a frame may hold, the last ones are left out.
    """
    answer = PROGRAMS.encode() + b"\n"
    for one in found:
        record = pack_record(_without_nul(one))
        part = b"%d\n" % len(record) + record
        if len(answer) + len(part) <= _LONGEST:
            answer += part
    return answer


def unpack_programs(payload: bytes) -> list[ProgramFacts]:
    """The inverse of `pack_programs`; raises `WireError`."""
    word, rest = word_of(payload)
    found = []
    while rest and word == PROGRAMS:
        size, _, rest = rest.partition(b"\n")
        if not (size.isdigit() and 0 < len(size) <= 6 and 0 < int(size) <= len(rest)):
            raise WireError("what it said of programs is garbled")
        found.append(unpack_record(ProgramFacts, rest[: int(size)]))
        rest = rest[int(size) :]
    if rest or word != PROGRAMS:
        raise WireError("it did not answer what it was asked for")
    return found
