"""The agent's program: what is in it, as code and as source, and what is kept of it."""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import mslaunch
from mslaunch.protocol import frames
from mslaunch.protocol.call_proof import bytecode
from mslaunch.transport.bootstrap.agent_program import program_for, without_columns
from mslaunch.transport.bootstrap.bare_source import bare
from mslaunch.transport.bootstrap.command_lines import boot_argv
from mslaunch.transport.bootstrap.manifest import CORE, FIRST, PARTS


def tables_for(kind: str) -> list[dict[str, Any]]:
    """The modules that come first, and the others."""
    size, _, data = program_for(kind).partition(b"\n")
    return [marshal.loads(zlib.decompress(part)) for part in (data[: int(size)], data[int(size) :])]


@pytest.mark.parametrize(
    ("kind", "most", "sent"),
    [(bytecode(), 112_000, "code"), ("cpython-38-550d0d0a", 49_000, "str"), ("", 49_000, "str")],
)
def test_the_program_is_whole_and_small(kind: str, most: int, sent: str) -> None:
    """As code only for who has our bytecode."""
    assert len(program_for(kind)) <= most, "every launch sends it to every host: it should not grow"
    first, rest = tables_for(kind)
    assert first.keys() == {*FIRST, "mslaunch", ""} and first.keys() | rest.keys() == {*CORE, "mslaunch", ""}
    modules = {name: found for name, found in (*first.items(), *rest.items()) if name}
    assert {type(code).__name__ for package, code in modules.values() if not package} == {sent}
    assert all(code == "" for package, code in modules.values() if package)


def test_an_agent_says_hello_with_the_modules_that_come_first() -> None:
    """The rest, two thirds, is withheld; whoever then hangs up ends it."""
    size, _, data = program_for(bytecode()).partition(b"\n")
    assert int(size) < len(data) * 0.4
    with subprocess.Popen(
        boot_argv(sys.executable, 20), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as agent:
        assert agent.stdin and agent.stdout and agent.stderr
        assert agent.stdout.readline().startswith(b"\0mslaunch python ")
        agent.stdin.write(size + b"\n" + data[: int(size) + 5000])
        decoder, found = frames.Decoder(magic=True), []
        while not found:
            data = agent.stdout.read(4096)
            assert data, agent.stderr.read()
            found = decoder.feed(data)
        agent.stdin.close()
        assert [frame.kind for frame in found] == [frames.HELLO]
        assert not agent.stderr.read() and not agent.stdout.read()


def all_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from all_of(const)


@pytest.mark.parametrize("name", ["mslaunch.agent.agent", "mslaunch.protocol.frames", "mslaunch.agent.ranks.rank"])
def test_code_keeps_its_lines_and_nothing_else_of_its_positions(name: str) -> None:
    text = Path(cast("Any", importlib.util.find_spec(name)).origin).read_text(encoding="utf-8")
    for whole in all_of(compile(text, name, "exec", dont_inherit=True)):
        small = without_columns(whole)
        assert lines_of(small) == lines_of(whole)
        assert small.replace(co_linetable=whole.co_linetable, co_consts=whole.co_consts) == whole
        if hasattr(small, "co_positions"):
            assert len(small.co_linetable) <= len(whole.co_linetable)
            assert {column for position in small.co_positions() for column in position[2:]} == {None}


def lines_of(code: types.CodeType) -> list[int | None]:
    """Of each instruction."""
    if not hasattr(code, "co_lines"):  # before 3.10
        return [*code.co_lnotab]
    return [line for start, end, line in code.co_lines() for _ in range(start, end, 2)]


def test_a_traceback_of_code_without_columns_has_its_lines() -> None:
    code = compile("def f():\n\n  return (\n    1 //\n    0)\n" + "\n" * 3000 + "f()\n", "made", "exec")
    spaces: dict[str, Any] = {}
    with pytest.raises(ZeroDivisionError) as raised:
        exec(without_columns(code), spaces)
    assert [entry.lineno + 1 for entry in raised.traceback[1:]] == [3006, 4]


# --- what is kept


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package of our own, in which nothing was compiled yet."""
    ours = Path(mslaunch.__file__).parent
    shutil.copytree(ours, tmp_path / "mslaunch", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


MADE = """
import sys
sys.path.insert(0, sys.argv[1])
from mslaunch.transport.bootstrap import agent_program
calls = []
make = agent_program._in_two
agent_program._in_two = lambda *words: calls.append(words) or make(*words)
program = agent_program.program_for(agent_program.bytecode())
assert agent_program.program_for(agent_program.bytecode()) is program
print(len(calls), len(program))
"""


#: the same for the programs of agents that call back
CALLING = """
import sys
sys.path.insert(0, sys.argv[1])
from mslaunch.transport.bootstrap import command_lines
calls = []
make = command_lines.table_of_both
command_lines.table_of_both = lambda *words, **how: calls.append(words) or make(*words, **how)
programs = {command_lines.calling_argv("python3", 9.0)[1], command_lines.calling_line("python3", 9.0)[1]}
assert len(programs) == 2
print(len(calls), sum(map(len, programs)))
"""


def made(copy: Path, program: str = MADE, **environ: str) -> tuple[int, int]:
    """How often a new process had to make the program, and its size."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-c", program, str(copy)]
    done = subprocess.run(command, env={**clean, **environ}, capture_output=True, text=True, check=True)
    calls, size = map(int, done.stdout.split())
    return calls, size


