"""The transports of PBS, LSF and Flux: a command of the system starts the agent of each host, which calls back.

What such commands carry besides is too little for a link: pbs_tmrsh and pbsdsh give tasks no standard input and none of
their output (openpbs src/cmds/pbs_tmrsh.c, start_process in src/resmom/start_exec.c; torque src/cmds/pbsdsh.c); `flux
exec` cuts output at a NUL (src/cmd/flux-exec.c, output_cb); of blaunch's no manual says what happens to bytes.  So
program and token come on standard input, or for PBS in a file (`token_file`), and the agent opens a connection
(`call_back`).  SSH starts the agent of a host where that fails, and all of them where the system's command is missing.

No command is signalled while agents end by themselves: for Flux it would be the end of the guard.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError, LinkError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, partial
from mslaunch.protocol.call_proof import ARGUMENT, CALL, LONGEST, NO_CALL, TOKEN
from mslaunch.transport.bootstrap.command_lines import calling_script, file_argv
from mslaunch.transport.call_back import CallListener, call_terms, token_of_host
from mslaunch.transport.last_words import LastWords
from mslaunch.transport.launcher_addresses import LauncherAddresses
from mslaunch.transport.rsh_program import ended_within
from mslaunch.transport.token_file import UNREADABLE, TokenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.runtime.loop import Timer
    from mslaunch.transport.base import OpenContext
    from mslaunch.transport.call_back import AgentCall, CallLink

_LOOK_AGAIN = 0.1  # seconds
_PATIENCE = 5.0  # seconds that a command may take to end after its agent
_GATHER = 0.2  # seconds in which hosts are gathered that SSH has to reach
_TODO = "--mca plm rsh (hydra: -bootstrap ssh) starts agents by SSH instead"
_PBS = "/opt/pbs/bin"  # of OpenPBS and PBS Pro, where PATH has it not
_LSF = "/usr/bin"  # as hydra has it (external_common_launch.c), without LSF_BINDIR
_NOT_FOUND = 254  # of a task of PBS whose program cannot be run: start_process in openpbs src/resmom/start_exec.c
#: what tells of the launcher's host; flux exec gives all of its environment to tasks
_ELSEWHERE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "HOSTNAME")


class Way(NamedTuple):
    """How one system starts an agent, once it is known where the launcher listens."""

    argv: Callable[[Node], Sequence[str]]
    given: Callable[[Node], bytes]  # on its standard input
    done: Callable[[], None]  # when nobody is waited for any more
    refusal: Callable[[bytes], str] = lambda said: ""  # why SSH may do it, by what the command has said
    held: bool = False  # its standard input begins when the task prints something, and ends with the agent


class Calling(NamedTuple):
    """What agents need in order to call back."""

    policy: LinkPolicy
    port: int
    token: Callable[[str], bytes]  # of an agent, by the name of its node
    addresses: LauncherAddresses
    names: Sequence[str]  # of all nodes

    def script(self, node: str) -> bytes:
        """A Python program; `node`: how an agent learns its name, as `call_terms` says."""
        return calling_script(self.policy.timeout, self.terms(node))

    def terms(self, node: str) -> bytes:
        """The line for an agent whose program does not have it."""
        name = node[1:] if node[:1] == "=" else ""
        known = self.addresses.for_hosts([name] if name else self.names)
        return call_terms(self.port, self.token(name), node, "-", known)


class Task:
    """The command that starts the agent of one host; see `call_back.Carrier`."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], given: bytes, context: OpenContext, held: bool = False
    ) -> None:
        """Run it; `held`: see `Way`.  Raises OSError."""
        import subprocess

        self.open: set[CallLink] = set()
        self.said = b""  # on standard output, the last of it
        self.limit: Timer | None = None
        self.ended: Callable[[], None] = lambda: None  # called when it has closed its output
        self._words = LastWords()
        self._loop = context.loop
        self._given = given if held else b""
        fd, self._input = os.pipe() if held else (_file_with(given), -1)
        self._output, ours = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv, stdin=fd, stdout=ours, stderr=self._words.pipe, env=environ, cwd="/", start_new_session=True
            )
        except OSError:
            os.close(self._output)
            self._close_input()
            raise
        finally:
            os.close(fd)
            os.close(ours)
            self._words.begin(self._loop)  # where there is no program, it ends at once
        self._loop.reader(self._output, self._read)

    def _read(self) -> None:
        data = os.read(self._output, 4096)
        self.said = (self.said + data)[-2 * LONGEST :]  # a host may print without end
        if data and self._given:
            given, self._given = self._given, b""
            self._write(given)
        if not data:
            self._close_output()
            self.ended()

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.reader(self._output, None)
            os.close(self._output)
            self._output = -1

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._input, data)  # a pipe takes 64 KiB at once
        except OSError:  # the command has just ended
            pass

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    @property
    def status(self) -> int | None:
        """That of the agent, if the command has ended and tells it; pbsdsh of Torque says it in words."""
        code = self._process.poll()
        words = self.noise().decode("utf-8", "replace").rpartition(" exit status ")[2].split()
        return int(words[0]) if code == 0 and words and words[0].isdigit() else code

    def noise(self) -> bytes:
        """The last 4 KiB of its standard error."""
        return self._words.said()

    def leave(self, link: CallLink, killed: bool) -> None:
        """The agent has ended, or cannot be reached."""
        self.open.discard(link)
        self.end(0.0 if killed else _PATIENCE)

    def end(self, seconds: float) -> None:
        """Wait so long for its end, and then kill it."""
        self._close_output()
        self._close_input()
        if not ended_within(self._process, self._words, seconds):
            self._process.kill()
            self._process.wait()
        self._words.close()


