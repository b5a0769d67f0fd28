"""The mpirun dialect: every option in every spelling, what is refused and how, and the help made of the table."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import parse
from hypothesis import given
from hypothesis import strategies as st

import mslaunch
from mslaunch.cli.help_text import help_text
from mslaunch.cli.mpirun import common_options, rare_options
from mslaunch.cli.mpirun import parse as mpirun
from mslaunch.cli.parser.options import REFUSED, Show, by_name, spelled
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.datamodel.request import (
    AppContext,
    DevicePolicy,
    LinkPolicy,
    MonitorPolicy,
    OutputPolicy,
    Policy,
    Request,
    ServicePolicy,
)
from mslaunch.errors import LaunchError, UsageError

ABOUT = mpirun.describe()
TABLE, PARAMETERS, VARIABLES = ABOUT.table, ABOUT.parameters, ABOUT.variables
ROOT = Path(__file__).resolve().parents[4]
PROG = AppContext(("prog",))


def job(**fields: object) -> Request:
    return Request((PROG,), **fields)


def app(**fields: object) -> Request:
    return Request((PROG._replace(**fields),))


def policy(**fields: object) -> Request:
    return job(policy=Policy(**fields))


def output(**fields: object) -> Request:
    return job(output=OutputPolicy(**fields))


def link(**fields: object) -> Request:
    return job(link=LinkPolicy(**fields))


def idle(name: str, instead: str) -> Request:
    return job(notes=(f"the parameter {name} has no effect: {instead}",))


IGNORED = "the unknown modifier foo after o: is ignored, as by mpirun; write nocopy or nojobid"

#: words before `prog` -> the request; the first word without dashes is tried in all its spellings
DONE = [
    (["n", "4"], app(np=4)),
    (["np", "4"], app(np=4)),
    (["c", "4"], app(np=4)),
    (["x", "A"], app(env=(("A", None),))),
    (["x", "NCCL_*"], app(env=(("NCCL_*", None),))),
    (["x", "A="], app(env=(("A", ""),))),
    (["x", "A=b=c, 'd'\n*?é"], app(env=(("A", "b=c, 'd'\n*?é"),))),
    (["wdir", "/d"], app(wdir="/d")),
    (["wd", "d"], app(wdir="d")),
    (["mca", "btl", "^openib"], job(mca=(("btl", "^openib"),))),
    (["gmca", "x", ""], job(mca=(("x", ""),))),
    (["omca", "x", "1"], job(mca=(("x", "1"),))),
    (["gomca", "x", "1"], job(mca=(("x", "1"),))),
    (["mca", "x", "-q"], job(mca=(("x", "-q"),))),
    (["prtemca", "foo", "1"], app(env=(("PRTE_MCA_foo", "1"),))),
    (["prtemca", "plm_ssh_agent", "ssh -v"], link(agent=("ssh", "-v"))),
    (["pmixmca", "foo", "1"], app(env=(("PMIX_MCA_foo", "1"),))),
    (["gpmixmca", "foo", "1"], app(env=(("PMIX_MCA_foo", "1"),))),
    (["path", "/a:/b"], app(path="/a:/b")),
    (["prefix", "/opt/mpi"], app(prefix="/opt/mpi")),
    (["s"], app(preload_binary=True)),
    (["preload-binary"], app(preload_binary=True)),
    (["preload-files", "a,b/c,"], app(preload_files=("a", "b/c"))),
    (["set-cwd-to-session-dir"], app(session_dir=True)),
    (["index-argv-by-rank"], job(index_argv=True)),
    (["fill"], job(fill=True)),
    (["ready", "6379"], app(ready=6379)),
    (["ready-timeout", "9"], job(ready_timeout=9.0, notes=("--ready-timeout has no effect: no program has --ready",))),
    (["ready", "{master_port}"], app(ready=-1)),
    (["fwd-environment"], app(env=(("*", None),))),
    (["mpi", "pmi2"], app(mpi="pmi2")),
    (["spawn", "no"], job(spawn="no")),
    (["mpi", "pmix:/usr/lib/libpmix.so.2"], app(mpi="pmix:/usr/lib/libpmix.so.2")),
    (["backend", "openmpi"], job(backend="openmpi")),
    (["backend", "openmpi:/opt/openmpi"], job(backend="openmpi:/opt/openmpi")),
    (["stream-buffering", "1"], job(mca=(("ompi_stream_buffering", "1"),))),
    (["initial-errhandler", "mpi_abort"], job(mca=(("mpi_initial_errhandler", "mpi_abort"),))),
    (["memory-alloc-kinds", "mpi,cuda"], job(mca=(("mpi_memory_alloc_kinds", "mpi,cuda"),))),
    (["display-comm"], job(mca=(("ompi_display_comm", "mpi_init"),))),
    (["display-comm-finalize"], job(mca=(("ompi_display_comm", "mpi_finalize"),))),
    (["with-ft", "mpi"], job(mca=(("mpi_ft_enable", "1"),), recovery=True)),
    (["H", "a:2,b"], app(hosts=("a:2,b",))),
    (["host", "a"], app(hosts=("a",))),
    (["hostfile", "f"], app(hostfile="f")),
    (["machinefile", "f"], app(hostfile="f")),
    (["default-hostfile", "f"], job(default_hostfile="f")),
    (["map-by", "NODE"], policy(map_by="node")),
    (["rank-by", "Core"], policy(rank_by="core")),
    (["rank-by", "FILL"], policy(rank_how="fill")),
    (["bind-to-none"], policy(bind_to="none")),
    (["rank-by", "slot:span"], policy(rank_by="slot", rank_how="span")),
    (["bynode"], policy(map_by="node", rank_by="node")),
    (["byslot"], policy(map_by="slot", rank_by="slot")),
    (["bycore"], policy(map_by="core", rank_by="core")),
    (["N", "2"], policy(map_by="ppr", ppr=((2, "node"),))),
    (["npernode", "2"], policy(map_by="ppr", ppr=((2, "node"),))),
    (["pernode"], policy(map_by="ppr", ppr=((1, "node"),))),
    (["npersocket", "2"], policy(map_by="ppr", ppr=((2, "socket"),))),
    (["ppr", "2:numa"], policy(map_by="ppr", ppr=((2, "numa"),))),
    (["rf", "r"], policy(rankfile="r")),
    (["rankfile", "r"], policy(rankfile="r")),
    (["nolocal"], policy(nolocal=True)),
    (["oversubscribe"], policy(oversubscribe=True)),
    (["nooversubscribe"], policy(oversubscribe=False)),
    (["bind-to", "Core"], policy(bind_to="core")),
    (["bind-to", "none"], policy(bind_to="none")),
    (["bind-to", "core:REPORT"], policy(bind_to="core")._replace(report_bindings=True)),
    (["bind-to", "core:if-supported:report"], policy(bind_to="core", if_supported=True)._replace(report_bindings=True)),
    (["bind-to-core"], policy(bind_to="core")),
    (["bind-to-socket"], policy(bind_to="socket")),
    (["cpus-per-proc", "2"], policy(pe=2)),
    (["cpus-per-rank", "2"], policy(pe=2)),
    (["cpu-set", "0,2-3"], policy(cpu_set="0,2-3")),
    (["cpu-list", "1"], policy(cpu_set="1")),
    (["use-hwthread-cpus"], policy(hwthread_cpus=True)),
    (["report-bindings"], job(report_bindings=True)),
    (["output-filename", "o"], output(directory="o")),
    (["output-filename", "o:nocopy"], output(directory="o", copy=False)),
    (["output-filename", "o:NOJOBID,nocopy"], output(directory="o", copy=False, jobid=False)),
    (["output-filename", "o:foo"], output(directory="o")._replace(notes=(IGNORED,))),
    (["output", "tag"], output(tag="tag", style="5.0")),
    (["output-directory", "o"], output(directory="o", copy=False, style="5.0")),
    (["merge-stderr-to-stdout"], output(merge=True)),
    (["tag-output"], output(tag="tag")),
    (["timestamp-output"], output(timestamp=True)),
    (["xml"], output(xml=True)),
    (["xml-file", "f"], output(xml_file="f")),
    (["xterm", "0,2-3!"], output(xterm="0,2-3!")),
    (["xterm", "-1"], output(xterm="-1")),
    (["fold"], output(fold=True)),
    (["color", "no"], job(color="no")),
    (["show-ranks", "4,0-1,1"], output(shown=(0, 1, 4))),
    (["stdin", "3"], job(stdin="3")),
    (["stdin", "none"], job(stdin="none")),
    (["stdin", "ALL"], job(stdin="all")),
    (["pty", "no"], output(pty="no")),
    (["timeout", "1.5"], job(timeout=1.5)),
    (["timeout", "-1"], job()),
    (
        ["report-state-on-timeout"],
        job(state_on_timeout=True, notes=("--report-state-on-timeout has no effect without --timeout",)),
    ),
    (["get-stack-traces"], job(stack_traces=True, notes=("--get-stack-traces has no effect without --timeout",))),
    (["grace", "0"], job(grace=0.0)),
    (["term-to", "group"], job(term_to="group")),
    (["warn", "SIGUSR1@120"], job(warn=(10, 120.0))),
    (["warn", "usr2"], job(warn=(12, 60.0))),
    (["warn", "10@1.5"], job(warn=(10, 1.5))),
    (["enable-recovery"], job(recovery=True)),
    (["continuous"], job(recovery=True)),
    (["disable-recovery"], job()),
    (["max-restarts", "3"], job(max_restarts=3)),
    (["restart", "group"], job(restart="group", max_restarts=3)),
    (["detach"], job(detach=True)),
    (["scheduler", "node1:8118"], job(cluster=ServicePolicy(host="node1", port=8118, first=True))),
    (["server_num", "2"], job(cluster=ServicePolicy(servers=2, first=True))),
    (["server-num", "0"], job()),
    (["scheduler-runs", "ranks"], job(cluster=ServicePolicy(program="ranks"))),
    (["runtime-options", "continuous"], job(recovery=True)),
    (["rtos", "donotlaunch"], job(do_not_launch=True)),
    (["rsh-agent", "ssh -o 'A B'"], link(agent=("ssh", "-o", "A B"))),
    (["ssh-accept-new"], link(accept_new=True)),
    (["connect-timeout", "3"], link(timeout=3.0)),
    (["spawn-timeout", "3"], link(timeout=3.0)),
    (["agent-python", "/usr/bin/python3.11"], link(python="/usr/bin/python3.11")),
    (["resource-manager", "slurm"], job(resource_manager="slurm")),
    (["wait-hosts", "60"], link(wait=60.0)),
    (["check"], job(check="launch")),
    (["json"], job(json=True, notes=("--json has no effect without --check",))),
    (["health-check", "sh -c 'exit 1'"], job(health_check=("sh", "-c", "exit 1"))),
    (
        ["health-check-timeout", "5"],
        job(health_timeout=5.0, notes=("--health-check-timeout has no effect without --health-check",)),
    ),
    (["horovod", "gloo"], job(horovod="gloo")),
    (["env-for", "paddle,TF"], job(env_for=("tf", "paddle"))),
    (["record", "rec"], job(monitor=MonitorPolicy(record="rec"))),
    (["events", "file"], job(monitor=MonitorPolicy(events="file"))),
    (["on-event", "mail -s 'it ended' me"], job(monitor=MonitorPolicy(on_event=("mail", "-s", "it ended", "me")))),
    (["metrics", "file"], job(monitor=MonitorPolicy(metrics="file"))),
    (["progress", "plain"], job(monitor=MonitorPolicy(progress="plain"))),
    (["devices-per-rank", "2"], job(devices=DevicePolicy(2))),
    (["devices", "0,2-4,GPU-1b2c"], job(devices=DevicePolicy(0, ("0", "2", "3", "4", "GPU-1b2c")))),
    (["fanout", "8"], link(fanout=8)),
    (["heartbeat", "2.5"], link(heartbeat=2.5)),
    (["lease", "60"], link(lease=60.0)),
    (["display", "map"], job(display_map="map")),
    (["display-map"], job(display_map="map")),
    (["display-table"], job(display_map="table")),
    (["display-devel-map"], job(display_map="devel")),
    (["display-diffable-map"], job(display_map="diffable")),
    (["display-allocation"], job(display_allocation=True)),
    (["display-devel-allocation"], job(display_allocation=True)),
    (["display-topo"], job(display_topology=True)),
    (["do-not-launch"], job(do_not_launch=True)),
    (["report-pid", "-"], job(report_pid="-")),
    (["report-uri", "+"], job(report_uri="+")),
    (["q"], job(quiet=True)),
    (["quiet"], job(quiet=True)),
    *(([name], job(verbose=True)) for name in ("v", "verbose", "d", "debug-devel", "debug-daemons", "show-progress")),
]

#: options that ask for the only behaviour there is
ACCEPTED = [
    "allow-run-as-root", "novm", "noprefix", "no-app-prefix", "do-not-resolve", "hetero-nodes", "uniform-nodes",
    "use-regexp", "enable-instant-on-support", "fwd-mpirun-port", "leave-session-attached",
    "report-child-jobs-separately", "no-aggregate-help",
]  # fmt: skip
DONE += [([name], job()) for name in ACCEPTED]
DONE += [(["personality", "ompi"], job()), (["forward-signals", "USR1,SIGUSR2"], job())]


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize(("words", "request_"), DONE, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_each_option_sets_its_field(words, request_, dashes):
    name, *values = words
    assert parse([dashes + name, *values, "prog"], {}) == request_
    if len(values) == 1:
        assert parse([f"{dashes}{name}={values[0]}", "prog"], {}) == request_


def test_every_supported_option_has_a_case():
    done = {name for option in TABLE if option.status != REFUSED for name in option.names}
    of_files = {"app", "tune", "am", "amca"}  # test_parameter_files
    of_restarts = {"restart-delay", "max-restart-delay", "min-ranks", "progress-file", "max-no-progress", "device-wait"}
    of_hangs = {"hang-timeout", "on-hang", "stacks-on"}  # test_hang_options
    cases = {words[0] for words, _ in DONE}
    missing = done - of_files - of_restarts - of_hangs - {"h", "help", "V", "version"} - cases
    assert not missing, f"add to DONE, above, a line with {missing} and the request that it makes"
    assert not cases - done, f"take the lines with {cases - done} out of DONE: no option has that name"


def test_an_option_that_changes_nothing_says_so():
    for option in TABLE:
        if set(option.names) & {*ACCEPTED, "personality", "forward-signals"}:
            assert option.help.startswith("accepted"), option.names


@pytest.mark.parametrize("name", [name for option in TABLE if option.status == REFUSED for name in option.names])
def test_each_refused_option_says_why_and_what_to_do(name):
    for dashes in ("-", "--"):
        with pytest.raises(UsageError) as caught:
            parse([dashes + name, "prog"], {})
        assert caught.value.where == dashes + name
        assert caught.value.what.startswith("mslaunch does not have this option: ")
        assert caught.value.todo


def test_no_option_is_refused_as_not_yet_supported():
    assert [option.names for option in TABLE if "yet" in option.help.split()] == []


def test_option_names_are_unique_and_rows_complete():
    names = [name for option in TABLE for name in option.names]
    assert len(names) == len(set(names))
    for option in TABLE:
        assert option.names
        assert option.help
        assert option.group


def names_in(file: str) -> set[str]:
    lines = (ROOT / "tests" / "unit" / "data" / file).read_text(encoding="utf-8").splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


@pytest.mark.parametrize("file", ["options-mpirun-4.1.4.txt", "options-prterun-5.0.11.txt"])
def test_every_option_of_open_mpi_is_in_the_table(file):
    names = names_in(file)
    assert len(names) > 100
    assert names - set(by_name(TABLE)) == set()


@pytest.mark.parametrize(
    ("words", "where", "phrase"),
    [
        (["-n", "x"], "-n", "'x'"),
        (["-n", "0"], "-n", "leave it out"),
        (["-n", "-1"], "-n", "1 or more"),
        (["-np2"], "-np2", "write -np 2"),
        (["-n2"], "-n2", "write -n 2"),
        (["-N4"], "-N4", "write -N 4"),
        (["-x", "=1"], "-x", "VAR"),
        (["-x", "A*=1"], "-x", "pattern"),
        (["-H", ""], "-H", "not empty"),
        (["-map_by", "node"], "-map_by", "did you mean --map-by?"),
        (["--stdin", "a rank"], "--stdin", "all or none"),
        (["--stdin", "-1"], "--stdin", "all or none"),
        (["--timeout", "x"], "--timeout", "seconds"),
        (["--connect-timeout", "0"], "--connect-timeout", "more than 0"),
        (["--heartbeat", "0"], "--heartbeat", "more than 0"),
        (["--lease", "-1"], "--lease", "0 or more"),
        (["--heartbeat", "0.01", "--lease", "0.1"], "--lease 0.1", "write --lease 0.5 or more, or 0 for no lease"),
        (["--heartbeat", "10"], "--lease 15", "write --lease 20 or more, or --heartbeat 5"),
        (["--heartbeat", "2", "--lease", "3"], "--lease 3", "write --lease 4 or more, or --heartbeat 1"),
        (["--max-restarts", "-1"], "--max-restarts", "0 or more"),
        (["--output-filename", "a:/b"], "--output-filename", "colon"),
        (["--output-filename", ":nocopy"], "--output-filename", "PATH"),
        (["--pty", "maybe"], "--pty", "auto, yes or no"),
        (["--stream-buffering", "3"], "--stream-buffering", "0, 1 or 2"),
        (["--with-ft", "some"], "--with-ft", "mpi, ulfm or no"),
        (["--preload-files", ","], "--preload-files", "commas"),
        (["--forward-signals", "HUP"], "--forward-signals", "USR1"),
        (["--xterm", "a"], "--xterm", "0,2-3"),
        (["--show-ranks", "0,a"], "--show-ranks", "0,2-3"),
        (["--show-ranks", "0-999999999"], "--show-ranks", "0,2-3"),
        (["--rsh-agent", " "], "--rsh-agent", "command"),
        (["--rsh-agent", "'ssh"], "--rsh-agent", "quot"),
        (["--hostfile", "a", "-machinefile", "b"], "-machinefile", "twice"),
        (["-mca", "a", "1", "--mca", "a", "2"], "-mca", "a was given two values, '1' and '2'"),
        (["-mca", "a=b", "1"], "-mca", "KEY VALUE"),
        (["-mca", "foo"], "-mca", "is missing"),
        (["-mca", "plm_rsh_agent", ": rsh"], "-mca plm_rsh_agent", "command"),
        (["-mca", "orte_abort_on_non_zero_status", "2"], "-mca orte_abort_on_non_zero_status", "1 or 0"),
        (["-mca", "mca_base_env_list", "A", "-x", "B"], "-mca", "do not mix"),
        (["--prtemca", "plm_ssh_agent", " "], "--prtemca plm_ssh_agent", "command"),
    ],
)
def test_refusals_name_the_option_and_what_is_expected(words, where, phrase):
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"] if words != ["-mca", "foo"] else words, {})
    assert caught.value.where == where
    assert phrase in str(caught.value)


#: -mca parameters that steer the launch, a value, and the request; a row of PARAMETERS may have several names
STEERED = [
    ("orte_abort_on_non_zero_status", "0", job(abort_on_failure=False)),
    ("orte_default_hostfile", "/etc/mpi/hostfile", job(default_hostfile="/etc/mpi/hostfile")),
    ("prte_default_hostfile", "h", job(default_hostfile="h")),
    ("odls_base_sigkill_timeout", "5", job(grace=5.0)),
    ("orte_startup_timeout", "5", link(timeout=5.0)),
    ("orte_startup_timeout", "0", job()),
    ("plm_rsh_agent", "/etc/mpi/kubexec.sh", link(agent=("/etc/mpi/kubexec.sh",))),
    ("plm_rsh_agent", "ssh : rsh", link(agent=("ssh",))),
    ("plm_rsh_agent", "ssh:rsh", link(agent=("ssh",))),
    ("plm_rsh_agent", "ssh -J gate:22 : rsh", link(agent=("ssh", "-J", "gate:22"))),
    ("plm_ssh_agent", "rsh", link(agent=("rsh",))),
    ("orte_rsh_agent", "rsh", link(agent=("rsh",))),
    ("plm_rsh_args", "-p 2222 -i 'my key'", link(agent_args=("-p", "2222", "-i", "my key"))),
    ("plm_ssh_args", "-v", link(agent_args=("-v",))),
    ("rmaps", "seq", policy(map_by="seq")),
    ("rmaps", "round_robin,ppr", job()),
    ("rmaps_ppr_pernode", "1", policy(map_by="ppr", ppr=((1, "node"),))),
    ("rmaps_base_pernode", "0", job()),
    ("rmaps_ppr_n_pernode", "2", policy(map_by="ppr", ppr=((2, "node"),))),
    ("rmaps_base_n_pernode", "2", policy(map_by="ppr", ppr=((2, "node"),))),
    ("rmaps_ppr_n_persocket", "2", policy(map_by="ppr", ppr=((2, "socket"),))),
    ("rmaps_base_n_persocket", "2", policy(map_by="ppr", ppr=((2, "socket"),))),
    ("rmaps_ppr_pattern", "1:core", policy(map_by="ppr", ppr=((1, "core"),))),
    ("rmaps", "seq", policy(map_by="seq")),
    ("rmaps", "ppr,round_robin", job()),
    ("rmaps", "^lama,ppr", job()),
    ("plm", "rsh", job(link=LinkPolicy(asked="ssh"))),
    ("plm", "^slurm", job(link=LinkPolicy(asked="ssh"))),
    ("plm", "slurm", job()),
    ("ras", "tm", job(resource_manager="pbs")),
    ("ras", "^slurm", job(resource_manager="none")),
    ("ras", "simulator", job()),
    ("odls", "default", job()),
    ("rmaps_base_pattern", "1:core", policy(map_by="ppr", ppr=((1, "core"),))),
    ("rmaps_base_bynode", "1", policy(map_by="node", rank_by="node")),
    ("rmaps_base_byslot", "0", job()),
    ("rmaps_base_bycore", "yes", policy(map_by="core", rank_by="core")),
    ("rmaps_base_oversubscribe", "true", policy(oversubscribe=True)),
    ("rmaps_base_oversubscribe", "0", job()),
    ("rmaps_base_no_oversubscribe", "1", policy(oversubscribe=False)),
    ("rmaps_base_no_schedule_local", "1", policy(nolocal=True)),
    ("rmaps_base_mapping_policy", "node:OVERSUBSCRIBE", policy(map_by="node", oversubscribe=True)),
    ("rmaps_base_schedule_policy", "node", policy(map_by="node")),
    ("rmaps_default_mapping_policy", "package:pe=2", policy(map_by="socket", pe=2)),
    ("rmaps_base_ranking_policy", "core:span", policy(rank_by="core", rank_how="span")),
    ("rmaps_default_ranking_policy", "node", policy(rank_by="node")),
    ("rmaps_dist_device", "mlx5_0:x", idle("rmaps_dist_device", "ranks are not mapped by distance to a device")),
    ("rmaps_base_cpus_per_proc", "2", policy(pe=2)),
    ("rmaps_base_cpus_per_rank", "2", policy(pe=2)),
    ("rmaps_rank_file_path", "rf", policy(rankfile="rf")),
    ("orte_rankfile", "rf", policy(rankfile="rf")),
    ("hwloc_base_bind_to_core", "1", policy(bind_to="core")),
    ("hwloc_base_bind_to_socket", "1", policy(bind_to="socket")),
    ("hwloc_base_bind_to_socket", "0", job()),
    ("hwloc_base_binding_policy", "core:if-supported", policy(bind_to="core", if_supported=True)),
    ("hwloc_default_binding_policy", "package", policy(bind_to="socket")),
    ("hwloc_base_cpu_list", "0-1", policy(cpu_set="0-1")),
    ("hwloc_base_cpu_set", "0-1", policy(cpu_set="0-1")),
    ("hwloc_base_slot_list", "0-1", policy(cpu_set="0-1")),
    ("hwloc_default_cpu_list", "0-1", policy(cpu_set="0-1")),
    ("hwloc_base_use_hwthreads_as_cpus", "1", policy(hwthread_cpus=True)),
    ("hwloc_default_use_hwthreads_as_cpus", "1", policy(hwthread_cpus=True)),
    ("hwloc_base_report_bindings", "1", job(report_bindings=True)),
    ("orte_report_bindings", "1", job(report_bindings=True)),
    ("rmaps_base_display_map", "1", job(display_map="map")),
    ("rmaps_base_display_devel_map", "1", job(display_map="devel")),
    ("rmaps_base_display_diffable_map", "1", job(display_map="diffable")),
    ("rmaps_base_display_topo_with_map", "1", job(display_topology=True)),
    ("orte_display_alloc", "1", job(display_allocation=True)),
    ("orte_display_devel_alloc", "1", job(display_allocation=True)),
    ("orte_do_not_launch", "1", job(do_not_launch=True)),
    ("orte_execute_quiet", "1", job(quiet=True)),
    ("orte_tag_output", "1", output(tag="tag")),
    ("orte_timestamp_output", "1", output(timestamp=True)),
    ("orte_xml_output", "1", output(xml=True)),
    ("orte_xml_file", "f", output(xml_file="f")),
    ("orte_xterm", "0", output(xterm="0")),
    ("orte_enable_recovery", "1", job(recovery=True)),
    ("orte_max_restarts", "2", job(max_restarts=2)),
    ("orte_keep_fqdn_hostnames", "true", job(mca=(("orte_keep_fqdn_hostnames", "1"),))),
    ("rmaps_rank_file_physical", "0", job(mca=(("rmaps_rank_file_physical", "0"),))),
    ("ras_base_display_alloc", "1", job(display_allocation=True)),
    ("ras_base_display_devel_alloc", "1", job(display_allocation=True)),
    ("iof_base_redirect_app_stderr_to_stdout", "1", output(merge=True)),
    ("orte_report_launch_progress", "1", job(verbose=True)),
    ("orte_debug", "1", job(verbose=True)),
    ("orte_debug_daemons", "1", job(verbose=True)),
    ("errmgr_detector_heartbeat_period", "2", link(heartbeat=2.0)),
    ("errmgr_detector_heartbeat_timeout", "0", link(lease=0.0)),
    ("plm_rsh_num_concurrent", "8", link(fanout=8)),
    ("plm_ssh_num_concurrent", "8", link(fanout=8)),
    ("orte_set_default_slots", "4", job(mca=(("orte_set_default_slots", "4"),))),
    ("orte_set_default_slots", "cores", job()),
    ("orte_set_default_slots", "numas", idle("orte_set_default_slots", "numas is no number of slots")),
    ("orte_set_default_slots", "0", job()),
    ("orte_default_dash_host", "a", idle("orte_default_dash_host", "give the hosts with -H, or orte_default_hostfile")),
    (
        "orte_launch_agent",
        "orted",
        idle("orte_launch_agent", "hosts need no installed agent; --agent-python names the interpreter there"),
    ),
    ("orte_fork_agent", "x", idle("orte_fork_agent", "write that command before the program")),
    ("mca_base_env_list", "A;B=2", app(env=(("A", None), ("B", "2")))),
]


@pytest.mark.parametrize(("key", "value", "request_"), STEERED)
def test_launch_parameters_come_from_mca_and_from_the_environment(key, value, request_):
    assert parse(["-mca", key, value, "prog"], {}) == request_
    assert parse(["prog"], {"OMPI_MCA_" + key: value}) == request_
    assert parse(["prog"], {"PRTE_MCA_" + key: value}) == request_


def test_hardware_threads_of_a_weaker_source_are_overridden():
    environ = {"OMPI_MCA_hwloc_base_binding_policy": "hwthread"}
    assert parse(["--bind-to", "core", "prog"], environ) == policy(bind_to="core")


def test_two_options_for_output_files_are_refused():
    with pytest.raises(UsageError) as caught:
        parse(["--output", "dir=a", "--output-filename", "b", "prog"], {})
    assert (caught.value.where, "--output" in caught.value.what) == ("--output-filename", True)
    assert parse(["--output-filename", "a", "--output-filename", "b", "prog"], {}) == output(directory="b")


def test_each_launch_parameter_has_a_case():
    of_files = {"mca_base_param_file_prefix", "mca_base_envar_file_prefix"}  # test_parameter_files.py
    cases = {key for key, _, _ in STEERED} | of_files
    assert {row.name for row in PARAMETERS} == cases, "each row of PARAMETERS has a case in STEERED, above"


def test_only_known_parameters_are_looked_up():
    assert all(row.name.startswith(mpirun.STEERING) for row in PARAMETERS)


#: hydra cuts no names of hosts
WHOLE_NAMES = (("orte_keep_fqdn_hostnames", "1"),)


@pytest.mark.parametrize(
    ("environ", "request_"),
    [
        ({"MPIEXEC_TIMEOUT": "3"}, job(timeout=3.0, timeout_from="MPIEXEC_TIMEOUT")),
        ({"MPIEXEC_TIMEOUT": "0"}, job()),
        ({"MPIEXEC_TIMEOUT": ""}, job()),
        ({"MSLAUNCH_OVERSUBSCRIBE": "1"}, policy(oversubscribe=True)),
        ({"MSLAUNCH_GRACE": "30"}, job(grace=30.0)),
        ({"HYDRA_HOST_FILE": "h"}, job(default_hostfile="h", mca=WHOLE_NAMES)),
        ({"I_MPI_HYDRA_HOST_FILE": "h"}, job(default_hostfile="h", mca=WHOLE_NAMES)),
        ({"I_MPI_HYDRA_HOST_FILE": "h", "I_MPI_PERHOST": "all"}, job(default_hostfile="h", mca=WHOLE_NAMES)),
        (
            {"I_MPI_HYDRA_HOST_FILE": "h", "I_MPI_PERHOST": "2"},
            policy(map_by="rounds", ppn=2, oversubscribe=True)._replace(default_hostfile="h", mca=WHOLE_NAMES),
        ),
        ({"I_MPI_PERHOST": "2"}, job()),
        ({"HYDRA_HOST_FILE": "h", "PRTE_MCA_prte_default_hostfile": "p"}, job(default_hostfile="p", mca=WHOLE_NAMES)),
        (
            {"PRTE_MCA_prte_default_hostfile": "p", "OMPI_MCA_orte_default_hostfile": "o"},
            job(default_hostfile="o"),
        ),
        ({"OMPI_MCA_btl": "tcp", "NP": "3"}, job()),  # inherited as it is
        ({"OMPI_MCA_orte_tag_output": ""}, job()),
    ],
)
def test_variables_set_fields(environ, request_):
    assert parse(["prog"], environ) == request_


@pytest.mark.parametrize("name", ["MPIEXEC_TIMEOUT", "OMPI_MCA_orte_tag_output", "PRTE_MCA_rmaps_base_mapping_policy"])
def test_a_malformed_variable_is_refused(name):
    with pytest.raises(UsageError) as caught:
        parse(["prog"], {name: "soon"})
    assert caught.value.where == name


def test_options_win_over_parameters_and_these_over_the_environment():
    environ = {"OMPI_MCA_plm_rsh_agent": "e", "MPIEXEC_TIMEOUT": "9", "MSLAUNCH_OVERSUBSCRIBE": "1"}
    words = ["--timeout", "0", "--nooversubscribe", "-mca", "plm_rsh_agent", "m", "prog"]
    known = policy(oversubscribe=False)
    assert parse(words, environ) == known._replace(link=LinkPolicy(agent=("m",)))
    assert parse(["--rsh-agent", "o", *words], environ) == known._replace(link=LinkPolicy(agent=("o",)))


def test_a_policy_replaces_all_of_a_weaker_one():
    environ = {"OMPI_MCA_rmaps_base_mapping_policy": "ppr:2:node"}
    assert parse(["--map-by", "core", "prog"], environ) == policy(map_by="core")


def test_arguments_after_the_program_belong_to_it():
    words = ["sh", "-c", "x", "-mca", "a", "b", "--", "-n", "2", "--help", ""]
    assert parse(["-n", "1", *words], {}) == Request((AppContext(tuple(words), 1),))


def test_the_last_of_repeated_options_counts():
    words = ["-n", "1", "-np", "2", "-H", "a", "-H", "b,c", "-x", "A=1", "-x", "B", "-x", "A=2", "prog"]
    assert parse(words, {}) == app(np=2, hosts=("a", "b,c"), env=(("A", "1"), ("B", None), ("A", "2")))


def test_programs_are_divided_by_colons():
    line = "-n 1 -H a -x A=1 -wdir /d a : -np 2 --hostfile f --tag-output -mca x 1 b -q : -mca x 1 c :"
    words = line.split()
    assert parse(words, {}) == Request(
        (
            AppContext(("a",), 1, (("A", "1"),), "/d", ("a",)),
            AppContext(("b", "-q"), 2, hostfile="f"),
            AppContext(("c",)),
        ),
        output=OutputPolicy(tag="tag"),
        mca=(("x", "1"),),
    )


def test_path_and_prefix_of_the_first_program_hold_for_all_as_in_mpirun():
    words = [
        "--path",
        "/a",
        "--prefix",
        "/p",
        "a",
        ":",
        "b",
        ":",
        "--path",
        "/c",
        "-s",
        "c",
        ":",
        "--prefix",
        "/q",
        "d",
    ]
    assert parse(words, {}).apps == (
        AppContext(("a",), path="/a", prefix="/p"),
        AppContext(("b",), path="/a", prefix="/p"),
        AppContext(("c",), path="/c", prefix="/p", preload_binary=True),
        AppContext(("d",), path="/a", prefix="/q"),
    )


def test_the_same_parameter_may_be_given_twice():
    assert parse(["-mca", "a", "1", "--mca", "a", "1", "prog"], {}) == job(mca=(("a", "1"),))


def test_programs_that_disagree_on_a_parameter_are_refused():
    with pytest.raises(UsageError, match="parameter x was given two values"):
        parse(["-mca", "x", "1", "a", ":", "-mca", "x", "2", "b"], {})


def test_an_option_in_place_of_a_program_after_a_colon_is_refused():
    with pytest.raises(UsageError, match="lone ':'"):
        parse(["-n", "1", "awk", ":", "-q"], {})


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["-n", "1", "--version", "prog"]])
def test_version_names_mslaunch_and_open_mpi(words):
    with pytest.raises(Show) as caught:
        parse(words, {})
    first, second = caught.value.text.splitlines()
    assert first == f"mslaunch {mslaunch.__version__}"
    assert second.startswith("mpirun (Open MPI) 4.1.4 ")


@pytest.mark.parametrize("called", ["mpirun", "mpiexec"])
def test_version_under_another_name_begins_as_the_originals(called):
    with pytest.raises(Show) as caught:
        parse(["--version"], {}, called=called)
    first, *others = caught.value.text.splitlines()
    assert first == f"{called} (Open MPI) 4.1.4"
    assert f"mslaunch {mslaunch.__version__}" in "".join(others)


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-help"], ["--help", "all"], ["-q", "-h", "--foo"]])
def test_help_prints_the_options(words):
    with pytest.raises(Show) as caught:
        parse(words, {})
    assert caught.value.text.startswith("Usage: mslaunch ")


@pytest.mark.parametrize("width", [0, 60, 80, 100, 400])
def test_help_fits_the_terminal_and_names_every_option(width):
    text = help_text(mpirun.describe(), width)
    prose = text.partition("Examples:")[0]  # commands are not broken
    assert max(map(len, prose.splitlines())) <= max(60, min(width, 100))
    squeezed = " ".join(text.split())
    for option in TABLE:
        assert all(spelled(name) in text for name in option.names)
        assert f"(default: {option.default})" in squeezed or not option.default
    for row in (*PARAMETERS, *VARIABLES):
        assert row.name in text


def test_the_examples_of_the_help_are_understood():
    for _, command in common_options.EXAMPLES:
        launcher, *words = command.split()
        assert launcher == "mslaunch"
        assert parse(words, {}).apps[0].argv == ("python", "train.py")


def test_defaults_in_the_help_match_the_records():
    fresh = job()
    known = {
        "policy": fresh.policy._asdict(),
        "output": fresh.output._asdict(),
        "link": fresh.link._asdict(),
        "": fresh._asdict(),
    }
    for option in TABLE:
        room, _, field = option.field.rpartition(".")
        if option.default and option.field and field in known.get(room, {}) and "-" not in field:
            value = known[room][field]
            if value not in (None, ()):
                assert option.read(option.default) == value, option.names


def test_parsing_and_help_import_no_slow_module():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from mslaunch.cli.main import parse\n"
        "parse(['-n', '2', '-x', 'A=1', '-mca', 'plm_rsh_agent', 'ssh -p 2', 'prog'], {}, str)\n"
        "from mslaunch.cli.help_topics import text; text('mpirun'); text('mpirun', 'all')\n"
        "slow = 're typing enum textwrap difflib argparse shlex shutil socket _socket _heapq json inspect'.split()\n"
        "slow.append('collections')\n"
        "print(*[name for name in slow if name in set(sys.modules) - before])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == []


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make-docs"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="=*?-\0"), min_size=1, max_size=8).filter(
    lambda name: name != ":"
)
PATHS = NAMES.filter(lambda name: not set(name) & set(":,") and not name[0].isspace())
VALUES = st.text(max_size=12).filter(lambda value: value != ":")
SECONDS = st.floats(min_value=0.001, max_value=1e8)
RANKS = st.integers(1, 999_999_999)


def made(record: type, **fields: st.SearchStrategy) -> st.SearchStrategy:
    """Records with these fields, the others at their defaults."""
    return st.fixed_dictionaries(fields).map(lambda values: record(**values))


APPS = made(
    AppContext,
    argv=st.tuples(NAMES, VALUES),
    np=st.none() | RANKS,
    env=st.lists(st.tuples(NAMES, st.none() | VALUES), max_size=3).map(tuple),
    wdir=st.none() | NAMES,
    hosts=st.lists(NAMES, max_size=2).map(tuple),
    hostfile=st.none() | NAMES,
    preload_binary=st.booleans(),
    preload_files=st.lists(PATHS, max_size=2).map(tuple),
    session_dir=st.booleans(),
)
POLICIES = st.one_of(
    made(Policy, map_by=st.sampled_from(["", "slot", "node", "seq", *LEVELS]), rankfile=st.none()),
    made(
        Policy,
        map_by=st.just("ppr"),
        ppr=st.lists(st.tuples(RANKS, st.sampled_from(["node", *LEVELS])), min_size=1, max_size=3).map(tuple),
    ),
    made(Policy, rankfile=PATHS),
).flatmap(
    lambda known: made(
        known._replace,
        pe=st.just(0) | RANKS,
        span=st.booleans(),
        rank_by=st.sampled_from(["", "slot", "node", *LEVELS]),
        oversubscribe=st.sampled_from([None, True, False]),
        nolocal=st.booleans(),
        bind_to=st.sampled_from(["", "none", "cpu-list", *LEVELS]),
        overload=st.booleans(),
        if_supported=st.booleans(),
        cpu_set=st.sampled_from(["", "0", "0,2-3"]),
        hwthread_cpus=st.booleans(),
    )
)
REQUESTS = made(
    Request,
    apps=st.lists(APPS, min_size=1, max_size=3).map(tuple),
    policy=POLICIES,
    output=made(
        OutputPolicy,
        directory=PATHS,
        copy=st.booleans(),
        jobid=st.booleans(),
        merge=st.booleans(),
        tag=st.sampled_from(["", "tag"]),
        timestamp=st.booleans(),
        pty=st.sampled_from(["auto", "yes", "no"]),
        xml=st.booleans(),
        xml_file=st.none() | NAMES,
        xterm=st.sampled_from([None, "-1", "0,2-3!"]),
    ),
    link=made(
        LinkPolicy,
        agent=st.just(()) | st.tuples(NAMES, VALUES),
        agent_args=st.lists(VALUES, max_size=2).map(tuple),
        accept_new=st.booleans(),
        timeout=SECONDS,
        python=NAMES,
        fanout=st.integers(1, 999),
        heartbeat=st.sampled_from([0.1, 0.5, 2.0]),
        lease=st.sampled_from([0.0, 4.0, 1000.5]),
    ),
    default_hostfile=st.none() | NAMES,
    stdin=st.sampled_from(["0", "17", "all", "none"]),
    timeout=st.none() | SECONDS,
    grace=SECONDS,
    mca=st.dictionaries(NAMES.filter(lambda name: "_" not in name), VALUES, max_size=2).map(lambda d: tuple(d.items())),
    abort_on_failure=st.booleans(),
    recovery=st.booleans(),
    max_restarts=st.integers(0, 9),
    state_on_timeout=st.booleans(),
    stack_traces=st.booleans(),
    report_pid=st.none() | NAMES | st.sampled_from("+-"),
    report_uri=st.none() | NAMES | st.sampled_from("+-"),
    index_argv=st.booleans(),
    report_bindings=st.booleans(),
    display_map=st.sampled_from(["", "map", "table", "devel", "diffable"]),
    display_allocation=st.booleans(),
    display_topology=st.booleans(),
    do_not_launch=st.booleans(),
    quiet=st.booleans(),
    verbose=st.booleans(),
)


def render_policy(policy: Policy) -> list[str]:
    """The part of the command line about placement."""
    pattern = ",".join(f"{count}:{level}" for count, level in policy.ppr)
    head = f"ppr:{pattern}" if policy.ppr else f"rankfile:file={policy.rankfile}" if policy.rankfile else policy.map_by
    modifiers = [f"PE={policy.pe}"] if policy.pe else []
    modifiers += [word for word, wanted in (("SPAN", policy.span), ("NOLOCAL", policy.nolocal)) if wanted]
    modifiers += {None: [], True: ["OVERSUBSCRIBE"], False: ["nooversubscribe"]}[policy.oversubscribe]
    qualifiers = ["overload-allowed"] * policy.overload + ["if-supported"] * policy.if_supported
    words = ["--map-by", ":".join([head, *modifiers])] if head or modifiers else []
    words += ["--rank-by", policy.rank_by] if policy.rank_by else []
    bound = ":".join([policy.bind_to, *([",".join(qualifiers)] if qualifiers else [])])
    words += [f"--bind-to={bound}"] if bound else []
    words += ["--cpu-set", policy.cpu_set] if policy.cpu_set else []
    return [*words, *(["--use-hwthread-cpus"] if policy.hwthread_cpus else [])]


def render(request: Request) -> list[str]:
    """The command line of a request, each field by the option that sets it."""
    out, link_ = request.output, request.link
    modifiers = [word for word, keep in (("nocopy", out.copy), ("nojobid", out.jobid)) if not keep]
    flags = {
        "--merge-stderr-to-stdout": out.merge,
        "-tag-output": out.tag,
        "--timestamp-output": out.timestamp,
        "-xml": out.xml,
        "--ssh-accept-new": link_.accept_new,
        "--enable-recovery": request.recovery,
        "--report-state-on-timeout": request.state_on_timeout,
        "-get-stack-traces": request.stack_traces,
        "--index-argv-by-rank": request.index_argv,
        "--report-bindings": request.report_bindings,
        "-display-allocation": request.display_allocation,
        "--display-topo": request.display_topology,
        "--do-not-launch": request.do_not_launch,
        "-q": request.quiet,
        "--verbose": request.verbose,
    }
    maps = {"map": "--display-map", "devel": "--display-devel-map", "diffable": "-display-diffable-map"}
    table = [maps.get(request.display_map, "--display-table")] if request.display_map else []
    words = [flag for flag, given_ in flags.items() if given_] + table
    words += [*render_policy(request.policy), f"--pty={out.pty}", "--stdin", request.stdin]
    words += ["--output-filename", ":".join([out.directory or "", *([",".join(modifiers)] if modifiers else [])])]
    words += ["--xml-file", out.xml_file] if out.xml_file else []
    words += ["--xterm", out.xterm] if out.xterm else []
    words += ["--report-pid", request.report_pid] if request.report_pid else []
    words += ["--report-uri", request.report_uri] if request.report_uri else []
    words += ["--max-restarts", str(request.max_restarts)]
    words += ["--connect-timeout", repr(link_.timeout), "--agent-python", link_.python, f"--fanout={link_.fanout}"]
    words += ["--heartbeat", repr(link_.heartbeat), "--lease", repr(link_.lease)]
    words += ["--rsh-agent", shlex.join(link_.agent)] if link_.agent else []
    words += ["-mca", "plm_rsh_args", shlex.join(link_.agent_args)]
    words += [f"--default-hostfile={request.default_hostfile}"] if request.default_hostfile else []
    words += ["--timeout", repr(request.timeout or 0), "--grace", repr(request.grace)]
    words += [word for pair in request.mca for word in ("-mca", *pair)]
    words += [] if request.abort_on_failure else ["--mca", "orte_abort_on_non_zero_status", "0"]
    return [*words, *render_apps(request.apps)]


def render_apps(apps: tuple[AppContext, ...]) -> list[str]:
    """The parts of the programs, with colons between."""
    words: list[str] = []
    for index, app_ in enumerate(apps):
        words += [":"] if index else []
        words += ["-np", str(app_.np)] if app_.np else []
        words += [word for name, value in app_.env for word in ("-x", name if value is None else f"{name}={value}")]
        words += [f"--wdir={app_.wdir}"] if app_.wdir else []
        words += [word for text in app_.hosts for word in ("-H", text)]
        words += ["-hostfile", app_.hostfile] if app_.hostfile else []
        words += ["-s"] * app_.preload_binary + ["--set-cwd-to-session-dir"] * app_.session_dir
        words += ["--preload-files", ",".join(app_.preload_files)] if app_.preload_files else []
        words += ["--", *app_.argv]
    return words


@given(REQUESTS)
def test_a_request_written_as_a_command_line_is_read_back(request_):
    assert parse(render(request_), {})._replace(notes=()) == request_


WORDS = st.one_of(
    st.sampled_from([f"{dash}{name}" for name in by_name(TABLE) for dash in ("-", "--")]),
    st.sampled_from([row.name for row in PARAMETERS]),
    st.sampled_from([":", "--", "-", "", "1", "0", "a", "slot", "ppr:1:node", "a : b", "'", "-qv", "-n2", "--np="]),
    st.text(max_size=6),
    st.text(max_size=6).map("--".__add__),
)
ENVIRON = st.dictionaries(
    st.sampled_from(["OMPI_MCA_" + row.name for row in PARAMETERS] + [row.name for row in VARIABLES]),
    st.sampled_from(["", "0", "1", "x", "'", ":", "node"]) | st.text(max_size=4),
    max_size=3,
)


@given(st.lists(WORDS, max_size=10), ENVIRON)
def test_any_arguments_give_a_request_a_refusal_or_a_text(words, environ):
    try:
        request = parse(words, environ)
    except (LaunchError, Show) as end:
        assert str(end)
        return
    assert all(app_.argv for app_ in request.apps)


def test_options_are_sorted_by_their_groups():
    assert {option.group for option in TABLE if option.status == REFUSED} == {common_options.NOT_HERE}
    assert {option.group for option in TABLE} == set(rare_options.GROUPS)
    groups = [option.group for option in TABLE]
    assert groups == sorted(groups, key=rare_options.GROUPS.index)


def test_hosts_alone_can_be_checked():
    for words in (["--check"], ["--check", "--hostfile", "hosts"], ["--json", "--check", "-n", "3"]):
        found = parse(words, {})
        assert (found.check, found.apps[0].argv) == ("hosts", ("true",))
    assert parse(["--check", "prog"], {}).check == "launch"
    with pytest.raises(UsageError, match="no program"):
        parse(["--check", "-n", "1", "prog", ":", "-n", "1"], {})
    with pytest.raises(UsageError, match="a command, such as"):
        parse(["--health-check", "  ", "prog"], {})
    with pytest.raises(UsageError, match="quoted"):
        parse(["--health-check", "sh -c 'x", "prog"], {})
