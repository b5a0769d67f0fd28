"""The signals of the command, handed on to the launcher: a Ctrl-C at the terminal does not reach another session."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from types import FrameType

    from mslaunch.detached.launcher_process import LauncherProcess

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class SignalRelay:
    """Takes over the signals while the command waits; those that come before the launcher is known are kept."""

    def __init__(self) -> None:
        self._launcher: LauncherProcess | None = None
        self._waiting: list[int] = []
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> SignalRelay:
        for name in _SIGNALS:
            signum = getattr(signal, name)
            if signal.getsignal(signum) != signal.SIG_IGN:  # as nohup(1) leaves it
                self._before.append((signum, signal.signal(signum, self._take)))
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Restore the handlers."""
        for signum, before in self._before:
            signal.signal(signum, before)  # type: ignore[arg-type]

    def to(self, launcher: LauncherProcess | None) -> None:
        """Hand on what has come, and what comes from now on."""
        self._launcher = launcher
        waiting, self._waiting = self._waiting, []
        for signum in waiting:
            self._take(signum, None)

    def _take(self, signum: int, frame: FrameType | None) -> None:
        if self._launcher:
            self._launcher.send(signum)
        else:
            self._waiting.append(signum)
