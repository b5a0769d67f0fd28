"""The attempts of a run as run.json has them: times, hosts, and an entry for each rank and service.

Times are in seconds since the launch began.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import observers
from mslaunch.launcher.monitoring.event_texts import cause_of
from mslaunch.plan.number_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.monitoring.activity import Activity

    Facts = dict[str, Any]


class AttemptRecords:
    """All attempts of one launch, from the records of observers."""

    def __init__(self, activity: Activity) -> None:
        self.attempts: list[Facts] = []
        self.restarts: list[Facts] = []
        self.hangs: list[Facts] = []
        self._activity = activity
        self._hosts: dict[str, Facts] = {}
        self._ranks: dict[int, Facts] = {}  # of the last attempt, by their numbers in frames
        self._waiting: Facts = _attempt(1)  # what is known of the next attempt before its ranks start
        self._on: dict[type, Callable[[Any], None]] = {
            observers.Connected: self._connected,
            observers.Staged: self._staged,
            observers.AttemptStarted: self._attempt_started,
            observers.RankStarted: self._rank_started,
            observers.AllStarted: self._all_started,
            observers.RankEnded: self._rank_ended,
            observers.JobFailed: self._failed,
            observers.HangFound: self._hang,
            observers.AttemptEnded: self._attempt_ended,
            observers.Restarting: self._restarting,
        }

    def observe(self, record: Any) -> None:
        """Note what a record says."""
        note = self._on.get(type(record))
        if note:
            note(record)

    @property
    def hosts(self) -> list[Facts]:
        """Those of all attempts; ranks have an index into this list."""
        return list(self._hosts.values())

    def refresh(self) -> None:
        """Bring the ranks of an attempt that runs up to date."""
        if self.attempts and self.attempts[-1]["ended"] is None:
            self.attempts[-1]["ranks"] = self._with_activity()

    def _host(self, name: str) -> Facts:
        if name not in self._hosts:
            self._hosts[name] = {"name": name, "local": None, "slots": None, "facts": {}, "connected": None}
        return self._hosts[name]

    def _connected(self, record: observers.Connected) -> None:
        self._waiting["connected"] = _rounded(record.time)
        for at, name in enumerate(record.hosts):
            host, hello = self._host(name), record.hellos[at] if at < len(record.hellos) else None
            host["connected"] = host["connected"] or _rounded(record.time)
            if hello:
                host["facts"] = {
                    "hostname": hello.host,
                    "python": hello.python,
                    "cpus": hello.cpus,
                    "cores": hello.cores,
                    "addresses": list(hello.addresses),
                }

    def _staged(self, record: observers.Staged) -> None:
        self._waiting["staged"] = _rounded(record.time)

    def _attempt_started(self, record: observers.AttemptStarted) -> None:
        self._activity.begin_attempt()
        attempt = {**self._waiting, "number": record.number, "started": _rounded(record.time)}
        self.attempts.append(attempt)
        self._ranks = {}
        if record.placed:
            jobmap = record.placed.jobmap
            for node in jobmap.nodes:
                self._host(node.name).update(local=node.local, slots=node.slots)
            numbers = {name: at for at, name in enumerate(self._hosts)}
            for at in jobmap.placements:
                host = numbers[jobmap.nodes[at.node].name]
                facts = {"local_rank": at.local_rank, "app": at.app, "cpus": ranges(at.cpus)}
                self._ranks[at.rank] = _rank(at.rank, f"rank {at.rank}", host, **facts)

    def _rank_started(self, record: observers.RankStarted) -> None:
        one = self._rank(record)
        if record.starts > 1:
            text = f"{record.name} was started again on {record.host}"
            number = None if is_service(record.rank) else record.rank
            self._note_restart(record.time, record.rank if number is not None else None, text)
        one.update(pid=record.pid, starts=record.starts, started=_rounded(record.time), ended=None)
        one.update(code=None, signal=None, lost=False, by_mslaunch=False)

    def _rank(self, record: Any) -> Facts:
        """The entry of a rank or service; those that the map does not have are added."""
        if record.rank not in self._ranks:
            self._host(record.host)
            number = None if is_service(record.rank) else record.rank
            self._ranks[record.rank] = _rank(number, record.name, list(self._hosts).index(record.host))
        return self._ranks[record.rank]

    def _note_restart(self, when: float, rank: int | None, text: str) -> None:
        attempt = self.attempts[-1]["number"] if self.attempts else 1
        self.restarts.append({"seconds": _rounded(when), "attempt": attempt, "rank": rank, "text": text})

    def _all_started(self, record: observers.AllStarted) -> None:
        self.attempts[-1]["all_started"] = _rounded(record.time)

    def _rank_ended(self, record: observers.RankEnded) -> None:
        how = {"code": record.code, "signal": record.signal, "lost": record.lost, "by_mslaunch": record.by_us}
        self._rank(record).update(ended=_rounded(record.time), **how)

    def _hang(self, record: observers.HangFound) -> None:
        self.hangs.append({"seconds": _rounded(record.time), "text": record.text})

    def _failed(self, record: observers.JobFailed) -> None:
        self.attempts[-1].update(failed=_rounded(record.time), cause=cause_of(record.failure))

    def _attempt_ended(self, record: observers.AttemptEnded) -> None:
        cause = cause_of(record.failure)
        self.attempts[-1].update(ended=_rounded(record.time), ranks=self._with_activity(), cause=cause)
        self._waiting = _attempt(record.number + 1, record.time)

    def _with_activity(self) -> list[Facts]:
        """The ranks of the last attempt, with what they have printed so far."""
        return [{**facts, **self._printed(number, facts)} for number, facts in self._ranks.items()]

    def _printed(self, number: int, facts: Facts) -> Facts:
        """Silence begins with the start of a rank, and ends with its end."""
        one = self._activity.ranks.get(number)
        began, ended = facts["started"], facts["ended"]
        if began is not None and ended is None:
            ended = self._activity.now
        if one is None or one.first is None or one.last is None:
            silence = ended - began if began is not None else 0.0
            return {"bytes": 0, "first_output": None, "last_output": None, "silence": _rounded(silence)}
        first, last = _rounded(one.first), _rounded(one.last)
        silence = one.silence if began is None else max(one.silence, one.first - began, ended - one.last)
        return {"bytes": one.size, "first_output": first, "last_output": last, "silence": _rounded(silence)}

    def _restarting(self, record: observers.Restarting) -> None:
        text = f"all ranks are started again{f': {record.changed}' if record.changed else ''}"
        self._note_restart(record.time, None, text)
        self._waiting.update(number=record.number)


def _attempt(number: int, began: float = 0.0) -> Facts:
    empty: Facts = dict.fromkeys(("connected", "staged", "started", "all_started", "failed", "ended", "cause"))
    return {"number": number, "began": _rounded(began), **empty, "ranks": []}


def _rank(number: int | None, name: str, host: int, **facts: Any) -> Facts:
    known: Facts = {"rank": number, "name": name, "host": host, "local_rank": None, "app": None, "cpus": "", **facts}
    how = dict.fromkeys(("pid", "started", "ended", "code", "signal"))
    return {**known, **how, "lost": False, "by_mslaunch": False, "starts": 0}


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
