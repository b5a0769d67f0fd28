"""CPU and memory binding of a rank, by binding this process for as long as it takes to start the rank."""

from __future__ import annotations

import os

from mslaunch.agent import on_demand
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class bound:  # noqa: N801
    """A context in which we, and what we start, run on `cpus` (the kernel's numbers) only; without any, as before.

    Raises `LaunchError` if we may use none of them.  (Of some, the kernel itself takes those that there are.)  New
    memory comes from the NUMA nodes `memory`; if the kernel refuses that, `refused` says why.
    """

    def __init__(self, cpus: Sequence[int], memory: Sequence[int] = ()) -> None:
        self._cpus = cpus
        self._memory = memory
        self._before: set[int] = set()
        self._put_back: Callable[[], None] | None = None
        self.refused = ""

    def __enter__(self) -> bound:
        if self._cpus and hasattr(os, "sched_setaffinity"):
            before = os.sched_getaffinity(0)
            try:
                os.sched_setaffinity(0, self._cpus)
            except OSError as error:
                what = f"this host does not bind to cpu {_numbers(self._cpus)}: {error.strerror}"
                todo = "the cpu is offline or not in our cgroup; launch again, or with --bind-to none"
                raise LaunchError(what, todo=todo) from None
            self._before = before
        if self._memory:
            bind = on_demand.get("agent.ranks.numa_memory").bind
            try:
                self._put_back = bind(self._memory)
            except OSError as error:
                self.refused = f"this host bound no memory to NUMA node {_numbers(self._memory)}: {error.strerror}"
        return self

    def __exit__(self, *exc: object) -> None:
        if self._put_back:
            self._put_back()
        if self._before:
            try:
                os.sched_setaffinity(0, self._before)
            except OSError:  # our cgroup has changed meanwhile: whatever it has now
                os.sched_setaffinity(0, range(max(self._before) + 1024))


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
