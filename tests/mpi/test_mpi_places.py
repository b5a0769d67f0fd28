"""Bindings and locality of ranks: libraries get the same facts as from their own launcher."""

from __future__ import annotations

import json

import pytest
from stages import PROGRAMS, found

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5"])
@pytest.mark.parametrize("level", ["core", "none"])
def test_the_locality_of_ranks(name, level, here):
    """Split_type by hardware thread, core, cache, socket: what Open MPI makes of our locality strings."""
    library = found(name)
    program = [library.python, str(PROGRAMS / "near.py")]
    ours = here.run(library, 2, program, "--bind-to", level)
    theirs = here.native(library, 2, ["--bind-to", level, *program])
    assert ours.code == theirs.code == 0, (ours.err, theirs.err)
    assert said(ours) == said(theirs)


def said(ended):
    return sorted((json.loads(line) for line in ended.out.splitlines()), key=lambda one: one["rank"])
