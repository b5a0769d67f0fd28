"""Deliberate differences from Open MPI 4.1.4's mpirun, each with its reason.

Each recorded case of `cases/` either passes or is named here; docs/differences.md prints this list (scripts/make-docs).
The test fails for a case that is named here and passes after all, so that the list stays true.
"""

from __future__ import annotations

#: what mslaunch does, and why -> the recorded cases
DELIBERATE: dict[str, tuple[str, ...]] = {
    "A host is called as it was typed, with its domain; mpirun calls it by its first label.": ("host-026", "hf-052"),
    "If no hosts or slots were named, any number of ranks runs on this host: its cores are only a guess.": (
        "map-025",
    ),
    "max_slots is respected, also with --oversubscribe, because the hostfile states it on purpose.": ("map-020",),
    "-n 0 is refused: a script that computed 0 did not mean every slot. Omit -n for that.": ("map-093",),
    "--nolocal without -n starts a rank for each remaining slot, and does not count those that it excluded.": (
        "map-090",
    ),
    "--map-by seq without -n starts a rank for each line of the hostfile.": ("map-101",),
    "Lines of a rankfile may stand in any order.": ("rankfile-09",),
    "Relative hosts (+n0) work in a rankfile, as the man page says.": ("rankfile-10",),
    "IPv6 addresses, in brackets or not, underscores and HOST:N are understood in a hostfile.": (
        "hf-079", "hf-081", "hf-082", "hf-083",
    ),
    "-H +e:2 takes two empty hosts; this host, which has no slot in the hostfile, is not one of them.": ("host-048",),
    "Hosts that get no rank are not contacted, so one that is down does not matter.": ("exit-047",),
    "A tag stands before each line, also before one that a program wrote in two pieces.": ("io-029",),
    "--xml writes well-formed XML for any bytes: ESC becomes &#9243;, its picture.": ("io-036",),
    "--stdin WORD is refused unless it is a rank, all or none.": ("io-059",),
    "No process outlives the launcher, not even after SIGKILL, nor a process that left its rank's session.": (
        "sig-11", "sig-22", "sig-23",
    ),
    "A rank has a session of its own, so that all of its processes can be found and ended.": ("env-034",),
    "Running as root is never refused: in a container every user is root.": ("cli-050", "cli-052", "cli-055"),
    "A rank may start a job of its own; mpirun refuses to run inside one of its ranks.": ("env-035",),
    "A value may follow its option after '=': --np=2.": ("cli-007",),
    "--help is mslaunch's own text: everyday options, and more by topic; an unknown one is an error.": ("cli-047",),
    "--version names mslaunch, so that bug reports do not go to Open MPI.": ("cli-045",),
    "-mca after the program's name belongs to the program: options end there.": ("env-032",),
    "-x on the command line also holds for the programs of --app.": ("mpmd-app-x",),
    "PMIX_RANK and similar variables are set only for programs of Open MPI, which need them.": ("env-001",),
}  # fmt: skip

#: the same, for what no recorded case covers
BESIDES = (
    "--merge-stderr-to-stdout merges on the terminal too, in the order in which a program wrote; mpirun 4.1 merges in "
    "files only.",
    "If the reader of standard output exits (`mslaunch … | head`), ranks are ended in order; mpirun crashes.",
    "--enable-recovery ends with 0 if any rank did; if all failed, with the code of the first.",
    "-mca orte_abort_on_non_zero_status 0 lets the others go on, and the exit code is that of the first failure, as "
    "the man page says; mpirun gives 0, and hangs if a signal ended the rank.",
    "Programs that name MindSpore, torch or JAX are not bound unless an option asks for it: mpirun gives one or two "
    "ranks a core each, on which all of their threads then run.",
    "--cpu-set with --bind-to or --map-by binds within the set, as the man page says; mpirun ignores --bind-to.",
    "With :if-supported, a level that a machine does not have leaves ranks unbound; mpirun refuses.",
    "A parameter given twice with one value (-mca mtl ofi -mca mtl ofi) is accepted.",
    "--preload-files keeps permissions and sends folders; mpirun loses both.",
    "--map-by NOLOCAL and -x patterns (NCCL_*) work as in Open MPI 5.0, and so does ^HOST in -H.",
    "Two ranks that print at the same time never mix within a line.",
    "Names that differ in their domains alone (node.one, node.two) are two hosts; mpirun 4.1 takes them for one. A "
    "name that begins with that of this host is another host if the name service says so.",
    "--bind-to core:REPORT reports the bindings, as 5.0's manual says; mpirun 5.0.11 refuses REPORT unless another "
    "qualifier stands before it.",
    "run.json, the record of the run, lies beside the logs of --output-filename DIR, of msrun's --log_dir and of "
    "torchrun's --log-dir, unless --record says otherwise.",
    "-bind-to-none is taken like -bind-to-core; no mpirun has it.",
)
