"""What is imported of paramiko, in a process of the command and in a program that uses the API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mslaunch

ROOT = str(Path(mslaunch.__file__).parents[1])
#: makes a connection's class as the command does; then ARGV[1] is executed
COMMAND = """
import sys
import mslaunch
from mslaunch import package_finder
package_finder.install(mslaunch)
from mslaunch.transport.ssh.paramiko_transport import load_paramiko, transport_class
exec(sys.argv[1])
"""
UNUSED = {
    "invoke",
    "nacl",
    "nacl.signing",
    "paramiko.config",
    "paramiko.client",
    "paramiko.sftp_client",
    "paramiko.agent",
}


def said(script: str, *words: str, path: str = ROOT) -> str:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_the_command_imports_no_part_that_it_does_not_use() -> None:
    names = said(COMMAND, "transport_class(); print(*sys.modules)").split()
    assert "paramiko.transport" in names
    assert not UNUSED & set(names)


def test_what_was_left_out_can_be_imported_later() -> None:
    """Nothing that has taken its place is left."""
    later = (
        "transport_class(); from paramiko.config import SSHConfig; import nacl.signing; print(SSHConfig().lookup('h'))"
    )
    assert "hostname" in said(COMMAND, later)


def test_a_program_that_uses_the_api_has_the_whole_of_it() -> None:
    script = """
from mslaunch.transport.ssh.paramiko_transport import transport_class
transport_class()
import paramiko
print(paramiko.SSHClient.__name__, paramiko.__version__)
"""
    name, version = said(script).split()
    assert name == "SSHClient" and version[0].isdigit()


@pytest.mark.parametrize("wrong", ["raise TypeError('two')", "from paramiko import SSHClient"])
def test_another_paramiko_is_imported_as_a_whole(wrong: str, tmp_path: Path) -> None:
    """One whose modules want more than what stands in for the rest: it is asked for in full before anything is said."""
    package = tmp_path / "paramiko"
    package.mkdir()
    (package / "__init__.py").write_text("class SSHClient: pass\nwhole = True\n")
    (package / "transport.py").write_text(f"import paramiko\nif not hasattr(paramiko, 'whole'):\n    {wrong}\n")
    assert said(COMMAND, "print(load_paramiko().whole)", path=f"{tmp_path}:{ROOT}") == "True\n"


def test_a_banner_says_paramiko() -> None:
    """Servers know its peculiarities by this name."""
    banner = "import socket; near, far = socket.socketpair(); print(transport_class()(near).local_version)"
    assert said(COMMAND, banner).startswith("SSH-2.0-paramiko_")
