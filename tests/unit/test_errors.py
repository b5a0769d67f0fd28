"""Numbers and texts of messages."""

from __future__ import annotations

import pytest

from mslaunch.errors import counted
from mslaunch.launcher.messages.failure_text import timeout_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 seconds"), (1, "1 second"), (1.0, "1 second"), (0.5, "0.5 seconds"), (2.0, "2 seconds"),
        (1_234_567, "1234567 seconds"),
    ],
)  # fmt: skip
def test_a_number_and_its_word(number: float, text: str) -> None:
    assert counted(number, "second") == text
    assert timeout_text(number, "--timeout") == f"the job was still running after {text} (--timeout)"
