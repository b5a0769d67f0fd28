"""The command line of a batch system on a cluster: `up`, `exec`, `kill`, `cut`, `heal`, `status` and `down`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

CLUSTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster")
SYSTEM = "/usr/sbin:/sbin:/usr/local/sbin"
EXIT_EXEC = 125  # as `cluster exec`


class SchedulerError(Exception):
    """A refusal or a failure: one sentence for a person, without a final full stop."""


class System(NamedTuple):
    """One batch system."""

    name: str
    title: str
    programs: tuple[str, ...]  # that it needs
    packages: str  # which have them, on Debian
    start: Callable[[Hosts], None]  # with the hosts up; raises `SchedulerError`
    environ: Callable[[str], dict[str, str]]  # for its commands, by the directory of the cluster
    ready: Sequence[str]  # a command on the head, which prints `state` once a host
    state: str  # of a host that takes jobs


class Hosts:
    """The hosts of a cluster that is up."""

    def __init__(self, directory: str, names: Sequence[str], cpus: int) -> None:
        self.directory = directory
        self.names = names
        self.cpus = cpus

    def path(self, *parts: str) -> str:
        """A path below the directory of the system, which all hosts see."""
        return os.path.join(self.directory, "system", *parts)

    def on(self, where: str, *argv: str, environ: dict[str, str] | None = None, check: bool = True) -> str:
        """Run a command there; its standard output.  Raises SchedulerError with what it said, if it fails."""
        done = subprocess.run(
            [*cluster("exec", self.directory), where, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            env={**os.environ, **(environ or {})},
            check=False,
        )
        if done.returncode and check:
            said = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
            raise SchedulerError(f"{argv[0]} on {where}: {said[-600:]}")
        return done.stdout


def cluster(verb: str, directory: str) -> list[str]:
    """The beginning of a command of `scripts/cluster`."""
    return [sys.executable, "-S", CLUSTER, verb, "--dir", directory]


def up(system: System, directory: str, count: int, cpus: int) -> str:
    """Hosts, then the system on them; one sentence.  On failure nothing is left."""
    missing = [name for name in system.programs if not shutil.which(name, path=f"{os.environ['PATH']}:{SYSTEM}")]
    if missing:
        raise SchedulerError(f"{', '.join(missing)}: not found; install the Debian packages {system.packages}")
    began = time.monotonic()
    _run([*cluster("up", directory), str(count)])
    try:
        hosts = Hosts(directory, [f"n{number:02d}" for number in range(1, count + 1)], cpus)
        os.makedirs(hosts.path(), mode=0o755)
        system.start(hosts)
        _wait_until_ready(system, hosts)
    except BaseException:
        down(directory)
        raise
    return f"{system.title} up on {count} hosts in {time.monotonic() - began:.1f} s ({directory})"


def down(directory: str) -> str:
    """End everything, and delete the files of the system, which are not the cluster's; what the cluster says."""
    done = subprocess.run(cluster("down", directory), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SchedulerError(done.stderr.strip().removeprefix("cluster: "))
    if os.path.isdir(directory) and os.lstat(directory).st_uid == os.geteuid():
        shutil.rmtree(os.path.join(directory, "system"), ignore_errors=True)
        with contextlib.suppress(OSError):  # there is something else in it
            os.rmdir(directory)
    return done.stdout.strip()


def _wait_until_ready(system: System, hosts: Hosts) -> None:
    environ, deadline = system.environ(hosts.directory), time.monotonic() + 40
    while True:
        shown = hosts.on("head", *system.ready, environ=environ, check=False).split()
        if shown.count(system.state) >= len(hosts.names):
            return
        if time.monotonic() > deadline:
            raise SchedulerError(f"the hosts take no jobs: {' '.join(shown)[-300:]}; see the logs in {hosts.path()}")
        time.sleep(0.1)  # the system has no event for it


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SchedulerError(done.stderr.strip().removeprefix("cluster: "))


def make_parser(system: System) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    place = f"/tmp/mslaunch-{system.name}-{os.geteuid()}"
    common.add_argument("--dir", metavar="DIR", default=place, help=f"where its files are (default: {place})")
    parser = argparse.ArgumentParser(
        prog=system.name, description=f"{system.title} on N hosts on one machine, for trying out and for tests."
    )
    sub = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, text in (
        ("up", "start N hosts, n01 to nNN, and the head, from which one submits"),
        ("down", "end all of it and delete its files"),
        ("exec", "run a command in a place, in the current directory; end as it ends"),
        ("kill", "power a host off, for good"),
        ("cut", "let the link of a host go silently dead"),
        ("heal", "undo `cut`"),
        ("status", "show the hosts"),
    ):
        verb = sub.add_parser(name, help=text, description=text, parents=[common])
        if name == "up":
            verb.add_argument("count", metavar="N", type=int)
            verb.add_argument(
                "--cpus", metavar="N", type=int, default=4, help="cpus that each host claims (default: 4)"
            )
        if name in ("kill", "cut", "heal"):
            verb.add_argument("where", metavar="nNN")
        if name == "exec":
            verb.add_argument("where", metavar="WHERE", help="head or nNN")
            verb.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER)
    return parser


def _become(argv: Sequence[str], environ: dict[str, str]) -> NoReturn:
    os.execve(argv[0], argv, {**os.environ, **environ})


def main(system: System) -> int:
    """The whole command."""
    arguments = make_parser(system).parse_args()
    directory = os.path.abspath(arguments.dir)
    try:
        if arguments.verb == "up":
            print(up(system, directory, arguments.count, arguments.cpus))
            return 0
        if arguments.verb == "down":
            print(down(directory))
            return 0
        begin = cluster(arguments.verb, directory)
        if arguments.verb == "exec":
            begin += [arguments.where, *arguments.command]
        elif arguments.verb in ("kill", "cut", "heal"):
            begin.append(arguments.where)
        elif arguments.verb == "status":
            shown = Hosts(directory, (), 0).on("head", *system.ready, environ=system.environ(directory))
            print(shown, end="", flush=True)
        _become(begin, system.environ(directory))
    except (SchedulerError, OSError) as error:
        print(f"{system.name}: {error}", file=sys.stderr)
        return EXIT_EXEC if arguments.verb == "exec" else 1
    except KeyboardInterrupt:
        return 130
