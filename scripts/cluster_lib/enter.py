"""Runs a command on a host or on the head.

There are two processes, because only children enter a pid namespace: this one stays outside and represents its command.
It passes signals on, ends as the command ends, and takes the command with it when it is killed.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import NoReturn

from cluster_lib import ClusterError, kernel
from cluster_lib.files import Directory

_NAMESPACES = kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS
PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_NOT_INHERITED = ("SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "OLDPWD")  # they name what is not there


def execute(directory: Directory, where: str, command: list[str]) -> NoReturn:
    """Run a command in a place, in the current directory (or at home, if that is not there), and end as it ends."""
    kernel.need_root()
    state = directory.running()
    terminal = _has_terminal()
    home = directory.home(where)
    _enter(where, state.find_alive(where)[1], home)
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    environment.update(HOME=home, USER="root", LOGNAME="root", SHELL=state.shell, HOSTNAME=where, PWD=os.getcwd())
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        _become(command, environment, alone=not terminal)
    stand_in_for(pid)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


def _enter(where: str, process: kernel.Process, home: str) -> None:
    fd = process.open()
    if fd is None:
        raise ClusterError(f"{where} has ended")
    here = os.getcwd()
    kernel.setns(fd, _NAMESPACES)
    os.close(fd)
    try:
        os.chdir(here)
    except OSError:  # hidden by this place's own /run or /tmp
        os.chdir(home)


def _become(command: list[str], environment: dict[str, str], alone: bool) -> NoReturn:
    try:
        if alone:  # a signal to our process group then reaches the command once, through us
            os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        kernel.restore_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON | {signal.SIGCHLD})
        os.execvpe(command[0], command, environment)
    except OSError as error:
        print(f"cluster: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
    except BaseException:
        os._exit(125)


def stand_in_for(pid: int) -> NoReturn:
    """Pass signals on to a child, which were blocked before it was forked, and end as it ends."""
    while True:
        found = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if found.si_signo != signal.SIGCHLD:
            if found.si_code <= 0:  # sent by a process; what the terminal sends, the command got itself
                os.kill(pid, found.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _die_of(number: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's core is enough
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)
