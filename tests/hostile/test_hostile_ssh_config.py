"""A hostile or strict SSH configuration: the ssh program and mslaunch refuse the same, row by row, against a real sshd.

ssh reads the configuration of the account, not of HOME, so it runs in a mount namespace in which the account's ~/.ssh
and /etc/ssh are those of the test.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "ssh"))
from other_user import UID
from sshd import Sshd, SshLab, keygen, public
from sshlinks import Opener, read

pytestmark = [pytest.mark.sshd, pytest.mark.root]
ACCOUNT = Path(pwd.getpwuid(os.getuid()).pw_dir)


class Row(NamedTuple):
    """What is attacked or forbidden, and what both programs say."""

    prepare: Callable[[Site], None]
    ssh: str  # in what ssh says; "": it connects
    ours: str  # in what mslaunch says; "": it connects


class Site:
    """A lab, one host in it, and the files that a row writes."""

    def __init__(self, lab: SshLab, system: Path, rsa: Path) -> None:
        self.lab = lab
        self.rsa = rsa  # a key of 2048 bits
        self.system = system  # stands for /etc/ssh
        self.kinds: tuple[str, ...] = ("ed25519",)
        self.options = ""
        self.host: Sshd | None = None
        system.mkdir()
        (system / "ssh_config").write_text("")

    def start(self) -> Sshd:
        if self.host is None:
            keys = [self.rsa if kind == "rsa" else kind for kind in self.kinds]
            self.host = self.lab.sshd(self.options, host_keys=keys)
        return self.host

    def file(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.lab.ssh / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def ssh(self) -> tuple[int, str]:
        """Run the ssh program; its status and what it says."""
        host = self.start()
        words = ["ssh", "-p", str(host.port), "-o", "BatchMode=yes", host.address, "true"]
        script = (
            f"mount --bind {shlex.quote(str(self.lab.ssh))} {ACCOUNT}/.ssh && "
            f"mount --bind {shlex.quote(str(self.system))} /etc/ssh && exec {shlex.join(words)}"
        )
        environ = {"PATH": os.environ["PATH"], "HOME": str(ACCOUNT), "LANG": "C.UTF-8"}
        (ACCOUNT / ".ssh").mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr.decode(errors="replace")

    def ours(self) -> str:
        """Open a link; what mslaunch says, "" if it connects."""
        opener = Opener(self.lab)
        link = opener(self.start(), "echo in")
        try:
            said = read(link)
            link.stream_ended()
            return "" if said == b"in\n" else str(link.failure())
        finally:
            link.close()
            assert link.wait(15)


@pytest.fixture(scope="module")
def rsa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: it takes seconds."""
    return keygen(tmp_path_factory.mktemp("rsa") / "key", "rsa", "", "-b", "2048")


@pytest.fixture
def site(tmp_path: Path, rsa: Path, monkeypatch: pytest.MonkeyPatch, need: Callable[..., str]) -> Iterator[Site]:
    need("unshare")
    need("ssh")
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, needs root: a mount namespace")
    system = tmp_path / "etc-ssh"
    monkeypatch.setattr("mslaunch.transport.ssh.config.ssh_config.SYSTEM", str(system / "ssh_config"))
    made = Site(SshLab(tmp_path), system, rsa)
    yield made
    made.lab.close()


def config(
    text: str, mode: int = 0o600, owner: int = 0, group: int = 0, host: str = "", keys: tuple[str, ...] = ()
) -> Callable[[Site], None]:
    """A ~/.ssh/config; `host`: lines for sshd; `keys`: kinds of its host keys."""

    def prepare(site: Site) -> None:
        site.options = host
        site.kinds = keys or site.kinds
        path = site.file("config", text.replace("SSH", str(site.lab.ssh)), mode)
        os.chown(path, owner, group)

    return prepare


def included(mode: int, owner: int = 0, block: str = "", system: bool = False) -> Callable[[Site], None]:
    def prepare(site: Site) -> None:
        other = site.file("other", "Compression no\n", mode)
        os.chown(other, owner, 0)
        if system:
            (site.system / "other").write_text("Compression no\n")
            (site.system / "other").chmod(mode)
            (site.system / "ssh_config").write_text(block + "Include other\n")
        else:
            site.file("config", f"{block}Include other\n")

    return prepare


