#!/usr/bin/env python3
"""What a rank of Horovod 0.28.1 does to find the others, for a machine without it; run as a program, it is such a rank.

Bytes of requests: `http::Request::send` in third_party/HTTPRequest/include/HTTPRequest.hpp.  Retries, and what an
answer means: horovod/common/gloo/http_store.cc.  Order of keys: `Context::connectFullMesh` in
third_party/gloo/gloo/rendezvous/context.cc.  Scopes: `GlooContext::Initialize` in horovod/common/gloo/gloo_context.cc.
Addresses have the size of Gloo's, 136 bytes for each other rank, and connections between ranks are made by them, on the
interface that HOROVOD_GLOO_IFACE names.
"""

import fcntl
import os
import socket
import struct
import sys
import time

ADDRESS = 136  # bytes: sizeof(Address::Impl), third_party/gloo/gloo/transport/tcp/address.h


class HttpError(RuntimeError):
    """PerformHTTP has tried three times."""


def request(url, method="GET", body=b""):
    """Status and body, as http::Request finds them."""
    rest = url.partition("://")[2].partition("#")[0]
    domain, slash, path = rest.partition("/")
    host, colon, port = domain.partition(":")
    with socket.create_connection((host, int(port) if colon else 80), 30) as sock:
        head = f"{method} {slash}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        data = b""
        while chunk := sock.recv(4096):
            data += chunk
            found, end, rest = data.partition(b"\r\n\r\n")
            lengths = [line for line in found.split(b"\r\n") if line.startswith(b"Content-Length:")]
            if end and (not lengths or len(rest) >= int(lengths[0].partition(b":")[2])):
                break
    head, _, found = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), found


class Store:
    """HTTPStore."""

    def __init__(self, address, port, scope, rank):
        self.prefix = f"http://{address}:{port}/{scope}/"
        self.rank = rank

    def perform(self, key, method="GET", body=b""):
        for _ in range(3):
            try:
                status, found = request(self.prefix + key, method, body)
                if status in (200, 404):
                    return status, found
            except OSError:
                pass
            time.sleep(0.5)
        raise HttpError(f"{method} {key}")

    def put(self, key, data):
        self.perform(key, "PUT", data)

    def get(self, key):
        return self.perform(key)[1]

    def wait(self, key, seconds=30):
        limit = time.monotonic() + seconds
        while self.perform(key)[0] == 404:
            if time.monotonic() > limit:
                raise TimeoutError(key)
            time.sleep(0.01)

    def finalize(self):
        self.perform(str(self.rank), "DELETE")


def interface_address(name):
    """The IPv4 address of an interface (netdevice(7), SIOCGIFADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        found = fcntl.ioctl(sock.fileno(), 0x8915, struct.pack("40s", name.encode()))
    return socket.inet_ntoa(found[20:24])


def exactly(sock, size):
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError
        data += chunk
    return data


def rendezvous(scope, rank, size):
    """The numbers of all ranks in `scope`, each heard from itself; ends as Horovod's does, with a DELETE."""
    env = os.environ
    store = Store(env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], env["HOROVOD_GLOO_RENDEZVOUS_PORT"], scope, rank)
    name = socket.gethostname()
    store.put(f"rank_{rank}", name.encode())
    for other in range(rank):
        store.get(f"rank_{other}")
    with socket.create_server((interface_address(env["HOROVOD_GLOO_IFACE"]), 0), backlog=size) as server:
        own = "{}:{}".format(*server.getsockname()).encode().ljust(ADDRESS, b"\0")
        store.put(str(rank), own * (size - 1))
        peers = {}
        for other in range(size):
            if other == rank:
                continue
            store.wait(str(other))
            addresses = store.get(str(other))
            assert len(addresses) == ADDRESS * (size - 1), (scope, other, len(addresses))
            if other < rank:
                host, _, port = addresses[:ADDRESS].rstrip(b"\0").decode().rpartition(":")
                peers[other] = socket.create_connection((host, int(port)), 30)
                peers[other].sendall(struct.pack("!I", rank))
        while len(peers) < size - 1:
            sock, _ = server.accept()
            peers[struct.unpack("!I", exactly(sock, 4))[0]] = sock
    for sock in peers.values():  # the barrier, and what is learnt
        sock.sendall(struct.pack("!I", int(env["HOROVOD_RANK"])))
    heard = {rank: int(env["HOROVOD_RANK"])}
    heard.update((other, struct.unpack("!I", exactly(sock, 4))[0]) for other, sock in peers.items())
    store.finalize()
    return [heard[number] for number in range(size)]


def numbers(name):
    return tuple(int(os.environ[f"HOROVOD_{name}{word}"]) for word in ("RANK", "SIZE"))


def initialize():
    """The ranks of the job, of this host, and of those with our local rank, as `hvd.init()` would find them."""
    local, local_rank = os.environ["HOROVOD_HOSTNAME"], os.environ["HOROVOD_LOCAL_RANK"]
    return (
        rendezvous("global", *numbers("")),
        rendezvous(f"local_{local}", *numbers("LOCAL_")),
        rendezvous(f"cross_{local_rank}", *numbers("CROSS_")),
    )


if __name__ == "__main__":
    for again in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):  # hvd.shutdown() and hvd.init() once more
        met = " ".join(map(str, initialize()))
        os.write(1, f"{again}: {os.environ['HOROVOD_RANK']} of {met}\n".encode())  # in one piece
