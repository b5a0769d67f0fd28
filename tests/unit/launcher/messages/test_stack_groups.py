"""Stacks as tools print them, cut to what ranks do, and ranks that do the same as one group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.launcher.messages.stack_frames import RUNNING, StackFrame, threads_of
from mslaunch.launcher.messages.stack_groups import (
    ProcessStack,
    chosen,
    groups_of,
    odd_ranks,
    outward,
    process_stack,
    report,
    sentence,
)
from mslaunch.launcher.rank_names import RankNames
from mslaunch.protocol.control import StackTrace

# recorded: py-spy 0.4.3 --native --full-filenames, mpi4py on MPICH 4.3; gdb 13.1; elfutils 0.188
SPY_BARRIER = """Thread 5797 (active)
    sched_yield (libc.so.6)
    0x7f90f551bf95 (libmpi.so.12)
    0x7f90f5495ac2 (libmpi.so.12)
    PMPI_Barrier (libmpi.so.12)
    Barrier (mpi4py/MPI.mpich.cpython-311-x86_64-linux-gnu.so)
    work (/home/u/train.py:6)
    main (/home/u/train.py:13)
    <module> (/home/u/train.py:16)
    0x7f90f664524a (libc.so.6)
"""
SPY_SLEEP = """Thread 5798 (idle): "MainThread"
    clock_nanosleep (libc.so.6)
    time_sleep (libpython3.11.so.1.0)
    main (/home/u/train.py:12)
    <module> (/home/u/train.py:16)
    0x7f88dfe4524a (libc.so.6)
Thread 5801 (idle): "Thread-1"
    futex_wait (libc.so.6)
    wait (/usr/lib/python3.11/threading.py:324)
"""
SPY_PLAIN = "Thread 7 (idle)\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    <module> (h.py:6)\n"
SPY_TORCH = """Thread 7 (idle): "MainThread"
    pthread_cond_wait (libc.so.6)
    c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::milliseconds) (libtorch_cpu.so)
    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2501)
    wrapper (/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)
    step (/home/u/hang.py:31)
