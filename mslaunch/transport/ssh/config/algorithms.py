"""The algorithms of SSH that mslaunch offers, and the lists of ssh_config(5) that narrow them and order them anew.

What paramiko would offer by itself does not count: a list of ours is what it has in common with the one that is
installed.  No SHA-1, no MD5, no CBC, no truncated MAC, no group under 2048 bits.  Group exchange is not among them,
because the host chooses the group in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mslaunch.errors import LinkError
from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, pattern_matches

_ECDSA = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_CERTIFICATE = "-cert-v01@openssh.com"

#: RFC 8731's name first: paramiko knows only its alias; elliptic curves cost a twentieth of finite fields
KEX = (
    *("curve25519-sha256", "curve25519-sha256@libssh.org"),
    *("ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521"),
    *("mlkem768x25519-sha256", "diffie-hellman-group16-sha512", "diffie-hellman-group14-sha256"),
)
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
HOST_KEYS = ("ssh-ed25519", *_ECDSA, *_RSA)
_SECURITY_KEYS = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")
_PLAIN = (*HOST_KEYS, *_SECURITY_KEYS)  # ssh-agent signs with those of hardware
USER_KEYS = (*(name.replace("@openssh.com", "") + _CERTIFICATE for name in _PLAIN), *_PLAIN)

#: keyword -> what is offered, the best first
OFFERED: Mapping[str, Sequence[str]] = {
    "kexalgorithms": KEX,
    "ciphers": CIPHERS,
    "macs": MACS,
    "hostkeyalgorithms": HOST_KEYS,
    "pubkeyacceptedalgorithms": USER_KEYS,
}
#: keyword -> what ssh offers by itself and mslaunch does not have: a host or a configuration that has only these is
#: for the ssh program.  What ssh offers only where the configuration asks for it is not among them
OF_SSH: Mapping[str, Sequence[str]] = {
    "kexalgorithms": (
        *("sntrup761x25519-sha512", "sntrup761x25519-sha512@openssh.com", "diffie-hellman-group18-sha512"),
        "diffie-hellman-group-exchange-sha256",
    ),
    "ciphers": ("chacha20-poly1305@openssh.com",),
    "macs": ("umac-64-etm@openssh.com", "umac-128-etm@openssh.com", "umac-64@openssh.com", "umac-128@openssh.com"),
    "hostkeyalgorithms": (*USER_KEYS[: len(_PLAIN)], *_SECURITY_KEYS),
    "pubkeyacceptedalgorithms": (),
}
_OLD = ("ssh-rsa", "ssh-dss")
_ALL_KEYS = (*USER_KEYS, *_OLD, *(name + _CERTIFICATE for name in _OLD), f"webauthn-{_SECURITY_KEYS[1]}")
_HMACS = ("hmac-sha1", "hmac-sha1-96", "hmac-md5", "hmac-md5-96", "hmac-sha2-256", "hmac-sha2-512")
_UMACS = ("umac-64", "umac-128")

#: names that ssh accepts in its lists: those above, and what mslaunch does not have or does not want
KINDS = {
    "kexalgorithms": (
        *KEX,
        *OF_SSH["kexalgorithms"],
        *("diffie-hellman-group-exchange-sha1", "diffie-hellman-group14-sha1", "diffie-hellman-group1-sha1"),
    ),
    "ciphers": (*CIPHERS, "chacha20-poly1305@openssh.com", "aes128-cbc", "aes192-cbc", "aes256-cbc", "3des-cbc"),
    "macs": (
        *(name + "-etm@openssh.com" for name in (*_HMACS, *_UMACS)),
        *_HMACS,
        *(name + "@openssh.com" for name in _UMACS),
    ),
    "hostkeyalgorithms": _ALL_KEYS,
    "pubkeyacceptedalgorithms": _ALL_KEYS,
    "casignaturealgorithms": _ALL_KEYS,
}


def is_known(keyword: str, name: str) -> bool:
    """Whether ssh takes `name` in the list of this keyword; among keys also a pattern that matches one."""
    known = KINDS[keyword]
    patterns = keyword not in ("kexalgorithms", "ciphers", "macs")
    return name in known or (patterns and any(pattern_matches([name], each) for each in known))


def assembled(text: str, usual: Sequence[str], everything: Sequence[str]) -> list[str]:
    """A list as ssh makes it: + appends to the usual one, - takes away from it, ^ puts in front of it."""
    sign, patterns = (text[0], text[1:].split(",")) if text[:1] in ("+", "-", "^") else ("", text.split(","))
    if sign == "-":
        return [name for name in usual if not pattern_matches(patterns, name)]
    named = [name for pattern in patterns for name in everything if pattern_matches([pattern], name)]
    ordered = {"+": [*usual, *named], "^": [*named, *usual], "": named}[sign]
    return list(dict.fromkeys(ordered))


def offered(keyword: str, text: str, where: str) -> list[str]:
    """What mslaunch offers with `text` as the value of this keyword ("": unset).  Raises LinkError if nothing."""
    ours = OFFERED[keyword]
    if not text:
        return list(ours)
    found = [name for name in assembled(text, ours, KINDS[keyword]) if name in ours]
    if not found:
        what = f"the SSH configuration leaves no {keyword} that mslaunch's own SSH offers: {text}"
        error = OwnSshError(what, where, f"It offers {', '.join(ours)}.\n{WAY_OUT}")
        if set(assembled(text, OF_SSH[keyword], KINDS[keyword])) & set(OF_SSH[keyword]):
            error.ssh_reason = f"the SSH configuration has {keyword} {text} ({where})"
        raise error
    return found


def of_program(printed: Mapping[str, str], host_keys_as_listed: bool) -> list[str]:
    """The options of ssh that take from its lists, as `ssh -G` has them, what neither we offer nor ssh by itself.

    `host_keys_as_listed`: else ssh asks for the types of known keys first, as long as the list only takes names away.
    Raises LinkError if nothing is left.
    """
    options = []
    for keyword in (*OFFERED, "casignaturealgorithms"):
        names = printed[keyword].split(",") if keyword in printed else []
        strong = (*OFFERED[keyword], *OF_SSH[keyword]) if keyword in OFFERED else _PLAIN
        left = [name for name in names if name in strong]
        if left == names:
            continue
        if not left:
            raise LinkError(f"the SSH configuration leaves no {keyword} that is allowed: {printed[keyword]}")
        text = ",".join(left)
        if keyword == "hostkeyalgorithms" and not host_keys_as_listed:
            text = "-" + ",".join(name for name in dict.fromkeys([*names, *KINDS[keyword]]) if name not in left)
        options.append(f"-o{keyword}={text}")
    return options


def rsa_bits(blob: bytes) -> int:
    """The size of an RSA key or certificate; 0 for any other blob."""
    fields, left = [], blob
    while len(left) >= 4 and len(left) - 4 >= (size := int.from_bytes(left[:4], "big")):
        fields.append(left[4 : 4 + size])
        left = left[4 + size :]
    kind = fields[0].decode("ascii", "replace") if fields else ""
    if not re.fullmatch(f"ssh-rsa({_CERTIFICATE})?", kind):
        return 0
    place = 3 if kind.endswith(_CERTIFICATE) else 2  # a certificate has a nonce before the exponent
    return int.from_bytes(fields[place], "big").bit_length() if len(fields) > place else 0
