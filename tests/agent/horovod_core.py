"""The library of a Horovod as the agent meets it in a process: `horovod_core.c`, and a program that loads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "launch" / "programs" / "horovod_core.c"
#: of GCC, and of clang
STATES = (
    "_ZN7horovod6common12_GLOBAL__N_114horovod_globalE",
    "_ZN7horovod6common12_GLOBAL__N_1L14horovod_globalE",
)
#: as setup.py of Horovod 0.28.1 names them (`ext_modules`); cmake gives them Python's suffix
PLACES = (
    "horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so",
    "horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so",
    "horovod/mxnet/mpi_lib.cpython-311-x86_64-linux-gnu.so",
)
#: obeys the words that it reads, and says when each is done; as a rank of a job it has words as arguments
RANK = """\
import ctypes, os, sys
for word in [line.strip() for line in sys.argv[2:]] or map(str.strip, sys.stdin):
    if word == "load":
        library = ctypes.CDLL(sys.argv[1])
    elif word == "init":
        library.horovod_init()
    elif word == "wait":
        import time
        time.sleep(60)
    elif word.startswith("-"):
        os.environ.pop(word[1:])
    else:
        name, _, value = word.partition("=")
        os.environ[name] = value
    print("done", flush=True)
"""


def built(folder: Path, place: str = PLACES[0], state: str = STATES[0], *words: str) -> str:
    """Where the library is that gcc has made, below `folder`."""
    if not shutil.which("gcc"):
        pytest.skip("NOT TESTED, not installed: gcc")
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", f'-DSTATE="{state}"', "-o", str(path), str(SOURCE), *words]
    subprocess.run(command, check=True, timeout=60)
    return str(path)
