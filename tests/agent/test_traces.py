"""TRACE over the link: a stack for every process of every rank, from a tool if there is one, and never nothing."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest
from agents import plan, wait_asleep, wait_gone

from mslaunch.agent import stack_traces
from mslaunch.protocol import control, frames

#: an interpreter without py-spy beside it, and the places of programs where none is
PYTHON = os.path.realpath(sys.executable)
BARE = ":".join(
    place for place in os.environ.get("PATH", os.defpath).split(":") if not os.path.exists(f"{place}/py-spy")
)
WAIT = "echo ready; while :; do sleep 1000; done"


@pytest.fixture
def tools(tmp_path):
    """A directory for tools, which the agent looks in first; `tools(name, script)` puts one there."""

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    put.path = f"{tmp_path}:{BARE}"
    return put


def _launched(agent, *argv, ranks=1):
    agent.begin()
    agent.launch(plan(*argv, ranks=ranks, pty="no"))
    for rank in range(ranks):
        assert agent.output(frames.STDOUT, rank, 6) == b"ready\n"
    return [int(agent.expect(frames.STARTED, rank).payload) for rank in range(ranks)]


def _traces(agent, seconds=b"10"):
    """All traces that arrive, as (rank, Traced)."""
    agent.send(frames.TRACE, payload=seconds)
    found = []
    while True:
        frame = agent.expect(frames.TRACES)
        if frame.rank == frames.NO_RANK:
            assert not frame.payload
            return found
        found.append((frame.rank, control.unpack_record(control.StackTrace, frame.payload)))


def test_a_tool_prints_the_stacks(boot, tools):
    """For each process of each rank; what a debugger says before and after the stack is left out."""
    tools("eu-stack", 'echo "[New LWP $3]"; echo "Thread 1 of $3"; echo "#0  here"; echo "[Inferior 1 detached]"')
    agent = boot(PATH=tools.path)
    pids = _launched(agent, "sh", "-c", WAIT, ranks=2)
    found = _traces(agent)
    assert {rank for rank, _ in found} == {0, 1}
    assert set(pids) <= {traced.pid for _, traced in found}
    for _, traced in found:
        assert (traced.tool, traced.text) == ("eu-stack", f"Thread 1 of {traced.pid}\n#0  here")
        assert traced.name in ("sh", "sleep")


def test_a_tool_for_python_is_used_for_python_only(boot, tools):
    tools("py-spy", 'echo "Thread 1 (idle): MainThread"; echo "    wait (x.py:3)"')
    tools("eu-stack", 'echo "#0  here"')
    agent = boot(PATH=tools.path)
    _launched(agent, PYTHON, "-uc", "print('ready'); import signal; signal.pause()")
    ((_, traced),) = _traces(agent)
    assert (traced.tool, traced.text.splitlines()[1]) == ("py-spy", "    wait (x.py:3)")
    other = boot(PATH=tools.path)
    _launched(other, "sh", "-c", WAIT)
    assert {traced.tool for _, traced in _traces(other)} == {"eu-stack"}


def test_a_tool_without_permission(boot, tools):
    """Its last line is the reason; the kernel's information is shown instead."""
    for name in ("py-spy", "eu-stack", "gstack", "gdb"):
        tools(name, f'echo "{name}: Operation not permitted." >&2; exit 1')
    agent = boot(PATH=tools.path)
    (pid,) = _launched(agent, PYTHON, "-uc", "print('ready'); import signal; signal.pause()")
    ((rank, traced),) = _traces(agent)
    lines = traced.text.splitlines()
    assert (rank, traced.pid, traced.tool) == (0, pid, "/proc")
    assert lines[0] == "gdb: gdb: Operation not permitted."
    assert lines[1].startswith(
        (f"thread {pid} {traced.name}: S (sleeping)", f"thread {pid} {traced.name}: R (running)")
    )


def test_a_tool_that_hangs_is_killed(boot, tools):
    """The rank is not."""
    tools("eu-stack", "exec sleep 1000")
    agent = boot(PATH=tools.path)
    (pid,) = _launched(agent, PYTHON, "-uc", "print('ready'); import time\nwhile 1: time.sleep(100)")
    ((_, traced),) = _traces(agent, b"0.3")
    assert traced.text.splitlines()[0] in (
        "eu-stack took too long; before it stopped the process:",
        "there was no time to ask a debugger",
    )
    assert f"thread {pid}" in traced.text
    agent.send(frames.END, payload=b"0")
    assert agent.exit(0).signal == 9


