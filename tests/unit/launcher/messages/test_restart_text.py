"""Messages about attempts: why all ranks are started again, or why not."""

from __future__ import annotations

from mslaunch.datamodel.outcome import Failure
from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import LinkError
from mslaunch.launcher.messages.notices import again_text, limit_text, no_host_text

APP = AppContext(("x",))
GROUP = Request((APP,), restart="group")


def test_the_notice_of_a_new_attempt() -> None:
    failure = Failure("rank 1 was ended by SIGKILL (killed)", "n01", 1, 137)
    words = "attempt 1 of 4: rank 1 was ended by SIGKILL (killed) on n01; all ranks are started again in 1.5 s"
    assert again_text(1, 4, failure, 1.5) == words
    assert again_text(2, 4, failure._replace(host=""), 0).endswith("(killed); all ranks are started again")


def test_the_reason_for_no_further_attempt() -> None:
    assert limit_text(2, 2) == "not started again: this was attempt 2 of 2 (--max-restarts)"
    gone = {"b": LinkError("no answer", "b")}
    reason = "not started again: no spare host is left, and the others have "
    lines = no_host_text(GROUP, 4, True, gone, 2, None)
    assert lines == [
        f"{reason}2 slots for 4 ranks; with --min-ranks 2 the job would go on with fewer",
        "not reached again: b: no answer",
    ]
    some = no_host_text(GROUP._replace(min_ranks=3), 4, True, gone, 2, None)
    assert some[0] == f"{reason}2 slots, fewer than --min-ranks 3"
    several = no_host_text(GROUP._replace(apps=(APP, APP), min_ranks=1), 4, True, gone, 2, None)
    assert several[0] == f"{reason}2 slots for 4 ranks; --min-ranks is for jobs of one program"
    none = no_host_text(GROUP, 4, True, gone, 0, None)
    assert none[0] == f"{reason}0 slots for 4 ranks"
    odd = no_host_text(GROUP, 2, True, gone, 2, LinkError("rank 1 has no line in ranks"))
    assert odd[0] == "not started again: rank 1 has no line in ranks"
    few = no_host_text(GROUP._replace(min_ranks=1), 4, True, gone, 2, LinkError("no window for rank 3"))
    assert few[0] == "not started again: no window for rank 3", "there are slots enough"
