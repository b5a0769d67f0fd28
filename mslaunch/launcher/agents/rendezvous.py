"""Rendezvous of a job: the addresses and ports at which its ranks reach rank 0 and the services.

The agents of these two nodes (they may be one) hold the ports.  If there are more nodes, these two also open a token
listener; the other agents probe every address that could lead there, and ranks are given only addresses that a probe
has proved.  Names are never looked up, and the address from which ssh came is only a candidate.  If a node cannot be
reached at any address, the user is warned and the launch goes on, since its program may need none.

A host names only its own addresses: what it says of another host's counts if that host has the address itself or, if
all others are behind address translation, if they say the same.

Where all ranks are on one host they meet at its loopback address: nothing is to be proved, and others cannot connect.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Endpoint, RankPorts
from mslaunch.datamodel.node_plan import ANY_HOST
from mslaunch.datamodel.request import ServicePolicy
from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.table import OWN_PORTS, PORT, SERVICE_PORT
from mslaunch.host.own_addresses import addresses, is_loopback
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LOCALHOST = "127.0.0.1"
_RANKS = "its ranks, --env-for"  # why an address is wanted, in messages


def pack_ports(ports: Iterable[control.PortRequest], address: str = "") -> bytes:
    """The payload of RESERVE: words, `0`, `8118` or `8118-`; and `@127.0.0.1`, where all ranks are on one host.

    `address`: where services listen, and nothing is to be proved to other hosts; "": at all addresses.
    """
    words = [f"{wanted.port}{'-' * wanted.moves}" for wanted in ports]
    return " ".join([*words, f"@{address}"] if address else words).encode()


class RendezvousRequest(NamedTuple):
    """The nodes that need addresses and ports."""

    first: int  # the node of the first rank
    service: int  # the node of the services
    cluster: ServicePolicy = ServicePolicy()
    elsewhere: bool = False  # ranks run on hosts where we have no agent
    rank_ports: Mapping[int, int] = {}  # ports for ranks, by node, where each wants one

    @property
    def address(self) -> str:
        """Where ranks meet and services listen, if that is known before any address is probed; "" if it is not.

        For jobs on one host.
        """
        share = self.cluster.share
        if share:
            return share.address if is_loopback(share.address) else ""
        return "" if self.elsewhere else _LOCALHOST

    @property
    def own_ports(self) -> int:
        """How many single frameworks have a port of their own; none of them where others launch a part of the job."""
        return 0 if self.cluster.share or self.cluster.simulated else OWN_PORTS

    @property
    def ports(self) -> dict[int, list[control.PortRequest]]:
        """The ports that frameworks want, by node: of the services, of each rank, of single frameworks, of rank 0.

        In this order a port that the user has named is not taken for one that may be any.
        """
        cluster, share = self.cluster, self.cluster.share
        meeting = 0 if share and share.first != 0 else cluster.meeting
        found = {self.first: [control.PortRequest()] * self.own_ports + [control.PortRequest(meeting)] * bool(PORT)}
        for node, count in self.rank_ports.items():
            found[node] = [control.PortRequest()] * count + found.get(node, [])
        if not self.serves:
            return found
        port = share.port if share else cluster.port
        found.setdefault(self.service, []).insert(0, control.PortRequest(port, bool(port and cluster.moves)))
        return found

    @property
    def serves(self) -> bool:
        """Whether there are services of ours, which want a port."""
        share = self.cluster.share
        return bool(SERVICE_PORT) and not self.cluster.simulated and (share is None or share.master)


class _ProbeTarget(NamedTuple):
    """A token listener that the other agents probe."""

    node: int
    purpose: str
    own: list[str]  # addresses of the node, the most likely first
    candidates: list[str]  # those, and perhaps one that address translation may lead there
    frame: bytes  # PROBE


class Rendezvous:
    """One or two rounds of questions to the agents; `done` gets the endpoint, and a warning for the user or ""."""

    def __init__(
        self,
        hellos: Mapping[int, control.Hello],
        host: Callable[[int], str],
        sought: RendezvousRequest,
        send: Callable[[int, bytes], None],
        done: Callable[[Endpoint, str], None],
    ) -> None:
        self._hellos = hellos
        self._host = host
        self._sought = sought
        self._send = send
        self._done = done
        self._ports = sought.ports
        self._reserved: dict[int, control.Reserved] = {}
        self._targets: list[_ProbeTarget] = []
        self._probing: dict[int, list[_ProbeTarget]] = {}  # node -> what it probes now, and then
        self._missing = 0  # answers of probes
        self._reached: dict[tuple[int, int], control.Reached] = {}  # target, node -> its answer

    def begin(self) -> None:
        """Ask for ports."""
        for node, ports in self._ports.items():
            address = self._sought.address if len(self._hellos) == 1 else ""
            self._send(node, frames.encode(frames.RESERVE, payload=pack_ports(ports, address)))

    def reserved(self, node: int, answer: control.Reserved) -> None:
        """RESERVED: the node holds its ports; when all do, the others probe."""
        if node in self._reserved or len(answer.ports) != len(self._ports.get(node, ())) or not answer.ports:
            raise WireError("it holds ports that nobody asked for")
        if not all(0 <= port < 1 << 16 for port in (*answer.ports, answer.probe)):
            raise WireError("it holds a port that there is not")
        self._reserved[node] = answer
        if len(self._reserved) < len(self._ports):
            return
        if len(self._hellos) == 1:
            self._finish()
            return
        self._targets = [self._target(self._sought.first, PORT)]
        others = dict.fromkeys(self._sought.rank_ports, _RANKS)
        if self._sought.serves:
            others[self._sought.service] = SERVICE_PORT
        self._targets += [self._target(node, why) for node, why in others.items() if node != self._sought.first]
        for other in self._hellos:
            self._probing[other] = [target for target in self._targets if target.node != other]
            self._missing += len(self._probing[other])
            self._probe(other)

    def _target(self, node: int, purpose: str) -> _ProbeTarget:
        answer, own = self._reserved[node], self._own_addresses(node)
        candidates = list(dict.fromkeys([*own, *self._translated_address(node)]))
        payload = control.pack_record(control.Probe(tuple(candidates), answer.probe, answer.token))
        return _ProbeTarget(node, purpose, own, candidates, frames.encode(frames.PROBE, payload=payload))

    def _own_addresses(self, node: int) -> list[str]:
        """The node's addresses, the most likely first.

        The address by which the user has named the services' host comes first, then the one to which ssh came, then
        those at which most others see the launcher, then those of the interfaces.  The others need a descriptor for
        each, so there are no more than an agent names.
        """
        hello, seen = self._hellos[node], self._seen(node)
        own = hello.addresses
        named = self._sought.cluster.host.rpartition("@")[2].strip("[]")
        wanted = [named] if node == self._sought.service and named in own else []
        called = own[:1] if hello.seen_from and own and not is_loopback(own[0]) else ()
        known = sorted((address for address in own if address in seen), key=seen.count, reverse=True)
        return list(dict.fromkeys([*wanted, *called, *known, *own]))[: control.ADDRESSES]

    def _seen(self, node: int) -> list[str]:
        """The launcher's address as each of the other hosts sees it; "" if a host does not know."""
        return [hello.seen_from for other, hello in self._hellos.items() if other != node]

    def _translated_address(self, node: int) -> list[str]:
        """The address at which all others see the launcher, if `node` can be its host, and no host has the address.

        A node whose agent was called by ssh from elsewhere is not the launcher's host.
        """
        hello = self._hellos[node]
        if hello.seen_from not in ("", *hello.addresses):
            return []
        seen = set(self._seen(node))
        address = seen.pop() if len(seen) == 1 else ""
        if is_loopback(address) or any(address in other.addresses for other in self._hellos.values()):
            return []
        return [address] if address else []

    def _probe(self, node: int) -> None:
        """Probe the next target; one at a time, since an answer does not name its target."""
        if self._probing[node]:
            self._send(node, self._probing[node][0].frame)

    def reached(self, node: int, answer: control.Reached) -> None:
        """REACHED: the addresses at which `node` has had an answer of the token listener."""
        if not self._probing.get(node):
            raise WireError("it has reached what it was not asked to probe")
        target = self._probing[node].pop(0)
        if not {*answer.addresses, *answer.translated} <= {*target.candidates}:
            raise WireError("it has reached an address that it was not asked to probe")
        self._reached[target.node, node] = answer
        self._missing -= 1
        self._probe(node)
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        settled = {target.node: self._settle(target) for target in self._targets}
        warning = "; ".join([*filter(None, (text for _, text in settled.values())), *self._pretenders()])
        ports, share = self._reserved[self._sought.first].ports, self._sought.cluster.share
        port, own_ports = ports[-1] if PORT else 0, ports[-1 - self._sought.own_ports : -1]
        address = settled.get(self._sought.first, ("", ""))[0]
        apart = self._sought.serves and self._sought.service != self._sought.first
        service_address = settled.get(self._sought.service, ("", ""))[0] if apart else ""
        if share:
            address, service_address, port = (
                share.address,
                share.address,
                share.meeting or self._sought.cluster.meeting or port,
            )
        service_port, hosts = self._service_port(), self._hosts()
        found = Endpoint(address or _LOCALHOST, port, service_port, service_address, hosts, own_ports)
        places = {node: settled.get(node, ("", ""))[0] or found.address for node in self._sought.rank_ports}
        ranks = {node: RankPorts(places[node], self._rank_ports(node)) for node in places}
        self._done(found._replace(rank_ports=ranks), warning)

    def _pretenders(self) -> list[str]:
        """A warning for each host that says that it sees the launcher at an address which is the host's own.

        That is true of the launcher's own host, and of no other.
        """
        claims = [(node, hello.seen_from) for node, hello in self._hellos.items() if hello.seen_from in hello.addresses]
        ours = addresses() if claims else []
        return [
            f"{self._host(node)} says that it sees this host at {address}, its own address: that is ignored"
            for node, address in claims
            if address not in ours
        ]

    def _rank_ports(self, node: int) -> tuple[int, ...]:
        """The ports that it holds for its ranks."""
        before = int(self._sought.serves and node == self._sought.service)
        return self._reserved[node].ports[before : before + self._sought.rank_ports[node]]

    def _hosts(self) -> tuple[str, ...]:
        """The addresses from which ranks may connect to a service, besides those of its own host."""
        if self._sought.elsewhere:
            return (ANY_HOST,)
        hellos = self._hellos.values() if len(self._hellos) > 1 else ()
        return tuple(
            dict.fromkeys(address for hello in hellos for address in hello.addresses if not is_loopback(address))
        )

    def _service_port(self) -> int:
        """0 if there are to be no services."""
        cluster = self._sought.cluster
        if cluster.share and not cluster.share.master:
            return cluster.share.port
        wanted = SERVICE_PORT and not cluster.simulated
        return self._reserved[self._sought.service].ports[0] if wanted else 0

    def _settle(self, target: _ProbeTarget) -> tuple[str, str]:
        """The node's first own address that all others have proved, and ""; else another one, and a warning.

        The next best is one that leads there by address translation, if all others say so; then the own address that
        most have proved.
        """
        answers = {node: found for (at, node), found in self._reached.items() if at == target.node}
        host = self._host(target.node)
        for address in target.own:
            if all(address in found.addresses for found in answers.values()):
                return address, ""
        for address in target.candidates:
            if all(address in (*found.addresses, *found.translated) for found in answers.values()):
                return address, f"other hosts reach {host} at {address} only by address translation ({target.purpose})"
        proved = [address for found in answers.values() for address in {*found.addresses}]
        best = max(target.own or [_LOCALHOST], key=proved.count)
        cut_off = ", ".join(self._host(node) for node, found in answers.items() if best not in found.addresses)
        return best, f"{cut_off} cannot reach {host} at {best} ({target.purpose})"

    def silent(self) -> int:
        """A node whose answer is missing."""
        slow = [node for node in self._ports if node not in self._reserved]
        slow += [node for node, targets in self._probing.items() if targets]
        return (slow or [self._sought.first])[0]