"""
GDB_C = """Thread 2 (Thread 0x7f00 (LWP 78) "ring"):
#0  0x00007f88dff278ec in epoll_wait (epfd=5) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007f88dfea71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
Thread 1 (Thread 0x7f88e05bcb80 (LWP 77) "ring"):
#0  0x00007f88dfeed545 in __GI___clock_nanosleep (rem=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
#1  0x00007f in __GI___nanosleep (req=0x7ffd, rem=0x7ffd) at ../sysdeps/unix/sysv/linux/nanosleep.c:25
#2  0x00007f in __sleep (seconds=0) at ../sysdeps/posix/sleep.c:55
#3  0x000055 in main (argc=1, argv=0x7ffd) at ring.c:10
"""
GDB_PYTHON = """Thread 1 (Thread 0x7f88e05bcb80 (LWP 5798) "python"):
#0  0x00007f88dfeed545 in __GI___clock_nanosleep (rem=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
#1  0x00007f88e0315ada in pysleep (timeout=<optimized out>) at ./Modules/timemodule.c:2159
#2  time_sleep (self=<optimized out>, timeout_obj=<optimized out>) at ./Modules/timemodule.c:383
#3  0x00007f88e01a6ee2 in cfunction_vectorcall_O (func=0x7f, args=0x7f) at Objects/methodobject.c:514
#6  0x00007f88e00fd9c3 in _PyEval_EvalFrameDefault (tstate=<optimized out>) at Python/ceval.c:4769
#9  PyEval_EvalCode (co=co@entry=0x7f88dfcf9930) at Python/ceval.c:1148
#19 0x00007f88e02ba217 in pymain_main (args=0x7fffdc0dfc80) at Modules/main.c:710
#21 0x00007f88dfe4524a in __libc_start_call_main (main=0x56) at ../sysdeps/nptl/libc_start_call_main.h:58
#23 0x00005637de3b7081 in _start ()
"""
GDB_BARE = (
    "#0  0x00007f in ?? () from /lib/libmpi.so.12\n"
    "#1  0x00007f in PMPI_Barrier () from /lib/libmpi.so.12\n#2  0x0000 in main ()\n"
)
GDB_CXX = (
    "#0  std::function<void (int, long)>::operator() (this=0x7ffd, __args#0=1) at /usr/include/c++/12/functional:591\n"
    "#1  0x7f in ns::run<ns::a<int>, 3> (x=...) at run.cc:9\n"
)
EU = """TID 77:
#0  0x00007f5814036503 clock_nanosleep@GLIBC_2.2.5 - /usr/lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f581403ae53 __nanosleep - /usr/lib/x86_64-linux-gnu/libc.so.6
#2  0x00007f66c8ee696e - 1 sleep - /usr/lib/x86_64-linux-gnu/libc.so.6
#3  0x000055e7bcd234af - /usr/bin/sleep
#4  0x0000564620b82099 work - /home/u/ring
#5  0x00007f5813f8e24a __libc_start_call_main - /usr/lib/x86_64-linux-gnu/libc.so.6
#6  0x00007f5813f8e305 __libc_start_main@@GLIBC_2.34 - /usr/lib/x86_64-linux-gnu/libc.so.6
#7  0x000055e7bcd1f621 - /usr/bin/sleep
"""
PROC = (
    "no debugger was found there: x\n"
    "thread 9 a.out: S (sleeping), in hrtimer_nanosleep, system call 230 (clock_nanosleep)"
)


def what(tool: str, text: str, pid: int, name: str = "x") -> str:
    """`rank 0 in …`."""
    return sentence(groups_of({0: process_stack("n0", StackTrace(pid, name, tool, text))}), RankNames(8))


@pytest.mark.parametrize(
    ("tool", "text", "pid", "said"),
    [
        ("py-spy", SPY_BARRIER, 5797, "in MPI_Barrier (train.py:6)"),
        ("py-spy", SPY_SLEEP, 5798, "in time.sleep (train.py:12)"),
        ("py-spy", SPY_TORCH, 7, "in all_reduce (hang.py:31)"),
        ("py-spy", SPY_PLAIN, 7, "in all_reduce (h.py:6)"),
        ("py-spy", "Thread 7 (idle)\n    work (t.py:5)\n", 7, "in work (t.py:5)"),
        ("py-spy", "Thread 7\n    clock_nanosleep (libc.so.6)\n    w (t.py:5)\n", 7, "in time.sleep (t.py:5)"),
        (
            "py-spy",
            "Thread 7\n    clock_nanosleep (libc.so.6)\n    usleep (libc.so.6)\n    f (x.so)\n    w (t.py:5)\n",
            7,
            "in usleep (t.py:5)",
        ),
        ("py-spy", "Thread 7 (idle)\n    f (libx.so)\n    0x12 (libx.so)\n", 7, "in f (libx.so)"),
        ("gdb", GDB_C, 77, "in sleep (ring.c:10)"),
        ("gdb", GDB_PYTHON, 5798, "in time.sleep"),
        ("gdb", GDB_BARE, 5, "in MPI_Barrier (main)"),
        ("gdb", GDB_CXX, 5, "in std::function<void (int, long)>::operator() (functional:591)"),
        (
            "gdb",
            "#0  mpi_allreduce_ () from /lib/libmpif.so\n#1  0x5 in MAIN__ () at a.f90:7\n",
            5,
            "in MPI_Allreduce (a.f90:7)",
        ),
        (
            "gdb",
            "#0  __libc_pause () at ../sysdeps/unix/sysv/linux/pause.c:29\n#1  0x1 in f () at t.c:3\n",
            5,
            "in pause (t.c:3)",
        ),
        ("gdb", "#0  f.isra.0 (x=1) at t.c:3\n#1  0x1 in main () at t.c:9\n", 5, "in f (t.c:3)"),
        ("eu-stack", EU, 77, "in sleep (work)"),
        ("eu-stack", "TID 5:\n#0  0x0000000000000007\n", 5, "in code without names"),
        ("/proc", PROC, 9, "in the system call clock_nanosleep"),
        ("/proc", "x\nthread 9 a: R (running), system call running", 9, "running"),
        ("/proc", "x\nthread 9 a: S (sleeping), system call 24, used the CPU for 0.20 of 0.25 s", 9, "running"),
        ("/proc", "x\nthread 9 a: S (sleeping), in do_wait", 9, "in do_wait"),
        ("/proc", "x\nit has ended meanwhile", 9, "in code without names"),
        ("gdb", "", 9, "in code without names"),
    ],
)
def test_what_a_rank_does(tool: str, text: str, pid: int, said: str) -> None:
    assert what(tool, text, pid) == f"rank 0 {said}"


def test_calls_inside_a_collective_operation_and_of_the_interpreter_are_left_out() -> None:
    frames = process_stack("n0", StackTrace(5797, "python", "py-spy", SPY_BARRIER)).frames
    assert [str(frame) for frame in frames] == [
        "MPI_Barrier",
        "Barrier (mpi4py/MPI.mpich.cpython-311-x86_64-linux-gnu.so)",
        "work (/home/u/train.py:6)",
        "main (/home/u/train.py:13)",
        "<module> (/home/u/train.py:16)",
    ]
    assert [str(frame) for frame in process_stack("n0", StackTrace(5798, "python", "gdb", GDB_PYTHON)).frames] == [
        "time.sleep"
    ]


def test_a_function_of_the_user_inside_an_operation_is_what_the_rank_does() -> None:
    """An MPI_Op in Python, which hangs."""
    frames = [
        StackFrame("sleep", "libc.so.6"),
        StackFrame("mine", "/u/t.py", 3),
        StackFrame("PMPI_Reduce", "libmpi.so"),
    ]
    assert [frame.function for frame in outward(frames)] == ["sleep", "mine", "PMPI_Reduce"]


def test_other_threads_are_counted() -> None:
    stack = process_stack("n0", StackTrace(77, "ring", "gdb", GDB_C))
    assert stack.others == ("epoll_wait",)
    assert "  | and 1 more thread: 1 in epoll_wait\n" in report("x", groups_of({0: stack}), RankNames(1))


def test_a_thread_that_is_stuck_in_the_kernel_keeps_its_stack_there() -> None:
    text = (
        "x\nthread 9 a: D (sleeping, and no signal wakes it), in nfs_wait, system call 0 (read)\n"
        "  [<0>] nfs_wait+0x3/0x9\n  [<0>] vfs_read+0x1/0x2"
    )
    ((_, frames),) = threads_of("/proc", text, 9)
    assert [frame.function for frame in frames] == ["system call read, which no signal ends", "nfs_wait", "vfs_read"]


# --- groups


def eight() -> dict[int, ProcessStack]:
    stacks = {}
    for rank in range(8):
        moved = (
            SPY_BARRIER.replace("7f90f5", f"7f{rank}0f5").replace("5797", str(100 + rank)).replace("(active)", "(idle)")
        )
        moved = moved.replace("sched_yield", "epoll_wait") if rank % 2 else moved
        moved = moved.replace("/home/u/", f"/nfs{rank}/")
        stacks[rank] = process_stack(f"n{rank // 2}", StackTrace(100 + rank, "python", "py-spy", moved))
    stacks[5] = process_stack("n2", StackTrace(5798, "python", "py-spy", SPY_SLEEP))
    return stacks


def test_the_odd_rank_comes_first_whatever_differs_from_moment_to_moment() -> None:
    groups = groups_of(eight())
    names = RankNames(8)
    assert sentence(groups, names) == "rank 5 in time.sleep (train.py:12); 7 ranks in MPI_Barrier (train.py:6)"
    assert [group.ranks for group in groups] == [(5,), (0, 1, 2, 3, 4, 6, 7)]
    assert odd_ranks(groups) == (5,)
    text = report("no rank has printed anything for 60 seconds", groups, names, ["n8", "n9"])
    assert text.splitlines()[:4] == [
        "mslaunch: no rank has printed anything for 60 seconds: "
        "rank 5 in time.sleep (train.py:12); 7 ranks in MPI_Barrier (train.py:6)",
        "  rank 5 on n2, process 5798 (python), from py-spy:",
        "  | time.sleep",
        "  | main (/home/u/train.py:12)",
    ]
    assert "\n  ranks 0-4, 6-7, of which rank 0 on n0, process 100 (python), from py-spy:\n" in text
    assert text.count("| MPI_Barrier\n") == 1
    assert text.endswith("  no answer about the ranks on n[8-9]\n")


def test_ranks_that_all_do_the_same() -> None:
    stacks = {rank: stack for rank, stack in eight().items() if rank != 5}
    groups = groups_of(stacks)
    assert sentence(groups, RankNames(8)) == "all 7 ranks in MPI_Barrier (train.py:6)"
    assert odd_ranks(groups) == ()
    assert odd_ranks(groups_of({0: eight()[0], 5: eight()[5]})) == (), "none is odder than the other"
    assert sentence([], RankNames(1)) == "" and report("no rank runs", [], RankNames(1)) == "mslaunch: no rank runs\n"


def test_a_stack_that_ends_at_a_line_of_python_belongs_to_the_one_that_goes_on_from_there() -> None:
    """Intel's MPI has code that py-spy cannot follow; but where two go on, it could be either."""
    plain = SPY_BARRIER.partition("    work")
    short = process_stack(
        "n0", StackTrace(5797, "python", "py-spy", plain[0].splitlines()[0] + "\n" + "".join(plain[1:]))
    )
    stacks = {0: short, 1: eight()[1], 2: eight()[2], 5: eight()[5]}
    groups = groups_of(stacks)
    assert [(group.ranks, group.example) for group in groups] == [((5,), 5), ((0, 1, 2), 1)]
    assert sentence(groups, RankNames(6)) == "rank 5 in time.sleep (train.py:12); 3 ranks in MPI_Barrier (train.py:6)"
    stacks[2] = process_stack("n0", StackTrace(5797, "python", "py-spy", SPY_BARRIER.replace("Barrier", "Reduce")))
    assert [group.ranks for group in groups_of(stacks)] == [(0,), (1,), (2,), (5,)]


