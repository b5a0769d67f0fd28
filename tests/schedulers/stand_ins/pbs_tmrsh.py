"""A stand-in for pbs_tmrsh(8B) of OpenPBS: src/cmds/pbs_tmrsh.c, argument for argument.

`[-n] [-l USER] HOST [-n] [-l USER] COMMAND …`: options may stand on either side of the host, and the first word behind
it that is none begins the command.  255 is its own failure, and else the exit status of the task, of which a signal is
256 + n.  The task has no standard input and none of our output.  A signal ends this command, and not the task.
"""

import getpass
import json
import os
import socket
import sys

NAME = sys.argv[0]


def fail(text):
    print(
        f"{NAME}: {text}" if text else f"usage: {NAME} [-n][-l username] host [-n][-l username] command",
        file=sys.stderr,
    )
    sys.exit(255)


host, at = None, 1
while at < len(sys.argv):
    word = sys.argv[at]
    if word.startswith("-l"):
        user = word[2:]
        if not user:
            at += 1
            user = sys.argv[at] if at < len(sys.argv) else fail("")
        if user != getpass.getuser():
            print(f'{NAME}: bad user "{user}"', file=sys.stderr)
            fail("")
    elif word.startswith("-"):
        if word != "-n":
            fail("")
    elif host is None:
        host = word
    else:
        break
    at += 1
if host is None or at == len(sys.argv):
    fail("")
if "PBS_ENVIRONMENT" not in os.environ:
    fail("not executing under PBS")
if "PBS_JOBID" not in os.environ:
    fail("PBS jobid not in environment")
if "PBS_NODEFILE" not in os.environ:
    fail("cannot find PBS_NODEFILE")
with open(os.environ["PBS_NODEFILE"]) as file:
    nodes = file.read().split("\n")
if host not in nodes:
    fail(f'host "{host}" is not a node in job <{os.environ["PBS_JOBID"]}>')
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.connect(os.path.join(os.path.dirname(os.path.abspath(NAME)), "socket"))
socket.send_fds(daemon, [json.dumps({"host": host, "argv": sys.argv[at:]}).encode()], [0, 1, 2])
status = int(daemon.recv(64))
daemon.send(b"done")
sys.exit(status if status >= 0 else (256 - status) & 255)