def test_a_tool_that_is_killed_leaves_no_process_stopped(boot, tools):
    """As a debugger is while it attaches: the process then gets a SIGSTOP that nobody takes back."""
    tools("eu-stack", "kill -STOP $3; exec sleep 1000")
    agent = boot(PATH=tools.path)
    (pid,) = _launched(agent, PYTHON, "-uc", "print('ready'); import time\nwhile 1: time.sleep(100)")
    _traces(agent, b"2")
    wait_asleep(pid)
    agent.send(frames.END, payload=b"0")
    agent.exit(0)


def test_a_tool_that_is_killed_at_the_end_lets_no_shell_go_on(boot, tools, tmp_path):
    """A shell is held back until its program has ended: it would run what comes next in the script."""
    os.mkfifo(tmp_path / "fifo")
    tools("eu-stack", f"grep -q python /proc/$3/comm || echo > {tmp_path}/fifo; exec sleep 1000")
    agent = boot(PATH=tools.path)
    program = "import signal; print('ready'); signal.pause()"
    _launched(agent, "sh", "-c", '"$0" -Suc "$1"; echo went on', PYTHON, program)
    agent.send(frames.TRACE, payload=b"1000")
    agent.give("agent.stack_traces")
    (tmp_path / "fifo").read_text()
    agent.send(frames.END, payload=b"100")
    assert agent.exit(0).signal == 15
    assert agent.output(frames.STDOUT, 0) == b""


_SLOW = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
assert libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0  # PTRACE_ATTACH
os.waitpid(int(sys.argv[1]), 0x40000000)
print("Thread 1\\n#0  as far as it came", flush=True)
time.sleep(1000)
"""


def test_a_hang_is_shown_as_it_was_before_the_debugger_stopped_it(boot, tools, tmp_path):
    (tmp_path / "slow.py").write_text(_SLOW)
    tools("eu-stack", f'exec {PYTHON} -S {tmp_path / "slow.py"} "$3"')
    agent = boot(PATH=tools.path)
    (pid,) = _launched(agent, PYTHON, "-Suc", "import signal; print('ready'); signal.pause()")
    wait_asleep(pid)
    ((_, traced),) = _traces(agent, b"3")
    lines = traced.text.splitlines()
    assert traced.tool == "/proc"
    assert lines[0] == "eu-stack took too long; before it stopped the process:"
    assert f"thread {pid} python" in lines[1] and ": S (sleeping)" in lines[1]

    assert os.uname().machine != "x86_64" or lines[1].endswith("system call 34 (pause)")
    assert "debugger" not in "".join(lines[1:]) and "ptrace" not in traced.text
    assert lines[-3:] == ["what eu-stack had said by then:", "Thread 1", "#0  as far as it came"]


def test_end_does_not_wait_for_tools(boot, tools, tmp_path):
    agent = boot(PATH=tools.path)
    os.mkfifo(tmp_path / "fifo")
    tools("eu-stack", f"echo $$ > {tmp_path}/fifo; exec sleep 1000")
    _launched(agent, PYTHON, "-uc", "print('ready'); import time; time.sleep(1000)")
    agent.send(frames.TRACE, payload=b"1000")
    agent.give("agent.stack_traces")
    tool = int((tmp_path / "fifo").read_text())
    agent.send(frames.END, payload=b"0")
    assert agent.exit(0).signal == 9
    wait_gone(tool)


def test_a_rank_without_a_process(agent):
    agent.launch(plan("true"))
    agent.exit(0)
    assert _traces(agent) == []


def test_stacks_from_the_kernel():
    """Of a process that is ours: a line for each thread, and never nothing."""
    lines = stack_traces.threads_of(os.getpid())
    assert lines[0].startswith(f"thread {os.getpid()} ") and "R (running)" in lines[0]
    assert stack_traces.threads_of(2**22 + 1) == ["it has ended meanwhile"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", ""),
        ("warning: no\nptrace: Operation not permitted.\n", ""),
        ("noise\n#0  f ()\n#1  g ()\n[Inferior 1 (process 7) detached]\n", "#0  f ()\n#1  g ()"),
        ("PID 7 - process\nTID 7:\n#0  f\n", "TID 7:\n#0  f"),
        ("\n\nThread 1 (LWP 7):\n\n#0  f ()\n", "Thread 1 (LWP 7):\n#0  f ()"),
        ("#0  " + "x" * 1000, "#0  " + "x" * 296),
    ],
)
def test_output_of_tools_is_trimmed(said, kept):
    assert stack_traces.worth_keeping(said) == kept


def test_stacks_are_bounded():
    text = stack_traces.worth_keeping("#0  f ()\n" * 100000)
    assert len(text) < 70000 and text.endswith("#0  f ()\n(cut here)")


@pytest.mark.parametrize(
    ("tool", "mode", "asked"), [("py-spy", 0o755, True), ("py-spy", 0o1777, False), ("eu-stack", 0o755, False)]
)
def test_a_tool_beside_the_program(boot, tmp_path, tool, mode, asked):
    """py-spy, as `pip` puts it beside Python; but not where anybody may put a program, as in /tmp."""
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copy(os.path.realpath(shutil.which("sh")), folder / "python3")
    (folder / tool).write_text("#!/bin/sh\necho '#0  planted'\n")
    (folder / tool).chmod(0o755)
    folder.chmod(mode)
    agent = boot(PATH=BARE)
    _launched(agent, str(folder / "python3"), "-c", WAIT)
    said = [traced.text for _, traced in _traces(agent) if traced.name == "python3"]
    assert [text == "#0  planted" for text in said] == [asked]


NATIVE = """case "$*" in *--native*) {native};; esac
echo 'Thread 1 (idle): "MainThread"'; echo '    plain (x.py:3)'"""


def test_py_spy_that_takes_long_for_libraries_is_asked_for_python_alone(boot, tools):
    """When half of the time is over; what it has printed until then is dropped."""
    tools("py-spy", NATIVE.format(native="echo 'Thread 1'; exec sleep 1000"))
    agent = boot(PATH=tools.path)
    _launched(agent, PYTHON, "-uc", "print('ready'); import signal; signal.pause()", ranks=4)
    found = _traces(agent, b"4")
    assert [(traced.tool, traced.text.splitlines()[1:]) for _, traced in found] == [
        ("py-spy", ["    plain (x.py:3)"])
    ] * 4


def test_py_spy_that_knows_no_libraries_is_asked_for_python_alone(boot, tools):
    tools("py-spy", NATIVE.format(native="echo 'error: unexpected argument --native' >&2; exit 2"))
    agent = boot(PATH=tools.path)
    _launched(agent, PYTHON, "-uc", "print('ready'); import signal; signal.pause()")
    ((_, traced),) = _traces(agent)
    assert (traced.tool, traced.text.splitlines()[1]) == ("py-spy", "    plain (x.py:3)")


@pytest.mark.parametrize(("mode", "asked"), [(0o755, True), (0o1777, False)])
@pytest.mark.parametrize("how", ["started", "on the PATH of the rank"])
def test_py_spy_in_the_environment_of_the_program(boot, tmp_path, how, mode, asked):
    """The interpreter of a venv is a link to one elsewhere, and only the program that was started tells of the venv."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(os.path.realpath(PYTHON))
    (folder / "py-spy").write_text("#!/bin/sh\necho 'Thread 1 (idle)'; echo '    found (x.py:3)'\n")
    (folder / "py-spy").chmod(0o755)
    folder.chmod(mode)
    agent = boot(PATH=os.defpath)
    program = [str(folder / "python")]
    if how != "started":
        program = ["/bin/sh", "-c", f'exec {os.path.realpath(PYTHON)} "$@"', "sh"]
    agent.begin()
    words = [*program, "-Suc", "print('ready'); import signal; signal.pause()"]
    agent.launch(plan(*words, pty="no", env=(f"PATH={folder}:{os.defpath}",)))
    assert agent.output(frames.STDOUT, 0, 6) == b"ready\n"
    ((_, traced),) = _traces(agent)
    assert ("found (x.py:3)" in traced.text) == asked


