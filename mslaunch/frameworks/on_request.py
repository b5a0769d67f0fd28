"""The table of frameworks whose variables ranks get only where --env-for names them, by their words there.

They would mislead other programs, or cost each rank a port.  Loaded only for launches that name one.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.oneccl import ONECCL
from mslaunch.frameworks.paddle import PADDLE
from mslaunch.frameworks.tensorflow import TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mslaunch.frameworks.contract import Framework

ON_REQUEST: Mapping[str, Framework] = {"tf": TENSORFLOW, "paddle": PADDLE, "oneccl": ONECCL}


def requested(words: Iterable[str]) -> tuple[Framework, ...]:
    """The frameworks with these words."""
    return tuple(ON_REQUEST[word] for word in words)


def wanting_ports(words: Iterable[str]) -> tuple[str, ...]:
    """Of these words those of frameworks whose ranks have a port each."""
    return tuple(word for word in words if ON_REQUEST[word].rank_port)
