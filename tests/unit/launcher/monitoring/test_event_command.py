"""--on-event: what its command gets on its standard input."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mslaunch.launcher.monitoring.event_command import EventCommand
from mslaunch.runtime.loop import Loop


def test_a_long_event_arrives_as_a_whole(tmp_path: Path) -> None:
    """The stacks of thousands of ranks are more than a pipe takes (64 KiB, pipe(7)); half of it would be no JSON."""
    event = json.dumps({"event": "hang", "text": "rank 5 in time.sleep\n" * 50_000})
    told: list[str] = []
    with Loop() as loop, open(os.devnull, "wb") as nowhere:
        words = ["sh", "-c", f"cat > {tmp_path / 'got'}"]
        command = EventCommand(loop, words, os.environ, str(tmp_path), nowhere.fileno(), told.append)
        command.take("hang", event)
        command.take("rank_started", "{}")  # not for it
        command.close()
    assert (tmp_path / "got").read_text() == f"{event}\n" and told == []


def test_a_command_that_cannot_be_started_is_told_of(tmp_path: Path) -> None:
    """The launch goes on."""
    told: list[str] = []
    with Loop() as loop, open(os.devnull, "wb") as nowhere:
        command = EventCommand(loop, ["true"], os.environ, str(tmp_path), nowhere.fileno(), told.append)
        tmp_path.rmdir()  # the directory that it is run in
        command.take("end", "{}")
        command.close()
    assert told == ["--on-event: true cannot be run: No such file or directory"]
