"""Counts the lines of ranks: each has its number, and none may be missing, doubled, torn or out of order."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

LINE = 1000
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)


class Lines:
    """What has come of one rank, on one way."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.count = 0
        self.wrong: list[str] = []

    def take(self, line: bytes) -> None:
        """The next one, without its end."""
        words = line.split(b" ", 2)
        expected = (b"%d" % self.rank, b"%d" % self.count)
        if len(line) != LINE - 1 or tuple(words[:2]) != expected:
            if len(self.wrong) < 3:
                self.wrong.append(f"rank {self.rank}, line {self.count}: {line[:40]!r}, {len(line)} bytes")
            if len(words) == 3 and words[1].isdigit():
                self.count = int(words[1])
        self.count += 1


class LogReader:
    """Follows one log file; what was read is given back to the disk, for an hour of 16 MB/s does not fit on it."""

    def __init__(self, path: Path, rank: int) -> None:
        self.lines = Lines(rank)
        self._fd = os.open(path, os.O_RDWR)
        self._at = 0
        self._rest = b""

    def read(self) -> None:
        """All that is there."""
        while data := os.pread(self._fd, 1 << 20, self._at):
            _punch(self._fd, self._at, len(data))
            self._at += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self.lines.take(line.partition(b">:")[2])  # --tag-output tags logs as well

    def close(self) -> None:
        """No more."""
        os.close(self._fd)
        if self._rest:
            self.lines.wrong.append(f"rank {self.lines.rank}: its log ends in {self._rest[:40]!r}")


class TerminalReader:
    """What the launcher prints with --tag-output."""

    def __init__(self, ranks: int) -> None:
        self.lines = [Lines(rank) for rank in range(ranks)]
        self.wrong: list[str] = []
        self._rest = b""

    def take(self, data: bytes) -> None:
        """More of it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            tag, _, text = line.partition(b">:")
            rank = tag.partition(b",")[2].partition(b"]")[0]
            if not rank.isdigit() or int(rank) >= len(self.lines):
                self.wrong.append(f"no line of a rank: {line[:60]!r}")
                continue
            self.lines[int(rank)].take(text.rstrip(b"\r"))


def _punch(fd: int, at: int, size: int) -> None:
    """Whole pages only are given back; a file system that cannot do it keeps them."""
    _libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(at), ctypes.c_longlong(size))
