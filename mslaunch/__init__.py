"""mslaunch: one command that starts the ranks of a job on one host or many.

    from mslaunch import launch
    outcome = launch(["python", "net.py"], np=4, hostfile="hosts")

The names in `__all__` are the public API.  Each is imported on first use, because the command must start in
milliseconds.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["Launch", "LaunchError", "Outcome", "RankStatus", "__version__", "launch"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mslaunch.api import Launch as Launch
    from mslaunch.api import launch as launch
    from mslaunch.datamodel.outcome import Outcome as Outcome
    from mslaunch.datamodel.outcome import RankStatus as RankStatus
    from mslaunch.errors import LaunchError as LaunchError

_ROWS = {
    "Launch": "api:Launch",
    "launch": "api:launch",
    "LaunchError": "errors:LaunchError",
    "Outcome": "datamodel.outcome:Outcome",
    "RankStatus": "datamodel.outcome:RankStatus",
}


def __getattr__(name: str) -> object:
    if name not in _ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mslaunch.faststd import load

    return load(_ROWS[name])
