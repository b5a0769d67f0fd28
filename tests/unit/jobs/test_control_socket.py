"""Questions to a launcher, from the side of who asks: an answer that does not come, or has no sense."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mslaunch.jobs import control_socket
from mslaunch.jobs.private_folder import job_folder
from mslaunch.runtime.loop import Loop


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Makes a launcher that says one thing; returns the directory of its job."""
    threads: list[threading.Thread] = []
    listener = socket.socket(socket.AF_UNIX)

    def start(act: Callable[[socket.socket], None]) -> str:
        folder = tmp_path / "jobs" / "1"
        folder.mkdir(parents=True)
        folder.parent.chmod(0o700)
        with job_folder(str(folder)) as fd:
            listener.bind(f"/proc/self/fd/{fd}/control")
        listener.listen()

        def serve() -> None:
            connection = listener.accept()[0]
            with connection:
                connection.recv(4096)
                try:
                    act(connection)
                except OSError:  # who asked has gone
                    pass

        threads.append(threading.Thread(target=serve))
        threads[0].start()
        return str(folder)

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def _drop_by_drop(connection: socket.socket) -> None:
    for _ in range(200):  # ten seconds
        connection.sendall(b" ")
        if select.select([connection], [], [], 0.05)[0]:
            return


def test_the_whole_question_is_bounded(answering: Any) -> None:
    folder = answering(_drop_by_drop)
    with pytest.raises(TimeoutError):
        control_socket.ask(folder, {"ask": "top"}, 0.3)


@pytest.mark.parametrize("said", [b"{\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n", b"", b"{"])
def test_an_answer_without_sense_is_an_error_of_the_system(answering: Any, said: bytes) -> None:
    folder = answering(lambda connection: connection.sendall(said))
    with pytest.raises(OSError, match=r"its answer has no sense|the launcher did not answer"):
        control_socket.ask(folder, {"ask": "top"})


def test_nobody_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    tmp_path.chmod(0o700)
    with pytest.raises(FileNotFoundError):
        control_socket.ask(str(tmp_path / "1"), {"ask": "top"})


def _fails(question: dict[str, Any], answer: Any) -> None:
    raise RuntimeError(f"no answer to {question['ask']}")


def _has_no_json(question: dict[str, Any], answer: Any) -> None:
    answer({"text": object()})


@pytest.mark.parametrize("act", [_fails, _has_no_json])
def test_a_question_that_cannot_be_answered_closes_its_client_only(tmp_path: Path, act: Any) -> None:
    tmp_path.chmod(0o700)
    folder = tmp_path / "1"
    folder.mkdir(mode=0o700)
    loop = Loop()
    listener = control_socket.ControlSocket(loop, str(folder), act)
    said: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as client, job_folder(str(folder)) as fd:
        client.connect(f"/proc/self/fd/{fd}/control")
        client.sendall(b'{"ask": "top"}\n')
        loop.reader(client.fileno(), lambda: said.append(client.recv(100)))
        loop.run(lambda: bool(said), 20)
        loop.reader(client.fileno(), None)
    assert said == [b""]
    listener.close()
