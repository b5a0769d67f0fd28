"""What --check does just now, as one line that is shown while it takes long."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_QUIET = 1.0  # seconds in which nothing is shown: most checks are over by then


class CheckProgress:
    """From its making to `close`."""

    def __init__(self, loop: Loop, show: Callable[[str], None]) -> None:
        """`show` gets a line, in place of the one before; "": none."""
        self._show = show
        self._shown = False
        self._text = ""
        self._due = loop.after(_QUIET, self._begin)

    def tell(self, text: str) -> None:
        """What is done from now on."""
        self._text = text
        if self._shown:
            self._show(text)

    def _begin(self) -> None:
        self._shown = True
        self._show(self._text)

    def close(self) -> None:
        """All is done, or given up: nothing is shown any more."""
        self._due.cancel()
        if self._shown:
            self._show("")
