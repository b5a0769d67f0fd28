"""Authentication with one host: which keys are offered, in which order, and the error if none is accepted.

An encrypted key is offered before its passphrase is asked for, so nobody types one for a host that would not accept
the key.  The host's deadline is halted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.algorithms import rsa_bits
from mslaunch.transport.ssh.config.config_lines import WAY_OUT
from mslaunch.transport.ssh.config.ssh_config import HostConfig
from mslaunch.transport.ssh.deadline import Arm, Deadline
from mslaunch.transport.ssh.paramiko_transport import AuthSession, Reply
from mslaunch.transport.ssh.user_keys import (
    USUAL_IN_HARDWARE,
    Identity,
    Keyring,
    candidates,
    default_files,
    is_in_hardware,
    usable_algorithms,
)

_PLUG_IN = "plug the security key in; if its file has a passphrase: eval $(ssh-agent); ssh-add {}"
BY_MASTER = "it has an open connection (ControlPath)"
_ADD_TOKEN = "if the token has a PIN, ssh-add asks for it: eval $(ssh-agent); ssh-add -s {}"
_GET_TICKET = "get a ticket for GSSAPI: kinit (klist shows those that you have)"
#: keyword -> what to do if the ssh program is not let in by it
_TODO = {"gssapiauthentication": _GET_TICKET, "gssapikeyexchange": _GET_TICKET}


class Authentication(NamedTuple):
    """The host, the keys, and the limits of one authentication."""

    config: HostConfig
    keyring: Keyring
    home: str
    deadline: Deadline
    arm: Arm
    lost: Callable[[], str]  # why the connection ended
    ahead: Callable[[], None] | None = None  # sends what may follow a proof at once, to a host that allows it


class LoginError(OwnSshError):
    """A host does not let us in."""

    check = "login"  #: as --check names what has failed
    master: HostConfig | None = None  #: the ssh program may have an open connection to this host, which comes first
    without_master = ""  #: the part of `ssh_reason` that counts if it has none; "": it is not let in then


def authenticate(talk: AuthSession, login: Authentication) -> None:
    """Offer the user's keys one after the other; raises LinkError if none is accepted."""
    troubles: list[str] = []
    tried: list[str] = []
    if not login.config.public_keys:
        what = "authentication: the SSH configuration forbids keys (PubkeyAuthentication, PreferredAuthentications)"
        refused = LoginError(what, login.config.where, f"mslaunch uses keys only. {WAY_OUT}")
        raise _with_reason(refused, login, (*login.config.other_logins,))
    reply = talk.begin(wait=not login.ahead)
    if reply.kind != "gone":
        reply = _offer_all(talk, login, candidates(login.keyring, login.config, login.home), tried, troubles)
        if reply.kind == "welcome":
            return
        named, file = login.config.identity_files, login.keyring.file
        troubles += [file(path).trouble for path in (*named, *default_files(login.config, login.home))]
        troubles += [f"{path} is not there" for path in named if file(path).missing]
    facts = [f"tried {', '.join(tried)}" if tried else "there was no key to try", *filter(None, troubles)]
    raise _with_reason(_refusal(login, reply, "\n".join(dict.fromkeys(facts))), login, reply.methods)


def _with_reason(error: LoginError, login: Authentication, methods: Sequence[str]) -> LoginError:
    """The error, and why the ssh program may be let in: a method or a key that only it has, or an open connection."""
    config = login.config
    found = [(f"{key} is set", _TODO.get(key, "")) for name, key in config.other_logins.items() if name in methods]
    if "publickey" in methods:
        usual = [] if config.identity_files else [f"{login.home}/.ssh/id_{kind}" for kind in USUAL_IN_HARDWARE]
        keys = [path for path in (*config.identity_files, *usual) if is_in_hardware(login.keyring.file(path).blob)]
        found += [(f"{path} is of a security key", _PLUG_IN.format(path)) for path in keys]
        if config.hardware.lower() != "none":
            found.append((f"PKCS11Provider {config.hardware} is set", _ADD_TOKEN.format(config.hardware)))
    if found:
        error.without_master, error.ssh_todo = found[0]
    if config.shares:
        error.master = config
        found.append((BY_MASTER, ""))
    error.ssh_reason = no_key(found[0][0]) if found else ""
    return error


