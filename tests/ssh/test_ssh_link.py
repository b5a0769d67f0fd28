"""Links over SSH as byte streams: order, back-pressure, the ends of both sides, exit status, noise."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from sshd import Sshd, SshLab
from sshlinks import Opener, failure, read, write

from mslaunch.transport.ssh.ssh_link import SshLink

pytestmark = pytest.mark.sshd


def test_bytes_that_were_written_early_come_first(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "cat", b"early ")
    write(link, b"and more")
    assert read(link, 14) == b"early and more"
    link.close()
    assert link.wait(5)
    assert link.failure() is None


@pytest.mark.parametrize("options", ["", "RekeyLimit 300K"])
def test_five_megabytes_both_ways_arrive_intact(lab: SshLab, opener: Opener, options: str) -> None:
    """Also while the host asks for new keys again and again."""
    echoed(opener(lab.sshd(options), "cat"))


def test_five_megabytes_both_ways_through_a_jump_host(lab: SshLab, opener: Opener) -> None:
    """Its channel carries the other connection, and may have no room for a message."""
    gate, last = lab.sshd(), lab.sshd()
    lab.config(
        f"Host gate\n HostName {gate.address}\n Port {gate.port}\n"
        f"Host node1\n HostName {last.address}\n Port {last.port}\n ProxyJump gate\n"
    )
    echoed(opener("node1", "cat"))


def echoed(link: SshLink) -> None:
    """Five megabytes go and come at the same time."""
    sent = os.urandom(5 << 20)
    os.set_blocking(link.writer, False)
    left, came = memoryview(sent), bytearray()
    while len(came) < len(sent):
        readable, writable, _ = select.select([link.reader], [link.writer] if left else [], [], 30)
        assert readable or writable
        if writable:
            left = left[os.write(link.writer, left[: 1 << 16]) :]
        if readable:
            came += os.read(link.reader, 1 << 16)
    assert came == sent


#: as ncat and corkscrew: while it writes, it reads nothing
RELAY = """
import os, select, socket, sys
far = socket.create_connection(("{host}", {port}))
while True:
    for source in select.select([0, far], [], [])[0]:
        data = os.read(0, 65536) if source == 0 else far.recv(65536)
        if not data:
            sys.exit()
        if source == 0:
            far.sendall(data)
        else:
            while data:
                data = data[os.write(1, data) :]
"""


def relayed(lab: SshLab, opener: Opener, folder: Path, command: str, beyond: Sshd | None = None) -> SshLink:
    """A link through such a ProxyCommand, whose pid is in `folder`/pid; to a host `beyond` by ProxyJump."""
    host, program = lab.sshd(known=False), folder / "relay.py"
    program.write_text(f"open({str(folder / 'pid')!r}, 'w').write(str(__import__('os').getpid()))")
    program.write_text(program.read_text() + RELAY.format(host=host.address, port=host.port))
    lab.known_hosts(f"inside {host.known_line.split(' ', 1)[1]}")
    jump = f"Host node2\n HostName {beyond.address}\n Port {beyond.port}\n ProxyJump node1\n" if beyond else ""
    lab.config(f"Host node1\n HostKeyAlias inside\n ProxyCommand {sys.executable} {program}\n{jump}")
    return opener("node2" if beyond else "node1", command)


def test_a_proxycommand_that_reads_nothing_while_it_writes(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    """Much goes and much comes: the thread that reads the host waits for nobody who sends."""
    size = 40 << 20
    link = relayed(lab, opener, tmp_path, f"head -c {size} /dev/zero & exec cat >/dev/null")
    os.set_blocking(link.writer, False)
    came = 0
    while came < size:
        readable, writable, _ = select.select([link.reader], [link.writer], [], 10)
        assert readable or writable, came
        if writable:
            os.write(link.writer, bytes(1 << 16))
        if readable:
            came += len(os.read(link.reader, 1 << 16))


def deleted_files() -> set[str]:
    """Files without a name that this process has open, with their numbers; pytest has some."""
    opened = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {name for name in map(os.readlink, opened) if "(deleted)" in name}


def test_a_proxycommand_that_says_much_goes_on(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    """Its standard error is read while the connection is used, and while nothing comes; no file keeps it."""
    host, said = lab.sshd(known=False), tmp_path / "said"
    lab.known_hosts(f"inside {host.known_line.split(' ', 1)[1]}")
    talk = tmp_path / "talk"
    talk.write_text(f"#!/bin/sh\nhead -c 100000000 /dev/zero >&2\necho so much >&2\ntouch {said}\n")
    talk.chmod(0o755)
    program = tmp_path / "relay.py"
    program.write_text(f"import subprocess\nsubprocess.Popen([{str(talk)!r}])")
    program.write_text(program.read_text() + RELAY.format(host=host.address, port=host.port))
    lab.config(f"Host node1\n HostKeyAlias inside\n ProxyCommand {sys.executable} {program}\n")
    before = deleted_files()
    link = opener("node1", "cat", b"first ")
    assert read(link, 6) == b"first "
    end = time.monotonic() + 30
    while not said.exists():
        assert time.monotonic() < end
        select.select([], [], [], 0.01)
    write(link, b"second")
    assert read(link, 6) == b"second"
    assert deleted_files() == before
    link.close()
    assert link.wait(5)
    assert link.noise().endswith(b"so much\n")


def test_a_proxycommand_that_takes_nothing_more_can_be_left(
    lab: SshLab, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    link = relayed(lab, opener, tmp_path, "echo ready; exec cat >/dev/null")
    assert read(link, 6) == b"ready\n"
    relay = int((tmp_path / "pid").read_text())
    os.kill(relay, signal.SIGSTOP)
    fill(link)
    link.close()
    assert not link.wait(1.0)
    link.kill()
    assert dies(relay), "a launcher that exits now leaves nothing behind"
    assert link.wait(5)


def dies(pid: int) -> bool:
    """Whether a process has been killed, and is gone or waited for."""
    end = time.monotonic() + 0.8  # before anybody else would kill it
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):  # proc(5): it may end between open and read
            return True
        select.select([], [], [], 0.01)
    return False


def test_a_jump_host_that_takes_nothing_more_can_be_left(
    lab: SshLab, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves it waits for no thread that sends."""
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    last = lab.sshd()
    link = relayed(lab, opener, tmp_path, "echo ready; exec cat >/dev/null", beyond=last)
    assert read(link, 6) == b"ready\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGSTOP)
    fill(link)
    link.close()
    assert not link.wait(1.0)
    began = time.monotonic()
    link.kill()
    assert time.monotonic() - began < 5, "it waits for nobody"
    assert link.wait(10)


