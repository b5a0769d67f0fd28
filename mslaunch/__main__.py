"""The command: `mslaunch`, and `python -m mslaunch`."""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # python -m: the working directory, where others may have put a module that we want

import mslaunch
from mslaunch import package_finder


def main() -> None:
    """The console script: never returns.

    The garbage collector rests until the launch has begun, because importing makes no garbage.
    """
    gc.disable()
    package_finder.install(mslaunch)
    try:
        from mslaunch.cli.main import main as run
    except KeyboardInterrupt:  # without a word, as until a launch has begun
        raise SystemExit(1) from None
    run()


if __name__ == "__main__":
    main()
