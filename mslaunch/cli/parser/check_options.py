"""The options that look at hosts before ranks are started: --check, --json, --health-check."""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import Option, Program
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.cli.parser.options import ParsedLine

END, TELL = "Time and failure", "Information"  # groups of the mpirun dialect
#: what stands for the program where hosts alone are looked at; it is never started
_NO_PROGRAM = ("true",)


CHECK_OPTIONS = (
    Option(("check",), "", "look at all hosts, at what the launch needs there and at the links between them, and start "
           "no rank: a table of what is wrong, and the commands that repair it; exit code 3 if anything is wrong. The "
           "program may be left out (docs/check.md)", TELL, "check", lambda: "launch"),
    Option(("json",), "", "with --check: print what was found as JSON", TELL, "json", readers.on),
    Option(("health-check",), "CMD", "run a command on each host before each start of the ranks; a host on which it "
           "fails is treated as unreachable. CMD is split into words as by a shell, but no "
           "shell runs it", END, "health_check", readers.command),
    Option(("health-check-timeout",), "SECONDS", "how long the command of --health-check may take", END,
           "health_timeout", readers.wait, "60"),
)  # fmt: skip


def without_program(line: ParsedLine) -> None:
    """Let `--check --hostfile hosts` do without a program."""
    if len(line.programs) == 1 and not line.programs[0].argv:
        line.programs[0] = Program(_NO_PROGRAM, line.programs[0].settings)
        line.put([("check", "hosts")], "--check")
