"""Parts for logins that only ssh's programs are capable of, all below the directory of a lab.

A Kerberos realm, a security key without a device, and a PKCS#11 token in files.

Nothing of this machine's configuration counts: the environment names every file.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sshd import ME, Sshd, SshLab, free_port, keygen, public

ROOT = Path(__file__).parents[2]
BOUND = 60  #: seconds for anything that should take two
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
REALM = "MSLAUNCH.TEST"
PASSWORD = "of this realm only"


#: a security key of OpenSSH's own tests: it needs no device, and its owner never has to touch it
SECURITY_KEY_PROVIDER = "/usr/lib/openssh/regress/misc/sk-dummy/sk-dummy.so"


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip the tests if one of these programs or files is missing."""
    missing = [name for name in programs if not shutil.which(name, path=_PATH) and not os.path.exists(name)]
    return pytest.mark.skipif(bool(missing), reason=f"NOT TESTED, not installed: {', '.join(missing)} (scripts/test)")


def launch(lab: SshLab, *words: object) -> tuple[int, list[str], str]:
    """The exit code of a launch, the lines of its output, sorted, and what mslaunch says."""
    done = subprocess.run(
        [sys.executable, "-m", "mslaunch", *map(str, words)],
        env={**lab.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        start_new_session=True,  # no terminal that somebody could be asked at
    )
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


TOKEN_PROVIDERS = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so")  #: Debian's, Red Hat's
TOKEN_PROVIDER = next(filter(os.path.exists, TOKEN_PROVIDERS), TOKEN_PROVIDERS[0])
PIN = "1234"


class Token:
    """A token with one RSA key, which it uses for those who know the PIN."""

    def __init__(self, lab: SshLab) -> None:
        place = lab.directory / "token"
        (place / "files").mkdir(parents=True)
        (place / "softhsm2.conf").write_text(f"directories.tokendir = {place}/files\n")
        self.environ = {"SOFTHSM2_CONF": f"{place}/softhsm2.conf"}  #: for all who use the token
        key = keygen(place / "key", "rsa", "", "-m", "PKCS8")
        self.public = public(key)
        self._run("--init-token", "--free", "--label", "token", "--so-pin", PIN)
        self._run("--import", str(key), "--token", "token", "--label", "key", "--id", "01")
        key.unlink()
        self.public_file = Path(f"{key}.pub")

    def add_key_without_pin(self) -> str:
        """Another key, which needs no PIN; the public keys of the token, as authorized_keys has them."""
        program = Path(__file__).with_name("token_without_pin.py")
        self._said(sys.executable, str(program), TOKEN_PROVIDER, PIN)
        return self._said("ssh-keygen", "-D", TOKEN_PROVIDER)

    def _run(self, *words: str) -> None:
        self._said("softhsm2-util", *words, "--pin", PIN)

    def _said(self, *words: str) -> str:
        environ = {**os.environ, **self.environ}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=BOUND, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def secret_of_agent(lab: SshLab, secret: str, *words: object) -> None:
    """Run ssh-add with these arguments; it asks for a secret, which this answers."""
    askpass = lab.directory / "askpass"
    askpass.write_text(f"#!/bin/sh\necho '{secret}'\n")
    askpass.chmod(0o700)
    environ = {**os.environ, **lab.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    done = subprocess.run(
        ["ssh-add", *map(str, words)],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr


_KRB5_CONF = """
[libdefaults]
 default_realm = {realm}
 dns_canonicalize_hostname = false
 rdns = false
 dns_lookup_realm = false
 dns_lookup_kdc = false
 k5login_directory = {directory}/k5login
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[logging]
 kdc = STDERR
"""
_KDC_CONF = """
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
 }}
"""


class Kdc:
    """A Kerberos realm with the user of a lab, and a key distribution center on 127.0.0.1."""

    def __init__(self, lab: SshLab) -> None:
        self.directory = lab.directory / "kerberos"
        (self.directory / "k5login").mkdir(parents=True)
        facts = {"realm": REALM, "directory": self.directory, "port": free_port("127.0.0.1")}
        (self.directory / "krb5.conf").write_text(_KRB5_CONF.format(**facts))
        (self.directory / "kdc.conf").write_text(_KDC_CONF.format(**facts))
        #: for clients and for hosts
        self.environ = {
            "KRB5_CONFIG": f"{self.directory}/krb5.conf",
            "KRB5_KTNAME": f"{self.directory}/keytab",
            "KRB5CCNAME": f"FILE:{self.directory}/tickets",
            "KRB5RCACHENAME": "none:",
        }
        self._environ = {**self.environ, "PATH": _PATH, "KRB5_KDC_PROFILE": f"{self.directory}/kdc.conf"}
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self._admin("addprinc", "-pw", PASSWORD, ME)
        program = shutil.which("krb5kdc", path=_PATH)
        assert program
        self._process = subprocess.Popen(
            [program, "-n", "-r", REALM], env=self._environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._wait_log(b"commencing operation")

    def add_host(self, host: Sshd) -> None:
        """A key for a host, which sshd finds in the keytab."""
        name = f"host/{host.address}"
        self._admin("addprinc", "-randkey", name)
        self._admin("ktadd", "-k", f"{self.directory}/keytab", name)

    def get_ticket(self, *words: str) -> None:
        """A ticket for the user."""
        self._run("kinit", *words, ME, given=PASSWORD)

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def _admin(self, *words: str) -> None:
        self._run("kadmin.local", "-r", REALM, *words)

    def _run(self, program: str, *words: str, given: str = "") -> None:
        path = shutil.which(program, path=_PATH)
        done = subprocess.run(
            [path or program, *words],
            env=self._environ,
            input=f"{given}\n",
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _wait_log(self, text: bytes) -> None:
        assert self._process.stderr
        end, log = time.monotonic() + BOUND, b""
        while text not in log:
            ready = select.select([self._process.stderr], [], [], max(0.0, end - time.monotonic()))[0]
            more = os.read(self._process.stderr.fileno(), 1 << 16) if ready else b""
            assert more, f"krb5kdc did not log {text!r}: {log!r}"
            log += more
