"""A stand-in for pbsdsh(1B) of Torque: torque src/cmds/pbsdsh.c, for the options that start one task.

`-h HOST`, by the lines of PBS_NODEFILE, and -o, -s, -u, -v; the first word that is none begins the command (getopt with
`+`).  Its exit code is 0 whatever the task's was, which it prints where that is not 0.  The task has no standard input
and none of our output without -o.  SIGINT, SIGTERM and SIGHUP are passed on to it (`bailout`, `wait_for_task`).
"""

import getopt
import json
import os
import signal
import socket
import sys

NAME = "pbsdsh()"


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


try:
    options, command = getopt.getopt(sys.argv[1:], "c:e:n:h:osuvE")
except getopt.GetoptError as error:
    fail(f"{error}\nUsage: {sys.argv[0]} [-c copies][-e name[=[value]][,...]][-E][-o][-s][-u][-v] program [args]...]")
host = dict(options).get("-h")
if not command:
    fail(f"{NAME}: must specify a program")
if "PBS_ENVIRONMENT" not in os.environ:
    fail(f"{NAME}: not executing under PBS")
with open(os.environ["PBS_NODEFILE"]) as file:
    nodes = file.read().split("\n")
if host not in nodes:
    fail(f"{NAME}: {host} not found")
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket"))
socket.send_fds(daemon, [json.dumps({"host": host, "argv": command}).encode()], [0, 1, 2])


def bailout(number, _):
    print(f"{NAME}: killing task 1 signal {number}", file=sys.stderr, flush=True)
    daemon.send(str(number).encode())
    daemon.send(b"done")
    os._exit(1)


for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, bailout)
status = int(daemon.recv(64))
daemon.send(b"done")
if status:
    print(f"{NAME}: task 0 exit status {status if status > 0 else 256 - status}", file=sys.stderr)
