"""The bootstrap: a command line and N bytes become an agent, on every Python, however the bytes arrive."""

from __future__ import annotations

import glob
import marshal
import os
import re
import signal
import subprocess
import sys
import zlib

import pytest
from agents import BOUND, plan
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import UsageError
from mslaunch.protocol import frames
from mslaunch.transport.bootstrap.command_lines import boot_argv, boot_line

FOUND = glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")) + glob.glob("/usr/bin/python3")
PYTHONS = [sys.executable, *(path for path in sorted(FOUND) if not re.search(r"/(2|3\.[0-7])\.", path))]


@pytest.mark.parametrize("python", PYTHONS)
def test_agents_start_on_every_python(boot, python):
    agent = boot(python=python)
    assert agent.begin().python.startswith("3.")
    agent.launch(plan("sh", "-c", "cat; exit 4", stdin=(0,)))
    agent.send(frames.STDIN, 0, b"words\n")
    agent.send(frames.STDIN, 0, b"")
    assert agent.output(frames.STDOUT, 0) == b"words\n"
    assert agent.exit(0).code == 4


def test_a_program_may_arrive_in_pieces(boot):
    agent = boot()
    program = agent.program()
    for at in range(0, len(program) - 1, 997):
        agent.raw(program[at : min(at + 997, len(program) - 1)])
    agent.raw(program[-1:])
    agent.expect(frames.HELLO)


@pytest.mark.parametrize(("size", "error"), [(0, b"ValueError"), (2, b"zlib.error"), (100, b"zlib.error")])
def test_a_program_that_is_cut_short(boot, size, error):
    agent = boot()
    agent.raw(agent.program()[:size])
    agent.process.stdin.close()
    assert agent.wait() != 0
    assert agent.process.stdout.read() == b""
    assert error in agent.process.stderr.read()


COLLECTS = """
import gc, os, types
from mslaunch.agent import guard
def say(name):
    os.write(2, b"%s %d %d\\n" % (name, gc.isenabled(), gc.get_freeze_count() > 1_000))
    return 0
guard._watch = lambda agent, *others: os.waitpid(agent, 0) and say(b"guard")
sys.modules["mslaunch.agent.agent"] = types.SimpleNamespace(serve=lambda *others: say(b"agent"))
say(b"loader")
"""


def test_garbage_is_collected_once_all_is_loaded(boot):
    """Agent and guard run as long as the job; while they load, the collector takes time for nothing."""
    agent = boot()
    size, rest = agent.program().split(b"\n", 1)
    table = marshal.loads(zlib.decompress(rest[: int(size)]))
    entry = table[""].replace("\nremote_main(", f"{COLLECTS}remote_main(")
    assert entry != table[""]
    first = zlib.compress(marshal.dumps({**table, "": entry}, 4))
    agent.raw(b"%d\n%s%s" % (len(first), first, rest[int(size) :]))
    assert agent.wait() == 0
    assert agent.process.stderr.read().split(b"\n") == [b"loader 0 0", b"agent 1 1", b"guard 1 0", b""]


def test_a_program_whose_second_half_is_cut_short(boot):
    """The agent has said HELLO by then, and nothing of the job has been started."""
    agent = boot()
    agent.raw(agent.program()[:-1])
    agent.expect(frames.HELLO)
    agent.process.stdin.close()
    assert agent.wait() != 0
    assert agent.process.stdout.read() == agent.process.stderr.read() == b""


def test_a_program_that_never_comes_is_not_waited_for(boot):
    """As when a network is cut meanwhile.  An agent that has its program lives on."""
    whole, cut, half = (boot(timeout=5.0) for _ in range(3))
    whole.begin()
    cut.raw(cut.program()[:1000])
    half.raw(half.program()[:-1])
    whole.launch(plan("sh", "-c", "cat; exit 4", stdin=(0,)))
    assert cut.wait() == -signal.SIGALRM
    assert half.wait() == 128 + signal.SIGALRM
    whole.send(frames.STDIN, 0, b"")
    assert whole.exit(0).code == 4


def test_a_program_that_is_garbage(boot):
    agent = boot()
    agent.raw(b"1000\n" + bytes(1000))
    assert agent.wait() != 0
    assert b"zlib.error" in agent.process.stderr.read()


def test_the_command_line_survives_any_shell():
    """No character that a login shell would change."""
    line = boot_line("/opt/python 3/bin/python3", 15.0)
    assert line.count("'") == 4 and "\n" not in line
    assert not set("$`\\!") & set(line)


@pytest.mark.parametrize("name", ["it's", "a\\b", "a\nb", "hey!"])
def test_a_python_that_cannot_be_quoted(name):
    with pytest.raises(UsageError):
        boot_line(name, 15.0)


def test_an_environment_that_would_change_python(boot, tmp_path):
    """PYTHON* variables of the host, and modules in the current directory, have no effect."""
    (tmp_path / "struct.py").write_text("raise SystemExit('not this one')")
    agent = boot(PYTHONPATH=str(tmp_path), PYTHONHOME="/no/such", PYTHONSTARTUP=str(tmp_path / "struct.py"))
    agent.begin()


def test_an_old_python_is_reported():
    """Python 3.7 and 2.7, where they are found, understand the line so far."""
    old = [
        path
        for path in glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python"))
        if re.search(r"/(2|3\.[0-7])\.", path)
    ]
    if not old:
        pytest.skip("no old Python here")
    for python in old:
        argv = boot_argv(python, 15.0)
        ended = subprocess.run(argv[:1] + argv[3:], input=b"", capture_output=True, timeout=BOUND, check=False)
        assert ended.returncode == 1
        assert re.fullmatch(rb"mslaunch: python \d\.\d+\.\d+ is older than 3.8\s*", ended.stderr)


@given(st.binary(max_size=200), st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=6))
def test_output_of_a_login_is_skipped(noise, part, cuts):
    """Any bytes, also a part of the magic, in any pieces."""
    noise += frames.MAGIC[: len(part) % len(frames.MAGIC)]
    if frames.MAGIC in noise:
        return
    stream = noise + frames.MAGIC + frames.encode(frames.HELLO, payload=part)
    if stream.find(frames.MAGIC) != len(noise):
        return
    decoder = frames.Decoder(magic=True)
    found = []
    places = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    for start, end in zip(places, places[1:]):
        found += decoder.feed(stream[start:end])
    assert found == [frames.Frame(frames.HELLO, frames.NO_RANK, part)]
    assert decoder.noise == noise
