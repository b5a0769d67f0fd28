"""Runs on the head: N launches by the command, and some by the Python API in this process; prints JSON now and
then.

launches.py N: of 20 launches, 17 are of `true` on this host, one is on four hosts, in one a rank fails, and in one the
launcher is killed once the ranks run.
"""

import json
import os
import signal
import subprocess
import sys

COMMAND = [sys.executable, "-m", "mslaunch", "-n", "8", "--oversubscribe", "--quiet"]
HOSTS = ["-H", "n01:2,n02:2,n03:2,n04:2"]


def plain():
    return subprocess.run([*COMMAND, "true"], stdin=subprocess.DEVNULL, check=False).returncode == 0


def on_hosts():
    return subprocess.run([*COMMAND, *HOSTS, "true"], stdin=subprocess.DEVNULL, check=False).returncode == 0


def failing():
    words = [*COMMAND, "sh", "-c", "test $OMPI_COMM_WORLD_RANK != 3"]
    return subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 1


def killed():
    words = [*COMMAND, "sh", "-c", "echo ready; exec sleep 1000"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        for _ in range(8):
            process.stdout.readline()
        process.kill()
    return process.returncode == -signal.SIGKILL


def by_api():
    import mslaunch

    return mslaunch.launch(["true"], np=8, options=["--oversubscribe", "--quiet"]).code == 0


def held():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    memory = int(lines["VmRSS"].split()[0])
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": int(lines["Threads"]), "memory_kib": memory}


def main():
    count = int(sys.argv[1])
    kinds = [plain] * 17 + [on_hosts, failing, killed]
    wrong = {}
    for number in range(count):
        kind = kinds[number % 20]
        if not kind():
            wrong[kind.__name__] = wrong.get(kind.__name__, 0) + 1
        if number % 100 == 99:
            print(json.dumps({"launches": number + 1, "wrong": wrong}), flush=True)
    api = max(5, count // 10)
    first = None
    for number in range(api):
        if not by_api():
            wrong["by_api"] = wrong.get("by_api", 0) + 1
        if number == 4:
            first = held()
    print(json.dumps({"launches": count, "by_api": api, "wrong": wrong, "before": first, "after": held()}), flush=True)


main()
