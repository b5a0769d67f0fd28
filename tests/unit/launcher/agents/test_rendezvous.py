"""Rendezvous: frames to the nodes, and the addresses of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement, RankPorts
from mslaunch.datamodel.node_plan import ANY_HOST
from mslaunch.datamodel.request import ServicePolicy, Share
from mslaunch.errors import WireError
from mslaunch.launcher.agents import rendezvous
from mslaunch.launcher.agents.rendezvous import Rendezvous, RendezvousRequest
from mslaunch.protocol import control, frames
from mslaunch.protocol.control import Hello, Reached, Reserved

USUAL = ServicePolicy()
ANSWER = Reserved((10002, 10005, 10001), 10003, "token")
OWN = (10005,)  # that of JAX
ONE_PORT, OTHER_PORT = Reserved((10005, 10001), 10003, "first"), Reserved((8119,), 10004, "second")


class Lab:
    """A rendezvous; the test answers for the agents."""

    def __init__(
        self,
        *addresses: tuple[str, ...],
        first: int = 0,
        service: int = -1,
        seen: dict[int, str] | None = None,
        cluster: ServicePolicy = USUAL,
        elsewhere: bool = False,
        rank_ports: dict[int, int] | None = None,
    ) -> None:
        hellos = {
            node: Hello(f"h{node}", 1, 2, 2, "3.8.0", found, (seen or {}).get(node, ""))
            for node, found in enumerate(addresses)
        }
        self.sent: list[tuple[int, frames.Frame]] = []
        self.done: list[tuple[Endpoint, str]] = []
        hosts = [f"n{node}" for node in hellos]
        sought = RendezvousRequest(first, service if service >= 0 else first, cluster, elsewhere, rank_ports or {})
        self.hosts: tuple[str, ...] = ()  # that may connect to services
        self.wireup = Rendezvous(hellos, hosts.__getitem__, sought, self._send, self._done)
        self.wireup.begin()

    def _done(self, endpoint: Endpoint, warning: str) -> None:
        self.hosts = endpoint.hosts
        self.done.append((endpoint._replace(hosts=()), warning))

    def _send(self, node: int, data: bytes) -> None:
        self.sent += [(node, frame) for frame in frames.Decoder().feed(data)]

    def reached(self, node: int, *addresses: str, translated: tuple[str, ...] = ()) -> None:
        """The answer of a node to its probe."""
        self.wireup.reached(node, Reached(addresses, translated))

    def asked(self) -> dict[int, bytes]:
        """The ports requested from each node."""
        return {node: frame.payload for node, frame in self.sent if frame.kind == frames.RESERVE}

    def probed(self, node: int) -> list[str]:
        """The addresses that a node was last asked to probe."""
        probes = [frame for to, frame in self.sent if to == node and frame.kind == frames.PROBE]
        return list(control.unpack_record(control.Probe, probes[-1].payload).addresses)

    def candidates(self) -> list[str]:
        return self.probed(self.sent[-1][0])


def test_one_node_asks_no_other() -> None:
    lab = Lab(("10.0.0.1", "127.0.0.1"))
    assert [(node, frame.kind, frame.payload) for node, frame in lab.sent] == [(0, frames.RESERVE, b"0 0 0 @127.0.0.1")]
    lab.wireup.reserved(0, ANSWER)
    assert lab.done == [(Endpoint("127.0.0.1", 10001, 10002, own_ports=OWN), "")]


def test_services_are_for_the_hosts_of_the_job() -> None:
    """Their own host is told by the user of a connection; another launcher's hosts have no agent of ours."""
    lab = Lab(("10.0.0.1", "127.0.0.1"))
    lab.wireup.reserved(0, ANSWER)
    assert lab.hosts == ()
    lab = Lab(("10.0.0.1", "127.0.0.1"), ("10.0.0.2", "fd00::2", "::1"))
    assert [frame.payload for _, frame in lab.sent] == [b"0 0 0"]
    lab.wireup.reserved(0, ANSWER)
    lab.reached(1, "10.0.0.1")
    assert lab.hosts == ("10.0.0.1", "10.0.0.2", "fd00::2")
    lab = Lab(("10.0.0.1",), elsewhere=True)
    assert [frame.payload for _, frame in lab.sent] == [b"0 0 0"]
    lab.wireup.reserved(0, ANSWER)
    assert lab.hosts == (ANY_HOST,)


