"""Command lines of torchrun on two hosts with c10d: how they are run on `scripts/cluster`, and what came of them.

`python tests/compat/torchrun_two_hosts.py TORCHRUN…`, as root, records the answers of the real one
(`torchrun/two_hosts.json`), and with --check as the first word tells what has changed in them; TORCHRUN is
`PYTHON -m torch.distributed.run`.  They were recorded with torch 2.13.0.  A start of a rank is named
HOST.LOCAL_RANK.ROUND: a round is what a host has started together, from 0, whatever TORCHELASTIC_RESTART_COUNT says.
The port of the endpoint is <PORT>, others are <any1>, <any2> in the order of rounds: the same name is the same port.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from torchrun_lines import record

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "torchrun" / "two_hosts.json"
CLUSTER = [sys.executable, str(HERE.parents[1] / "scripts" / "cluster")]
HOSTS = ("n01", "n02")
PORT = "29400"
BOUND = 120.0  # seconds, for the commands of one line

#: what each rank runs: it tells what it sees, waits until all ranks of its round have started, and ends as words say
ROUNDS = r"""
import json, os, socket, sys, time
from pathlib import Path

def wait_for(what):
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)

def main():
    host, local, rank = socket.gethostname(), os.environ["LOCAL_RANK"], os.environ["RANK"]
    turn = len(list(Path("seen").glob(f"{host}.{local}.*")))
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
             "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    seen = {name: value for name, value in os.environ.items() if name in names or name.startswith("TORCH")}
    Path(f"seen/.{host}.{local}").write_text(json.dumps(seen))
    Path(f"seen/.{host}.{local}").rename(f"seen/{host}.{local}.{turn}")
    wait_for(lambda: len(list(Path("seen").glob(f"[!.]*.{turn}"))) == int(os.environ["WORLD_SIZE"]))
    print("out", host, local, turn, flush=True)
    planned = False  # some rank fails in this round: the others wait for the end
    for word in sys.argv[1:]:
        who, turns, how = word.split(":")
        if str(turn) not in turns:
            continue
        planned = True
        code, _, ended = how.partition("@")  # @HOST: when the command of that host has ended
        if f"{host}.{local}".startswith(who):
            time.sleep(0.3)  # a launcher notices that its ranks have started
            wait_for(lambda: not ended or Path(f"ended.{ended}").exists())
            sys.exit(int(code))
    if planned:
        time.sleep(60)

