"""Reads the configuration files for one host: Host, Match and Include, and the first value of each keyword.

As in ssh, every line is checked, also in a block that is for another host, and a file that is included must not be
writable by others.  `Match final` asks for a second pass, which keeps what the first one found.
"""

from __future__ import annotations

import glob
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mslaunch.errors import LinkError
from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.config_keywords import (
    HONOURED,
    Keyword,
    Unjudged,
    arguments,
    keyword_of,
    refuse_unknown,
)
from mslaunch.transport.ssh.config.config_lines import ConfigLine, lowered, next_token, pattern_matches
from mslaunch.transport.ssh.config.ssh_program import ConfigPrograms, succeeds

LISTS = ("identityfile", "certificatefile")  #: each line adds one
_DEEPEST = 16  # includes
_EITHER = {"proxyjump": "proxycommand", "proxycommand": "proxyjump"}  # of these two, the first wins

#: the directives of a file; `guarded`: it must not be writable by others
ReadLines = Callable[[str, bool], Sequence[ConfigLine]]


class Local(NamedTuple):
    """The user and host on which mslaunch runs."""

    user: str
    home: str
    environ: Mapping[str, str]
    programs: ConfigPrograms

    def expand(self, text: str, values: Mapping[str, Sequence[str]], name: str, path: bool = False) -> str:
        """Replace the tokens of ssh_config(5); in a path also ~ and ${NAME}.  Raises LinkError."""
        one = {key: found[0] for key, found in values.items() if found}
        host = one.get("hostname", name)
        tokens = {"%": "%", "h": host, "n": name, "p": one.get("port", "22"), "r": one.get("user", self.user)}
        tokens.update(u=self.user, d=self.home, i=str(os.getuid()), j=one.get("proxyjump", ""))
        tokens.update(k=one.get("hostkeyalias", host))
        if "%l" in text.lower():
            tokens.update(l=socket.gethostname(), L=socket.gethostname().split(".")[0])
        text = _replaced(text, tokens)
        if not path:
            return text
        for unset in re.findall(r"\$\{(\w+)\}", text):
            if unset not in self.environ:
                raise LinkError(f"the SSH configuration uses ${{{unset}}}, which is not set: {text}", name)
        text = re.sub(r"\$\{(\w+)\}", lambda found: self.environ[found[1]], text)
        return self.home + text[1:] if text.startswith("~/") else os.path.expanduser(text)


def _replaced(text: str, tokens: Mapping[str, str]) -> str:
    for used in re.findall("%(.?)", text, re.DOTALL):
        if used not in tokens:
            error = OwnSshError(f"the SSH configuration uses the token %{used}, which has no meaning here: {text}")
            error.ssh_reason = f"the SSH configuration uses the token %{used}: {text}"
            raise error
    return re.sub("%(.)", lambda found: tokens[found[1]], text)


def host_name(text: str, name: str) -> str:
    """HostName with its tokens replaced."""
    return _replaced(text, {"h": name, "%": "%"})


