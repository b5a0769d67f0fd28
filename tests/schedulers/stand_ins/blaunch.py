"""A stand-in for blaunch of LSF: IBM Spectrum LSF 10.1 command reference, blaunch.

`[-n] [-z "HOST …" | -u FILE | HOST] [-use-login-shell | -no-shell] COMMAND …` with one host.  It is a drop-in
replacement for rsh: standard input is passed on, unless -n is given, output comes back, and other options are passed
over in silence.  The reference speaks of an intermediate shell that -no-shell leaves out, so with STAND_IN_SHELL one
reads the words of the command, joined by blanks, as rshd has it; without, they are run as they are.  It works in a job
only, and on its hosts.  Signals are passed on.
"""

import json
import os
import signal
import socket
import sys
import threading


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(255)


words = sys.argv[1:]
quiet = False
while words and words[0].startswith("-"):
    quiet = quiet or words[0] == "-n"
    words = words[2:] if words[0] in ("-z", "-u") else words[1:]
if "LSB_JOBID" not in os.environ:
    fail("blaunch: this command works only in a job")
if len(words) < 2:
    fail("usage: blaunch [-n] [-u host_file | -z host_name ... | host_name] [-use-login-shell | -no-shell] command")
host, *command = words
if host not in os.environ["LSB_MCPU_HOSTS"].split()[::2]:
    fail(f"{host}: not a host of the job")
if os.environ.get("STAND_IN_SHELL"):
    command = ["/bin/sh", "-c", " ".join(command)]
reader, writer = os.pipe()
back, out = os.pipe()
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket"))
asked = {"host": host, "argv": command, "cwd": os.getcwd()}
socket.send_fds(daemon, [json.dumps(asked).encode()], [reader, out, 2])
for fd in (reader, out):
    os.close(fd)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: daemon.send(str(number).encode()))


def pass_on(source, target):
    try:
        while data := os.read(source, 1 << 16):
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass
    os.close(target)


if quiet:
    os.close(writer)
else:
    threading.Thread(target=pass_on, args=(0, writer), daemon=True).start()
threading.Thread(target=pass_on, args=(back, os.dup(1)), daemon=True).start()
status = int(daemon.recv(64))
daemon.send(b"done")
sys.exit(status if status >= 0 else 128 - status)