main()
"""


class Line(NamedTuple):
    """The words of the two commands, {K} is the number of the host; `ranks` are those behind it on each host."""

    words: str
    ranks: tuple[int, int] = (2, 2)
    plan: str = ""  # HOST[.LOCAL_RANK]:ROUNDS:CODE[@HOST], with blanks between
    endpoint: str = "n01"
    first: str = "n01"  # whose command is started before the other

    @property
    def name(self) -> str:
        """It says all."""
        counts = "+".join(map(str, self.ranks))
        return f"{self.words} {counts} at {self.endpoint}, first {self.first} {self.plan}".strip()


_AGAIN = "--max-restarts=2 --log-dir=logs{K} -r 3"
LINES = [
    Line(""), Line("", first="n02"), Line("", endpoint="n02"), Line("", endpoint="n02", first="n02"),
    Line("--log-dir=logs{K} -r 3 --rdzv-id=j"), Line("--role=tr"),
    Line("", (1, 3)), Line("", (3, 1)), Line("", (1, 1)),
    Line(_AGAIN, plan="n02.0:01:3"), Line(_AGAIN, plan="n01.0:01:3"), Line(_AGAIN, (1, 2), "n02.1:0:3 n01.0:1:4"),
    Line(_AGAIN, plan="n01.0:012:3"), Line(_AGAIN, plan="n02.0:012:3 n01:2:1@n02"),
    Line("", plan="n01.0:0:3"), Line("", plan="n02.0:0:3 n01:0:1@n02"),
]  # fmt: skip


def run(line: Line, launcher: list[str], place: list[str]) -> dict[str, Any]:
    """What came of it; `place` and a host are the beginning of a command that runs there."""
    top = Path(tempfile.mkdtemp(prefix="torchrun-hosts-"))
    try:
        (top / "seen").mkdir()
        (top / "rounds.py").write_text(ROUNDS)
        hosts = sorted(HOSTS, key=lambda host: host != line.first)
        commands = {}
        for host in hosts:
            commands[host] = _start(line, host, launcher, top, place)
            if host == line.first and line.first == line.endpoint:
                _wait_until_it_listens(host, place, commands[host])
        codes = _ends(commands, top)
        return _answer(top, codes)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _start(line: Line, host: str, launcher: list[str], top: Path, place: list[str]) -> subprocess.Popen[bytes]:
    number = HOSTS.index(host)
    meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={line.endpoint}:{PORT}"]
    words = [*meet, f"--nproc-per-node={line.ranks[number]}", *line.words.replace("{K}", str(number)).split()]
    (top / f"tmp{number}").mkdir()
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(top / f"tmp{number}")}
    with open(top / f"stderr.{host}", "wb") as err:
        return subprocess.Popen([*place, host, *launcher, *words, "rounds.py", *line.plan.split()], cwd=top, env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)  # fmt: skip


def _wait_until_it_listens(host: str, place: list[str], command: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + BOUND
    while command.poll() is None and time.monotonic() < until:
        tables = [*place, host, "cat", "/proc/net/tcp", "/proc/net/tcp6"]
        if f":{int(PORT):04X} ".encode() in subprocess.run(tables, check=False, stdout=subprocess.PIPE).stdout:
            return
        time.sleep(0.1)


def _ends(commands: dict[str, subprocess.Popen[bytes]], top: Path) -> dict[str, int | None]:
    until = time.monotonic() + BOUND
    codes: dict[str, int | None] = dict.fromkeys(sorted(commands))
    while None in codes.values() and time.monotonic() < until:
        for host, command in commands.items():
            if codes[host] is None and command.poll() is not None:
                codes[host] = command.returncode
                (top / f"ended.{host}").touch()
        time.sleep(0.02)
    for command in commands.values():
        command.kill()  # `exec` ends what it runs
        command.wait()
    return codes


def _answer(top: Path, codes: dict[str, int | None]) -> dict[str, Any]:
    ports = {PORT: "<PORT>"}

    def plain(text: str) -> str:
        text = re.sub(re.escape(str(top)) + r"/tmp\d", "<tmp>", text).replace(f"{top}/", "")
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
        text = re.sub(r"torchelastic_\w+", "torchelastic_*", text)
        return re.sub(r"_[a-z0-9_]{8}(?=/attempt)", "_*", text)

    seen = {}
    for path in sorted((top / "seen").glob("[!.]*"), key=lambda path: (int(path.suffix[1:]), path.name)):
        env = {name: plain(value) for name, value in json.loads(path.read_text()).items()}
        env["MASTER_PORT"] = ports.setdefault(env["MASTER_PORT"], f"<any{len(ports)}>")
        seen[path.name] = env
    errors = {host: re.findall(r"^[\w.]+Error\b", (top / f"stderr.{host}").read_text(), re.M)[-1:] for host in HOSTS}
    paths = sorted(top.glob("logs*/**/*.log"))
    logs = {plain(str(path.relative_to(top))): path.read_text().splitlines() for path in paths}
    return {"rc": codes, "errors": errors, "seen": seen, "logs": logs}


def main(words: list[str]) -> int:
    """Record, or with --check compare."""
    check, launcher = words[:1] == ["--check"], words[1:] if words[:1] == ["--check"] else words
    with tempfile.TemporaryDirectory(prefix="two-hosts-") as folder:
        cluster = [*CLUSTER, "--dir", f"{folder}/cluster"]
        subprocess.run([*cluster, "up", str(len(HOSTS))], check=True, stdout=subprocess.DEVNULL)
        try:
            came = {line.name: json.loads(json.dumps(run(line, launcher, [*cluster, "exec"]))) for line in LINES}
        finally:
            subprocess.run([*cluster, "down"], check=True, stdout=subprocess.DEVNULL)
    return record(came, ANSWERS, check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