class ConfigPass:
    """The values for one host, and where each stands.

    In the final pass, Host is compared with HostName, in small letters (OpenSSH 9.2).
    """

    def __init__(self, name: str, local: Local, lines: ReadLines, system: str) -> None:
        self.values: dict[str, list[str]] = {}
        self.where: dict[str, str] = {}
        self.wants_final = False
        self._final = False
        self._name = self._called = name  # `_called`: what Host is compared with
        self._local = local
        self._lines = lines
        self._system = system

    def read_all(self, files: Sequence[tuple[str, bool]]) -> None:
        """Apply the files (path, whether it is guarded), twice if a Match asks for a final pass."""
        for path, guarded in files:
            self._read(path, guarded, path != self._system, (True, False), 0)
        if self.wants_final:
            self._final = True
            self._called = lowered(self._host())
            self.values["hostname"] = [self._called.replace("%", "%%")]  # its tokens are replaced
            for path, guarded in files:
                self._read(path, guarded, path != self._system, (True, False), 0)

    def _host(self) -> str:
        found = self.values.get("hostname")
        return host_name(found[0], self._name) if found else self._name

    def _read(self, path: str, guarded: bool, users: bool, state: tuple[bool, bool], depth: int) -> None:
        """Apply a file; `state`: its first lines apply; none of its lines ever does."""
        if depth > _DEEPEST:
            raise LinkError("files include each other too deeply", path)
        here, never = state
        for line in self._lines(path, guarded):
            keyword = keyword_of(line.key)
            if keyword is None:
                if not pattern_matches(self._ignored(), line.key):
                    raise refuse_unknown(line)
                continue
            found = arguments(line, keyword)
            if keyword.name == "host":
                here = self._is_for_host(found, line) and not never
            elif keyword.name == "match":
                here = self._match(line, never) and not never
            elif keyword.name == "include":
                for each in found:
                    for included in self._included(each, users, line):
                        self._read(included, True, users, (here, never or not here), depth + 1)
            elif here:
                self._keep(keyword, found, line)

    def _ignored(self) -> list[str]:
        return lowered(self.values.get("ignoreunknown", [""])[0]).split(",")

    def _is_for_host(self, patterns: Sequence[str], line: ConfigLine) -> bool:
        if not all(patterns):
            raise LinkError("host: empty argument", line.where)
        return pattern_matches(patterns, self._called)

    def take(self, line: ConfigLine) -> None:
        """Apply an option of the command line."""
        keyword = keyword_of(line.key)
        if keyword is None:
            raise refuse_unknown(line)
        self._keep(keyword, arguments(line, keyword), line)

    def _keep(self, keyword: Keyword, found: list[str], line: ConfigLine) -> None:
        """Keep the value if it is the first, or one of a list."""
        name = keyword.name
        if name == "canonicalizehostname" and found[0] != "no":
            raise Unjudged(f"{line.where} asks for canonical host names")
        if name == "canonicalizepermittedcnames" and found != ["none"]:
            raise Unjudged(f"{line.where} asks for canonical host names")
        if name in LISTS:
            known = self.values.setdefault(name, [])
            known += [value for value in found if value not in known]
        elif _EITHER.get(name) not in self.values and (found or keyword.effect != HONOURED):
            if name not in self.values:
                self.where[name] = line.where
            self.values.setdefault(name, found)

    def _included(self, pattern: str, users: bool, line: ConfigLine) -> list[str]:
        if not pattern:
            raise LinkError("include: empty argument", line.where)
        if pattern.startswith("~") and not users:
            raise LinkError(f"bad include path {pattern}", line.where)
        base = f"{self._local.home}/.ssh" if users else os.path.dirname(self._system)
        full = self._local.expand(pattern, {}, self._name, True)
        return sorted(glob.glob(os.path.join(base, full)))

    def _match(self, line: ConfigLine, never: bool) -> bool:
        """Judge all criteria, as ssh does: one that fails does not hide a mistake, or a `final`, behind it."""
        result, count = True, 0
        token, left = next_token(line.rest)
        while token and not token.startswith("#"):
            word, negated = token[1:] if token.startswith("!") else token, token.startswith("!")
            criterion = lowered(word)
            if criterion == "all":
                if count > 1 or (left and not left.startswith("#")):
                    raise LinkError("Match all cannot be combined with other criteria", line.where)
                return result and not negated
            count += 1
            if criterion in ("canonical", "final"):
                self.wants_final |= criterion == "final"
                result &= self._final != negated
            else:
                value, left = next_token(left or "")
                if criterion not in ("host", "originalhost", "user", "localuser", "exec"):
                    raise Unjudged(f"{line.where}: Match {criterion} is for the ssh program to judge")
                if not value or value.startswith("#"):
                    raise LinkError(f"Match {criterion} needs a value", line.where)
                if criterion != "exec" or (result and not never):
                    result &= self._criterion(criterion, value) != negated
            token, left = next_token(left) if left else (None, None)
        if not count or (left and not (token or "").startswith("#")):
            raise LinkError("Bad Match condition", line.where)
        return result

    def _criterion(self, criterion: str, value: str) -> bool:
        user = self.values.get("user", [self._local.user])[0]
        host = self._host()
        if criterion == "exec":
            values = {**self.values, "hostname": [host]}
            command = self._local.expand(value, values, self._name)
            return succeeds(command, self._local.environ, self._local.programs)
        if criterion in ("user", "localuser"):
            return pattern_matches(value.split(","), user if criterion == "user" else self._local.user)
        subject = host if criterion == "host" else self._name
        return pattern_matches(lowered(value).split(","), lowered(subject))