class TasksStart:
    """The commands of all hosts, as many at a time as --fanout says, until all agents have called."""

    def __init__(
        self, nodes: Sequence[Node], context: OpenContext, make: Callable[[Calling], Way], shared: bool = False
    ) -> None:
        """`make` returns how agents are started; `shared`: all of them are given the same program, and one token."""
        self._context = context
        self._environ = {name: value for name, value in context.environ.items() if name not in _ELSEWHERE}
        self._queue = list(nodes)
        self._starting: dict[str, tuple[Node, Task]] = {}
        self._by_ssh: list[Node] = []
        whole = os.urandom(TOKEN)
        token = (lambda name: whole) if shared else partial(token_of_host, whole)
        self._listener = CallListener(context.loop, token, self._admit)
        context.closers.append(self._stop)
        names = [node.name for node in nodes]
        self._way = make(Calling(context.policy, self._listener.port, token, LauncherAddresses(), names))
        self._start_next()
        self._listener.prepare()

    def _start_next(self) -> None:
        while self._queue and len(self._starting) < max(1, self._context.policy.fanout):
            node = self._queue.pop(0)
            argv = self._way.argv(node)
            try:
                task = Task(argv, self._environ, self._way.given(node), self._context, self._way.held)
            except OSError as error:
                self._context.failed(node, LinkError(f"{argv[0]} cannot be run: {error.strerror}", node.name, _TODO))
                continue
            self._starting[node.name] = node, task
            task.ended = partial(self._look_for_end, node.name)
            task.limit = self._context.loop.after(self._context.policy.timeout, partial(self._too_late, node.name))
        if not (self._starting or self._queue):
            self._listener.close()
            self._way.done()

    def _take(self, name: str) -> tuple[Node, Task] | None:
        """A host that is waited for, no longer."""
        found = self._starting.pop(name, None)
        if found and found[1].limit:
            found[1].limit.cancel()
        return found

    def _admit(self, name: str, call: AgentCall) -> bool:
        from mslaunch.transport.call_back import CallLink

        found = self._take(name)
        if found:
            node, task = found
            task.ended = lambda: None
            self._context.opened(CallLink(node, call, task))
            self._start_next()
        return found is not None

    def _look_for_end(self, name: str, looked: bool = False) -> None:
        """Its command has closed its output, or has ended; a call may have waited for a look."""
        if name not in self._starting:
            return
        status = self._starting[name][1].status
        if status is None or not looked:
            again = partial(self._look_for_end, name, status is not None)
            self._context.loop.after(_LOOK_AGAIN, again)
            return
        found = self._take(name)
        assert found
        node, task = found
        why = _no_way(task.said, status) or self._way.refusal(task.noise())
        if why:
            self._leave_to_ssh(node, why)
        else:
            self._context.failed(node, _error(name, self._way.argv(node)[0], status, task.noise()))
        task.end(0.0)
        self._start_next()

    def _leave_to_ssh(self, node: Node, why: str) -> None:
        self._context.notice(f"{node.name}: {why}, so its agent is started by SSH")
        self._by_ssh.append(node)
        if len(self._by_ssh) == 1:
            self._context.loop.after(_GATHER, self._open_by_ssh)

    def _open_by_ssh(self) -> None:
        nodes, self._by_ssh = self._by_ssh, []
        try:
            _open_by_ssh(nodes, self._context)
        except LaunchError as error:
            for node in nodes:
                self._context.failed(node, LinkError(error.what, node.name, error.todo))

    def _too_late(self, name: str) -> None:
        found = self._take(name)
        if found:
            node, task = found
            said, seconds = _last_line(task.noise()), self._context.policy.timeout
            what = said or f"no agent has called back within {counted(seconds, 'second')}"
            self._context.failed(node, LinkError(what, name, _TODO))
            task.end(0.0)
            self._start_next()

    def _stop(self) -> None:
        """Wait for no agent any more.  Those that have not called would find nobody."""
        self._listener.close()
        self._queue = []
        self._way.done()
        for name in list(self._starting):
            found = self._take(name)
            if found:
                found[1].end(0.0)


