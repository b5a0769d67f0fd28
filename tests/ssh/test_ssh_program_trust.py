"""The ssh program trusts no more than mslaunch's own SSH, also where a host's algorithms made it necessary."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

import pytest
from sshd import Sshd, SshLab, keygen, public
from sshlinks import Opener, failure, read
from test_ssh_program import by_program, configure, not_started, refusing

from mslaunch.errors import LinkError
from mslaunch.transport.ssh.config.algorithms import KINDS, OF_SSH, OFFERED, of_program

pytestmark = pytest.mark.sshd
ONLY_SSH = "Ciphers chacha20-poly1305@openssh.com"  #: with these options of sshd a host needs the ssh program
ACCEPTING = [({"accept_new": True}, ""), ({}, "StrictHostKeyChecking accept-new\n"), ({}, "StrictHostKeyChecking no\n")]


@pytest.mark.parametrize(("policy", "text"), ACCEPTING)
@pytest.mark.parametrize("cause", ["cipher", "keyword"])
def test_a_plain_key_is_not_accepted_where_an_authority_applies(
    lab: SshLab, opener: Opener, policy: dict[str, bool], text: str, cause: str
) -> None:
    lab.known_hosts(f"@cert-authority * {public(keygen(lab.directory / 'ca'))}\n")
    before = (lab.ssh / "known_hosts").read_text()
    host = lab.sshd(ONLY_SSH if cause == "cipher" else "", known=False)
    configure(lab, text + ("" if cause == "cipher" else "RekeyLimit 2G\n"), node1=host)
    assert "its host key is not known" in failure(opener("node1", **policy))
    assert not_started(host)
    assert (lab.ssh / "known_hosts").read_text() == before


@pytest.mark.parametrize(("policy", "text"), ACCEPTING)
def test_a_changed_key_is_refused(lab: SshLab, opener: Opener, policy: dict[str, bool], text: str) -> None:
    host = lab.sshd(ONLY_SSH, known=False)
    lab.known_hosts(f"{host.name} {public(keygen(lab.directory / 'other'))}\n")
    configure(lab, text, node1=host)
    assert "its host key has CHANGED" in failure(opener("node1", **policy))
    assert not_started(host)


@pytest.mark.parametrize(("policy", "text"), ACCEPTING)
def test_the_key_of_a_host_in_no_list_is_accepted_and_named(
    lab: SshLab, opener: Opener, policy: dict[str, bool], text: str
) -> None:
    host = lab.sshd(ONLY_SSH, known=False)
    configure(lab, text, node1=host)
    link = opener("node1", "echo Warning: Permanently added FAKE >&2; echo x; cat", **policy)
    assert read(link, 2) == b"x\n", link.failure()
    assert (lab.ssh / "known_hosts").read_text() == host.known_line
    link.announce()
    [said] = opener.notices
    assert (
        said.startswith(f"host key of {host.name} (ssh-ed25519 SHA256:") and f"added to {lab.ssh}/known_hosts" in said
    )


def test_a_host_on_localhost_is_checked(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(ONLY_SSH, known=False, address="127.0.0.1")
    configure(lab, "NoHostAuthenticationForLocalhost yes\n", node1=host)
    assert "its host key is not known" in failure(opener("node1"))
    assert not_started(host)


WEAK = {
    "KexAlgorithms": ("+diffie-hellman-group14-sha1", "diffie-hellman-group14-sha1"),
    "Ciphers": ("+aes128-cbc", "aes128-cbc"),
    "MACs": ("+hmac-md5", "hmac-md5"),
    "HostKeyAlgorithms": ("+ssh-rsa", "ssh-rsa"),
}


@pytest.mark.parametrize("keyword", WEAK)
def test_weak_algorithms_of_the_configuration_are_not_offered(lab: SshLab, opener: Opener, keyword: str) -> None:
    """A host that has only these is refused, also if it is reached by the ssh program for another reason."""
    text, name = WEAK[keyword]
    more = "Ciphers aes128-ctr\n" if keyword == "MACs" else ""
    keys = ("rsa",) if keyword == "HostKeyAlgorithms" else ("ed25519",)
    host = lab.sshd(f"{more}{keyword} {name}", host_keys=keys)
    configure(lab, f"{more}{keyword} {text}\nRekeyLimit 2G\n", node1=host)
    message = failure(opener("node1"))
    assert "no matching" in message and "RekeyLimit".lower() in message
    assert not_started(host)


def test_known_types_of_keys_come_first_although_names_are_taken_away(lab: SshLab, opener: Opener) -> None:
    """The host would show its ed25519 key, which is not known."""
    host = lab.sshd(host_keys=("ed25519", "ecdsa"), known=False)
    lab.known_hosts(f"{host.name} {public(host.host_keys[1])}\n")
    configure(lab, "HostKeyAlgorithms +ssh-rsa\nRekeyLimit 2G\n", node1=host)
    assert "rekeylimit" in by_program(opener, "node1")


def test_what_is_left_of_the_lists_of_ssh() -> None:
    printed = {keyword: ",".join((*OFFERED[keyword], *OF_SSH[keyword])) for keyword in OFFERED}
    assert of_program(printed, False) == of_program({}, False) == []
    [macs] = of_program({**printed, "macs": "hmac-sha1,hmac-sha2-256,new@openssh.com"}, False)
    assert macs == "-omacs=hmac-sha2-256"
    listed = {"hostkeyalgorithms": "ssh-rsa,ssh-ed25519"}
    assert of_program(listed, True) == ["-ohostkeyalgorithms=ssh-ed25519"]
    [option] = of_program(listed, False)
    taken = option.partition("=-")[2].split(",")
    assert set(taken) == set(KINDS["hostkeyalgorithms"]) - {"ssh-ed25519"}
    with pytest.raises(LinkError, match="leaves no ciphers"):
        of_program({"ciphers": "3des-cbc"}, False)


# --- an open connection that is not the user's


def test_an_open_connection_is_not_used_for_another_cause(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd()
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(tmp_path / "cm"))
        master.listen()
        master.settimeout(0)
        configure(lab, f"RekeyLimit 2G\nControlPath {tmp_path}/cm\n", node1=host)
        assert "rekeylimit" in by_program(opener, "node1")
        with pytest.raises(BlockingIOError):
            master.accept()


@pytest.mark.parametrize("how", ["a directory of all", "a sticky directory", "another owner"])
def test_a_socket_that_others_could_have_put_there_is_not_asked(
    lab: SshLab, opener: Opener, tmp_path: Path, how: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    host, _ = refusing(lab)
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(place / "cm"))
        master.listen()
        master.settimeout(0)
        if how == "another owner":
            if os.geteuid():
                pytest.skip("only root can give a socket away")
            os.chown(place / "cm", 64321, 64321)
        else:
            place.chmod(0o777 if how == "a directory of all" else 0o1777)
        configure(lab, f"ControlPath {place}/cm\n", node1=host)
        link = opener("node1")
        assert "no key was accepted" in failure(link)
        assert link.carrier is None
        with pytest.raises(BlockingIOError):
            master.accept()


# --- the hosts on the way


def on_the_way(lab: SshLab, known: bool, *options: str, text: str = "", count: int = 1) -> list[Sshd]:
    """Jump hosts gate1, gate2, ... in a row, each `known` or not, with these options, and node1 behind the last."""
    gates = [lab.sshd("\n".join(options), known=known) for _ in range(count)]
    node = lab.sshd(ONLY_SSH)
    names = {f"gate{number}": gate for number, gate in enumerate(gates, 1)}
    ways = [f"Match originalhost node1\n ProxyJump {','.join(names)}\n"]
    configure(lab, f"{''.join(ways)}Match all\n{text}", **names, node1=node)
    return [*gates, node]


@pytest.mark.parametrize(("policy", "text"), ACCEPTING)
@pytest.mark.parametrize("count", [1, 2])
def test_a_jump_host_with_an_authority_shows_a_plain_key(
    lab: SshLab, opener: Opener, policy: dict[str, bool], text: str, count: int
) -> None:
    """Whoever is in between can have the ssh program reach it, which must not take the key either."""
    lab.known_hosts(f"@cert-authority * {public(keygen(lab.directory / 'ca'))}\n")
    gates = on_the_way(lab, False, ONLY_SSH, text=text, count=count)
    before = (lab.ssh / "known_hosts").read_text()
    message = failure(opener("node1", **policy))
    assert message.startswith("gate1: its host key is not known (ED25519) (on the way to node1, ProxyJump)")
    assert all(not_started(gate) and "Accepted" not in gate.log() for gate in gates)
    assert (lab.ssh / "known_hosts").read_text() == before


def test_the_key_of_a_jump_host_has_changed(lab: SshLab, opener: Opener) -> None:
    gates = on_the_way(lab, False, ONLY_SSH, text="StrictHostKeyChecking accept-new\n", count=2)
    lab.known_hosts(gates[0].known_line, f"{gates[1].name} {public(keygen(lab.directory / 'other'))}\n")
    message = failure(opener("node1"))
    assert message.startswith("gate2: its host key has CHANGED") and "(on the way to node1, ProxyJump)" in message


@pytest.mark.parametrize("options", [(), (ONLY_SSH,)])
@pytest.mark.parametrize("count", [1, 3])
def test_a_host_behind_others(lab: SshLab, opener: Opener, options: tuple[str, ...], count: int) -> None:
    """What the way is made of survives the shells that read it."""
    on_the_way(lab, True, *options, count=count)
    odd = lab.directory / "it's `100%%` $HOME \\\\ &"
    by_program(opener, "node1", agent_args=(f'-oGlobalKnownHostsFile="{odd}"',))


def test_the_new_key_of_a_jump_host_is_named(lab: SshLab, opener: Opener) -> None:
    gate, _ = on_the_way(lab, False, ONLY_SSH)
    link = opener("node1", "echo x; cat", accept_new=True)
    assert read(link, 2) == b"x\n", link.failure()
    link.announce()
    [said] = opener.notices
    assert said.startswith(f"host key of {gate.name} (ssh-ed25519 SHA256:")
    assert gate.known_line in (lab.ssh / "known_hosts").read_text()


def test_weak_algorithms_of_a_jump_host(lab: SshLab, opener: Opener) -> None:
    gate, _ = on_the_way(lab, True, "Ciphers aes128-cbc", text="Ciphers +aes128-cbc\nRekeyLimit 2G\n")
    message = failure(opener("node1"))
    assert message.startswith("gate1: key exchange: no matching cipher found")
    assert "Accepted" not in gate.log()


def test_a_way_in_a_circle_by_the_program(lab: SshLab, opener: Opener) -> None:
    gate, node = lab.sshd(), lab.sshd(ONLY_SSH)
    way = "Match originalhost gate\n ProxyJump node1\nMatch originalhost node1\n ProxyJump gate\nMatch all\n"
    configure(lab, f"{way}RekeyLimit 2G\n", gate=gate, node1=node)
    assert "ProxyJump goes in a circle: node1 -> gate -> node1" in failure(opener("node1"))


# --- what is not known


def test_lists_of_algorithms_that_ssh_is_slow_to_print(
    lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh_command._LONGEST_ANSWER", 0.2)
    host = lab.sshd("Ciphers aes128-cbc")
    configure(lab, 'Ciphers +aes128-cbc\nRekeyLimit 2G\nMatch exec "sleep 1"\n', node1=host)
    assert "node1: ssh -G gave no answer within 0.2 s" in failure(opener("node1"))
    assert not_started(host)


@pytest.mark.parametrize("gap", ["\t", " \t", "\t ", "\f"])
@pytest.mark.parametrize("comment", ["", " by ann"])
def test_a_marker_that_ssh_does_not_see(lab: SshLab, opener: Opener, gap: str, comment: str) -> None:
    """The host has the ssh program reach it, which must not take a key that mslaunch reads as revoked."""
    host = lab.sshd(ONLY_SSH)
    kind, key = public(host.host_keys[0]).split()
    lab.known_hosts(f"@revoked{gap}*\t{kind}\t{key}{comment}\n")
    configure(lab, node1=host)
    message = failure(opener("node1"))
    assert "revoked" in message
    assert ("the ssh program does not see" in message) == (gap == "\f" or (gap[0] == "\t" and bool(comment + gap[1:])))
    assert "Accepted" not in host.log()


# --- commands of Match exec


def test_what_a_command_of_the_configuration_prints_is_not_output_of_the_job(
    lab: SshLab, opener: Opener, capfd: pytest.CaptureFixture[str]
) -> None:
    host = lab.sshd(ONLY_SSH)
    configure(lab, 'Match exec "echo POLLUTED; echo a word >&2"\n', node1=host)
    by_program(opener, "node1")
    out, err = capfd.readouterr()
    assert (out, "POLLUTED" in err, "a word" in err) == ("", False, True)


@pytest.mark.parametrize("text", ["", "CanonicalizeHostname yes\n"])
def test_closing_a_link_ends_the_commands_of_the_configuration(lab: SshLab, opener: Opener, text: str) -> None:
    """Also what they have started, by whoever they were run, mslaunch or `ssh -G`."""
    fifo, script = lab.directory / "fifo", lab.directory / "script"
    os.mkfifo(fifo)
    script.write_text(f"#!/bin/sh\nexec >{fifo}\necho in\nsleep 600 &\nwait\n")
    script.chmod(0o755)
    lab.config(f'{text}Match exec "{script}"\n User x\n')
    link = opener("node1")
    with fifo.open() as alive:
        assert alive.readline() == "in\n"
        link.close()
        assert link.wait(10)
        assert select.select([alive], [], [], 10)[0]
        assert alive.read() == "", "somebody still holds it"
    assert link.failure() is None


# --- a HOME that is not the account's home


@pytest.mark.parametrize("name", ["~/.ssh/my key", "%d/.ssh/my key", "${HOME}/.ssh/my key"])
def test_files_below_home(lab: SshLab, opener: Opener, name: str) -> None:
    host = lab.sshd(ONLY_SSH)
    for half in ("", ".pub"):
        Path(f"{lab.key}{half}").rename(f"{lab.ssh}/my key{half}")
    (lab.ssh / "known_hosts").rename(lab.ssh / "my hosts")
    files = f'IdentityFile "{name}"\nUserKnownHostsFile /nothing "{name.replace("key", "hosts")}"\n'
    lab.config(f"Host node1\n HostName {host.address}\n Port {host.port}\n {files}")
    assert "ciphers" in by_program(opener, "node1")


@pytest.mark.parametrize("where", ["known_hosts2", "UserKnownHostsFile ~/list", "RevokedHostKeys ~/list"])
def test_a_key_that_is_revoked_below_home(lab: SshLab, opener: Opener, where: str) -> None:
    host = lab.sshd(ONLY_SSH)
    word, _, _ = where.rpartition(" ")
    path = lab.home / "list" if word else lab.ssh / "known_hosts2"
    path.write_text(f"{'' if word.startswith('R') else '@revoked * '}{public(host.host_keys[0])}\n")
    more = f"{where}{' ~/.ssh/known_hosts' if word.startswith('U') else ''}\n" if word else ""
    lab.config(f"{more}Host node1\n HostName {host.address}\n Port {host.port}\n")
    assert "revoked" in failure(opener("node1"))
    assert "Accepted" not in host.log()
