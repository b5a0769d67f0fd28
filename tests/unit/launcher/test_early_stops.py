"""What ends a launch while no ranks run, and the words for it."""

from __future__ import annotations

import pytest

from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import LaunchError
from mslaunch.launcher.early_stops import EarlyStops
from mslaunch.runtime.loop import Loop


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        (False, "--timeout: nothing was started within 0.01 s"),
        (True, "the job was still running after 0.01 seconds (--timeout)"),
    ],
)
def test_the_limit_of_time(begun: bool, words: str) -> None:
    """Also where it is reached when the ranks of an attempt have just ended."""
    with Loop() as loop:
        stops = EarlyStops(loop, Request((AppContext(("x",)),), timeout=0.01), signals=False)
        if begun:
            stops.begun()
        with pytest.raises(LaunchError) as caught:
            stops.wait(lambda: False)
    assert (str(caught.value), caught.value.code) == (words, 110)
    assert caught.value is stops.error