def revoked(name: str, mode: int = 0o600) -> Callable[[Site], None]:
    def prepare(site: Site) -> None:
        host = site.start()
        key = public(host.host_keys[0])
        another = public(keygen(site.lab.directory / "another"))
        text = {
            "this": f"# a list\n\n{another}\n{key} comment\n",
            "another": f"{another}\n",
            "garbage": "not a key\n",
            "missing": "",
            "krl": "",
        }[name]
        path = site.file("revoked", text, mode)
        if name == "missing":
            path.unlink()
        if name == "krl":
            words = ["ssh-keygen", "-q", "-k", "-f", str(path), f"{host.host_keys[0]}.pub"]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        site.file("config", f"RevokedHostKeys {path}\n")

    return prepare


def system(text: str, mode: int = 0o644) -> Callable[[Site], None]:
    def prepare(site: Site) -> None:
        (site.system / "ssh_config").write_text(text)
        (site.system / "ssh_config").chmod(mode)

    return prepare


def short_key(text: str) -> Callable[[Site], None]:
    """An RSA key of 2048 bits for the user."""

    def prepare(site: Site) -> None:
        for end in ("", ".pub"):
            (site.lab.ssh / f"id_ed25519{end}").unlink()
            shutil.copy(f"{site.rsa}{end}", f"{site.lab.ssh}/id_rsa{end}")
        site.lab.key = site.lab.ssh / "id_rsa"
        site.file("config", text)

    return prepare


OWNER = "Bad owner or permissions on"
DEBIAN = (
    "Include /etc/ssh/ssh_config.d/*.conf\nHost *\n SendEnv LANG LC_*\n HashKnownHosts yes\n GSSAPIAuthentication yes\n"
)
ROWS = {
    "nothing": Row(config(""), "", ""),
    "Debian's defaults": Row(system(DEBIAN), "", ""),
    "writable by all": Row(config("", 0o666), OWNER, OWNER),
    "writable by all, and a command in it": Row(
        config("Host *\n ProxyCommand sh -c 'touch SSH/owned; exit 1'\n", 0o666), OWNER, OWNER
    ),
    "another user's": Row(config("", 0o600, UID), OWNER, OWNER),
    "writable by a group of others": Row(config("", 0o660, 0, UID), OWNER, OWNER),
    "writable by the user's private group": Row(config("", 0o660), "", ""),  # of Debian's ssh only
    "readable by all": Row(config("", 0o644), "", ""),
    "included, writable by all": Row(included(0o646), OWNER, OWNER),
    "included, another user's": Row(included(0o644, UID), OWNER, OWNER),
    "included for another host, writable by all": Row(included(0o646, 0, "Host other\n"), OWNER, OWNER),
    "included by the system's, writable by all": Row(included(0o646, 0, "", True), OWNER, OWNER),
    "the system's, writable by all": Row(system("Compression no\n", 0o666), "", ""),
    "unknown keyword": Row(config("NoSuchKeyword yes\n"), "Bad configuration option", "Bad configuration option"),
    "unknown keyword in the system's": Row(
        system("NoSuchKeyword yes\n"), "Bad configuration option", "Bad configuration option"
    ),
    "unknown keyword, ignored": Row(config("IgnoreUnknown nos*\nNoSuchKeyword yes\n"), "", ""),
    "a mistake for another host": Row(config("Host other\n Port many\n"), "Bad port", "port cannot be 'many'"),
    "key revoked": Row(revoked("this"), "revoked by file", "is revoked in"),
    "another key revoked": Row(revoked("another"), "", ""),
    "revoked keys are garbage": Row(revoked("garbage"), "Error checking host key", "is no public key"),
    "revoked keys are missing": Row(revoked("missing"), "Error checking host key", "cannot be read"),
    "revoked keys in a KRL": Row(revoked("krl"), "revoked by file", "revoked by file"),
    "no revoked keys": Row(config("RevokedHostKeys none\n"), "", ""),
    "known hosts by a command": Row(
        config("KnownHostsCommand /bin/false\n"), "KnownHostsCommand failed", "knownhostscommand /bin/false"
    ),
    "no keys": Row(config("PubkeyAuthentication no\n"), "Permission denied", "forbids keys"),
    "no keys among the methods": Row(
        config("PreferredAuthentications password\n"), "Permission denied", "forbids keys"
    ),
    "host key of a kind that is not known": Row(
        config("HostKeyAlgorithms ecdsa-sha2-nistp256\n", keys=("ed25519", "ecdsa")), "verification failed", "host key"
    ),
    "host key of the known kind": Row(config("HostKeyAlgorithms ssh-ed25519\n", keys=("ed25519", "ecdsa")), "", ""),
    "host key too short": Row(
        config("RequiredRSASize 4096\n", keys=("rsa",)), "Invalid key length", "RequiredRSASize is 4096"
    ),
    "user key too short": Row(short_key("RequiredRSASize 3000\n"), "Permission denied", "RequiredRSASize is 3000"),
    "user key long enough": Row(short_key("RequiredRSASize 2048\n"), "", ""),
    "user key of a kind that is not accepted": Row(
        config("PubkeyAcceptedAlgorithms rsa-sha2-512\n"), "Permission denied", "PubkeyAcceptedAlgorithms rules out"
    ),
    "key exchange that the host lacks": Row(
        config("KexAlgorithms ecdh-sha2-nistp256\n", host="KexAlgorithms curve25519-sha256"),
        "no matching key exchange method",
        "of kexalgorithms it offers only curve25519-sha256",
    ),
    "key exchange that the host has": Row(
        config("KexAlgorithms ecdh-sha2-nistp384\n", host="KexAlgorithms curve25519-sha256,ecdh-sha2-nistp384"), "", ""
    ),
    "cipher that the host lacks": Row(
        config("Ciphers aes256-ctr\n", host="Ciphers aes128-ctr"),
        "no matching cipher",
        "of ciphers it offers only aes128-ctr",
    ),
    "MAC that the host lacks": Row(
        config("Ciphers aes128-ctr\nMACs hmac-sha2-256\n", host="MACs hmac-sha2-512-etm@openssh.com"),
        "no matching MAC",
        "of macs it offers only hmac-sha2-512-etm@openssh.com",
    ),
    "the policy of Red Hat and openEuler": Row(
        config(
            "Match final all\n"
            " Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr\n"
            " GSSAPIKeyExchange no\n"
            " CASignatureAlgorithms ecdsa-sha2-nistp256,sk-ecdsa-sha2-nistp256@openssh.com,ssh-ed25519,rsa-sha2-512\n"
            " RequiredRSASize 2048\n"
        ),
        "",
        "",
    ),
    "MAC that both have": Row(config("Ciphers aes128-ctr\nMACs -*-etm@*\n", host="MACs hmac-sha2-512"), "", ""),
    "no cipher by that name": Row(config("Ciphers best\n"), "Bad SSH2 cipher spec", "Bad SSH2 cipher spec"),
}


