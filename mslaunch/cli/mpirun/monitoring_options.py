"""The options that tell of a launch while it runs, and keep a record of it."""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import Option

MONITOR = "Monitoring and records"


MONITORING_OPTIONS = (
    Option(("record",), "DIR|none", "write the record of the run, DIR/run.json: command, hosts, map, times of each "
           "rank, exit codes, cause; none: not even beside the logs", MONITOR, "monitor.record", readers.text,
           "beside the logs, if their directory is named"),
    Option(("events",), "FILE", "write each event as a line of JSON, as described in docs/events.md; the last one is "
           "`end` in every case", MONITOR, "monitor.events", readers.text),
    Option(("on-event",), "CMD", "run this command, without a shell, when the launch fails, restarts, hangs or ends; "
           "it gets the event on its standard input, its name in MSLAUNCH_EVENT, and 10 seconds", MONITOR,
           "monitor.on_event", readers.command),
    Option(("metrics",), "FILE", "keep metrics of the launch in a file for the textfile collector of Prometheus' "
           "node_exporter", MONITOR, "monitor.metrics", readers.text),
    Option(("progress",), "auto|yes|no|plain", "show a status line below the output: ranks, hosts, time, output rate, "
           "restarts, silent ranks; auto: on a terminal, after 2 s; plain: a line on standard error after 10 s, "
           "then less often (what yes does without a terminal)", MONITOR, "monitor.progress",
           readers.choice("auto", "yes", "no", "plain"), "auto"),
)  # fmt: skip
