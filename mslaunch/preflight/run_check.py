"""--check: connects all hosts of a launch, looks at what the launch needs there, and starts no rank.

Hosts are connected as for the launch itself, so what is told of one that cannot be reached is what the launch would
say; but each host is tried, and none keeps the others from being looked at.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.jobmap import Endpoint
from mslaunch.datamodel.outcome import Outcome
from mslaunch.errors import EXIT_FOUND, LaunchError, UnreachedError, UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.health_check import failures
from mslaunch.launcher.agents.rendezvous import RendezvousRequest
from mslaunch.launcher.attempt import JobAttempt
from mslaunch.launcher.launch import check_first, make_context
from mslaunch.launcher.stdio.terminal import write_all
from mslaunch.plan.node_plans import make_plans
from mslaunch.preflight.ask_hosts import HostSurvey
from mslaunch.preflight.check_progress import CheckProgress
from mslaunch.preflight.check_records import Finding, HostReport
from mslaunch.preflight.compare_hosts import differences
from mslaunch.preflight.host_findings import of_host
from mslaunch.preflight.link_findings import deaf_hosts, link_findings
from mslaunch.preflight.log_places import log_findings
from mslaunch.preflight.report_text import CheckResult, as_json, as_text
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import Caller, Request
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.attempt import LaunchContext

#: variables by which a user names ports of the first rank's host
_PORTS = {"MASTER_PORT": "MASTER_ADDR", "MS_SCHED_PORT": "MS_SCHED_HOST"}


def run(request: Request, caller: Caller) -> Outcome:
    """Look, print what was found, and return 0 or `EXIT_FOUND` as the code.  Raises `LaunchError` as a launch."""
    if request.cluster.host_meeting:
        todo = "name all hosts in one command: -H LIST or --hostfile FILE"
        raise UsageError("hosts that meet by themselves are not known before they have met", "--check", todo)
    if request.do_not_launch:
        raise UsageError("--do-not-launch connects to no host", "--check", "leave one of the two out")
    with Loop() as loop:
        if caller.on_loop:
            caller.on_loop(loop)
        context = make_context(loop, request, caller)
        attempt = JobAttempt(context, request, 1)
        try:
            result = _Check(context, attempt).run()
            _print(as_json(result) if request.json else as_text(result), caller.stdout)
        finally:
            attempt.close_agents()
            context.links.close()
            context.observers.close()
            context.console.close()
        return Outcome(EXIT_FOUND if result.findings else 0, (), None, result.seconds)


def _print(text: str, fd: int) -> None:
    try:
        write_all(fd, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise LaunchError(f"cannot be written: {error.strerror}", "standard output") from None


class _Check:
    """From the hosts that are named to all that was found."""

    def __init__(self, context: LaunchContext, attempt: JobAttempt) -> None:
        self._context = context
        self._attempt = attempt
        self._request = attempt.request
        self._gone: dict[str, LaunchError] = {}
        self._findings: list[Finding] = []
        self._topologies: Mapping[str, Topology] = {}

    def run(self) -> CheckResult:
        """Raises `LaunchError` for what a launch refuses at once, if no hosts are known, or at a signal or limit."""
        check_first(self._request, self._attempt)
        allocation = self._attempt.named_hosts()
        nodes = (*allocation.nodes, *allocation.spares)
        agents, cores = self._connect(nodes)
        reports = self._place(allocation.with_cores(cores), nodes)
        context = self._context
        shown = self._request.monitor.progress != "no"
        progress = CheckProgress(context.loop, context.console.show if shown else lambda text: None)
        try:
            return self._look(agents, reports, progress.tell)
        finally:
            progress.close()
            context.console.stderr.flush()  # the result, which is printed past it, must not come before

    def _look(
        self, agents: Sequence[AgentConnection], reports: list[HostReport], told: Callable[[str], None]
    ) -> CheckResult:
        """All that is found of hosts that are connected, and of the others; `told` hears what is done."""
        told(f"looking at {counted(len(agents), 'host')}")
        survey = HostSurvey(agents, self._context.interrupts.wait)
        environ = self._context.caller.environ
        given = dict(pair for app in self._request.apps for pair in app.env)
        tmp = (given["TMPDIR"] or environ.get("TMPDIR", "")) if "TMPDIR" in given else ""
        reports = survey.facts(reports, tmp)
        plans = self._plans(reports)
        if plans:
            reports = survey.programs(reports, plans)
        well = [report for report in reports if not report.error]
        links, rounds = survey.links([report.name for report in well], _draw, told)
        if self._request.health_check:
            told(f"running --health-check on {counted(len(well), 'host')}")
        reports = self._health(reports, agents, survey)
        by_name = {report.name: report.node for report in reports}
        findings = [
            *self._findings,
            *(finding for report in reports for finding in of_host(report, self._request)),
            *differences(reports),
            *deaf_hosts(survey.deaf, by_name),
            *link_findings(links, by_name),
            *log_findings(self._request.output, self._context.caller.cwd),
        ]
        return CheckResult(tuple(reports), tuple(links), rounds, tuple(findings), self._context.seconds)

    # --- hosts

    def _connect(self, nodes: Sequence[Node]) -> tuple[list[AgentConnection], dict[str, int]]:
        """Agents of all hosts that can be reached, and the cores of these; the others are in `_gone`."""
        pool = self._attempt.pool
        policy = self._request.policy
        hwthreads = policy.hwthread_cpus or policy.bind_to == "hwthread"
        while True:
            reached = [node for node in nodes if node.name not in self._gone]
            if not reached:
                return [], {}
            try:
                cores = pool.cores(reached, hwthreads)
                self._topologies = pool.topologies(reached)
                return pool.require(reached), cores
            except UnreachedError as error:
                self._gone.update(error.by_node)

    def _place(self, allocation: Allocation, nodes: Sequence[Node]) -> list[HostReport]:
        """The hosts with their ranks; one that could not be reached is taken to be like the first that was."""
        known = [node.slots for node in allocation.nodes if node.slots is not None]
        usual = max(known, key=known.count, default=1)
        slots = {node.name: usual for node in allocation.nodes if node.slots is None}
        counts: dict[str, int] = {}
        ports: dict[str, set[int]] = {}
        try:
            jobmap = self._attempt.place(self._request, allocation.with_cores(slots), self._ask)
            counts = {node.name: len(rows) for node, rows in zip(jobmap.nodes, jobmap.by_node())}
            ports = self._ports()
            self._placed = True
        except LaunchError as error:
            self._placed = False
            where = f"{error.where}: " if error.where else ""
            self._findings.append(Finding((), "launch", f"{where}{error.what}", tuple(error.todo.splitlines())))
        return [
            HostReport(
                node, counts.get(node.name, 0), tuple(sorted(ports.get(node.name, ()))), self._gone.get(node.name)
            )
            for node in nodes
        ]

    def _ask(self, nodes: Sequence[Node]) -> Mapping[str, Topology]:
        from mslaunch.host.read_topology import read_topology
        from mslaunch.host.usable_cpus import usable_cpus

        other = next(iter(self._topologies.values()), None) or read_topology(usable_cpus())
        return {node.name: self._topologies.get(node.name, other) for node in nodes}

    def _ports(self) -> dict[str, set[int]]:
        """The ports that the command line names, by the host where they must be free."""
        request, jobmap = self._request, self._attempt.jobmap
        found: dict[str, set[int]] = {}
        wanted = RendezvousRequest(jobmap.placements[0].node, jobmap.service_node, request.cluster)
        for node, ports in wanted.ports.items():
            found[jobmap.nodes[node].name] = {one.port for one in ports if one.port and not one.moves}
        first = found.setdefault(jobmap.nodes[jobmap.placements[0].node].name, set())
        environ = self._context.caller.environ
        for app in request.apps:
            given = {name: environ.get(name) if value is None else value for name, value in app.env}
            for name, address in _PORTS.items():
                port = given.get(name) or ""
                if port.isdecimal() and 0 < int(port) < 1 << 16 and not given.get(address):
                    first.add(int(port))
        return found

    # --- programs

    def _plans(self, reports: Sequence[HostReport]) -> dict[str, NodePlan]:
        """The plans of the hosts that get ranks; none if no program was named."""
        if self._request.check == "hosts" or not self._placed:
            return {}
        context, jobmap = self._context, self._attempt.jobmap
        request = self._attempt.request._replace(env_for=(), horovod="")
        from mslaunch.frameworks.table import OWN_PORTS

        endpoint = Endpoint("127.0.0.1", 0, 0, own_ports=(0,) * OWN_PORTS)
        caller = context.caller
        plans = make_plans(request, jobmap, caller.environ, caller.cwd, endpoint, context.jobid, secret=context.secret)
        usable = {report.name for report in reports if report.facts}
        return {node.name: plan for node, plan in zip(jobmap.nodes, plans) if node.name in usable and plan.ranks}

    def _health(
        self, reports: Sequence[HostReport], agents: Sequence[AgentConnection], survey: HostSurvey
    ) -> list[HostReport]:
        """The reports with what --health-check says."""
        if not self._request.health_check:
            return list(reports)
        well = {report.name for report in reports if not report.error}
        failed = failures(self._request, [one for one in agents if one.node.name in well], survey.questions)
        return [report._replace(unwell=failed.get(report.name)) for report in reports]


def _draw(most: int) -> int:
    return int.from_bytes(os.urandom(6), "big") % most