def test_the_others_probe_the_node_of_rank_0() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2", "192.168.0.2", "127.0.0.1"), ("10.0.0.3",), first=1)
    assert [node for node, _ in lab.sent] == [1]
    lab.wireup.reserved(1, ANSWER)
    assert [(node, frame.kind) for node, frame in lab.sent[1:]] == [(0, frames.PROBE), (2, frames.PROBE)]
    assert control.unpack_record(control.Probe, lab.sent[1][1].payload) == (
        ("10.0.0.2", "192.168.0.2", "127.0.0.1"),
        10003,
        "token",
    )
    lab.reached(0, "192.168.0.2", "10.0.0.2")
    assert lab.done == []
    lab.reached(2, "192.168.0.2")
    assert lab.done == [(Endpoint("192.168.0.2", 10001, 10002, own_ports=OWN), "")]


def test_the_first_candidate_that_all_reach_wins() -> None:
    lab = Lab(("10.0.0.1", "192.168.0.1"), ("10.0.0.2",))
    lab.wireup.reserved(0, ANSWER)
    lab.reached(1, "192.168.0.1", "10.0.0.1")
    assert lab.done[0][0].address == "10.0.0.1"


def test_candidates_in_their_order_and_once() -> None:
    """What most hosts see of the launcher comes first, if it is the host's own, then the list of the kernel."""
    own = ("172.17.0.1", "10.0.0.1", "10.1.0.1", "10.2.0.1", "127.0.0.1")
    lab = Lab(own, (), (), (), seen={1: "10.1.0.1", 2: "10.2.0.1", 3: "10.2.0.1"})
    lab.wireup.reserved(0, ANSWER)
    assert lab.candidates() == ["10.2.0.1", "10.1.0.1", "172.17.0.1", "10.0.0.1", "127.0.0.1"]
    lab = Lab(own, (), seen={0: "10.9.9.9", 1: "10.2.0.1"})
    lab.wireup.reserved(0, ANSWER)
    assert lab.candidates()[:2] == ["172.17.0.1", "10.2.0.1"], "ssh came to the first one"


def test_a_host_has_no_more_candidates_than_an_agent_names() -> None:
    """The other hosts need a descriptor for each."""
    own = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(2 * control.ADDRESSES))
    lab = Lab(own, (), seen={1: own[-1]})
    lab.wireup.reserved(0, ANSWER)
    assert lab.candidates() == [own[-1], *own[: control.ADDRESSES - 1]]


@pytest.mark.parametrize(
    ("seen", "added"),
    [
        ({1: "203.0.113.9", 2: "203.0.113.9"}, ["203.0.113.9"]),
        ({1: "203.0.113.9", 2: "203.0.113.8"}, []),
        ({1: "203.0.113.9"}, []),
        ({1: "10.0.0.3", 2: "10.0.0.3"}, []),  # that of another host
        ({0: "10.9.9.9", 1: "203.0.113.9", 2: "203.0.113.9"}, []),  # the launcher is elsewhere
        ({0: "10.0.0.1", 1: "203.0.113.9", 2: "203.0.113.9"}, ["203.0.113.9"]),  # it came from there to itself
        ({1: "127.0.0.9", 2: "127.0.0.9"}, []),
    ],
    ids=str,
)
def test_what_is_no_address_of_the_host_counts_if_all_others_say_so(seen: dict[int, str], added: list[str]) -> None:
    lab = Lab(("10.0.0.1", "127.0.0.1"), ("10.0.0.2",), ("10.0.0.3",), seen=seen)
    lab.wireup.reserved(0, ANSWER)
    assert lab.candidates() == ["10.0.0.1", "127.0.0.1", *added]


def test_an_address_behind_translation_is_taken_if_all_others_prove_it() -> None:
    """Then the user is told, for a relay could be there."""
    seen = {1: "203.0.113.9", 2: "203.0.113.9"}
    for answers, address, text in (
        (
            [((), ("203.0.113.9",))] * 2,
            "203.0.113.9",
            "other hosts reach n0 at 203.0.113.9 only by address translation",
        ),
        (
            [(("203.0.113.9",), ())] * 2,
            "203.0.113.9",
            "other hosts reach n0 at 203.0.113.9 only by address translation",
        ),
        ([(("10.0.0.1",), ("203.0.113.9",))] * 2, "10.0.0.1", ""),
        ([((), ("203.0.113.9",)), ((), ())], "10.0.0.1", "n1, n2 cannot reach n0 at 10.0.0.1"),
        ([((), ("203.0.113.9",)), (("10.0.0.1",), ())], "10.0.0.1", "n1 cannot reach n0 at 10.0.0.1"),
    ):
        lab = Lab(("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3",), seen=seen)
        lab.wireup.reserved(0, ANSWER)
        for node, (addresses, translated) in enumerate(answers, 1):
            lab.reached(node, *addresses, translated=translated)
        assert lab.done[0][0].address == address and lab.done[0][1] == (text and f"{text} (MASTER_ADDR)")


