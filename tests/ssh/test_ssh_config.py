"""ssh_config: what our reader makes of it, and what the ssh program makes of the same text."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import LinkError
from mslaunch.transport.ssh.config import algorithms
from mslaunch.transport.ssh.config.config_lines import pattern_matches, words
from mslaunch.transport.ssh.config.ssh_config import HostConfig, Resolver, parse_agent_args

ME = pwd.getpwuid(os.getuid()).pw_name


class Home:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ssh = directory / ".ssh"
        self.ssh.mkdir(mode=0o700)
        self.system = directory / "ssh_config"
        self.environ = {"HOME": str(directory), "PATH": os.environ["PATH"], "SSH_AUTH_SOCK": "/agent", "WHERE": "w"}

    def look(
        self, text: str, name: str = "node1", *args: str, user: str | None = None, port: int | None = None
    ) -> HostConfig:
        (self.ssh / "config").write_text(text)
        return Resolver(self.environ, args, str(self.system)).host(name, user, port)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_nothing_said(home: Home) -> None:
    found = home.look("")
    assert (found.hostname, found.port, found.user, found.strict) == ("node1", 22, ME, "ask")
    assert found.identity_files == found.proxy_jump == ()
    assert found.user_known_hosts == (f"{home.ssh}/known_hosts", f"{home.ssh}/known_hosts2")
    assert found.agent == "/agent"


def test_the_account_names_the_home_by_default(tmp_path: Path) -> None:
    assert Resolver({}, (), str(tmp_path / "none")).home == pwd.getpwuid(os.getuid()).pw_dir


CASES = {
    "first value wins": "Host node1\n User a\nHost *\n User b\n Port 1\n",
    "equals, blanks and quotes": 'hostname = "10.0.0.1"\nUSER="bob"\n\tPort=7 \n',
    "comment after a value": "User bob # not part of it\nPort 7 # seven\n",
    "patterns": "Host n?de* !node2\n User in\nHost other node1\n Port 3\n",
    "negation alone matches nothing": "Host !node2\n User in\n",
    "match host": "HostName real\nMatch host real\n User a\nMatch originalhost node1\n Port 5\n",
    "match user": "User bob\nMatch user bob,eve\n Port 5\nMatch user eve\n HostName x\n",
    "match localuser": f"Match localuser {ME}\n Port 5\nMatch localuser nobody-else\n HostName x\n",
    "match negated": "Match !host node1\n Port 5\nMatch !user bob host node1\n HostName x\n",
    "match all": "Match all\n Port 5\n",
    "match exec": 'Match exec "test %h = node1"\n Port 5\nMatch exec "false"\n User x\n',
    "match exec negated": 'Match !exec "test %n = node1"\n Port 5\n',
    "match ends host": "Host other\n Port 9\nMatch host node1\n Port 5\nHost node1\n User z\n",
    "hostname tokens": "HostName %h.lab%%\n",
    "jump": "ProxyJump a@b:3,c\n",
    "jump before command": "ProxyJump b\nProxyCommand nc %h %p\n",
    "command before jump": "ProxyCommand nc %h %p # kept\nProxyJump b\n",
    "jump none": "ProxyJump none\n",
    "alias": "HostKeyAlias cluster\nStrictHostKeyChecking accept-new\n",
    "several files": 'UserKnownHostsFile /a "/b c"\n'
    "GlobalKnownHostsFile none\nIdentityFile /k1\nIdentityFile /k2\nIdentityFile /k1\n",
    "certificate": "CertificateFile /c1\nCertificateFile /c2\nIdentitiesOnly yes\n",
    "others are read over": "SendEnv A\nSendEnv B\nLocalForward 1 a:2\n",
    "patience": "ServerAliveInterval 5\n",
    "more patience": "ServerAliveInterval 7\nServerAliveCountMax 2\n",
    "numbers and families": "ConnectTimeout 7\nAddressFamily inet6\nBatchMode yes\nHashKnownHosts yes\n",
}


@pytest.mark.sshd
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_the_ssh_program(home: Home, case: str) -> None:
    """`ssh -G -F file` is the judge of every case."""
    found = home.look(CASES[case])
    done = subprocess.run(
        ["ssh", "-G", "-F", str(home.ssh / "config"), "node1"], check=True, capture_output=True, text=True
    )
    truth: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        truth.setdefault(key, []).append(value)

    def one(key: str, default: str = "") -> str:
        return truth.get(key, [default])[0]

    assert found.hostname == one("hostname")
    assert str(found.port) == one("port")
    assert found.user == one("user")
    assert ",".join(found.proxy_jump) == one("proxyjump")
    assert found.proxy_command == one("proxycommand").replace("%h", found.hostname).replace("%p", str(found.port))
    assert found.host_key_alias == one("hostkeyalias")
    assert found.identities_only == (one("identitiesonly") == "yes")
    assert found.strict == {"true": "yes", "false": "no"}.get(
        one("stricthostkeychecking"), one("stricthostkeychecking")
    )
    assert found.certificate_files == tuple(truth.get("certificatefile", ()))
    assert found.family == one("addressfamily", "any")
    assert found.batch == (one("batchmode") == "yes")
    assert found.hash_known_hosts == (one("hashknownhosts") == "yes")
    assert str(int(found.connect_timeout or 0)) == one("connecttimeout").replace("none", "0")
    if not found.batch:  # for which Debian's ssh has another default
        assert found.patience == int(one("serveraliveinterval")) * int(one("serveralivecountmax"))
    if found.identity_files:
        assert list(found.identity_files) == truth["identityfile"]
    account = pwd.getpwuid(os.getuid()).pw_dir  # ssh does not ask HOME
    expected = one("userknownhostsfile").replace(account, str(home.directory)).replace("~", str(home.directory))
    assert " ".join(found.user_known_hosts) == expected


def test_include(home: Home) -> None:
    (home.ssh / "conf.d").mkdir()
    (home.ssh / "conf.d" / "10.conf").write_text("Host node1\n User ten\n")
    (home.ssh / "conf.d" / "20.conf").write_text("User twenty\nPort 20\nInclude more\n")
    (home.ssh / "more").write_text("Host *\nHostName deep\n")
    found = home.look("Include conf.d/*.conf nowhere\nPort 1\n")
    assert (found.user, found.port, found.hostname) == ("ten", 20, "deep")
    found = home.look("Host other\n Include conf.d/*.conf\nHost node1\n Port 1\n")
    assert (found.user, found.port, found.hostname) == (ME, 1, "node1")
    found = home.look("Host node1\n Include ~/.ssh/conf.d/10.conf\n Port 4\n")
    assert (found.user, found.port) == ("ten", 4)


def test_include_in_a_circle(home: Home) -> None:
    with pytest.raises(LinkError, match="too deeply"):
        home.look("Include config\n")


def test_the_system_file_comes_last(home: Home) -> None:
    home.system.write_text("User system\nPort 9\n")
    found = home.look("User mine\n")
    assert (found.user, found.port) == ("mine", 9)


def test_what_is_asked_for_comes_before_the_files(home: Home) -> None:
    text = "User file\nPort 1\nMatch user asked\n HostName matched\n"
    found = home.look(text, user="asked", port=5)
    assert (found.user, found.port, found.hostname) == ("asked", 5, "matched")
    found = home.look(text, "node1", "-l", "word", "-p", "6", user="asked")
    assert (found.user, found.port) == ("asked", 6)


def test_words_of_the_rsh_command(home: Home) -> None:
    other = home.directory / "other"
    other.write_text("IdentityFile /from-file\nHostName there\n")
    args = ["-p2222", "-i", "/my key", "-oStrictHostKeyChecking=no", "-o", "UserKnownHostsFile /dev/null", "-q", "-x"]
    found = home.look("HostName not-read\n", "node1", *args, "-F", str(other), "-4", "-J", "gate:3")
    assert (found.port, found.hostname, found.strict, found.family) == (2222, "there", "no", "inet")
    assert found.identity_files == ("/my key", "/from-file")
    assert found.user_known_hosts == ("/dev/null",)
    assert found.proxy_jump == ("gate:3",)


@pytest.mark.parametrize("option", ["GSSAPIAuthentication=no", "ServerAliveInterval 5", "CheckHostIP=no", "Tag=x"])
def test_options_that_change_nothing_here_are_as_in_a_file(home: Home, option: str) -> None:
    assert home.look("", "node1", "-o", option).hostname == "node1"


def test_an_option_that_cannot_be_honoured_is_refused_as_in_a_file(home: Home) -> None:
    with pytest.raises(LinkError, match="cannot do what the SSH configuration asks for: checkhostip yes"):
        home.look("", "node1", "-o", "CheckHostIP=yes")


@pytest.mark.parametrize(
    "args", [["-L", "1:a:2"], ["-o", "Host=x"], ["-o", "NoSuchWord=x"], ["-W"], ["word"], ["-o"], ["-p"]]
)
def test_words_that_only_ssh_knows_are_refused(args: list[str]) -> None:
    with pytest.raises(LinkError) as caught:
        parse_agent_args(args)
    assert args[0] in caught.value.where
    assert args in (["-o"], ["-p"]) or "--rsh-agent ssh" in caught.value.todo


def test_a_file_of_f_must_exist(home: Home) -> None:
    with pytest.raises(LinkError, match="cannot be read"):
        home.look("", "node1", "-F", "/nowhere/at-all")


def test_the_file_of_f_may_be_anybodys_and_what_it_includes_may_not(home: Home) -> None:
    """As in ssh: who names a file has looked at it."""
    other = home.directory / "other"
    inner = home.directory / "inner"
    inner.write_text("User bob\n")
    other.write_text(f"Include {inner}\n")
    other.chmod(0o666)
    assert home.look("", "node1", "-F", str(other)).user == "bob"
    inner.chmod(0o646)
    with pytest.raises(LinkError, match=f"Bad owner or permissions on {inner}"):
        home.look("", "node1", "-F", str(other))
    assert home.look("User not-read\n", "node1", "-F", "none").user == ME


@pytest.mark.parametrize("text", ["IdentityFile ${NOT_SET}/k\n", "HostName %x\n", "IdentityFile %Q\n"])
def test_tokens_without_meaning_are_refused(home: Home, text: str) -> None:
    with pytest.raises(LinkError, match="SSH configuration uses"):
        home.look(text)


@pytest.mark.sshd
def test_the_answer_of_ssh_g_is_honoured_and_refused_like_a_file(home: Home) -> None:
    """Match of a later ssh, and canonical names, go through ssh -G."""
    head = "CanonicalizeHostname yes\nCanonicalizeFallbackLocal yes\n"
    found = home.look(f"{head}Ciphers -aes128*\nRequiredRSASize 3000\nPubkeyAuthentication no\nRevokedHostKeys /r\n")
    assert sorted(found.algorithms["ciphers"]) == ["aes192-ctr", "aes256-ctr", "aes256-gcm@openssh.com"]
    assert (found.required_rsa, found.public_keys, found.revoked) == (3000, False, "/r")
    assert found.algorithms["kexalgorithms"] == list(algorithms.KEX)
    with pytest.raises(LinkError, match="verifyhostkeydns"):
        home.look(f"{head}VerifyHostKeyDNS yes\n")


def test_tokens_in_paths(home: Home) -> None:
    found = home.look("User bob\nIdentityFile ~/.ssh/%r_%h_%n\nIdentityFile %d/${WHERE}/%u\nIdentityAgent ${WHERE}/s\n")
    assert found.identity_files == (f"{home.ssh}/bob_node1_node1", f"{home.directory}/w/{ME}")
    assert found.agent == "w/s"
    assert home.look("IdentityAgent none\n").agent == ""
    assert home.look("IdentityAgent $WHERE\n").agent == "w"


@pytest.mark.sshd
def test_what_cannot_be_judged_is_left_to_ssh(home: Home) -> None:
    found = home.look("Host node1\n User first\n IdentityFile ~/.ssh/k\nMatch final host node1\n Port 77\n")
    assert (found.user, found.port) == ("first", 77)
    assert found.identity_files == (f"{home.ssh}/k",)
    assert home.look("Match final host node1\n Port 77\n").identity_files == ()


def test_without_ssh_it_is_refused(home: Home) -> None:
    home.environ["PATH"] = str(home.directory)
    with pytest.raises(LinkError) as caught:
        home.look("User a\nMatch localnetwork 10.0.0.0/8\n Port 5\n")
    assert "config:2" in caught.value.what
    assert "--rsh-agent ssh" in caught.value.todo
    found = home.look("Host other\nMatch final\n Port 5\nHost node1\n Port 6\n", "node2", "-F", "/dev/null")
    assert found.port == 22


@pytest.mark.sshd
def test_what_ssh_refuses_is_passed_on(home: Home) -> None:
    with pytest.raises(LinkError, match="ssh -G says"):
        home.look("Match no-such-criterion x\n Port 5\n")


@pytest.mark.parametrize("text", ["Port many\n", 'User "open\n', "Match host\n"])
def test_what_cannot_be_read(home: Home, text: str) -> None:
    with pytest.raises(LinkError):
        home.look(text)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "a;b", "$(b)", "a`b`", "a|b"])
def test_names_that_a_shell_would_read(home: Home, name: str) -> None:
    for host, user in ((name, None), ("node1", name)):
        with pytest.raises(LinkError, match="cannot be a host or a user"):
            home.look("ProxyCommand nc %h %p\n", host, user=user)


def test_a_criterion_behind_one_that_fails_is_not_judged(home: Home) -> None:
    home.environ["PATH"] = str(home.directory)
    assert home.look("Match host other final\n Port 5\n").port == 22


@given(
    st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\"\\#'", categories=["L", "N", "P", "S"]), min_size=1)
    )
)
def test_words_come_back(parts: list[str]) -> None:
    assert words(" ".join(f'"{part}"' for part in parts)) == parts


@given(st.text(st.sampled_from("ab*?!["), max_size=8), st.text(st.sampled_from("ab["), max_size=8))
def test_patterns_are_only_stars_and_question_marks(pattern: str, text: str) -> None:
    """Against the rule written as a recursion."""

    def rule(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return rule(p[1:], t) or (t != "" and rule(p, t[1:]))
        return t != "" and p[0] in ("?", t[0]) and rule(p[1:], t[1:])

    expected = not pattern.startswith("!") and rule(pattern, text)
    assert pattern_matches([pattern], text) == expected


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    """A regular expression of `.*` tries every way to share the name among them."""
    began = time.process_time()
    assert not pattern_matches(["*a" * 60 + "b"], "a" * 250)
    assert pattern_matches(["*a" * 60 + "*"], "a" * 250)
    assert time.process_time() - began < 1
