"""What a host gets is what `agent_listing` lists, byte for byte."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launching import PROGRAMS

from mslaunch.transport.bootstrap.agent_listing import sent

OTHERS = [
    python
    for minor in range(8, 16)
    if minor != sys.version_info[1]
    for python in (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python3")
]


@pytest.mark.parametrize("kind", ["code", "source"])
def test_a_host_gets_what_the_listing_has(run, tmp_path, kind):
    """Kept by a command between launcher and agent, as docs/endpoint-protection.md does."""
    if kind == "source" and not OTHERS:
        pytest.skip("NOT TESTED, not installed: a Python of another version")
    keeper = tmp_path / "keep"
    keeper.write_text(f'#!/bin/sh\ntee {tmp_path}/sent | {sys.executable} {PROGRAMS}/rsh "$@"\n')
    keeper.chmod(0o755)
    python = sys.executable if kind == "code" else str(OTHERS[0])
    ended = run(["--rsh-agent", str(keeper), "--agent-python", python, "-H", "far:1", "-n", "1", "echo", "here"])
    assert (ended.code, ended.lines) == (0, ["here"]), ended
    code, source = list(sent().values())[:2]
    assert (tmp_path / "sent").read_bytes().startswith(code if kind == "code" else source)