def test_a_shell_that_waits_for_the_program_says_nothing_about_the_rank() -> None:
    shell = process_stack(
        "n0",
        StackTrace(5, "sh", "gdb", "#0  __GI___wait4 (pid=-1) at ../sysdeps/unix/wait4.c:30\n#1  0x1 in main ()\n"),
    )
    wrapper = process_stack(
        "n0",
        StackTrace(5, "run", "gdb", "#0  __GI___wait4 (pid=-1) at ../sysdeps/unix/wait4.c:30\n#1  0x1 in main ()\n"),
    )
    program = process_stack("n0", StackTrace(5798, "python", "py-spy", SPY_SLEEP))
    worker = process_stack("n0", StackTrace(6000, "python", "py-spy", SPY_BARRIER))
    for first in (shell, wrapper):
        assert chosen(chosen(None, first), program) is program
        assert chosen(chosen(None, program), first) is program
    assert chosen(chosen(None, worker), program) is program, "of a program and its children the program"
    assert chosen(None, shell) is shell


def test_many_groups_are_told_in_few_lines() -> None:
    frames = {
        rank: (StackFrame(f"f{rank}", "t.py", 3), *(StackFrame("g", "t.py", line) for line in range(99)))
        for rank in range(100)
    }
    groups = groups_of({rank: ProcessStack("n0", 1, "python", "py-spy", one) for rank, one in frames.items()})
    said = sentence(groups, RankNames(100))
    assert said.startswith("rank 0 in f0 (t.py:3); rank 1") and said.endswith("; 96 ranks elsewhere")
    text = report("x", groups, RankNames(100))
    assert "  and 88 more stacks, of ranks 12-99\n" in text and "  | and 60 more calls\n" in text
    assert len(text.splitlines()) < 600


