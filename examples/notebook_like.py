"""A launch as a notebook's cells use it: in a running event loop, and its output is shown by the notebook.

python examples/notebook_like.py
"""

from __future__ import annotations

import asyncio
import sys

from mslaunch import Launch

RING = [sys.executable, "-c", "import os; print('hello from rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"]


async def first_cell() -> None:
    """Events as they come."""
    async with Launch(RING, np=4, options=["--oversubscribe"]) as job:
        async for event in job:
            print(type(event).__name__, getattr(event, "text", ""))
    assert job.outcome
    print("exit code", job.outcome.code)


async def second_cell() -> None:
    """A job that is ended when its first line has come."""
    sleeper = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(1000)"]
    async with Launch(sleeper, np=2, options=["--oversubscribe"]) as job:
        async for event in job:
            if getattr(event, "text", "") == "ready":
                break
    assert job.outcome and job.outcome.failure
    print(job.outcome.failure.what)


async def notebook() -> None:
    """Cell after cell in one loop."""
    await first_cell()
    await second_cell()


if __name__ == "__main__":
    asyncio.run(notebook())
