"""A user of a host who waits at an address of it that the launcher's host has, too, and borrows the launcher's proof.

`borrower.py ADDRESS FIRST LAST LAUNCHER FILE`: listens at these ports, and hands what is said before the proofs on to
the same port of LAUNCHER.  A caller that then proves itself is sent a program that writes FILE.  It needs the standard
library only, and no token.
"""

import marshal
import os
import selectors
import socket
import sys
import zlib


def line(sock: socket.socket) -> bytes:
    text = b""
    while not text.endswith(b"\n"):
        piece = sock.recv(1)
        if not piece:
            return b""
        text += piece
    return text


def serve(caller: socket.socket, launcher: str, file: str) -> None:
    caller.settimeout(10)
    asked = line(caller)
    with socket.create_connection((launcher, caller.getsockname()[1]), 10) as host:
        host.sendall(asked)
        caller.sendall(line(host))
    proved = line(caller)
    print("called,", "and obeyed" if proved else "and left", flush=True)
    if proved:
        code = (
            f"import os\nos.write(os.open({file!r}, os.O_CREAT | os.O_WRONLY), str(os.getuid()).encode())\nos._exit(0)"
        )
        table = zlib.compress(marshal.dumps({"": code}, 2))
        caller.sendall(b"%d\n%s" % (len(table), table))


def main(address: str, first: str, last: str, launcher: str, file: str) -> None:
    with selectors.DefaultSelector() as selector:
        for port in range(int(first), int(last) + 1):
            selector.register(socket.create_server((address, port)), selectors.EVENT_READ)
        print("listens as", os.getuid(), flush=True)
        while True:
            for key, _ in selector.select():
                caller, _ = key.fileobj.accept()  # type: ignore[union-attr]
                with caller:
                    try:
                        serve(caller, launcher, file)
                    except OSError as error:
                        print("called,", error, flush=True)


main(*sys.argv[1:])