def test_who_has_no_py_spy_is_told() -> None:
    text = report("x", groups_of({0: process_stack("n0", StackTrace(5798, "python", "gdb", GDB_PYTHON))}), RankNames(1))
    assert "from gdb; install py-spy there for the lines of Python:" in text
    text = report("x", groups_of({0: process_stack("n0", StackTrace(9, "a", "/proc", PROC))}), RankNames(1))
    assert "from /proc (no debugger was found there: x):" in text


# --- whatever agents send


def test_a_host_cannot_forge_a_line() -> None:
    """Nor one that looks as if another rank had said it."""
    name = "x\nmslaunch: the job succeeded"
    traced = StackTrace(9, name, "/proc\nmslaunch: a", "a\vb\x85c\nthread 9 x: S (sleeping), in f\u2028mslaunch: b")
    text = report("head", groups_of({0: process_stack("n0", traced)}), RankNames(1))
    assert [line for line in text.splitlines() if line.startswith("mslaunch")] == [
        "mslaunch: head: rank 0 in code without names"
    ], text


TOOLS = st.sampled_from(["py-spy", "gdb", "eu-stack", "gstack", "/proc", "other"])
PIECES = st.sampled_from([
    "Thread ", "thread ", "TID ", "#0  ", "0x7f ", "0x", "in ", " at ", " from ", "()", "(", ")", "<", ">", "->",
    ":", "7", "- 1 ", " - /", "LWP ", "    ", "\n", "\n", "t.py", "MPI_", "PMPI_Barrier", "mpi_x_", "?? ",
    "R (running)", "D (", ", ", "system call ", "  [<0>] ", "²", "٣", "_PyEval_EvalFrameDefault", "time_sleep",
    "libc.so.6", "../sysdeps/", "@", ".",
])  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join))


