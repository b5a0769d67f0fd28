"""Services over the link: started before ranks or at a connection, restarted, and ended; MindSpore is a fake."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from agents import BOUND, plan, state_of, wait_gone

from mslaunch.agent.services.mindspore_scheduler import PATIENCE
from mslaunch.agent.services.readiness import IDLE
from mslaunch.datamodel.node_plan import SERVICE_BASE, AppPlan, NodePlan, ServicePlan
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.launcher.agents.rendezvous import pack_ports
from mslaunch.protocol import control, frames

#: stands for MindSpore's extension; it obeys whoever connects
EXTENSION = """\
import os, socket
class MSContext:
    get_instance = classmethod(lambda cls: cls())
    def set_device_target_inner(self, name): pass
def init_cluster():
    with socket.create_server(("127.0.0.1", int(os.environ["MS_SCHED_PORT"]))) as server:
        print("light", os.environ["MS_ROLE"], "RANK_ID" in os.environ, os.getcwd(), flush=True)
        while True:
            visitor = server.accept()[0]
            word = visitor.recv(8)
            if word:
                os._exit(int(word))
"""
#: the same for one that says all the time that workers want to be let go
LETS_NOBODY_GO = (
    EXTENSION[: EXTENSION.index("    with ")]
    + """\
    import sys, time
    with socket.create_server(("127.0.0.1", int(os.environ["MS_SCHED_PORT"]))):
        while True:
            print("Unable to process unreg message", file=sys.stderr, flush=True)
            time.sleep(0.1)
"""
)
#: a program of ranks that has its scheduler configured, and one that loads MindSpore and connects
OWN = """\
import os, sys
if os.environ["MS_ROLE"] == "MS_SCHED":
    print("own", sys.argv[1:], os.environ["RANK_ID"], os.getcwd(), flush=True)
    # as set_ps_context does; in other words than those by which a program of MindSpore's is known
    __import__("mind" + "spore", fromlist=["_c_expression"])._c_expression.init_cluster()
