"""Which ranks this command starts, and where they meet the others.

There are four cases: all ranks run here; this is one of several hosts, each with a command of its own and a
--node-rank (`Share`); the same without numbers, which they get when they meet (`HostMeeting`); or -H and --hostfile
name hosts, and this command starts all of them.  Commands with numbers meet only if ranks may be started again.
torchrun's own protocols (c10d, etcd) are not spoken: all commands are mslaunch's.
"""

from __future__ import annotations

import os

from mslaunch.cli.parser.readers import is_number
from mslaunch.cli.pods import scheduler_address
from mslaunch.datamodel.request import HostMeeting, Request, Share
from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.cli.torchrun.options import TorchrunOptions

_PORT = 29500
_C10D_PORT = 29400  # c10d_rendezvous_backend.py
_LOOPBACK = "127.0.0.1"
_BACKENDS = ("static", "c10d")
_ONE_COMMAND = "start all hosts with one command: -H node1,node2, or --hostfile FILE"


def has_hosts(request: Request) -> bool:
    """Whether the command line names hosts."""
    return bool(request.apps[0].hosts) or request.apps[0].hostfile is not None


def is_alone(own: TorchrunOptions, hosts: bool) -> bool:
    """Whether nothing was said of a place to meet, so that any on this host will do; `hosts`: -H names some."""
    named = own.endpoint is not None or own.port is not None
    return own.standalone or (_most(own) == 1 and not hosts and own.backend == "static" and not named)


def run_id(own: TorchrunOptions, hosts: bool) -> str:
    """The id of the run: a random one where torchrun makes one, and where one command starts all hosts."""
    if not is_alone(own, hosts) and (own.run_id != "none" or not hosts):
        return own.run_id
    digits = os.urandom(16).hex()  # written as a UUID is
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def secret_file(own: TorchrunOptions, environ: Mapping[str, str]) -> str:
    """Where the secret lies that commands which meet share; "": nobody knows a home directory."""
    named, base, home = dict(own.conf).get("secret_file", ""), environ.get("XDG_CONFIG_HOME", ""), _home(environ)
    if named:
        return named if named[:2] != "~/" else home and os.path.join(home, named[2:])
    if not base.startswith("/"):
        base = home and os.path.join(home, ".config")
    return base and os.path.join(base, "mslaunch", "rendezvous-secret")


def _home(environ: Mapping[str, str]) -> str:
    """That of this user; "": none is known, as in a container whose user is only a number."""
    import pwd

    try:
        return environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def placed(request: Request, own: TorchrunOptions) -> Request:
    """The request with its ranks and where they meet.  Raises `UsageError`."""
    request = request._replace(policy=request.policy._replace(bind_to=request.policy.bind_to or "none"))
    if own.restarts:
        request = request._replace(restart="group", max_restarts=own.restarts)
    if has_hosts(request):
        return _on_hosts(request, own)
    assert isinstance(own.each, int)
    request = _with_ranks(request, own.each)
    if is_alone(own, hosts=False):
        if own.standalone and _most(own) > 1:
            raise UsageError("it is for one host, and --nnodes asks for more", "--standalone", "leave out one of them")
        return request
    _check_backend(own)
    if _most(own) == 1:
        return _all_here(request, own)
    return _gathered(request, own, own.each) if own.backend == "c10d" else _shared(request, own, own.each)


def _most(own: TorchrunOptions) -> int:
    return own.nodes[1] if own.nodes else 1


def _with_ranks(request: Request, ranks: int | None) -> Request:
    return request._replace(apps=(request.apps[0]._replace(np=ranks),))


def _check_backend(own: TorchrunOptions) -> None:
    if own.backend not in _BACKENDS:
        todo = f"give each host its number: --nnodes N --node-rank K --master-addr NODE0; or {_ONE_COMMAND}"
        raise UsageError(f"mslaunch does not meet others at {own.backend!r}", "--rdzv-backend", todo)


# --- this host


def _all_here(request: Request, own: TorchrunOptions) -> Request:
    """One host, and a place to meet that the user has named: with c10d only torchrun's own, with static the ranks'."""
    name, port, where = _named(own)
    if own.node:
        raise UsageError(
            f"there is no host {own.node} among 1", "--node-rank", "hosts are counted from 0; see --nnodes"
        )
    if not _is_here(name, scheduler_address.resolved(name, where)):
        raise UsageError(f"{name} is not an address of this host, and there is no other", where, "see --nnodes")
    if own.backend != "static":
        return request
    return request._replace(cluster=request.cluster._replace(meeting=port))


def _named(own: TorchrunOptions) -> tuple[str, int, str]:
    """Host and port where ranks meet, and the option that says so."""
    if own.endpoint:
        host, port = own.endpoint
        if own.backend == "static" and not port:
            raise UsageError("the port is missing", "--rdzv-endpoint", f"write {host}:{_PORT}")
        return host, port or _PORT, "--rdzv-endpoint"
    return own.address or _LOOPBACK, own.port or _PORT, "--master-addr"


# --- one of several hosts


