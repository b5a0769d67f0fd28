"""What the registry says of a job from its start: its program, its directory, how many ranks, where its logs are."""

from __future__ import annotations

import os
import shlex
import time

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.request import Request


def job_facts(request: Request, cwd: str) -> dict[str, Any]:
    """What the registry says of a job from the start."""
    from mslaunch.launcher.stdio.log_layouts import layouts

    kept = layouts(request.output)
    bases = [os.path.normpath(os.path.join(cwd, layout.base)) for layout in kept]
    counts = [app.np for app in request.apps]
    return {
        "program": " : ".join(shlex.join(app.argv) for app in request.apps),
        "cwd": cwd,
        "began": time.time(),
        "ranks": sum(filter(None, counts)) if None not in counts else None,
        "logs": bases[0] if bases else None,
        "whole": request.cluster.share is None,
        "grace": request.grace,
        "layouts": [[base, layout.out, layout.err] for base, layout in zip(bases, kept)],
    }
