"""`kubectl exec [-i] [-c NAME] POD -- COMMAND...` where no kubectl that speaks WebSocket (1.31) is installed.

As in kubectl 1.32: the configuration is that of a pod (client-go, rest/config.go, InClusterConfig), the pod is read
first (kubectl, pkg/cmd/exec/exec.go), then the request is upgraded (client-go, tools/remotecommand/websocket.go); the
exit code is that in the status (v5.go), with a sentence on standard error.  It runs with the standard library alone.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import ssl
import sys
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent))

from websocket import BINARY, CLOSE, CLOSING, PROTOCOL, STATUS, STDERR, STDIN, STDOUT, Frames, frame

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MASK = b"\0\0\0\0"


def main() -> int:
    words = sys.argv[2:]
    at = words.index("--")
    options, command = words[:at], words[at + 1 :]
    stdin = any(word in options for word in ("-i", "--stdin"))
    pod = next(w for before, w in zip(["", *options], options) if w[0] != "-" and before not in ("-c", "--container"))
    pod = pod.rpartition("/")[2]
    path = f"/api/v1/namespaces/{(_ACCOUNT / 'namespace').read_text()}/pods/{pod}"
    sock = _connect()
    head, body = _ask(sock, path)
    if " 200 " not in head.split("\r\n")[0]:
        print(f"Error from server (NotFound): {json.loads(body)['message']}", file=sys.stderr)
        return 1
    query = [("command", word) for word in command] + [("stdin", "true")] * stdin + [("stdout", "true")]
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n"
    upgrade += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n"
    head, rest = _ask(sock, f"{path}/exec?{urlencode(query)}", upgrade)
    assert " 101 " in head
    return _pass_on(sock, rest, stdin)


def _connect() -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    return context.wrap_socket(socket.create_connection((host, port), 30), server_hostname=host)


def _ask(sock: ssl.SSLSocket, path: str, more: str = "") -> tuple[str, bytes]:
    """The head of the answer, and what has come behind it: all of it, as the server says how long it is."""
    token = (_ACCOUNT / "token").read_text()
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: kubernetes\r\nAuthorization: Bearer {token}\r\n{more}\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
    while len(body) < size:
        body += sock.recv(1 << 16)
    return head.decode(), body


def _pass_on(sock: ssl.SSLSocket, data: bytes, stdin: bool) -> int:
    frames = Frames()
    sources = [sock, 0] if stdin else [sock]
    while True:
        for kind, message in frames.feed(data):
            if kind == CLOSING:
                return 0
            if kind == BINARY and message[0] in (STDOUT, STDERR):
                _write(message[0], message[1:])
            elif kind == BINARY and message[0] == STATUS:
                return _ended(json.loads(message[1:]))
        data = b""
        ready = [sock] if sock.pending() else select.select(sources, [], [])[0]
        if 0 in ready:
            read = os.read(0, 1 << 15)
            message = bytes([STDIN]) + read if read else bytes([CLOSE, STDIN])
            sock.sendall(frame(BINARY, message, _MASK))
            sources = sources if read else [sock]
        if sock in ready:
            data = sock.recv(1 << 16)
            if not data:
                print("error: websocket: close 1006 (abnormal closure): unexpected EOF", file=sys.stderr)
                return 1


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _ended(status: dict) -> int:
    if status["status"] == "Success":
        return 0
    code = int(status["details"]["causes"][0]["message"])
    print(f"command terminated with exit code {code}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