def test_a_host_that_reaches_what_it_was_not_asked_for_is_an_error() -> None:
    for addresses, translated in ((("10.0.0.2",), ()), ((), ("10.0.0.2",)), (("10.0.0.1", "10.9.9.9"), ())):
        lab = Lab(("10.0.0.1",), ("10.0.0.2",))
        lab.wireup.reserved(0, ANSWER)
        with pytest.raises(WireError, match="not asked to probe"):
            lab.reached(1, *addresses, translated=translated)


def test_a_host_that_takes_an_own_address_for_the_launchers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "addresses", lambda: ["10.0.0.1", "172.17.0.1"])
    own = (("10.0.0.1",), ("10.0.0.2", "172.17.0.1"), ("10.0.0.3", "172.17.0.1"))
    lab = Lab(*own, seen={1: "10.0.0.2", 2: "172.17.0.1"})
    lab.wireup.reserved(0, ANSWER)
    assert lab.candidates() == ["10.0.0.1"]
    lab.reached(1, "10.0.0.1")
    lab.reached(2, "10.0.0.1")
    text = "n1 says that it sees this host at 10.0.0.2, its own address: that is ignored"
    assert lab.done == [(Endpoint("10.0.0.1", 10001, 10002, own_ports=OWN), text)], "the launcher may be on n2"


@given(st.data())
def test_one_dishonest_host_moves_no_other(data: st.DataObject) -> None:
    """All meet at an address of rank 0's host that honest hosts have proved, whatever the other one says."""
    own = ("172.17.0.1", "10.0.0.1", "10.1.0.1")
    pool = (*own, "10.0.0.2", "10.0.0.3", "10.6.6.6", "203.0.113.9", "127.0.0.1")
    said = st.lists(st.sampled_from(pool), max_size=3, unique=True).map(tuple)
    seen = data.draw(st.sampled_from(["", "10.0.0.1"]))
    lies = {0: "", 1: seen, 2: seen, 3: data.draw(st.sampled_from(pool))}
    lab = Lab(own, ("10.0.0.2",), ("10.0.0.3",), data.draw(said), seen=lies)
    lab.wireup.reserved(0, ANSWER)
    candidates = lab.probed(3)
    assert set(candidates) == set(own) and candidates == lab.probed(1) == lab.probed(2)
    honest = data.draw(st.lists(st.sampled_from(own), min_size=1, unique=True))
    some = st.lists(st.sampled_from(candidates), unique=True)
    lab.reached(1, *honest)
    lab.reached(3, *data.draw(some), translated=tuple(data.draw(some)))
    lab.reached(2, *honest)
    assert lab.done[0][0].address in honest


def test_no_common_address_is_a_warning() -> None:
    lab = Lab(("10.0.0.1", "10.1.0.1"), (), (), ())
    lab.wireup.reserved(0, ANSWER)
    lab.reached(1, "10.1.0.1")
    lab.reached(2)
    lab.reached(3, "10.1.0.1")
    assert lab.done == [
        (Endpoint("10.1.0.1", 10001, 10002, own_ports=OWN), "n2 cannot reach n0 at 10.1.0.1 (MASTER_ADDR)")
    ]


def test_a_first_node_without_any_address_does_not_stop_the_launch() -> None:
    lab = Lab((), ())
    lab.wireup.reserved(0, ANSWER)
    lab.reached(1)
    assert len(lab.done) == 1 and "n1" in lab.done[0][1]


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (ServicePolicy(port=8118), b"8118 0 0 @127.0.0.1"),
        (ServicePolicy(port=8118, moves=True), b"8118- 0 0 @127.0.0.1"),
        (ServicePolicy(moves=True), b"0 0 0 @127.0.0.1"),
        (ServicePolicy(simulated=True), b"0 @127.0.0.1"),
        (ServicePolicy(share=Share(8, 4, "10.0.0.9", 8118, True)), b"8118 0"),
        (ServicePolicy(share=Share(8, 0, "::1", 8118, True), moves=True), b"8118- 0 @::1"),
        (ServicePolicy(share=Share(8, 4, "10.0.0.9", 8118, False), port=1, moves=True), b"0"),
    ],
    ids=str,
)
def test_ports_are_requested_as_the_options_say(cluster: ServicePolicy, words: bytes) -> None:
    assert Lab(("10.0.0.1",), cluster=cluster).asked() == {0: words}


