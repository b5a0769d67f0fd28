"""Our request in the words of Open MPI's mpirun: those of 4.1, and those of 5.0 where they differ.

Pure: a request, an allocation and what is installed go in, words come out.  What mpirun cannot do, or does otherwise
than an option promises, is refused with a sentence.  What we can do better ourselves is not handed over: --timeout,
working directories, log files and tags.  The surprising thing is that no hostfile of the user is: its ranges and
comments are ours, so mpirun gets the hosts that we read, as -H where that can say it, else as a file of ours.
"""

from __future__ import annotations

from mslaunch.datamodel.request import AppContext
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.backends.openmpi.find_mpirun import OpenMpiInstallation
    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.request import Policy, Request

#: what mpirun cannot be asked for: field of the request, the option, why; what to use instead
_CANNOT: tuple[tuple[str, str, str], ...] = (
    ("recovery", "--enable-recovery", "mpirun's exit code is then 0 whatever its ranks return; leave it out"),
    ("restart", "--restart", "no mpirun starts ranks again; leave it out"),
    ("max_restarts", "--max-restarts", "no mpirun starts a rank again; leave it out"),
    (
        "detach",
        "--detach",
        "mpirun stays with its terminal; leave it out, and use nohup and &",
    ),
    ("host", "--scheduler", "MindSpore's scheduler is not mpirun's to place; leave it out"),
    ("port", "--scheduler", "the port of MindSpore's scheduler is not mpirun's to choose; leave it out"),
    ("servers", "--server_num", "mpirun starts ranks alone; leave it out"),
    ("state_on_timeout", "--report-state-on-timeout", "mpirun does not tell how each rank is; leave it out"),
    ("stack_traces", "--get-stack-traces", "ranks of mpirun are not ours to look at; leave it out"),
    ("index_argv", "--index-argv-by-rank", "the name of a program cannot be changed behind mpirun; leave it out"),
    ("xterm", "--xterm", "windows take the output away from us; leave it out"),
    ("outfile", "-outfile-pattern", "which host gets a rank is mpirun's secret; use --output-filename"),
    ("errfile", "-errfile-pattern", "which host gets a rank is mpirun's secret; use --output-filename"),
    ("prepend", "-prepend-pattern", "which host gets a rank is mpirun's secret; use --tag-output"),
    ("preload_binary", "--preload-binary", "mpirun would send a shell in its place; put the program on a shared disk"),
    ("preload_files", "--preload-files", "mpirun loses permissions and folders; put the files on a shared disk"),
    ("session_dir", "--set-cwd-to-session-dir", "mpirun's own directories are not ours to use; use --wdir"),
)
_LEVELS_4 = {"l1cache": "L1cache", "l2cache": "L2cache", "l3cache": "L3cache"}
_LEVELS_5 = {"socket": "package"}
_RANKINGS_5 = ("slot", "node")
_TOOLS_5 = "pmix_tool_support"  #: whether debuggers may find mpirun and its daemons


class MpirunCommand(NamedTuple):
    """What mpirun is told of the whole job, and before each program; and the hosts that need a file."""

    job: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    hostfile: str = ""  # its text; the word HOSTFILE stands for its name


HOSTFILE = "HOSTFILE"  #: among the words, for the name of our hostfile


def refuse(request: Request) -> None:
    """Raises `UsageError` for what cannot be handed over."""
    for field, option, why in _CANNOT:
        for part in (request, request.output, request.cluster, *request.apps):
            if getattr(part, field, None):
                _no(option, why)
    if request.cluster.program != "auto":
        _no("--scheduler-runs", "MindSpore's scheduler is not mpirun's to start; leave it out")
    if not request.abort_on_failure:
        _no("-mca orte_abort_on_non_zero_status", "mpirun then hides how ranks ended, or hangs; leave it out")
    if "detailed" in request.output.tag:
        _no("--output tag-detailed", "which host gets a rank is mpirun's secret; use --output tag")
    if request.stdin == "all":
        _no("--stdin all", "mpirun 4.1 hangs with it; give the rank that reads, or read a file")
    if request.display_map == "table":
        _no("--display-table", "mpirun makes the map; use --display-map")


def _no(option: str, text: str) -> None:
    why, _, todo = text.partition("; ")
    raise UsageError(f"not with --backend openmpi: {why}", option, todo)


