"""ssh_config(5) for one host: ~/.ssh/config, /etc/ssh/ssh_config, and the arguments of --rsh-agent ssh.

The rules are those of ssh (`config_pass` has them): the first value of a keyword wins, a file that others can write is
refused, and so is a keyword that ssh does not know.  A keyword that bears on security and cannot be honoured here is
refused where it is set (`config_keywords`).  What cannot be judged (canonical host names, a criterion of a later ssh)
is never guessed: for such a host, `ssh -G` prints what ssh itself would do.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mslaunch.errors import LinkError
from mslaunch.host.files import NO_FILE
from mslaunch.transport.ssh.config.algorithms import OFFERED, offered
from mslaunch.transport.ssh.config.config_keywords import BLOCK, Unjudged, arguments, keyword_of, refusal
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, ConfigLine, line_of, lines_of, lowered, read_config
from mslaunch.transport.ssh.config.config_pass import LISTS, ConfigPass, Local, host_name
from mslaunch.transport.ssh.config.ssh_program import ConfigPrograms, account_file, ask_ssh

SYSTEM = "/etc/ssh/ssh_config"
UNSAFE = r"[\s'\"`$\\;&<>|(){}]"  #: characters that ssh refuses in host and user names
_SMALLEST_RSA = 1024  # bits; ssh takes none below
#: method of authentication that only the ssh program has -> the keyword that allows it
_LOGINS = {
    "gssapi-with-mic": "gssapiauthentication",
    "gssapi-keyex": "gssapikeyexchange",
    "hostbased": "hostbasedauthentication",
}
_METHODS = ",".join(("publickey", *_LOGINS))
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_PATHS = ("globalknownhostsfile", "revokedhostkeys", "certificatefile", "controlpath", "identityagent")  # may have a ~
_KEYS = ("ed25519", "ecdsa", "rsa", "ed25519_sk", "ecdsa_sk")  # ~/.ssh/id_…
#: keywords that decide under which names, in which files and how a host key is looked for
_OF_HOST_KEYS = (
    *("hostname", "port", "user", "hostkeyalias", "stricthostkeychecking"),
    *("userknownhostsfile", "globalknownhostsfile"),
)
#: keywords with which the ssh program would carry no command -> the value with which it does; OpenSSH 8.7 added them
_PLAIN_SESSION = {"forkafterauthentication": "no", "sessiontype": "default", "stdinnull": "no"}


class HostConfig(NamedTuple):
    """How to reach one host."""

    name: str  # as the launcher calls it
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()  # those that are named; empty: the default ones
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = ""  # socket of ssh-agent, or ""
    proxy_jump: tuple[str, ...] = ()  # [user@]host[:port], the nearest first
    proxy_command: str = ""
    host_key_alias: str = ""
    strict: str = "ask"  # yes, ask, accept-new, no
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    hash_known_hosts: bool = False
    family: str = "any"  # any, inet, inet6
    connect_timeout: float | None = None  # seconds
    attempts: int = 1  # to connect, a second apart
    batch: bool = False  # ask nobody
    patience: int = 0  # seconds of silence after which it counts as lost; 0: not said
    public_keys: bool = True  # PubkeyAuthentication, PreferredAuthentications
    required_rsa: int = _SMALLEST_RSA  # bits
    revoked: str = ""  # file of RevokedHostKeys
    algorithms: Mapping[str, Sequence[str]] = OFFERED  # keyword -> names
    host_keys_as_listed: bool = False  # HostKeyAlgorithms gives the order; else the types of known keys come first
    chosen: Mapping[str, str] = {}  # keyword of algorithms -> where it is set
    other_logins: Mapping[str, str] = {}  # method that only the ssh program has -> the keyword that allows it
    hardware: str = "none"  # PKCS11Provider, whose keys only the ssh program can use
    shares: bool = False  # ControlPath: the ssh program may have an open connection to the host

    @property
    def where(self) -> str:
        """How messages call the host."""
        address = "" if self.hostname == self.name else f" [{self.hostname}]"
        return f"{self.name}{address} (user {self.user}, port {self.port})"


def refuse_unsafe(name: str, user: str | None) -> None:
    """Raise LinkError for a host or a user that must not become a word of a shell command."""
    for text in (name, user or ""):
        if text.startswith("-") or re.search(UNSAFE, text):
            raise LinkError(f"{text!r} cannot be a host or a user", name)


class Resolver:
    """The configuration of one launch; files are read once."""

    def __init__(self, environ: Mapping[str, str], agent_args: Sequence[str] = (), system: str | None = None) -> None:
        self._environ = environ
        self._account = _account()
        self.home = environ.get("HOME") or self._account[1]
        self.programs = ConfigPrograms()
        self._local = Local(self._account[0], self.home, environ, self.programs)
        self._options, self._only_file = parse_agent_args(agent_args)
        self._system = SYSTEM if system is None else system
        self._texts: dict[tuple[str, bool], list[ConfigLine]] = {}
        self._agent_args = tuple(agent_args)

    def host(self, name: str, user: str | None = None, port: int | None = None) -> HostConfig:
        """The configuration of `name`; `user` and `port` override all files.  Raises LinkError."""
        refuse_unsafe(name, user)
        values, where = self._values(name, self._first(user, port))
        for key, value in values.items():
            error = refusal(key, value, where.get(key, "ssh -G"))
            if error:
                raise error
        return self._finish(name, values, where)

    def key_rules(self, name: str, user: str | None, port: int | None) -> HostConfig:
        """Only what decides about host keys, whatever else our own SSH cannot honour.  Raises LinkError."""
        values, where = self._values(name, self._first(user, port))
        return self._finish(name, {key: values[key] for key in _OF_HOST_KEYS if key in values}, where)

    def lists_host_keys(self, name: str) -> bool:
        """Whether HostKeyAlgorithms gives the order of host keys for `name`."""
        try:
            values, where = self._values(name, [])
        except LinkError:
            return False
        return _gives_order(values, where)

    def for_program(self, name: str, user: str | None, port: int | None, trust: str) -> list[str]:
        """The options by which the ssh program reads the same configuration; `trust`: its StrictHostKeyChecking.

        The flags of plm_rsh_args that change nothing here are left out: there, they would (-n, -A).
        """
        first = self._first(user, port)
        try:
            values = self._values(name, first)[0]
        except LinkError:  # such as a keyword that only a newer ssh knows
            values = {}
        options = {"StrictHostKeyChecking": trust}
        options.update((key, usual) for key, usual in _PLAIN_SESSION.items() if key in values)
        words = [f"-o{key}={value}" for key, value in options.items()]
        words += [f"-o{line.key}={line.rest}" for line in (*first, *self._options)]
        if self.home != self._account[1]:
            words += self._of_home(values)
        if self._only_file:
            return [*words, "-F", self._only_file]
        return [*words, *account_file(self.home, self._account[1], self._system)]

    def _of_home(self, values: Mapping[str, Sequence[str]]) -> list[str]:
        """What stands below HOME, by default or as ~ and %d; ssh itself looks below the home of the account."""
        place = f"{self.home}/.ssh"
        found = {"userknownhostsfile": values.get("userknownhostsfile", _KNOWN_HOSTS)}
        found["identityfile"] = values.get("identityfile", [])
        if not found["identityfile"]:
            found["identityfile"] = [key for key in (f"{place}/id_{kind}" for kind in _KEYS) if os.path.exists(key)]
        for key in _PATHS:
            if any(path.startswith("~") or "%d" in path for path in values.get(key, ())):
                found[key] = values[key]
        lists = {key: [self._below_home(path) for path in paths] for key, paths in found.items()}
        each = [(key, path) for key in LISTS for path in lists.pop(key, [])]  # which each option lengthens
        each += [(key, " ".join(paths)) for key, paths in lists.items()]
        return [f"-o{key}={rest}" for key, rest in each]

    def _below_home(self, path: str) -> str:
        """Quote `path` as one argument of a directive; expand ~ and %d, and leave other tokens to ssh."""
        if path.lower() == "none":
            return path
        path = re.sub("%(.)", lambda found: self.home if found[1] == "d" else found[0], path)
        return _quoted(self.home + path[1:] if path.startswith("~/") else path)

    @staticmethod
    def _first(user: str | None, port: int | None) -> list[ConfigLine]:
        """What the launcher knows of a host, as the first lines of its configuration."""
        first = [ConfigLine("user", user, "the host")] if user else []
        return [*first, ConfigLine("port", str(port), "the host")] if port else first

    def _values(self, name: str, first: Sequence[ConfigLine]) -> tuple[dict[str, list[str]], dict[str, str]]:
        """The values for a host, and where each stands."""
        found = ConfigPass(name, self._local, self.lines, self._system)
        try:
            for line in [*first, *self._options]:
                found.take(line)
            found.read_all(self._files())
            return found.values, found.where
        except Unjudged as reason:
            args = [*(f"-o{line.key}={line.rest}" for line in first), *self._agent_args]
            args += [] if self._only_file else account_file(self.home, self._account[1], self._system)
            raw = ask_ssh(name, args, self._environ, str(reason), self.programs)
        return {key: _printed(key, rests) for key, rests in raw.items()}, {}

    def _files(self) -> list[tuple[str, bool]]:
        """The files, and whether others must not be able to write them: as in ssh, that is asked of ~/.ssh/config."""
        if self._only_file:
            return [] if self._only_file.lower() == "none" else [(self._only_file, False)]
        return [(f"{self.home}/.ssh/config", True), (self._system, False)]

    def lines(self, path: str, guarded: bool) -> list[ConfigLine]:
        """The directives in a file; [] if it is not there, which is an error only for the file of -F."""
        if (path, guarded) not in self._texts:
            try:
                self._texts[path, guarded] = lines_of(read_config(path, guarded), path)
            except IsADirectoryError:
                self._texts[path, guarded] = []
            except OSError as error:
                if path == self._only_file:
                    raise LinkError(f"cannot be read: {error.strerror}", f"-F {path}") from error
                usual = path in (f"{self.home}/.ssh/config", self._system)
                # ssh passes one by that it may not read; one that it would read may have rules that must hold
                if not isinstance(error, FileNotFoundError) and not (usual and error.errno in NO_FILE):
                    raise LinkError(f"cannot be read: {error.strerror}", path) from error
                self._texts[path, guarded] = []
        return self._texts[path, guarded]

    def expand(self, text: str, values: Mapping[str, Sequence[str]], name: str, path: bool = False) -> str:
        """Replace the tokens of ssh_config(5); in a path also ~ and ${NAME}."""
        return self._local.expand(text, values, name, path)

    def _finish(self, name: str, values: dict[str, list[str]], where: Mapping[str, str]) -> HostConfig:
        def one(key: str, default: str = "") -> str:
            return values.get(key, [default])[0]

        def paths(key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
            found = values.get(key) or default
            return tuple(self.expand(each, values, name, True) for each in found if each.lower() != "none")

        hostname = lowered(host_name(one("hostname", name), name))
        values = {**values, "hostname": [hostname]}
        jump = one("proxyjump", "none")
        command = one("proxycommand", "none")
        timeout = one("connecttimeout", "none")
        methods = one("preferredauthentications", _METHODS).split(",")
        revoked = one("revokedhostkeys", "none")
        return HostConfig(
            name=name,
            hostname=hostname,
            port=int(one("port", "22")),
            user=one("user", self._account[0]),
            identity_files=paths("identityfile"),
            certificate_files=paths("certificatefile"),
            identities_only=one("identitiesonly") == "yes",
            agent=self._agent(one("identityagent", "SSH_AUTH_SOCK"), values, name),
            proxy_jump=() if jump.lower() == "none" else tuple(jump.split(",")),
            proxy_command="" if command.lower() == "none" else self.expand(command, values, name),
            host_key_alias=one("hostkeyalias"),
            strict=one("stricthostkeychecking", "ask"),
            user_known_hosts=paths("userknownhostsfile", _KNOWN_HOSTS),
            global_known_hosts=paths("globalknownhostsfile", ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")),
            hash_known_hosts=one("hashknownhosts") == "yes",
            family=one("addressfamily", "any"),
            connect_timeout=None if timeout in ("none", "0") else float(timeout),
            attempts=int(one("connectionattempts", "1")),
            batch=one("batchmode") == "yes",
            patience=_patience(one("serveraliveinterval", "0"), one("serveralivecountmax", "3")),
            public_keys=one("pubkeyauthentication", "yes") != "no" and "publickey" in methods,
            required_rsa=max(_SMALLEST_RSA, int(one("requiredrsasize", "0"))),
            revoked="" if revoked.lower() == "none" else self.expand(revoked, values, name, True),
            algorithms={key: offered(key, one(key), where.get(key, "ssh -G")) for key in OFFERED},
            host_keys_as_listed=_gives_order(values, where),
            chosen={key: where.get(key, "ssh -G") for key in OFFERED if key in values},
            **_only_by_ssh(one, methods),
        )

    def _agent(self, text: str, values: Mapping[str, Sequence[str]], name: str) -> str:
        """The socket of ssh-agent: IdentityAgent is "none", SSH_AUTH_SOCK, $NAME or a path."""
        if text == "SSH_AUTH_SOCK" or (text[:1] == "$" and text[1:2] != "{"):
            return self._environ.get(text.lstrip("$"), "")
        return "" if text.lower() == "none" else self.expand(text, values, name, True)


def _only_by_ssh(one: Callable[[str, str], str], methods: Sequence[str]) -> dict[str, Any]:
    """The fields about logins of which only the ssh program is capable; `one` returns a value, or a default."""
    return {
        "other_logins": {name: key for name, key in _LOGINS.items() if one(key, "no") == "yes" and name in methods},
        "hardware": one("pkcs11provider", "none"),
        "shares": one("controlpath", "none").lower() != "none",
    }


def _gives_order(values: Mapping[str, Sequence[str]], where: Mapping[str, str]) -> bool:
    """Whether HostKeyAlgorithms is a list; ssh -G does not tell one from a sign in front of one."""
    key = "hostkeyalgorithms"
    return key in where and key in values and values[key][0][:1] not in ("+", "-")


def _patience(interval: str, often: str) -> int:
    return 0 if interval == "none" else int(interval) * int(often)


def _printed(key: str, rests: Sequence[str]) -> list[str]:
    """The value of a keyword as `ssh -G` prints it, in the form of a file's."""
    keyword = keyword_of(key)
    if keyword and keyword.form == "files":
        return [path for rest in rests for path in _paths(rest)]
    if not keyword or keyword.form not in ("choice", "flag", "number", "time"):
        return [*rests]  # without quotes
    return [word for rest in rests for word in arguments(ConfigLine(key, rest, "ssh -G"), keyword)]