@pytest.mark.parametrize("name", ROWS)
def test_ssh_and_mslaunch_agree(site: Site, name: str) -> None:
    row = ROWS[name]
    row.prepare(site)
    status, said = site.ssh()
    assert (status == 0, row.ssh in said) == (row.ssh == "", True), said
    ours = site.ours()
    assert row.ours in ours if row.ours else ours == ""
    assert not (site.lab.ssh / "owned").exists()


#: what mslaunch refuses although ssh does it: the user must ask for that, and the message says how
STRICTER = {
    "only strange key exchanges": "KexAlgorithms diffie-hellman-group14-sha1\n",
    "only weak MACs": "MACs hmac-sha1,hmac-md5\n",
}


@pytest.mark.parametrize("name", STRICTER)
def test_what_cannot_be_honoured_is_refused_with_the_way_out(site: Site, name: str) -> None:
    site.file("config", STRICTER[name])
    said = site.ours()
    assert "--rsh-agent ssh" in said
    assert STRICTER[name].split()[0].lower() in said.lower()
    assert "config:1" in said


WEAK = {
    "key exchange": ("KexAlgorithms diffie-hellman-group14-sha1,diffie-hellman-group-exchange-sha1", "kexalgorithms"),
    "ciphers": ("Ciphers aes128-cbc,3des-cbc", "ciphers"),
    "MACs": ("Ciphers aes128-ctr\nMACs hmac-sha1,hmac-md5,hmac-sha1-96", "macs"),
    "host key": ("HostKeyAlgorithms ssh-rsa", "hostkeyalgorithms"),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_host_with_weak_algorithms_is_refused_by_name(site: Site, name: str) -> None:
    """It got in unseen: paramiko's own lists have them."""
    site.options, keyword = WEAK[name]
    site.kinds = ("rsa",) if name == "host key" else site.kinds
    weak = site.options.split("\n")[-1].split()[1].replace(",", ", ")
    said = site.ours()
    assert f"of {keyword} it offers only {weak}, none of which is allowed here" in said
    assert "--rsh-agent ssh" in said