def translate(
    request: Request,
    allocation: Allocation,
    counts: Sequence[int],
    mpirun: OpenMpiInstallation,
    exports: Sequence[Sequence[tuple[str, str | None]]],
    root: bool,
    crowded: bool,
) -> MpirunCommand:
    """`counts` and `exports`: ranks and -x of each program.  `root`: we are.  `crowded`: more ranks than cores here,
    and nobody has said that they may not be.
    """
    new = mpirun.style == "5.0"
    job = ["--allow-run-as-root"] if root else []
    job += ["--personality", "ompi"] if mpirun.prterun else []
    job += _without_tools(request) if new else []
    far = [node for node in allocation.nodes if not node.local]
    if far and mpirun.prefix:
        job += ["--prefix", mpirun.prefix]
    job += _placement(request.policy, new, crowded)
    job += _shown(request, new)
    job += _way(request, far, new)
    job += ["--stdin", request.stdin if far else "none"]  # a rank of this host gets it from us
    for name, value in request.mca:
        job += ["--mca", name, value]
    if request.grace != 2.0:
        job += ["--prtemca" if new else "--mca", "odls_base_sigkill_timeout", str(max(1, round(request.grace)))]
    programs: list[tuple[str, ...]] = []
    lines: dict[str, None] = {}
    for number, app in enumerate(request.apps):
        hosts, more = _hosts(allocation, number, request.policy.rankfile is not None and not new)
        lines.update(more)
        programs.append((*hosts, "-n", str(counts[number]), *_of_app(app, exports[number])))
    return MpirunCommand(tuple(job), tuple(programs), "".join(f"{line}\n" for line in lines))


def _without_tools(request: Request) -> list[str]:
    """No files by which debuggers find 5.0: where a killed forerunner of the same pid left its own, it does not start.

    Our guard, too, kills what does not end; and in containers pids recur.
    """
    return [] if _TOOLS_5 in dict(request.mca) else ["--prtemca", _TOOLS_5, "0"]


def _hosts(allocation: Allocation, number: int, by_rankfile: bool) -> tuple[list[str], dict[str, None]]:
    """The words that name a program's hosts, and the lines of the file that they may stand in.

    mpirun's -H takes neither a user nor a host whose slots are its cores.
    """
    if not allocation.declared or by_rankfile:
        return [], {}
    if allocation.sequences and allocation.sequences[number]:
        names = [allocation.nodes[node].name for node in allocation.sequences[number]]
        return ["-H", ",".join(names)], {}
    indices: Sequence[int] = allocation.apps[number] if allocation.apps else range(len(allocation.nodes))
    nodes = [allocation.nodes[index] for index in indices]
    if all(node.slots is not None and not node.user for node in allocation.nodes):
        return ["-H", ",".join(f"{node.name}:{node.slots}" for node in nodes)], {}
    if allocation.apps:
        _no("-H", "hosts of their own for each program need slots and no user; give each host slots=N")
    return ["--hostfile", HOSTFILE], {_line(node): None for node in nodes}


def _line(node: Node) -> str:
    who = f"{node.user}@{node.name}" if node.user and not node.local else node.name
    return who if node.slots is None else f"{who} slots={node.slots}"


def _of_app(app: AppContext, exports: Sequence[tuple[str, str | None]]) -> list[str]:
    words = ["--prefix", app.prefix] if app.prefix else []
    for name, value in exports:
        words += ["-x", name if value is None else f"{name}={value}"]
    return words


def _placement(policy: Policy, new: bool, crowded: bool) -> list[str]:
    """--map-by and its kin."""
    crowd = crowded if policy.oversubscribe is None else policy.oversubscribe
    modifiers = [f"PE={policy.pe}"] * bool(policy.pe) + ["SPAN"] * policy.span
    if crowd or policy.oversubscribe is not None:
        modifiers.append("OVERSUBSCRIBE" if crowd else "NOOVERSUBSCRIBE")
    plain: list[str] = []
    if new:
        modifiers += ["NOLOCAL"] * policy.nolocal + ["HWTCPUS"] * policy.hwthread_cpus
        modifiers += [f"PE-LIST={policy.cpu_set}"] * bool(policy.cpu_set)
    else:
        plain += ["--nolocal"] * policy.nolocal + ["--use-hwthread-cpus"] * policy.hwthread_cpus
        plain += ["--cpu-set", policy.cpu_set] if policy.cpu_set else []
    mapped = _mapped(policy, new)
    if mapped or modifiers:
        plain += _map_by(mapped, modifiers, new)
    if policy.rankfile is not None and not new:
        plain += ["--rankfile", policy.rankfile]
    return [*plain, *_ranked(policy, new), *_bound(policy, new)]


