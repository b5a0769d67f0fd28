"""Prints lines of 100 bytes, so many bytes in all and so many a second."""

import os
import sys
import time

total, rate = int(sys.argv[1]), float(sys.argv[2])
block = (b"x" * 99 + b"\n") * 655
begin, done = time.monotonic(), 0
while done < total:
    left = begin + done / rate - time.monotonic()
    if left > 0:
        time.sleep(left)
    piece = memoryview(block)[: total - done]
    while piece:
        size = os.write(1, piece)
        done += size
        piece = piece[size:]
