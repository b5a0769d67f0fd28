"""What the ranks of a job do, from their stacks: ranks that do the same are one group, and the smallest comes first.

Pure.  A stack counts from its notable call outward: an MPI_ function, a collective operation, what Python was told to
do (time.sleep), or else a function of the C library.  How such a call works inside differs from moment to moment, while
ranks wait for the same.
"""

from __future__ import annotations

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.messages.stack_frames import CALL, RUNNING, StackFrame, threads_of
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mslaunch.launcher.rank_names import RankNames
    from mslaunch.protocol.control import StackTrace

    _Key = tuple[tuple[str, str, int], ...]

_SAID = 4  #: groups in the sentence
_SHOWN = 12  #: groups whose stacks are shown
_LINES = 40  #: of a stack
_WORD = 300  # letters
_UNKNOWN = StackFrame("code without names")
#: functions of CPython -> what the program called
_BUILT_IN = {
    "time_sleep": "time.sleep", "pysleep": "time.sleep", "lock_PyThread_acquire_lock": "lock.acquire",
    "rlock_acquire": "lock.acquire", "sock_recv": "socket.recv", "sock_accept": "socket.accept",
    "sock_connect": "socket.connect", "sock_send": "socket.send", "select_select": "select.select",
    "select_poll_poll": "poll", "select_epoll_poll": "epoll.poll", "os_waitpid": "os.waitpid", "os_read": "os.read",
    "os_write": "os.write", "signal_pause": "signal.pause", "signal_sigwait": "signal.sigwait",
    "builtin_input": "input",
}  # fmt: skip
#: files of Python whose functions are collective operations
_COLLECTIVE = ("torch/distributed/distributed_c10d.py", "mindspore/communication/comm_func.py",
               "mindspore/mint/distributed/distributed.py")  # fmt: skip
_STARTS = frozenset((
    "_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "start_thread", "clone",
    "clone3", "__clone", "__clone3",
))  # fmt: skip
_SYSTEM = ("libc.", "libc-", "libpthread", "ld-linux", "ld-musl", "linux-vdso", "[vdso]")
_SYSTEM_SOURCES = ("../sysdeps/", "./nptl/", "../nptl/", "./io/", "./misc/", "./posix/", "../csu/", "./socket/")
_INTERPRETER = ("_Py", "Py", "pymain_", "run_mod", "run_eval_code_obj", "pyrun_", "cfunction_", "method_vectorcall",
                "object_vacall", "slot_tp_", "builtin_exec", "function_code_fastcall", "call_function")  # fmt: skip
_WAITS = frozenset(("wait4", "waitpid", "waitid", "wait3", "wait", "os.waitpid", CALL + "wait4", CALL + "waitid"))
_WRAPPERS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "env", "timeout", "time", "numactl",
                       "taskset"))  # fmt: skip


class ProcessStack(NamedTuple):
    """What one process of a rank does."""

    host: str
    pid: int
    name: str
    tool: str
    frames: tuple[StackFrame, ...]  # of its main thread, from the notable call outward
    others: tuple[str, ...] = ()  # the notable calls of its other threads
    note: str = ""  # why no tool was asked

    @property
    def waits(self) -> bool:
        """Whether it does no more than wait for a process that it has started."""
        return self.name in _WRAPPERS or self.frames[0].function in _WAITS

    @property
    def key(self) -> _Key:
        """Equal for stacks that are equal, wherever libraries lie on each host."""
        return tuple((frame.function, frame.short, frame.line) for frame in self.frames)


class StackGroup(NamedTuple):
    """Ranks that do the same, ascending, and the process of one of them."""

    ranks: tuple[int, ...]
    process: ProcessStack
    example: int  # that rank

    @property
    def what(self) -> str:
        """`in time.sleep (train.py:31)`."""
        first, *outer = self.process.frames
        if first.function == RUNNING:
            return RUNNING
        if first.function.startswith(CALL):
            return f"in the {first.function}"
        own = (frame for frame in outer if frame.python and not frame.library)
        place = first.place if first.line and not first.library else ""
        if not place:
            found = next(own, None) or next((frame for frame in outer if frame.line), None)
            place = found.place if found else next((frame.function for frame in outer), first.place)
        return f"in {first.function}" + (f" ({place})" if place else "")