def _paths(text: str) -> list[str]:
    """The paths in a line of `ssh -G`, which prints a blank in a path like one between two paths."""
    found = re.split(" (?=[/~%$])", text)
    return [each for path in found for each in ([path] if path[:1] in "/~%$" else path.split())]


_FLAGS_WITH_VALUES = {"-p": "port", "-l": "user", "-i": "identityfile", "-J": "proxyjump"}


def parse_agent_args(args: Sequence[str]) -> tuple[list[ConfigLine], str]:
    """The words of plm_rsh_args as directives, and the file of -F ("" without one).  Raises LinkError."""
    found: list[ConfigLine] = []
    file = ""
    left = list(args)
    while left:
        word = left.pop(0)
        flag, value = word[:2], word[2:]
        if flag in ("-q", "-x", "-T", "-a", "-n", "-C", "-X", "-Y", "-A", "-k", "-K") and not value:
            continue  # they change nothing here: no terminal, no forwarding
        if flag in ("-4", "-6") and not value:
            found.append(ConfigLine("addressfamily", "inet" if flag == "-4" else "inet6", word))
            continue
        if flag not in (*_FLAGS_WITH_VALUES, "-o", "-F"):
            raise _unknown(word)
        if not value and not left:
            raise LinkError("needs a value", f"plm_rsh_args {word}")
        value = value or left.pop(0)
        if flag == "-F":
            file = value
        elif flag == "-o":
            found.append(_option(value))
        else:
            rest = value if flag == "-J" else _quoted(value)
            found.append(ConfigLine(_FLAGS_WITH_VALUES[flag], rest, f"{flag} {value}"))
    return found, file


def _option(text: str) -> ConfigLine:
    found = line_of(text, f"-o {text}")
    keyword = keyword_of(found.key) if found else None
    if not found or not keyword or keyword.effect == BLOCK:
        raise _unknown(f"-o {text}")
    return found


def _quoted(text: str) -> str:
    """One argument of a directive that is `text`."""
    return '"' + re.sub(r"([\\\"'])", r"\\\1", text) + '"'


def _unknown(option: str) -> LinkError:
    return LinkError("mslaunch's own SSH does not know this option of ssh", f"plm_rsh_args {option}", WAY_OUT)


def _account() -> tuple[str, str]:
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # a container in which the user has no account
        return str(os.getuid()), "/"
    return entry.pw_name, entry.pw_dir