def _map_by(mapped: str, modifiers: Sequence[str], new: bool) -> list[str]:
    """4.1 takes no modifier behind PE=n but with a comma; with 5.0 each has a colon."""
    if not new and not mapped and len(modifiers) == 1 and modifiers[0].endswith("OVERSUBSCRIBE"):
        return [f"--{modifiers[0].lower()}"]
    return ["--map-by", f"{mapped}:{(':' if new else ',').join(modifiers)}" if modifiers else mapped]


def _mapped(policy: Policy, new: bool) -> str:
    if new and policy.rankfile is not None:
        return f"rankfile:file={policy.rankfile}"
    if policy.map_by == "dist":
        _no("--map-by dist", "5.0 has it no more, and 4.1 wants its own words; use another policy")
    if policy.map_by == "ppr":
        parts = (f"{count}:{_level(level, new)}" for count, level in policy.ppr)
        return "ppr:" + ",".join(parts)
    return _level(policy.map_by, new)


def _level(name: str, new: bool) -> str:
    if new and name == "board":
        _no("board", "Open MPI 5 knows no boards; use another level")
    return _LEVELS_5.get(name, name) if new else _LEVELS_4.get(name, name)


def _ranked(policy: Policy, new: bool) -> list[str]:
    if not policy.rank_by:
        return []
    if new and policy.rank_by not in _RANKINGS_5:
        _no("--rank-by", "Open MPI 5 ranks by slot or node; use one of these")
    how = f":{policy.rank_how}" if policy.rank_how else ""
    return ["--rank-by", f"{_level(policy.rank_by, new)}{how}"]


def _bound(policy: Policy, new: bool) -> list[str]:
    if not policy.bind_to:
        return []
    if new and policy.bind_to.startswith("cpu-list"):
        _no("--bind-to cpu-list", "Open MPI 5 has --map-by pe-list for it; use --cpu-set with another level")
    flags = [":overload-allowed"] * policy.overload + [":if-supported"] * policy.if_supported
    return ["--bind-to", _level(policy.bind_to, new) + "".join(flags)]


def _shown(request: Request, new: bool) -> list[str]:
    """What mpirun is to print about itself."""
    shown = []
    if request.display_map:
        shown.append({"map": "map", "devel": "map-devel"}.get(request.display_map, "map"))
    shown += ["allocation"] * request.display_allocation + ["bind"] * request.report_bindings
    shown += ["topo"] * request.display_topology
    if new:
        return ["--display", ",".join(shown)] if shown else []
    old = {"map": "--display-map", "map-devel": "--display-devel-map", "allocation": "--display-allocation",
           "bind": "--report-bindings", "topo": "--display-topo"}  # fmt: skip
    words = [old[word] for word in shown]
    if request.display_map == "diffable":
        words[0] = "--display-diffable-map"
    return [*words, *["-q"] * request.quiet]


def _way(request: Request, far: Sequence[Node], new: bool) -> list[str]:
    """How hosts are reached: by ssh itself, unless --rsh-agent names something else."""
    import shlex

    link = request.link
    given = list(link.agent_args)
    ports = {node.port for node in far}
    if len(ports) > 1:
        _no("port=", "mpirun has one way to all hosts; write their ports into ~/.ssh/config")
    if ports - {None}:
        given += ["-p", str(ports.pop())]
    given += ["-o", "StrictHostKeyChecking=accept-new"] * link.accept_new
    option, kind = ("--prtemca", "plm_ssh") if new else ("--mca", "plm_rsh")
    words = [option, f"{kind}_agent", shlex.join(link.agent)] if link.agent else []
    words += [option, f"{kind}_args", shlex.join(given)] if given else []
    return [*words, *([option, f"{kind}_num_concurrent", str(link.fanout)] if link.fanout != 32 else [])]


def exported(
    app: AppContext, environ: Mapping[str, str], matching: Callable[[str], Sequence[str]]
) -> list[tuple[str, str | None]]:
    """-x of a program: names that mpirun takes from its own environment (None), or values; the last of a name counts.

    `matching` gives the names that a pattern means here.  What mpirun passes on by itself is left out.
    """
    passed_on = AppContext._field_defaults["forward"]
    chosen: dict[str, str | None] = {}
    for name, value in [*((name, None) for name in app.forward if name not in passed_on), *app.env]:
        if value is None and ("*" in name or "?" in name):
            chosen.update(dict.fromkeys(matching(name)))
        elif value is not None or name in environ:
            if not name or "\0" in f"{name}{value}":
                raise UsageError(f"{name}={value!r} cannot be a variable", "-x", "a name, and no NUL in the value")
            chosen[name] = value
    return list(chosen.items())
