"""The command of mslaunch, in this process: for each GATHER that it gets, a line on standard error.

    gathers.py WORD…

A line is `gather FRAME BLOBS`: bytes of the frame's payload, as it came, and of the blobs in it.
"""

from __future__ import annotations

import os
import sys

from mslaunch.cli.main import command
from mslaunch.protocol import frames, mpi

_feed = frames.Decoder.feed


def counted(decoder: frames.Decoder, data: bytes) -> list[frames.Frame]:
    found = _feed(decoder, data)
    for frame in found:
        if frame.kind == frames.GATHER:
            blobs = mpi.unpack_with_blobs(mpi.Gathering, frame.payload).blobs
            os.write(2, b"gather %d %d\n" % (len(frame.payload), sum(map(len, blobs))))
    return found


if __name__ == "__main__":
    frames.Decoder.feed = counted  # type: ignore[method-assign]
    os._exit(command(sys.argv[1:]))
