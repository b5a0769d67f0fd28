"""mslaunch: one command that starts the ranks of a job on one host or many.

    from mslaunch import launch
    outcome = launch(["python", "net.py"], np=4, hostfile="hosts")

The names in `__all__` are the public API.  Each is imported on first use, because the command must start in
milliseconds.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = [
    "CauseEvent",
    "EndEvent",
    "HangEvent",
    "JobEndEvent",
    "Launch",
    "LaunchError",
    "LineEvent",
    "MessageEvent",
    "Outcome",
    "RankStatus",
    "RestartEvent",
    "StartEvent",
    "__version__",
    "launch",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mslaunch.api import Launch as Launch
    from mslaunch.api import launch as launch
    from mslaunch.datamodel.outcome import Outcome as Outcome
    from mslaunch.datamodel.outcome import RankStatus as RankStatus
    from mslaunch.errors import LaunchError as LaunchError
    from mslaunch.launcher.monitoring.launch_events import CauseEvent as CauseEvent
    from mslaunch.launcher.monitoring.launch_events import EndEvent as EndEvent
    from mslaunch.launcher.monitoring.launch_events import HangEvent as HangEvent
    from mslaunch.launcher.monitoring.launch_events import JobEndEvent as JobEndEvent
    from mslaunch.launcher.monitoring.launch_events import LineEvent as LineEvent
    from mslaunch.launcher.monitoring.launch_events import MessageEvent as MessageEvent
    from mslaunch.launcher.monitoring.launch_events import RestartEvent as RestartEvent
    from mslaunch.launcher.monitoring.launch_events import StartEvent as StartEvent

_ROWS = {
    "Launch": "api:Launch",
    "launch": "api:launch",
    "LaunchError": "errors:LaunchError",
    "Outcome": "datamodel.outcome:Outcome",
    "RankStatus": "datamodel.outcome:RankStatus",
    "CauseEvent": "launcher.monitoring.launch_events:CauseEvent",
    "EndEvent": "launcher.monitoring.launch_events:EndEvent",
    "HangEvent": "launcher.monitoring.launch_events:HangEvent",
    "JobEndEvent": "launcher.monitoring.launch_events:JobEndEvent",
    "LineEvent": "launcher.monitoring.launch_events:LineEvent",
    "MessageEvent": "launcher.monitoring.launch_events:MessageEvent",
    "RestartEvent": "launcher.monitoring.launch_events:RestartEvent",
    "StartEvent": "launcher.monitoring.launch_events:StartEvent",
}


def __getattr__(name: str) -> object:
    if name not in _ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mslaunch.faststd import load

    return load(_ROWS[name])
