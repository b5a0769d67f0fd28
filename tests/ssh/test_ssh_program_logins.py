"""Logins with real parts of which only ssh's programs are capable: tickets, security keys, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from login_parts import PIN, SECURITY_KEY_PROVIDER, TOKEN_PROVIDER, Kdc, Token, launch, needs, secret_of_agent
from sshd import ME, Sshd, SshLab, keygen, public
from test_ssh_program import configure
from test_ssh_program_launch import notes

pytestmark = pytest.mark.sshd
WITH_KERBEROS = needs("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
TICKETS = "GSSAPIAuthentication yes\nGSSAPIStrictAcceptorCheck no\n"  #: for any of its names
WITH_SECURITY_KEY = needs(SECURITY_KEY_PROVIDER)
WITH_TOKEN = needs("softhsm2-util", TOKEN_PROVIDER)
PROGRAM = ("sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK")


# --- Kerberos


@pytest.fixture
def realm(lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    made = Kdc(lab)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)  # for sshd
    lab.environ.update(made.environ)
    yield made
    made.close()


def kerberos_host(lab: SshLab, realm: Kdc, more: str = "") -> Sshd:
    """A host that takes nothing but a ticket."""
    host = lab.sshd(f"{TICKETS}PubkeyAuthentication no\n{more}")
    realm.add_host(host)
    return host


@WITH_KERBEROS
def test_hosts_with_a_ticket(lab: SshLab, realm: Kdc) -> None:
    hosts = {name: kerberos_host(lab, realm) for name in ("n1", "n2")}
    configure(lab, "GSSAPIAuthentication yes\n", **hosts)
    realm.get_ticket()
    code, out, err = launch(lab, "-H", "n1,n2", *PROGRAM)
    assert (code, out) == (0, ["rank 0", "rank 1"]), err
    reason = "no key was accepted, and gssapiauthentication is set"
    assert err == f"mslaunch: n[1-2]: reached by the ssh program: {reason}\n"
    for host in hosts.values():
        assert f"Accepted gssapi-with-mic for {ME}" in host.wait_log("Accepted")


@WITH_KERBEROS
def test_hosts_without_a_ticket(lab: SshLab, realm: Kdc) -> None:
    hosts = {name: kerberos_host(lab, realm) for name in ("n1", "n2")}
    configure(lab, "GSSAPIAuthentication yes\n", **hosts)
    code, out, err = launch(lab, "-H", "n1,n2", *PROGRAM)
    assert (code, out, notes(err)) == (255, [], [])
    for line in (
        "2 of 2 hosts could not be used; nothing was started",
        "authentication: it takes gssapi-keyex, gssapi-with-mic only",
        "get a ticket for GSSAPI: kinit",
    ):
        assert line in err
    realm.get_ticket("-l", "1s", "-s", "-1h")
    assert launch(lab, "-H", "n1", *PROGRAM)[0] == 255, "the ticket has expired"


@WITH_KERBEROS
@pytest.mark.parametrize("more", ["GSSAPIKeyExchange yes", "PreferredAuthentications gssapi-keyex,gssapi-with-mic"])
def test_other_ways_to_show_a_ticket(lab: SshLab, realm: Kdc, more: str) -> None:
    """A key exchange by GSSAPI; and a configuration that forbids keys."""
    host = kerberos_host(lab, realm, "GSSAPIKeyExchange yes")
    configure(lab, f"GSSAPIAuthentication yes\n{more}\n", n1=host)
    realm.get_ticket()
    code, out, err = launch(lab, "-H", "n1", *PROGRAM)
    assert (code, out, len(notes(err))) == (0, ["rank 0"], 1), err
    assert "Accepted gssapi-" in host.wait_log("Accepted")
    lab.known_hosts(replace=True)
    code, out, err = launch(lab, "-H", "n1", *PROGRAM)
    assert (code, out) == (255, []) and "its host key is not known" in err


@WITH_KERBEROS
def test_a_ticket_after_a_key(lab: SshLab, realm: Kdc) -> None:
    """The host wants both."""
    host = lab.sshd(f"{TICKETS}AuthenticationMethods publickey,gssapi-with-mic")
    realm.add_host(host)
    configure(lab, "GSSAPIAuthentication yes\n", n1=host)
    realm.get_ticket()
    code, out, err = launch(lab, "-H", "n1", *PROGRAM)
    assert (code, out, len(notes(err))) == (0, ["rank 0"], 1), err


@WITH_KERBEROS
@pytest.mark.parametrize("delegated", ["yes", "no"])
def test_a_ticket_goes_to_hosts_only_if_the_configuration_delegates_it(lab: SshLab, realm: Kdc, delegated: str) -> None:
    configure(lab, f"GSSAPIAuthentication yes\nGSSAPIDelegateCredentials {delegated}\n", n1=kerberos_host(lab, realm))
    realm.get_ticket("-f")
    code, out, err = launch(lab, "-H", "n1", "sh", "-c", "klist -s && echo delegated || echo none")
    assert (code, len(notes(err))) == (0, 1), err
    assert out == ["delegated" if delegated == "yes" else "none"]


# --- security keys


def security_key(lab: SshLab, kind: str, passphrase: str = "") -> Path:
    """A key of a device that is not needed, under the name that ssh-keygen gives it."""
    return keygen(lab.ssh / f"id_{kind.replace('-', '_')}", kind, passphrase, "-w", SECURITY_KEY_PROVIDER)


@WITH_SECURITY_KEY
@pytest.mark.parametrize("named", ["named", "usual"])
@pytest.mark.parametrize("kind", ["ed25519-sk", "ecdsa-sk"])
def test_hosts_with_a_security_key(lab: SshLab, kind: str, named: str) -> None:
    """Either the configuration names it, or it has the usual name, and another key is offered first."""
    key = security_key(lab, kind)
    hosts = {name: lab.sshd(authorized=public(key)) for name in ("n1", "n2")}
    keys = f"IdentityFile {key}\n" if named == "named" else ""
    configure(lab, f"SecurityKeyProvider {SECURITY_KEY_PROVIDER}\n", keys, **hosts)
    code, out, err = launch(lab, "-H", "n1,n2", *PROGRAM)
    assert (code, out) == (0, ["rank 0", "rank 1"]), err
    reason = f"no key was accepted, and {key} is of a security key"
    assert err == f"mslaunch: n[1-2]: reached by the ssh program: {reason}\n"


@WITH_SECURITY_KEY
def test_a_security_key_that_is_not_there(lab: SshLab) -> None:
    """Without its provider, the ssh program looks for a device."""
    key = security_key(lab, "ed25519-sk")
    configure(lab, keys=f"IdentityFile {key}\n", n1=lab.sshd(authorized=public(key)))
    code, out, err = launch(lab, "-H", "n1", *PROGRAM)
    assert (code, out, notes(err)) == (255, [], [])
    assert "authentication: no key was accepted" in err and "plug the security key in" in err


@WITH_SECURITY_KEY
def test_a_security_key_with_a_passphrase(lab: SshLab) -> None:
    """The ssh program cannot ask for it; ssh-agent signs for the built-in client."""
    key = security_key(lab, "ed25519-sk", "secret")
    host = lab.sshd(authorized=public(key))
    configure(lab, f"SecurityKeyProvider {SECURITY_KEY_PROVIDER}\n", f"IdentityFile {key}\n", n1=host)
    code, out, err = launch(lab, "-H", "n1", *PROGRAM)
    assert (code, out, notes(err)) == (255, [], [])
    assert f"eval $(ssh-agent); ssh-add {key}" in err
    lab.agent()
    secret_of_agent(lab, "secret", "-S", SECURITY_KEY_PROVIDER, key)
    assert launch(lab, "-H", "n1", *PROGRAM) == (0, ["rank 0"], "")


# --- PKCS#11


@pytest.fixture
def token(lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> Token:
    made = Token(lab)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)  # for ssh-agent
    lab.environ.update(made.environ)
    return made


@WITH_TOKEN
@pytest.mark.parametrize("named", [True, False])
def test_a_token_with_a_pin(lab: SshLab, token: Token, named: bool) -> None:
    """The ssh program cannot ask for it; ssh-agent signs for the built-in client.

    `named`: the configuration allows only the key of the token.
    """
    hosts = {name: lab.sshd(authorized=f"{token.public}\n") for name in ("n1", "n2")}
    keys = f"IdentitiesOnly yes\nIdentityFile {token.public_file}\n" if named else None
    configure(lab, f"PKCS11Provider {TOKEN_PROVIDER}\n", keys, **hosts)
    code, out, err = launch(lab, "-H", "n1,n2", *PROGRAM)
    assert (code, out, notes(err)) == (255, [], [])
    assert "2 of 2 hosts could not be used; nothing was started" in err
    assert "authentication: no key was accepted" in err and f"eval $(ssh-agent); ssh-add -s {TOKEN_PROVIDER}" in err
    lab.agent()
    secret_of_agent(lab, PIN, "-s", TOKEN_PROVIDER)
    assert launch(lab, "-H", "n1,n2", *PROGRAM) == (0, ["rank 0", "rank 1"], "")


@WITH_TOKEN
def test_a_token_without_a_pin(lab: SshLab, token: Token) -> None:
    key = next(line for line in token.add_key_without_pin().splitlines() if line.endswith(" open"))
    hosts = {name: lab.sshd(authorized=f"{key}\n") for name in ("n1", "n2")}
    configure(lab, f"PKCS11Provider {TOKEN_PROVIDER}\n", **hosts)
    code, out, err = launch(lab, "-H", "n1,n2", *PROGRAM)
    assert (code, out) == (0, ["rank 0", "rank 1"]), err
    reason = f"no key was accepted, and PKCS11Provider {TOKEN_PROVIDER} is set"
    assert err == f"mslaunch: n[1-2]: reached by the ssh program: {reason}\n"
