"""ssh_config(5) for one host: ~/.ssh/config, /etc/ssh/ssh_config, and the arguments of --rsh-agent ssh.

The rules are those of ssh: the first value of a keyword wins, Include is read where it stands, Match is judged by what
is known so far, and # begins a comment outside quotes.  A criterion that cannot be judged here (canonical,
final, tagged, localnetwork, …) is never guessed: for such a host, `ssh -G` prints what ssh itself would do.
"""

from __future__ import annotations

import functools
import glob
import itertools
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mslaunch.errors import LinkError

#: keywords that have an effect here; others are ignored, since they change nothing that a launch uses
LISTS = ("identityfile", "certificatefile")
KEYWORDS = (
    *LISTS,
    *("hostname", "user", "port", "identitiesonly", "identityagent", "proxyjump", "proxycommand", "hostkeyalias"),
    *("stricthostkeychecking", "userknownhostsfile", "globalknownhostsfile", "hashknownhosts", "addressfamily"),
    *("connecttimeout", "batchmode", "serveraliveinterval", "serveralivecountmax"),
)
HARMLESS = ("loglevel", "forwardx11", "forwardagent", "requesttty", "compression", "controlmaster", "controlpath")
SYSTEM = "/etc/ssh/ssh_config"
UNSAFE = r"[\s'\"`$\\;&<>|(){}]"  #: characters that ssh refuses in host and user names
WAY_OUT = "Or let the ssh program do it: --rsh-agent ssh"


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
    batch: bool = False  # ask nobody
    patience: int = 0  # seconds of silence after which it counts as lost; 0: not said

    @property
    def where(self) -> str:
        """How messages call the host."""
        address = "" if self.hostname == self.name else f" [{self.hostname}]"
        return f"{self.name}{address} (user {self.user}, port {self.port})"


class Unjudged(Exception):  # noqa: N818 - a question for ssh -G, not an error
    """Only the ssh program can tell what the configuration means for this host."""


class ConfigLine(NamedTuple):
    """One directive."""

    key: str  # lower case
    rest: str  # the text after it
    where: str  # file:line, or the option


