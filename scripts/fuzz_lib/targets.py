"""The decoders: for each its name, how it is called, the errors that it documents, and the inputs to begin with.

An input is bytes.  A decoder may return anything, and raise the errors of its row; any other exception is a finding.
Decoders import what they need when they are called first, so that a run loads the code of one decoder alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
#: inputs that were findings once, by decoder
KEPT = ROOT / "tests" / "hostile" / "fuzz_inputs"
#: what --help and --version raise, wherever they stand
SHOWN = " cli.parser.options:HelpRequested cli.parser.options:VersionRequested"


class Target(NamedTuple):
    """A row of the table."""

    decode: Callable[[bytes], Any]
    errors: str  # of mslaunch: MODULE:NAME, with blanks between
    seeds: Callable[[], Iterable[bytes]]
    what: str  # for the table of docs/fuzzing.md


def seeds_of(name: str) -> list[bytes]:
    """The inputs to begin with, those that were findings among them."""
    kept = sorted((KEPT / name).glob("*")) if (KEPT / name).is_dir() else []
    return [*TARGETS[name].seeds(), *(path.read_bytes() for path in kept)]


def errors_of(name: str) -> tuple[type[BaseException], ...]:
    """The exceptions that the decoder documents."""
    from importlib import import_module

    pairs = [word.split(":") for word in TARGETS[name].errors.split()]
    return tuple(getattr(import_module(f"mslaunch.{module}"), error) for module, error in pairs)


def as_text(data: bytes) -> str:
    """As `host.files.read_text` decodes a file."""
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


# --- frames and their payloads


def _frames(data: bytes) -> None:
    from mslaunch.protocol.frames import Decoder
    from mslaunch.protocol.program_request import ProgramRequest

    cut = data[0] if data else 0
    decoder = Decoder(magic=bool(cut & 1))
    for piece in (data[1 : 1 + cut], data[1 + cut :]):
        decoder.feed(piece)
    assert len(decoder.noise) <= 1 << 20
    request = ProgramRequest(lambda kind, held: None)
    through = b"".join(map(request.feed, (data[1 : 1 + cut], data[1 + cut :])))
    assert len(data) - 200 <= len(through + request.held) + 1 <= len(data) or not data


def _control(data: bytes) -> None:
    from mslaunch.protocol import codec, control

    records = (control.Hello, control.Reserved, control.Probe, control.Reached, control.FileHead, control.Stored,
               control.StackTrace)  # fmt: skip
    readers: list[Callable[[bytes], Any]] = [
        codec.unpack, control.unpack_plan, control.unpack_topology, control.unpack_ports, control.unpack_address,
        control.unpack_number,
    ]  # fmt: skip
    readers += [lambda payload, kind=kind: control.unpack_record(kind, payload) for kind in records]  # type: ignore[misc]
    readers[data[0] % len(readers) if data else 0](data[1:])


def _control_seeds() -> list[bytes]:
    from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankId, RankPlan, ServicePlan, World
    from mslaunch.protocol import codec, control

    plan = NodePlan(
        (RankPlan(RankId(0), 0, ("A=b",), (1, 2), ("sh", "-c"), (0,)),), (AppPlan(("true", "x"), "/"),), ("B=c",),
        services=(ServicePlan(8118, ("C=d",)),), world=World(hosts=("a", "b"), ranks=((0, 1, 2), (4, 6)), sizes=(5,)),
    )  # fmt: skip
    topology = control.pack_topology(control.Topology((0, 1), ((0, 0),) * len(control.LEVELS), (0,)))
    return [
        b"\0" + codec.pack({"a": ["b", "c"], "d": []}),
        b"\1" + control.pack_plan(plan),
        b"\2" + topology,
        b"\3" + b"0 8118 9000- @127.0.0.1",
        b"\5" + b"1234",
        b"\x0a" + control.pack_record(control.FileHead("name", 0o644)),
        b"\x0c" + control.pack_traced(control.StackTrace(1, *["x"] * (len(control.StackTrace._fields) - 1))),
    ]


def _mpi(data: bytes) -> None:
    from mslaunch.protocol import control, mpi

    readers: list[Callable[[bytes], Any]] = [
        lambda payload, kind=kind: mpi.unpack_with_blobs(kind, payload)  # type: ignore[misc]
        for kind in (mpi.Gathering, mpi.Released, mpi.Question, mpi.Answer)
    ]
    readers += [
        mpi.unpack_part,
        lambda payload: control.unpack_record(mpi.Abort, payload),
        lambda payload: control.unpack_record(mpi.Alone, payload),
    ]
    readers[data[0] % len(readers) if data else 0](data[1:])


def _mpi_seeds() -> list[bytes]:
    from mslaunch.protocol import control, mpi
    from mslaunch.transport.bootstrap.agent_program import pack_part

    parts = [
        mpi.Gathering("fence", ("0", "0.1"), (b"xyz", b"")),
        mpi.Released("fence", ("0",), (b"x" * 8192,)),  # compressed
        mpi.Question(1, "lookup", {"key": ["a"]}, (b"uv",)),
        mpi.Answer(1, "no:why", {"value": ["b", "c"]}),
    ]
    return [
        *(bytes([kind]) + mpi.pack_with_blobs(part) for kind, part in enumerate(parts)),
        b"\4" + pack_part({"a.b": "import os"}),
        b"\5" + mpi.pack_abort(mpi.Abort(1, "bye")),
        b"\6" + control.pack_record(mpi.Alone("/lib/libmpi.so", "MPICH", True, "pmi")),
    ]


# --- PMI


def _pmi(framed: bool, data: bytes) -> None:
    from mslaunch.agent.mpi.pmi import pmi_wire

    reader = pmi_wire.Reader()
    reader.framed = framed
    cut = data[0] if data else 0
    for piece in (data[1 : 1 + cut], data[1 + cut :]):
        for message in reader.feed(piece):
            if "spawn" in message.command:
                pmi_wire.programs(message)


def _pmi1_seeds() -> list[bytes]:
    spawn = (
        b"mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=2\narg1=x\narg2=y z\npreput_num=1\n"
        b"preput_key_0=k\npreput_val_0=v\ninfo_num=1\ninfo_key_0=host\ninfo_val_0=b\nendcmd\n"
    )
    lines = (
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=0 key=a b value=c=d\ncmd=barrier_in\n"
    )
    return [b"\0" + lines, b"\5" + spawn, b"\x40" + spawn.replace(b"totspawns=1", b"totspawns=2") + spawn]


def _pmi2_seeds() -> list[bytes]:
    words = [
        b"cmd=fullinit;pmijobid=1;pmirank=0;threaded=FALSE;",
        b"cmd=kvs-put;key=a;value=b;;c;",
        b"cmd=spawn;ncmds=1;preputcount=1;ppkey0=k;ppval0=v;subcmd=./a;maxprocs=2;argc=1;argv0=x;infokeycount=1;"
        b"infokey0=host;infoval0=b;",
    ]
    framed = [b"%6d" % len(word) + word for word in words]
    return [b"\0" + b"".join(framed), *(b"\3" + word for word in framed)]


# --- files of hosts and options


def _hostfile(data: bytes) -> None:
    from mslaunch.plan.hosts.hostfile import parse

    parse(as_text(data), "hosts")


def _hostfile_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "hostfiles").rglob("*")) if path.is_file()]


def _host_list(data: bytes) -> None:
    from mslaunch.plan.hosts.hostfile import parse_hosts

    parse_hosts(as_text(data))


def _rankfile(data: bytes) -> None:
    from mslaunch.plan.hosts.rankfile import parse_ranks

    parse_ranks(as_text(data), "ranks")


def _options(words: list[str], dialect: str, data: bytes) -> None:
    """The command line with a file of this text."""
    from importlib import import_module

    text = as_text(data)

    def read(path: str) -> str:
        if path != "file":
            raise FileNotFoundError(2, "No such file or directory", path)
        return text

    import_module(f"mslaunch.cli.{dialect}.parse").parse(words, {}, read)


def _parameters(data: bytes) -> None:
    from mslaunch.cli.mpirun import option_files

    notes: list[str] = []
    option_files.parameters(as_text(data), "file", notes)


# --- SSH


def _ssh_config(data: bytes) -> None:
    from mslaunch.errors import LinkError
    from mslaunch.transport.ssh.config import config_pass, ssh_config
    from mslaunch.transport.ssh.config.config_lines import lines_of

    def no_program(*words: object) -> Any:  # no command of the file may run, and no ssh
        raise LinkError("no program")

    with (
        patch.object(config_pass, "succeeds", lambda command, environ, programs: False),
        patch.object(ssh_config, "ask_ssh", no_program),
        patch.object(config_pass.ConfigPass, "_included", lambda *words: []),
    ):
        resolver = ssh_config.Resolver({"HOME": "/nonexistent"}, system="/nonexistent/config")
        lines = lines_of(data.decode("utf-8", "surrogateescape"), "config")
        resolver.lines = lambda path, guarded: lines  # type: ignore[method-assign]
        resolver.host("node1")


def _known_hosts(data: bytes) -> None:
    from mslaunch.transport.ssh.known_hosts import KnownHosts, parse

    known = KnownHosts(parse(data.decode("utf-8", "replace"), "known_hosts"))
    names = ["[node1]:2222", "node1"]
    known.judge(names, "ssh-ed25519", b"key")
    known.algorithms(names)


def _known_hosts_seeds() -> list[bytes]:
    key = b"AAAAC3NzaC1lZDI1NTE5AAAAIGp1c3QgYSBzZWVkIG9mIHRoZSBmdXp6ZXIsIDMyIGI="
    names = (
        b"node1",
        b"[node1]:2222,10.0.0.1",
        b"*.lan,!bad,n?de*",
        b"|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=",
    )
    lines = [b"%s ssh-ed25519 %s comment" % (name, key) for name in names]
    return [*lines, b"\n".join(lines), b"# no key\n@revoked " + lines[0], b"@cert-authority " + lines[2]]


TARGETS: dict[str, Target] = {
    "frames": Target(
        _frames, "errors:WireError",
        lambda: [b"\1login banner\n\0mslaunch agent\n" + b"A\0\0\0\3\xff\xff\xff\xffabc" * 2, b"\4A\0\0\0\0\0\0\0\1"],
        "the stream of frames between launcher and agents",
    ),
    "control": Target(_control, "errors:WireError", _control_seeds, "payloads of control frames, plans among them"),
    "mpi": Target(_mpi, "errors:WireError", _mpi_seeds, "payloads of the frames of MPI programs"),
    "pmi1": Target(
        lambda data: _pmi(False, data), "agent.mpi.pmi.pmi_wire:Garbled agent.mpi.pmi.pmi_wire:Refused", _pmi1_seeds,
        "PMI-1, and the programs of a spawn",
    ),
    "pmi2": Target(
        lambda data: _pmi(True, data), "agent.mpi.pmi.pmi_wire:Garbled agent.mpi.pmi.pmi_wire:Refused", _pmi2_seeds,
        "PMI-2, and the programs of a spawn",
    ),
    "hostfile": Target(_hostfile, "errors:HostfileError", _hostfile_seeds, "--hostfile"),
    "hosts": Target(
        _host_list, "errors:UsageError",
        lambda: [b"a,b:4,user@c,[fd00::1]:2,node[01-03]:8,^node3,+n1,+e:2,a:*", b"n[1-3,7]x[01-02]"], "-H",
    ),
    "rankfile": Target(
        _rankfile, "errors:HostfileError",
        lambda: [
            b"rank 0=node1 slot=0:1-2\nrank 1 = +n1 slot = 1:*\n# c\n",
            b"rank 1=a slot=0,1 /* x\n*/\nrank 0=b slot=2",
        ],
        "--rankfile",
    ),
    "tune": Target(
        lambda data: _options(["--tune", "file", "-n", "1", "true"], "mpirun", data), "errors:UsageError" + SHOWN,
        lambda: [
            b"-mca btl tcp,self -x A=b -x C\nkey = value # x\n",
            b"-mca rmaps_base_mapping_policy node\n-x 'A=b c'\n",
        ],
        "files of --tune and -am",
    ),
    "parameters": Target(_parameters, "", lambda: [b"btl = tcp\n# c\nodd line\n= 3\n"], "mca-params.conf"),
    "appfile": Target(
        lambda data: _options(["--app", "file"], "mpirun", data), "errors:UsageError" + SHOWN,
        lambda: [b"-np 2 -H a,b -x A=b ./solve x\n# c\n-n 1 -wdir /tmp ./b -c // y\n"], "files of --app",
    ),
    "hydra-config": Target(
        lambda data: _options(["-configfile", "file"], "hydra", data), "errors:LaunchError" + SHOWN,
        lambda: [b"-n 2 -env A b -host a ./x \\\n y : -n 1 ./z\n# c\n-genv A=b -n 1 ./z\n"], "files of -configfile",
    ),
    "hydra-hosts": Target(
        lambda data: _options(["-f", "file", "-n", "2", "true"], "hydra", data), "errors:LaunchError" + SHOWN,
        lambda: [b"a:2\nb user=joe\nn[1-3]:4 # c\n[fd00::1]:2\n"], "hydra's files of hosts",
    ),
    "msrun-binding": Target(
        lambda data: _options(
            ["--worker_num=2", "--local_worker_num=2", "--bind_numa=file", "net.py"], "msrun", data
        ),
        "errors:UsageError" + SHOWN,
        lambda: [
            b'{"scheduler": ["0"], "device0": ["1-3", "8,9"], "device1": "4"}',
            b'{"bind_config": {"bind_cpu_mode": "cpu", "bind_memory_mode": "numa"}, "bind_cpu": {"device0": '
            b'{"main": "0-3"}}, "bind_memory": {"device0": "0"}}',
        ],
        "files of msrun's --bind_numa",
    ),
    "ssh-config": Target(
        _ssh_config, "errors:LinkError",
        lambda: [
            b"Host node* !node9\n  HostName %h.lan\n  Port 2222\n  User=joe\n",
            b"User joe\nMatch host *.lan user joe\n  ProxyJump a,b:1\n",
            b'Match exec "true" final\nIdentityFile "~/.ssh/%r key"\nHost *\nCiphers +aes128-ctr\nMACs -hmac*\n',
            b"IgnoreUnknown X*\nXyz 1\nConnectTimeout 1h30m\nServerAliveInterval 5\nKexAlgorithms ^curve25519-sha256\n",
        ],
        "~/.ssh/config and what it names",
    ),
    "known-hosts": Target(_known_hosts, "", _known_hosts_seeds, "known_hosts"),
}  # fmt: skip
