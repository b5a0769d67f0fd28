"""The options that say what is started again after a failure, how soon, and when to stop."""

from __future__ import annotations

from mslaunch.cli.mpirun.common_options import END
from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import Option

RESTART_OPTIONS = (
    Option(("max-restarts",), "N", "restart a rank that failed, at most so often", END, "max_restarts",
           readers.count_or_zero, "0"),
    Option(("restart",), "none|rank|group", "what is restarted when a rank fails: rank: that rank; group: all ranks "
           "and MindSpore's scheduler; as often as --max-restarts says, or 3 times. A scheduler that fails by itself "
           "is restarted by itself. Default: rank if --max-restarts is given, else none", END, "restart",
           readers.choice("none", "rank", "group")),
    Option(("restart-delay",), "SECONDS", "wait so long after a failure before the restart", END, "restart_delay",
           readers.span, "0"),
    Option(("max-restart-delay",), "SECONDS", "double the delay with each failure in a row, up to SECONDS, beginning "
           "with --restart-delay or 1 s; begin again once something has run for SECONDS", END, "max_restart_delay",
           readers.wait),
    Option(("min-ranks",), "N", "with --restart group: if hosts are lost and no spare replaces them, continue with "
           "fewer ranks, but at least so many; without it the number of ranks stays the same", END, "min_ranks",
           readers.count),
    Option(("progress-file",), "PATH", "a file or directory of this host, such as that of the checkpoints on a shared "
           "disk, that changes when the program gets ahead; with --restart group, a job that does not change it in so "
           "many attempts in a row as --max-no-progress says ends with exit code 93: do not requeue it", END,
           "progress_file", readers.text),
    Option(("max-no-progress",), "N", "attempts without a change of --progress-file after which the job ends", END,
           "max_no_progress", readers.count, "3"),
    Option(("device-wait",), "SECONDS", "with --restart group: how long another attempt waits for accelerators that "
           "other processes still hold open on its hosts; 0: it does not look", END, "device_wait", readers.span,
           "60"),
)  # fmt: skip
