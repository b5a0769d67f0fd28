"""The parts of `scripts/slurm` and `scripts/gridengine`: real batch systems on the hosts of `scripts/cluster`.

`command` is the command line of both; `slurm` and `gridengine` say how each system is configured and started.  A system
has its files in the directory of its cluster, below `system`, and its daemons are processes of the hosts, so `cluster
down` ends them all.  Nothing here imports mslaunch.
"""

from __future__ import annotations
