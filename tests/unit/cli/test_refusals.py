"""The messages of the command for mistakes, in one golden file that is reviewed as a user would read it.

Every text is made by the command itself, in one process that gets all command lines in turn; none of them starts a
rank.  `--update-golden` accepts an intended change; review the diff.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "refusals.txt"

#: names and contents of the files that the command lines name; None makes a directory
FILES = {
    "hosts": "node01 slots=2\nnode02 slots=2\n",
    "dir": None,
    "keyword": "node01 slots=2\nnode02 slot=2\n",
    "number": "node01 slots=two\n",
    "twice": "node01 slots=2\nnode02\nnode01 slots=3\n",
    "empty": "# nothing\n",
    "ranks": "rank 0=node01 slot=0\nrank one=node02 slot=0\n",
    "gap": "rank 0=node01 slot=0\nrank 2=node02 slot=0\n",
    "programs": "-np 1 ./a\n-np two ./b\n",
    "nothing": "# no program\n",
    "tune": "-mca btl tcp\n-np 4\n",
    "one": "-np 1 ./a\n",
    "quoted": "-mca btl 'tcp\n",
    "short": "-x A=1 -mca btl\n",
    "odd/.openmpi/mca-params.conf": "this is nothing\nrmaps_base_mapping_policy = slot\n",
    "home/.openmpi/mca-params.conf": "btl = tcp\nrmaps_base_mapping_policy = sokcet\n",
}

#: a Worker's pod of the Ascend operator
POD = "MINDX_TASK_ID=1 MS_ROLE=MS_WORKER MS_SCHED_HOST=10.96.7.7 MS_SCHED_PORT=2222 MS_WORKER_NUM=4"

#: kind of mistake -> command lines; NAME=VALUE words in front are its environment
MISTAKES = {
    "an option that does not exist": "--frobnicate a",
    "an option that nearly exists": "--hostfle hosts a",
    "a name of 5.0's insides": "--mapby core a",
    "a value that is missing at the end": "-n",
    "a value that is missing before an option": "-n --tag-output a",
    "a word that is no number": "-n four a",
    "a negative number": "-n -2 a",
    "zero ranks": "-n 0 a",
    "a number glued to its option": "-n4 a",
    "a value for a flag": "--tag-output=yes a",
    "one word where two are wanted": "--mca=btl tcp a",
    "no program": "-n 4",
    "no program behind a colon": "-n 1 a : -n 2",
    "no words at all": "",
    "lines folded and tagged": "--fold --tag-output a",
    "a rank to be shown that does not exist": "-n 2 --show-ranks 2 a",
    "ranks to be shown that are no numbers": "--show-ranks first a",
    "an unknown mapping policy": "--map-by sokcet a",
    "an unknown modifier": "--map-by socket:OVERSUBSRIBE a",
    "an unknown object": "--map-by ppr:2:sokcet a",
    "a pattern without its object": "--map-by ppr:2 a",
    "a pattern without a number": "--map-by ppr:two:node a",
    "PE that is no number": "--map-by slot:PE=two a",
    "PE in a place that is too small": "-n 1 --map-by core:PE=2 a",
    "policies that contradict each other": "--bynode --map-by slot a",
    "a rankfile and a policy": "--rankfile ranks --map-by slot a",
    "bindings that contradict each other": "--bind-to none --bind-to-core a",
    "slots that may and may not be exceeded": "--oversubscribe --nooversubscribe a",
    "an unknown thing to bind to": "--bind-to sokcet a",
    "an unknown qualifier": "--bind-to core:overlaod-allowed a",
    "an unknown order of ranks": "--rank-by cores a",
    "no list of cpus": "--cpu-set all a",
    "a cpu that is not there": "-n 1 --cpu-set 999999 a",
    "more ranks than cpus to bind to": "-n 2 --cpu-set 0 --bind-to core a",
    "a variable without a name": "-x =1 a",
    "a parameter without a value": "-n 1 -mca btl",
    "a parameter with two values": "-mca btl tcp -mca btl self a",
    "a parameter that steers, with a bad value": "-mca orte_tag_output perhaps a",
    "a hostfile that is missing": "--hostfile nohosts a",
    "a hostfile that is a directory": "--hostfile dir a",
    "two hostfiles": "--hostfile hosts --machinefile hosts a",
    "a line of a hostfile with an unknown word": "--hostfile keyword a",
    "slots that are no number": "--hostfile number a",
    "a host with two numbers of slots": "--hostfile twice a",
    "a hostfile without hosts": "--hostfile empty a",
    "slots of -H that are no number": "-H node01:two a",
    "more ranks than slots": "-n 5 --hostfile hosts a",
    "more ranks on a node than slots": "-N 3 --hostfile hosts a",
    "a pattern that makes too few ranks": "-n 3 -N 1 --hostfile hosts a",
    "a rankfile that is missing": "--rankfile noranks a",
    "a line of a rankfile that is none": "--rankfile ranks a",
    "a rankfile with a gap": "--rankfile gap a",
    "an appfile that is missing": "--app noprograms",
    "a line of an appfile with a mistake": "--app programs",
    "an appfile without programs": "--app nothing",
    "a tune file that is missing": "--tune notune a",
    "a line of a tune file that is none": "--tune tune a",
    "a bad value in mca-params.conf": "HOME=home a",
    "a variable with a bad value": "MPIEXEC_TIMEOUT=soon a",
    "no directory for logs": "--output-filename :nocopy a",
    "an unknown entry of a list": "--output tga a",
    "an entry of a list that makes no sense here": "--runtime-options exec-agent=gdb a",
    "nobody who could get stdin": "--stdin first a",
    "a limit of time that is none": "--timeout soon a",
    "an option that makes no sense here": "--dvm a",
    "a debugger": "--tv a",
    "a word of another launcher": "-ppn 4 a",
    "a word that is not among the known ones": "--pty maybe a",
    "a value glued to a letter": "-xPATH a",
    "a dash from a page of text": "–np 4 a",
    "a name in capitals": "-NP 4 a",
    "a number that is too large": "-n 9999999999 a",
    "a time with a unit": "--timeout 10m a",
    "a number of restarts below zero": "--max-restarts -1 a",
    "a runtime option without its value": "--runtime-options timeout a",
    "an unknown runtime option": "--runtime-options continous a",
    "two places for output": "--output dir=x --output-filename y a",
    "a value that is missing, of an option with much to say": "--map-by",
    "a word of another launcher without a twin here": "-iface eth0 a",
    "a word of msrun": "-n 4 --worker_num=4 a",
    "a restart that is none": "--restart some a",
    "restarts that contradict each other": "--restart none --max-restarts 2 a",
    "fewer ranks without a group": "--min-ranks 2 a",
    "a delay that is to grow to less": "--restart group --restart-delay 30 --max-restart-delay 10 a",
    "attempts without progress that nothing shows": "--restart group --max-no-progress 2 a",
    "a path of progress that is empty": "--restart group --progress-file= a",
    "more than all ranks": "-n 2 --restart group --min-ranks 3 a",
    "a port to wait for that is none": "-n 1 --ready 0 a : b",
    "a program that nothing waits for": "-n 1 a : -n 1 --ready 6379 b",
    "no time to listen": "-n 1 --ready 6379 --ready-timeout 0 a : b",
    "a port to wait for, with Open MPI": "--backend openmpi -n 1 --ready 6379 a : b",
    "a check, with Open MPI": "--backend openmpi --check a",
    "a scheduler without a port": "--scheduler node01: a",
    "a first word in a later place": "-n 1 --man a",
    "a file of -am that is missing": "-am notune a",
    "a quotation mark that is not closed": "--tune quoted a",
    "a word missing in a tune file": "--tune short a",
    "cpus, as with PALS": "--cpu-bind depth --depth 4 a",
    "the depth of PALS": "--depth=4 a",
    "Intel's old word for ssh": "-r ssh a",
    "Intel's tools": "-gtool valgrind:0 a",
    "Intel's library that checks calls": "-check_mpi a",
    "an option of Open MPI 1.6": "-loadbalance a",
    "an option of IBM's": "-gpu a",
    "srun's --pmi": "--pmi=pmix a",
    "the output of one rank": "-stdout-proc 0 a",
    "checkpoints": "-ckpointlib blcr a",
    "a mapper that is no more": "--mca rmaps lama a",
    "a component that does not exist": "--mca plm shh a",
    "ranks that fill objects, mapped by slot": "--map-by slot --rank-by fill a",
    "no dialect": "--dialect",
    "an unknown dialect": "--dialect hydr a",
    "an unknown shell": "--completion fihs",
    "words behind a shell": "--completion bash zsh",
    "no record of a run": "--report",
    "a record that is missing": "--report norecord.json",
    "a file that is no record": "--report hosts -o page.html",
    "a page without a name": "--report hosts",
    "no directory for shims": "--install-shims",
    "an unknown name of a shim": "--install-shims shims mprun",
    "a dialect that a shim cannot have": "--install-shims shims mpirun=msrun",
    "hydra: -x of mpirun": "--dialect hydra -x A a",
    "hydra: --mca of mpirun": "--dialect hydra --mca btl tcp a",
    "hydra: --oversubscribe of mpirun": "--dialect hydra --oversubscribe a",
    "hydra: an option of mpirun without a twin": "--dialect hydra --report-bindings a",
    "hydra: an option that nearly exists": "--dialect hydra -hsots b a",
    "hydra: a hostfile of mpirun's": "--dialect hydra -f hosts a",
    "hydra: a host without ranks": "--dialect hydra -hosts b:0 a",
    "hydra: hosts given twice": "--dialect hydra -hosts b -f hosts a",
    "hydra: no file of programs": "--dialect hydra -configfile nofile",
    "hydra: words behind the file of programs": "--dialect hydra -configfile one a",
    "hydra: a batch system that is not there": "--dialect hydra -rmk slurm a",
    "hydra: a way to start programs of another system": "--dialect hydra -rmk pbs -bootstrap slurm a",
    "hydra: a way to start programs that is no more": "--dialect hydra -bootstrap pdsh a",
    "hydra: as many ranks as a host has cores": "I_MPI_PERHOST=all --dialect hydra a",
    "hydra: cpus, as with PALS": "--dialect hydra --depth 4 a",
    "hydra: Intel's old word for ssh": "--dialect hydra -r ssh a",
    "hydra: Intel's tools": "--dialect hydra -gtool 'valgrind:0' a",
    "hydra: Intel's library that checks calls": "--dialect hydra -check_mpi a",
    "hydra: srun's --pmi": "--dialect hydra --pmi=pmix a",
    "hydra: a letter that means nothing": "--dialect hydra -prepend-pattern %t a",
    "msrun: a word that is not True": "--dialect msrun --join=perhaps net.py",
    "msrun: more workers here than in all": "--worker_num=2 --local_worker_num=4 net.py",
    "msrun: a host beyond the last": "--worker_num=8 --local_worker_num=4 --node_rank=2 net.py",
    "msrun: a port that is none": "--master_port=80000 net.py",
    "msrun: JSON that is none": "--bind_core={device0} net.py",
    "msrun: a device that is none": '--bind_core=\'{"gpu0": ["1"]}\' net.py',
    "msrun: a file of bindings that is missing": "--bind_numa=nofile.json net.py",
    "msrun: a beginning of several options": "--worker_num=2 --master=a net.py",
    "msrun: a name that is only nearly right": "--dialect msrun --worker-num=2 net.py",
    "msrun: workers that hosts have no slots for": "--worker_num=5 --hostfile hosts net.py",
    "msrun: workers that hosts cannot have each": "--worker_num=5 --local_worker_num=2 --hostfile hosts net.py",
    "msrun: others' workers started again": "--worker_num=4 --local_worker_num=2 --restart group net.py",
    "msrun: no script": "--dialect msrun --worker_num=4",
    "msrun: -n of mpirun": "--dialect msrun -n 4 net.py",
    "a pod without a role that is known": "MINDX_TASK_ID=1 MS_ROLE=MS_CHIEF a",
    "a pod without its scheduler's address": "MINDX_TASK_ID=1 MS_ROLE=MS_WORKER MS_WORKER_NUM=4 a",
    "a pod with a number above its job's": f"{POD} MS_NODE_RANK=4 a",
    "a pod that is to have two programs": f"{POD} MS_NODE_RANK=0 a : b",
    "a pod that is to name its scheduler": f"{POD} MS_NODE_RANK=0 --scheduler n1 a",
    "a pod that is to start all again": f"{POD} MS_NODE_RANK=0 --restart group a",
}

#: notice about a surprising effect -> command lines
NOTED = {
    "-N beside a ppr": "-N 1 --map-by ppr:2:socket --do-not-launch -H localhost:2 a",
    "a program beside --app": "-n 4 --app one --do-not-launch a",
    "a line of mca-params.conf that means nothing": "HOME=odd --do-not-launch a",
    "a parameter of mpirun's that steers nothing here": "-mca orte_set_default_slots numas --do-not-launch a",
    "a modifier that nobody knows": "--output-filename logs:nocpoy --do-not-launch a",
    "a limit for a command that nobody has named": "--health-check-timeout 5 --do-not-launch a",
    "stacks at a time limit that is not there": "--stacks-on timeout --do-not-launch a",
    "attempts without progress that nobody counts": (
        "--max-no-progress 2 --hang-timeout 5 --progress-file f --do-not-launch a"
    ),
    "hydra: -map-by alone": "--dialect hydra -map-by socket --do-not-launch a",
}

#: runs every command line of its standard input and prints (exit code, messages)
DRIVER = """
import json, os, sys, tempfile
sys.path.insert(0, sys.argv[1])
from mslaunch.cli.main import command
clean = dict(os.environ)
answer = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where a dry run prints its map
said = []
for words in json.load(sys.stdin):
    for name in set(os.environ) - set(clean):
        del os.environ[name]
    os.environ.update(clean)
    while words and "=" in words[0] and words[0][0].isupper():
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        code = command(words)
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        file.seek(0)
        said.append([code, file.read().decode()])
