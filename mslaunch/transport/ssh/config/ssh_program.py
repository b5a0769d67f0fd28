"""What only other programs can tell about an SSH configuration: `ssh -G`, and the commands of Match exec."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mslaunch.errors import LinkError
from mslaunch.host.helper_programs import end_session, find_helper
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, lines_of
from mslaunch.transport.ssh.deadline import ConnectCancelled

if TYPE_CHECKING:
    import subprocess


class ConfigPrograms:
    """Runs programs for the threads that read the configuration, each in a session of its own, and can end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[threading.Thread, subprocess.Popen[bytes]] = {}
        self._ended: set[threading.Thread] = set()

    def run(self, words: Sequence[str], environ: Mapping[str, str], capture: bool) -> tuple[int, bytes, bytes]:
        """The exit status, and what was captured of stdout and stderr; stderr is that of the launcher otherwise.

        Raises OSError if it cannot be started, and ConnectCancelled after `end` for this thread.
        """
        import subprocess

        me, pipe = threading.current_thread(), subprocess.PIPE if capture else None
        with self._lock:
            if me in self._ended:
                raise ConnectCancelled
            started = self._running[me] = subprocess.Popen(
                words,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=pipe or subprocess.DEVNULL,
                stderr=pipe,
                start_new_session=True,
            )
        try:
            out, err = started.communicate()
        finally:
            with self._lock:
                del self._running[me]
                cancelled = me in self._ended
        if cancelled:
            raise ConnectCancelled
        return started.returncode, out or b"", err or b""

    def end(self, thread: threading.Thread) -> None:
        """End the program that a thread is waiting for, with all that it has started, and let it start no other."""
        with self._lock:
            self._ended.add(thread)
            if thread in self._running:
                end_session(self._running[thread])


def succeeds(command: str, environ: Mapping[str, str], programs: ConfigPrograms) -> bool:
    """Whether a command of Match exec ends with 0, in the user's shell and without output, as ssh runs it."""
    return programs.run([environ.get("SHELL") or "/bin/sh", "-c", command], environ, False)[0] == 0


def find_ssh(environ: Mapping[str, str]) -> str:
    """The path of the ssh program; "" without one.  Directories of PATH that are not absolute do not count."""
    return find_helper("ssh", environ)


def ask_ssh(
    name: str, args: Sequence[str], environ: Mapping[str, str], reason: str, programs: ConfigPrograms
) -> dict[str, list[str]]:
    """What `ssh -G` prints for a host and differs from what it prints without any configuration.  Raises LinkError."""
    program = find_ssh(environ)
    if not program:
        raise LinkError(f"{reason}, and there is no ssh program to ask", name, f"Rewrite it. {WAY_OUT}")
    answers = []
    for each in (args, ["-F", "none"]):
        status, out, err = programs.run([program, "-G", *each, "--", name], environ, True)
        if status:
            said = err.decode(errors="replace").strip()
            raise LinkError(f"{reason}, and ssh -G says: {said}", name, WAY_OUT)
        answers.append(_printed(out))
    found, usual = answers
    return {key: values for key, values in found.items() if values != usual.get(key)}


def _printed(out: bytes) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    text = out.decode("utf-8", "surrogateescape")
    for line in lines_of("\n".join(each for each in text.split("\n") if " " in each), "ssh -G"):
        values.setdefault(line.key, []).append(line.rest)
    return values


def account_file(home: str, account_home: str, system: str) -> list[str]:
    """The arguments by which ssh reads the configuration below HOME; by itself it reads that of the account."""
    if home == account_home:
        return []
    mine = f"{home}/.ssh/config"
    return ["-F", mine if os.path.exists(mine) else system if os.path.exists(system) else "none"]