def process_stack(host: str, traced: StackTrace) -> ProcessStack:
    """What a tool has found out, without what differs from one moment to the next."""
    threads = threads_of(traced.tool, traced.text, traced.pid)
    main, *others = [outward(thread.frames) for thread in threads] or [(_UNKNOWN,)]
    note = _word(traced.text.partition("\n")[0]) if traced.tool == "/proc" else ""
    names = tuple(frames[0].function for frames in others)
    return ProcessStack(host, traced.pid, _word(traced.name), _word(traced.tool), main, names, note)


def _word(text: str) -> str:
    """On one line, and bounded: it comes from another host."""
    return " ".join(text[:_WORD].split())


def outward(frames: Sequence[StackFrame]) -> tuple[StackFrame, ...]:
    """A stack from its notable call outward, innermost first; never empty."""
    interpreter = any(frame.function.startswith("_PyEval_") for frame in frames)
    cleaned = [frame._replace(function=_plain(frame)) for frame in frames if frame.function not in _STARTS]
    python = next((at for at, frame in enumerate(cleaned) if frame.python), len(cleaned))
    calls = [at for at, frame in enumerate(cleaned) if _collective(frame) and (at < python or frame.python)]
    of_python = interpreter or python < len(cleaned)
    built_in = [at for at, frame in enumerate(cleaned[:python]) if of_python and frame.function in _BUILT_IN]
    at, first = 0, None
    if calls:
        at = calls[-1]
        first = StackFrame(_collective(cleaned[at]), *(cleaned[at][1:] if cleaned[at].python else ()))
    elif built_in and not any(frame.function.startswith("_PyEval_") for frame in cleaned[: built_in[0]]):
        at = max(each for each in built_in if each <= built_in[0] + 1)
        first = StackFrame(_BUILT_IN[cleaned[at].function])
    else:
        while at + 1 < python and _of_system(cleaned[at]) and _of_system(cleaned[at + 1]):
            at += 1
        if at < len(cleaned) and _of_system(cleaned[at]):
            name = _of_users(cleaned[at].function)  # a Python without symbols does not say that it is in time_sleep
            first = StackFrame("time.sleep" if at + 1 == python < len(cleaned) and name.endswith("nanosleep") else name)
    outer = cleaned[at + 1 :] if first else cleaned[at:]
    if interpreter:
        outer = [frame for frame in outer if frame.python or not frame.function.startswith(_INTERPRETER)]
    return (*((first,) if first else ()), *outer) or (_UNKNOWN,)


def _plain(frame: StackFrame) -> str:
    """The name of a function of C without what compilers and libraries add: `f.isra.0`, `f@@GLIBC_2.17`."""
    if frame.python:
        return frame.function
    name = frame.function.partition("@")[0]
    head, _, tail = name.partition(".")
    name = head if head.isidentifier() and tail else name
    return name[5:] if name.startswith("__GI_") else name


def _of_users(name: str) -> str:
    """The name by which programs call a function of the C library: `pause` of `__libc_pause`."""
    name = name.lstrip("_")
    return name[5:] if name.startswith("libc_") else name


def _collective(frame: StackFrame) -> str:
    """The name of a function in which ranks wait for each other, as programs write it; "" if it is none."""
    name = frame.function
    if frame.python:
        return name if frame.library.endswith(_COLLECTIVE) else ""
    plain = name[1:] if name[:4] in ("PMPI", "pmpi", "pncc") else name
    if plain.startswith("MPI_") and plain[4:5].isupper():
        return plain
    if plain.startswith("mpi_") and plain.endswith("_"):  # Fortran
        return f"MPI_{plain[4:].strip('_').capitalize()}"
    prefixed = plain[4:5].isupper() and plain[:4].lower() in ("nccl", "rccl", "hccl")
    return plain if prefixed else ""


def _of_system(frame: StackFrame) -> bool:
    """Whether it belongs to the C library."""
    return frame.file.rpartition("/")[2].startswith(_SYSTEM) or frame.file.startswith(_SYSTEM_SOURCES)


# --- of all ranks


def chosen(one: ProcessStack | None, other: ProcessStack) -> ProcessStack:
    """Of two processes of a rank the one that says what the rank does: its program, not a shell that waits for that."""
    if one is None or (one.waits, one.pid) > (other.waits, other.pid):
        return other
    return one


