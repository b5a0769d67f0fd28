"""Parameters (-mca KEY VALUE, OMPI_MCA_KEY, mca-params.conf) and variables that steer the launch as options do.

Open MPI has hundreds; these are the ones of its launcher that change where ranks go, what they print and how they end.
All others are for the library in the ranks and are passed on.  Imported when a name begins like one of these
(`STEERING` in `cli.mpirun.parse`).  Names of 4.1 and 5.0 share one table, because -mca takes both in 5.0 as well.
"""

from __future__ import annotations

from mslaunch.cli.mpirun.launcher_components import FRAMEWORKS
from mslaunch.cli.parser import placement_readers, readers
from mslaunch.cli.parser.openmpi5_readers import xterm
from mslaunch.cli.parser.options import Variable

_switch, _exactly = readers.switch, placement_readers.if_yes


def _more_time(word: str) -> list[tuple[str, float]]:
    """Seconds; 0 has no effect."""
    seconds = readers.span(word)
    return [("link.timeout", seconds)] if seconds else []


def _rows(names: str, field: str, read: readers.Reader, help: str) -> list[Variable]:
    """One row for each of several names that mean the same."""
    return [Variable(name, field, read, help) for name in names.split()]


def _kept(name: str, help: str) -> Variable:
    """A parameter that the planner looks for among those of the ranks, wherever it was given."""
    return Variable(name, "", lambda word: [("mca+", ((name, str(int(readers.yes_no(word)))),))], help)


def _idle(name: str, instead: str) -> Variable:
    """A parameter that changes what mpirun does but not what mslaunch does, with a note; 0 is the default there."""
    note = f"the parameter {name} has no effect: {instead}"
    return Variable(name, "", lambda word: [] if word in ("", "0") else [("notes+", (note,))], f"no effect: {instead}")


def _default_slots(word: str) -> list[tuple[str, object]]:
    """A number; mpirun counts cores by default, as we do, and with anything else it gives no slot at all."""
    if word.isdigit() and int(word):
        return [("mca+", (("orte_set_default_slots", str(readers.count(word))),))]
    if word in ("", "0", "cores"):
        return []
    return [("notes+", (f"the parameter orte_set_default_slots has no effect: {word} is no number of slots",))]


