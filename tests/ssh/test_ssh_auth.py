"""Keys: files of every kind, the agent, certificates, passphrases; and the sentences when none is taken."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sshd import ME, SshLab, keygen, public
from sshlinks import Opener, failure, read

from mslaunch.transport.ssh import paramiko_transport, user_keys
from mslaunch.transport.ssh.user_keys import Identity, Keyring, pack, unpack

pytestmark = pytest.mark.sshd


def opens(opener: Opener, host: object, **policy: object) -> None:
    link = opener(host, "cat", b"x", **policy)  # type: ignore[arg-type]
    assert read(link, 1) == b"x", str(link.failure())
    link.close()


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_strings_come_back(values: list[bytes]) -> None:
    assert unpack(pack(*values)) == values


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("ed25519", ()),
        ("rsa", ()),
        ("ecdsa", ()),
        ("ecdsa", ("-b", "384")),
        ("ecdsa", ("-b", "521")),
        ("rsa", ("-m", "PEM")),
        ("ecdsa", ("-m", "PEM")),
        ("rsa", ("-m", "PKCS8")),
    ],
)
def test_kinds_of_keys(lab: SshLab, opener: Opener, kind: str, more: tuple[str, ...]) -> None:
    """Each under the name id_rsa, which says nothing about what is inside."""
    lab.key.unlink()
    key = keygen(lab.ssh / "id_rsa", kind, "", *more)
    opens(opener, lab.sshd(authorized=public(key)))


def test_named_files_and_their_order(lab: SshLab, opener: Opener) -> None:
    right = keygen(lab.ssh / "right")
    host = lab.sshd(authorized=public(right))
    lab.config(f"IdentityFile {keygen(lab.ssh / 'wrong')}\nIdentityFile ~/.ssh/right\n")
    opens(opener, host)
    lab.config("")
    opens(opener, host, agent_args=("-i", str(right)))
    message = failure(opener(host))
    assert "no key was accepted" in message
    assert f"ssh-copy-id -p {host.port} {ME}@{host.address}" in message
    assert f"tried {lab.key}" in message


def test_no_key_at_all(lab: SshLab, opener: Opener) -> None:
    lab.key.unlink()
    Path(f"{lab.key}.pub").unlink()
    assert "there was no key to try" in failure(opener(lab.sshd(authorized="")))


def test_a_key_that_others_can_read_is_not_used(lab: SshLab, opener: Opener) -> None:
    lab.key.chmod(0o644)
    assert f"chmod 600 {lab.key}" in failure(opener(lab.sshd()))


def test_a_named_key_that_is_not_there(lab: SshLab, opener: Opener) -> None:
    lab.config("IdentityFile ~/.ssh/nowhere\n")
    assert f"{lab.ssh}/nowhere is not there" in failure(opener(lab.sshd()))


def test_a_broken_key_is_named(lab: SshLab, opener: Opener) -> None:
    lab.key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n-----END OPENSSH PRIVATE KEY-----\n")
    assert f"{lab.key} cannot be read as a private key" in failure(opener(lab.sshd()))


def test_the_agent(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / kind, kind) for kind in ("rsa", "ecdsa", "ed25519")]
    for key in keys:
        lab.agent(key)
        opens(opener, lab.sshd(authorized=public(key)))


def test_a_dead_agent_is_no_agent(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    lab.environ["SSH_AUTH_SOCK"] = str(tmp_path / "gone")
    opens(opener, lab.sshd())


def test_an_encrypted_file_goes_through_the_agent(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    plain = keygen(tmp_path / "key")
    lab.agent(plain)
    locked = lab.ssh / "locked"
    locked.write_bytes(plain.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)], check=True, stdout=subprocess.DEVNULL)
    lab.config(f"IdentityFile {locked}\nIdentitiesOnly yes\n")
    opens(opener, lab.sshd(authorized=public(plain)))


def test_too_many_keys_in_the_agent(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    lab.agent(*[keygen(tmp_path / f"wrong{number}") for number in range(7)])
    host = lab.sshd()
    message = failure(opener(host))
    assert "too many keys were offered" in message
    assert "IdentitiesOnly yes" in message
    lab.config("IdentityFile ~/.ssh/id_ed25519\n")  # a named file comes before the agent's keys
    opens(opener, host)
    lab.config("IdentitiesOnly yes\n")
    opens(opener, host)
    lab.config("IdentityAgent none\n")
    opens(opener, host)


def signed(lab: SshLab, key: Path, ca: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(ca), "-I", "test", "-n", ME, f"{key}.pub"], check=True, capture_output=True
    )
    return key.with_name(f"{key.name}-cert.pub")


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_certificates(lab: SshLab, opener: Opener, tmp_path: Path, kind: str) -> None:
    ca = keygen(tmp_path / "ca")
    host = lab.sshd(f"TrustedUserCAKeys {ca}.pub", authorized="")
    key = keygen(lab.ssh / "certified", kind)
    certificate = signed(lab, key, ca)
    lab.config(f"IdentityFile {key}\n")
    opens(opener, host)
    elsewhere = certificate.rename(tmp_path / "elsewhere.pub")
    assert "no key was accepted" in failure(opener(host))
    lab.config(f"IdentityFile {key}\nCertificateFile {elsewhere}\n")
    opens(opener, host)
    assert user_keys.plain_blob(user_keys.read_public(str(elsewhere))) == user_keys.read_public(f"{key}.pub")
    elsewhere.rename(certificate)
    lab.config("")
    lab.agent(key)
    opens(opener, host)


def test_a_locked_key_without_a_terminal(lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keygen(lab.ssh / "locked", "ed25519", "secret")
    lab.config(f"IdentityFile {key}\n")
    host = lab.sshd(authorized=public(key))
    monkeypatch.setattr("mslaunch.transport.ssh.user_keys.PassphrasePrompt.ask", lambda self, prompt: None)
    message = failure(opener(host))
    assert f"ssh-add {key}" in message
    assert "BatchMode" in failure(opener(host, agent_args=("-oBatchMode=yes",)))


def test_no_passphrase_is_asked_for_a_key_that_would_not_be_taken(
    lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "mslaunch.transport.ssh.user_keys.PassphrasePrompt.ask", lambda self, prompt: asked.append(prompt)
    )
    lab.config(f"IdentityFile {keygen(lab.ssh / 'locked', 'ed25519', 'secret')}\nIdentityFile {lab.key}\n")
    opens(opener, lab.sshd())
    assert asked == []


@pytest.mark.parametrize(("kind", "more"), [("ed25519", ()), ("rsa", ("-m", "PEM")), ("ecdsa", ("-m", "PKCS8"))])
def test_passphrases(tmp_path: Path, kind: str, more: tuple[str, ...]) -> None:
    key = str(keygen(tmp_path / "key", kind, "secret", *more))
    answers = [b"wrong", b"secret", b"never asked"]
    keyring = Keyring(lambda prompt: answers.pop(0))
    assert keyring.file(key).locked
    assert keyring.file(key).blob == user_keys.read_public(f"{key}.pub")
    assert keyring.unlock(key).sign
    assert keyring.unlock(key).sign
    assert answers == [b"never asked"]
    prompts: list[str] = []
    stubborn = Keyring(lambda prompt: prompts.append(prompt) or b"wrong")  # type: ignore[func-returns-value]
    assert "wrong three times" in stubborn.unlock(key).trouble
    assert stubborn.unlock(key).sign is None
    assert len(prompts) == 3


ASKER = """
import os, sys
from mslaunch.transport.ssh.ssh_link import make_links
from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
environ = {"HOME": sys.argv[1]}
nodes = [Node(place.rpartition(":")[0], 1, "", port=int(place.rpartition(":")[2])) for place in sys.argv[2:]]
links = make_links(nodes, "cat", LinkPolicy(timeout=60), environ, print)
for link in links:
    link.begin()
