"""The keywords of ssh_config(5): honoured, of no effect here, or refused where they are set.

Each keyword of OpenSSH up to 10.2, and Debian's for GSSAPI, stands in exactly one row.  An argument that ssh would not
take is refused as ssh does, also in a block that is for another host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mslaunch.errors import LinkError
from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.algorithms import KINDS, is_known
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, ConfigLine, words

HONOURED, HARMLESS, REFUSED, BLOCK = "honoured", "harmless", "refused", "block"

#: effect -> form of the arguments -> keywords
_TABLE: Mapping[str, Mapping[str, str]] = {
    HONOURED: {
        "flag": "batchmode hashknownhosts identitiesonly",
        "word": "hostkeyalias hostname ignoreunknown preferredauthentications revokedhostkeys user",
        "path": "certificatefile identityagent identityfile",
        "files": "globalknownhostsfile userknownhostsfile",
        "time": "connecttimeout serveraliveinterval",
        "number": "connectionattempts requiredrsasize serveralivecountmax",
        "choice": "addressfamily pubkeyauthentication stricthostkeychecking",
        "list": "ciphers hostkeyalgorithms kexalgorithms macs pubkeyacceptedalgorithms",
        "command": "proxycommand",
        "jump": "proxyjump",
        "port": "port",
    },
    # no terminal, no forwarding, no shared connections, no environment but mslaunch's own
    HARMLESS: {
        "flag": "clearallforwardings enableescapecommandline exitonforwardfailure forkafterauthentication forwardx11 "
        "forwardx11trusted gatewayports permitlocalcommand stdinnull streamlocalbindunlink tcpkeepalive visualhostkey "
        # methods of authentication that only the ssh program tries
        "enablesshkeysign gssapiauthentication gssapidelegatecredentials gssapikeyexchange gssapirenewalforcesrekey "
        "gssapitrustdns hostbasedauthentication kbdinteractiveauthentication passwordauthentication "
        # it would be less strict: the host key is checked all the same
        "nohostauthenticationforlocalhost "
        # only with CanonicalizeHostname, which the ssh program is asked about
        "canonicalizefallbacklocal",
        "word": "controlpath xauthlocation fingerprinthash "
        "gssapiclientidentity gssapikexalgorithms gssapiserveridentity kbdinteractivedevices "
        "pkcs11provider securitykeyprovider",  # they add keys
        "time": "forwardx11timeout",
        "number": "canonicalizemaxdots numberofpasswordprompts",
        "choice": "compression controlmaster requesttty sessiontype tunnel updatehostkeys canonicalizehostname",
        "command": "localcommand remotecommand",
        "list": "casignaturealgorithms",  # of host certificates, which only the ssh program accepts
        "any": "addkeystoagent canonicaldomains canonicalizepermittedcnames channeltimeout controlpersist "
        "dynamicforward escapechar forwardagent hostbasedacceptedalgorithms ipqos localforward loglevel logverbose "
        "obscurekeystroketiming permitremoteopen remoteforward sendenv setenv streamlocalbindmask syslogfacility tag "
        "tunneldevice versionaddendum warnweakcrypto "
        # ssh itself passes over these
        "afstokenpassing cipher compressionlevel fallbacktorsh globalknownhostsfile2 kerberosauthentication "
        "kerberostgtpassing protocol rhostsauthentication rhostsrsaauthentication rsaauthentication useprivilegedport "
        "userknownhostsfile2 useroaming usersh",
    },
    REFUSED: {
        "flag": "checkhostip proxyusefdpass",
        "word": "bindaddress bindinterface refuseconnection",
        "choice": "verifyhostkeydns",
        "command": "knownhostscommand",
        "any": "rekeylimit",
    },
    BLOCK: {"any": "host include match"},
}
_YES_NO = ("yes", "no", "true", "false")
_CHOICES = {
    "addressfamily": ("any", "inet", "inet6"),
    "canonicalizehostname": (*_YES_NO, "always"),
    "compression": ("yes", "no"),
    "controlmaster": (*_YES_NO, "auto", "ask", "autoask"),
    "pubkeyauthentication": (*_YES_NO, "unbound", "host-bound"),
    "requesttty": (*_YES_NO, "force", "auto"),
    "sessiontype": ("none", "subsystem", "default"),
    "stricthostkeychecking": (*_YES_NO, "ask", "off", "accept-new"),
    "tunnel": (*_YES_NO, "ethernet", "point-to-point"),
    "updatehostkeys": (*_YES_NO, "ask"),
    "verifyhostkeydns": (*_YES_NO, "ask"),
}
_ALIASES = {
    "challengeresponseauthentication": "kbdinteractiveauthentication",
    "dsaauthentication": "pubkeyauthentication",
    "hostbasedkeytypes": "hostbasedacceptedalgorithms",
    "identityfile2": "identityfile",
    "keepalive": "tcpkeepalive",
    "pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms",
    "rsaminsize": "requiredrsasize",  # Red Hat's
    "skeyauthentication": "kbdinteractiveauthentication",
    "smartcarddevice": "pkcs11provider",
    "tisauthentication": "kbdinteractiveauthentication",
}
#: values of refused keywords that are ssh's default, hence harmless
_USUAL = {
    "checkhostip": ("no",),
    "knownhostscommand": ("none",),
    "proxyusefdpass": ("no",),
    "pubkeyauthentication": ("yes", "no", "unbound"),
    "rekeylimit": ("default", "default none", "0", "0 none", "0 0"),
    "verifyhostkeydns": ("no",),
}


#: the refused keyword with which the ssh program connects nowhere either
_NEVER = "refuseconnection"


class Unjudged(Exception):  # noqa: N818 - a question for ssh -G, not an error
    """Only the ssh program can tell what the configuration means for this host."""


class Keyword(NamedTuple):
    """One keyword."""

    name: str  # lower case; of aliases the one that they stand for
    form: str
    effect: str


KEYWORDS = {
    name: Keyword(name, form, effect)
    for effect, forms in _TABLE.items()
    for form, names in forms.items()
    for name in names.split()
}


def keyword_of(key: str) -> Keyword | None:
    """The row of a keyword, by its name or an older one; None: ssh does not know it."""
    return KEYWORDS.get(_ALIASES.get(key, key))


def arguments(line: ConfigLine, keyword: Keyword) -> list[str]:
    """The arguments of a line, made uniform: yes and no, seconds.  Raises LinkError where ssh does, and Unjudged."""
    try:
        given = words(line.rest)
    except ValueError as error:
        raise LinkError(str(error), line.where) from error
    if keyword.form == "any":
        return given
    if keyword.form == "command":  # kept whole; its comment too
        return [line.rest.lstrip(" \t\r\n=")]
    if keyword.form == "jump":
        return [line.rest.lstrip(" \t\r\n=").partition("#")[0].rstrip()]
    if not given or not all(given[:1] if keyword.form != "files" else given):
        raise LinkError(f"{line.key}: missing argument", line.where)
    if keyword.form == "files":
        if len(given) > 1 and "none" in (word.lower() for word in given):
            raise LinkError(f'{line.key}: "none" must appear alone', line.where)
        return given
    value = _FORMS[keyword.form](keyword.name, given[0])
    if value is None:
        raise LinkError(f"{line.key} cannot be {given[0]!r}", line.where)
    if len(given) > 1:
        raise LinkError(f"{line.key}: extra arguments at end of line", line.where)
    return [value]


def refuse_unknown(line: ConfigLine) -> LinkError:
    """The error for a keyword that neither ssh nor mslaunch knows."""
    error = OwnSshError(f"Bad configuration option: {line.key}", line.where, f"IgnoreUnknown passes over it. {WAY_OUT}")
    error.ssh_reason = f"the SSH configuration has {line.key}, which only a newer ssh knows ({line.where})"
    return error


def refusal(name: str, value: list[str], where: str) -> LinkError | None:
    """The error for a value that cannot be honoured; None if it is no more than ssh's default."""
    keyword = KEYWORDS.get(name)
    usual = _USUAL.get(name, ())
    if (keyword and keyword.effect != REFUSED and not usual) or " ".join(value).lower() in usual:
        return None
    shown = f"{name} {' '.join(value)}"
    error = OwnSshError(f"mslaunch's own SSH cannot do what the SSH configuration asks for: {shown}", where, WAY_OUT)
    if name != _NEVER:
        error.ssh_reason = f"the SSH configuration has {shown} ({where})"
    return error