def groups_of(stacks: Mapping[int, ProcessStack]) -> list[StackGroup]:
    """Ranks with equal stacks together; small groups first, for the odd rank is what one looks for.

    A stack that ends at a line of Python belongs to the one that goes on from there into a library, if there is one
    such: a tool cannot follow all code of libraries, and was perhaps asked for the lines of Python only.
    """
    alike: dict[_Key, list[int]] = {}
    for rank in sorted(stacks):
        alike.setdefault(stacks[rank].key, []).append(rank)
    longer: dict[_Key, list[_Key]] = {}
    for key, ranks in alike.items():
        at = next((at for at, frame in enumerate(stacks[ranks[0]].frames) if frame.python), 0)
        if at:
            longer.setdefault(key[at:], []).append(key)
    for key in [key for key in alike if len(longer.get(key, ())) == 1]:
        alike[longer[key][0]] += alike.pop(key)
    groups = [StackGroup(tuple(sorted(ranks)), stacks[ranks[0]], ranks[0]) for ranks in alike.values()]
    return sorted(groups, key=lambda group: (len(group.ranks), group.ranks))


def odd_ranks(groups: Sequence[StackGroup]) -> tuple[int, ...]:
    """The ranks of the smallest group, if there is a larger one."""
    return groups[0].ranks if len(groups) > 1 and len(groups[0].ranks) < len(groups[-1].ranks) else ()


def sentence(groups: Sequence[StackGroup], names: RankNames) -> str:
    """`rank 5 in time.sleep (train.py:31); 7 ranks in MPI_Barrier (train.py:6)`; "" without groups."""
    if len(groups) == 1 and len(groups[0].ranks) > 1:
        return f"all {len(groups[0].ranks)} ranks {groups[0].what}"
    said = [f"{_few(group.ranks, names)} {group.what}" for group in groups[:_SAID]]
    rest = sum(len(group.ranks) for group in groups[_SAID:])
    return "; ".join([*said, f"{counted(rest, 'rank')} elsewhere"] if rest else said)


def _few(ranks: Sequence[int], names: RankNames) -> str:
    return names.name(ranks[0]) if len(ranks) == 1 else f"{len(ranks)} ranks"


def report(head: str, groups: Sequence[StackGroup], names: RankNames, missing: Iterable[str] = ()) -> str:
    """The whole text: `head` and the sentence, each stack once, and the hosts that have not answered."""
    said = sentence(groups, names)
    lines = [f"mslaunch: {': '.join(filter(None, (head, said)))}"]
    for group in groups[:_SHOWN]:
        lines += _shown(group, names)
    if len(groups) > _SHOWN:
        ranks = [rank for group in groups[_SHOWN:] for rank in group.ranks]
        lines.append(f"  and {counted(len(groups) - _SHOWN, 'more stack')}, of {names.names(ranks)}")
    absent = list(missing)
    if absent:
        lines.append(f"  no answer about the ranks on {fold(absent)}")
    return "\n".join(lines) + "\n"


def _shown(group: StackGroup, names: RankNames) -> list[str]:
    process, ranks = group.process, group.ranks
    who = names.names(ranks) + (f", of which {names.name(group.example)}" if len(ranks) > 1 else "")
    lines = [
        f"  {who} on {process.host}, process {process.pid} ({process.name}), from {process.tool}{_advice(process)}:"
    ]
    lines += [f"  | {frame}" for frame in process.frames[:_LINES]]
    if len(process.frames) > _LINES:
        lines.append(f"  | and {len(process.frames) - _LINES} more calls")
    if process.others:
        counts = {name: process.others.count(name) for name in process.others}
        where = ", ".join(
            f"{count} in {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1])[:_SAID]
        )
        lines.append(f"  | and {counted(len(process.others), 'more thread')}: {where}")
    return lines


def _advice(process: ProcessStack) -> str:
    if process.tool == "/proc":
        return f" ({process.note})" if process.note else ""
    return "; install py-spy there for the lines of Python" if _needs_py_spy(process) else ""


def _needs_py_spy(process: ProcessStack) -> bool:
    return process.name.startswith("python") and process.tool != "py-spy"
