"""A rank of the cells: prints numbered lines, and keeps a list of its own of what it has printed.

rank.py RUN MODE: RUN is the directory of the cell.  Files in it are signals: `ready.RANK` and others are made here, and
`go`, `fail` are waited for.
"""

import os
import signal
import sys
import time

RUN, MODE = sys.argv[1:3]
RANK = os.environ.get("OMPI_COMM_WORLD_RANK", "?")
WORLD = "child" if MODE == "spawned" else "rank"
BEAT = 0.02


def mark(word):
    os.close(os.open(os.path.join(RUN, f"{word}.{RANK}"), os.O_CREAT | os.O_WRONLY))


def there(word):
    return os.path.exists(os.path.join(RUN, word))


def name(word):
    with open("/proc/self/comm", "w") as file:
        file.write(word)


def sleep_for_good(word):
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    name(word)
    while True:
        signal.pause()


def have_children():
    if os.fork():
        return
    if not os.fork():
        os.setsid()
        sleep_for_good("chaos-grand")
    sleep_for_good("chaos-child")


class Printer:
    """What is in `truth.RANK` was printed before."""

    def __init__(self):
        self.count = 0
        self.truth = os.open(os.path.join(RUN, f"truth.{WORLD}.{RANK}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def line(self):
        line = b"%s %06d %.4f\n" % (RANK.encode(), self.count, time.monotonic())
        self.count += 1
        os.write(1, line)
        os.write(self.truth, line)


class Pmi:
    """PMI-1, as far as it is needed."""

    def __init__(self):
        self.file = os.fdopen(int(os.environ["PMI_FD"]), "r+b", buffering=0)
        self.ask("cmd=init pmi_version=1 pmi_subversion=1\n")

    def ask(self, text):
        self.file.write(text.encode())
        answer = b""
        while not answer.endswith(b"\n"):
            more = self.file.read(4096)
            if not more:
                sys.exit(3)
            answer += more
        return answer.decode()


def spawn(pmi):
    words = ["mcmd=spawn", "nprocs=1", "execname=" + sys.executable, "totspawns=1", "spawnssofar=1", "argcnt=3"]
    words += [f"arg{at}={word}" for at, word in enumerate([sys.argv[0], RUN, "spawned"], 1)]
    words += ["preput_num=0", "info_num=1", "info_key_0=host", "info_val_0=n03", "endcmd", ""]
    mark("spawn")
    answer = pmi.ask("\n".join(words))
    with open(os.path.join(RUN, "spawn-answer"), "w") as file:
        file.write(answer)
    if "rc=0" not in answer:
        sys.exit(9)


def main():
    name("chaos-rank")
    printer = Printer()
    mark("began")
    if MODE == "many":
        printer.line()
        while not there("go"):
            time.sleep(0.1)
        return
    again = os.environ.get("MSLAUNCH_ATTEMPT", "1") != "1"
    have_children()
    printer.line()
    mark("ready.2" if again else "ready")
    pmi = Pmi() if MODE in ("fence", "spawn", "spawned") else None
    if MODE == "ending":
        signal.signal(signal.SIGTERM, lambda *_: mark("asked"))
    if MODE == "spawn" and RANK == "0":
        spawn(pmi)
    if MODE == "fence" and RANK != "0":
        mark("fence")
        pmi.ask("cmd=barrier_in\n")
    while not there("go"):
        printer.line()
        if there("fail") and RANK == "0" and not again:
            os._exit(7)
        time.sleep(BEAT)
    if MODE == "fence" and RANK == "0":
        pmi.ask("cmd=barrier_in\n")
    if pmi:
        pmi.ask("cmd=finalize\n")
    printer.line()


main()
