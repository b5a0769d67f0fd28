"""Command lines of torchrun: how one is run, with the real torchrun or with ours, and what came of it.

`python tests/compat/torchrun_lines.py TORCHRUN…` records the answers of the real one (`torchrun/answers.json`), and
with --check as the first word tells what has changed in them; TORCHRUN is `python -m torch.distributed.run`, with that
python first in PATH.  They were recorded with torch 2.15.0.  What differs from call to call has a fixed name: a port
that was not named is <any>, a random id is <id>, an address of this host is <here>.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "torchrun" / "answers.json"
BOUND = 120.0  # seconds, for one command
AT_ONCE = 2

#: what each rank runs: it tells what it sees, waits for the others of its host, and ends as its arguments say
TELLS = r"""
import json, os, signal, sys, time
from pathlib import Path

def tell():
    own = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE")}
    rank, node, attempt = int(own["RANK"]), own["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
             "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    seen = {name: value for name, value in os.environ.items() if name in names or name.startswith(("TORCH", "PET_"))}
    Path("seen").mkdir(exist_ok=True)
    text = json.dumps([seen, sys.argv[1:], __name__])
    temporary = Path(f"seen/.{node}.{rank}.{attempt}")
    temporary.write_text(text)
    temporary.rename(f"seen/{node}.{rank}.{attempt}")
    until = time.monotonic() + 60
    while len(list(Path("seen").glob(f"[0-9]*.{attempt}"))) < int(os.environ["WORLD_SIZE"]):
        assert time.monotonic() < until
        time.sleep(0.01)
    os.write(1, b"out %d\n" % rank)
    os.write(2, b"err %d\n" % rank)
    for word in sys.argv[1:]:
        what, _, rest = word.partition("=")
        who, _, how = rest.partition(":")
        if who != str(rank) or (what == "failonce" and attempt != "0"):
            continue
        if what in ("fail", "failonce"):
            time.sleep(0.3)  # the others end before
            sys.exit(int(how))
        if what == "kill":
            time.sleep(0.3)
            os.kill(os.getpid(), int(how))
        if what == "raise":
            time.sleep(0.3)
            message = {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}
            Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": message}))
            sys.exit(1)

tell()
"""


class Line(NamedTuple):
    """One job: the words of its command, or of those on two hosts; {PORT} is a free port, {DIR} the directory."""

    words: str
    env: str = ""
    nodes: int = 1  # {K} in the words is the number of the host

    @property
    def name(self) -> str:
        """It says all."""
        return " ".join([self.env, self.words] if self.env else [self.words]) + f" x{self.nodes}" * (self.nodes > 1)


_TWO = "--nnodes=2 --node-rank={K} --master-addr=127.0.0.1 --master-port={PORT}"
LINES = [
    # which ranks, and what they run
    *map(Line, (
        "tells.py a --b=c", "--nproc-per-node=2 tells.py", "--nproc_per_node 2 tells.py -x",
        "--standalone --nproc-per-node=2 tells.py", "--standalone --nnodes=1 --nproc-per-node 3 -m tells x",
        "--module --nproc-per-node=2 tells --no-python", "--nproc-per-node=2 --no-python python tells.py --standalone",
        "--no_python ./tool.sh 1 2", "--run-path --nproc-per-node=2 {DIR}/tells.py y", "--nnodes=1:1 tells.py",
        "--nnod=1 --nproc-per-node=2 tells.py", "--nproc-per-node=cpu tells.py", "--nproc-per-node=auto tells.py",
        "--nproc-per-node=gpu tells.py", "--nproc-per-node=xpu tells.py", "-- tells.py --nnodes=2",
        "--nproc-per-node=2 tells.py ${local_rank} x=${local_rank}y", "--start-method=fork tells.py",
        "--monitor-interval=0.5 tells.py", "--shutdown-timeout=5 --nproc-per-node=2 tells.py",
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT tells.py", "--event-log-handler=null tells.py",
        "--virtual-local-rank --nproc-per-node=2 tells.py",
    )),
    Line("--virtual-local-rank --nproc-per-node=2 tells.py", "CUDA_VISIBLE_DEVICES=3,5"),
    Line("--nproc-per-node=2 tells.py", "OMP_NUM_THREADS=4"),
    Line("--nproc-per-node=2 tells.py", "CUDA_VISIBLE_DEVICES=0,1"),
    Line("--nproc-per-node=2 tells.py", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0"),
    # where they meet
    *map(Line, (
        "--master-port={PORT} --nproc-per-node=2 tells.py", "--master_addr=127.0.0.1 --master_port {PORT} tells.py",
        "--rdzv-endpoint=127.0.0.1:{PORT} --nproc-per-node=2 tells.py", "--rdzv-end=127.0.0.1:{PORT} tells.py",
        "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{PORT} --rdzv-id=job7 --nproc-per-node=2 tells.py",
        "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id job7 tells.py", "--rdzv-id=job7 tells.py",
        "--rdzv-id=job7 --master-port={PORT} tells.py", "--standalone --rdzv-id=job7 --master-port={PORT} tells.py",
        "--rdzv-conf=timeout=60,read_timeout=30 tells.py", "--role=trainer --nproc-per-node=2 tells.py",
        "--local-addr=127.0.0.1 --nproc-per-node=2 tells.py",
    )),
    # failures
    *map(Line, (
        "--max-restarts=2 --nproc-per-node=2 tells.py", "--max-restarts=2 --nproc-per-node=2 tells.py failonce=1:3",
        "--max-restarts=1 --nproc-per-node=2 tells.py fail=0:5", "--nproc-per-node=2 tells.py fail=1:7",
        "--nproc-per-node=2 tells.py kill=0:9", "tells.py kill=0:15",
        "--log-dir=logs --nproc-per-node=2 tells.py raise=0",
        "nothere.py", "--no-python ./nothere", "-m nothere",
    )),
    Line("--nproc-per-node=2 tells.py raise=1", "TORCHELASTIC_ERROR_FILE=above.json"),
    # logs
    *(Line(f"--nproc-per-node=2 {words} tells.py") for words in (
        "--log-dir=logs", "--log_dir logs -r 3", "--log-dir=logs -r 1", "--log-dir=logs -r 2", "--log-dir=logs -t 3",
        "--log-dir=logs -t 1", "--log-dir=logs -t 2 -r 1", "--log-dir=logs -r 0:1,1:2", "--log-dir=logs -t 0:3",
        "--log-dir=logs -r3 -t 1:1", "--log-dir=logs --redirects=3 --tee=0:2", "-t 3", "-r 3",
        "--local-ranks-filter=0", "--local-ranks-filter=1 -t 3 --log-dir=logs", "--local_ranks_filter 0 -r 3",
        "--log-dir=a/b/logs -r 3", "--role=tr -t 3", "--log-dir=/dev/null -t 3", "--log-dir=/dev/null",
        "--log-line-prefix-template=${rank}/${local_rank}/${role_name}> -t 3",
        "--log-dir=logs --rdzv-id=j1 --master-port={PORT} -r 3",
    )),
    Line("--nproc-per-node=2 --log-dir=logs --max-restarts=1 -r 3 tells.py failonce=0:1"),
    Line("--nproc-per-node=2 -t 1 tells.py", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<$rank>"),
    # the environment
    Line("tells.py", "PET_NPROC_PER_NODE=2"),
    Line("--nproc-per-node=2 tells.py", "PET_NPROC_PER_NODE=3"),
    Line("tells.py", "PET_STANDALONE=1 PET_NPROC_PER_NODE=2"),
    Line("tells.py", "PET_NNODES=1 PET_MASTER_PORT={PORT}"),
    Line("tells.py", "PET_ROLE=x PET_MAX_RESTARTS=3"),
    Line("tells", "PET_MODULE=1"),
    Line("tells.py", "PET_LOG_DIR=logs PET_REDIRECTS=3"),
    Line("tells.py", "PET_NNODES=zwei"),
    Line("tells.py", "PET_STANDALONE=yes"),
    # two hosts, each with a command of its own
    Line(f"{_TWO} --nproc-per-node=2 tells.py", nodes=2),
    Line(f"{_TWO} tells.py", nodes=2),
    Line("--nnodes=2 --node_rank={K} --rdzv-endpoint=127.0.0.1:{PORT} --nproc-per-node=2 tells.py", nodes=2),
    Line(f"{_TWO} --rdzv-id=j2 --log-dir=logs{{K}} -r 3 --nproc-per-node=2 tells.py", nodes=2),
    Line(f"{_TWO} --role=tr -t 1 tells.py fail=0:3 fail=1:4", nodes=2),
    Line("--nproc-per-node=2 tells.py",
         "PET_NNODES=2 PET_NODE_RANK={K} PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT={PORT}", 2),
    Line("--nnodes=1:2 --node-rank={K} --master-addr=127.0.0.1 --master-port={PORT} tells.py", nodes=2),
    # bad input
    *map(Line, (
        "--nnodes=3:2 tells.py", "--nnodes=x tells.py", "--nnodes=0 tells.py", "--nnodes=1:2:3 tells.py",
        "--nproc-per-node=foo tells.py", "--max-restarts=-1 tells.py", "--max-restarts=x tells.py", "-r 5 tells.py",
        "-r 0:9 tells.py", "--no-python -m tells", "--rdzv-endpoint=127.0.0.1 tells.py", "--rdzv-conf=abc tells.py",
        "--local-ranks-filter=a tells.py", "", "--no-such-option tells.py", "--start-method=x tells.py",
        "--rdzv-backend=nothing tells.py", "--shutdown-timeout=-1 tells.py", "--nnodes", "--log-dir=tells.py tells.py",
        "--rdzv-endpoint=127.0.0.1:99999 tells.py", "--monitor-interval=x tells.py", "--node-rank=x tells.py",
        "--logs-specs=mine tells.py", "--event-log-handler=mine tells.py",
    )),
]  # fmt: skip


def run(line: Line, launcher: list[str], python: str) -> dict[str, Any]:
    """What came of it; `python` is the interpreter that ranks get."""
    top = Path(tempfile.mkdtemp(prefix="torchrun-line-"))
    try:
        for folder in ("bin", "tmp", "work"):
            (top / folder).mkdir()
        (top / "bin" / "python").symlink_to(python)
        work = top / "work"
        (work / "tells.py").write_text(TELLS)
        (work / "tool.sh").write_text("#!/bin/sh\npython tells.py tool $*\n")
        (work / "tool.sh").chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        commands = [_start(line, node, launcher, top, port) for node in range(line.nodes)]
        ends = [command.communicate(timeout=BOUND) for command in commands]
        return _answer(line, top, port, [command.returncode for command in commands], ends)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _start(line: Line, node: int, launcher: list[str], top: Path, port: str) -> subprocess.Popen[str]:
    def filled(text: str) -> str:
        return text.replace("{PORT}", port).replace("{K}", str(node)).replace("{DIR}", str(top / "work"))

    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PYTHONPATH") if name in os.environ}
    kept.update(PATH=f"{top}/bin:/usr/local/bin:/usr/bin:/bin", TMPDIR=str(top / "tmp"))
    kept.update(word.split("=", 1) for word in filled(line.env).split())
    return subprocess.Popen(
        [*launcher, *filled(line.words).split()], cwd=top / "work", env=kept, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _answer(line: Line, top: Path, port: str, codes: list[int], ends: list[tuple[str, str]]) -> dict[str, Any]:
    work = top / "work"

    def plain(text: str) -> str:
        text = text.replace(str(work) + "/", "").replace(str(top / "tmp"), "<tmp>")
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
        text = re.sub(r"torchelastic_\w+", "torchelastic_*", text)
        return re.sub(r"_[a-z0-9_]{8}(?=/attempt)", "_*", text)

    seen = {}
    for path in sorted((work / "seen").glob("[0-9]*")):
        env, words, name = json.loads(path.read_text())
        env["MASTER_PORT"] = "<PORT>" if env["MASTER_PORT"] == port else "<any>"
        if env["MASTER_ADDR"] in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
            env["MASTER_ADDR"] = "<here>"
        known = {key: value.replace(port, "<PORT>") if key.startswith("PET_") else plain(value)
                 for key, value in env.items()}  # fmt: skip
        seen[path.name] = [known, [plain(word) for word in words], name]
    logs = {}
    for path in sorted(work.rglob("*")):
        below = str(path.relative_to(work))
        if (
            path.is_file()
            and not below.startswith(("seen", "tells.py", "tool.sh", "__pycache__"))
            and path.name != "run.json"
        ):
            logs[plain(below)] = path.read_text().splitlines()
    # what our own report quotes of a rank is no output
    streams = [sorted(row for text in texts for row in text.splitlines() if re.search(r"\b(out|err) \d$", row)
                     and not row.startswith("  | "))
               for texts in zip(*ends)]  # fmt: skip
    return {"rc": codes, "seen": seen, "stdout": streams[0], "stderr": streams[1], "logs": logs}


def answers(path: Path = ANSWERS) -> dict[str, dict[str, Any]]:
    """The recorded ones, by the names of lines."""
    known: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return known


def record(came: dict[str, dict[str, Any]], path: Path, check: bool) -> int:
    """Write what came of each line, or with `check` tell what has changed; the exit code."""
    if not check:
        text = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in came.items())
        path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
        return 0
    known = answers(path)
    changed = [name for name, one in came.items() if known.get(name) != one]
    for name in changed:
        print(f"{name}\n  recorded {json.dumps(known.get(name))}\n  now      {json.dumps(came[name])}")
    return 1 if changed else 0


def main(words: list[str]) -> int:
    """Record, or with --check compare."""
    check, launcher = words[:1] == ["--check"], words[1:] if words[:1] == ["--check"] else words
    python = shutil.which(launcher[0]) or launcher[0]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        came = dict(zip((line.name for line in LINES), pool.map(lambda line: run(line, launcher, python), LINES)))
    return record(came, ANSWERS, check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
