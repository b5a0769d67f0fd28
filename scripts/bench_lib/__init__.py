"""What `scripts/bench` measures, and how; see docs/performance.md.  It uses mslaunch only as a program."""

from __future__ import annotations


class BenchError(Exception):
    """Something that is needed is not there; the text says what to do."""
