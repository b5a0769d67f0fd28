"""What `scripts/fuzz` runs: the decoders, the errors that each documents, the bounds of an input; docs/fuzzing.md."""

from __future__ import annotations


class FuzzError(Exception):
    """Something is missing, or a word of the command line is wrong; the text says what to do."""