def _file_with(data: bytes) -> int:
    fd = os.memfd_create("mslaunch")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _no_way(said: bytes, status: int) -> str:
    """Why an agent that was started had no link; "" if that is not known."""
    if status == UNREADABLE:
        return "the file with the token cannot be read there, or not as a file of this user alone"
    for line in said.decode("ascii", "replace").split("\n"):
        if line.startswith(f"{CALL} "):
            return f"its agent cannot call back ({line.split(' ', 2)[-1]})"
    if status == 0:  # as if a site's command passed on no input
        return "its agent ended without a word"
    return "its agent cannot call back" if status == NO_CALL else ""


def _last_line(said: bytes) -> str:
    """What tells most; flux exec and pbsdsh end with a line about the exit code."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").split("\n") if line.strip()]
    telling = [line for line in lines if ": Exit " not in line and " exit status " not in line]
    return (telling or lines or [""])[-1]


class NoPythonError(LinkError):
    """A host has no such program as the agent's Python."""

    check = "python3"  #: as --check names what has failed


def _error(name: str, program: str, status: int, said: bytes) -> LinkError:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    what = _last_line(said) or f"{os.path.basename(program)} {how}"
    if status in (127, _NOT_FOUND):
        return NoPythonError(what, name, "it may have no such Python: name one with --agent-python", 127)
    return LinkError(what, name, _TODO)


def _found(program: str, environ: Mapping[str, str], elsewhere: str) -> str:
    """Its path, which may be in a directory of the system; "" if it is not there."""
    from mslaunch.host.helper_programs import find_helper

    return find_helper(program, environ, elsewhere)


def _open_by_ssh(nodes: Sequence[Node], context: OpenContext) -> None:
    from mslaunch.transport.ssh.ssh_link import open_by_ssh

    open_by_ssh(nodes, context)


def _working_directory(environ: Mapping[str, str]) -> str:
    """As the shell calls it, which other hosts may know, where the kernel's path leads to a mount of this one."""
    named = environ.get("PWD", "")
    try:
        here = os.getcwd()
        return named if os.path.isabs(named) and os.path.samefile(named, here) else here
    except OSError:  # one of them was removed
        return ""


def _say_ssh(program: str, nodes: Sequence[Node], context: OpenContext) -> None:
    context.notice(f"there is no {program} in PATH, so agents are started by SSH")
    _open_by_ssh(nodes, context)


def open_by_tm(nodes: Sequence[Node], context: OpenContext) -> None:
    """PBS: a pbs_tmrsh for each host, or with Torque a pbsdsh; see `base.Opener`."""
    environ, policy = context.environ, context.policy
    torque = environ.get("PBS_VERSION", "").startswith("TORQUE") or "PBS_NP" in environ
    tmrsh = _found("pbs_tmrsh", environ, _PBS)
    dsh = _found("pbsdsh", environ, _PBS) if torque and not tmrsh else ""
    words = [dsh, "-h"] if dsh else [tmrsh]
    if not words[0]:
        _say_ssh("pbsdsh" if torque else "pbs_tmrsh", nodes, context)
        return

    def make(calling: Calling) -> Way:
        file = TokenFile((environ.get("HOME", ""), _working_directory(environ)), calling.script(ARGUMENT))
        program = partial(file_argv, policy.python, policy.timeout, tuple(file.directories))
        return Way(lambda node: [*words, node.name, *program(node.name)], lambda node: b"", file.remove)

    TasksStart(nodes, context, make, shared=True)


def open_by_blaunch(nodes: Sequence[Node], context: OpenContext) -> None:
    """LSF: a blaunch for each host; see `base.Opener`.

    Whether a shell reads the words of its command depends on versions and on -no-shell, so they hold no character that
    one would change: Python takes the program from standard input.
    """
    blaunch = _found("blaunch", context.environ, context.environ.get("LSF_BINDIR", _LSF))
    if not blaunch:
        _say_ssh("blaunch", nodes, context)
        return
    python = context.policy.python
    TasksStart(nodes, context, lambda calling: _on_input(calling, lambda node: [blaunch, node.name], python))


def open_by_flux(nodes: Sequence[Node], context: OpenContext) -> None:
    """Flux: a `flux exec` for each host, which runs it below the broker there; see `base.Opener`."""
    from mslaunch.resource_managers.flux import hosts
    from mslaunch.resource_managers.managers import run_command

    ranks = {name: str(rank) for rank, name in reversed(list(enumerate(hosts(partial(run_command, context.environ)))))}
    python = context.policy.python
    TasksStart(nodes, context, lambda calling: _on_input(calling, lambda node: _flux(ranks[node.name]), python))


def _flux(rank: str) -> list[str]:
    return ["flux", "exec", "-r", rank]


def _on_input(calling: Calling, words: Callable[[Node], list[str]], python: str) -> Way:
    def argv(node: Node) -> list[str]:
        return [*words(node), python, "-I", "-S", "-"]

    return Way(argv, lambda node: calling.script(f"={node.name}"), lambda: None)