#: -mca parameters, and variables OMPI_MCA_* and PRTE_MCA_*, that steer the launch
PARAMETERS: tuple[Variable, ...] = (
    *_rows("prte_default_hostfile orte_default_hostfile", "default_hostfile", readers.text, "as --default-hostfile"),
    Variable("orte_abort_on_non_zero_status", "abort_on_failure", readers.yes_no, "0: others go on when a rank fails"),
    Variable("odls_base_sigkill_timeout", "grace", readers.span, "as --grace"),
    *_rows("plm_ssh_agent orte_rsh_agent plm_rsh_agent", "link.agent", readers.first_agent,
           "as --rsh-agent; of a list 'ssh : rsh' the first"),
    *_rows("plm_ssh_args plm_rsh_args", "link.agent_args", readers.shell_words, "more arguments for that command"),
    *_rows("plm_ssh_num_concurrent plm_rsh_num_concurrent", "link.fanout", readers.count, "as --fanout"),
    Variable("errmgr_detector_heartbeat_period", "link.heartbeat", readers.wait, "as --heartbeat"),
    Variable("errmgr_detector_heartbeat_timeout", "link.lease", readers.span, "as --lease"),
    Variable("orte_startup_timeout", "", _more_time, "as --connect-timeout"),
    *(Variable(name, "", read, help) for name, (read, help) in FRAMEWORKS.items()),
    *_rows("rmaps_ppr_pernode rmaps_base_pernode", "", _exactly(placement_readers.one_per_node()), "1: as --pernode"),
    *_rows("rmaps_ppr_n_pernode rmaps_base_n_pernode", "", placement_readers.ranks_per("node"), "as --npernode"),
    *_rows("rmaps_ppr_n_persocket rmaps_base_n_persocket", "", placement_readers.ranks_per("socket"),
           "as --npersocket"),
    *_rows("rmaps_ppr_pattern rmaps_base_pattern", "", placement_readers.ppr, "as --ppr"),
    *(Variable(f"rmaps_base_by{level}", "", _exactly(placement_readers.map_and_rank(level)()), f"1: as --by{level}")
      for level in ("slot", "node", "core")),
    *_rows("rmaps_default_mapping_policy rmaps_base_schedule_policy rmaps_base_mapping_policy", "",
           placement_readers.map_by, "as --map-by"),
    *_rows("rmaps_default_ranking_policy rmaps_base_ranking_policy", "", placement_readers.rank_by, "as --rank-by"),
    _kept("orte_keep_fqdn_hostnames", "1: names of hosts keep their domains (node1.cluster)"),
    _kept("rmaps_rank_file_physical", "1: cpus of a rankfile are the kernel's numbers"),
    _idle("rmaps_dist_device", "ranks are not mapped by distance to a device"),
    Variable("rmaps_base_no_oversubscribe", "", _switch("policy.oversubscribe", False, None),
             "1: as --nooversubscribe"),
    Variable("rmaps_base_oversubscribe", "", _switch("policy.oversubscribe", True, None), "1: as --oversubscribe"),
    Variable("rmaps_base_no_schedule_local", "policy.nolocal", readers.yes_no, "1: as --nolocal"),
    *_rows("rmaps_base_cpus_per_proc rmaps_base_cpus_per_rank", "policy.pe", readers.count, "as --cpus-per-proc"),
    *_rows("rmaps_rank_file_path orte_rankfile", "policy.rankfile", readers.text, "as --rankfile"),
    Variable("hwloc_base_bind_to_core", "", _switch("policy.bind_to", "core", ""), "1: as --bind-to core"),
    Variable("hwloc_base_bind_to_socket", "", _switch("policy.bind_to", "socket", ""), "1: as --bind-to socket"),
    *_rows("hwloc_default_binding_policy hwloc_base_binding_policy", "", placement_readers.bind_to, "as --bind-to"),
    *_rows("hwloc_default_cpu_list hwloc_base_slot_list hwloc_base_cpu_set hwloc_base_cpu_list", "policy.cpu_set",
           placement_readers.cpu_list, "as --cpu-list"),
    *_rows("hwloc_default_use_hwthreads_as_cpus hwloc_base_use_hwthreads_as_cpus", "policy.hwthread_cpus",
           readers.yes_no, "1: as --use-hwthread-cpus"),
    *_rows("orte_report_bindings hwloc_base_report_bindings", "report_bindings", readers.yes_no,
           "1: as --report-bindings"),
    Variable("rmaps_base_display_map", "", _switch("display_map", "map", ""), "1: as --display-map"),
    Variable("rmaps_base_display_devel_map", "", _switch("display_map", "devel", ""), "1: as --display-devel-map"),
    Variable("rmaps_base_display_diffable_map", "", _switch("display_map", "diffable", ""),
             "1: as --display-diffable-map"),
    Variable("rmaps_base_display_topo_with_map", "display_topology", readers.yes_no, "1: as --display-topo"),
    *_rows("ras_base_display_devel_alloc ras_base_display_alloc orte_display_devel_alloc orte_display_alloc",
           "display_allocation", readers.yes_no, "1: as --display-allocation"),
    Variable("orte_do_not_launch", "do_not_launch", readers.yes_no, "1: as --do-not-launch"),
    *_rows("orte_report_launch_progress orte_debug orte_debug_daemons", "verbose", readers.yes_no, "1: as --verbose"),
    Variable("orte_execute_quiet", "quiet", readers.yes_no, "1: as --quiet"),
    Variable("orte_tag_output", "", _switch("output.tag", "tag", ""), "1: as --tag-output"),
    Variable("iof_base_redirect_app_stderr_to_stdout", "output.merge", readers.yes_no,
             "1: as --merge-stderr-to-stdout"),
    Variable("orte_timestamp_output", "output.timestamp", readers.yes_no, "1: as --timestamp-output"),
    Variable("orte_xml_output", "output.xml", readers.yes_no, "1: as --xml"),
    Variable("orte_xml_file", "output.xml_file", readers.text, "as --xml-file"),
    Variable("orte_xterm", "output.xterm", xterm, "as --xterm"),
    Variable("orte_enable_recovery", "recovery", readers.yes_no, "1: as --enable-recovery"),
    Variable("orte_max_restarts", "max_restarts", readers.count_or_zero, "as --max-restarts"),
    Variable("mca_base_env_list", "app.env+", readers.variables, "as -x, with ';' between the variables"),
    *_rows("mca_base_param_file_prefix mca_base_envar_file_prefix", "own.tune+", readers.files, "as --tune"),
    Variable("orte_set_default_slots", "", _default_slots, "slots of hosts for which none are given, instead of cores"),
    _idle("orte_default_dash_host", "give the hosts with -H, or orte_default_hostfile"),
    _idle("orte_launch_agent", "hosts need no installed agent; --agent-python names the interpreter there"),
    _idle("orte_fork_agent", "write that command before the program"),
)  # fmt: skip
