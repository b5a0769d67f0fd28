"""MPI programs: how long MPI_Init takes, a fence over many hosts, and the speed of messages afterwards.

Round trips are counted by giving the network a delay that exceeds everything else: a fence that takes one delay to the
launcher and one back has made one round trip.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from mpi_lib import MpiError, libraries
from mpi_lib.libraries import Library
from mpi_lib.places import HERE, Place, place_of

from bench_lib import BenchError, table
from bench_lib.contenders import BASE, OURS, Launcher
from bench_lib.table import Row
from bench_lib.timing import Sample, Spec, adopting, clean_environ, paired, show_progress, sweep

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
INIT_TARGETS = {
    ("openmpi4", 4): 0.7, ("openmpi4", 32): 0.7, ("openmpi5", 4): 0.7, ("openmpi5", 32): 0.7,
    ("mpich", 4): 1.2, ("mpich", 32): 1.0,
}  # fmt: skip
COMPILED = ("mpich", "openmpi4", "openmpi5")
DELAY = 50.0  #: ms, one way between head and hosts
TRAFFIC_TARGET = 1.25  #: what is called noise
MESSAGES = (("8 bytes", "8", "2000"), ("1 MiB", "1048576", "60"))


def compiled(library: Library, name: str) -> str:
    """The path of a program, made by the library's compiler, in the current directory."""
    path = os.path.abspath(f"{name}-{library.name}")
    return path if os.path.exists(path) else _compile(library.compiler, name, path)


def _compile(compiler: str, name: str, path: str) -> str:
    words = [compiler, "-O2", "-o", path, os.path.join(PROGRAMS, f"{name}.c")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise BenchError(f"`{' '.join(words)}` failed: {done.stderr.strip()[-300:]}")
    return path


def start(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """MPI_Init and MPI_Finalize, each program under mslaunch and under its library's launcher."""
    _may_run_as_root()
    found = []
    for library in _libraries():
        program = [compiled(library, "init")]
        for n in (4, 32):
            asked, theirs = _both(launchers, library, n, program)
            what = f"MPI_Init, MPI_Finalize: {n} ranks of {library.title}"
            results = paired(Spec(asked, rounds, 60.0), what)
            target = INIT_TARGETS.get((library.name, n), 0.0) if theirs != BASE else 0.0
            found += table.rows(what, OURS, results, {theirs: target})
    return found


def _libraries() -> list[Library]:
    found = [library for name, library in libraries.find_all().items() if name in COMPILED]
    if not found:
        raise BenchError(
            "no MPI library is here: run scripts/test once, or set MSLAUNCH_TEST_MPICH_PYTHON and its like"
        )
    return found


def _both(
    launchers: Mapping[str, Launcher], library: Library, n: int, program: Sequence[str], place: Place = HERE
) -> tuple[dict[str, list[str]], str]:
    """Ours and theirs, and the name of the latter: the library's own launcher, or the other checkout of ours."""
    if BASE in launchers:
        pair = (OURS, BASE)
        return {name: libraries.ours([launchers[name].path], library, place, n, program) for name in pair}, BASE
    theirs = f"its {os.path.basename(library.launcher).partition('.openmpi')[0]}"
    ours = [launchers[OURS].path]
    return {
        OURS: libraries.ours(ours, library, place, n, program),
        theirs: libraries.native(library, place, n, program),
    }, theirs


def fence(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """64 ranks over 8 hosts, with a client of PMI-1 that is no MPI program.

    With a few bytes a rank, the delay counts the messages of the protocol; with 1 KiB, 64 KiB go to each host, which
    TCP does not send at once on a connection that is new.
    """
    known = libraries.find_all()
    if "mpich" not in known:
        raise BenchError("the fence is compared with MPICH's hydra, which is not here: run scripts/test once")
    path = _compile("gcc", "fence", os.path.abspath("fence"))
    library = known["mpich"]._replace(env_of_hosts={})
    found = []
    with place_of(8, "--delay", str(DELAY)) as place:
        for size, number in (("16 bytes", "16"), ("1 KiB", "1000")):
            asked, theirs = _both(launchers, library, 64, [path, number], place)
            asked[OURS][-4:-4] = ["--mpi", "pmi1"]
            what = f"a fence, 64 ranks × {size} over 8 hosts, {2 * DELAY:.0f} ms there and back"
            results = _printed(asked, rounds, 60.0, what)
            found += [_trips(row, results[name]) for row, name in zip(table.rows(what, OURS, results), (OURS, theirs))]
    return found


def _trips(row: Row, samples: Sequence[Sample]) -> Row:
    """With the number of round trips; ours may take one."""
    good = sorted(sample.seconds for sample in samples if sample.good)
    trips = good[len(good) // 2] / (2 * DELAY / 1000) if good else float("inf")
    if row.cells[1] != OURS:
        return Row((*row.cells[:-2], "", f"{trips:.2f} round trips"))
    return Row((*row.cells[:-2], "< 2 round trips", f"{trips:.2f}"), trips >= 2)


def traffic(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """Messages between two ranks, in one host's memory and over TCP."""
    _may_run_as_root()
    found = []
    for hosts in (1, 2):
        with place_of(hosts) as place:
            for library in _libraries():
                for size, bytes_, turns in MESSAGES:
                    program = [compiled(library, "pingpong"), bytes_, turns]
                    asked, theirs = _both(launchers, library, 2, program, place)
                    way = "in memory" if hosts == 1 else "between hosts"
                    what = f"{size} one way {way}, {library.title}"
                    results = _printed(asked, rounds, 60.0, what)
                    found += table.rows(what, OURS, results, {theirs: TRAFFIC_TARGET})
    return found


def _printed(asked: Mapping[str, Sequence[str]], rounds: int, bound: float, what: str) -> dict[str, list[Sample]]:
    """By turns, as `paired`, but the time is what the program has said: the longest of its ranks."""
    found: dict[str, list[Sample]] = {name: [] for name in asked}
    with adopting():
        for turn in range(rounds):
            for name, argv in asked.items():
                found[name].append(_say(argv, bound))
            show_progress(f"{what}: {turn + 1} of {rounds}")
    show_progress("")
    return found


def _say(argv: Sequence[str], bound: float) -> Sample:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(argv, env=clean_environ(), start_new_session=True, **streams)  # type: ignore[call-overload]
    begin, hung = time.monotonic(), False
    try:
        text = process.communicate(timeout=bound)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        process.kill()
        text, hung = process.communicate()[0].decode("utf-8", "replace"), True
    sweep()
    said = [float(line.split()[1]) for line in text.splitlines() if line.startswith("seconds ")]
    seconds = max(said, default=time.monotonic() - begin)
    return Sample(seconds, 0.0, process.returncode or int(not said), hung, 0, -1)


def _may_run_as_root() -> None:
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


GROUPS = {"mpi": start, "fence": fence, "traffic": traffic}


def measure(group: str, launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """One of GROUPS.  Raises BenchError."""
    try:
        return GROUPS[group](launchers, max(2, rounds // 3))
    except MpiError as error:
        raise BenchError(str(error)) from None
