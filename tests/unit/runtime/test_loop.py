"""The loop, with real descriptors, signals and children."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_time import VirtualClock

from mslaunch.runtime import loop as loop_module
from mslaunch.runtime.loop import Loop


@pytest.fixture(params=["epoll", "poll"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    if request.param == "poll":
        monkeypatch.delattr(loop_module.select, "epoll")
    with Loop() as made:
        yield made


@pytest.fixture
def timers() -> Iterator[Loop]:
    """A loop in whose time the lines of a test take none: else a pause between two of them would change their order."""
    with Loop(VirtualClock()) as made:
        yield made


def test_timers_fire_in_order_and_cancelled_ones_never(timers: Loop) -> None:
    order: list[str] = []
    timers.after(0.02, lambda: order.append("later"))
    timers.after(0.0, lambda: order.append("first"))
    timers.after(0.0, lambda: order.append("second"))
    cancelled = timers.after(0.01, lambda: order.append("never"))
    cancelled.cancel()
    timers.run(lambda: "later" in order)
    assert order == ["first", "second", "later"]
    cancelled.cancel()


def test_a_timer_may_set_and_cancel_others(timers: Loop) -> None:
    order: list[str] = []
    other = timers.after(0.005, lambda: order.append("other"))
    timers.after(0.0, lambda: (order.append("one"), other.cancel(), timers.after(0.0, lambda: order.append("two"))))
    timers.after(0.01, lambda: order.append("end"))
    timers.run(lambda: "end" in order)
    assert order == ["one", "two", "end"]


def test_readable_writable_and_ended(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    seen: list[str] = []
    loop.reader(ours.fileno(), lambda: seen.append("read"))
    loop.after(0.0, lambda: theirs.send(b"x"))
    loop.run(lambda: bool(seen))
    assert seen[0] == "read" and ours.recv(9) == b"x"
    loop.writer(ours.fileno(), lambda: seen.append("write"))
    loop.run(lambda: "write" in seen)
    loop.writer(ours.fileno(), None)
    seen.clear()
    theirs.close()
    loop.run(lambda: bool(seen))
    assert seen == ["read"]
    loop.reader(ours.fileno(), None)
    loop.reader(ours.fileno(), None)
    ours.close()


def test_a_broken_pipe_is_reported(loop: Loop) -> None:
    """The kernel reports only HUP or ERR then, which cannot be requested."""
    reader, lost = os.pipe()
    os.close(lost)
    lost, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.close(lost)
    seen: list[str] = []
    loop.reader(reader, lambda: seen.append("reader"))
    loop.writer(writer, lambda: seen.append("writer"))
    loop.after(30.0, lambda: seen.append("too late"))
    loop.run(lambda: {"reader", "writer"} <= set(seen) or "too late" in seen)
    assert "too late" not in seen
    for fd in (reader, writer):
        loop.reader(fd, None)
        loop.writer(fd, None)
        os.close(fd)


def test_a_callback_may_close_the_descriptor_of_another(loop: Loop) -> None:
    pairs = [os.pipe() for _ in range(2)]
    called: list[int] = []

    def close_other(me: int) -> None:
        called.append(me)
        for reader, _ in pairs:
            loop.reader(reader, None)
            os.close(reader)

    for at, (reader, writer) in enumerate(pairs):
        loop.reader(reader, lambda at=at: close_other(at))
        os.write(writer, b"x")
    loop.run(lambda: bool(called))
    assert len(called) == 1
    for _, writer in pairs:
        os.close(writer)


def test_a_reused_descriptor_number_is_watched_anew(loop: Loop) -> None:
    reader, writer = os.pipe()
    seen: list[str] = []
    loop.reader(reader, lambda: seen.append("old"))
    loop.reader(reader, None)
    os.close(reader)
    os.close(writer)
    again, writer = os.pipe()
    assert again == reader
    loop.reader(again, lambda: seen.append("new"))
    os.write(writer, b"x")
    loop.run(lambda: bool(seen))
    assert seen == ["new"]
    loop.reader(again, None)
    os.close(again)
    os.close(writer)


def test_a_regular_file_is_always_ready(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    seen: list[bytes] = []
    loop.reader(fd, lambda: seen.append(os.read(fd, 2)))
    timer: list[int] = []
    loop.after(0.0, lambda: timer.append(1))
    loop.run(lambda: len(seen) == 3)
    assert seen == [b"ab", b"c", b""] and timer
    loop.reader(fd, None)
    fired: list[int] = []
    loop.after(0.005, lambda: fired.append(1))
    loop.run(lambda: bool(fired))
    assert len(seen) == 3
    os.close(fd)


def test_signals_are_called_back_in_the_loop_and_given_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    seen: list[str] = []
    with Loop() as loop:
        loop.signal(signal.SIGUSR1, lambda: seen.append("usr1"))
        loop.signal(signal.SIGUSR2, None)
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == []
        loop.run(lambda: bool(seen))
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    assert seen == ["usr1"]
    assert signal.getsignal(signal.SIGUSR1) == before
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("late", [True, False])
def test_a_child_and_its_status(late: bool) -> None:
    """`late`: it has ended before the loop is asked to watch it."""
    gate, opener = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(opener)
        os.read(gate, 1)
        os._exit(7)
    os.close(gate)
    seen: list[int] = []
    with Loop() as loop:
        if late:
            os.close(opener)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        loop.child(pid, seen.append)
        if not late:
            loop.after(0.0, lambda: os.close(opener))
        loop.run(lambda: bool(seen))
    assert [os.WEXITSTATUS(status) for status in seen] == [7]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_children_of_others_are_left_alone() -> None:
    others = os.fork()
    if not others:
        os._exit(3)
    mine = os.fork()
    if not mine:
        os._exit(4)
    seen: list[int] = []
    with Loop() as loop:
        loop.child(mine, seen.append)
        loop.run(lambda: bool(seen))
    assert os.WEXITSTATUS(os.waitpid(others, 0)[1]) == 3


def test_what_a_callback_raises_ends_the_run(loop: Loop) -> None:
    def fail() -> None:
        raise RuntimeError("mine")

    loop.after(0.0, fail)
    with pytest.raises(RuntimeError, match="mine"):
        loop.run(lambda: False)


def test_a_wait_with_a_limit(loop: Loop) -> None:
    fired: list[int] = []
    assert not loop.run(lambda: False, 0.01)
    loop.after(0.001, lambda: fired.append(1))
    assert loop.run(lambda: bool(fired), 60)
    assert loop._run_due() is None, "nothing is left of the limit"


def test_hours_pass_in_virtual_time() -> None:
    """Descriptors that are ready come before the next timer."""
    clock = VirtualClock()
    seen: list[tuple[float, str]] = []
    reader, writer = os.pipe()
    with Loop(clock) as loop:

        def hourly(hour: int) -> None:
            seen.append((loop.now() - 1000, f"hour {hour}"))
            if hour == 2:
                os.write(writer, b"x")
            loop.after(3600, lambda: hourly(hour + 1))

        def read() -> None:
            seen.append((loop.now() - 1000, os.read(reader, 1).decode()))

        loop.reader(reader, read)
        loop.after(3600, lambda: hourly(1))
        assert not loop.run(lambda: False, 4 * 3600 - 1)
    assert seen == [(3600, "hour 1"), (7200, "hour 2"), (7200, "x"), (10800, "hour 3")]
    for fd in (reader, writer):
        os.close(fd)


def test_what_came_while_the_process_was_stopped_is_heard_before_its_timers() -> None:
    """SIGSTOP and SIGCONT, or a machine that was suspended: an answer that is there is not missing."""
    clock = VirtualClock()
    order: list[str] = []
    reader, writer = os.pipe()
    with Loop(clock) as loop:
        loop.after(10.0, lambda: order.append("timer"))
        loop.reader(reader, lambda: order.append(os.read(reader, 9).decode()))
        os.write(writer, b"answer")
        clock.time += 12.0
        loop.run(lambda: len(order) == 2)
    for fd in (reader, writer):
        os.close(fd)
    assert order == ["answer", "timer"]
