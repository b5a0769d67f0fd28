"""A stand-in for flux(1): `flux exec -r RANK`, `flux getattr hostlist` and `flux resource list`.

flux-core src/cmd/flux-exec.c and flux-exec(1): the first word that is no option begins the command (posixly correct, in
src/common/liboptparse); standard input is given to the tasks of all ranks, with its end; output is copied up to a NUL
(`output_cb`, "%.*s"); a task has the variables and the directory of this command.  The exit code is the largest of the
tasks', 128 + n for a signal, 127 without the program, 68 for a rank without a host.  SIGINT and SIGTERM are passed on.
The hosts and their cores are those of STAND_IN_HOSTS and STAND_IN_RLIST.
"""

import getopt
import json
import os
import signal
import socket
import sys
import threading


def fail(text, code=1):
    print(f"flux-exec: {text}", file=sys.stderr)
    sys.exit(code)


hosts = os.environ["STAND_IN_HOSTS"].split(",")
if "FLUX_URI" not in os.environ:
    fail("flux_open: No such file or directory")
if sys.argv[1:] == ["getattr", "hostlist"]:
    print(os.environ["STAND_IN_HOSTS"])
    sys.exit(0)
if sys.argv[1:] == ["resource", "list", "-s", "up", "-n", "-o", "{rlist}"]:
    print(os.environ["STAND_IN_RLIST"])
    sys.exit(0)
if sys.argv[1:2] != ["exec"]:
    fail(f"{sys.argv[1:]} is nothing that this stand-in knows")
options, command = getopt.getopt(sys.argv[2:], "r:x:d:lnvqj:", ["rank=", "noinput", "dir=", "quiet", "verbose"])
rank = dict(options).get("-r", "all")
if not rank.isdigit() or not command:
    fail("this stand-in runs a command on one rank")
if int(rank) >= len(hosts):
    fail(f"One or more invalid --ranks specified: {rank}")
reader, writer = os.pipe()
back, out = os.pipe()
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket"))
asked = {"host": hosts[int(rank)], "argv": command, "cwd": os.getcwd(), "environ": dict(os.environ)}
socket.send_fds(daemon, [json.dumps(asked).encode()], [reader, out, 2])
for fd in (reader, out):
    os.close(fd)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: daemon.send(str(number).encode()))


def give():
    try:
        while data := os.read(0, 4096):
            while data:
                data = data[os.write(writer, data) :]
    except OSError:
        pass
    os.close(writer)


def take():
    while data := os.read(back, 4096):
        os.write(1, data.partition(b"\0")[0])


threading.Thread(target=give, daemon=True).start()
threading.Thread(target=take, daemon=True).start()
answer = daemon.recv(64)
if not answer:
    fail(f"Error: rank {rank}: {command[0]}: No route to host", 68)
daemon.send(b"done")
status = int(answer)
if status == 127:
    print(f"flux-exec: Error: rank {rank}: {command[0]}: No such file or directory", file=sys.stderr)
elif status:
    print(f"{rank}: {'Exit ' + str(status) if status > 0 else signal.strsignal(-status)}", file=sys.stderr)
sys.exit(status if status >= 0 else 128 - status)
