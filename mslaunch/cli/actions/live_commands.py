"""--top and --stacks: what the ranks of a job that runs do just now, as its launcher tells it.

On a terminal --top is drawn anew each second, if rich is installed; else it is one table.
"""

from __future__ import annotations

import os
import time

from mslaunch.cli.actions.job_commands import find_job
from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, counted, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.jobs import control_socket
from mslaunch.launcher import terminal_size
from mslaunch.launcher.monitoring.status_line import amount, clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mslaunch.jobs.job_registry import JobEntry

HEAD = ("RANK", "HOST", "PID", "STATE", "CPU", "MEMORY", "SILENT", "LAST LINE")
_NUMBERS = (0, 2, 4, 5, 6)  # columns that are aligned on the right
_ROWS = 1000  # ranks that a table has
_LINES = 24  # of a terminal that does not tell
_EACH = 1.0  # seconds from one table to the next


def top(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """A table of the ranks of a job.  Raises `LaunchError`."""
    entry = find_job("--top", words, environ)
    if os.isatty(1) and environ.get("TERM", "dumb") != "dumb":
        try:
            from rich.live import Live
            from rich.text import Text
        except ImportError:
            pass
        else:
            return _watch(entry, Live, Text)
    return Show(_text(entry, _ask(entry, "top", "--top"), terminal_size.columns(1, 0)))


def stacks(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """Where each rank of a job is.  Raises `LaunchError`."""
    entry = find_job("--stacks", words, environ)
    return Show(printable(str(_ask(entry, "stacks", "--stacks").get("text", ""))))


def _ask(entry: JobEntry, what: str, option: str) -> dict[str, Any]:
    job = f"job {entry.number}"
    if not entry.lasts:
        shown = f"mslaunch --status {entry.number} shows how"
        raise LaunchError("it has ended", job, "" if "foreground" in entry.facts else shown)
    try:
        answer = control_socket.ask(entry.folder, {"ask": what})
    except FileNotFoundError:
        raise LaunchError("its launcher does not answer questions yet", job, "try again in a second") from None
    except OSError as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        raise LaunchError(f"its launcher did not answer: {why}", job, "it may be busy, or stopped") from None
    if "error" in answer:
        raise LaunchError(str(answer["error"]), f"{option} {entry.number}", "try again when ranks run")
    return answer


def _watch(entry: JobEntry, live: Any, text: Any) -> Show:
    """Draw the table again and again, until the job ends or Ctrl-C."""
    shown = ""
    try:
        with live(screen=False, auto_refresh=False) as screen:
            while True:
                columns, lines = terminal_size.columns(1, 0), terminal_size.lines(1, _LINES) - 1
                try:
                    shown = _text(entry, _ask(entry, "top", "--top"), columns, lines)
                except LaunchError as error:
                    entry.reload()
                    if not shown or not entry.lasts:
                        raise
                    # it is between two attempts, or its launcher is busy
                    shown = printable(f"job {entry.number}: {error.what}")
                screen.update(text(shown), refresh=True)
                time.sleep(_EACH)
    except KeyboardInterrupt:
        return Show("", 0)
    except LaunchError:
        if not shown:
            raise
        return Show(f"job {entry.number} has ended", 0)


def _text(entry: JobEntry, answer: dict[str, Any], columns: int, lines: int = _ROWS) -> str:
    """The table: a line for the launch, and one for each rank; if few fit, those that have been silent for longest."""
    ranks = answer.get("ranks")
    ranks = [one for one in ranks if isinstance(one, dict)] if isinstance(ranks, list) else []
    running = sum(one.get("state") == "running" for one in ranks)
    rate = f"{amount(float(answer.get('rate') or 0))}/s"
    head = f"job {entry.number}: {running} of {counted(len(ranks), 'rank')} running, attempt {answer.get('attempt')}, "
    head += f"{span(float(answer.get('seconds') or 0))}, {rate}"
    shown = ranks
    if len(ranks) > lines - 2:
        longest = sorted(ranks, key=lambda one: -float(one.get("silence") or 0))
        shown = longest[: max(1, lines - 3)]
    rows = [HEAD, *map(_row, shown)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = []
    for row in rows:
        cells = [cell.rjust(w) if at in _NUMBERS else cell.ljust(w) for at, (cell, w) in enumerate(zip(row, widths))]
        line = "  ".join(cells).rstrip()
        table.append(line[: columns - 1] + "…" if columns and len(line) > columns else line)
    more = [f"… and {counted(len(ranks) - len(shown), 'more rank')}"] if len(shown) < len(ranks) else []
    return printable("\n".join([head, *table, *more]))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    cpu, memory = one.get("cpu"), one.get("memory")
    return (
        str(one.get("rank", "?")),
        str(one.get("node", "?")),
        str(one.get("pid") or "-"),
        str(one.get("state", "?")),
        f"{float(cpu):.0f} %" if cpu is not None else "-",
        amount(float(memory)) if memory is not None else "-",
        span(float(one.get("silence") or 0)) if one.get("state") == "running" else "-",
        str(one.get("line", "")).expandtabs(1),
    )


def span(seconds: float) -> str:
    """`7 s`, `12:31`, `3:05:00`."""
    return f"{int(seconds)} s" if seconds < 100 else clock(seconds)