for link in links:
    os.write(link.writer, b"x")
for link in links:
    print("got", os.read(link.reader, 1), link.failure(), flush=True)
"""


def test_the_passphrase_is_asked_once_at_the_terminal(lab: SshLab) -> None:
    key = keygen(lab.ssh / "id_ecdsa", "ecdsa", "secret")
    hosts = [lab.sshd(authorized=public(key)) for _ in range(3)]
    pid, terminal = pty.fork()
    if pid == 0:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        places = [f"{host.address}:{host.port}" for host in hosts]
        os.execve(sys.executable, [sys.executable, "-c", ASKER, str(lab.home), *places], environ)
    said = until(terminal, b"Passphrase for key")
    os.write(terminal, b"wrong\n")
    said += until(terminal, b"Passphrase for key")
    os.write(terminal, b"secret\n")
    said += until(terminal, None)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.count(b"got b'x' None") == 3, said.decode()
    assert said.count(b"Passphrase") == 2
    assert b"secret" not in said


QUITTER = """
import sys
from mslaunch.transport.ssh.ssh_link import make_links
from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
place = sys.argv[2].rpartition(":")
nodes = [Node(place[0], 1, "", port=int(place[2]))] * 3
links = make_links(nodes, "cat", LinkPolicy(), {"HOME": sys.argv[1]}, print)
for link in links:
    link.begin()
