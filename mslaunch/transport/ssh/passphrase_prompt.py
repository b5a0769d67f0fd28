"""Asks for passphrases on the controlling terminal.

A question can be cancelled from another thread: a launcher that is interrupted at the prompt must not leave a terminal
without echo.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
from typing import Any

LONGEST = 1024  #: bytes of a passphrase


class PassphrasePrompt:
    """Asks for one thing at a time; the caller sees to that."""

    def __init__(self) -> None:
        self._wake_end, self._wake = -1, -1
        self._off = False

    def ask(self, prompt: str) -> bytes | None:
        """What was typed, without echo; None without a terminal, an answer, or a will to wait for it."""
        try:
            tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return None
        self._wake_end, self._wake = os.pipe()
        try:
            return None if self._off else self._read(tty, prompt)
        except (OSError, termios.error):
            return None
        finally:
            ends = (self._wake_end, self._wake)
            self._wake_end, self._wake = -1, -1
            for fd in (tty, *ends):
                os.close(fd)

    def _read(self, tty: int, prompt: str) -> bytes | None:
        before: list[Any] = termios.tcgetattr(tty)
        silent = [*before]
        silent[3] &= ~termios.ECHO
        termios.tcsetattr(tty, termios.TCSAFLUSH, silent)
        try:
            os.write(tty, prompt.encode())
            ready = select.select([tty, self._wake_end], [], [])[0]
            answer = os.read(tty, LONGEST) if self._wake_end not in ready else b""
        finally:
            termios.tcsetattr(tty, termios.TCSAFLUSH, before)
            os.write(tty, b"\n")
        return answer.rstrip(b"\r\n") or None

    def cancel(self) -> None:
        """End the present question, and ask no more."""
        self._off = True
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.write(self._wake, b"x")
