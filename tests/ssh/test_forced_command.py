"""The forced command of docs/endpoint-protection.md: a key that starts agents and nothing else, on a real sshd."""

from __future__ import annotations

import re
from pathlib import Path

from sshd import SshLab, public
from sshlinks import Opener, read

from mslaunch.transport.bootstrap.command_lines import boot_line

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "endpoint-protection.md").read_text(encoding="utf-8")


def test_a_key_that_starts_agents_and_nothing_else(lab: SshLab, opener: Opener, tmp_path: Path) -> None:
    found = re.search(r'title="/usr/local/bin/only-mslaunch"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    shown = re.search(r'title="the command line of an agent"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    options = re.search(r'^    (restrict,command=)"/usr/local/bin/only-mslaunch" ', PAGE, re.MULTILINE)
    assert found and shown and options
    (tmp_path / "line").write_text(shown[1])
    script = tmp_path / "only-mslaunch"
    script.write_text(found[1].replace("/etc/mslaunch-agent-line", str(tmp_path / "line")))
    script.chmod(0o755)
    host = lab.sshd(authorized=f'{options[1]}"{script}" {public(lab.key)}\n')

    agent = opener(host, boot_line("python3", 15.0))
    assert read(agent, 17) == b"\0mslaunch python "
    agent.close()
    for other in ("id", boot_line("python3", 15.0) + "; id", boot_line("python3", 16.0)):
        link = opener(host, other)
        assert read(link) == b""
        assert link.wait(5) and link.exit_status == 1
        assert b"this key starts agents of mslaunch only" in link.noise()
