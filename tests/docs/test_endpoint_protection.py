"""docs/endpoint-protection.md shows the command lines that hosts really see, and its rules match them."""

from __future__ import annotations

import hashlib
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mslaunch.agent.guard import AGENT, GUARD
from mslaunch.agent.services.mindspore_scheduler import STUB
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.transport.bootstrap.agent_listing import lines_on_hosts, main
from mslaunch.transport.bootstrap.command_lines import boot_argv, boot_line, calling_argv, calling_line
from mslaunch.transport.bootstrap.manifest import CORE, PARTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "endpoint-protection.md").read_text(encoding="utf-8")
POLICY = LinkPolicy()
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
RULES = [name for name in BLOCKS if name.split(":")[0] in ("Falco", "osquery", "auditd")]
STUB_OF_AGENT = boot_argv("python3", POLICY.timeout)[-1]


def test_the_command_line_is_the_one_of_today() -> None:
    """After a change of the stub: put the new line and its SHA-256 into the page, and say why in CHANGELOG."""
    assert BLOCKS["the command line of an agent"] == boot_line(POLICY.python, POLICY.timeout) + "\n"
    assert f"    {hashlib.sha256(STUB_OF_AGENT.encode()).hexdigest()}\n" in PAGE
    assert f"`alarm({POLICY.timeout + 1:.0f})`" in PAGE


def test_the_parts_that_the_table_explains_are_all_of_the_line() -> None:
    """Each cell of code, cut at its ellipsis, is in the line, in this order."""
    table = PAGE.partition("| part | why |")[2].partition("\n\n")[0]
    line, at = boot_line("python3", POLICY.timeout), 0
    for cell in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE):
        for piece in filter(None, cell.split("…")):
            at = line.find(piece.rstrip(")") if cell.endswith("…)") else piece, at)
            assert at >= 0, piece


def test_how_batch_systems_change_the_line() -> None:
    question = STUB_OF_AGENT[STUB_OF_AGENT.index("os.write") : STUB_OF_AGENT.index(";b=bytearray")]
    sized = STUB_OF_AGENT.replace(question, "n=SIZE")
    argv, _ = calling_argv("python3", POLICY.timeout)
    assert re.sub(r"n=\d+;", "n=SIZE;", argv[-1]) == sized
    line, _ = calling_line("python3", POLICY.timeout)
    front = re.search(r"qrsh -inherit`\) \| the line above with `([^`]+)` in front", PAGE)
    assert front and re.sub(r"n=\d+;", "n=SIZE;", line) == f"exec python3 -I -S -c '{front[1]}{sized}'"
    lines = lines_on_hosts("python3", POLICY.timeout)
    assert lines["LSF, Flux"] == "python3 -I -S -" and f"| `{lines['LSF, Flux']}` |" in PAGE
    assert lines["PBS"].startswith('python3 -I -S -c \'__import__("_signal").alarm(16)\n')


def test_names_of_processes() -> None:
    assert f"`{GUARD}`" in PAGE and f"`{AGENT}`" in PAGE
    for name in ("mslaunch-events", "mslaunch-sched"):
        assert f"`{name}`" in PAGE and len(name) <= 15
    assert STUB.startswith("# mslaunch: the scheduler of a MindSpore job\n")


@pytest.mark.parametrize("rule", RULES)
def test_patterns_of_the_rules_match(rule: str) -> None:
    """What a rule compares with arguments or a command line is the beginning of ours."""
    words = " ".join(boot_argv("python3", POLICY.timeout))
    (pattern,) = re.findall(r"['\"]([^'\"]*import sys,os,zlib[^'\"]*?)%?['\"]", BLOCKS[rule])
    assert pattern in words
    assert words.startswith(pattern) or "LIKE" not in BLOCKS[rule]


def test_there_are_three_rules() -> None:
    assert len(RULES) == 3


def test_the_query_finds_the_guard_that_has_another_parent() -> None:
    """osquery's tables are SQLite's; here by rows as a host has them, once below sshd and once below cron."""
    line = " ".join(boot_argv("python3", POLICY.timeout))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE processes (pid, parent, uid, name, cmdline)")
    rows = [(1, 0, 0, "sshd", "sshd"), (2, 1, 7, GUARD, line), (3, 2, 7, AGENT, line)]
    rows += [(4, 0, 0, "cron", "cron"), (5, 4, 8, GUARD, line), (6, 5, 8, AGENT, line)]
    database.executemany("INSERT INTO processes VALUES (?, ?, ?, ?, ?)", rows)
    (query,) = (text for name, text in BLOCKS.items() if name.startswith("osquery"))
    assert database.execute(query).fetchall() == [(5, 8, "cron")]
    database.close()


def test_the_listing_that_the_page_names(tmp_path: Path) -> None:
    command = next(line for line in PAGE.splitlines() if line.startswith("    $ python3 -m mslaunch."))
    words = shlex.split(command.partition("$ python3 ")[2])
    done = subprocess.run(
        [sys.executable, *words, "--write", str(tmp_path / "sent")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.partition("sent on the link:\n")[2].splitlines()]
    assert len(rows) == 2 + len(PARTS)
    for digest, size, _, name in rows:
        data = (tmp_path / "sent" / name).read_bytes()
        assert (digest, int(size)) == (hashlib.sha256(data).hexdigest(), len(data))
    modules = {*CORE, *(name for part in PARTS.values() for name in part)}
    written = list((tmp_path / "sent" / "modules").rglob("*.py"))
    assert len(written) == len(modules)
    for path in written:
        compile(path.read_text(encoding="utf-8"), path.name, "exec")


def test_the_listing_is_the_same_each_time(tmp_path: Path) -> None:
    """Also where nothing was compiled before."""
    fresh = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin"}
    command = [sys.executable, "-m", "mslaunch.transport.bootstrap.agent_listing"]
    first, second = (
        subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
        for env in (None, {**fresh, "PYTHONHASHSEED": "7"})
    )
    assert first == second


def test_a_directory_that_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--write", str(tmp_path)])
    assert ended.value.code == 2
    assert f"error: {tmp_path}: File exists" in capsys.readouterr().err
