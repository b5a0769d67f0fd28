"""What hosts are asked for: one that cannot take part in the measurements is told, and the others are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LaunchError
from mslaunch.preflight.ask_hosts import HostSurvey
from mslaunch.protocol import check_messages as messages
from mslaunch.protocol.control import Hello

WELL = messages.Listening(7, "1" * 32)
REFUSED = messages.Listening(0, "", "it cannot listen at any port:\nToo many open files")


class Agent:
    """An agent that is known by its node."""

    def __init__(self, name: str) -> None:
        self.node = Node(name, 1, "-H")
        self.hello = Hello(name, 1, 1, 1, "3.11", ("10.0.0.1", "127.0.0.1"))


class Questions:
    """Hosts that answer to LISTEN what a test says, and measure links."""

    def __init__(self, answers: Mapping[str, Any], address: str = "10.0.0.1") -> None:
        self.answers = answers
        self.address = address

    def ask(self, asked: Mapping[Any, bytes], seconds: float) -> tuple[dict[str, bytes], dict[str, LaunchError]]:
        answers, errors = {}, {}
        for agent, payload in asked.items():
            name, word = agent.node.name, messages.word_of(payload)[0]
            said = self.answers[name] if word == messages.LISTEN else messages.LinkFacts("", self.address, 1e-4, 1e9)
            if isinstance(said, LaunchError):
                errors[name] = said
            else:
                answers[name] = said if isinstance(said, bytes) else messages.pack_check(word, said)
        return answers, errors


def test_hosts_that_cannot_listen_are_told_and_the_others_measured() -> None:
    answers = {
        "n01": WELL,
        "n02": WELL,
        "n03": REFUSED,
        "n04": LaunchError("it did not answer within 10 s", "n04"),
        "n05": b"garbage",
        "n06": WELL._replace(token="short"),
        "n07": WELL._replace(token="FLUSHALL".center(32)),  # a command to a service that trusts the other hosts
    }
    agents: Any = [Agent(name) for name in answers]
    survey = HostSurvey(agents, lambda until, seconds: None)
    survey.questions = Questions(answers)  # type: ignore[assignment]
    told: list[str] = []
    links, _ = survey.links(list(answers), lambda most: 0, told.append)
    assert told == ["measuring links, 0 of 1", "measuring links, 1 of 1"]  # two ways
    assert {(one.source, one.target) for one in links} == {("n01", "n02"), ("n02", "n01")}
    assert survey.deaf == {
        "n03": "it cannot listen at any port: Too many open files",
        "n04": "it did not answer within 10 s",
        "n05": "it answered 'garbage' where it was asked for 'listen'",
        **dict.fromkeys(("n06", "n07"), "it did not answer what it was asked for"),
    }


def test_a_host_that_measures_what_it_was_not_asked_for_is_told() -> None:
    agents: Any = [Agent(name) for name in ("n01", "n02")]
    for address, error in (("10.0.0.1", ""), ("", ""), ("10.0.0.9", "it did not answer what it was asked for")):
        survey = HostSurvey(agents, lambda until, seconds: None)
        survey.questions = Questions({"n01": WELL, "n02": WELL}, address)  # type: ignore[assignment]
        links, _ = survey.links(["n01", "n02"], lambda most: 0)
        assert {one.facts.error for one in links} == {error}
