"""Reports of hosts that are well, and strategies for those that are anything."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import AppContext, Request
from mslaunch.preflight.check_records import HostReport
from mslaunch.protocol.check_messages import HostFacts, ProgramFacts

GIB = 1 << 30
REQUEST = Request((AppContext(("python3", "train.py")),))


def facts(name: str, **changed: Any) -> HostFacts:
    """What a host says that has all that a launch needs."""
    usual = HostFacts(
        1e9, 1e9, name, f"boot-of-{name} pid net", (8 << 20, 8 << 20), (1024, 1 << 20), (), (4 * GIB, 4 * GIB), "/tmp",
        (9 * GIB, 1 << 20), 16 * GIB, 12 * GIB, -1, -1.0, (), (), "",
    )  # fmt: skip
    return usual._replace(**changed)


def program(**changed: Any) -> ProgramFacts:
    """A script that is alike on all hosts."""
    usual = ProgramFacts(
        0,
        "",
        "",
        "/usr/bin/python3",
        "10 abc",
        "train.py",
        9 * GIB,
        "3.11.2",
        "/usr",
        ("numpy",),
        ("1.26.0",),
        ("numpy",),
        "/work",
    )
    return usual._replace(**changed)


def report(name: str, ranks: int = 2, error: Any = None, programs: Any = None, **changed: Any) -> HostReport:
    """A host; `changed` are facts."""
    found = programs if programs is not None else (program(),)
    return HostReport(Node(name, ranks, "hosts:1"), ranks, (), error, facts(name, **changed), programs=tuple(found))


TEXT = st.text(max_size=12)
NUMBER = st.integers(-(1 << 70), 1 << 70)
FLOAT = st.floats()
_FIELDS = {
    "str": TEXT,
    "int": NUMBER,
    "float": FLOAT,
    "tuple[str, ...]": st.lists(TEXT, max_size=4).map(tuple),
    "tuple[int, ...]": st.lists(NUMBER, max_size=4).map(tuple),
}


_PAIR = st.tuples(NUMBER, NUMBER)
#: fields whose length is looked at before anything is made of them
_SHAPES = {"memlock": _PAIR, "files": _PAIR, "shm": st.just(()) | _PAIR, "tmp_free": st.just(()) | _PAIR}


def anything(kind: type) -> st.SearchStrategy[Any]:
    """Records of a kind with any values of their types."""
    return st.builds(kind, **{name: _SHAPES.get(name, _FIELDS[word]) for name, word in kind.__annotations__.items()})
