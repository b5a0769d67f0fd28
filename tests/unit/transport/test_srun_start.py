"""One srun, played by a script, in the loop of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LinkError
from mslaunch.protocol.call_proof import LONGEST
from mslaunch.runtime.loop import Loop
from mslaunch.transport.base import OpenContext
from mslaunch.transport.srun import _SrunStart


def test_a_host_that_prints_without_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexec head -c 3000000 /dev/zero\n")
    srun.chmod(0o755)
    failed: dict[str, LinkError] = {}
    with Loop() as loop:
        report = (pytest.fail, pytest.fail, lambda node, error: failed.update({node.name: error}))
        context = OpenContext(
            LinkPolicy(), {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:/usr/bin:/bin"}, *report, loop, []
        )
        start = _SrunStart([Node("n1", 1, "job 7")], -1, context)
        assert loop.run(lambda: bool(failed), 20)
        for close in context.closers:
            close()
    assert failed["n1"].what == "its agent ended at once"
    assert len(start._said) <= LONGEST
