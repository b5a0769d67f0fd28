#!/usr/bin/env python3
"""A user of a host who sits at an address of it, at many ports, and passes what comes on to another host's same port.

    user_relay.py ADDRESS FIRST LAST TARGET [PID]

With PID the listeners are in the network namespace of that process, a container, and the calls still leave from here.
Prints `ready`; then `served PORT` for each connection whose first message was enough for the other host to answer a
ping, as of a link of --check.  Ends when standard input does.
"""

import ctypes
import os
import resource
import select
import socket
import sys
import threading

CLONE_NEWNET = 0x40000000


def enter(path):
    """Join a network namespace (setns(2))."""
    fd = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), path)
    os.close(fd)


def listeners(address, first, last, pid):
    """One at each port."""
    if pid:
        own = f"/proc/self/fd/{os.open('/proc/self/ns/net', os.O_RDONLY)}"
        enter(f"/proc/{pid}/ns/net")
    made = [socket.create_server((address, port)) for port in range(first, last)]
    if pid:
        enter(own)
    return made


def is_served(far):
    """Whether we are let in with what the caller has sent."""
    try:
        far.sendall(b"p")
        far.settimeout(1)
        return far.recv(100) == b"p"
    except OSError:
        return False


def relay(near, target, port):
    """Pass on what comes, both ways, until one of them ends; see first what the caller's first words are worth."""
    far = socket.create_connection((target, port), 5)
    with near, far:
        if select.select([near], [], [], 0.1)[0]:  # the other host may be the one that speaks first
            far.sendall(near.recv(1 << 16))
        answer = far.recv(1 << 16)
        if is_served(far):
            print("served", port, flush=True)
        near.sendall(answer)
        far.settimeout(None)
        ends = {near: far, far: near}
        while True:
            for sock in select.select(list(ends), [], [], 30)[0]:
                data = sock.recv(1 << 16)
                if not data:
                    return
                ends[sock].sendall(data)


def main():
    address, first, last, target, *pid = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = listeners(address, int(first), int(last), pid and pid[0])
    print("ready", flush=True)
    while True:
        for server in select.select([sys.stdin, *made], [], [])[0]:
            if server is sys.stdin:
                return
            near, _ = server.accept()
            words = (near, target, server.getsockname()[1])
            threading.Thread(target=relay, args=words, daemon=True).start()


if __name__ == "__main__":
    main()
