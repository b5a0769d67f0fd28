"""Records made small behave as `typing.NamedTuple` does, as far as the package uses it."""

from __future__ import annotations

import copy
import pickle
import signal as real_signal
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import mslaunch
from mslaunch.datamodel.jobmap import Node
from mslaunch.faststd import NamedTuple, signal, socket

ROOT = Path(mslaunch.__file__).parents[1]


class Small(NamedTuple):
    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.a


class Big(typing.NamedTuple):
    a: int
    b: str = "x"
    c: tuple = ()


@pytest.mark.parametrize(("args", "named"), [((1,), {}), ((1, "y"), {}), ((), {"a": 1, "c": (2,)}), ((1,), {"b": "z"})])
def test_made_as_the_original_is(args: tuple, named: dict) -> None:
    small, big = Small(*args, **named), Big(*args, **named)
    assert tuple(small) == tuple(big)
    assert small == big and hash(small) == hash(big)
    assert (small.a, small.b, small.c) == (big.a, big.b, big.c)
    assert repr(small) == repr(big).replace("Big", "Small")
    assert small._asdict() == big._asdict()


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, 2, 3, 4), {}), ((1,), {"a": 2}), ((1,), {"d": 2})])
def test_refuses_what_the_original_refuses(args: tuple, named: dict) -> None:
    for record in (Small, Big):
        with pytest.raises(TypeError):
            record(*args, **named)


def test_records_are_frozen_and_replaced() -> None:
    small = Small(1)
    with pytest.raises(AttributeError):
        small.a = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        small.other = 2  # type: ignore[attr-defined]
    assert small._replace(b="z") == Small(1, "z")
    assert small.double == 2
    with pytest.raises(TypeError):
        small._replace(other=1)


def test_records_are_unpacked_copied_and_pickled() -> None:
    small = Small(1, "b", (3,))
    a, b, c = small
    assert (a, b, c) == (1, "b", (3,))
    for again in (pickle.loads(pickle.dumps(small)), copy.deepcopy(small), copy.copy(small)):
        assert type(again) is Small and again == small
    assert type(pickle.loads(pickle.dumps(Node("a", 1, "-H")))) is Node


def test_the_core_of_signal_and_socket_is_the_real_one() -> None:
    assert signal.SIGTERM == real_signal.SIGTERM
    with_socket = socket()
    assert with_socket.fileno() >= 0
    with_socket.close()


def test_what_only_launches_need_is_imported_when_asked_for() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from mslaunch import faststd\n"
        "cores = {'_heapq', '_socket', '_struct'}\n"
        "print(*cores & set(sys.modules))\n"
        "from mslaunch.faststd import heapq, socket, struct\n"
        "import _heapq, _socket, _struct\n"
        "print(heapq is _heapq, socket is _socket.socket, struct is _struct, hasattr(faststd, 'other'))"
    )
    words = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["", "True True True False"]
