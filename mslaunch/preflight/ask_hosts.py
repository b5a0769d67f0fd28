"""Asks the hosts of a launch for their facts, and makes them measure the links between them.

What a host says is bounded and cleaned here, before anything is made of it.
"""

from __future__ import annotations

import time
from math import isfinite

from mslaunch.errors import LaunchError, WireError, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.host_questions import HostQuestions
from mslaunch.preflight.check_records import HostReport, LinkReport
from mslaunch.preflight.link_findings import norm_of, settled, worst_first
from mslaunch.preflight.measure_rounds import apart, few_of_each, rounds_of
from mslaunch.protocol import check_messages as messages
from mslaunch.protocol.control import pack_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.launcher.agents.connection import AgentConnection

    T = TypeVar("T")

_SECONDS = 10.0  # in which a host has to answer what it is asked for: facts, programs, a port
_ROUND = messages.LINK_SECONDS + 2  # seconds in which it has to answer with a measurement
_TRANSFER = 0.03  # seconds of data that a measurement sends
_AGAIN = (0.15, 0.4)  # and of those that decide about an odd link: others may keep its hosts busy for a while
_CONFIRMED = 4  # odd links of a host that are measured again
_GIVEN_UP = 3  # links of a host that lead nowhere, after which its others are not tried
_TEXT, _MANY = 1000, 256  # characters of a text of a host, and members of a list of it, that are kept
_LARGEST = 1 << 62  # a number of a host that is larger counts as this


class HostSurvey:
    """Of agents that are READY; `wait` is that of `HostQuestions`."""

    def __init__(
        self, agents: Sequence[AgentConnection], wait: Callable[[Callable[[], bool], float | None], None]
    ) -> None:
        self._agents = {agent.node.name: agent for agent in agents}
        self.questions = HostQuestions(wait)
        self._listening: dict[str, messages.Listening] = {}
        self.deaf: dict[str, str] = {}  #: hosts whose links could not be measured, and why

    def facts(self, reports: Sequence[HostReport], tmp: str = "") -> list[HostReport]:
        """The reports with facts and clocks, or with errors; `tmp`: see `HostQuestion`."""
        asked = {
            self._agents[report.name]: messages.pack_check(
                messages.HOST, messages.HostQuestion(report.ranks, report.ports, tmp)
            )
            for report in reports
            if report.name in self._agents
        }
        sent = time.time()
        got: dict[str, float] = {}
        answers, errors = self.questions.ask(asked, _SECONDS, lambda name: got.setdefault(name, time.time()))

        def with_facts(report: HostReport) -> HostReport:
            facts = messages.unpack_check(messages.HOST, messages.HostFacts, answers[report.name])
            pairs = len(facts.memlock) == len(facts.files) == 2 and {len(facts.shm), len(facts.tmp_free)} <= {0, 2}
            if len(facts.busy) != len(report.ports) or not pairs:
                raise WireError("it did not answer what it was asked for")
            return _with_clock(report._replace(facts=cleaned(facts)), sent, got[report.name])

        return _answered(reports, answers, errors, with_facts)

    def programs(self, reports: Sequence[HostReport], plans: Mapping[str, NodePlan]) -> list[HostReport]:
        """The reports with what hosts know of their programs."""
        asked = {
            self._agents[name]: f"{messages.PROGRAMS}\n".encode() + pack_plan(_small(plan))
            for name, plan in plans.items()
            if name in self._agents
        }
        answers, errors = self.questions.ask(asked, _SECONDS)

        def with_programs(report: HostReport) -> HostReport:
            found = messages.unpack_programs(answers[report.name])
            return report._replace(programs=tuple(map(cleaned, found)))

        return _answered(reports, answers, errors, with_programs)

    def links(
        self, names: Sequence[str], draw: Callable[[int], int], told: Callable[[str], None] = lambda text: None
    ) -> tuple[list[LinkReport], int]:
        """Measurements between hosts, and in how many rounds; odd ones are measured again.  `told` hears of it."""
        asked = {self._agents[name]: messages.pack_check(messages.LISTEN) for name in names if name in self._agents}
        if len(asked) < 2:
            return [], 0
        self._listen(asked)
        rounds = rounds_of([name for name in names if name in self._listening], draw)
        nowhere = _Nowhere()
        counting = "measuring links, {} of {}"
        found = [
            report for pairs in _counted(rounds, told, counting) for report in self._measure(pairs, _TRANSFER, nowhere)
        ]
        norm = norm_of(found)
        again_counting = "measuring odd links again, {} of {}"
        for seconds in _AGAIN:
            doubtful = [(one.source, one.target) for one in worst_first(found, norm)]
            again = [
                report
                for pairs in _counted(apart(few_of_each(doubtful, _CONFIRMED)), told, again_counting)
                for report in self._measure(pairs, seconds, nowhere)
            ]
            found = settled(found, again, norm)
        return found, len(rounds)

    def _listen(self, asked: Mapping[AgentConnection, bytes]) -> None:
        """Let hosts listen; those where that fails are `deaf`."""
        answers, errors = self.questions.ask(asked, _SECONDS)
        self.deaf.update((name, error.what) for name, error in errors.items())
        for name, answer in answers.items():
            try:
                listening = cleaned(messages.unpack_check(messages.LISTEN, messages.Listening, answer))
                if listening.error:
                    self.deaf[name] = listening.error
                elif 0 < listening.port < 1 << 16 and _is_secret(listening.token):
                    self._listening[name] = listening
                else:
                    raise WireError("it did not answer what it was asked for")
            except WireError as error:
                self.deaf[name] = error.what

    def _measure(self, pairs: Sequence[tuple[str, str]], seconds: float, nowhere: _Nowhere) -> list[LinkReport]:
        """One round; hosts to which nobody could connect are not tried again and again."""
        pairs = [pair for pair in pairs if not nowhere.skips(pair)]
        asked = {self._agents[source]: self._question(source, target, seconds) for source, target in pairs}
        answers, errors = self.questions.ask(asked, _ROUND)
        made = []
        for source, target in pairs:
            try:
                if source in errors:
                    raise WireError(errors[source].what)
                facts = messages.unpack_check(messages.MEASURE, messages.LinkFacts, answers[source])
                if facts.address not in ("", *self._addresses(source, target)):
                    raise WireError("it did not answer what it was asked for")
            except WireError as error:
                facts = messages.LinkFacts(error.what)
            made.append(LinkReport(source, target, cleaned(facts)))
            nowhere.note(made[-1])
        return made

    def _question(self, source: str, target: str, seconds: float) -> bytes:
        """How `source` may reach `target`."""
        listening = self._listening[target]
        addresses = self._addresses(source, target)
        question = messages.LinkQuestion(addresses, listening.port, listening.token, seconds)
        return messages.pack_check(messages.MEASURE, question)

    def _addresses(self, source: str, target: str) -> tuple[str, ...]:
        """Where `source` may reach `target`: at the addresses of its interfaces, and at that of our end of SSH.

        `source` sees the launcher's host there, which may be the target.
        """
        hello, own = self._agents[target].hello, self._agents[source].hello
        addresses = list(hello.addresses) if hello else []
        if own and own.seen_from:
            addresses.append(own.seen_from)
        return tuple(address for address in dict.fromkeys(addresses) if not _is_loopback(address))


