"""`Launch`: events in a script, a thread, asyncio and what is like a notebook; cancelled, left early, read slowly."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from launching import ROOT, memory_of, state_of, wait_until

import mslaunch
from mslaunch import (
    CauseEvent,
    EndEvent,
    JobEndEvent,
    Launch,
    LaunchError,
    LineEvent,
    MessageEvent,
    RestartEvent,
    StartEvent,
    launch,
)
from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import Caller
from mslaunch.launcher.monitoring import launch_events
from mslaunch.launcher.monitoring.launch_events import EventSource

MANY = ["--oversubscribe"]
PRINTS = "import os\nfor number in range({count}): print(os.environ['RANK'], number, 'x' * {width})"


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(code: str) -> list[str]:
    return [os.path.realpath(sys.executable), "-S", "-c", code]


def test_events_of_a_job_that_fails() -> None:
    script = "echo out $RANK; echo err >&2; [ $RANK = 0 ] && read line < /dev/null; exit $((RANK * 3))"
    with Launch(shell(script), np=2, options=[*MANY, "--enable-recovery"]) as job:
        events = list(job)
    starts = [event for event in events if isinstance(event, StartEvent)]
    assert sorted(start.rank for start in starts if start.rank is not None) == [0, 1] and starts[0].pid > 0
    lines = {(event.rank, event.stream, event.text) for event in events if isinstance(event, LineEvent)}
    assert lines == {(0, "stdout", "out 0"), (1, "stdout", "out 1"), (0, "stderr", "err"), (1, "stderr", "err")}
    assert {(event.rank, event.code) for event in events if isinstance(event, EndEvent)} == {(0, 0), (1, 3)}
    assert isinstance(events[-1], JobEndEvent) and events[-1].outcome == job.outcome and not job.running
    with Launch(shell("[ $RANK = 1 ] && exit 3; exec sleep 100"), np=2, options=MANY) as failing:
        events = list(failing)
    (cause,) = [event for event in events if isinstance(event, CauseEvent)]
    assert (cause.rank, cause.code) == (1, 3) and failing.outcome and failing.outcome.code == 3
    said = [event.text for event in events if isinstance(event, MessageEvent)]
    assert any("rank 1 ended with exit code 3" in text for text in said)


def test_a_restart_is_an_event() -> None:
    options = ["--restart", "group", "--max-restarts", "1", *MANY]
    with Launch(shell("[ $MSLAUNCH_ATTEMPT = 2 ]"), np=2, options=options) as job:
        restarts = [event for event in job if isinstance(event, RestartEvent)]
    assert [restart.attempt for restart in restarts] == [2] and job.outcome and job.outcome.ok


def test_what_is_refused_raises() -> None:
    with pytest.raises(LaunchError, match="there is no file none"), Launch(["true"], hostfile="none") as job:
        list(job)
    for options in (["--backend", "openmpi"], ["--tag-output"], ["--fold"]):
        with pytest.raises(LaunchError):
            Launch(["true"], options=options)
    with pytest.raises(LaunchError):
        Launch("true")


def test_leaving_early_ends_the_job() -> None:
    with Launch(shell("echo ready; exec sleep 1000"), np=2, options=MANY) as job:
        for event in job:
            if isinstance(event, StartEvent):
                pid = event.pid
            if isinstance(event, LineEvent):
                break
    assert job.outcome and job.outcome.failure and job.outcome.failure.what == "ended by SIGTERM"
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_it_is_cancelled_at_once_and_from_another_thread() -> None:
    job = Launch(shell("exec sleep 1000"), np=2, options=MANY)
    job.start()
    job.cancel()  # before anything runs, perhaps
    with contextlib.suppress(LaunchError):
        job.wait(60)
    assert not job.running
    other = Launch(shell("echo ready; exec sleep 1000"), np=1)
    for event in other:
        if isinstance(event, LineEvent):
            threading.Thread(target=other.cancel).start()
    assert other.outcome and other.outcome.code == 1
    other.cancel()  # it has ended: nothing is done


def test_waiting_has_a_bound_and_lines_go_where_they_are_wanted() -> None:
    lines: list[LineEvent] = []
    with Launch(shell("echo one; exec sleep 1000"), np=1, on_line=lines.append) as job:
        wait_until(lambda: _waited_in_vain(job) and bool(lines))
        assert job.running
    assert [line.text for line in lines] == ["one"]
    with Launch(shell("echo one; echo two >&2"), np=1, discard=True) as quiet:
        assert not [event for event in quiet if isinstance(event, (LineEvent, MessageEvent))]
    assert quiet.outcome and quiet.outcome.ok


def _waited_in_vain(job: Launch) -> bool:
    with pytest.raises(TimeoutError):
        job.wait(0.1)
    return True


def test_waiting_has_a_bound_also_while_ranks_print_without_a_pause() -> None:
    with Launch(shell("yes"), np=1, on_line=lambda line: None) as job, pytest.raises(TimeoutError):
        job.wait(0.2)


def test_a_launch_that_is_dropped_ends_and_keeps_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    job = Launch(shell("echo $$; sleep 1000"), np=1)
    pid = next(int(event.text) for event in job if isinstance(event, LineEvent))
    assert os.path.exists(f"/proc/{pid}")
    del job
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_check_before_the_start_works_where_the_agent_is_a_new_interpreter() -> None:
    assert Launch(["true"], np=1, options=["--health-check", "true"]).wait(60).ok


async def turn() -> None:
    """A task that has run once the loop of asyncio has gone round."""


def test_threads_that_begin_and_read_it_share_one_job() -> None:
    job = Launch(python(PRINTS.format(count=2000, width=50)), np=1)
    seen: list[str] = []
    gate = threading.Barrier(3)

    def read() -> None:
        gate.wait(30)
        seen.extend(event.text for event in job if isinstance(event, LineEvent))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.wait(30)
    assert job.wait(60).ok
    for thread in threads:
        thread.join(60)
    assert not any(one.name == "mslaunch" for one in threading.enumerate())
    numbers = [int(line.split()[1]) for line in seen]
    assert len(set(numbers)) == len(numbers) and all(line.endswith("x" * 50) for line in seen), "each whole, and once"


def test_one_task_reads() -> None:
    async def both() -> list[object]:
        async with Launch(shell("sleep 1000"), np=1) as job:

            async def read() -> None:
                async for _ in job:
                    pass

            first = asyncio.ensure_future(read())
            await asyncio.ensure_future(turn())
            second = await asyncio.gather(read(), return_exceptions=True)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        return [*second, job.running]

    refused, running = asyncio.run(asyncio.wait_for(both(), 60))
    assert isinstance(refused, RuntimeError) and not running


def test_a_task_that_is_cancelled_twice_leaves_no_job() -> None:
    script = "trap '' TERM; echo $$; sleep 1000 & wait; sleep 1000"

    async def leave(pids: list[int], begun: asyncio.Event) -> None:
        async with Launch(shell(script), np=1, options=["--grace", "600"]) as job:
            async for event in job:
                if isinstance(event, LineEvent):
                    pids.append(int(event.text))
                    begun.set()

    async def main() -> list[int]:
        pids: list[int] = []
        begun = asyncio.Event()
        task = asyncio.ensure_future(leave(pids, begun))
        await begun.wait()
        for _ in range(2):
            task.cancel()
            for _ in range(3):  # it comes to where it waits
                await asyncio.ensure_future(turn())
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        return pids

    (pid,) = asyncio.run(main())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"))


def test_who_cancels_before_it_begins_gets_no_job() -> None:
    job = Launch(shell("sleep 1000"), np=1)
    job.cancel()
    with contextlib.suppress(LaunchError):
        assert not job.wait(60).ok


def test_a_function_for_lines_that_exits_leaves_no_job() -> None:
    def leave(line: LineEvent) -> None:
        raise SystemExit(7)

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SystemExit), Launch(shell("yes"), np=1, on_line=leave) as job:
        job.wait(60)
    assert job.outcome and len(os.listdir("/proc/self/fd")) <= before


def test_a_launch_that_has_left_descriptors_open_ends() -> None:
    """As one that had none for its loop."""
    held: list[int] = []

    def run(caller: Caller) -> Outcome:
        held.append(os.dup(caller.stdout))
        raise LaunchError("too many open files")

    source = EventSource(run, os.environ, "/", "w")
    with pytest.raises(LaunchError, match="too many"):
        for _ in range(100):  # each end of a stream wakes the reader
            source.next_event(20)
    os.close(held[0])


def test_many_lines_are_whole_and_in_order() -> None:
    count, seen = 25_000, [0] * 4
    with Launch(python(PRINTS.format(count=count, width=20)), np=4, options=MANY) as job:
        for event in job:
            if isinstance(event, LineEvent):
                rank, number, rest = event.text.split()
                assert (int(rank), int(number), len(rest)) == (event.rank, seen[event.rank], 20)
                seen[event.rank] += 1
    assert seen == [count] * 4


def test_ranks_wait_for_a_slow_reader() -> None:
    """Nobody reads 200 MB: they stay where they are, and the job can still be ended."""
    before, pid = memory_of(os.getpid()), 0
    with Launch(python(PRINTS.format(count=1 << 20, width=200)), np=1) as job:
        for event in job:
            if isinstance(event, LineEvent) and event.text.split()[1] == "100":
                break
            pid = event.pid if isinstance(event, StartEvent) else pid
        seen: list[int] = []
        wait_until(lambda: _waits(pid, seen))
        assert seen[-1] < 32 << 20 and memory_of(os.getpid()) - before < 60
    assert job.outcome and job.outcome.code == 1


def _waits(pid: int, seen: list[int]) -> bool:
    """The process sleeps, and has written nothing more for fifty looks; `seen` gets how much it has written."""
    words = Path(f"/proc/{pid}/io").read_text().split()
    seen.append(int(words[words.index("wchar:") + 1]))
    return state_of(pid) == "S" and seen[-50:] == [seen[-1]] * 50


def test_other_tasks_run_while_ranks_print_without_a_pause() -> None:
    async def read(job: Launch) -> None:
        async for _ in job:
            pass

    async def bounded() -> Launch:
        async with Launch(python("while True: print('x' * 20)"), np=2, options=MANY) as job:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(read(job), 1.0)
        return job

    job = asyncio.run(asyncio.wait_for(bounded(), 60))
    assert job.outcome and job.outcome.code == 1


def test_a_long_line_comes_in_pieces_that_are_its_own() -> None:
    size = 16 << 20
    code = f"import os\nfor _ in range({size >> 16}): os.write(1, b'z' * 65536)\nos.write(1, b'\\n\\x010\\x01end\\n')"
    before = memory_of(os.getpid())
    with Launch(python(code), np=2, options=MANY) as job:
        lines = [event for event in job if isinstance(event, LineEvent)]
    assert memory_of(os.getpid()) - before < 150
    for rank in (0, 1):
        *pieces, end = [line.text for line in lines if line.rank == rank]
        assert end == "\x010\x01end" and max(map(len, pieces)) <= 1 << 16
        assert "".join(pieces) == "z" * size


def test_a_function_for_lines_that_fails_gets_no_more() -> None:
    got: list[str] = []

    def fails(line: LineEvent) -> None:
        got.append(line.text)
        raise ValueError("no")

    with Launch(shell("echo one; echo two"), np=1, on_line=fails) as job:
        events = list(job)
    assert got == ["one"] and job.outcome and job.outcome.ok
    assert [event.text for event in events if isinstance(event, MessageEvent)] == [
        "on_line has failed and gets no more lines: ValueError('no')"
    ]


def test_what_has_ended_may_be_asked_again_and_next_begins() -> None:
    job = Launch(shell("echo one"), np=1)
    assert isinstance(next(job), StartEvent)
    assert job.wait(60) == job.wait() == job.outcome and list(job) == []
    refused = Launch(["true"], hostfile="none")
    for _ in range(2):
        with pytest.raises(LaunchError):
            refused.wait(60)


def test_many_open_files_are_no_bound() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("NOT TESTED, too few files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1050)]
    try:
        assert Launch(shell("echo one"), np=1).wait(60).ok
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("option", ["--check", "--help", "--version"])
def test_what_starts_no_job_is_refused(option: str) -> None:
    for start in (Launch, launch):
        with pytest.raises(LaunchError):
            start(["true"], options=[option])  # type: ignore[operator]


def test_in_asyncio_beside_other_tasks() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks < 1000:
            asyncio.get_running_loop().call_soon(tick)

    async def both() -> tuple[list[Any], Launch]:
        tick()
        async with Launch(shell("read line < /dev/null; echo $RANK"), np=2, options=MANY) as job:
            events = [event async for event in job]
        return events, job

    events, job = asyncio.run(both())
    assert sorted(event.text for event in events if isinstance(event, LineEvent)) == ["0", "1"]
    assert ticks > 10 and job.outcome and job.outcome.ok


def test_in_a_thread() -> None:
    found: list[Any] = []

    def work() -> None:
        with Launch(shell("echo $RANK"), np=2, options=MANY) as job:
            found.extend(event.text for event in job if isinstance(event, LineEvent))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert sorted(found) == ["0", "1"]


def test_what_is_like_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.stdout is no file, and an event loop runs."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    cells = runpy.run_path(str(ROOT / "examples" / "notebook_like.py"))
    asyncio.run(cells["notebook"]())
    text = shown.getvalue()
    assert sorted(line for line in text.splitlines() if line.startswith("LineEvent hello")) == [
        f"LineEvent hello from rank {rank} of 4" for rank in range(4)
    ]
    assert "exit code 0" in text and text.endswith("ended by SIGTERM\n")


def test_all_kinds_of_events_are_public_and_in_the_docs() -> None:
    kinds = [name for name in vars(launch_events) if name.endswith("Event") and name != "LaunchEvent"]
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert len(kinds) == 8
    for name in kinds:
        assert getattr(mslaunch, name) is getattr(launch_events, name) and name in mslaunch.__all__
        assert f"| `{name}` |" in page
