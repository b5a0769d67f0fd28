"""Events of a launch as JSON: an object for each record that observers get, described in docs/events.md.

The values of -x are secrets as far as we know: they are blanked where they occur in a text or in the command.  A
failure's details are left out, since they quote what ranks have printed.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import observers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import Request

    Facts = dict[str, Any]

SCHEMA = 1  #: of events and of run.json; a change that readers must know of raises it
BLANK = "…"
_DELETE = "\x7f"  # which json leaves as it is
#: fields that are sentences; others are names, times and words with a meaning of their own
_TEXTS = frozenset(("text", "changed", "report"))
_SHORT = 4  # a value of fewer characters, such as 1 or yes, is no secret, and would blank half of a text


def time_text(seconds: float) -> str:
    """A time since the epoch as RFC 3339 has it, in UTC, with milliseconds."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03}Z"


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON as UTF-8 in which nothing acts on a terminal: what is not printable is escaped, as are bytes of PEP 383."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() and _DELETE not in text:
        return text
    odd = (char for char in set(text) if not char.isprintable() and char != "\n")
    return text.translate({ord(char): _escaped(char) for char in odd})


def _escaped(char: str) -> str:
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))


class SecretValues:
    """The values of -x, by pairs of name and value: texts of a record or an event have none that is long enough."""

    def __init__(self, given: Iterable[tuple[str, str | None]]) -> None:
        import re

        self._names: dict[str, str] = {}
        for name, value in given:
            if value and len(value) >= _SHORT:
                self._names.setdefault(value, name)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def blanked(self, facts: Facts) -> Facts:
        """An object of a record, or an event: without these values in its texts and in the words of its command."""
        return {key: self._of(key, value) for key, value in facts.items()}

    def _of(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._any.sub(BLANK, value) if key in _TEXTS else value
        if isinstance(value, dict):
            return self.blanked(value)
        if isinstance(value, (list, tuple)):
            return [self._word(item) if key == "command" else self._of(key, item) for item in value]
        return value

    def _word(self, word: str) -> str:
        """With the names of the variables, so that --rerun can put their values back."""
        return self._any.sub(lambda found: f"{BLANK}({self._names[found[0]]})", word)


def secret_values(request: Request, environ: Any) -> SecretValues:
    """Those of a launch: given on the command line, or by name, from `environ`."""
    pairs = [pair for app in request.apps for pair in app.env]
    return SecretValues((name, value if value is not None else environ.get(name)) for name, value in pairs)


def cause_of(failure: Failure | None) -> Facts | None:
    """Why something failed, in one sentence, and whose failure it is; None if it went well."""
    if failure is None:
        return None
    text = failure.what + (f" on {failure.host}" if failure.host else "")
    return {"text": text, "rank": failure.rank, "host": failure.host or None, "code": failure.code}


def refusal(error: BaseException) -> Facts:
    """The same of what ended a launch before any rank ran."""
    code = getattr(error, "code", 1)
    return {"text": str(error) or repr(error), "rank": None, "host": None, "code": code if isinstance(code, int) else 1}


def how_it_ended(record: observers.RankEnded) -> Facts:
    """The facts of the end of a process, in events and in run.json."""
    return {"code": record.code, "signal": record.signal, "lost": record.lost, "by_mslaunch": record.by_us}


def _rank(record: observers.RankStarted | observers.RankEnded) -> Facts:
    return {"rank": record.rank_or_none, "name": record.name, "host": record.host}


def _started(record: observers.RankStarted) -> Facts:
    return {**_rank(record), "pid": record.pid, "starts": record.starts}


def _ended(record: observers.RankEnded) -> Facts:
    return {**_rank(record), **how_it_ended(record)}


def _connecting(record: observers.Connecting) -> Facts:
    return {"answered": record.answered, "hosts": record.hosts, "over": record.over}


#: a record -> the name of its event, and what it says beside `attempt` and times
EVENTS: dict[type, tuple[str, Callable[[Any], Facts]]] = {
    observers.Connecting: ("connecting", _connecting),
    observers.Connected: ("connected", lambda record: {"hosts": list(record.hosts)}),
    observers.Staging: ("staging", lambda record: {"sent": record.sent, "size": record.size, "hosts": record.hosts}),
    observers.Staged: ("staged", lambda record: {"files": record.files}),
    observers.AttemptStarted: ("attempt_started", lambda record: {"ranks": record.ranks}),
    observers.RankStarted: ("rank_started", _started),
    observers.AllStarted: ("all_started", lambda record: {}),
    observers.RankEnded: ("rank_ended", _ended),
    observers.Waiting: ("waiting", lambda record: {"text": record.text}),
    observers.OutputCounted: ("output", lambda record: {"stdout": record.stdout, "stderr": record.stderr}),
    observers.JobFailed: ("failed", lambda record: {"cause": cause_of(record.failure)}),
    observers.HangFound: ("hang", lambda record: {"text": record.text}),
    observers.AttemptEnded: ("attempt_ended", lambda record: {"cause": cause_of(record.failure)}),
    observers.Restarting: ("restart", lambda record: {"cause": cause_of(record.failure), "changed": record.changed}),
    observers.LaunchRefused: (
        "end",
        lambda record: {"code": refusal(record.error)["code"], "cause": refusal(record.error)},
    ),
    observers.LaunchEnded: (
        "end",
        lambda record: {"code": record.outcome.code, "cause": cause_of(record.outcome.failure)},
    ),
}

_PREPARING = ("connecting", "connected", "staging", "staged")


class EventTexts:
    """Makes the events of one launch, which began at `wall`, in seconds since the epoch; each is JSON of one line."""

    def __init__(self, jobid: str, wall: float, secrets: SecretValues) -> None:
        self._jobid = jobid
        self._wall = wall
        self._secrets = secrets
        self._attempt = 1
        self._ended = False
        self._between = False  # two attempts
        self._said: tuple[Any, ...] = ()  # of hosts that are being connected

    def begin(self, **facts: Any) -> str:
        """The first event."""
        return self.text("begin", 0.0, {"schema": SCHEMA, **facts})

    def of(self, record: Any) -> tuple[str, str] | None:
        """The name of a record's event and the event; None if it has none, or the launch is over."""
        row = EVENTS.get(type(record))
        if row is None or self._ended:
            return None
        name, facts = row
        if isinstance(record, observers.Connecting):
            said, self._said = self._said, record[1:4]
            if said == self._said:
                return None
        if isinstance(record, (observers.AttemptStarted, observers.Restarting)):
            self._attempt = record.number
            self._between = False
        self._ended = name == "end"
        # hosts are connected for the attempt that follows
        attempt = self._attempt + (self._between and name in _PREPARING)
        self._between = self._between or name == "attempt_ended"
        return name, self.text(name, record.time, {"attempt": attempt, **facts(record)})

    def text(self, name: str, seconds: float, facts: Facts) -> str:
        """One event."""
        when = {"seconds": round(seconds, 3), "time": time_text(self._wall + seconds)}
        event = {"event": name, "job": self._jobid, **when, **facts}
        return json_text(self._secrets.blanked(event))
