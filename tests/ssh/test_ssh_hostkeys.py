"""Host keys of real hosts: known, unknown, changed, revoked; and trust at first sight."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from sshd import Sshd, SshLab, keygen, public
from sshlinks import Opener, failure, read

from mslaunch.datamodel.jobmap import Node
from mslaunch.transport.ssh import known_hosts as kh

pytestmark = pytest.mark.sshd


def opens(opener: Opener, host: Sshd | str, **policy: object) -> bool:
    link = opener(host, "cat", b"x", **policy)
    assert read(link, 1) == b"x", link.failure()
    link.close()
    return True


def shown(host: Sshd, index: int = 0) -> str:
    """The fingerprint as ssh-keygen tells it."""
    words = ["ssh-keygen", "-lf", f"{host.host_keys[index]}.pub"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[1]


def test_an_unknown_host_is_refused_with_its_fingerprint(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    message = failure(opener(host))
    assert f"its host key is not known: ssh-ed25519 {shown(host)}" in message
    assert f"ssh-keyscan -p {host.port} -t ed25519 {host.address} >> {lab.ssh}/known_hosts" in message
    assert "--ssh-accept-new" in message


def test_the_command_in_the_message_makes_it_known(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    lines = failure(opener(host)).splitlines()
    subprocess.run(
        next(line for line in lines if "ssh-keyscan" in line), shell=True, check=True, stderr=subprocess.DEVNULL
    )
    assert opens(opener, host)


def test_a_changed_key_is_refused_with_both(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    old = keygen(tmp_path / "old")
    lab.known_hosts("# first line\n", f"{host.name} {public(old)}\n")
    for policy in ({}, {"accept_new": True}):
        message = failure(opener(host, **policy))
        assert "its host key has CHANGED" in message
        assert f"ssh-ed25519 {shown(host)} now" in message
        assert f"in {lab.ssh}/known_hosts:2" in message
        assert f"ssh-keygen -f {lab.ssh}/known_hosts -R '{host.name}'" in message


def test_another_type_of_key_is_a_change_too(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    lab.known_hosts(f"{host.name} {public(keygen(tmp_path / 'old', 'ecdsa'))}\n")
    assert "CHANGED" in failure(opener(host, accept_new=True))


def test_a_revoked_key(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    lab.known_hosts(f"@revoked * {public(host.host_keys[0])}\n")
    message = failure(opener(host, accept_new=True))
    assert f"revoked in {lab.ssh}/known_hosts:2" in message


def test_a_certificate_authority(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    lab.known_hosts(f"@cert-authority * {public(keygen(tmp_path / 'ca'))}\n")
    message = failure(opener(host, accept_new=True))
    assert "its host key is not known" in message
    assert "The ssh program was used because a certificate authority is to vouch for the host key" in message
    lab.environ["PATH"] = str(tmp_path)
    message = failure(opener(host, accept_new=True))
    assert "only a certificate authority is known for it" in message
    assert "--rsh-agent ssh" in message


@pytest.mark.parametrize("form", ["{name}", "a,{name},b", "[127.0.0.*]:{port}", "*", "127.0.0.?", "!x,127.*", "{hash}"])
def test_forms_of_names(lab: SshLab, opener: Opener, form: str) -> None:
    host = lab.sshd(known=False)
    names = form.format(name=host.name, port=host.port, hash=kh.hashed(host.name))
    lab.known_hosts("garbage\n@what\n", f"{names} {public(host.host_keys[0])}\n")
    assert opens(opener, host)


def test_the_known_type_is_asked_for(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False, host_keys=("ed25519", "ecdsa", "rsa"))
    for key in host.host_keys:
        lab.known_hosts(f"{host.name} {public(key)}\n", replace=True)
        assert opens(opener, host)


def test_other_files(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    (tmp_path / "global").write_text(host.known_line)
    lab.config(f"GlobalKnownHostsFile {tmp_path}/global\nUserKnownHostsFile /nowhere\n")
    assert opens(opener, host)
    (tmp_path / "mine").write_text(f"cluster {public(host.host_keys[0])}\n")
    lab.config(f"UserKnownHostsFile {tmp_path}/mine\nHostKeyAlias cluster\n")
    assert opens(opener, host)


def test_trust_at_first_sight(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    lab.known_hosts("no newline at the end")
    assert opens(opener, host, accept_new=True)
    path = lab.ssh / "known_hosts"
    assert path.read_text() == f"no newline at the end\n{host.known_line}"
    assert len(opener.notices) == 1
    assert shown(host) in opener.notices[0]
    assert opens(opener, host)
    assert opens(opener, host, accept_new=True)
    assert len(opener.notices) == 1


def test_first_sight_makes_the_file(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    lab.config(f"UserKnownHostsFile {tmp_path}/new/known\nStrictHostKeyChecking accept-new\nHashKnownHosts yes\n")
    assert opens(opener, host)
    path = tmp_path / "new" / "known"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text().startswith("|1|")
    lab.config(f"UserKnownHostsFile {tmp_path}/new/known\n")
    assert opens(opener, host)


def test_first_sight_of_one_host_by_many_links(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    for link in opener.many([host] * 6, "cat", b"x", accept_new=True):
        assert read(link, 1) == b"x"
    assert (lab.ssh / "known_hosts").read_text() == host.known_line
    assert len(opener.notices) == 1


def test_of_two_keys_for_one_name_only_the_first_gets_in(lab: SshLab, opener: Opener) -> None:
    """Two hosts that both say they are `cluster`: whoever comes second shows a changed key."""
    hosts = [lab.sshd(known=False), lab.sshd(known=False)]
    lab.config("HostKeyAlias cluster\n")
    links = opener.many(hosts, "cat", b"x", accept_new=True)
    came = sorted(read(link, 1) for link in links)
    assert came == [b"", b"x"]
    assert ["CHANGED" in str(link.failure()) for link in links].count(True) == 1
    assert len((lab.ssh / "known_hosts").read_text().splitlines()) == 1


def test_a_home_that_cannot_be_written(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    lab.config("UserKnownHostsFile /proc/known_hosts\n")
    assert opens(opener, host, accept_new=True)
    assert "for this run only" in opener.notices[0]


def test_checking_switched_off(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    lab.config("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    assert opens(opener, host)
    assert opener.notices == []
    lab.config("StrictHostKeyChecking no\n")
    lab.known_hosts(f"{host.name} {public(keygen(tmp_path / 'old'))}\n")
    assert opens(opener, host)
    assert "is not the one in" in opener.notices[-1]


def test_yes_is_stronger_than_nothing_but_the_option_is_stronger(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd(known=False)
    assert "not known" in failure(
        opener(Node(host.address, 1, "", port=host.port), agent_args=("-oStrictHostKeyChecking=yes",))
    )
    assert os.path.exists(lab.ssh / "known_hosts") is False


def cannot_be_read(path: Path, how: str) -> None:
    """Make a path at which something is that cannot be read: each of these is another errno."""
    path.unlink(missing_ok=True)
    if how == "EIO":
        path.symlink_to("/proc/self/mem")
    if how == "ELOOP":
        path.symlink_to(path)
    if how == "EISDIR":
        path.mkdir()


@pytest.mark.parametrize("how", ["EIO", "ELOOP", "EISDIR"])
@pytest.mark.parametrize("which", ["User", "Global"])
def test_a_list_that_cannot_be_read_is_not_empty(lab: SshLab, opener: Opener, how: str, which: str) -> None:
    """Without its lines a changed or a revoked key would look like a new one."""
    host = lab.sshd(known=which == "Global")
    path = lab.ssh / "list"
    cannot_be_read(path, how)
    lab.config(f"{which}KnownHostsFile {path}\nRekeyLimit default\n")
    message = failure(opener(host, accept_new=True))
    assert f"{path} cannot be read" in message and "one of the known_hosts files" in message
    lab.config(f"{which}KnownHostsFile {path}\nRekeyLimit 2G\n")  # by the ssh program
    assert f"{path} cannot be read" in failure(opener(host, accept_new=True))


@pytest.mark.parametrize("how", ["EIO", "ELOOP"])
def test_a_configuration_that_cannot_be_read_is_not_empty(lab: SshLab, opener: Opener, how: str) -> None:
    host = lab.sshd()
    cannot_be_read(lab.ssh / "config", how)
    assert "config: cannot be read" in failure(opener(host))


def test_a_list_under_a_file_is_not_there(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    lab.config(f"UserKnownHostsFile {lab.ssh}/known_hosts {lab.ssh}/known_hosts/2 {lab.ssh}/nothing\n")
    assert opens(opener, host)


def test_a_blank_in_a_path_that_ssh_prints(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    host = lab.sshd(known=False)
    path = lab.ssh / "known hosts"
    path.write_text(f"{host.name} {public(keygen(tmp_path / 'other'))}\n")
    more = f"HostName {host.address}\nIdentityFile {lab.key}\n"
    for where in (f'"{path}" /nothing', f'/nothing "{path}"', '"${HOME}/.ssh/known hosts"'):
        lab.config(f"CanonicalizeHostname always\nUserKnownHostsFile {where}\n{more}")
        message = failure(opener(Node("node1", 1, "", port=host.port), accept_new=True))
        assert f"its host key has CHANGED: ssh-ed25519 {shown(host)} now" in message
