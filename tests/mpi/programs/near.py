"""Say who is near whom, as MPI believes: how many ranks share a hardware thread, a core, a cache, a socket."""

import json
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
LEVELS = {"shared": 0, "hwthread": 1, "core": 2, "l3": 5, "socket": 6, "numa": 7}  # Open MPI's OMPI_COMM_TYPE_*
sizes = {level: world.Split_type(number).size for level, number in LEVELS.items()}
sys.stdout.write(json.dumps({"rank": world.rank, **sizes}) + "\n")
