"""Waits for descriptors by epoll(7), or by poll(2) where there is none."""

from __future__ import annotations

import select

READ = 1
WRITE = 4
HUNG_UP = 8 | 16  #: EPOLLERR, EPOLLHUP: come unasked; whoever waits for the descriptor finds out by using it


class Poller:
    """Descriptors and the events that are waited for; a regular file, which epoll refuses, is always ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._plain = None if self._epoll else select.poll()
        self._watched: dict[int, int] = {}
        self._files: dict[int, int] = {}  # regular files: always ready, epoll does not take them

    def close(self) -> None:
        """Give back what belongs to the poller itself."""
        if self._epoll:
            self._epoll.close()

    def watch(self, fd: int, events: int) -> None:
        """Wait for `events` of `fd` from now on; 0: for nothing."""
        poll = self._epoll or self._plain
        assert poll is not None
        before = self._watched.pop(fd, 0)
        self._files.pop(fd, None)
        if events:
            self._watched[fd] = events
        try:
            if not events:
                if before:
                    poll.unregister(fd)
            elif before:
                poll.modify(fd, events)
            else:
                poll.register(fd, events)
        except PermissionError:
            if events:
                self._files[fd] = events
        except (OSError, KeyError):
            if events:
                raise

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """What is ready, after at most `seconds` (None: as long as it takes)."""
        if self._files:
            seconds = 0.0
        if self._epoll:
            ready = self._epoll.poll(-1 if seconds is None else seconds, 256)  # rounds up to milliseconds
        else:
            assert self._plain is not None
            ready = self._plain.poll(None if seconds is None else seconds * 1000 + 0.9)
        return ready + list(self._files.items()) if self._files else ready
