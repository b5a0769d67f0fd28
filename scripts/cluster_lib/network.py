"""Links between hosts: a plain bridge, a bridge whose ports delay and lose frames (netem), or a switch in user space.

The bridge and its ports are in the anchor's network namespace, the hub, which no host can see; each port has the name
of its host.  A link is cut by the bridge's port state "disabled": both ends keep their carrier and frames are dropped.
A link that was set down would be noticed by the host.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from cluster_lib import ClusterError, tools


def choose(impaired: bool) -> str:
    """bridge, netem or switch, as this network namespace (the hub) and the machine allow."""
    if not impaired:
        return "bridge"
    with contextlib.suppress(ClusterError):  # no sch_netem in this kernel, or no tc
        tools.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
        return "netem"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise ClusterError("--delay and --loss need the kernel module sch_netem or tun: try `modprobe tun`")
    return "switch"


def lay_bridge(pids: dict[str, int]) -> None:
    """Make the bridge in the hub, and for each place a cable from its port to an eth0 in its network namespace."""
    lines = ["link add br0 type bridge mcast_snooping 0", "link set br0 up"]
    lines += [f"link add {name} master br0 up type veth peer name eth0 netns {pid}" for name, pid in pids.items()]
    tools.run(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def impair(names: Sequence[str], delay: float, loss: float) -> None:
    """Have netem delay (ms) and lose (percent) what leaves the hub by these ports; every frame leaves by one."""
    lines = [f"qdisc replace dev {name} root netem limit 20000 delay {delay}ms loss {loss}%" for name in names]
    tools.run(["tc", "-batch", "-"], "\n".join(lines) + "\n")


def set_port(name: str, forwarding: bool) -> None:
    """Cut or heal a port of the bridge; to be called in the hub.  States as in bridge(8): 0 disabled, 3 forwarding."""
    tools.run(["bridge", "link", "set", "dev", name, "state", "3" if forwarding else "0"])


def start_switch(directory: str, taps: dict[str, int], delay: float, loss: float) -> None:
    """Start switch.py on the places' TAP descriptors; it is ready when this returns."""
    here = os.getcwd()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.chdir(directory)  # the name of a unix socket has 107 bytes at most; the directory's may be longer
    try:
        listener.bind("switch.sock")
        listener.listen(16)
    finally:
        os.chdir(here)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "switch.py")
    settings = [str(listener.fileno()), str(delay), str(loss)]
    ports = [f"{name}={fd}" for name, fd in taps.items()]
    subprocess.Popen(  # a child of the anchor: it dies with it
        [sys.executable, "-I", "-S", program, *settings, *ports],
        pass_fds=[listener.fileno(), *taps.values()],
    )
    listener.close()
    ask_switch(directory, "status")


def ask_switch(directory: str, command: str) -> str:
    """Send one command (see switch.py) and return the answer."""
    here = os.getcwd()
    os.chdir(directory)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(tools.TIMEOUT)
            sock.connect("switch.sock")
            sock.send(command.encode())
            answer = sock.recv(4096).decode()
    except OSError as error:
        raise ClusterError(f"the switch does not answer: {error}") from None
    finally:
        os.chdir(here)
    if not answer.startswith("ok"):
        raise ClusterError(f"the switch refuses `{command}`: {answer or 'it ended'}")
    return answer[2:].strip()
