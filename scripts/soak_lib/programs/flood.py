"""A rank of the streams: RATE bytes a second for SECONDS, in numbered lines of 1,000 bytes.

flood.py SECONDS RATE: what it has written is the file `count.RANK` of the current directory at the end.
"""

import os
import sys
import time

SECONDS, RATE = float(sys.argv[1]), float(sys.argv[2])
RANK = os.environ["OMPI_COMM_WORLD_RANK"]
LINE = 1000
PIECE = 50  # lines in one write


def main():
    begin = time.monotonic()
    number = 0
    pad = "." * LINE
    while time.monotonic() - begin < SECONDS:
        lines = [f"{RANK} {at} {pad}"[: LINE - 1] + "\n" for at in range(number, number + PIECE)]
        data = "".join(lines).encode()
        while data:
            data = data[os.write(1, data) :]
        number += PIECE
        ahead = number * LINE / RATE - (time.monotonic() - begin)
        if ahead > 0:
            time.sleep(ahead)
    with open(f"count.{RANK}", "w") as file:
        file.write(str(number))


main()