_LONGEST_TIME = 100  # characters


def seconds(text: str) -> int | None:
    """A time of ssh_config(5), as in `90` and `1m30s`; None if it is none."""
    # only the last number may have no unit, so there is one way to match, however long the text is
    if not 0 < len(text) <= _LONGEST_TIME or not re.fullmatch(r"(?:[0-9]+[smhdwSMHDW])*[0-9]*", text):
        return None
    units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    total = sum(int(number) * units[unit.lower()] for number, unit in re.findall("([0-9]+)([a-zA-Z]?)", text))
    return total if total < 1 << 31 else None


def _time(name: str, text: str) -> str | None:
    found = seconds(text)
    return "none" if text == "none" else None if found is None else str(found)


def _choice(name: str, text: str) -> str | None:
    word = text.lower()
    if word not in _CHOICES.get(name, _YES_NO):
        return None
    return {"true": "yes", "false": "no", "off": "no"}.get(word, word)


def _number(name: str, text: str) -> str | None:
    return str(int(text)) if re.fullmatch("[0-9]{1,10}", text) and int(text) < 1 << 31 else None


def _port(name: str, text: str) -> str | None:
    if re.fullmatch("[0-9]{1,10}", text):
        return str(int(text)) if 0 < int(text) < 1 << 16 else None
    try:
        return str(socket.getservbyname(text, "tcp"))
    except (OSError, UnicodeError):
        return None


def _list(name: str, text: str) -> str:
    if name in KINDS and not text.startswith("-"):
        for each in text.lstrip("+^").split(","):
            if not is_known(name, each):
                raise Unjudged(f"{each!r} is no {name} that mslaunch knows")
    return text


def _word(name: str, text: str) -> str:
    return text


_FORMS: Mapping[str, Callable[[str, str], str | None]] = {
    "choice": _choice,
    "flag": _choice,
    "list": _list,
    "number": _number,
    "path": _word,
    "port": _port,
    "time": _time,
    "word": _word,
}