def _shared(request: Request, own: TorchrunOptions, each: int) -> Request:
    """The ranks of this host; other commands, with other numbers, start the others."""
    hosts, (name, port, where) = _most(own), _named(own)
    if own.node >= hosts:
        raise UsageError(f"there is no host {own.node} among {hosts}", "--node-rank", "hosts are counted from 0")
    address = scheduler_address.resolved(name, where)
    if not own.node and not _is_here(name, address):
        what = f"with --node-rank 0 ranks meet on this host, and {name} is not an address of it"
        raise UsageError(what, where, "name this host, or give it another --node-rank")
    notes = request.notes
    if own.nodes and own.nodes[0] < hosts:
        notes += (f"--nnodes {own.nodes[0]}:{hosts}: where hosts have numbers, all {counted(hosts, 'host')} must come",)
    share = Share(hosts * each, own.node * each, address, 0, master=False, meeting=port)
    cluster = request.cluster._replace(meeting=port, share=share)
    if own.restarts:
        here = _MeetingPoint(name, address, port, not own.node)
        cluster = cluster._replace(host_meeting=_meeting(own, here, (hosts, hosts), each)._replace(number=own.node))
    return request._replace(cluster=cluster, notes=notes, stdin=request.stdin if not own.node else "none")


def _gathered(request: Request, own: TorchrunOptions, each: int) -> Request:
    """The ranks of this host, whose number is found when all have met."""
    if not own.endpoint:
        todo = f"write --rdzv-endpoint NODE1:{_C10D_PORT}, the same on each host"
        raise UsageError("hosts without numbers meet at an endpoint", "--rdzv-backend c10d", todo)
    host, port = own.endpoint
    if port == 0:
        what = "port 0 is any that is free, which the other hosts could not know"
        raise UsageError(what, "--rdzv-endpoint", f"write {host}:{_C10D_PORT}, the same on each host")
    if own.node or own.address or own.port:
        note = (
            "--node-rank, --master-addr and --master-port have no effect with c10d: hosts get numbers where they meet"
        )
        request = request._replace(notes=(*request.notes, note))
    address, nodes = scheduler_address.resolved(host, "--rdzv-endpoint"), own.nodes or (1, 1)
    here = _MeetingPoint(host, address, port or _C10D_PORT, _is_host(dict(own.conf), host, address))
    meeting = _meeting(own, here, nodes, each)
    share = Share(nodes[1] * each, 0, address, 0, master=False)
    return request._replace(cluster=request.cluster._replace(share=share, host_meeting=meeting))


class _MeetingPoint(NamedTuple):
    """Where commands meet."""

    host: str
    address: str
    port: int
    here: bool


def _meeting(own: TorchrunOptions, at: _MeetingPoint, nodes: tuple[int, int], each: int) -> HostMeeting:
    if not own.secret_file:
        what = "this user has no home directory, where the secret of all commands would be"
        todo = "name a file that this user alone can read: --rdzv-conf=secret_file=FILE"
        raise UsageError(what, "--rdzv-backend c10d" if own.backend == "c10d" else "--max-restarts", todo)
    conf = dict(own.conf)
    join, last = _seconds(conf, "join_timeout", 600.0), _seconds(conf, "last_call_timeout", 30.0)
    return HostMeeting(
        at.host, at.address, at.port, at.here, *nodes, each, own.run_id, own.secret_file, join, last, own.restarts or 0
    )


def _is_host(conf: Mapping[str, str], host: str, address: str) -> bool:
    said = conf.get("is_host", "").lower()
    if said not in ("", "1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"):
        raise UsageError(f"is_host is true or false, not {said!r}", "--rdzv-conf")
    return said[:1] in ("1", "t", "y") if said else _is_here(host, address)


def _is_here(name: str, address: str) -> bool:
    """Whether a place is this host; Debian gives a host's own name the address 127.0.1.1, which no interface lists."""
    from mslaunch.host.own_addresses import is_local

    return is_local(name) or scheduler_address.is_ours(address)


def _seconds(conf: Mapping[str, str], key: str, default: float) -> float:
    said = conf.get(key, "")
    if said and not (is_number(said) and int(said)):
        what = f"{key} is a number of seconds, at least 1, not {said!r}"
        raise UsageError(what, "--rdzv-conf", f"as {key}={default:g}")
    return float(said or default)


# --- several hosts


def _on_hosts(request: Request, own: TorchrunOptions) -> Request:
    """This command starts all hosts."""
    assert isinstance(own.each, int)
    notes = request.notes
    if own.standalone:
        raise UsageError("it is for one host, and hosts are named", "--standalone", "leave out one of them")
    if own.node:
        notes += (f"--node-rank {own.node} has no effect: this command starts all hosts",)
    if own.endpoint or own.address:
        notes += ("ranks meet on the host of rank 0, at an address that all others reach",)
    fewest, most = own.nodes or (1, 0)
    policy = request.policy._replace(map_by="slot", per_host=own.each, nodes=(fewest, most))
    if own.restarts and fewest < most:
        request = request._replace(min_ranks=fewest * own.each)
    cluster = request.cluster._replace(meeting=own.port or 0)
    return _with_ranks(request._replace(policy=policy, cluster=cluster, notes=notes), None)