@pytest.mark.parametrize("master", [False, True])
def test_a_share_uses_the_given_address(master: bool) -> None:
    """Other launchers start the other ranks, so there are no agents that could probe an address."""
    lab = Lab(("10.0.0.1",), cluster=ServicePolicy(share=Share(8, None, "fd00::9", 8118, master)))
    lab.wireup.reserved(0, Reserved((8118, 10001) if master else (10001,), 10003, "token"))
    assert lab.done == [(Endpoint("fd00::9", 10001, 8118, "fd00::9"), "")]


def test_the_port_of_a_share_of_all_ranks_may_move() -> None:
    lab = Lab(("10.0.0.1",), cluster=ServicePolicy(share=Share(2, 0, "::1", 8118, True), moves=True))
    lab.wireup.reserved(0, Reserved((8120, 10001), 10003, "token"))
    assert lab.done == [(Endpoint("::1", 10001, 8120, "::1"), "")]


def test_a_dry_run_has_no_scheduler() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), cluster=ServicePolicy(simulated=True))
    lab.wireup.reserved(0, Reserved((10001,), 10003, "first"))
    lab.reached(1, "10.0.0.1")
    assert lab.done == [(Endpoint("10.0.0.1", 10001, 0), "")]


def test_a_scheduler_elsewhere_has_an_address_of_its_own() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3",), service=2, cluster=ServicePolicy(port=8118, moves=True))
    assert lab.asked() == {0: b"0 0", 2: b"8118-"}
    lab.wireup.reserved(2, OTHER_PORT)
    assert lab.wireup.silent() == 0 and len(lab.sent) == 2
    lab.wireup.reserved(0, ONE_PORT)
    probes = {node: control.unpack_record(control.Probe, frame.payload) for node, frame in lab.sent[2:]}
    at_first, at_other = (("10.0.0.1",), 10003, "first"), (("10.0.0.3",), 10004, "second")
    assert probes == {0: at_other, 1: at_first, 2: at_first}, "one listener at a time"
    lab.reached(0, "10.0.0.3")
    lab.reached(1, "10.0.0.1")
    assert control.unpack_record(control.Probe, lab.sent[-1][1].payload) == at_other and lab.sent[-1][0] == 1
    lab.reached(2)
    assert lab.done == [] and lab.wireup.silent() == 1
    lab.reached(1, "10.0.0.3")
    assert lab.done == [
        (Endpoint("10.0.0.1", 10001, 8119, "10.0.0.3", own_ports=OWN), "n2 cannot reach n0 at 10.0.0.1 (MASTER_ADDR)")
    ]


def test_ranks_have_ports_beside_those_of_the_scheduler_and_of_rank_0() -> None:
    """On one host: of these the scheduler's comes first, and rank 0's last."""
    lab = Lab(("10.0.0.1",), rank_ports={0: 2}, cluster=ServicePolicy(port=8118))
    assert lab.asked() == {0: b"8118 0 0 0 0 @127.0.0.1"}
    lab.wireup.reserved(0, Reserved((8118, 7001, 7002, 10005, 10001), 0, ""))
    held = {0: RankPorts("127.0.0.1", (7001, 7002))}
    assert lab.done == [(Endpoint("127.0.0.1", 10001, 8118, own_ports=OWN, rank_ports=held), "")]


def test_the_hosts_of_ranks_are_probed_by_all_others() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3", "10.1.0.3"), service=1, rank_ports={0: 1, 2: 2})
    assert lab.asked() == {0: b"0 0 0", 1: b"0", 2: b"0 0"}
    lab.wireup.reserved(0, Reserved((7001, 10005, 10001), 1, "0"))
    lab.wireup.reserved(1, Reserved((8119,), 2, "1"))
    lab.wireup.reserved(2, Reserved((7003, 7004), 3, "2"))
    own = {0: ["10.0.0.1"], 1: ["10.0.0.2"], 2: ["10.0.0.3", "10.1.0.3"]}
    for node in own:
        for target in [target for target in (0, 2, 1) if target != node]:
            assert lab.done == []
            lab.reached(node, *(own[target] if (node, target) != (1, 2) else ["10.1.0.3"]))
    held = {0: RankPorts("10.0.0.1", (7001,)), 2: RankPorts("10.1.0.3", (7003, 7004))}
    assert lab.done == [(Endpoint("10.0.0.1", 10001, 8119, "10.0.0.2", own_ports=OWN, rank_ports=held), "")]


