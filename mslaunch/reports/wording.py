"""Numbers, durations, sizes and names as a reader sees them."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Iterable

#: numbers of signals that end processes, by the kernel's names
SIGNALS = {
    getattr(signal, name): name
    for name in (
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
        "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGXCPU", "SIGXFSZ", "SIGSYS",
    )
}  # fmt: skip
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """`0 s`, `4 ms`, `0.42 s`, `12.5 s`, `2 min 05 s`, `1 h 12 min`, `3 d 4 h`."""
    if seconds < 0.0005:
        return "0 s"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def tick_label(seconds: float, step: float) -> str:
    """A time on an axis whose ticks are `step` apart: `250 ms`, `1.5 s`, `5 min`, `1 h 30 min`."""
    if not seconds:
        return "0"
    digits = 0 if step >= 1 else 1 if step >= 0.1 else 2 if step >= 0.01 else 3
    whole, fraction = divmod(round(seconds, digits), 1)
    count = int(whole)
    rest = f"{count % _MINUTE + fraction:.{digits}f}"
    parts = [f"{number} {unit}" for number, unit in (
        (count // _DAY, "d"), (count % _DAY // _HOUR, "h"), (count % _HOUR // _MINUTE, "min")) if number]  # fmt: skip
    return " ".join([*parts, f"{rest} s"] if float(rest) or not parts else parts)


def size(count: float) -> str:
    """Bytes: `0 B`, `812 B`, `4.1 kB`, `1.2 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def number(count: float) -> str:
    """`4,096`."""
    return f"{count:,.0f}"


def plural(count: int, word: str) -> str:
    """`1 rank`, `4,096 ranks`."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def signal_name(number: int) -> str:
    """`SIGTERM`, or `signal 40`."""
    return SIGNALS.get(number, f"signal {number}")


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; what is left out is its middle, since names often differ at their ends."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def coordinate(value: float) -> str:
    """A length in a figure, to a tenth: `12.5`, `3`."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def joined(parts: Iterable[str], conjunction: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    known = [part for part in parts if part]
    return f"{', '.join(known[:-1])} {conjunction} {known[-1]}" if len(known) > 1 else "".join(known)
