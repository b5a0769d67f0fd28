"""The recorded answers of Open MPI 4.1.4's mpirun, given by mslaunch: each is the same, or named in `differences`.

The cases run four at a time, since most of them wait; each test then looks at the outcome of one.
"""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from differences import DELIBERATE
from recorded import Case, cases, play, unmet
from verdict import differences

CASES = {case["id"]: case for case in cases()}
ON_PURPOSE = {name: reason for reason, names in DELIBERATE.items() for name in names}
AT_ONCE = 4
ON_DIFFERENCE = "if this is intended: name the case in tests/compat/differences.py, then run scripts/make-docs"

pytestmark = [pytest.mark.root, pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Any:
    """Case id -> what came of it, for the cases that this run has chosen."""
    chosen = [item.callspec.params["name"] for item in request.session.items if item.path == Path(__file__)
              and hasattr(item, "callspec")]  # fmt: skip
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, CASES[name]) for name in dict.fromkeys(chosen) if not unmet(CASES[name])}
        pool.shutdown(cancel_futures=True)


@pytest.mark.limit(300)
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_mpirun(name: str, outcomes: dict[str, Future[dict[str, Any]]]) -> None:
    case: Case = CASES[name]
    if why := unmet(case):
        pytest.skip(why)
    found = differences(case, came := outcomes[name].result())
    if name in ON_PURPOSE:
        assert found, f"{name} is listed as a difference, but is as recorded"
    else:
        assert not found, "\n".join([*found, f"mslaunch {case['argv']}", _said(came), ON_DIFFERENCE])


def _said(came: dict[str, Any]) -> str:
    import base64

    return base64.b64decode(came["stderr"]).decode(errors="replace")


def test_every_difference_is_a_case() -> None:
    assert set(ON_PURPOSE) <= set(CASES)
