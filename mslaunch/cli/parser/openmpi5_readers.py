"""Readers of Open MPI 5.0's comma lists: --output, --display and --runtime-options; and of a few other options.

Names are taken in any case and may be shortened while unambiguous (`merge`, `map-d`), as --help output of 5.0 says.
Qualifiers (`:nocopy`) act on the whole list wherever they stand, so they are read as entries.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected, count_or_zero, meant, shortened, span, text, yes_no
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.number_ranges import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mslaunch.cli.parser.readers import Pairs

_OUTPUT = (
    "tag", "tag-detailed", "tag-fullname", "rank", "timestamp", "xml", "merge-stderr-to-stdout", "dir", "file",
    "nocopy", "copy", "nojobid", "raw", "pattern",
)  # fmt: skip
_MOST_RANKS = 1 << 22  # that --show-ranks may name
_DISPLAY = (
    "allocation", "map", "map-devel", "bindings", "topo", "cpus", "proctable", "parseable", "parsable",
)  # fmt: skip
_FLAGS: dict[str, Pairs] = {
    "tag": [("output.tag", "tag")],
    "tag-detailed": [("output.tag", "detailed")],
    "tag-fullname": [("output.tag", "fullname")],
    "rank": [("output.tag", "rank")],
    "timestamp": [("output.timestamp", True)],
    "xml": [("output.xml", True)],
    "merge-stderr-to-stdout": [("output.merge", True)],
    "nocopy": [("output.copy", False)],
    "copy": [("output.copy", True)],
    "nojobid": [("output.jobid", False)],
    "raw": [],  # without a tag output is not held back until the end of a line
    "allocation": [("display_allocation", True)],
    "map": [("display_map", "map")],
    "map-devel": [("display_map", "devel")],
    "bindings": [("report_bindings", True)],
    "topo": [("display_topology", True)],
    "cpus": [("display_topology", True)],
    "parseable": [("display_map", "diffable")],
    "parsable": [("display_map", "diffable")],
}

#: --runtime-options that are yes or no: the fields they set
_SWITCHES: dict[str, str] = {
    "error-nonzero-status": "abort_on_failure",
    "abort-nonzero-status": "abort_on_failure",
    "donotlaunch": "do_not_launch",
    "show-progress": "verbose",
    "recoverable": "recovery",
    "autorestart": "recovery",
    "continuous": "recovery",
    "report-state-on-timeout": "state_on_timeout",
    "get-stack-traces": "stack_traces",
    "report-child-jobs-separately": "",  # the exit code is that of the job
    "aggregate-help-messages": "",  # an error is printed once in any case
    "fwd-environment": "app.env+",
}
_VALUES = {"max-restarts": "N", "timeout": "SECONDS", "spawn-timeout": "SECONDS"}
_NOT_HERE: dict[str, str] = {
    "exec-agent": "write the command before the program: mslaunch … COMMAND PROGRAM",
    "default-exec-agent": "leave it out: the program is started itself",
    "donotspawn": "use donotlaunch, or run true instead of the program",
    "notifyerrors": "leave it out: no events are sent to ranks",
    "output-proctable": "use --display map; --verbose also prints process ids",
    "stop-on-exec": "start the debugger instead of the program: mslaunch … gdb --args PROGRAM",
    "stop-in-init": "start the debugger instead of the program: mslaunch … gdb --args PROGRAM",
    "stop-in-app": "start the debugger instead of the program: mslaunch … gdb --args PROGRAM",
}
#: names that a refusal does not suggest: refused, without effect, or an older spelling
_UNLISTED = {
    *_NOT_HERE, "proctable", "pattern", "parsable", "cpus", "abort-nonzero-status", "autorestart",
    "report-child-jobs-separately", "aggregate-help-messages",
}  # fmt: skip
_UNITS = (1, 60, 3600, 86400)


def output(word: str) -> Pairs:
    """--output: tag, timestamp, xml, merge-stderr-to-stdout, dir=D, file=F, and nocopy; as observed with 5.0.11.

    With dir= or file= nothing is shown, unless `copy` is given.
    """
    settings: Pairs = [("output.style", "5.0")]
    for name, value in _entries(word.replace(":", ","), _OUTPUT, ("dir", "file")):
        if name in ("dir", "file"):
            if not value:
                raise Expected(f"{name}=PATH", f"write --output {name}=PATH")
            settings.insert(0, ("output.copy", False))
            settings.append(("output.directory" if name == "dir" else "output.file", value))
        elif name == "pattern":
            raise Expected(
                "dir=D or file=F without a pattern", "files are named after the ranks: F.RANK.out, F.RANK.err"
            )
        else:
            settings += _FLAGS[name]
    if ("output.tag", "detailed") in settings and ("output.tag", "fullname") in settings:
        settings.append(("output.tag", "detailed-fullname"))
    return settings


def display(word: str) -> Pairs:
    """--display: allocation, map, map-devel, bindings, topo, and parseable, which is for the map."""
    settings: Pairs = []
    for name, value in _entries(word.replace(":", ","), _DISPLAY, ("topo", "cpus")):
        if name == "proctable":
            raise Expected("allocation, map, map-devel, bindings or topo", "the map has the ranks of each host")
        if value:
            raise Expected(f"{name} without hosts", f"write --display {name}: it shows every host of the job")
        settings += _FLAGS[name]
    maps = [value for path, value in settings if path == "display_map"]
    if maps == ["diffable"]:
        raise Expected("map before parseable", "only the map has such a form: --display map:parseable")
    best = [("display_map", kind) for kind in ("diffable", "devel", "map") if kind in maps]
    return [setting for setting in settings if setting[0] != "display_map"] + best[:1]


def runtime_options(word: str) -> Pairs:
    """--runtime-options: NAME[=VALUE], where a name alone says yes."""
    settings: Pairs = []
    known = (*_SWITCHES, *_VALUES, *_NOT_HERE)
    for name, value in _entries(word, known, known):
        if name in _NOT_HERE:
            raise Expected("an option that mslaunch has", f"{name}: {_NOT_HERE[name]}")
        if name in _VALUES and not value:
            raise Expected(f"{name}={_VALUES[name]}")
        if name == "max-restarts":
            settings.append(("max_restarts", count_or_zero(value)))
        elif name == "timeout":
            settings += [("timeout", duration(value) or None), ("timeout_from", "--runtime-options timeout")]
        elif name == "spawn-timeout":
            settings.append(("link.timeout", duration(value)))
        else:
            settings += _switched(_SWITCHES[name], value or "1")
    return settings


def duration(word: str) -> float:
    """Seconds, or DAYS:HOURS:MINUTES:SECONDS with the front parts left out."""
    parts = word.split(":")
    if len(parts) > len(_UNITS):
        raise Expected("a number of seconds, or DAYS:HOURS:MINUTES:SECONDS")
    return sum(span(part) * unit for part, unit in zip(reversed(parts), _UNITS))


def xterm(word: str) -> str:
    """--xterm: ranks as `0,2-3`, -1 or all for all; a final ! holds the windows."""
    chosen = word.rstrip("!")
    if chosen in ("-1", "all"):
        return word.replace("all", "-1")
    if not all(map(bounds, chosen.split(","))) or len(word) - len(chosen) > 1:
        raise Expected("ranks, such as 0,2-3, or -1 for all; a final ! holds the windows")
    return word


def shown_ranks(word: str) -> tuple[int, ...]:
    """--show-ranks: ranks as `0,2-3`."""
    parts = [bounds(part) for part in word.split(",")]
    if not all(parts) or sum(last - first for first, last in filter(None, parts)) > _MOST_RANKS:
        raise Expected("ranks, such as 0,2-3")
    return tuple(sorted({rank for first, last in filter(None, parts) for rank in range(first, last + 1)}))


def signals(word: str) -> Pairs:
    """--forward-signals: those that are always forwarded."""
    names = [name.replace("SIG", "", 1) for name in word.upper().split(",")]
    if not {"USR1", "USR2", "TSTP", "CONT"}.issuperset(names):
        raise Expected("USR1, USR2, TSTP or CONT", "these always reach the ranks; send others with kill")
    return []


def _switched(path: str, word: str) -> Pairs:
    yes = yes_no(word)
    if path == "app.env+":
        return [(path, (("*", None),))] if yes else []
    return [(path, yes)] if path else []


def _entries(word: str, known: Sequence[str], valued: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) for each entry of a list; `valued` are the names that may have one."""
    found = False
    names = f"names among {', '.join(name for name in known if name not in _UNLISTED)}"
    for entry in filter(None, word.split(",")):
        name, equals, value = entry.partition("=")
        full = shortened(name, known)
        if not full:
            raise Expected(names, meant(name, known))
        if equals and full not in valued:
            raise Expected(f"{full} without a value", f"write {full}")
        found = True
        yield full, text(value) if equals else ""
    if not found:
        raise Expected(names)
