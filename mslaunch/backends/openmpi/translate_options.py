"""A request as options of Open MPI's mpirun: those of 4.1, and those of 5.0 where they differ.

Pure.  What mpirun cannot do, or does differently from what an option promises, is refused.  The launcher itself handles
--timeout, working directories, log files and tags.  mpirun does not get the user's hostfiles, because it cannot read
ranges: it gets the hosts as -H where that can express them, otherwise in a file that the launcher writes.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import LEVELS
from mslaunch.datamodel.request import READY_SECONDS, AppContext, LinkPolicy, Request
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.rank_variables import matching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.backends.openmpi.find_mpirun import OpenMpiInstallation
    from mslaunch.datamodel.jobmap import Allocation, Node
    from mslaunch.datamodel.request import Policy

_NO_HOST = "mpirun does not report which host runs a rank"
#: fields of a request that are refused when set: the field, the option, why; what to do
REFUSED: tuple[tuple[str, str, str], ...] = (
    ("recovery", "--enable-recovery", "mpirun's exit code is then 0 whatever its ranks return; leave it out"),
    ("restart", "--restart", "mpirun does not start ranks again; leave it out"),
    ("max_restarts", "--max-restarts", "mpirun does not start a rank again; leave it out"),
    ("max_restart_delay", "--max-restart-delay", "mpirun does not start ranks again; leave it out"),
    ("progress_file", "--progress-file", "nothing is started again, and nobody looks at it; leave it out"),
    ("health_check", "--health-check", "mslaunch reaches no host then; let a script run it on each host before"),
    ("check", "--check", "mpirun reaches hosts in its own way, which nobody would look at; leave one of the two out"),
    ("detach", "--detach", "mpirun stays with its terminal; leave it out, and use nohup and &"),
    ("host", "--scheduler", "mpirun does not place the scheduler; leave it out"),
    ("port", "--scheduler", "mpirun does not choose the port of the scheduler; leave it out"),
    ("servers", "--server_num", "mpirun starts ranks only; leave it out"),
    ("state_on_timeout", "--report-state-on-timeout", "mpirun does not report the state of its ranks; leave it out"),
    ("stack_traces", "--get-stack-traces", "the ranks belong to mpirun; leave it out"),
    ("seconds", "--hang-timeout", "the ranks belong to mpirun; leave it out"),
    ("then", "--on-hang", "the ranks belong to mpirun; leave it out"),
    ("resource_manager", "--resource-manager", "mpirun looks for one by itself; give --mca ras and plm"),
    ("term_to", "--term-to", "mpirun sends SIGTERM to the process groups of its ranks; leave it out"),
    ("warn", "--warn", "mpirun forwards USR1 and USR2 to process groups only; leave it out, and send it with kill"),
    ("index_argv", "--index-argv-by-rank", "mpirun starts a shell before the program; leave it out"),
    ("xterm", "--xterm", "mslaunch needs the output that the windows would take; leave it out"),
    ("fold", "--fold", "mpirun may delay a line for longer than equal lines wait for each other; leave it out"),
    ("shown", "--show-ranks", "mpirun shows all ranks; leave it out, and use --output-filename"),
    ("outfile", "-outfile-pattern", f"{_NO_HOST}; use --output-filename"),
    ("errfile", "-errfile-pattern", f"{_NO_HOST}; use --output-filename"),
    ("prepend", "-prepend-pattern", f"{_NO_HOST}; use --tag-output"),
    ("preload_binary", "--preload-binary", "mpirun would send a shell instead; put the program on a shared disk"),
    ("preload_files", "--preload-files", "mpirun loses permissions and folders; put the files on a shared disk"),
    ("events", "--events", "mpirun does not tell what its ranks do; leave it out"),
    ("on_event", "--on-event", "mpirun does not tell what its ranks do; leave it out"),
    ("metrics", "--metrics", "mpirun does not tell what its ranks do; leave it out"),
    ("record", "--record", "mpirun does not tell what its ranks do; leave it out"),
    ("session_dir", "--set-cwd-to-session-dir", "mpirun's session directories are its own; use --wdir"),
)
_LEVELS_4 = {"l1cache": "L1cache", "l2cache": "L2cache", "l3cache": "L3cache"}
_LEVELS_5 = {"socket": "package"}
_RANKINGS_5 = ("slot", "node")
#: a map of --display-map -> the word of 5.0, the option of 4.1
_MAPS = {
    "map": ("map", "--display-map"),
    "devel": ("map-devel", "--display-devel-map"),
    "diffable": ("map", "--display-diffable-map"),
}
_GRACE = 2.0  # the default, in seconds, of mpirun and of mslaunch
_CHOOSES = "mpirun starts the ranks; let the program choose by its local rank"
_LEASE = LinkPolicy().lease  # the default
_STACKS_ON = Request._field_defaults["stacks_on"]
_TOOLS_5 = "pmix_tool_support"  #: whether debuggers may find mpirun and its daemons


#: variables that mpirun, its daemons, ssh, the C library or the shell obey; by those of batch systems it finds hosts
_OBEYED = frozenset((
    "PATH", "HOME", "SHELL", "USER", "LOGNAME", "PWD", "TMPDIR", "TMP", "TEMP", "TERM", "DISPLAY", "XAUTHORITY",
    "LANG", "LANGUAGE", "TZ", "IFS", "ENV", "BASH_ENV", "CDPATH", "PREFIX",
    "JOB_ID", "PE_HOSTFILE", "ARC",
))  # fmt: skip
_OBEYED_PREFIXES = (
    "LD_", "LC_", "OMPI_", "OPAL_", "ORTE_", "PRTE_", "PMIX_", "PMI_", "HWLOC_", "SSH_", "MALLOC_", "GLIBC_", "GCONV_",
    "MSLAUNCH_", "SLURM_", "PBS_", "LSB_", "LSF_", "SGE_", "ALPS_", "BASIL_", "COBALT_",
)  # fmt: skip

HOSTFILE = "HOSTFILE"  #: among the options: stands for the name of the launcher's hostfile


class MpirunOptions(NamedTuple):
    """Options of the whole job, and those before each program; `hostfile` is the text of our hostfile, "" for none.

    `env` are NAME=value of mpirun's own environment: values of -x that would stand on its command line, for all to see.
    """

    job: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    hostfile: str = ""
    env: tuple[str, ...] = ()


def refuse(request: Request) -> None:
    """Raises `UsageError` for options that mpirun cannot obey."""
    for field, option, why in REFUSED:
        if any(
            getattr(part, field, None)
            for part in (request, request.output, request.cluster, request.monitor, request.hang, *request.apps)
        ):
            _refuse(option, why)
    abort = "-mca orte_abort_on_non_zero_status"
    for wrong, option, why in (
        (
            request.monitor.progress in ("yes", "plain"),
            "--progress",
            "mpirun does not tell what its ranks do; leave it out",
        ),
        (request.cluster.program != "auto", "--scheduler-runs", "mpirun does not start the scheduler; leave it out"),
        (not request.abort_on_failure, abort, "mpirun then hides how ranks ended, or hangs; leave it out"),
        ("detailed" in request.output.tag, "--output tag-detailed", f"{_NO_HOST}; use --output tag"),
        (request.stdin == "all", "--stdin all", "mpirun 4.1 hangs with it; give the rank that reads, or read a file"),
        (any(app.mpi != "auto" for app in request.apps), "--mpi", "mpirun serves its ranks itself; leave it out"),
        (request.stacks_on != _STACKS_ON, "--stacks-on", "the ranks belong to mpirun; leave it out"),
        (request.devices.each, "--devices-per-rank", _CHOOSES),
        (request.devices.names, "--devices", _CHOOSES),
        (request.horovod, "--horovod", "mpirun serves no key store; leave it out, and use a Horovod with MPI"),
        (request.env_for, "--env-for", "mpirun's ranks have no ports of their own; leave it out, and use -x"),
        (request.fill, "--fill", "mpirun gives all ranks of a program the same arguments; leave it out"),
        (any(app.ready for app in request.apps), "--ready", "mpirun starts all programs at once; leave it out"),
        (request.ready_timeout != READY_SECONDS, "--ready-timeout", "mpirun starts all programs at once; leave it out"),
        (request.spawn != "auto", "--spawn", "mpirun lets every rank spawn; leave it out"),
        (request.link.python != "python3", "--agent-python", "mpirun's daemons need no Python; leave it out"),
        (
            request.link.heartbeat,
            "--heartbeat",
            "mpirun has no such option; see its MCA parameters oob_tcp_keepalive_*",
        ),
        (
            request.link.lease != _LEASE,
            "--lease",
            "mpirun has no such option; see its MCA parameters oob_tcp_keepalive_*",
        ),
        (request.display_map == "table", "--display-table", "mpirun makes the map; use --display-map"),
        (request.policy.map_by == "dist", "--map-by dist", "5.0 has no dist, and 4.1 another; use another policy"),
    ):
        if wrong:
            _refuse(option, why)


def _refuse(option: str, text: str) -> None:
    why, _, todo = text.partition("; ")
    raise UsageError(f"not with --backend openmpi: {why}", option, todo)


def translate(
    request: Request,
    allocation: Allocation,
    counts: Sequence[int],
    mpirun: OpenMpiInstallation,
    environ: Mapping[str, str],
    root: bool,
    crowded: bool,
) -> MpirunOptions:
    """`counts` are the ranks of each program, `environ` has the values of -x; `root`: the launcher runs as root.

    `crowded`: there are more ranks than cores on this host, and no hosts or slots were given.
    """
    new = mpirun.style == "5.0"
    far = [node for node in allocation.nodes if not node.local]
    kill_after = ("--prtemca" if new else "--mca", "odls_base_sigkill_timeout", str(max(1, round(request.grace))))
    job = [
        *["--allow-run-as-root"] * root,
        *(["--personality", "ompi"] if mpirun.prterun else []),
        *(_tool_options(request) if new else []),
        *(["--prefix", mpirun.prefix] if far and mpirun.prefix else []),
        *_mapping_options(request.policy, new, crowded),
        *_display_options(request, new),
        *_ssh_options(request, far, new),
        *("--stdin", request.stdin if far else "none"),  # local ranks read it from the launcher
        *(word for name, value in request.mca for word in ("--mca", name, value)),
        *(kill_after if request.grace != _GRACE else ()),
    ]
    by_rankfile = request.policy.rankfile is not None and not new
    exports = [exports_of(app, environ) for app in request.apps]
    env = _through_environment(exports)
    programs = tuple(
        (*_host_options(allocation, number, by_rankfile), "-n", str(count), *_program_options(app, exported, env))
        for number, (app, count, exported) in enumerate(zip(request.apps, counts, exports))
    )
    in_file = any(words[0] == "--hostfile" for words in programs)
    lines = dict.fromkeys(f"{_hostfile_line(node)}\n" for node in allocation.nodes if in_file)
    return MpirunOptions(tuple(job), programs, "".join(lines), tuple(f"{name}={env[name]}" for name in env))


def _tool_options(request: Request) -> list[str]:
    """Tell 5.0 not to write files for debuggers: it does not start if a killed mpirun with the same pid has left some.

    In containers pids recur, and the guard kills an mpirun that does not end.
    """
    return [] if _TOOLS_5 in dict(request.mca) else ["--prtemca", _TOOLS_5, "0"]


def _host_options(allocation: Allocation, number: int, by_rankfile: bool) -> list[str]:
    """The options that name a program's hosts: in words, or in a file with all hosts.

    mpirun's -H takes neither a user nor a host that has as many slots as cores.
    """
    if not allocation.declared or by_rankfile:
        return []
    if allocation.sequences and allocation.sequences[number]:
        names = [allocation.nodes[node].name for node in allocation.sequences[number]]
        return ["-H", ",".join(names)]
    indices: Sequence[int] = allocation.apps[number] if allocation.apps else range(len(allocation.nodes))
    nodes = [allocation.nodes[index] for index in indices]
    if all(node.slots is not None and not node.user for node in allocation.nodes):
        return ["-H", ",".join(f"{node.name}:{node.slots}" for node in nodes)]
    if allocation.apps:
        _refuse("-H", "hosts of their own for each program need slots and no user; give each host slots=N")
    return ["--hostfile", HOSTFILE]


def _hostfile_line(node: Node) -> str:
    who = f"{node.user}@{node.name}" if node.user and not node.local else node.name
    return who if node.slots is None else f"{who} slots={node.slots}"


def _program_options(app: AppContext, exported: Sequence[tuple[str, str | None]], env: Mapping[str, str]) -> list[str]:
    words = [name if value is None or name in env else f"{name}={value}" for name, value in exported]
    return [*(["--prefix", app.prefix] if app.prefix else []), *(part for word in words for part in ("-x", word))]


def _through_environment(exports: Sequence[Sequence[tuple[str, str | None]]]) -> dict[str, str]:
    """The variables whose values mpirun takes from its environment: those that all programs get, with one value.

    Ranks on this host inherit that environment.  Variables that mpirun, ssh or the dynamic linker obey stay out of it.
    """
    first, *others = [{name: value for name, value in exported if value is not None} for exported in exports]
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
        and name.isascii()
        and name.isidentifier()
        and name not in _OBEYED
        and not name.startswith(_OBEYED_PREFIXES)
    }


def _mapping_options(policy: Policy, new: bool, crowded: bool) -> list[str]:
    """Mapping, ranking and binding."""
    crowd = crowded if policy.oversubscribe is None else policy.oversubscribe
    modifiers = [f"PE={policy.pe}"] * bool(policy.pe) + ["SPAN"] * policy.span
    if crowd or policy.oversubscribe is not None:
        modifiers.append("OVERSUBSCRIBE" if crowd else "NOOVERSUBSCRIBE")
    flags = [":overload-allowed"] * policy.overload + [":if-supported"] * policy.if_supported
    options = [
        *_rank_by(policy, new),
        *(["--bind-to", _level(policy.bind_to, new) + "".join(flags)] if policy.bind_to else []),
    ]
    if new:
        _refuse_for_5(policy)
        modifiers += ["NOLOCAL"] * policy.nolocal + ["HWTCPUS"] * policy.hwthread_cpus
        modifiers += [f"PE-LIST={policy.cpu_set}"] * bool(policy.cpu_set)
        return _map_by(_mapping(policy, new), modifiers, new) + options
    return [
        *["--nolocal"] * policy.nolocal,
        *["--use-hwthread-cpus"] * policy.hwthread_cpus,
        *(["--cpu-set", policy.cpu_set] if policy.cpu_set else []),
        *_map_by(_mapping(policy, new), modifiers, new),
        *(["--rankfile", policy.rankfile] if policy.rankfile is not None else []),
        *options,
    ]


def _rank_by(policy: Policy, new: bool) -> list[str]:
    """4.1 has fill and span after an object only, 5.0 only without one."""
    how = policy.rank_how
    if policy.rank_by:
        return ["--rank-by", f"{_level(policy.rank_by, new)}{':' + how if how else ''}"]
    if how and not new and policy.map_by not in LEVELS:
        _refuse(f"--rank-by {how}", "Open MPI 4.1 has it for an object that is named; write --rank-by core:" + how)
    return ["--rank-by", how if new else f"{policy.map_by}:{how}"] if how else []


def _refuse_for_5(policy: Policy) -> None:
    if policy.rank_by and policy.rank_by not in _RANKINGS_5:
        _refuse("--rank-by", "Open MPI 5 ranks by slot or node; use one of these")
    if policy.bind_to.startswith("cpu-list"):
        _refuse("--bind-to cpu-list", "Open MPI 5 has --map-by pe-list for it; use --cpu-set with another level")


def _map_by(mapped: str, modifiers: Sequence[str], new: bool) -> list[str]:
    """4.1 separates modifiers by commas, since it takes none after PE=n and a colon; 5.0 separates them by colons."""
    if not new and not mapped and len(modifiers) == 1 and modifiers[0].endswith("OVERSUBSCRIBE"):
        return [f"--{modifiers[0].lower()}"]
    if not (mapped or modifiers):
        return []
    return ["--map-by", f"{mapped}:{(':' if new else ',').join(modifiers)}" if modifiers else mapped]


def _mapping(policy: Policy, new: bool) -> str:
    if new and policy.rankfile is not None:
        return f"rankfile:file={policy.rankfile}"
    if policy.map_by == "ppr":
        parts = (f"{count}:{_level(level, new)}" for count, level in policy.ppr)
        return "ppr:" + ",".join(parts)
    return _level(policy.map_by, new)


def _level(name: str, new: bool) -> str:
    if new and name == "board":
        _refuse("board", "Open MPI 5 knows no boards; use another level")
    return _LEVELS_5.get(name, name) if new else _LEVELS_4.get(name, name)


def _display_options(request: Request, new: bool) -> list[str]:
    """The tables that mpirun prints."""
    shown = [
        *[_MAPS.get(request.display_map, _MAPS["map"])] * bool(request.display_map),
        *[("allocation", "--display-allocation")] * request.display_allocation,
        *[("bind", "--report-bindings")] * request.report_bindings,
        *[("topo", "--display-topo")] * request.display_topology,
    ]
    if new:
        return ["--display", ",".join(word for word, _ in shown)] if shown else []
    return [*(option for _, option in shown), *["-q"] * request.quiet]


def _ssh_options(request: Request, far: Sequence[Node], new: bool) -> list[str]:
    """Options for ssh, or for what --rsh-agent names."""
    import shlex

    link = request.link
    given = list(link.agent_args)
    ports = {node.port for node in far}
    if len(ports) > 1:
        _refuse("port=", "mpirun has one ssh command for all hosts; write their ports into ~/.ssh/config")
    if ports - {None}:
        given += ["-p", str(ports.pop())]
    given += ["-o", "StrictHostKeyChecking=accept-new"] * link.accept_new
    option, kind = ("--prtemca", "plm_ssh") if new else ("--mca", "plm_rsh")
    words = [option, f"{kind}_agent", shlex.join(link.agent)] if link.agent else []
    words += [option, f"{kind}_args", shlex.join(given)] if given else []
    return [*words, *([option, f"{kind}_num_concurrent", str(link.fanout)] if link.fanout != 32 else [])]


def exports_of(app: AppContext, environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """-x of a program: names with their values, or None where mpirun takes the value from its own environment.

    The last -x of a name counts.  Variables that mpirun passes on by itself are left out.
    """
    passed_on = AppContext._field_defaults["forward"]
    chosen: dict[str, str | None] = {}
    for name, value in [*((name, None) for name in app.forward if name not in passed_on), *app.env]:
        if value is None and ("*" in name or "?" in name):
            chosen.update(dict.fromkeys(matching((name,), environ)))
        elif value is not None or name in environ:
            if not name or "\0" in f"{name}{value}":
                raise UsageError(f"{name}={value!r} cannot be a variable", "-x", "a name, and no NUL in the value")
            chosen[name] = value
    return list(chosen.items())