sys.stdin.readline()
links[0].close()
links[1].wait(5), links[2].wait(5)  # nobody is asked any more, which is no failure of theirs
for link in links:
    link.close()
print("gone", [link.wait(20) for link in links], [link.failure() for link in links], flush=True)
"""


def test_the_question_can_be_called_off(lab: SshLab) -> None:
    key = keygen(lab.ssh / "id_ecdsa", "ecdsa", "secret")
    host = lab.sshd(authorized=public(key))
    order, orders = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(order, 0)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        os.execve(
            sys.executable, [sys.executable, "-c", QUITTER, str(lab.home), f"{host.address}:{host.port}"], environ
        )
    os.close(order)
    until(terminal, b"Passphrase for key")
    assert not termios.tcgetattr(terminal)[3] & termios.ECHO
    os.write(orders, b"now\n")
    until(terminal, b"gone [True, True, True] [None, None, None]")
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    os.close(orders)
    os.waitpid(pid, 0)
    os.close(terminal)


def until(fd: int, text: bytes | None) -> bytes:
    said = b""
    while text is None or text not in said:
        assert select.select([fd], [], [], 20)[0], said
        try:
            data = os.read(fd, 4096)
        except OSError:  # the other side of the terminal is closed
            data = b""
        if not data:
            assert text is None, said
            return said
        said += data
    return said


def test_a_host_that_wants_a_password(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd("PubkeyAuthentication no\nPasswordAuthentication yes\nKbdInteractiveAuthentication no")
    message = failure(opener(host))
    assert "it takes password only, and mslaunch uses keys" in message
    assert "ssh-copy-id" in message


def test_a_host_that_wants_more_than_a_key(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd("PasswordAuthentication yes\nAuthenticationMethods publickey,password")
    assert "after the key it wants password too" in failure(opener(host))


def test_an_account_that_may_not_log_in(lab: SshLab, opener: Opener) -> None:
    message = failure(opener(lab.sshd("DenyUsers *")))
    assert "no key was accepted" in message


@pytest.mark.parametrize(
    ("said", "kind", "algorithm"),
    [
        (b"ssh-ed25519,rsa-sha2-256,rsa-sha2-512", "ssh-rsa", "rsa-sha2-512"),
        (b"ssh-ed25519,rsa-sha2-256", "ssh-rsa", "rsa-sha2-256"),
        (b"", "ssh-rsa", "rsa-sha2-512"),
        (b"rsa-sha2-256", "ssh-rsa-cert-v01@openssh.com", "rsa-sha2-256-cert-v01@openssh.com"),
        (b"rsa-sha2-256", "ssh-ed25519", "ssh-ed25519"),
    ],
)
def test_how_rsa_keys_sign(said: bytes, kind: str, algorithm: str) -> None:
    """A server that knows SHA-256 only says so in server-sig-algs (RFC 8308, 3.1)."""
    talk = paramiko_transport.AuthSession(
        SimpleNamespace(server_extensions={"server-sig-algs": said}), SimpleNamespace()
    )
    assert talk._algorithm(Identity(pack(kind), "", None)) == algorithm