def test_a_host_that_cannot_reach_ranks_is_named() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), rank_ports={0: 1, 1: 1}, cluster=ServicePolicy(simulated=True))
    lab.wireup.reserved(0, Reserved((7001, 10001), 1, "0"))
    lab.wireup.reserved(1, Reserved((7002,), 2, "1"))
    lab.reached(0)
    lab.reached(1, "10.0.0.1")
    assert lab.done[0][1] == "n0 cannot reach n1 at 10.0.0.2 (its ranks, --env-for)"
    assert lab.done[0][0].rank_ports[1] == RankPorts("10.0.0.2", (7002,))


def test_a_host_that_cannot_reach_the_scheduler_is_named() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), service=1)
    lab.wireup.reserved(0, ONE_PORT)
    lab.wireup.reserved(1, OTHER_PORT)
    lab.reached(0)
    lab.reached(1, "10.0.0.1")
    assert lab.done[0][1] == "n0 cannot reach n1 at 10.0.0.2 (MS_SCHED_HOST)"


def test_the_address_that_names_the_schedulers_host_comes_first() -> None:
    """It decides over which network MindSpore's ranks talk."""
    for host in ("192.168.0.2", "joe@192.168.0.2"):
        lab = Lab(("10.0.0.1",), ("10.0.0.2", "192.168.0.2"), service=1, cluster=ServicePolicy(host))
        lab.wireup.reserved(0, ONE_PORT)
        lab.wireup.reserved(1, OTHER_PORT)
        lab.reached(0, "10.0.0.2", "192.168.0.2")
        lab.reached(1, "10.0.0.1")
        assert lab.done[0][0] == Endpoint("10.0.0.1", 10001, 8119, "192.168.0.2", own_ports=OWN)
    lab = Lab(("10.0.0.1",), ("10.0.0.2",), service=1, cluster=ServicePolicy("192.168.7.7"))
    lab.wireup.reserved(0, ONE_PORT)
    lab.wireup.reserved(1, OTHER_PORT)
    assert lab.sent[2][0] == 0 and control.unpack_record(control.Probe, lab.sent[2][1].payload)[0] == ("10.0.0.2",), (
        "it has none such"
    )


def test_unexpected_answers_are_errors() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2",))
    for answer in (ANSWER._replace(ports=(1, 2)), ANSWER._replace(ports=(1, 2, 3, 4))):
        with pytest.raises(WireError):
            lab.wireup.reserved(0, answer)
    with pytest.raises(WireError):
        lab.wireup.reserved(1, ANSWER)
    with pytest.raises(WireError):
        lab.reached(1)
    lab.wireup.reserved(0, ANSWER)
    with pytest.raises(WireError):
        lab.reached(0)


def test_the_scheduler_is_on_the_node_of_the_first_rank_unless_a_host_is_named() -> None:
    nodes = tuple(Node(f"n{at}", 1, "-H") for at in range(3))
    jobmap = JobMap(nodes, (Placement(4, 0, 1, 0), Placement(5, 0, 0, 0)), 2)
    assert (jobmap.service_node, jobmap._replace(service=2).service_node) == (1, 2)


@given(st.data())
def test_every_answer_is_awaited_once(data: st.DataObject) -> None:
    """In any order of answers, no address is chosen before all have arrived, and all have proved the chosen one."""
    count = data.draw(st.integers(1, 4))
    first, service = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    lab = Lab(*((f"10.0.0.{node}", f"10.1.0.{node}") for node in range(count)), first=first, service=service)
    waiting = [(node, frames.RESERVE) for node in lab.asked()]
    while waiting:
        assert lab.done == [] and lab.wireup.silent() in {node for node, _ in waiting}
        node, kind = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        before = len(lab.sent)
        if kind == frames.RESERVE:
            ports = tuple(20000 + node * 10 + at for at in range(len(control.unpack_ports(lab.asked()[node]))))
            lab.wireup.reserved(node, Reserved(ports, 1, "x"))
        else:
            lab.reached(node, *lab.probed(node)[1:])
        waiting += [(to, frame.kind) for to, frame in lab.sent[before:]]
    ((endpoint, warning),) = lab.done
    assert endpoint.service_port == 20000 + service * 10 and endpoint.port == 20001 + first * 10 + (first == service)
    assert endpoint.own_ports == (endpoint.port - 1,)
    assert endpoint.address == (f"10.1.0.{first}" if count > 1 else "127.0.0.1") and not warning
    assert endpoint.service_address == (f"10.1.0.{service}" if first != service else "")