@settings(deadline=None)
@given(TOOLS, TEXTS, st.integers(1, 1 << 31))
def test_any_text_has_a_bounded_meaning(tool: str, text: str, pid: int) -> None:
    for thread in threads_of(tool, text, pid):
        assert all(frame.function and len(frame.function) < 160 and len(frame.file) <= 200 for frame in thread.frames)
        assert not any(frame.function.startswith("0x") and frame.function[2:].isdigit() for frame in thread.frames)
    stack = process_stack("n0", StackTrace(pid, "python", tool, text))
    assert stack.frames and len(stack.frames) <= 64
    assert what(tool, text, pid).startswith("rank 0 ")


@settings(deadline=None)
@given(st.text(alphabet="#0x7f in()\n", max_size=5000))
def test_threads_and_frames_are_bounded(text: str) -> None:
    many = "".join(f"Thread {number} (LWP {number}):\n" + "#0  f ()\n" * 99 for number in range(99)) + text
    threads = threads_of("gdb", many, 5)
    assert len(threads) <= 64 and all(len(thread.frames) <= 64 for thread in threads)
    assert threads[0].number == 5


FRAMES = st.builds(StackFrame, st.sampled_from(["f", "PMPI_Barrier", "sleep", "_PyEval_X", "time_sleep", "_start"]),
                   st.sampled_from(["t.py", "libc.so.6", "", "<string>"]), st.integers(0, 9))  # fmt: skip


@given(st.dictionaries(st.integers(0, 63), st.lists(FRAMES, max_size=6), max_size=20))
def test_each_rank_is_in_one_group_and_groups_grow(stacks: dict[int, list[StackFrame]]) -> None:
    made = {rank: ProcessStack("n", 1, "x", "gdb", outward(frames)) for rank, frames in stacks.items()}
    groups = groups_of(made)
    assert sorted(rank for group in groups for rank in group.ranks) == sorted(stacks)
    assert [len(group.ranks) for group in groups] == sorted(len(group.ranks) for group in groups)
    assert len({group.process.key for group in groups}) == len(groups)
    for group in groups:
        keys = {made[rank].key for rank in group.ranks}
        assert made[group.example].key == group.process.key == max(keys, key=len)
        assert all(group.process.key[-len(key) :] == key for key in keys)


@given(st.lists(FRAMES, max_size=8), st.lists(FRAMES, max_size=8), st.lists(FRAMES, max_size=8))
def test_what_is_inside_a_call_of_mpi_does_not_matter(
    one: list[StackFrame], two: list[StackFrame], outer: list[StackFrame]
) -> None:
    plain = [[frame for frame in frames if not frame.python] for frames in (one, two)]
    call = StackFrame("PMPI_Allreduce", "libmpi.so")
    first, second = (outward([*inner, call, *outer]) for inner in plain)
    interpreter = any(frame.function.startswith("_PyEval") for frames in (*plain, outer) for frame in frames)
    assert first == second or interpreter
    assert RUNNING not in {frame.function for frame in first}