def _counted(
    rounds: Sequence[Sequence[tuple[str, str]]], told: Callable[[str], None], text: str
) -> Iterator[Sequence[tuple[str, str]]]:
    """The rounds one by one; `told` gets the text with the number of links so far, of both ways, and of all."""
    total = len({frozenset(pair) for pairs in rounds for pair in pairs})
    done: set[frozenset[str]] = set()
    for pairs in rounds:
        told(text.format(len(done), total))
        yield pairs
        done.update(map(frozenset, pairs))


def _answered(
    reports: Sequence[HostReport],
    answers: Mapping[str, bytes],
    errors: Mapping[str, LaunchError],
    read: Callable[[HostReport], HostReport],
) -> list[HostReport]:
    """The reports with what hosts have answered, as `read` makes them, or with an error."""

    def with_answer(report: HostReport) -> HostReport:
        try:
            if report.name in answers:
                return read(report)
        except WireError as error:
            return report._replace(error=LaunchError(error.what, report.name))
        return report._replace(error=report.error or errors.get(report.name))

    return list(map(with_answer, reports))


class _Nowhere:
    """Hosts that others could not connect to, or that could not connect to others."""

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}
        self._worked: set[str] = set()

    def note(self, report: LinkReport) -> None:
        """How a measurement went."""
        for name in (f"from {report.source}", f"to {report.target}"):
            if report.facts.error:
                self._failed[name] = self._failed.get(name, 0) + 1
            else:
                self._worked.add(name)

    def skips(self, pair: tuple[str, str]) -> bool:
        """Whether it would be in vain."""
        ends = (f"from {pair[0]}", f"to {pair[1]}")
        return any(self._failed.get(end, 0) >= _GIVEN_UP and end not in self._worked for end in ends)


def cleaned(record: T) -> T:
    """A record of a host with bounded, printable texts and bounded numbers; only what is to be done has lines."""

    def clean(value: Any, lines: bool = False) -> Any:
        if isinstance(value, str):
            text = printable(value)[:_TEXT].replace("\t", " ")
            return text if lines else text.replace("\n", " ")
        if isinstance(value, tuple):
            return tuple(map(clean, value[:_MANY]))
        if isinstance(value, float):
            return min(max(value, -1e15), 1e15) if isfinite(value) else 0.0
        return value if isinstance(value, bool) else min(max(value, -1), _LARGEST)

    made = [clean(value, name == "todo") for name, value in zip(record._fields, record)]  # type: ignore[attr-defined,call-overload]
    return type(record)(*made)


def _with_clock(report: HostReport, sent: float, got: float) -> HostReport:
    """How far its clock is ahead, as NTP reckons it (RFC 5905, section 8)."""
    facts = report.facts
    assert facts
    offset = ((facts.came - sent) + (facts.went - got)) / 2
    doubt = max(0.0, ((got - sent) - (facts.went - facts.came)) / 2)
    return report._replace(offset=offset, doubt=doubt)


def _small(plan: NodePlan) -> NodePlan:
    """A plan with the first rank of each program, and no services."""
    firsts = {rank.app: rank for rank in reversed(plan.ranks)}
    return plan._replace(ranks=tuple(sorted(firsts.values())), services=(), world=type(plan.world)())


def _is_secret(word: str) -> bool:
    """Whether it can be a token."""
    return len(word) == 32 and all(letter in "0123456789abcdef" for letter in word)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