def no_key(other: str) -> str:
    """Why the ssh program is used after a login that was refused; `other`: what may still let it in."""
    return f"no key was accepted, and {other}"


def _offer_all(
    talk: AuthSession, login: Authentication, offers: Sequence[Identity], tried: list[str], troubles: list[str]
) -> Reply:
    last = Reply("no")
    only = len(offers) == 1  # whoever has several keys would often send it in vain, and the host writes that to its log
    for identity in offers:
        reason = _ruled_out(login.config, identity)
        if reason:
            troubles.append(reason)
            continue
        tried.append(identity.label)
        last = _offer(talk, login, identity, troubles, only) or last
        if last.kind != "no" or last.partial or (last.methods and "publickey" not in last.methods):
            return last
    return last if last.methods else talk.none(login.config.user)


def _offer(
    talk: AuthSession, login: Authentication, identity: Identity, troubles: list[str], only: bool
) -> Reply | None:
    """Offer one key; None, and the reason in `troubles`, if it could not be offered."""
    user = login.config.user
    identity = identity._replace(algorithms=login.config.algorithms["pubkeyacceptedalgorithms"])
    if identity.sign is None:
        if identity.blob:
            reply = talk.probe(user, identity)
            if reply.kind != "offer it":
                return reply
        if login.config.batch:
            troubles.append(f"{identity.path} has a passphrase, and BatchMode forbids to ask (ssh-add {identity.path})")
            return None
        login.arm(login.keyring.cancel)
        with login.deadline.stopped():
            found = login.keyring.unlock(identity.path)
        if found.sign is None:
            troubles.append(f"unlock it for all hosts: eval $(ssh-agent); ssh-add {identity.path}")
            return None
        identity = identity._replace(blob=identity.blob or found.blob, sign=found.sign)
        reason = _ruled_out(login.config, identity)
        if reason:
            troubles.append(reason)
            return None
    try:
        return talk.prove(user, identity, login.ahead if only and login.ahead else lambda: None)
    except OSError as error:
        troubles.append(f"{identity.label}: {error}")
        return None


def _ruled_out(config: HostConfig, identity: Identity) -> str:
    """Why the configuration forbids this key; "" if it does not, or if the key is not known before it is unlocked."""
    bits = rsa_bits(identity.blob)
    if 0 < bits < config.required_rsa:
        return f"{identity.label} was not offered: {bits} bits, and RequiredRSASize is {config.required_rsa}"
    if identity.blob and not usable_algorithms(identity.type, config.algorithms["pubkeyacceptedalgorithms"]):
        return f"{identity.label} was not offered: PubkeyAcceptedAlgorithms rules out {identity.type}"
    return ""


def _refusal(login: Authentication, reply: Reply, facts: str) -> LoginError:
    config = login.config
    port = f"-p {config.port} " if config.port != 22 else ""
    copy = f"ssh-copy-id {port}{config.user}@{config.hostname}"
    if reply.kind == "gone":
        reason = login.lost() or "the host hung up"
        if "Too many" not in reason:
            return LoginError(f"authentication: {reason}", config.where, facts)
        todo = f"Name the right key in ~/.ssh/config: Host {config.name}, IdentityFile ~/.ssh/…, IdentitiesOnly yes"
        return LoginError(f"authentication: too many keys were offered ({reason})", config.where, f"{todo}\n{facts}")
    methods = ", ".join(method for method in reply.methods if method)
    if reply.partial:
        what = f"authentication: after the key it wants {methods} too, and mslaunch uses keys only"
        return LoginError(what, config.where, WAY_OUT)
    if reply.methods and "publickey" not in reply.methods:
        what = f"authentication: it takes {methods} only, and mslaunch uses keys"
        return LoginError(what, config.where, f"Have PubkeyAuthentication allowed there, then: {copy}\n{WAY_OUT}")
    todo = f"mslaunch uses keys. Put yours there: {copy}"
    return LoginError("authentication: no key was accepted", config.where, f"{todo}\n{facts}")
