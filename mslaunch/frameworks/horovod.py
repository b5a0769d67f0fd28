"""Horovod: what its Gloo controller finds where ranks have no MPI (horovod/common/gloo/gloo_context.cc, 0.28.1).

Builds with MPI take their numbers from MPI and need nothing of this.  A build with Gloo reads its numbers from
HOROVOD_RANK and its like, and addresses of others from an HTTP key store that its launcher serves; without
HOROVOD_GLOO_RENDEZVOUS_ADDR each rank takes itself for the only one.  So all of this is set only where the store is
served (--horovod gloo).

The store is at 127.0.0.1, on each host.  Horovod makes its URLs as "http://" + ADDR + ":" + PORT + "/" + scope + "/" +
key (http_store.h), and its HTTP client takes what is before the first slash for host and port (HTTPRequest.hpp): with
HOST:PORT/TOKEN as ADDR all requests begin with /TOKEN:PORT/, and nobody without the token can make one.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.contract import Framework, RankInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

#: of a launch around this one; what tunes Horovod (HOROVOD_FUSION_THRESHOLD …) stays
SCRUB = (
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_*",
)  # fmt: skip


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node, where the store is served."""
    store = place.store
    if store is None:
        return {}
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": f"127.0.0.1:{store.port}/{store.token}",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": store.port,
        **({"HOROVOD_GLOO_IFACE": store.interface} if store.interface else {}),
        "HOROVOD_HOSTNAME": hostname(place.host),
        "HOROVOD_SIZE": place.size,
        "HOROVOD_LOCAL_SIZE": place.local_size,
    }


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    if place.store is None:
        return {}
    return {
        "HOROVOD_RANK": place.rank,
        "HOROVOD_LOCAL_RANK": place.local_rank,
        "HOROVOD_CROSS_RANK": place.cross_rank,
        "HOROVOD_CROSS_SIZE": place.cross_size,
    }


def hostname(name: str) -> str:
    """A node's name as it can stand in the path of a URL; Horovod only compares it."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-._:") else "-" for letter in name)


def scopes(hosts: Sequence[str], nodes: Sequence[int]) -> dict[str, list[int]]:
    """The scopes of the store, as gloo_context.cc names them, and the node of each of their numbers.

    `hosts` are the names of the nodes; `nodes` has the node of each rank, ascending.
    """
    found: dict[str, list[int]] = {"global": list(nodes)}
    counts = dict.fromkeys(sorted(set(nodes)), 0)
    for node in nodes:
        counts[node] += 1
    for node, count in counts.items():
        found[f"local_{hostname(hosts[node])}"] = [node] * count
        for local_rank in range(count):
            found.setdefault(f"cross_{local_rank}", []).append(node)
    return found


#: what the user has said holds for all hosts
FORWARD = ("HOROVOD_GLOO_IFACE", "HOROVOD_GLOO_TIMEOUT_SECONDS")

HOROVOD = Framework("Horovod", ("horovod",), SCRUB, FORWARD, job=job_env, rank=rank_env, scopes=scopes)