def words(text: str) -> list[str]:
    """The arguments of a directive: blanks separate, quotes hold together, # begins a comment outside of them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))


def lines_of(text: str, source: str) -> list[ConfigLine]:
    """The directives of one file."""
    lines = (_line(raw, f"{source}:{number}") for number, raw in enumerate(text.splitlines(), 1))
    return [line for line in lines if line]


def _line(raw: str, where: str) -> ConfigLine | None:
    found = re.match(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*\S)", raw)
    return ConfigLine(found[1].lower(), found[2], where) if found else None


def pattern_matches(patterns: Sequence[str], text: str) -> bool:
    """Host patterns: * and ?, a ! in front rules out (ssh_config(5), PATTERNS; sshd(8) has the same in known_hosts)."""
    found = [pattern for pattern in patterns if _pattern(pattern.lstrip("!")).fullmatch(text)]
    return bool(found) and not any(pattern.startswith("!") for pattern in found)


@functools.lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    # only * and ? are special; [ is the beginning of [host]:port in known_hosts, which rules fnmatch out
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.IGNORECASE)


class Resolver:
    """The configuration of one launch; files are read once."""

    def __init__(self, environ: Mapping[str, str], agent_args: Sequence[str] = (), system: str | None = None) -> None:
        self._environ = environ
        self._account = _account()
        self.home = environ.get("HOME") or self._account[1]
        self._options, self._only_file = parse_agent_args(agent_args)
        self._system = SYSTEM if system is None else system
        self._texts: dict[str, list[ConfigLine]] = {}
        self._agent_args = tuple(agent_args)

    def host(self, name: str, user: str | None = None, port: int | None = None) -> HostConfig:
        """The configuration of `name`; `user` and `port` override all files.  Raises LinkError."""
        for text in (name, user or ""):
            if text.startswith("-") or re.search(UNSAFE, text):  # it may become a word of a shell command
                raise LinkError(f"{text!r} cannot be a host or a user", name)
        first = [ConfigLine("user", user, "the host")] if user else []
        first += [ConfigLine("port", str(port), "the host")] if port else []
        try:
            found = _Pass(name, self, self._account[0])
            for line in [*first, *self._options]:
                found.take(line)
            for path in self._files():
                found.read(path, True, 0)
        except Unjudged as reason:
            return self._finish(name, self._ask_ssh(name, first, str(reason)))
        return self._finish(name, found.values)

    def _files(self) -> list[str]:
        return [self._only_file] if self._only_file else [f"{self.home}/.ssh/config", self._system]

    def lines(self, path: str) -> list[ConfigLine]:
        """The directives in a file; [] if it cannot be read, which is an error only for the file of -F."""
        if path not in self._texts:
            try:
                with open(path, encoding="utf-8", errors="surrogateescape") as file:
                    self._texts[path] = lines_of(file.read(), path)
            except OSError as error:
                if path == self._only_file:
                    raise LinkError(f"cannot be read: {error.strerror}", f"-F {path}") from error
                self._texts[path] = []
        return self._texts[path]

    def _ask_ssh(self, name: str, first: Sequence[ConfigLine], reason: str) -> dict[str, list[str]]:
        program = shutil.which("ssh", path=self._environ.get("PATH"))
        if not program:
            raise LinkError(f"{reason}, and there is no ssh program to ask", name, f"Rewrite it. {WAY_OUT}")
        command = [program, "-G", *(f"-o{line.key}={line.rest}" for line in first), *self._agent_args]
        mine = f"{self.home}/.ssh/config"
        if not self._only_file and self.home != self._account[1] and os.path.exists(mine):
            command += ["-F", mine]  # ssh uses the home of the account, whatever HOME says
        done = subprocess.run(
            [*command, "--", name], env=dict(self._environ), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LinkError(f"{reason}, and ssh -G says: {done.stderr.strip()}", name, WAY_OUT)
        values: dict[str, list[str]] = {}
        for line in lines_of(done.stdout, "ssh -G"):
            values.setdefault(line.key, []).append(line.rest)
        kinds = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
        usual = [f"~/.ssh/id_{kind}" for kind in kinds]  # as ssh -G writes them
        usual_known = f"{self._account[1]}/.ssh/known_hosts"
        known = values.get("userknownhostsfile", [])
        values["userknownhostsfile"] = [text.replace(usual_known, "~/.ssh/known_hosts") for text in known]
        values["identityfile"] = [path for path in values.get("identityfile", ()) if path not in usual]
        return values

    def expand(self, text: str, values: Mapping[str, Sequence[str]], name: str, path: bool = False) -> str:
        """Replace the tokens of ssh_config(5); in a path also ~ and ${NAME}."""
        one = {key: found[0] for key, found in values.items() if found}
        user = one.get("user", self._account[0])
        host = one.get("hostname", name)
        tokens = {"%": "%", "h": host, "n": name, "p": one.get("port", "22"), "r": user, "u": self._account[0]}
        tokens.update(d=self.home, i=str(os.getuid()), k=one.get("hostkeyalias", name), j=one.get("proxyjump", ""))
        if "%l" in text.lower():
            tokens.update(l=socket.getfqdn(), L=socket.gethostname().split(".")[0])
        text = re.sub("%(.)", lambda found: tokens.get(found[1], found[0]), text)
        if path:
            text = re.sub(r"\$\{(\w+)\}", lambda found: self._environ.get(found[1], ""), text)
            text = self.home + text[1:] if text.startswith("~/") else os.path.expanduser(text)
        return text

    def _finish(self, name: str, values: dict[str, list[str]]) -> HostConfig:
        def one(key: str, default: str = "") -> str:
            return values.get(key, [default])[0]

        def paths(key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
            found = values.get(key) or default
            return tuple(self.expand(each, values, name, True) for each in found if each.lower() != "none")

        def several(key: str, default: str) -> tuple[str, ...]:
            listed = tuple(word for each in values.get(key, [default]) for word in words(each))
            return tuple(self.expand(each, values, name, True) for each in listed if each.lower() != "none")

        hostname = re.sub("%([h%])", lambda t: {"h": name, "%": "%"}[t[1]], one("hostname", name))
        values = {**values, "hostname": [hostname]}
        jump = one("proxyjump", "none")
        command = one("proxycommand", "none")
        timeout, strict = one("connecttimeout", "none"), one("stricthostkeychecking", "ask")
        return HostConfig(
            name=name,
            hostname=hostname,
            port=_number(one("port", "22"), name),
            user=one("user", self._account[0]),
            identity_files=paths("identityfile"),
            certificate_files=paths("certificatefile"),
            identities_only=one("identitiesonly") == "yes",
            agent=self._agent(one("identityagent", "SSH_AUTH_SOCK"), values, name),
            proxy_jump=() if jump == "none" else tuple(jump.split(",")),
            proxy_command="" if command == "none" else self.expand(command, values, name),
            host_key_alias=one("hostkeyalias"),
            strict={"off": "no", "true": "yes", "false": "no"}.get(strict, strict),
            user_known_hosts=several("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"),
            global_known_hosts=several("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"),
            hash_known_hosts=one("hashknownhosts") == "yes",
            family=one("addressfamily", "any"),
            connect_timeout=None if timeout in ("none", "0") else float(_number(timeout, name)),
            batch=one("batchmode") == "yes",
            patience=_number(one("serveraliveinterval", "0"), name) * _number(one("serveralivecountmax", "3"), name),
        )

    def _agent(self, text: str, values: Mapping[str, Sequence[str]], name: str) -> str:
        """The socket of ssh-agent: IdentityAgent is "none", SSH_AUTH_SOCK, $NAME or a path."""
        if text == "SSH_AUTH_SOCK" or (text[:1] == "$" and text[1:2] != "{"):
            return self._environ.get(text.lstrip("$"), "")
        return "" if text.lower() == "none" else self.expand(text, values, name, True)


class _Pass:
    """The files, read once for one host."""

    def __init__(self, name: str, resolver: Resolver, local_user: str) -> None:
        self.values: dict[str, list[str]] = {}
        self._name = name
        self._resolver = resolver
        self._local_user = local_user

    def read(self, path: str, active: bool, depth: int) -> None:
        """Apply a file; `active`: the block that includes it applies to this host."""
        if depth > 16:
            raise LinkError("files include each other too deeply", path)
        here = active
        for line in self._resolver.lines(path):
            if line.key == "host":
                here = active and pattern_matches(words(line.rest), self._name)
            elif line.key == "match":
                here = active and self._match(_words(line), line.where)
            elif line.key == "include" and here:
                for pattern in _words(line):
                    for included in self._included(pattern, path):
                        self.read(included, here, depth + 1)
            elif here:
                self.take(line)

    def take(self, line: ConfigLine) -> None:
        """Keep the value if it is the first, or one of a list."""
        if line.key == "canonicalizehostname" and line.rest.lower() != "no":
            raise Unjudged(f"{line.where} asks for canonical host names")
        if line.key == "proxycommand":  # a command line, kept whole
            values = [line.rest]
        else:
            values = _words(line)
            if line.key in ("userknownhostsfile", "globalknownhostsfile"):
                values = [shlex.join(values)]
        if not values:
            raise LinkError(f"{line.key} has no value", line.where)
        if line.key in LISTS:
            known = self.values.setdefault(line.key, [])
            known += [value for value in values[:1] if value not in known]
        elif {"proxyjump": "proxycommand", "proxycommand": "proxyjump"}.get(line.key) not in self.values:
            self.values.setdefault(line.key, values[:1])  # of these two, the first wins

    def _included(self, pattern: str, path: str) -> list[str]:
        base = os.path.dirname(path) if path.startswith("/etc/") else f"{self._resolver.home}/.ssh"
        full = self._resolver.expand(pattern, {}, self._name, True)
        return sorted(glob.glob(os.path.join(base, full)))

    def _match(self, criteria: list[str], where: str) -> bool:
        left = list(criteria)
        while left:
            criterion = left.pop(0).lower()
            negated, criterion = criterion.startswith("!"), criterion.lstrip("!")
            criterion, _, value = criterion.partition("=")
            if criterion == "all":
                continue
            if criterion not in ("host", "originalhost", "user", "localuser", "exec"):
                raise Unjudged(f"{where}: Match {criterion} is for the ssh program to judge")
            if not value and not left:
                raise LinkError(f"Match {criterion} needs a value", where)
            if self._criterion(criterion, value or left.pop(0)) == negated:
                return False
        return True

    def _criterion(self, criterion: str, value: str) -> bool:
        user = self.values.get("user", [self._local_user])[0]
        host = self._resolver.expand(self.values.get("hostname", [self._name])[0], {}, self._name)
        if criterion == "exec":
            command = self._resolver.expand(value, self.values, self._name)
            return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, check=False).returncode == 0
        subject = {"host": host, "originalhost": self._name, "user": user, "localuser": self._local_user}[criterion]
        return pattern_matches(value.split(","), subject)


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
            found.append(ConfigLine(_FLAGS_WITH_VALUES[flag], shlex.quote(value), f"{flag} {value}"))
    return found, file


def _option(text: str) -> ConfigLine:
    found = _line(text, f"-o {text}")
    if not found or found.key not in (*KEYWORDS, *HARMLESS):
        raise _unknown(f"-o {text}")
    return found


def _unknown(option: str) -> LinkError:
    return LinkError("mslaunch's own SSH does not know this option of ssh", f"plm_rsh_args {option}", WAY_OUT)


def _words(line: ConfigLine) -> list[str]:
    try:
        return words(line.rest)
    except ValueError as error:
        raise LinkError(f"cannot be read: {error}", line.where) from error


def _number(text: str, name: str) -> int:
    if not text.isdigit():
        raise LinkError(f"the SSH configuration has {text!r} where a number belongs", name)
    return int(text)


def _account() -> tuple[str, str]:
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # a container in which the user has no account
        return str(os.getuid()), "/"
    return entry.pw_name, entry.pw_dir
