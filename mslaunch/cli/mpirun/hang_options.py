"""The options for jobs that hang: when one counts as hung, what is done then, and when stacks are printed."""

from __future__ import annotations

from mslaunch.cli.mpirun.common_options import END
from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import Option

_stacks = readers.words_of("timeout", "failure", "hang", "none")


def _stacks_on(text: str) -> tuple[str, ...]:
    words: tuple[str, ...] = _stacks(text)
    if "none" in words and len(words) > 1:
        raise readers.Expected("a list of timeout, failure and hang, or none alone")
    return tuple(word for word in words if word != "none")


HANG_OPTIONS = (
    Option(("hang-timeout",), "SECONDS", "treat the job as hung when no rank has printed anything for SECONDS and, "
           "with --progress-file PATH, PATH has not changed; counted from the start of the last rank (docs/hangs.md)",
           END, "hang.seconds", readers.wait),
    Option(("on-hang",), "end|restart|report", "what is done with a job that hangs: end: it is ended, with exit code "
           "110; restart: as after a failure, by --restart; report: nothing, and the stacks are printed again after "
           "each further SECONDS, 5 times at most", END, "hang.then", readers.choice("end", "restart", "report"),
           "end"),
    Option(("stacks-on",), "LIST", "when to print the stacks of the ranks: a list, with commas between, of hang, "
           "timeout (as --get-stack-traces) and failure (those of the other ranks, within 2 s), or none",
           END, "stacks_on", _stacks_on, "hang"),
    Option(("get-stack-traces",), "", "print the stacks of the ranks when --timeout is reached", END, "stack_traces",
           readers.on),
)  # fmt: skip
