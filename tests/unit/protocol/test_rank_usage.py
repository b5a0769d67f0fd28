"""USE and USED, and what the agent finds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.ranks.usage import usage_of
from mslaunch.errors import WireError
from mslaunch.protocol.codec import pack
from mslaunch.protocol.rank_usage import RankUsage, pack_pids, pack_usage, unpack_pids, unpack_usage

NUMBERS = st.integers(0, 1 << 61)


@given(st.dictionaries(NUMBERS, st.builds(RankUsage, NUMBERS, NUMBERS, NUMBERS), max_size=8))
def test_usage_is_read_as_it_was_written(usage: dict[int, RankUsage]) -> None:
    assert unpack_usage(pack_usage(usage)) == usage


@given(st.lists(NUMBERS, max_size=20))
def test_so_are_process_ids(pids: list[int]) -> None:
    assert unpack_pids(pack_pids(pids)) == pids


@pytest.mark.parametrize("words", [["1"], ["1", "2", "3"], ["1", "-2", "3", "4"], ["a", "1", "1", "1"], ["9" * 30] * 4])
def test_a_host_that_says_nonsense_is_refused(words: list[str]) -> None:
    with pytest.raises(WireError):
        unpack_usage(pack({"ranks": words}))


def test_all_processes_of_a_session_count() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout and process.stdout.readline() == b"1\n"
        found = usage_of([process.pid, 1 << 22])
        assert set(found) == {process.pid} and found[process.pid].processes == 2
        assert found[process.pid].memory > os.sysconf("SC_PAGE_SIZE")
