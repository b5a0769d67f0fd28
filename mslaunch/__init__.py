"""mslaunch: one command that starts the ranks of a job on one host or many.

    from mslaunch import launch
    outcome = launch(["python", "net.py"], np=4, hostfile="hosts")

The names in `__all__` are the public API.  Each is imported on first use, because the command must start in
milliseconds.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["LaunchError", "Outcome", "RankStatus", "__version__", "launch"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mslaunch.api import launch as launch
    from mslaunch.datamodel.outcome import Outcome as Outcome
    from mslaunch.datamodel.outcome import RankStatus as RankStatus
    from mslaunch.errors import LaunchError as LaunchError

_MODULES = {
    "launch": "api",
    "LaunchError": "errors",
    "Outcome": "datamodel.outcome",
    "RankStatus": "datamodel.outcome",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
