"""Files that are sent to hosts, and refusals before anything is started."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import LaunchError, LinkError, UnreachedError
from mslaunch.launcher.agents import staging
from mslaunch.launcher.agents.connection import READY, AgentConnection
from mslaunch.launcher.agents.staging import collect, send_files
from mslaunch.protocol import control, frames
from mslaunch.runtime.fd_writer import HIGH
from mslaunch.runtime.loop import Loop
from mslaunch.transport.base import Link


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A launch directory, below which there are files."""
    for name, mode in {
        "w/data": 0o640, "w/sub/tool": 0o755, "w/sub/more": 0o600, "w/tree/in/x": 0o444, "w/tree/y": 0o644,
        "up/data": 0o644, "bin/tool": 0o700,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    return tmp_path / "w"


def sent(here: Path, *apps: AppContext) -> list[tuple[str, str]]:
    found = collect(Request(apps), {"PATH": f"{here}/../bin"}, str(here))
    return [(staged.name, os.path.relpath(os.path.realpath(staged.source), here.parent)) for staged in found]


def files(*names: str) -> AppContext:
    return AppContext(("x",), preload_files=names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data", [("data", "w/data")]),
        ("./sub/../data", [("data", "w/data")]),
        ("sub/more", [("sub/more", "w/sub/more")]),
        ("../up/data", [("up/data", "up/data")]),
        ("tree", [("tree/in/x", "w/tree/in/x"), ("tree/y", "w/tree/y")]),
        ("tree/in/", [("tree/in/x", "w/tree/in/x")]),
        (".", [("data", "w/data"), ("sub/more", "w/sub/more"), ("sub/tool", "w/sub/tool"),
               ("tree/in/x", "w/tree/in/x"), ("tree/y", "w/tree/y")]),
    ],
)  # fmt: skip
def test_names_of_files_are_kept(here: Path, name: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(sent(here, files(name))) == expected


def test_an_absolute_path_loses_its_first_slash(here: Path) -> None:
    assert sent(here, files(f"{here}/data")) == [(f"{here}/data"[1:], "w/data")]


@pytest.mark.parametrize(
    ("app", "expected"),
    [
        (AppContext(("sub/tool", "x"), preload_binary=True), ("tool", "w/sub/tool")),
        (AppContext(("tool",), preload_binary=True), ("tool", "bin/tool")),
        (AppContext(("tool",), preload_binary=True, path="sub"), ("tool", "w/sub/tool")),
        (AppContext(("./sub/tool",), preload_binary=True, wdir="/"), ("tool", "w/sub/tool")),
    ],
)
def test_programs_are_sent(here: Path, app: AppContext, expected: tuple[str, str]) -> None:
    assert sent(here, app) == [expected]


def test_modes_of_files_are_kept(here: Path) -> None:
    made = collect(Request((files("data", "tree/in/x"),)), {}, str(here))
    assert [staged.mode for staged in made] == [0o640, 0o444]


def test_a_file_of_two_programs_is_sent_once(here: Path) -> None:
    tool = AppContext(("sub/tool",), preload_binary=True, preload_files=("data", "./data"))
    assert sent(here, tool, tool, files("data")) == [("tool", "w/sub/tool"), ("data", "w/data")]
    assert collect(Request((AppContext(("x",)),)), {}, str(here)) == []


@pytest.mark.parametrize(
    ("apps", "words"),
    [
        ((files("nothing"),), "--preload-files: {here}/nothing cannot be sent: No such file"),
        ((files("/dev/null"),), "--preload-files: /dev/null cannot be sent: it is no file"),
        ((AppContext(("./nothing",), preload_binary=True),), "the program './nothing' does not exist"),
        ((AppContext(("sub/more",), preload_binary=True),), "'sub/more' is not executable"),
        (
            (AppContext(("sub/tool",), preload_binary=True), AppContext(("../bin/tool",), preload_binary=True)),
            "--preload-binary: {here}/sub/tool and {here}/../bin/tool would both be tool on the hosts",
        ),
    ],
)
def test_files_that_cannot_be_sent_are_refused(here: Path, apps: tuple[AppContext, ...], words: str) -> None:
    with pytest.raises(LaunchError) as caught:
        sent(here, *apps)
    assert words.format(here=here) in str(caught.value)


def test_a_dangling_link_is_refused(here: Path) -> None:
    (here / "tree" / "z").symlink_to("nowhere")
    with pytest.raises(LaunchError, match="tree/z cannot be sent"):
        sent(here, files("tree"))


def test_a_link_to_a_folder_is_followed(here: Path) -> None:
    (here / "tree" / "z").symlink_to("../sub")
    assert ("tree/z/more", "w/sub/more") in sent(here, files("tree"))


@pytest.mark.parametrize("target", [".", "..", "../..", "../tree"])
def test_a_link_to_a_parent_folder_is_refused(here: Path, target: str) -> None:
    (here / "tree" / "z").symlink_to(target)
    with pytest.raises(LaunchError, match="tree/z cannot be sent: the link leads to a folder that it is in"):
        sent(here, files("tree"))


def test_an_unreadable_folder_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not left out silently.  (The tests may run as root, who may read everything.)"""
    really = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("tree/in"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LaunchError, match=r"--preload-files: .*tree/in cannot be sent: Permission denied"):
        sent(here, files("tree"))


@pytest.mark.parametrize("names", [("../up/data", "up/data/x"), ("up/data/x", "../up/data")])
def test_a_file_in_place_of_a_folder_is_refused(here: Path, names: tuple[str, str]) -> None:
    (here / "up" / "data").mkdir(parents=True)
    (here / "up" / "data" / "x").write_text("")
    with pytest.raises(LaunchError, match="would be up/data and up/data/x on the hosts"):
        sent(here, files(*names))


# --- sending


class Host:
    """An agent that is only the other ends of two pipes; the test reads what was sent."""

    def __init__(self, loop: Loop, name: str = "n1") -> None:
        (self.reader, down), (up, self.writer) = os.pipe(), os.pipe()
        self.peer = AgentConnection(loop, Link(Node(name, 1, "-H"), up, down))
        self.decoder = frames.Decoder()
        self.got: list[frames.Frame] = []
        hello = frames.encode(frames.HELLO, payload=control.pack_record(control.Hello(name, 1, 1, 1, "3.11", ())))
        os.write(self.writer, frames.MAGIC + hello)
        os.set_blocking(self.reader, False)

    def read(self) -> None:
        """Read what has arrived; answer STORED to each end of a file."""
        new = self.decoder.feed(os.read(self.reader, 1 << 20))
        self.got += new
        for frame in new:
            if frame.kind == frames.DATA and not frame.payload:
                self.say("")

    def say(self, error: str) -> None:
        os.write(self.writer, frames.encode(frames.STORED, payload=control.pack_record(control.Stored(error, "do"))))

    def close(self) -> None:
        self.peer.close()
        os.close(self.reader)


@pytest.fixture
def hosts() -> Iterator[tuple[Loop, Host, Host]]:
    with Loop() as loop:
        made = Host(loop), Host(loop, "n2")
        loop.run(lambda: all(host.peer.phase == READY for host in made))
        yield loop, *made
        for host in made:
            host.close()


def test_all_hosts_get_all_files(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    loop, *made = hosts
    for host in made:
        loop.reader(host.reader, host.read)
    data = os.urandom(3 << 20)
    (here / "data").write_bytes(data)
    send_files(
        loop, [host.peer for host in made], collect(Request((files("data", "sub/more"),)), {}, str(here)), loop.run
    )
    for host in made:
        first, *pieces, end, second, more, last = host.got
        assert [control.unpack_record(control.FileHead, frame.payload) for frame in (first, second)] == [
            ("data", 0o640),
            ("sub/more", 0o600),
        ]
        assert b"".join(frame.payload for frame in pieces) == data
        assert (end.payload, more.payload, last.payload) == (b"", b"w/sub/more", b"")


def test_a_slow_host_holds_little_in_memory_and_is_given_up(
    hosts: tuple[Loop, Host, Host], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes when the other one has got something: so long it is not in doubt who is slow."""
    monkeypatch.setattr(staging, "PATIENCE", 0.05)
    loop, slow, quick = hosts
    clock = SimpleNamespace(monotonic=lambda: 1.0 if len(quick.got) > 1 else 0.0)
    monkeypatch.setattr(staging, "time", clock)
    loop.reader(quick.reader, quick.read)
    with open(here / "data", "wb") as file:
        file.truncate(32 << 20)
    parcels = collect(Request((files("data"),)), {}, str(here))
    with pytest.raises(UnreachedError, match="took nothing for") as caught:
        send_files(loop, [slow.peer, quick.peer], parcels, lambda until: loop.run(until, 30))
    assert caught.value.where == "n1"
    assert HIGH <= slow.peer.pending < HIGH + (1 << 17)
    assert len(quick.got) > 1, "the other one does not wait for it"


def test_it_is_told_how_much_of_a_long_transfer_has_been_sent(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    """One host reads from the first report on, the other from the second."""
    loop, *made = hosts
    with open(here / "data", "wb") as file:
        file.truncate(8 << 20)
    told: list[tuple[int, int, int]] = []

    def report(*progress: int) -> None:
        told.append(progress)  # type: ignore[arg-type]
        if len(told) <= len(made):
            loop.reader(made[len(told) - 1].reader, made[len(told) - 1].read)

    parcels = collect(Request((files("data"),)), {}, str(here))
    send_files(loop, [host.peer for host in made], parcels, lambda until: loop.run(until, 30), report)
    sizes = [sent for sent, size, count in told if (size, count) == (16 << 20, 2)]
    assert len(sizes) == len(told) >= 2
    assert sizes[0] < 1 << 20 and 8 << 20 <= sizes[1] < 16 << 20


def test_a_host_that_cannot_store_is_named(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    loop, bad, good = hosts
    loop.reader(good.reader, good.read)
    bad.say("no room")
    with pytest.raises(LaunchError, match="no room") as caught:
        send_files(loop, [bad.peer, good.peer], collect(Request((files("data"),)), {}, str(here)), loop.run)
    assert (caught.value.where, caught.value.todo) == ("n1", "| do")


def test_a_host_that_is_lost_is_named(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    loop, gone, _ = hosts
    os.close(gone.writer)
    with pytest.raises(UnreachedError, match="ended while files were sent") as caught:
        send_files(loop, [gone.peer], collect(Request((files("data"),)), {}, str(here)), loop.run)
    assert list(caught.value.by_node) == ["n1"]


def test_a_host_is_named_as_its_node(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    """The error of a connection also has its address, but the search for a spare host needs the name."""
    loop, gone, _ = hosts
    error = LinkError("the connection was lost", "n1 [10.0.0.1] (user joe)")
    gone.peer.link.failure = lambda: error  # type: ignore[method-assign]
    os.close(gone.writer)
    with pytest.raises(UnreachedError) as caught:
        send_files(loop, [gone.peer], collect(Request((files("data"),)), {}, str(here)), loop.run)
    assert caught.value.by_node == {"n1": error}
    assert (caught.value.what, caught.value.where) == (error.what, error.where)


def test_the_traceback_of_a_crashed_agent_is_reported(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    """Its traceback has arrived, so the user gets it, however the link ends."""
    loop, bad, _ = hosts
    os.write(bad.writer, frames.encode(frames.FAULT, payload=b"Traceback\nOSError: no room"))
    with pytest.raises(UnreachedError, match="internal error in the agent") as caught:
        send_files(loop, [bad.peer], collect(Request((files("data"),)), {}, str(here)), loop.run)
    assert (caught.value.where, caught.value.todo) == ("n1", "| Traceback\n| OSError: no room")


def test_an_interrupt_ends_staging(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    loop, host, _ = hosts

    def interrupted(until: Callable[[], bool]) -> None:
        raise LaunchError("ended by SIGINT")

    with pytest.raises(LaunchError, match="ended by SIGINT"):
        send_files(loop, [host.peer], collect(Request((files("data"),)), {}, str(here)), interrupted)
    assert not host.got


def test_a_file_that_vanishes_is_reported(hosts: tuple[Loop, Host, Host], here: Path) -> None:
    loop, host, _ = hosts
    parcels = collect(Request((files("data"),)), {}, str(here))
    (here / "data").unlink()
    with pytest.raises(LaunchError, match="data cannot be sent: No such file"):
        send_files(loop, [host.peer], parcels, loop.run)


@pytest.mark.parametrize("data", [b"", b"w/dat", b"another text"])
def test_a_file_that_changes_is_reported(hosts: tuple[Loop, Host, Host], here: Path, data: bytes) -> None:
    """Hosts receive at different speeds, so they would get different contents."""
    loop, host, _ = hosts
    parcels = collect(Request((files("data"),)), {}, str(here))
    (here / "data").write_bytes(data)
    with pytest.raises(LaunchError, match="data was written to while it was being sent"):
        send_files(loop, [host.peer], parcels, loop.run)