print(json.dumps(said), file=answer, flush=True)
"""


LINES = {**MISTAKES, **NOTED}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    where = tmp_path_factory.mktemp("refusals")
    for name, text in FILES.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.mkdir()
        else:
            path.write_text(text, encoding="utf-8")
    foreign = ("OMPI_", "PRTE_", "PMIX_", "HYDRA_", "MSLAUNCH_", "MPIEXEC_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(ROOT)],
        input=json.dumps([shlex.split(words) for words in LINES.values()]),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=where,
        env={**environ, "HOME": str(where)},
    )
    return {kind: (code, anywhere(text)) for kind, (code, text) in zip(LINES, json.loads(done.stdout))}


def anywhere(text: str) -> str:
    """The text without the facts of this machine: its name, and its number of cpus."""
    return re.sub(r"there: 0.*", "there: 0 to N", re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "HOST", text))


def typed(words: str) -> str:
    """The command line as it is typed, its environment in front."""
    first, _, others = words.partition(" ")
    return f"{first} mslaunch {others}" if re.match("[A-Z]", first) else f"mslaunch {words}".rstrip()


def test_refusals_read_well(said: dict[str, tuple[int, str]], golden: Callable[[str, Path], None]) -> None:
    parts = [f"# {kind}\n$ {typed(LINES[kind])}\n{text}" for kind, (_, text) in said.items()]
    golden("\n".join(parts), GOLDEN)


@pytest.mark.parametrize("kind", MISTAKES)
def test_each_mistake_gets_one_message_with_advice(kind: str, said: dict[str, tuple[int, str]]) -> None:
    code, text = said[kind]
    assert code == 1
    first, *others = text.splitlines()
    assert first.startswith("mslaunch: ")
    assert others or ": expected " in first, "what to do, unless the first line says it"
    assert len(others) <= 5
    assert all(line.startswith("  ") for line in others), "what to do is indented"
    assert "Traceback" not in text
    assert len(first) < 260


@pytest.mark.parametrize("kind", NOTED)
def test_an_option_without_effect_is_reported_and_the_launch_goes_on(
    kind: str, said: dict[str, tuple[int, str]]
) -> None:
    code, text = said[kind]
    assert code == 0
    (line,) = text.splitlines()
    assert line.startswith("mslaunch: note: ")