print("rank", flush=True)
"""
KNOCKS = """\
import mmap, os, socket, sys, time
with open(os.path.join(list(__import__("mind" + "spore").__path__)[0], "_c_expression.py"), "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
port = int(os.environ["MS_SCHED_PORT"])
while True:
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(0.3)
            connection.recv(1)  # closed or reset: it was the agent
    except TimeoutError:  # a scheduler waits for our request
        break
    except OSError:  # no listener yet
        pass
print("served", flush=True)
sys.stdin.read()
"""


def parameter_server(number: int) -> ServicePlan:
    return ServicePlan(0, ("MS_ROLE=MS_PSERVER",), SERVICE_BASE - number, True, "ranks", kind="mindspore")


class Lab:
    """An agent whose ranks find the small MindSpore, with two ports, the second one for the scheduler."""

    def __init__(self, agent, folder: Path) -> None:
        self.agent = agent
        self.folder = folder
        self._printed = b""
        (folder / "site" / "mindspore").mkdir(parents=True)
        (folder / "site" / "mindspore" / "_c_expression.py").write_text(EXTENSION)
        agent.send(frames.RESERVE, payload=pack_ports([control.PortRequest(), control.PortRequest()]))
        self.other, self.port = control.unpack_record(control.Reserved, agent.expect(frames.RESERVED).payload).ports

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return name

    def scheduler(self, **how) -> ServicePlan:
        env = {"MS_SCHED_PORT": self.port, "MS_WORKER_NUM": 1, "MS_ROLE": "MS_SCHED", "RANK_ID": 0}
        how = {"first": True, "hint": "mindspore", **how}
        return ServicePlan(
            self.port, tuple(f"{n}={v}" for n, v in env.items()), name="scheduler", kind="mindspore", **how
        )

    def plan(self, *argv: str, services=None, ranks: int = 0, site: bool = True, **more) -> NodePlan:
        env = [f"MS_SCHED_PORT={self.port}", "MS_ROLE=MS_WORKER"]
        env += [f"PYTHONPATH={self.folder / 'site'}"] if site else []
        apps = (AppPlan(argv, str(self.folder)),)
        given = plan(*argv, ranks=ranks, env=env, services=services or (self.scheduler(),), **more)
        return given._replace(apps=apps)

    def visit(self, word: bytes = b"") -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), BOUND) as line:
                line.sendall(word)
                return line.recv(1)
        except ConnectionError:
            return b""

    def serves(self, number: int = SERVICE_BASE) -> None:
        self.agent.expect(frames.SERVES, number)

    def started(self, number: int = SERVICE_BASE) -> int:
        return int(self.agent.expect(frames.STARTED, number).payload)

    def says(self) -> list[str]:
        return self.line().split()

    def line(self) -> str:
        """The next one that a service has printed; a frame may hold several."""
        while b"\n" not in self._printed:
            self._printed += self.agent.expect(frames.STDOUT, SERVICE_BASE).payload
        line, _, self._printed = self._printed.partition(b"\n")
        return f"{line.decode()}\n"

    def wait_listening(self) -> None:
        """Wait for a listener at the port; the agent has no event for it."""
        deadline = time.monotonic() + BOUND
        while is_free(self.port):
            assert time.monotonic() < deadline
            self.agent._more(time.monotonic() + 0.01)

    def nothing(self, *kinds: int) -> bool:
        return not [frame for frame in self.agent.frames if frame.kind in kinds]


@pytest.fixture
def lab(agent, tmp_path):
    return Lab(agent, tmp_path)


def is_free(port: int) -> bool:
    with socket.socket() as taken:
        try:
            taken.bind(("", port))
        except OSError:
            return False
    return True


# --- before the ranks


def test_a_scheduler_starts_first(lab):
    """It listens before SERVES is sent; the other port stays held until the ranks start."""
    lab.agent.launch(lab.plan(sys.executable, "net.py"))
    pid = lab.started()
    lab.serves()
    assert lab.says() == ["light", "MS_SCHED", "True", str(lab.folder)]
    assert os.getsid(pid) == pid and not is_free(lab.port)
    assert not is_free(lab.other)
    lab.agent.launch(plan("sh", "-c", "echo here; read word", stdin=(0,)))
    assert lab.agent.output(frames.STDOUT, 0, 5) == b"here\n"
    assert is_free(lab.other) and state_of(pid)
    lab.agent.send(frames.STDIN, 0, b"")
    lab.agent.exit(0)
    lab.agent.send(frames.END, payload=b"2")
    assert lab.agent.exit(SERVICE_BASE).signal == signal.SIGTERM
    assert lab.agent.output(frames.STDOUT, SERVICE_BASE) == lab.agent.output(frames.STDERR, SERVICE_BASE) == b""


@pytest.mark.parametrize("first", ["#!{python}", "#!/usr/bin/env python", "#!/usr/bin/env -S python -u"])
def test_a_script_with_an_interpreter(lab, first):
    """Its first line tells the Python; a venv's link is not followed."""
    folder = lab.folder / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(os.path.realpath(sys.executable))
    lab.write("pytest", f"{first.format(python=folder / 'python')}\nprint('never')\n")
    given = lab.plan("./pytest")
    lab.agent.launch(given._replace(env=(*given.env, f"PATH={folder}:/usr/bin:/bin")))
    pid = lab.started()
    lab.serves()
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        assert file.read().split(b"\0")[0] == os.fsencode(folder / "python")


def falls_back(lab, given):
    lab.agent.launch(given)
    lab.serves()
    assert not is_free(lab.port)
    lab.agent.launch(plan("sleep", "1000"))
    lab.agent.expect(frames.STARTED, 0)
    assert lab.visit() == b""  # the connection is reset, and the rank tries again
    assert lab.nothing(frames.STARTED, frames.EXIT, frames.STDOUT, frames.STDERR)


def test_a_python_without_mindspore(lab):
    falls_back(lab, lab.plan(sys.executable, "net.py", site=False))


@pytest.mark.parametrize("argv", [("sh", "-c", "python net.py"), ("./script",), ("no-such",), ("./python-config",)])
def test_a_program_that_tells_no_interpreter(lab, argv):
    lab.write("script", "#!/bin/sh\npython net.py\n")
    lab.write("python-config", "#!/bin/sh\nexit 3\n")
    falls_back(lab, lab.plan(*argv))


def test_a_folder_called_mindspore_is_none(lab):
    (lab.folder / "site" / "mindspore" / "_c_expression.py").unlink()
    falls_back(lab, lab.plan(sys.executable, "net.py"))


def test_a_python_that_prints_before_it_finds_nothing(lab):
    """Its output was forwarded, so it counts as a service that ended well."""
    (lab.folder / "site" / "mindspore" / "_c_expression.py").unlink()
    (lab.folder / "site" / "sitecustomize.py").write_text("print('welcome', flush=True)")
    lab.agent.launch(lab.plan(sys.executable, "net.py"))
    assert lab.line() == "welcome\n"
    assert lab.agent.exit(SERVICE_BASE).code == 0
    lab.serves()
    assert not is_free(lab.port)


def test_a_scheduler_ends_before_it_listens(lab):
    (lab.folder / "site" / "mindspore" / "_c_expression.py").write_text("import os; os.write(2, b'no\\n'); os._exit(4)")
    lab.agent.launch(lab.plan(sys.executable, "net.py"))
    assert lab.agent.exit(SERVICE_BASE).code == 4
    assert lab.started()
    assert lab.agent.output(frames.STDERR, SERVICE_BASE) == b"no\n"
    assert lab.nothing(frames.SERVES)


def test_another_process_takes_the_port(lab):
    """Between its release by the agent and the bind; in this test no agent held it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        lab.port = other.getsockname()[1]
        lab.write("wait.py", "import time, mindspore\nprint('set_ps_context', flush=True); time.sleep(1000)")
        lab.agent.launch(lab.plan(sys.executable, "wait.py", services=(lab.scheduler(program="ranks"),)))
        ended = lab.agent.exit(SERVICE_BASE)
    assert f"port {lab.port} is now in use by process {os.getpid()} (" in ended.error
    assert lab.nothing(frames.SERVES)


# --- the program of the scheduler


def test_the_scheduler_runs_the_program_of_the_ranks(lab):
    """As msrun does: with its arguments, in its directory."""
    lab.write("net.py", OWN)
    lab.agent.launch(lab.plan(sys.executable, "net.py", "-e", "3", services=(lab.scheduler(program="ranks"),)))
    lab.serves()
    assert lab.line() == f"own ['-e', '3'] 0 {lab.folder}\n"


@pytest.mark.parametrize(("text", "own"), [(OWN, True), (OWN.replace("set_ps_context", "another"), False)])
def test_a_program_that_configures_the_scheduler(lab, text, own):
    lab.write("net.py", text)
    lab.agent.launch(lab.plan(sys.executable, "-u", "net.py", services=(lab.scheduler(program="auto"),)))
    lab.serves()
    assert lab.says()[0] == ("own" if own else "light")


def test_the_program_of_the_scheduler_is_missing(lab):
    lab.agent.launch(lab.plan("no-such-program", services=(lab.scheduler(program="ranks"),)))
    ended = lab.agent.exit(SERVICE_BASE)
    assert ended.code == 127 and "no-such-program" in ended.error


@pytest.mark.parametrize("program", ["light", "auto"])
def test_a_scheduler_starts_at_the_first_connection(lab, program):
    """The scheduler that was not first: what it runs is decided in the same way."""
    own = "" if program == "light" else "# set_ps_context\n"
    lab.write("net.py", own + OWN.replace('print("rank"', KNOCKS + 'print("rank"'))
    service = lab.scheduler(first=False, program=program)
    lab.agent.launch(lab.plan(sys.executable, "net.py", services=(service,), ranks=1))
    lab.started()
    assert lab.says()[0] == ("light" if program == "light" else "own")
    assert lab.agent.output(frames.STDOUT, 0, 7).startswith(b"served\n")
    assert lab.nothing(frames.SERVES)


def launch_guessed(lab, text: str = "import mindspore", **more) -> None:
    lab.write("net.py", f"{text}\nprint('rank', flush=True)\n")
    lab.agent.launch(lab.plan(sys.executable, "net.py", services=(lab.scheduler(first=False),), ranks=1, **more))


def test_a_program_of_mindspore_needs_no_first_connection(lab):
    """The port belongs to the scheduler before a rank connects, and no rank waits for it."""
    launch_guessed(lab)
    lab.started()
    assert lab.says()[0] == "light" and lab.nothing(frames.SERVES)
    lab.visit(b"0")  # it has served, and another program may want one
    assert lab.agent.exit(SERVICE_BASE).code == 0
    assert not is_free(lab.port)


@pytest.mark.parametrize(
    ("text", "site"),
    [("# if mindspore is there", False), ("import mindspore", True)],
    ids=["there is none", "it does not work"],
)
def test_a_wrong_guess_is_harmless(lab, text, site):
    """It is visible only in a log: the ranks may not need a scheduler."""
    (lab.folder / "site" / "mindspore" / "_c_expression.py").write_text("raise SystemExit(5)\n")
    launch_guessed(lab, text, site=site)
    assert lab.agent.output(frames.STDOUT, 0, 5) == b"rank\n"
    assert lab.agent.exit(0).code == 0
    if site:
        assert lab.agent.exit(SERVICE_BASE).code == 0
    lab.wait_listening()


def test_a_program_that_says_nothing_of_mindspore(lab):
    launch_guessed(lab, "import this")
    assert lab.agent.exit(0).code == 0
    given = [frame for frame in lab.agent.frames if frame.rank == SERVICE_BASE]
    assert not [frame for frame in given if frame.kind in (frames.STARTED, frames.EXIT)] and not is_free(lab.port)


def test_a_first_connection_without_ranks(lab):
    """The host that --scheduler names need not have any: the ranks of others are believed."""
    lab.agent.launch(lab.plan(sys.executable, "net.py", services=(lab.scheduler(first=False),)))
    lab.agent.give("host.connection_owners")
    lab.visit()
    lab.started()
    assert lab.says()[0] == "light"


@pytest.mark.parametrize("first", [True, False])
def test_a_python_is_guessed_where_no_ranks_are(lab, first):
    """And if it has no MindSpore, there is no use in waiting."""
    folder = lab.folder / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(os.path.realpath(sys.executable))
    given = lab.plan("sh", "-c", "python net.py", services=(lab.scheduler(first=first),))
    lab.agent.launch(given._replace(env=(*given.env, f"PATH={folder}:/usr/bin:/bin")))
    if first:
        lab.serves()
        (lab.folder / "site" / "mindspore" / "_c_expression.py").unlink()
    else:
        lab.agent.give("host.connection_owners")
    lab.visit()
    if not first:
        lab.started()
        assert lab.says()[0] == "light"
        return
    ended = lab.agent.exit(SERVICE_BASE)
    assert ended.error == f"the MindSpore scheduler was not started: {folder / 'python'} has no MindSpore"
    assert "--scheduler" in ended.todo


def test_no_python_where_no_ranks_are(lab):
    given = lab.plan("./script", services=(lab.scheduler(first=False),))
    lab.agent.launch(given._replace(env=(*given.env, "PATH=/nowhere")))
    lab.agent.give("host.connection_owners")
    lab.visit()
    assert "no python was found for the MindSpore scheduler" in lab.agent.exit(SERVICE_BASE).error


def test_the_scheduler_has_the_files_that_were_sent(lab):
    agent = lab.agent
    agent.send(frames.FILE, payload=control.pack_record(control.FileHead("net.py", 0o644)))
    agent.send(frames.DATA, payload=b"# set_ps_context\n" + OWN.encode())
    agent.send(frames.DATA)
    agent.expect(frames.STORED)
    given = lab.plan(sys.executable, "net.py", services=(lab.scheduler(program="auto"),), session=True)
    agent.launch(given._replace(apps=(given.apps[0]._replace(in_session=True),)))
    lab.serves()
    assert lab.line().endswith("/scheduler\n")


def test_the_scheduler_is_bound(lab):
    last = max(os.sched_getaffinity(0))
    agent = lab.agent
    agent.launch(lab.plan(sys.executable, "net.py", services=(lab.scheduler(cpus=(last,)),)))
    assert os.sched_getaffinity(lab.started()) == {last}


def test_a_cpu_that_is_not_there(lab):
    lab.agent.launch(lab.plan(sys.executable, "net.py", services=(lab.scheduler(cpus=(1000,)),)))
    assert "cpu 1000" in lab.agent.exit(SERVICE_BASE).error


# --- parameter servers


def test_parameter_servers(lab):
    """The program of the ranks with a role of their own, and no number of a rank's; there until the job ends."""
    script = 'trap "echo bye; exit 0" TERM; echo $MS_ROLE ${NUMBER-none}; while :; do sleep 0.05; done'
    servers = tuple(parameter_server(1 + i) for i in range(2))
    agent = lab.agent
    agent.launch(lab.plan("sh", "-c", script, services=servers))
    for server in servers:
        lab.started(server.number)
        lab.serves(server.number)
        assert agent.output(frames.STDOUT, server.number, 16) == b"MS_PSERVER none\n"
    agent.send(frames.END, payload=b"2")
    for server in servers:
        assert agent.output(frames.STDOUT, server.number) == b"bye\n"
        assert agent.exit(server.number).code == 0


def test_a_server_whose_orphan_is_never_silent(lab):
    """Its output is forwarded for a moment after the server has ended, and no longer."""
    script = "trap 'exit 0' TERM; setsid sh -c 'while :; do echo more; sleep 0.01; done' & while :; do sleep 0.05; done"
    server = parameter_server(1)
    agent = lab.agent
    agent.launch(lab.plan("sh", "-c", script, services=(server,)))
    lab.serves(server.number)
    assert agent.output(frames.STDOUT, server.number, 5).startswith(b"more")
    agent.send(frames.END, payload=b"2")
    assert agent.exit(server.number).code == 0
    agent.output(frames.STDOUT, server.number)


# --- restarts


def test_a_scheduler_is_restarted(lab):
    """At the same port, with the same arguments; STARTED follows the streams of the one that was killed."""
    agent = lab.agent
    agent.launch(lab.plan(sys.executable, "net.py"))
    lab.serves()
    said = lab.line()
    os.kill(lab.started(), signal.SIGKILL)
    assert agent.exit(SERVICE_BASE).signal == signal.SIGKILL
    agent.send(frames.RESTART, SERVICE_BASE, b"1")
    second = lab.started()
    streams = [frame for frame in agent.frames if frame.kind in (frames.STDOUT, frames.STDERR)]
    assert len(streams) >= 2 and not any(frame.payload for frame in streams[:2])
    assert agent.output(frames.STDOUT, SERVICE_BASE) == agent.output(frames.STDERR, SERVICE_BASE) == b""
    lab.serves()
    assert lab.line() == said and state_of(second)
    lab.visit(b"0")  # and it ends well: a program may come that wants another one
    assert agent.exit(SERVICE_BASE).code == 0
    assert not is_free(lab.port)


def test_a_restarted_scheduler_that_refuses_ranks_is_ended(lab):
    """After `PATIENCE`, with a message that says why."""
    agent = lab.agent
    (lab.folder / "site" / "mindspore" / "_c_expression.py").write_text(LETS_NOBODY_GO)
    agent.launch(lab.plan(sys.executable, "net.py"))
    lab.serves()
    os.kill(lab.started(), signal.SIGKILL)
    assert agent.exit(SERVICE_BASE).signal == signal.SIGKILL
    assert agent.output(frames.STDERR, SERVICE_BASE)
    agent.send(frames.RESTART, SERVICE_BASE, b"1")
    began = time.monotonic()
    while agent.expect(frames.STDERR, SERVICE_BASE).payload:
        pass
    assert time.monotonic() - began > PATIENCE / 2
    assert "had done their work" in agent.exit(SERVICE_BASE).error


def test_a_scheduler_started_at_a_connection_is_restarted(lab):
    agent = lab.agent
    lab.write("net.py", KNOCKS)
    agent.launch(lab.plan(sys.executable, "net.py", services=(lab.scheduler(first=False),), ranks=1, stdin=(0,)))
    first = lab.started()
    said = lab.line()
    assert agent.output(frames.STDOUT, 0, 7) == b"served\n"
    os.kill(first, signal.SIGKILL)
    agent.exit(SERVICE_BASE)
    agent.send(frames.STDIN, 0, b"")
    agent.exit(0)  # nobody is left to ask
    agent.send(frames.RESTART, SERVICE_BASE, b"1")
    assert lab.started() != first
    agent.output(frames.STDOUT, SERVICE_BASE)
    assert lab.line() == said


def test_no_restart_while_the_job_is_being_ended(lab):
    agent = lab.agent
    agent.launch(lab.plan(sys.executable, "net.py"))
    lab.serves()
    agent.launch(plan("sleep", "1000"))
    agent.expect(frames.STARTED, 0)
    agent.send(frames.END, payload=b"1000")
    os.kill(lab.started(), signal.SIGKILL)
    agent.exit(SERVICE_BASE)
    agent.send(frames.RESTART, SERVICE_BASE, b"1")
    assert agent.exit(SERVICE_BASE).error == "the job is being ended"


def test_a_server_is_restarted(lab):
    server = parameter_server(1)
    agent = lab.agent
    agent.launch(lab.plan("sh", "-c", "echo $MS_ROLE; exit 3", services=(server,)))
    for life in range(3):
        lab.started(SERVICE_BASE - 1)
        lab.serves(SERVICE_BASE - 1)
        assert agent.output(frames.STDOUT, SERVICE_BASE - 1) == b"MS_PSERVER\n"
        assert agent.exit(SERVICE_BASE - 1).code == 3
        agent.send(frames.RESTART, SERVICE_BASE - 1, str(life + 1).encode())


# --- nothing is left


def all_of_it(lab) -> list[int]:
    """A scheduler that does not hear TERM, a server with a child in a session of its own, and a rank."""
    (lab.folder / "site" / "sitecustomize.py").write_text("import signal; signal.signal(15, signal.SIG_IGN)")
    script = 'trap "" TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done'
    server = parameter_server(1)
    agent = lab.agent
    agent.launch(lab.plan(sys.executable, "-c", f"import os; os.execvp('sh', ['sh', '-c', {script!r}])",
                          services=(lab.scheduler(), server)))  # fmt: skip
    lab.serves()
    lab.serves(SERVICE_BASE - 1)
    agent.launch(plan("sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 0.05; done', grace=0.1))
    orphan = b""
    while not orphan.endswith(b"\n"):
        orphan += agent.expect(frames.STDOUT, SERVICE_BASE - 1).payload
    assert agent.output(frames.STDOUT, 0, 6) == b"ready\n"
    return [lab.started(), lab.started(SERVICE_BASE - 1), lab.started(0), int(orphan)]


def test_the_scheduler_ends_without_connections(lab):
    """Ranks that another launcher has started need it longer than ours do."""
    lab.agent.launch(lab.plan(sys.executable, "net.py"))
    lab.started()
    lab.serves()
    with socket.create_connection(("127.0.0.1", lab.port), BOUND):
        lab.agent.send(frames.END, payload=b"idle")
        until = time.monotonic() + 1.5 * IDLE  # longer than it would wait without a connection
        while lab.agent._more(until):
            assert lab.nothing(frames.EXIT)
    assert (
        control.unpack_record(ExitStatus, lab.agent.expect(frames.EXIT, SERVICE_BASE).payload).signal == signal.SIGTERM
    )


def test_an_agent_that_is_killed(lab):
    pids = all_of_it(lab)
    with open(f"/proc/{pids[0]}/stat") as file:
        os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
    assert lab.agent.wait() == 128 + signal.SIGKILL
    wait_gone(*pids)


def test_the_end_of_the_link_ends_services(lab):
    pids = all_of_it(lab)
    lab.agent.hang_up()
    assert lab.agent.wait() == 0
    wait_gone(*pids)


# --- ports


def reserve(agent, *wanted) -> tuple[int, ...]:
    agent.send(frames.RESERVE, payload=pack_ports(control.PortRequest(*one) for one in wanted))
    return control.unpack_record(control.Reserved, agent.expect(frames.RESERVED).payload).ports


def test_a_port_that_was_named(agent):
    with socket.create_server(("", 0)) as other:
        free = other.getsockname()[1]
    assert reserve(agent, (), (free,))[1] == free


def test_a_port_that_is_taken(agent):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        agent.send(frames.RESERVE, payload=b"0 %d" % taken)
        ended = agent.exit(frames.NO_RANK)
    assert ended.error.startswith(f"port {taken} is taken by process {os.getpid()} (")
    assert "--master_port" in ended.todo and "--scheduler" in ended.todo
    assert not [frame for frame in agent.frames if frame.kind == frames.RESERVED]


def test_a_port_that_may_move(agent):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        _, got = reserve(agent, (), (taken, True))
    assert taken - 64 < got < taken


def test_a_port_that_cannot_be_bound(agent):
    agent.send(frames.RESERVE, payload=b"65536")
    assert agent.expect(frames.FAULT)
    agent.wait()
