"""As much of Kubernetes' API as `kubectl exec` asks for: discovery, a pod, and its subresource `exec` over WebSocket.

Containers are run as the container runtime does it (`runc exec`): with the variables of the container, as its user,
without a terminal, standard input only where it was asked for.  When a client goes away nothing is done to the process:
its input stays open and silent, which is the worst that a kubelet does.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import websocket
from pods import NAMESPACE
from websocket import CLOSE, STATUS, STDERR, STDIN, STDOUT

VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
_PODS = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
        {"name": "pods/exec", "singularName": "", "namespaced": True, "kind": "PodExecOptions", "verbs": ["create"]},
    ],
}  # fmt: skip
_FIXED = {
    "/version": VERSION,
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": _PODS,
}


class KubeApi:
    """A server in a thread; `first_of` knows process 1 of each pod by its name."""

    def __init__(self, sock: socket.socket, directory: Path, address: str, first_of: Callable[[str], int]) -> None:
        self._first_of = first_of
        self.token = os.urandom(16).hex()
        self.certificate = directory / "ca.crt"
        self._key = directory / "ca.key"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-subj", "/CN=kubernetes", "-addext", f"subjectAltName=IP:{address}", "-days", "2"]
        words += ["-keyout", str(self._key), "-out", str(self.certificate)]
        subprocess.run(words, check=True, timeout=20, capture_output=True)
        self.executed: list[tuple[str, list[str], bool]] = []  # pod, command, whether it has an input
        self._kept: set[asyncio.Task[None] | None] = set()  # asyncio forgets the tasks of connections that are gone
        self._loop = asyncio.new_event_loop()
        self._sock = sock
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self._key)
        server = await asyncio.start_server(self._connected, sock=self._sock, ssl=context)
        self._ready.set()
        await self._end.wait()
        server.close()
        self._kept.clear()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False if the connection has no more."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        url = urlsplit(first.split()[1])
        steps = url.path.strip("/").split("/")
        if headers.get("authorization") != f"Bearer {self.token}":
            return self._answer(writer, 401, {"kind": "Status", "status": "Failure", "code": 401})
        if url.path == f"/api/v1/namespaces/{NAMESPACE}":
            return self._answer(writer, 200, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}})
        if url.path in _FIXED:
            return self._answer(writer, 200, _FIXED[url.path])
        pod = steps[5] if steps[:3] == ["api", "v1", "namespaces"] and steps[4:5] == ["pods"] else ""
        if not pod or not self._first_of(pod):
            gone = {"status": "Failure", "reason": "NotFound", "message": f'pods "{pod}" not found', "code": 404}
            return self._answer(writer, 404, {"kind": "Status", "apiVersion": "v1", **gone})
        if steps[6:] == ["exec"]:
            await self._exec(pod, parse_qs(url.query), headers, reader, writer)
            return False
        named = {"metadata": {"name": pod, "namespace": steps[3]}, "status": {"phase": "Running"}}
        containers = {"containers": [{"name": "mpi", "image": "x"}]}
        return self._answer(writer, 200, {"kind": "Pod", "apiVersion": "v1", **named, "spec": containers})

    def _answer(self, writer: asyncio.StreamWriter, code: int, what: object) -> bool:
        body = json.dumps(what).encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return True

    async def _exec(
        self,
        pod: str,
        query: dict[str, list[str]],
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        assert websocket.PROTOCOL in headers["sec-websocket-protocol"]
        accepted = websocket.accepted(headers["sec-websocket-key"])
        head = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: {websocket.PROTOCOL}\r\n\r\n"
        writer.write(head.encode())
        wanted = query.get("stdin") == ["true"]
        self._kept.add(asyncio.current_task())
        self.executed.append((pod, query["command"], wanted))
        first = self._first_of(pod)
        variables = [word for word in Path(f"/proc/{first}/environ").read_text().split("\0") if word]
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "-t", str(first), "-m", "-u", "-n", "-i", "-p", "--wd=/", "env", "-i", *variables),
            *query["command"],
            stdin=asyncio.subprocess.PIPE if wanted else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        incoming = asyncio.ensure_future(_take(reader, writer, process.stdin))
        try:
            await asyncio.gather(_give(writer, STDOUT, process.stdout), _give(writer, STDERR, process.stderr))
            code = await process.wait()
            writer.write(websocket.frame(websocket.BINARY, bytes([STATUS]) + json.dumps(_status(code)).encode()))
            writer.write(websocket.frame(websocket.CLOSING, b"\x03\xe8"))
            await writer.drain()
        finally:
            incoming.cancel()
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """A process that goes on when this server ends is ended with it, and waited for."""
    if process.returncode is None:
        process._transport.close()  # closes the pipes, too, which its children may keep open
        await asyncio.wait_for(process.wait(), 20)


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stdin: asyncio.StreamWriter | None) -> None:
    """What the client sends, for the process; at the end of the client its input stays open."""
    frames = websocket.Frames()
    while data := await reader.read(1 << 16):
        for kind, message in frames.feed(data):
            if kind == websocket.PING:
                writer.write(websocket.frame(websocket.PONG, message))
            elif kind != websocket.BINARY or not stdin:
                continue
            elif message[0] == STDIN:
                stdin.write(message[1:])
                await stdin.drain()
            elif message == bytes([CLOSE, STDIN]):
                stdin.close()


async def _give(writer: asyncio.StreamWriter, channel: int, stream: asyncio.StreamReader | None) -> None:
    assert stream
    while data := await stream.read(1 << 15):
        if not writer.is_closing():  # nobody reads any more, and the process is to go on
            writer.write(websocket.frame(websocket.BINARY, bytes([channel]) + data))


def _status(code: int) -> dict[str, object]:
    """As the kubelet reports an exit code; kubectl ends with it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    cause = {"causes": [{"reason": "ExitCode", "message": str(code if code > 0 else 128 - code)}]}
    said = f"command terminated with non-zero exit code: exit status {code}"
    return {"metadata": {}, "status": "Failure", "message": said, "reason": "NonZeroExitCode", "details": cause}
