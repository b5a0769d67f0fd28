"""What `scripts/bench` measures, and how; see docs/performance.md.  It uses mslaunch only as a program."""

from __future__ import annotations


class BenchError(Exception):
    """A program or a privilege is missing; the text says what to do."""
