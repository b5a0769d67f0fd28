"""Runs the command as its console script does, and writes when each phase of its start began: NAME PID SECONDS a line.

The moments are those of Python's audit events (PEP 578), so nothing of the product is changed.  Arguments: a file for
the lines, and those of the command.
"""

import os
import sys
import time

place = sys.argv[1]
sys.argv[:] = ["mslaunch", *sys.argv[2:]]
#: modules that are imported when a phase begins
IMPORTS = {"mslaunch.launcher.launch": "launcher", "mslaunch.plan.mapping.by_slot_or_object": "placing"}


def mark(name):
    """In a file that is opened each time: an agent keeps no descriptor of its launcher's."""
    line = f"{name} {os.getpid()} {time.monotonic()}\n".encode()
    fd = os.open(place, os.O_WRONLY | os.O_APPEND)
    os.write(fd, line)
    os.close(fd)


def audited(event, arguments):
    if event == "import":
        name = IMPORTS.pop(arguments[0], "")
        if name:
            mark(name)
    elif event in ("os.fork", "os.posix_spawn"):
        mark(event)


def end(status, leave=os._exit):
    mark("end")
    leave(status)


mark("begun")
os._exit = end
sys.addaudithook(audited)
from mslaunch.__main__ import main  # noqa: E402

main()
