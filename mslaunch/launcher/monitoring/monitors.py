"""What observes a launch because its command line asks for it: events, the record of the run, metrics.

Whatever cannot be opened refuses the launch, before a host is connected.
"""

from __future__ import annotations

import time

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.monitoring.activity import Activity
from mslaunch.launcher.monitoring.event_texts import EventTexts, secret_values
from mslaunch.launcher.monitoring.run_record import RunRecord, folder_of, launch_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.request import Caller, Request
    from mslaunch.launcher.observers import Observers
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop

    Facts = dict[str, Any]
    Sink = Callable[[str, str], None]  # the name of an event, and the event


def add_monitors(
    loop: Loop, request: Request, caller: Caller, observers: Observers, console: Console, jobid: str
) -> None:
    """Add the observers of a launch that begins now.  Raises `LaunchError`."""
    if request.do_not_launch or request.backend or request.check:
        return
    monitor, secrets = request.monitor, secret_values(request, caller.environ)
    wall = time.time() - (time.monotonic() - observers.began)
    folder = folder_of(request, caller.cwd)
    if not (monitor.asked or folder):
        return
    _refuse_same(request, caller.cwd, folder)
    exported = [name for app in request.apps for name, _ in app.env]
    facts = launch_facts(jobid, caller.command(), caller.cwd, caller.environ, exported)
    if monitor.events or monitor.on_event:
        _add_events(loop, request, caller, observers, console, EventTexts(jobid, wall, secrets), wall, facts)
    if folder or monitor.metrics:
        activity = Activity(observers.began)
        observers.listen(activity.heard)
        if folder:
            record = RunRecord(folder[0], folder[1], facts, wall, activity, secrets, console.info)
            if folder[1]:
                record.prepare()
            observers.add(record.observe)
        if monitor.metrics:
            from mslaunch.launcher.monitoring.metrics_file import MetricsFile

            metrics = MetricsFile(loop, monitor.metrics, caller.cwd, jobid, activity, console.info)
            observers.add(metrics.observe)
            observers.on_close(metrics.close)


def _add_events(
    loop: Loop,
    request: Request,
    caller: Caller,
    observers: Observers,
    console: Console,
    texts: EventTexts,
    wall: float,
    facts: Facts,
) -> None:
    import os

    sinks: list[Sink] = []
    monitor = request.monitor
    if monitor.on_event:
        from mslaunch.launcher.monitoring.event_command import EventCommand

        command = EventCommand(loop, monitor.on_event, caller.environ, caller.cwd, caller.stderr, console.info)
        sinks.append(command.take)
        observers.on_close(command.close)
    if monitor.events:
        from mslaunch.launcher.monitoring.event_file import EventFile

        file = EventFile(loop, os.path.join(caller.cwd, monitor.events), texts, console.info)
        file.begin(wall, **{key: facts[key] for key in ("mslaunch", "command", "cwd", "host", "pid")})
        sinks.append(file.take)
        observers.on_close(file.close)

    def observe(record: Any) -> None:
        event = texts.of(record)
        if event:
            for sink in sinks:
                sink(*event)

    observers.add(observe)


def _refuse_same(request: Request, cwd: str, folder: tuple[str, bool] | None) -> None:
    """Two of the files are one: the later one would replace the other."""
    import os

    monitor = request.monitor
    places = {os.path.realpath(os.path.join(folder[0], "run.json")): "--record"} if folder else {}
    for option, path in (("--events", monitor.events), ("--metrics", monitor.metrics)):
        if path:
            place = os.path.realpath(os.path.join(cwd, path))
            if place in places and place != os.devnull:
                raise UsageError(f"{path} is the file of {places[place]} as well", option, "name another file")
            places[place] = option