def test_an_unread_link_stops_the_host_and_holds_no_memory(
    lab: SshLab, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    mark = tmp_path / "written"
    link = opener(lab.sshd(), f"head -c 104857600 /dev/zero; echo done >{mark}")
    assert read(link, 1) == b"\0"
    before = resident()
    links = [link, *opener.many([lab.hosts[0]] * 3, "exec cat /dev/zero")]
    for each in links[1:]:
        read(each, 1)
    settled(links)
    assert resident() - before < 20 << 20
    assert not mark.exists()
    assert len(read(link, 104857599)) == 104857599
    assert read(link) == b""
    assert mark.read_text() == "done\n"


def test_a_host_takes_what_it_is_sent_while_nothing_of_its_own_is_read(lab: SshLab, opener: Opener) -> None:
    """It fills its window first, and says when it takes more on the same connection."""
    size = 20 << 20
    link = opener(lab.sshd(), f"cat /dev/zero & head -c {size} >/dev/null; kill $!")
    assert read(link, 1) == b"\0"
    os.set_blocking(link.writer, False)
    left = size
    while left:
        _, writable, _ = select.select([], [link.writer], [], 10)
        assert writable, f"{left} bytes were not taken"
        left -= os.write(link.writer, bytes(min(left, 1 << 16)))
    assert set(read(link)) == {0}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def settled(links: list) -> None:
    """Until every link holds all that it will take: what it reads ahead waits for us, and stays the same."""
    end, before = time.monotonic() + 20, [0]
    while time.monotonic() < end:
        held = [len(each._connection.transport._channels.values()[0].in_buffer) for each in links]
        if all(held) and held == before:
            return
        before = held
        select.select([], [], [], 0.2)
    raise AssertionError(f"buffers hold {held}")


def test_everything_is_delivered_before_the_end_of_the_stream(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "head -c 3000000 /dev/zero; echo the end; exit 7")
    data = read(link)
    assert (len(data), data[-8:]) == (3000008, b"the end\n")
    assert link.exit_status == 7
    assert link.failure() is None
    assert link.wait(5)


def test_standard_error_is_kept_apart_and_its_end_is_kept(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "seq 1 100000 >&2; echo out; echo last words >&2; exit 3")
    assert read(link) == b"out\n"
    assert link.wait(5)
    assert link.exit_status == 3
    noise = link.noise()
    assert len(noise) == 4096
    assert noise.endswith(b"99999\n100000\nlast words\n")


def test_what_a_login_shell_says_comes_through_as_it_is(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    (host.directory / ".bashrc").write_text("echo Welcome; echo careful >&2\n")
    (host.directory / ".zshenv").write_text("echo Welcome; echo careful >&2\n")
    link = opener(host, "echo MAGIC")
    assert read(link) in (b"Welcome\nMAGIC\n", b"MAGIC\n")  # the account's shell may read neither file
    forced = lab.sshd('ForceCommand echo Welcome; echo careful >&2; eval "$SSH_ORIGINAL_COMMAND"')
    link = opener(forced, "echo MAGIC")
    assert read(link) == b"Welcome\nMAGIC\n"
    assert link.wait(5)
    assert b"careful\n" in link.noise()


def test_closing_is_the_end_of_its_standard_input(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    mark = tmp_path / "saw"
    link = opener(lab.sshd(), f"echo ready; cat >/dev/null; echo eof >{mark}")
    assert read(link, 6) == b"ready\n"
    link.close()
    link.close()
    assert link.wait(5)
    assert mark.read_text() == "eof\n"


def test_a_half_close_lets_the_answer_come(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "wc -c")
    write(link, b"x" * 12345)
    sock = socket.socket(fileno=os.dup(link.writer))
    sock.shutdown(socket.SHUT_WR)
    sock.close()
    assert read(link).strip() == b"12345"
    assert link.wait(5) or link.exit_status == 0


def test_closing_ends_what_does_not_end_by_itself(lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    link = opener(lab.sshd(), "echo ready; exec 0</dev/null; exec sleep 60")
    assert read(link, 6) == b"ready\n"
    link.close()
    assert link.wait(5)


def test_a_host_that_ends_its_stream_and_reads_nothing_is_seen_to_have_ended(
    lab: SshLab, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that feeds it waits for room in its window, which never comes."""
    full = tmp_path / "full"
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    link = opener(lab.sshd(), f"echo ready; until [ -e {full} ]; do sleep 0.05; done; exec >&- 2>&-; exec sleep 60")
    assert read(link, 6) == b"ready\n"
    fill(link)
    full.touch()
    assert read(link) == b""
    link.close()
    assert link.wait(5)


def test_a_host_that_reads_nothing_is_left_when_its_time_is_over(
    lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 0.2)
    link = opener(lab.sshd(), "echo ready; exec sleep 60")
    assert read(link, 6) == b"ready\n"
    fill(link)
    link.close()
    assert link.wait(5)


def fill(link: SshLink) -> None:
    """Write until nobody takes more."""
    os.set_blocking(link.writer, False)
    while select.select([], [link.writer], [], 1.0)[1]:
        os.write(link.writer, bytes(1 << 16))


def test_closing_again_gives_the_host_no_less_time(
    lab: SshLab, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.ssh_link.LINGER", 60.0)
    mark, go = tmp_path / "ended", tmp_path / "go"
    link = opener(lab.sshd(), f"echo ready; cat >/dev/null; until [ -e {go} ]; do sleep 0.05; done; echo >{mark}")
    assert read(link, 6) == b"ready\n"
    link.close()
    assert not link.wait(1.0)
    link.close()
    assert not link.wait(1.0)
    go.touch()
    assert link.wait(5) and mark.exists()


def test_closing_while_the_host_floods_us_ends_at_once(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "trap '' PIPE; cat /dev/zero & cat >/dev/null; kill $!")
    read(link, 1)
    link.close()
    assert link.wait(5)


def test_a_lost_connection_differs_from_an_end(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    link = opener(host, "echo $PPID; exec cat")
    os.kill(int(read(link, 1) + read_line(link)), signal.SIGKILL)  # this connection's sshd
    message = failure(link)
    assert "the connection was lost" in message
    assert f"port {host.port}" in message
    assert link.exit_status is None


def read_line(link: object) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += read(link, 1)  # type: ignore[arg-type]
    return line


def test_errors_without_end_do_not_hold_the_output_up(lab: SshLab, opener: Opener) -> None:
    """Both streams of a channel share a window, which is widened for what is only kept in part."""
    link = opener(lab.sshd(), "head -c 5000000 /dev/zero >&2; echo last words >&2; printf x")
    assert read(link) == b"x"
    assert link.wait(5) and link.noise().endswith(b"last words\n")


def test_a_command_that_is_not_there_leaves_its_status(lab: SshLab, opener: Opener) -> None:
    link = opener(lab.sshd(), "no-such-program-here", b"early")
    assert read(link) == b""
    assert link.wait(5)
    assert link.exit_status == 127
    assert b"no-such-program-here" in link.noise()
    assert link.failure() is None


def test_many_links_at_once(lab: SshLab, opener: Opener) -> None:
    hosts = [lab.sshd() for _ in range(4)]
    links = opener.many(hosts * 4, "cat", b"x")
    assert [read(link, 1) for link in links] == [b"x"] * 16


def test_a_link_that_waits_for_its_turn_can_be_closed(lab: SshLab, opener: Opener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        first, second = opener.many([opener.node("127.0.0.1")._replace(port=port)] * 2, begun=1)
        connection, _ = mute.accept()
        second.close()
        first.close()
        assert first.wait(4)
        assert second.wait(4)
        connection.close()
    assert first.failure() is None
    assert second.failure() is None


def test_all_threads_and_descriptors_are_given_back(lab: SshLab, opener: Opener) -> None:
    import threading

    host = lab.sshd()
    opener(host, "true").wait(20)

    def held() -> set[object]:
        """Threads, and descriptors with what they are."""
        found: set[object] = set(threading.enumerate())
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself
                found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        return found

    for link in opener.links:
        link.close()
    before = held()  # what ends later is that of tests before
    links = opener.many([host] * 5)
    for link in links:
        write(link, b"x")
        read(link, 1)
    for link in links:
        link.close()
    assert all(link.wait(20) for link in links)
    end = time.monotonic() + 5
    while held() - before and time.monotonic() < end:
        select.select([], [], [], 0.01)  # threads end a moment after the link is gone
    assert not held() - before
