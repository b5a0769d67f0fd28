"""The commands of `scripts/cluster`, one function each.

`_enter_hub` moves this process into another namespace for good: a command does one thing and ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from cluster_lib import ClusterError, build, files, kernel, network, outfit, tools
from cluster_lib.files import HEAD, Directory, State


class Options(NamedTuple):
    """The options of `up`."""

    delay: float | None = None
    loss: float | None = None
    shell: str | None = None
    sshd_options: tuple[str, ...] = ()
    private_tmp: bool = False
    visible: tuple[str, ...] = ()


# -- up and down ------------------------------------------------------------------------------------------------


def up(directory: Directory, count: int, options: Options) -> str:
    """Start `count` hosts; one sentence about them.  On failure nothing is left."""
    began = time.monotonic()
    kernel.need_root()
    if not 1 <= count <= files.MAX_HOSTS:
        raise ClusterError(f"a cluster has 1 to {files.MAX_HOSTS} hosts, not {count}")
    shell = options.shell or ("/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh")
    if not os.access(shell, os.X_OK):
        raise ClusterError(f"--shell: {shell} is no program")
    _check("delay", options.delay)
    _check("loss", options.loss)
    programs = {name: tools.find(name) for name in ("sshd", "ssh-keygen", "ip", "bridge", "sleep")}
    with directory.locked():
        old = directory.load()
        if old is not None and old.anchor.alive:
            raise ClusterError(f"a cluster of {len(old.hosts)} hosts is already up in {directory.path}: `down` ends it")
        directory.clear()  # of an `up` that was killed
        plan = build.Plan(
            directory,
            files.name_places(count),
            programs["sshd"],
            programs["ssh-keygen"],
            programs["sleep"],
            options.delay,
            options.loss,
            options.private_tmp,
            options.visible,
        )
        state = _start(plan, shell, options.sshd_options)
    how = f", {state.network}, delay {state.delay:g} ms, loss {state.loss:g} %" if state.network != "bridge" else ""
    return f"{count} hosts up in {time.monotonic() - began:.2f} s ({directory.path}{how})"


def _start(plan: build.Plan, shell: str, sshd_options: tuple[str, ...]) -> State:
    directory, places = plan.directory, plan.places
    anchor: kernel.Process | None = None
    try:
        outfit.write_system_files(directory, places, shell, sshd_options, plan.sshd)
        pid, sock = build.start_anchor(plan)
        with sock:
            anchor = kernel.Process.of(pid)
            state = State(anchor, False, "bridge", plan.delay or 0.0, plan.loss or 0.0, shell, places)
            directory.save(state)
            sock.send(b"go")
            state = _gather(sock, state)
            _wait_for_sshd(directory, state)
            state = state._replace(complete=True)
            directory.save(state)
            sock.send(b"stay")
            build.read_report(sock)
            return state
    except BaseException:
        if anchor is not None:
            anchor.kill()
        directory.remove()
        raise


def _gather(sock: socket.socket, state: State) -> State:
    """Read reports until all places are there."""
    missing = {place.name for place in state.places}
    while missing:
        report, pid = build.read_report(sock)
        word, _, rest = report.partition(" ")
        if word == "network":
            state = state._replace(network=rest)
        elif word in missing:
            missing.remove(word)
            state = state.replace_place(state.find(word)._replace(process=kernel.Process.of(pid)))
    return state


def _wait_for_sshd(directory: Directory, state: State) -> None:
    """Until every host listens at port 22.  Raises ClusterError with its log if an sshd ends or takes too long."""
    deadline = time.monotonic() + build.PATIENCE
    for place in state.hosts:
        assert place.process is not None
        while not _listens(place.process.pid):
            if not place.process.alive or time.monotonic() > deadline:
                with open(directory.join("log", place.name), encoding="utf-8", errors="replace") as file:
                    said = "; ".join(file.read().splitlines()[-3:])
                raise ClusterError(f"the sshd of {place.name} did not start: {said or 'it said nothing'}")
            time.sleep(0.002)  # the kernel tells nobody when a port begins to listen


def _listens(pid: int) -> bool:
    """True if something listens at port 22 in the network namespace of this process; proc(5), net/tcp."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
        return any(row[1].endswith(":0016") and row[3] == "0A" for row in rows)
    return False


