"""The error file of a rank of torchrun: what its exception was, for the report and for whoever started us.

A program whose main function is wrapped with torch's `record` writes its exception to TORCHELASTIC_ERROR_FILE
(torch/distributed/elastic/multiprocessing/errors).  As torchrun does, the file of the rank that failed first is copied
to the one that this variable names for us, with the exit code of the rank.  The file may hold anything, and a rank may
have put a FIFO or a link in its place, or in that of its directory.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.messages.failure_text import of_rank

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.datamodel.request import Caller
    from mslaunch.launcher.stdio.log_files import RankLogs

VARIABLE = "TORCHELASTIC_ERROR_FILE"
_MOST = 1 << 20  # bytes of a file that is read
_LINES, _LONGEST = 3, 1000  # of its message, and characters of each


def with_error_file(outcome: Outcome, logs: RankLogs | None, caller: Caller) -> Outcome:
    """The outcome with the exception of the rank that failed first, if it has left one in its directory."""
    failure = outcome.failure
    file = logs.error_file(failure.rank) if logs and failure and failure.rank is not None else None
    found = _understand(logs.head(file, _MOST)) if logs and file else None
    if failure is None or file is None or found is None:
        return outcome
    _pass_on(found, failure.code, caller)
    message = found.get("message")
    text = message.get("message") if isinstance(message, dict) else message
    lines = [of_rank(line[:_LONGEST]) for line in str(text or "").strip().splitlines()[:_LINES]]
    return outcome._replace(failure=failure._replace(detail=(*failure.detail, *lines, f"its traceback: {file.path}")))


def _understand(text: bytes) -> dict[str, Any] | None:
    import json

    try:
        found = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _pass_on(found: dict[str, Any], code: int, caller: Caller) -> None:
    import json

    from mslaunch.launcher.stdio.own_files import create_own

    path = caller.environ.get(VARIABLE)
    if not path:
        return
    if isinstance(found.get("message"), dict):
        found["message"]["errorCode"] = code
    try:
        text = json.dumps(found).encode()
        with open(create_own(os.path.join(caller.cwd, path)), "wb") as file:
            file.write(text)
    except (OSError, RecursionError):  # whoever wants it sees that there is none
        pass
