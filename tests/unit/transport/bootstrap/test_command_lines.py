"""The command line and the payload for a host that has only python3."""

from __future__ import annotations

import array
import fcntl
import marshal
import math
import shlex
import subprocess
import sys
import termios
import zlib

import pytest

from mslaunch.errors import UsageError
from mslaunch.protocol.call_proof import bytecode
from mslaunch.transport.bootstrap.command_lines import boot_argv, boot_line, calling_argv


def test_what_an_agent_needs_to_call_back_is_a_few_kilobytes() -> None:
    """All else comes on its connection.  It knows the launcher then, and sees that its modules are unchanged."""
    _, data = calling_argv("python3", 10)
    table = marshal.loads(zlib.decompress(data))
    assert len(data) < 28_000  # a quarter of it source, the rest the same as code
    assert "mslaunch.agent.main" not in table
    assert marshal.loads(table.pop("code")).keys() == table.keys() - {"", "mslaunch"}


LOADED = """
import sys
print(*sorted({type(SOURCES[name][1]).__name__ for name in sys.modules if SOURCES.get(name, (True, ""))[1]}))
print(*("code" in SOURCES, sys.modules["mslaunch.agent.call_launcher"].CALL))
"""


@pytest.mark.parametrize(("kind", "loaded"), [(bytecode(), "code"), ("cpython-38-550d0d0a", "str")])
def test_a_program_that_nobody_asked_for_is_code_only_for_our_own_bytecode(kind: str, loaded: str) -> None:
    argv, data = calling_argv(sys.executable, 10)
    table = marshal.loads(zlib.decompress(data))
    entry = table[""].replace(bytecode(), kind)
    assert kind in entry
    table[""] = entry.replace("call_back_main(SOURCES)\n", LOADED)
    program = zlib.compress(marshal.dumps(table, 2))
    assert entry != table[""] and str(len(data)) in argv[-1]
    argv[-1] = argv[-1].replace(f"n={len(data)};", f"n={len(program)};")
    done = subprocess.run(argv, input=program, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().splitlines() == [loaded, "False mslaunch-call"]


@pytest.mark.parametrize("python", ["python3", "/opt/py-3.8_x/bin/python3.8", "~/venv/bin/python"])
def test_the_command_line_survives_any_shell(python: str) -> None:
    line = boot_line(python, 15.0)
    assert line.startswith(f"exec {python} -I -S -c '") and line.endswith("'")
    assert line.count("'") == 2
    assert not set(line) & set("$`\\!\n#^%")
    assert shlex.split(line) == ["exec", *boot_argv(python, 15.0)]


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 1), (15.0, 16), (59.9, 60), (1e30, 86401), (math.inf, 86401)])
def test_the_payload_is_waited_for_a_little_longer_than_the_launcher_waits(timeout: float, seconds: int) -> None:
    assert f".alarm({seconds});" in boot_line("python3", timeout)
    assert f".alarm({seconds});" in boot_argv("python3", timeout)[-1]


def test_an_interpreter_with_a_blank_in_its_name() -> None:
    assert boot_line("/opt/my python/bin/python3", 15.0).startswith("exec '/opt/my python/bin/python3' -I ")
    for name in ("it's", "a\\b", "a!b", "a\nb"):
        with pytest.raises(UsageError):
            boot_line(name, 15.0)


@pytest.mark.parametrize("cut", [0, 1, 2, 7])
def test_the_stub_reads_the_program_and_no_more(cut: int) -> None:
    """Bytes after the program, even if they have already arrived, are frames for the agent."""
    data = zlib.compress(marshal.dumps({"": "import os; os.write(1, b'[' + os.read(0, 99) + b']')"}, 2))
    program = b"%d\n%s" % (len(data), data)
    argv = boot_argv(sys.executable, 15.0)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline() == b"\0mslaunch python " + bytecode().encode() + b"\n"
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
    argv = boot_argv("python3", 15.0)
    old = argv[-1].replace("sys.version_info<(3,8)", "(3,7)<(3,8)")
    assert old != argv[-1]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", old], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "is older than 3.8" in done.stderr