def test_another_question_ends_the_one_before(boot, tools):
    """As many answers come as questions, each with its end."""
    tools("eu-stack", "exec sleep 1000")
    agent = boot(PATH=tools.path)
    _launched(agent, "sh", "-c", WAIT)
    agent.send(frames.TRACE, payload=b"1000")
    agent.give("agent.stack_traces")
    began = time.monotonic()
    found = _traces(agent, b"0.5")
    assert found, "of the first"
    assert agent.expect(frames.TRACES).rank != frames.NO_RANK
    while agent.expect(frames.TRACES).rank != frames.NO_RANK:
        pass
    assert time.monotonic() - began < 20


def test_without_a_tool_a_process_that_polls_counts_as_running(boot, tools):
    """Though it sleeps at most moments, as an MPI library does that waits."""
    for name in ("py-spy", "eu-stack", "gstack", "gdb"):
        tools(name, "exit 1")
    busy = "    t = time.perf_counter()\n    while time.perf_counter() < t + .004: pass\n"
    program = f"import time\nprint('ready')\nwhile True:\n{busy}    time.sleep(.004)"
    agent = boot(PATH=tools.path)
    _launched(agent, PYTHON, "-Suc", program)
    ((_, traced),) = _traces(agent)
    assert ", used the CPU for 0." in traced.text.splitlines()[1]
    other = boot(PATH=tools.path)
    (pid,) = _launched(other, PYTHON, "-Suc", "import signal; print('ready'); signal.pause()")
    wait_asleep(pid)
    ((_, traced),) = _traces(other)
    assert "used the CPU" not in traced.text
