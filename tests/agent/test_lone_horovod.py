"""A Horovod without MPI that comes up alone: what the agent sees of processes that load the library of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from horovod_core import PLACES, RANK, STATES, built

from mslaunch.agent.mpi.singleton import find

BOUND = 30.0
STORE = "HOROVOD_GLOO_RENDEZVOUS_ADDR"


class Rank:
    """A process that obeys."""

    def __init__(self, library: str, *wrapper: str, **env: str) -> None:
        pipe = subprocess.PIPE
        argv = [*wrapper, sys.executable, "-S", "-c", RANK, library]
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **env})

    def does(self, *words: str, need: Any = lambda name, then: then()) -> tuple[str, str, bool] | None:
        """What the agent finds once these are done."""
        assert self.process.stdin and self.process.stdout
        for word in words:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"
        return find(self.process.pid, need)


@pytest.fixture
def rank() -> Iterator[Callable[..., Rank]]:
    """Start one."""
    ranks: list[Rank] = []

    def start(*words: str, **env: str) -> Rank:
        ranks.append(Rank(*words, **env))
        return ranks[-1]

    yield start
    for one in ranks:
        one.process.communicate(timeout=BOUND)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", STATES)
def test_it_is_found_once_it_was_initialised(tmp_path: Path, rank: Callable[..., Rank], place: str, state: str) -> None:
    path = built(tmp_path, place, state)
    one = rank(path)
    assert one.does("load") is None, "frameworks import Horovod to see whether it is there"
    assert one.does("init") == (path, "Horovod", True)


def test_below_a_shell(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    path = built(tmp_path)
    assert rank(path, "sh", "-c", '"$@"; exit', "sh").does("load", "init") == (path, "Horovod", True)


def test_variables_that_the_process_has_changed(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    """Many, so that setenv(3) has moved them all, and one that it was started with and has removed."""
    path = built(tmp_path)
    more = [f"MANY_{number}={'v' * 100}" for number in range(100)]
    assert rank(path, GIVEN="1").does("load", *more, "-GIVEN", "init") == (path, "Horovod", True)


@pytest.mark.parametrize("size", ["short", "long" * 1000])
def test_a_store_of_the_job_or_the_user(tmp_path: Path, rank: Callable[..., Rank], size: str) -> None:
    """--horovod gloo, horovodrun and -x set the variable before the process starts."""
    assert rank(built(tmp_path), **{STORE: size}).does("load", "init") is None


def test_a_store_of_the_program_itself(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    """As horovod.ray and horovod.spark do, in the process: /proc/PID/environ does not show it."""
    one = rank(built(tmp_path))
    assert one.does("load", f"{STORE}=127.0.0.1", "init") is None
    assert one.does(f"-{STORE}") is not None, "nothing but the variable has held it back"


def test_a_build_with_mpi(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    """Whatever its libmpi is called, and if it is in the library itself."""
    assert rank(built(tmp_path, PLACES[0], STATES[0], "-DWITH_MPI")).does("load", "init") is None


def test_a_library_that_is_linked_with_libmpi(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    name = "libmpi_of_a_vendor.so"
    subprocess.run(["gcc", "-shared", "-o", tmp_path / name, "-xc", "/dev/null"], check=True, timeout=60)
    words = ["-Wl,--no-as-needed", f"-L{tmp_path}", f"-l:{name}", f"-Wl,-rpath,{tmp_path}"]
    assert rank(built(tmp_path, PLACES[0], STATES[0], *words)).does("load", "init") is None


def test_a_stripped_library(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    """Nothing proves that it was initialised."""
    assert rank(built(tmp_path, PLACES[0], STATES[0], "-s")).does("load", "init") is None


def test_the_library_of_another_package(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    assert rank(built(tmp_path, "other/torch/mpi_lib_v2.so")).does("load", "init") is None


def test_it_is_not_examined_before_its_module_is_here(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    """An agent on another host asks for the module, and looks again later."""
    one = rank(built(tmp_path))
    asked: list[tuple[str, Callable[[], None]]] = []
    needs = lambda name, then: asked.append((name, then))  # noqa: E731
    assert one.does("load", "init", need=needs) is None
    ((name, came),) = asked
    assert name == "agent.mpi.lone_horovod"
    came()
    found = one.does(need=needs)
    assert found is not None and found[1:] == ("Horovod", True) and len(asked) == 1


def test_a_process_that_has_no_environment(tmp_path: Path, rank: Callable[..., Rank]) -> None:
    path = built(tmp_path)
    assert rank(path, "env", "-i").does("load", "init") == (path, "Horovod", True)


def test_other_programs_need_nothing(rank: Callable[..., Rank]) -> None:
    assert rank(sys.executable).does("A=1", need=lambda name, then: pytest.fail(name)) is None
