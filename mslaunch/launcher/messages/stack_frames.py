"""Stack frames from what py-spy, gdb, eu-stack, gstack and /proc print: their names and places, without addresses.

Pure.  Texts come from other hosts and may hold anything; what cannot be understood is left out.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNING = "running"  #: the function of a thread of which only that is known
CALL = "system call "  #: begins the function of a thread of which only the system call is known
_FRAMES, _THREADS = 64, 64  # that are kept of a thread, and of a process
_NAME, _FILE = 120, 200  # letters
_LIBRARIES = ("site-packages/", "dist-packages/")
_PACKAGES = ("torch/", "mindspore/")  # at the beginning of a file that py-spy has shortened


class StackFrame(NamedTuple):
    """One call; `file` is a source file, or the library where no source is known, and `line` is then 0."""

    function: str
    file: str = ""
    line: int = 0

    @property
    def python(self) -> bool:
        """Whether it is one of Python."""
        return self.file.endswith(".py") or (self.file[:1] == "<" and self.line > 0)

    @property
    def library(self) -> str:
        """The file without the directory where libraries of Python lie; "" if it is not in one."""
        for mark in _LIBRARIES:
            if mark in self.file:
                return self.file.rpartition(mark)[2]
        if self.file.startswith(_PACKAGES):
            return self.file
        _, mark, tail = self.file.partition("/lib/python3")
        return tail.partition("/")[2] if mark and self.python else ""

    @property
    def short(self) -> str:
        """The same for display; of the user's own file the last part of its path."""
        return self.library or self.file.rpartition("/")[2]

    @property
    def place(self) -> str:
        """`train.py:31`, or the library."""
        return f"{self.short}:{self.line}" if self.line else self.short

    def __str__(self) -> str:
        file = self.library or self.file
        place = f"{file}:{self.line}" if self.line else file
        return f"{self.function} ({place})" if place else self.function


class ThreadStack(NamedTuple):
    """One thread; its innermost call comes first."""

    number: int
    frames: tuple[StackFrame, ...]


def threads_of(tool: str, text: str, pid: int) -> list[ThreadStack]:
    """The threads in what `tool` printed of the process `pid`, its main thread first."""
    parse = {"py-spy": _of_py_spy, "/proc": _of_proc}.get(tool, _of_debugger)
    found: dict[int, list[StackFrame]] = {}
    for number, frame in parse(text.splitlines(), pid):
        if number not in found and len(found) == _THREADS:
            continue
        frames = found.setdefault(number, [])
        if frame and len(frames) < _FRAMES:
            frames.append(frame)
    threads = [ThreadStack(number, tuple(frames)) for number, frames in found.items()]
    return sorted(threads, key=lambda thread: (thread.number != pid, not thread.frames, thread.number))


def _frame(function: str, file: str = "", line: str = "") -> StackFrame | None:
    """None where there is no name but an address."""
    function = function.strip()
    if function in ("", "??") or _is_address(function):
        return None
    return StackFrame(function[:_NAME], file.strip()[-_FILE:], int(line) if _is_number(line) else 0)


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 10


def _is_address(text: str) -> bool:
    return text[:2] == "0x" and all(letter in "0123456789abcdefABCDEF" for letter in text[2:])


def _placed(text: str) -> tuple[str, str]:
    """`file:12` and `file:12:3` as file and line."""
    file, _, line = text.rpartition(":")
    before, _, other = file.rpartition(":")
    if before and _is_number(other):
        return before, other
    return (file, line) if _is_number(line) else (text, "")


def _number(text: str, otherwise: int) -> int:
    digits = text.strip().rstrip(":")
    if _is_address(digits) and 2 < len(digits) < 20:
        return int(digits, 16)
    return int(digits) if _is_number(digits) else otherwise


def _of_py_spy(lines: list[str], pid: int) -> Iterator[tuple[int, StackFrame | None]]:
    """`Thread 12 (idle): "MainThread"`, then `    function (file.py:3)` or `    function (libmpi.so.12)`."""
    thread = pid
    for line in lines:
        if line.startswith("Thread "):
            thread = _number(line[7:].partition(" ")[0], pid)
            yield thread, None
        elif line[:4] == "    " and line.endswith(")"):
            function, _, place = line[4:-1].rpartition(" (")
            yield thread, _frame(function, *_placed(place))


def _of_debugger(lines: list[str], pid: int) -> Iterator[tuple[int, StackFrame | None]]:
    """gdb and gstack: `Thread 1 (Thread 0x7f (LWP 12) "a"):` and `#0  0x7f in f (x=1) at a.c:3` or `from libm.so`.

    eu-stack: `TID 12:` and `#0  0x7f - 1 f - /lib/libm.so`.
    """
    thread = pid
    for line in lines:
        if line.startswith("Thread "):
            thread = _number(line.partition("LWP ")[2].partition(")")[0], thread)
            yield thread, None
        elif line.startswith("TID "):
            thread = _number(line[4:], thread)
            yield thread, None
        elif line.startswith("#"):
            words = line.partition(" ")[2].strip()
            first, _, rest = words.partition(" ")
            if not _is_address(first):
                yield thread, _of_gdb(words)
            elif rest.startswith("in "):
                yield thread, _of_gdb(rest[3:])
            else:
                yield thread, _of_eu_stack(rest.strip())


def _of_gdb(words: str) -> StackFrame | None:
    """`f (x=1) at a.c:3`, `f () from /lib/libm.so.6`; a name of C++ may have spaces and parentheses inside <>."""
    depth, end = 0, len(words)
    for at, letter in enumerate(words):
        depth += (letter == "<") - (letter == ">" and words[at - 1 : at] != "-")
        if depth <= 0 and words.startswith(" (", at):
            end = at
            break
    function, rest = words[:end], words[end:]
    if ") at " in rest:
        return _frame(function, *_placed(rest.rpartition(") at ")[2]))
    return _frame(function, rest.rpartition(") from ")[2].rpartition("/")[2] if ") from " in rest else "")


def _of_eu_stack(words: str) -> StackFrame | None:
    words = words[3:].strip() if words.startswith("- 1") else words
    if words.startswith("- "):  # a module alone
        return None
    function, _, module = words.rpartition(" - ") if " - /" in words else (words, "", "")
    return _frame(function, module.rpartition("/")[2])


def _of_proc(lines: list[str], pid: int) -> Iterator[tuple[int, StackFrame | None]]:
    """`thread 12 sleep: S (sleeping), in hrtimer_nanosleep, system call 230 (clock_nanosleep)`.

    Of the lines about the stack in the kernel those of a thread that is stuck there are kept.
    """
    thread, stuck = pid, False
    for line in lines:
        if line.startswith("  [<") and stuck:
            yield thread, _frame(line.partition("] ")[2].partition("+")[0])
        if line.startswith("thread "):
            number, _, rest = line[7:].partition(" ")
            parts = rest.rpartition(": ")[2].split(", ")
            thread, stuck = _number(number, pid), parts[0].startswith("D")
            sleeps = next((part[3:] for part in parts if part.startswith("in ")), "")
            call = next((part[len(CALL) :] for part in parts if part.startswith(CALL)), "")
            name = call.partition("(")[2].rstrip(")") or call
            if parts[0].startswith("R") or any(part.startswith("used the CPU") for part in parts):
                function, sleeps = RUNNING, ""
            elif name:
                function = CALL + name
            else:
                function, sleeps = (sleeps, "") if sleeps else (parts[0].partition(" ")[2].strip("()"), "")
            yield thread, _frame(function + ", which no signal ends" * stuck, sleeps)