def down(directory: Directory) -> str:
    """End everything, also what a killed `up` left; one sentence."""
    try:
        directory.check_owner()
    except FileNotFoundError:
        return f"no cluster in {directory.path}"
    if not os.path.exists(directory.join("lock")):
        return f"no cluster in {directory.path}"
    with directory.locked():
        state = directory.load()
        if state is not None:
            kernel.need_root()
            state.anchor.kill()  # its end is the end of every process of the cluster
        directory.remove()
    return f"down ({directory.path})"


# -- changes ----------------------------------------------------------------------------------------------------


def set_link(directory: Directory, name: str, whole: bool) -> None:
    """Cut or heal the link of a place, without a notice to its peers."""
    with directory.locked():
        state = directory.running()
        place, _ = state.find_alive(name)
        _set_port(directory, state, name, whole)
        directory.save(state.replace_place(place._replace(cut=not whole)))


def kill(directory: Directory, name: str) -> None:
    """Power off: the link goes first, so that no peer sees a connection closed."""
    with directory.locked():
        state = directory.running()
        place = state.find(name)
        if name == HEAD:
            raise ClusterError("the head cannot be killed, only cut")
        if place.process is None or not place.process.alive:
            return
        _set_port(directory, state, name, False)
        directory.save(state.replace_place(place._replace(cut=True)))
        place.process.kill()


def set_network(directory: Directory, what: str, value: float, names: Sequence[str] = ()) -> None:
    """Change the one-way delay (ms) or the loss (percent) of every link, of that of one place, or between two."""
    _check(what, value)
    with directory.locked():
        state = directory.running()
        if state.network == "bridge":
            raise ClusterError(f"a plain bridge has no {what}: start the cluster with `up N --delay 0` to set it later")
        for name in names:
            state.find_alive(name)
        if names:
            if state.network != "switch":
                raise ClusterError("single links have settings of their own only where the network is the switch")
            network.ask_switch(directory.path, f"{what} {value} {' '.join(names)}")
            return
        state = state._replace(delay=value) if what == "delay" else state._replace(loss=value)
        if state.network == "switch":
            network.ask_switch(directory.path, f"{what} {value}")
        else:
            _enter_hub(state)
            alive = [place.name for place in state.places if place.process is not None and place.process.alive]
            network.impair(alive, state.delay, state.loss)
        directory.save(state)


def _check(what: str, value: float | None) -> None:
    most, unit = (60_000, "ms") if what == "delay" else (100, "%")
    if value is not None and not 0 <= value <= most:  # NaN is not either
        raise ClusterError(f"a {what} is 0 to {most} {unit}, not {value:g}")


def _set_port(directory: Directory, state: State, name: str, whole: bool) -> None:
    if state.network == "switch":
        network.ask_switch(directory.path, f"{'heal' if whole else 'cut'} {name}")
    else:
        _enter_hub(state)
        network.set_port(name, whole)


def _enter_hub(state: State) -> None:
    """Move this process into the network namespace of the bridge."""
    fd = state.anchor.open()
    if fd is None:
        raise ClusterError("the cluster has ended")
    kernel.setns(fd, kernel.CLONE_NEWNET)
    os.close(fd)


# -- questions --------------------------------------------------------------------------------------------------


def status(directory: Directory) -> str:
    """A table, for people."""
    state = directory.running()
    kind = {"bridge": "plain bridge", "netem": "bridge with netem", "switch": "user-space switch"}[state.network]
    if state.network != "bridge":
        kind += f", one-way delay {state.delay:g} ms, loss {state.loss:g} %"
    lines = [f"{len(state.hosts)} hosts in {directory.path}, {kind}"]
    if state.network == "switch":
        lines.append(network.ask_switch(directory.path, "status"))
    lines.append(f"{'name':6} {'address':14} {'state':6} {'pid':>8}  home")
    for place in state.places:
        alive = place.process is not None and place.process.alive
        word = "killed" if not alive else "cut" if place.cut else "up"
        pid = str(place.process.pid) if place.process is not None and alive else "-"
        lines.append(f"{place.name:6} {place.address:14} {word:6} {pid:>8}  {directory.home(place.name)}")
    return "\n".join(lines)


def hostfile(directory: Directory, slots: int | None) -> str:
    """The hosts, as a hostfile of Open MPI."""
    suffix = f" slots={slots}" if slots is not None else ""
    return "\n".join(place.name + suffix for place in directory.running().hosts)
