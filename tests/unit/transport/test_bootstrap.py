"""The command line and the payload for a host that has only python3."""

from __future__ import annotations

import array
import ast
import fcntl
import importlib.util
import marshal
import math
import shlex
import subprocess
import sys
import termios
import zlib
from pathlib import Path
from typing import cast

import pytest

from mslaunch.errors import UsageError
from mslaunch.protocol.call_proof import bytecode
from mslaunch.transport import bootstrap
from mslaunch.transport.bootstrap import bare, boot_argv, calling_argv, make_boot, modules_for, payload
from mslaunch.transport.manifest import CORE, PARTS


def test_the_payload_is_small_and_whole() -> None:
    data = payload()
    assert len(data) <= 40_810, "every launch sends it to every host: it should not grow"
    program = zlib.decompress(data).decode()
    compile(program, "payload", "exec")
    assert all(repr(name) in program for name in CORE)


@pytest.mark.parametrize(
    ("kind", "compiled", "sent"),
    [(bytecode(), True, "code"), (bytecode(), False, "str"), ("cpython-38-550d0d0a", True, "str"), ("", True, "str")],
)
def test_an_agent_gets_compiled_modules_only_if_it_has_our_bytecode(
    kind: str, compiled: bool, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_is_compiled", lambda: compiled)
    size, _, data = modules_for(kind).partition(b"\n")
    assert len(data) == int(size) < 200_000
    table = marshal.loads(zlib.decompress(data))
    assert table.keys() == set(CORE)
    assert {type(code).__name__ for package, code in table.values() if not package} == {sent}
    assert all(code == "" for package, code in table.values() if package)


def test_what_an_agent_needs_to_call_back_is_a_few_kilobytes() -> None:
    """All else comes on its connection."""
    _, data = calling_argv("python3", 10)
    assert len(data) < 6_000
    assert "mslaunch.agent.main'" not in zlib.decompress(data).decode()


IN_PARTS = sorted({module for modules in PARTS.values() for module in modules})


@pytest.mark.parametrize("name", (*CORE, *IN_PARTS))
def test_only_comments_and_docstrings_are_left_out(name: str) -> None:
    """The payload is the same program, line for line, without comments, docstrings and code for type checkers."""
    spec = importlib.util.find_spec(name)
    assert spec and spec.origin
    text = Path(spec.origin).read_text(encoding="utf-8")
    whole, sent = ast.parse(text), ast.parse(bare(text))
    for node in ast.walk(whole):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            cast("ast.Expr", node.body[0]).value = ast.Constant("")
        if isinstance(node, ast.FunctionDef):
            node.returns = None
    for top in whole.body:
        if isinstance(top, ast.If) and ast.unparse(top.test) == "TYPE_CHECKING":
            top.body = [ast.Expr(ast.Constant(""), lineno=top.lineno)]
    assert shape(whole) == shape(sent)
    assert len(text.splitlines()) == len(bare(text).splitlines())


def test_a_comment_behind_code() -> None:
    text = 'a = 1  # one\nb = \'  # two\'\nc = 3  # it\'s\nd = """x  # y\nz  # z\n"""\n# e  # f'
    assert bare(text).split("\n") == [
        "a = 1",
        "b = '  # two'",
        "c = 3  # it's",
        'd = """x  # y',
        "z  # z",
        '"""',
        "",
    ]


def shape(tree: ast.AST) -> list[tuple[str, int]]:
    """All of a program, and on which lines it is."""
    lines = [(type(node).__name__, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return [(ast.dump(tree), 0), *lines]


@pytest.mark.parametrize("python", ["python3", "/opt/py-3.8_x/bin/python3.8", "~/venv/bin/python"])
def test_the_command_line_survives_any_shell(python: str) -> None:
    boot = make_boot(python, 15.0)
    assert boot.command.startswith(f"exec {python} -I -S -c '") and boot.command.endswith("'")
    assert boot.command.count("'") == 2
    assert not set(boot.command) & set("$`\\!\n#^%")
    argv, data = boot_argv(python, 15.0)
    assert shlex.split(boot.command) == ["exec", *argv]
    assert data == boot.payload and str(len(data)) in boot.command


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 1), (15.0, 16), (59.9, 60), (1e30, 86401), (math.inf, 86401)])
def test_the_payload_is_waited_for_a_little_longer_than_the_launcher_waits(timeout: float, seconds: int) -> None:
    assert f".alarm({seconds});" in make_boot("python3", timeout).command
    assert f".alarm({seconds});" in boot_argv("python3", timeout)[0][-1]


def test_an_interpreter_with_a_blank_in_its_name() -> None:
    assert make_boot("/opt/my python/bin/python3", 15.0).command.startswith("exec '/opt/my python/bin/python3' -I ")
    for name in ("it's", "a\\b", "a!b", "a\nb"):
        with pytest.raises(UsageError):
            make_boot(name, 15.0)


@pytest.mark.parametrize("cut", [0, 1, 2, 7])
def test_the_stub_reads_the_payload_and_no_more(cut: int) -> None:
    """Bytes after the payload, even if they have already arrived, are frames for the agent."""
    program = zlib.compress(b"import os; os.write(1, b'[' + os.read(0, 99) + b']')")
    argv, data = boot_argv(sys.executable, 15.0)
    stub = argv[-1].replace(str(len(data)), str(len(program)))
    assert stub != argv[-1]
    with subprocess.Popen([*argv[:-1], stub], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin and child.stdout
        child.stdin.write(program[:cut])
        while child.poll() is None and not emptied(child.stdin.fileno()):
            pass
        child.stdin.write(program[cut:] + b"frames")
        child.stdin.close()
        assert child.stdout.read() == b"[frames]"


def emptied(pipe: int) -> bool:
    """Whether all that was written into this pipe has been read."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return not waiting[0]


def test_an_old_python_is_reported() -> None:
    argv, _ = boot_argv("python3", 15.0)
    old = argv[-1].replace("sys.version_info<(3,8)", "(3,7)<(3,8)")
    assert old != argv[-1]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", old], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "is older than 3.8" in done.stderr
