"""A command line, understood: settings by the field that they fill, and the programs; `assemble` makes it a request.

A field is a path: "policy.map_by" or "timeout" of the request, "app.np" of the application context at hand, "own.total"
of the record in which a dialect keeps what it evaluates itself.  A final "+" says that values are joined, not replaced.
"""

from __future__ import annotations

from mslaunch.datamodel.request import AppContext, LinkPolicy, OutputPolicy, Policy, Request, ServicePolicy
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

#: options that `recovery_readers.assemble` combines; without them `assemble` is enough
RECOVERY = {"restart", "restart_delay", "min_ranks"}


class Setting(NamedTuple):
    """One value, and where it comes from."""

    value: Any
    source: str = ""  # the option as it was written, or the variable, or file:line
    program: int = 0  # the number of the program that the option stands before


class Settings(dict):  # type: ignore[type-arg]  # a subscript would run at import
    """The settings of one or several sources: path -> list of `Setting`, weakest first."""

    def put(self, path: str, value: Any, source: str = "", program: int = 0) -> None:
        """Append a value, stronger than those before."""
        self.setdefault(path, []).append(Setting(value, source, program))

    def over(self, weaker: Settings) -> Settings:
        """These on top of weaker ones."""
        joined = Settings({path: list(found) for path, found in weaker.items()})
        for path, found in self.items():
            joined.setdefault(path, []).extend(found)
        return joined

    def last(self, path: str, default: Any = None) -> Any:
        """The value that counts."""
        found = self.get(path)
        return found[-1].value if found else default

    def records(self) -> dict[str, dict[str, Any]]:
        """Record ("" is the request itself) -> field -> value."""
        made: dict[str, dict[str, Any]] = {"": {}}
        for path, found in self.items():
            record, _, field = path.rpartition(".")
            values = [setting.value for setting in found]
            fields = made.setdefault(record, {})
            fields[field.rstrip("+")] = sum(values, ()) if field.endswith("+") else values[-1]
        return made


class Program(NamedTuple):
    """One executable: its command line, and the settings of its application context."""

    argv: tuple[str, ...]
    settings: Settings


class ParsedLine:
    """What one source sets: a command line, the environment, or a file."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = (), source: str = "") -> None:
        self.job = Settings()
        self.shared = Settings()  # of every application context
        self.programs: list[Program] = []
        self.part = 0  # the number of the program whose options are being read
        self.put(pairs, source)

    def put(self, pairs: Iterable[tuple[str, Any]], source: str = "", app: Settings | None = None) -> None:
        """Append (path, value) pairs; `app` takes those of one application context."""
        for path, value in pairs:
            if path.startswith("app."):
                (self.shared if app is None else app).put(path, value, source, self.part)
            else:
                self.job.put(path, value, source, self.part)

    def over(self, weaker: ParsedLine) -> ParsedLine:
        """This source on top of a weaker one, with the programs of this one."""
        line = ParsedLine()
        line.job, line.shared = self.job.over(weaker.job), self.shared.over(weaker.shared)
        line.programs = self.programs
        return line

    def sets(self, path: str) -> bool:
        """Whether any program has a setting of this path."""
        return any(path in settings for settings in (self.job, self.shared, *(one.settings for one in self.programs)))


def own_fields(line: ParsedLine) -> Mapping[str, Any]:
    """The fields of the dialect's own record."""
    return line.job.records().get("own", {})


def assemble(line: ParsedLine, notes: Sequence[str] = ()) -> Request:
    """The request; the dialect's own fields are left out."""
    apps = (program.settings.over(line.shared).records().get("app", {}) for program in line.programs)
    records = line.job.records()
    fields = records[""]
    return Request(
        tuple(AppContext(program.argv, **app) for program, app in zip(line.programs, apps)),
        Policy(**records.get("policy", {})),
        OutputPolicy(**records.get("output", {})),
        LinkPolicy(**records.get("link", {})),
        cluster=ServicePolicy(**records.get("cluster", {})),
        **{**fields, "notes": (*fields.get("notes", ()), *notes)},
    )
