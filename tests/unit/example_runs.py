"""Records of runs that never took place, for tests of the page and for its picture: small, large, and odd ones.

Times come from a generator with a fixed seed, so that a record is always the same.
"""

from __future__ import annotations

import random
from typing import Any

Record = dict[str, Any]

CODE, TERM = 3, 15


def example(
    ranks: int = 8,
    per_host: int = 4,
    *,
    seconds: float = 112.0,
    failing: int | None = 5,
    restarts: int = 0,
    seed: int = 7,
) -> Record:
    """A run of `ranks` ranks whose last attempt takes `seconds` and ends by `failing`; others end those before."""
    chance = random.Random(seed)
    width = max(2, len(str((ranks - 1) // per_host)))
    count = -(-ranks // per_host)
    cpus = 2 * per_host
    hosts = [_host(chance, f"n{at:0{width}}", at, per_host, cpus) for at in range(count)]
    failing = None if failing is None else min(failing, ranks - 1)
    attempts = []
    began = 0.0
    for number in range(1, restarts + 2):
        length = seconds if number == restarts + 1 else seconds * (0.2 + 0.3 * chance.random())
        who = failing if failing is None or number == restarts + 1 else (failing + 3 * number) % ranks
        attempts.append(_attempt(chance, number, began, length, ranks, per_host, hosts, who))
        began = round(attempts[-1]["ended"] + 0.4, 3)
    last = attempts[-1]
    cause = last["cause"]
    total = last["ended"]
    return {
        "schema": 1, "mslaunch": "0.1.0", "python": "3.11.2", "job": "5d2c81fa",
        "command": ["mslaunch", "-n", str(ranks), "--hostfile", "hosts", "--output-filename", "logs", "python",
                    "train.py", "--epochs", "12"],
        "cwd": "/home/ann/resnet", "host": "n00", "pid": 4711,
        "began": "2026-11-24T09:12:00.123Z", "ended": "2026-11-24T09:14:00.123Z", "seconds": round(total, 3),
        "state": "ended", "code": CODE if cause else 0, "cause": cause,
        "report": _block(cause, ranks) if cause else "",
        "environment": ["HOME", "LANG", "PATH", "VIRTUAL_ENV"], "exported": ["GLOG_v", "OMP_NUM_THREADS"],
        "hosts": hosts,
        "output": _output(chance, total, attempts, ranks),
        "attempts": attempts,
        "restarts": [
            {"seconds": each["ended"], "attempt": each["number"], "rank": None,
             "text": f"attempt {each['number']} of {restarts + 1}: {each['cause']['text']}; all are started again"}
            for each in attempts[:-1]
        ],
        "hangs": [],
    }  # fmt: skip


def _host(chance: random.Random, name: str, at: int, slots: int, cpus: int) -> Record:
    facts = {
        "python": "3.11.2",
        "cpus": cpus,
        "memory": "64 GiB",
        "kernel": "6.1.0-28-amd64",
        "clock": f"{chance.uniform(-3, 3):.1f} ms",
    }
    connected = 0.02 if at == 0 else round(0.18 + chance.expovariate(14), 3)
    return {"name": name, "local": at == 0, "slots": slots, "facts": facts, "connected": connected}


def _attempt(
    chance: random.Random, number: int, began: float, length: float, ranks: int, per_host: int, hosts: list[Record],
    failing: int | None,
) -> Record:  # fmt: skip
    connected = max(host["connected"] for host in hosts) if number == 1 else 0.0
    base = began + connected + 0.06
    rows = []
    failed = None if failing is None else round(began + length, 3)
    for rank in range(ranks):
        host, local = divmod(rank, per_host)
        started = round(base + chance.expovariate(20) + (0.35 if host == 3 else 0.0), 3)
        first = round(started + 0.7 + chance.expovariate(3), 3)
        end = began + length + (0.0 if rank == failing else 0.02 + chance.expovariate(2.5))
        silence = round(0.9 + chance.expovariate(1.2) + (11.0 if rank % 97 == 7 else 0.0), 3)
        good = failing is None
        rows.append({
            "rank": rank, "name": f"rank {rank}", "host": host, "local_rank": local, "app": 0,
            "cpus": f"{2 * local}-{2 * local + 1}", "pid": 3000 + rank * 3, "started": started, "ended": round(end, 3),
            "code": 0 if good else CODE if rank == failing else None,
            "signal": None if good or rank == failing else TERM,
            "lost": False, "by_mslaunch": not good and rank != failing,
            "bytes": int(chance.lognormvariate(10, 0.4)), "first_output": first,
            "last_output": round(max(first, end - (silence if rank == failing else chance.uniform(0.1, 1.1))), 3),
            "silence": silence, "starts": 1,
        })  # fmt: skip
    cause = None
    if failing is not None:
        where = hosts[failing // per_host]["name"]
        text = f"rank {failing} ended with exit code {CODE} on {where}"
        cause = {"kind": "rank_failed", "text": text, "rank": failing, "host": where, "code": CODE}
    return {
        "number": number, "began": began, "connected": round(began + connected, 3) if number == 1 else began,
        "staged": None, "started": min(row["started"] for row in rows),
        "all_started": max(row["started"] for row in rows),
        "failed": failed, "ended": round(max(row["ended"] for row in rows) + 0.02, 3), "cause": cause, "ranks": rows,
    }  # fmt: skip


def _output(chance: random.Random, total: float, attempts: list[Record], ranks: int) -> Record:
    interval = 1.0
    while total / interval > 600:
        interval *= 2
    counts = []
    for at in range(int(total / interval) + 1):
        time = at * interval
        quiet = any(each["began"] - interval < time < each["all_started"] + 1 for each in attempts)
        epoch = 1.0 + 5.0 * (at % 20 == 4)
        counts.append(0 if quiet else int(ranks * 60 * interval * epoch * chance.uniform(0.7, 1.2)))
    return {"interval": interval, "bytes": counts}


def _block(cause: Record, ranks: int) -> str:
    return (
        f"mslaunch: {cause['text']}\n"
        f"  | Traceback (most recent call last):\n"
        f'  |   File "/home/ann/resnet/train.py", line 31, in <module>\n'
        f"  |     step(batch)\n"
        f"  | ValueError: loss is not finite\n"
        f"  log: logs/1/rank.{cause['rank']}/stdout\n"
        f"  {ranks - 1} other ranks were ended"
    )


def running() -> Record:
    """What a launcher that was killed has left: written when its ranks had started, and never again."""
    record = example(4, 2, failing=None)
    record.update(state="running", ended=None, seconds=None, code=None, cause=None, report=None)
    attempt = record["attempts"][0]
    attempt.update(failed=None, ended=None, cause=None)
    for rank in attempt["ranks"]:
        rank.update(ended=None, code=None, signal=None, by_mslaunch=False, last_output=None, silence=None, bytes=None)
    record["output"] = {"interval": 1.0, "bytes": []}
    return record


def begun() -> Record:
    """The first record of a launch: no host has answered."""
    record = running()
    record.update(attempts=[], hosts=[])
    return record


HOSTILE = (
    "<script>alert(1)</script>]]>--><img src=x onerror=alert(2)>\"'&{{7*7}}\x00\x1b[31m\u202eevil\u2066\u200f\ud800"
)


def hostile(text: str = HOSTILE) -> Record:
    """A run in which every text is hostile."""

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {
                **{name: replaced(each, name) for name, each in value.items()},
                **({text: text} if key == "facts" else {}),
            }
        if isinstance(value, list):
            return [replaced(each, key) for each in value]
        return f"{text}{value}" if isinstance(value, str) and key != "state" else value

    record = example(8, 4, restarts=1)
    record["hangs"] = [{"seconds": 60.0, "text": "rank 5 in time.sleep"}]
    made: Record = replaced(record)
    return made
