"""Our reader of ssh_config(5) against `ssh -G`: generated files, the same values, or a refusal by both.

The files have blocks for hosts and matches, includes, quotes, comments, mistakes, and characters that only one of two
programs could take for blanks.  What mslaunch refuses beyond that (`config_keywords`) is not generated.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from mslaunch.errors import LinkError
from mslaunch.transport.ssh.config.algorithms import KINDS, OFFERED, assembled
from mslaunch.transport.ssh.config.config_keywords import KEYWORDS, keyword_of
from mslaunch.transport.ssh.config.config_pass import ConfigPass, Local, host_name
from mslaunch.transport.ssh.config.ssh_config import Resolver
from mslaunch.transport.ssh.config.ssh_program import ConfigPrograms

pytestmark = pytest.mark.sshd
EXAMPLES = int(os.environ.get("MSLAUNCH_TEST_EXAMPLES", "200"))
ACCOUNT = pwd.getpwuid(os.getuid())
NAME = "Node1.lab"

_hosts = st.sampled_from(
    ["Node1.lab", "node1.lab", "*", "N*", "?ode1.lab", "!Node1.lab", "!n*", "other", "!other", "h1", "H1"]
)
_users = st.sampled_from(["ann", "Ann", "bob", "b*", "!bob", ACCOUNT.pw_name])


def _listed(keyword: str) -> st.SearchStrategy[str]:
    names = st.sampled_from([name for name in KINDS[keyword] if "mlkem" not in name] + ["no-such", "*"])
    lists = st.lists(names, min_size=1, max_size=3).map(",".join)
    removed = st.sampled_from(["-*sha1*", "-*", "-hmac-*,umac-64*", "-*nistp*,ssh-ed25519", "-no-such"])
    return st.one_of(st.builds(str.__add__, st.sampled_from(["", "+", "^"]), lists), removed)


_values = {
    "hostname": st.sampled_from(["h1", "H1.Lab", "%h.net", "%%h", "h%x", "10.0.0.1"]),
    "user": st.sampled_from(["ann", "bob", "a b"]),
    "port": st.sampled_from(["22", "0", "70000", "many", "2222", "ssh", "-1"]),
    "hostkeyalias": st.sampled_from(["Alias", "other"]),
    "identityfile": st.sampled_from(["/k1", "/k2", "~/.ssh/k", "none"]),
    "certificatefile": st.sampled_from(["/c1", "/c2"]),
    "identitiesonly": st.sampled_from(["yes", "NO", "true", "false", "maybe"]),
    "stricthostkeychecking": st.sampled_from(["yes", "no", "ask", "accept-new", "OFF", "perhaps"]),
    "hashknownhosts": st.sampled_from(["yes", "no"]),
    "pubkeyauthentication": st.sampled_from(["yes", "no", "unbound", "always"]),
    "requiredrsasize": st.sampled_from(["2048", "0", "x", "-5"]),
    "revokedhostkeys": st.sampled_from(["/r1", "none", "/r 2"]),
    "connecttimeout": st.sampled_from(["5", "1m30", "1h5s", "none", "0", "5x", ""]),
    "serveraliveinterval": st.sampled_from(["5", "2m", "x"]),
    "serveralivecountmax": st.sampled_from(["4", "0", "1 2"]),
    "addressfamily": st.sampled_from(["any", "inet", "INET6", "ipx"]),
    "batchmode": st.sampled_from(["no", "false"]),  # of yes Debian makes more
    "userknownhostsfile": st.sampled_from(["/u1", "/u1 /u2", "none", "none /u1"]),
    "globalknownhostsfile": st.sampled_from(["/g1", "/g1 /g2", "none"]),
    "proxycommand": st.sampled_from(["nc h p # kept", "none", "a 'b c' \\d", 'x "open']),
    "proxyjump": st.sampled_from(["gate", "a@gate:3,b", "none"]),
    "preferredauthentications": st.sampled_from(["publickey", "password,publickey"]),
    "ignoreunknown": st.sampled_from(["NoSuch*", "nosuchkeyword", "other"]),
    "nosuchkeyword": st.sampled_from(["yes", "'open"]),
    "sendenv": st.sampled_from(["A B", "LC_*"]),
    "forwardx11": st.sampled_from(["yes", "maybe"]),
    "numberofpasswordprompts": st.sampled_from(["3", "x"]),
    "localcommand": st.sampled_from(["a b", "'"]),
    "cipher": st.sampled_from(["blowfish", "a b"]),
    "protocol": st.just("2"),
    **{keyword: _listed(keyword) for keyword in OFFERED},
}
_quote = st.sampled_from(
    ["{}", "{}", "{}", '"{}"', "'{}'", "{} # rest", "{} extra", "{}\\", "{}\r", "{}\f", "{}\x85", "{}\x0bUser eve"]
)
_between = st.sampled_from([" ", "  ", "\t", "=", " = ", " =", "\r ", "==", "\x0b"])
_indent = st.sampled_from(["", " ", "\t", "\r", "\f", "# ", '"'])


@st.composite
def _settings(draw: st.DrawFn) -> str:
    key = draw(st.sampled_from(sorted(_values)))
    value = draw(_values[key])
    odd = draw(st.integers(0, 11)) == 0
    text = draw(_quote).format(value) if odd or (draw(st.booleans()) and key in ("hostname", "user")) else value
    between = draw(_between) if odd else draw(st.sampled_from([" ", "=", " = "]))
    shown = draw(st.sampled_from([key, key.upper(), key.title()]))
    return f"{draw(_indent) if odd else ''}{shown}{between}{text}"


_criterion = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["host", "originalhost", "!host", "Host", "host="]), _hosts),
    st.builds('{} "{},{}"'.format, st.sampled_from(["host", "!originalhost"]), _hosts, _hosts),
    st.builds("{} {}".format, st.sampled_from(["user", "localuser", "!user", "!localuser"]), _users),
    st.sampled_from(
        ["final", "!final", "canonical", "!canonical", 'exec "test %h = h1"', '!exec "test %n = Node1.lab"']
    ),
    st.sampled_from(["exec true", "exec false", "host", "nosuch x", "'host' x", "exec 'true'", "host h1 # user x"]),
)
_match = st.one_of(
    st.lists(_criterion, min_size=1, max_size=3).map(" ".join), st.sampled_from(["all", "!all", "all host x"])
)
_block = st.one_of(
    st.lists(_hosts, min_size=1, max_size=3).map(lambda hosts: "Host " + " ".join(hosts)),
    _match.map("Match {}".format),
)
_line = st.one_of(_settings(), _settings(), _settings(), _block)
_file = st.lists(_line, max_size=6)
_include = st.sampled_from(["Include one", "Include t*", "Include none one"])
_texts = st.tuples(
    st.lists(
        st.one_of(_line, _line, _line, st.sampled_from(["Include one", "Include t*", "Include none one"])), max_size=8
    ),
    _file,
    st.lists(st.one_of(_line, st.just("Include one")), max_size=4),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    if not shutil.which("ssh"):
        pytest.skip("NOT TESTED, not installed: ssh")
    made = Path(tempfile.mkdtemp(prefix="mslaunch-ssh-g-"))
    yield made
    shutil.rmtree(made)


def truth(file: Path) -> dict[str, list[str]] | None:
    """What ssh makes of a file; None: it refuses."""
    words = ["ssh", "-G", "-F", str(file), NAME]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        return None
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").split("\n"):
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value)
    return found


@pytest.fixture(scope="module")
def usual(place: Path) -> dict[str, list[str]]:
    (place / "empty").write_text("")
    found = truth(place / "empty")
    assert found
    return found


@pytest.mark.limit(120 + EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@example((["User\x0bann"], [], []))
@example((["# x\x85User eve", "# x\x0cUser eve", "# x\u2028User eve", "# x\rUser eve", "# x\x1cUser eve"], [], []))
@example((["Host h1\x0cUser eve", "Host h1\u2028User eve", "User ann"], [], []))
@example((["Host node1.lab", "User ann", "Host Node1.lab", "User bob"], [], []))
@example((["Match host h1", "User ann", "Match host nowhere final", "HostName H1"], [], []))
@example((["Host other", "Include one"], ["Host *", "User ann", "Port many"], []))
@example((["Host other", "Include one"], ["Host *", "User ann", "Match all", "User eve"], []))
@example((["\u212aexAlgorithms curve25519-sha256", "HostName h%x"], [], []))
@example((["HostName %%h", "Match final", "User ann"], [], []))
@example((["Host node1.lab", "Include two", "IdentitiesOnly yes"], [], ["Match final"]))
@example((["HostName Other", "Host other", "Port 11", "Host node1.lab", "User bob", "Match final"], [], []))
@given(_texts)
def test_the_same_as_ssh_or_both_refuse(place: Path, usual: dict[str, list[str]], texts: tuple[list[str], ...]) -> None:
    main, one, two = (place / name for name in ("config", "one", "two"))
    for path, lines in zip((main, one, two), texts):
        text = "\n".join(lines).replace("Include ", f"Include {place}/") + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")
        path.chmod(0o600)
    expected = truth(main)
    event("accepted" if expected else "refused")
    environ = {"HOME": ACCOUNT.pw_dir, "PATH": os.environ["PATH"], "SHELL": "/bin/sh"}
    resolver = Resolver(environ, ["-F", str(main)], str(place / "none"))
    found = ConfigPass(
        NAME, Local(ACCOUNT.pw_name, ACCOUNT.pw_dir, environ, ConfigPrograms()), resolver.lines, str(place / "none")
    )
    try:
        found.read_all([(str(main), False)])
        host_name(found.values.get("hostname", [NAME])[0], NAME)
    except LinkError as error:
        assert expected is None, str(error)
        return
    except Exception as error:
        assert type(error).__name__ == "Unjudged"
        return
    assert expected is not None, found.values
    _compare(found, expected, usual)


def _compare(found: ConfigPass, expected: dict[str, list[str]], usual: dict[str, list[str]]) -> None:
    values = found.values
    for key in set(_values) & {name for name in KEYWORDS if KEYWORDS[name].effect == "honoured"}:
        theirs = expected.get(key, usual.get(key, []))
        ours = values.get(key)
        if key == "ignoreunknown":
            continue
        if ours is None:
            assert theirs == usual.get(key, theirs) or key in ("hostname", "user"), key
        elif key in OFFERED:
            everything = subprocess_names(key)
            want = assembled(ours[0], usual[key][0].split(","), everything)
            assert ",".join(want) == theirs[0], key
        elif key in ("identityfile", "certificatefile"):
            assert ours == theirs
        elif key in ("userknownhostsfile", "globalknownhostsfile"):
            assert " ".join(ours) == theirs[0].replace(ACCOUNT.pw_dir + "/none", "none")
        elif key == "hostname":
            assert host_name(ours[0], NAME).lower() == theirs[0]
        else:
            assert [uniform(key, ours[0])] == [uniform(key, each) for each in theirs or ["none"]], key


def uniform(key: str, text: str) -> str:
    """Values that ssh prints in another way."""
    if key == "hostkeyalias":
        return text.lower()
    if key in ("proxycommand", "proxyjump", "revokedhostkeys") and text.lower() == "none":
        return "none"
    return {"true": "yes", "false": "no", "off": "no", "0": "0", "none": "none"}.get(text, text)


_names: dict[str, list[str]] = {}


def subprocess_names(keyword: str) -> list[str]:
    """What the installed ssh has under a keyword, in its order."""
    if keyword not in _names:
        done = subprocess.run(["ssh", "-Q", keyword], capture_output=True, text=True, check=True)
        _names[keyword] = done.stdout.split()
    return _names[keyword]


def test_every_keyword_of_the_manual_has_its_row() -> None:
    """A keyword that is in none of honoured, harmless and refused would be passed over or refused by accident."""
    done = subprocess.run(["ssh", "-G", "-F", "none", "x"], capture_output=True, text=True, check=True)
    printed = {line.partition(" ")[0].lower() for line in done.stdout.splitlines()}
    assert {key for key in printed if keyword_of(key) is None} == set()
    names = [name for name in KEYWORDS if KEYWORDS[name].effect != "block"]
    assert len(names) == len(set(names)) > 100
    later = ["channeltimeout", "obscurekeystroketiming", "refuseconnection", "tag", "versionaddendum", "warnweakcrypto"]
    for name in sorted(set(names) - set(later)):
        words = ["ssh", "-G", "-F", "none", "-o", f"{name}=", "x"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        assert "Bad configuration option" not in said, name
