"""Options that do nothing without another one, or beside it, whatever the dialect; a note tells of each."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from mslaunch.datamodel.request import Request


def idle(request: Request, given: Container[str]) -> list[str]:
    """A sentence about each option that does nothing without another, or beside it; `given`: fields that were set."""
    looked, progress = "stacks_on" in given, request.monitor.progress
    rows = (
        ("json" in given and not request.check, "--json", "without --check"),
        ("health_timeout" in given and not request.health_check, "--health-check-timeout", "without --health-check"),
        (looked and "timeout" in request.stacks_on and not request.timeout, "--stacks-on timeout", "without --timeout"),
        (
            looked and "hang" in request.stacks_on and not request.hang.seconds,
            "--stacks-on hang",
            "without --hang-timeout",
        ),
        (request.stack_traces and not request.timeout, "--get-stack-traces", "without --timeout"),
        (request.state_on_timeout and not request.timeout, "--report-state-on-timeout", "without --timeout"),
        (request.detach and bool(request.check), "--detach", "beside --check"),
        (request.detach and progress in ("yes", "plain"), f"--progress {progress}", "beside --detach"),
    )
    notes = [f"{option} has no effect {why}" for has_none, option, why in rows if has_none]
    if "ready_timeout" in given and not any(app.ready for app in request.apps):
        notes.append("--ready-timeout has no effect: no program has --ready")
    return notes