def kept(copy: Path) -> list[Path]:
    return [*copy.rglob("*.opt-code.pyc")]


def test_it_is_made_once(copy: Path) -> None:
    first = made(copy)
    assert first[0] == 1 and len(kept(copy)) == 1
    assert made(copy) == (0, first[1])


MAKERS = [f"mslaunch/transport/bootstrap/{name}" for name in ("agent_program", "bare_source")]


@pytest.mark.parametrize("module", [CORE[-1].replace(".", "/"), *MAKERS])
def test_it_is_made_again_when_a_source_has_changed(copy: Path, module: str) -> None:
    made(copy)
    with open((copy / module).with_suffix(".py"), "a", encoding="utf-8") as file:
        file.write("\nADDED = 'something that is not there yet'\n")
    assert made(copy)[0] == 1
    assert made(copy)[0] == 0


@pytest.mark.parametrize("module", ["agent/call_launcher", "errors", "transport/bootstrap/command_lines"])
def test_the_programs_of_agents_that_call_back_are_kept_likewise(copy: Path, module: str) -> None:
    first = made(copy, CALLING)
    assert first[0] == 2 and made(copy, CALLING) == (0, first[1])
    with open(copy / "mslaunch" / f"{module}.py", "a", encoding="utf-8") as file:
        file.write("\nADDED = 'something that is not there yet'\n")
    assert made(copy, CALLING)[0] == 2
    assert made(copy, CALLING)[0] == 0


@pytest.mark.parametrize("left", [0, 10, 5000, -1])
def test_a_file_that_was_cut_is_made_again(copy: Path, left: int) -> None:
    first = made(copy)
    [file] = kept(copy)
    file.write_bytes(file.read_bytes()[:left])
    assert made(copy) == first
    assert made(copy) == (0, first[1])


def test_nothing_is_written_where_python_may_write_no_compiled_files(copy: Path) -> None:
    assert made(copy, PYTHONDONTWRITEBYTECODE="1")[0] == 1
    assert not kept(copy)


def test_where_nothing_can_be_written_it_is_made_each_time(copy: Path) -> None:
    (copy / "mslaunch" / "transport" / "bootstrap" / "__pycache__").write_text("in the way")
    assert [made(copy)[0], made(copy)[0]] == [1, 1]


def test_it_is_kept_where_python_keeps_its_compiled_files(copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert made(copy, PYTHONPYCACHEPREFIX=str(elsewhere))[0] == 1
    assert [*elsewhere.rglob("*.opt-code.pyc")] and not [*(copy / "mslaunch").rglob("*.pyc")]
    assert made(copy, PYTHONPYCACHEPREFIX=str(elsewhere))[0] == 0


# --- sources


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
