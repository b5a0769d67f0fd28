"""Passes a token around a ring of processes: the smallest job that really needs its launcher.

    mslaunch -n 4 python ring.py
    mslaunch -n 8 --hostfile hosts python ring.py

Rank 0 listens at MASTER_ADDR:MASTER_PORT. Every rank tells it where its right neighbour's left hand is to be found,
and gets everybody's answer back. Then the ring closes, and the token goes round twice: the first time everyone adds
its rank to it, the second time everyone reads the sum. Standard library only, Python 3.8 or newer.
"""

import json
import os
import socket
import sys
import time
from contextlib import contextmanager

PATIENCE = 30  # seconds, for every single wait


def number(*names):
    """The value on which all of these variables that are set agree."""
    said = {name: os.environ[name] for name in names if name in os.environ}
    if not said:
        sys.exit(f"{names[0]} is not set: start me with a launcher, mslaunch -n 4 python {sys.argv[0]}")
    if len(set(said.values())) > 1:
        sys.exit("these should be equal: " + ", ".join(f"{name}={value}" for name, value in said.items()))
    return int(said[names[0]] if names[0] in said else next(iter(said.values())))


rank = number("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK")
size = number("WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE")
local_rank = number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
local_size = number("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
node = os.environ.get("GROUP_RANK", "")  # two nodes may share one host
host = socket.gethostname()


def main():
    socket.setdefaulttimeout(PATIENCE)
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        fail(f"these numbers cannot be: rank {rank} of {size}, local rank {local_rank} of {local_size}")
    master = os.environ.get("MASTER_ADDR", ""), number("MASTER_PORT")
    family = socket.getaddrinfo(*master, type=socket.SOCK_STREAM)[0][0]

    with socket.create_server(("", 0), family=family) as left_hand:
        everybody = meet(master, family, left_hand.getsockname()[1])
        check(everybody)
        right = everybody[(rank + 1) % size]
        with waiting(f"for rank {right['rank']} at {right['address']} port {right['port']}"):
            to_right = socket.create_connection((right["address"], right["port"]))
        with waiting(f"for rank {(rank - 1) % size} to take my left hand"):
            from_left, _ = left_hand.accept()

    token = go_round(from_left, to_right)
    if token != {"hands": size, "sum": size * (size - 1) // 2}:
        fail(f"the token came back wrong: {token}")
    sys.stdout.write(  # with the end of the line: print() writes that by itself, and another rank's line may be between
        f"rank {rank}/{size} (local {local_rank}/{local_size}) on {host}: "
        f"token passed {token['hands']} hands, sum {token['sum']}, ok\n"
    )


def meet(master, family, port):
    """What every rank said of itself, by rank."""
    mine = {"rank": rank, "size": size, "local": local_rank, "local_size": local_size, "on": [host, node], "port": port}
    if rank == 0:
        return receive_all(master, family, dict(mine, address=master[0]))
    with waiting(f"for rank 0 at {master[0]} port {master[1]}"):
        link = connect(master)
        send(link, dict(mine, address=link.getsockname()[0]))  # an address that others can reach me at, too
        return receive(link)


def receive_all(master, family, mine):
    """Rank 0's part: hear everybody, then tell everybody."""
    rows, links = {0: mine}, []
    with socket.create_server(("", master[1]), family=family) as server:
        while len(rows) < size:
            with waiting(f"for ranks {sorted(set(range(size)) - set(rows))} to come to port {master[1]}"):
                link, _ = server.accept()
                row = receive(link)
            if row["rank"] in rows or row["size"] != size:
                fail(f"somebody calls itself rank {row['rank']} of {row['size']}, we are {size}")
            rows[row["rank"]] = row
            links.append(link)
    everybody = [rows[number] for number in range(size)]
    for link in links:
        send(link, everybody)
    return everybody


def check(everybody):
    """On each node the local ranks are 0, 1, ... and everyone there knows how many they are."""
    here = [row for row in everybody if row["on"] == [host, node]]
    if sorted(row["local"] for row in here) != list(range(len(here))):
        fail(f"the local ranks on {host} are {[row['local'] for row in here]}")
    if local_size != len(here):
        fail(f"I was told that {local_size} ranks run on {host}, there are {len(here)}")


def go_round(from_left, to_right):
    """Round 1 adds up, round 2 tells; rank 0 starts both."""
    with waiting("for the token"):
        if rank == 0:
            send(to_right, {"hands": 1, "sum": 0})
            token = receive(from_left)
            send(to_right, token)
            receive(from_left)
        else:
            token = receive(from_left)
            send(to_right, {"hands": token["hands"] + 1, "sum": token["sum"] + rank})
            token = receive(from_left)
            send(to_right, token)
    return token


# --- sockets that speak JSON, one line a message


def connect(address):
    """Rank 0 may not be there yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(link, message):
    link.sendall(json.dumps(message).encode() + b"\n")


def receive(link):
    with link.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        raise ConnectionError("it has gone")
    return json.loads(line)


@contextmanager
def waiting(what):
    try:
        yield
    except OSError as error:
        fail(f"waited {what}: {error}")


def fail(why):
    sys.exit(f"rank {rank}/{size} on {host}: {why}")


if __name__ == "__main__":
    main()
