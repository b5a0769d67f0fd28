"""Output of ranks: on the terminal, in files, merged, tagged; and slow readers."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from launching import COMMAND, PROGRAMS, environment, memory_of, program, through_rsh, wait_until

TWO = through_rsh("alpha:4", "beta:4")
BOTH = 'echo "out $OMPI_COMM_WORLD_RANK $(uname -n)"; echo "err $OMPI_COMM_WORLD_RANK" >&2'


def said_by_ranks(err: str) -> list[str]:
    """Standard error without the launcher's own lines (cores may be shared, on a small machine)."""
    return [line for line in err.splitlines() if not line.startswith("mslaunch: ")]


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_streams_stay_apart(run, where):
    ended = run([*where, "-n", "4", "--map-by", "node", "--oversubscribe", "sh", "-c", BOTH])
    assert ended.code == 0
    assert [line.split()[:2] for line in ended.lines] == [["out", str(rank)] for rank in range(4)]
    assert sorted(said_by_ranks(ended.err)) == [f"err {rank}" for rank in range(4)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a UTS namespace")
def test_hosts_have_their_ranks(run):
    ended = run([*TWO, "-n", "4", "--map-by", "node", "sh", "-c", BOTH])
    assert ended.lines == ["out 0 alpha", "out 1 beta", "out 2 alpha", "out 3 beta"]


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_files_of_each_rank(run, where, tmp_path):
    ended = run([*where, "-n", "4", "--oversubscribe", "--output-filename", "logs", "sh", "-c", BOTH])
    assert len(ended.lines) == 4
    for rank in range(4):
        folder = tmp_path / "logs" / "1" / f"rank.{rank}"
        assert (folder / "stdout").read_text().startswith(f"out {rank} ")
        assert (folder / "stderr").read_text() == f"err {rank}\n"


def test_names_of_files_are_as_wide_as_the_number_of_ranks(run, tmp_path):
    run(["-n", "10", "--oversubscribe", "--output-filename", "logs", "true"])
    assert sorted(os.listdir(tmp_path / "logs" / "1")) == [f"rank.{rank:02d}" for rank in range(10)]


def test_files_only(run, tmp_path):
    ended = run(["-n", "2", "--oversubscribe", "--output-filename", "logs:nocopy,nojobid", "sh", "-c", BOTH])
    assert (ended.code, ended.out) == (0, b"")
    assert (tmp_path / "logs" / "rank.1" / "stderr").read_text() == "err 1\n"


def test_merge(run, tmp_path):
    words = ["-n", "2", "--oversubscribe", "--merge-stderr-to-stdout", "--output-filename", "logs", "sh", "-c"]
    ended = run([*words, "echo one; echo two >&2; echo three"])
    assert said_by_ranks(ended.err) == []
    for rank in range(2):
        assert (tmp_path / "logs" / "1" / f"rank.{rank}" / "stdout").read_text() == "one\ntwo\nthree\n"
        assert not (tmp_path / "logs" / "1" / f"rank.{rank}" / "stderr").exists()


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_tagged_lines_are_whole_and_in_order(run, where):
    lines = 500
    ended = run([*where, "-n", "8", "--oversubscribe", "--tag-output", *program("spew", lines)])
    by_rank: dict[int, list[str]] = {rank: [] for rank in range(8)}
    for line in ended.out.decode().splitlines():
        tag, rest = line.split(":", 1)
        rank = int(rest.split()[1])
        assert tag == f"[1,{rank}]<stdout>"
        by_rank[rank].append(rest)
    for rank, found in by_rank.items():
        assert found == [f"rank {rank} line {number} {'x' * 40}" for number in range(lines)]


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_detailed_tags_name_host_and_process(run, where):
    ended = run([*where, "-n", "2", "--oversubscribe", "--output", "tag-detailed", "sh", "-c", "echo $$; echo $$"])
    found = [re.fullmatch(r"\[1,([01])\]\[(.+):(\d+)\]<stdout>: ?(\d+)", line) for line in ended.lines]
    assert all(found) and len(found) == 4, ended.out
    assert all(line[3] == line[4] for line in found), "the process id is that of the rank"
    assert {line[2] for line in found} == ({"alpha"} if where else {os.uname().nodename})


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_xml(run, where):
    words = [*where, "-n", "2", "--oversubscribe", "--map-by", "node", "--xml", "--display-map", "sh", "-c"]
    ended = run([*words, f"{BOTH}; printf '\\033[1mno end'"])
    root = ElementTree.fromstring(ended.out)
    assert (ended.code, root.tag) == (0, "mpirun")
    assert len(root.findall("map/host/process")) == 2
    for rank in range(2):
        shown = {
            kind: "".join(element.text or "" for element in root.iter(kind) if element.get("rank") == str(rank))
            for kind in ("stdout", "stderr")
        }
        assert shown["stdout"].startswith(f"out {rank} ") and shown["stdout"].endswith("\n\u241b[1mno end")
        assert shown["stderr"] == f"err {rank}\n"


def test_xml_of_a_job_that_fails(run):
    """Standard output is a document all the same; what the launcher says stays on standard error."""
    ended = run(["-n", "1", "--xml", "sh", "-c", "echo words >&2; exit 3"])
    assert ended.code == 3
    assert [(element.tag, element.text) for element in ElementTree.fromstring(ended.out)] == [("stderr", "words\n")]
    assert "rank 0 ended with exit code 3" in ended.err and "<" not in ended.err


def test_a_dry_run_shows_the_map(run):
    ended = run(["-n", "2", "--oversubscribe", "--do-not-launch", "sh", "-c", "echo started"])
    assert (ended.code, ended.out.count(b"Process rank:"), ended.out.count(b"started")) == (0, 2, 0)


def test_a_map_alone_as_xml(run):
    ended = run(["-n", "2", "--oversubscribe", "--xml", "--display-map", "--do-not-launch", "true"])
    assert (ended.code, len(ElementTree.fromstring(ended.out).findall("map/host/process"))) == (0, 2)


def test_a_job_that_cannot_start_as_xml(run):
    ended = run(["-n", "1", "--xml", "/nonexistent/program"])
    assert ended.code and list(ElementTree.fromstring(ended.out)) == []


def test_xml_file(run, tmp_path):
    ended = run(["-n", "2", "--oversubscribe", "--xml-file", "below/x.xml", "--display-map", "sh", "-c", BOTH])
    assert (ended.code, ended.out, said_by_ranks(ended.err)) == (0, b"", [])
    root = ElementTree.parse(tmp_path / "below" / "x.xml").getroot()
    assert sorted(element.tag for element in root) == ["map", "stderr", "stderr", "stdout", "stdout"]


def test_partial_lines_come_at_once_and_untouched(start):
    job = start(["-n", "1", *program("partial")], stdin=subprocess.PIPE)
    job.expect(b"one ")
    os.write(job.process.stdin.fileno(), b"\n")
    job.expect(b"two ")
    os.write(job.process.stdin.fileno(), b"\n")
    assert job.end().out == b"one two three"


def test_binary_through_two_hosts(run, tmp_path):
    """20 MB that are no text, from each of two hosts."""
    size = 20_000_000
    words = [*TWO, "-n", "2", "--map-by", "node", "--output-filename", "logs:nocopy", *program("bulk", size, 5)]
    assert run(words, bound=60).code == 0
    for rank in range(2):
        block = b"".join(hashlib.sha256(f"{5 + rank} {part}".encode()).digest() for part in range(2048))
        expected = (block * (size // len(block) + 1))[:size]
        kept = (tmp_path / "logs" / "1" / f"rank.{rank}" / "stdout").read_bytes()
        assert hashlib.sha256(kept).hexdigest() == hashlib.sha256(expected).hexdigest()


def test_binary_to_a_pipe(run):
    size = 20_000_000
    ended = run([*through_rsh("alpha"), "-n", "1", *program("bulk", size, 7)], bound=60)
    block = b"".join(hashlib.sha256(f"7 {part}".encode()).digest() for part in range(2048))
    assert hashlib.sha256(ended.out).digest() == hashlib.sha256((block * (size // len(block) + 1))[:size]).digest()


def test_a_rank_that_closes_its_output_is_waited_for(run, tmp_path):
    ended = run(["-n", "1", *program("close_stdout", tmp_path / "made")])
    assert (ended.code, ended.out) == (0, b"closing\n")
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_files_of_5_0(run, where, tmp_path):
    run([*where, "-n", "2", "--oversubscribe", "--output", "file=logs/f:nocopy", "sh", "-c", BOTH])
    assert (tmp_path / "logs" / "f.1.out").read_text().startswith("out 1 ")
    assert (tmp_path / "logs" / "f.1.err").read_text() == "err 1\n"
    assert len(os.listdir(tmp_path / "logs")) == 4


def test_ranks_that_share_a_file_of_hydra_tear_no_line(run, tmp_path):
    lines = 500
    words = ["--dialect", "hydra", "-n", "4", "-outfile-pattern", "logs/all", "-errfile-pattern", "logs/%h/%r"]
    ended = run([*words, *program("spew", lines)])
    assert (ended.code, ended.out) == (0, b"")
    found = (tmp_path / "logs" / "all").read_text().splitlines()
    for rank in range(4):
        own = [line for line in found if line.startswith(f"rank {rank} ")]
        assert own == [f"rank {rank} line {number} {'x' * 40}" for number in range(lines)]
    assert len(found) == 4 * lines
    assert sorted(os.listdir(tmp_path / "logs" / os.uname().nodename)) == ["0", "1", "2", "3"]


# --- live


@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_print_of_python_is_seen_at_once(start, tmp_path, where):
    job = start([*where, "-n", "1", *program("print_live", tmp_path / "go")])
    job.expect(b"alive")
    (tmp_path / "go").touch()
    assert job.end().code == 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("pty", "terminal"), [("auto", "1"), ("yes", "1")])
def test_printf_of_c_is_seen_at_once(start, tmp_path, pty, terminal):
    subprocess.run(["cc", "-o", tmp_path / "live", PROGRAMS / "printf_live.c"], check=True, timeout=60)
    job = start(["-n", "1", "--pty", pty, str(tmp_path / "live"), str(tmp_path / "go")])
    job.expect(f"alive {terminal}\n".encode())
    (tmp_path / "go").touch()
    assert job.end().out == f"alive {terminal}\n".encode()


@pytest.mark.parametrize(("pty", "terminal"), [("auto", False), ("yes", True), ("no", False)])
def test_pty_of_python(run, pty, terminal):
    ended = run(
        ["--pty", pty, "-n", "1", sys.executable, "-c", "import os; print([os.isatty(fd) for fd in (0, 1, 2)])"]
    )
    assert ended.out == f"[False, {terminal}, False]\n".encode()


@pytest.mark.parametrize(("pty", "terminal"), [("auto", True), ("yes", True), ("no", False)])
def test_pty_of_a_program(run, pty, terminal):
    ended = run(["--pty", pty, "-n", "1", "sh", "-c", "test -t 1 && echo yes || echo no"])
    assert ended.out == (b"yes\n" if terminal else b"no\n")


def test_a_pty_changes_no_byte(run):
    """Neither newlines nor control characters, nor ^C and ^D."""
    ended = run(["--pty", "yes", "-n", "1", "printf", r"a\r\n\003\004\032\034 \011\177b\n"])
    assert ended.out == b"a\r\n\x03\x04\x1a\x1c \t\x7fb\n"


@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_the_memory_of_output_is_used_again(run, where):
    """Of launcher and agents: to give it back at once costs a page fault for each 4 KiB that ranks print."""

    def faults(blocks: int) -> int:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        write = f"import os\nfor _ in range({blocks}):\n    os.write(1, bytes(65536))"
        assert len(run([*where, "-n", "1", sys.executable, "-c", write], bound=60).out) == blocks * 65536
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    more = 800
    assert faults(80 + more) - faults(80) < more * 4  # of 16 pages each


# --- back-pressure


@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_a_slow_reader_slows_the_rank(start, where):
    """50 MB into a pipe that nobody reads for a while: no buffer grows, and nothing is lost."""
    size = 50_000_000
    job = start([*where, "-n", "1", *program("bulk", size, 1)])
    job.expect(b"\0")

    def bulk() -> list[int]:
        return [pid for pid, line in job.left().items() if f"bulk {size}" in line and "-m mslaunch" not in line]

    wait_until(lambda: len(bulk()) == 1 and _blocked(bulk()[0]))
    for pid, line in job.left().items():
        assert memory_of(pid) < 60, line
    ended = job.end(60)
    assert (ended.code, len(ended.out)) == (0, size)


def _blocked(pid: int) -> bool:
    """Whether the process writes nothing while the test watches it."""
    before = Path(f"/proc/{pid}/io").read_text()
    time.sleep(0.2)
    return Path(f"/proc/{pid}/io").read_text() == before


@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_head_ends_well(start, where, tmp_path):
    """The reader goes away after a line; the job goes on to its end, and its logs are whole."""
    job = start([*where, "-n", "2", "--oversubscribe", "--output-filename", "logs", *program("spew", 3000)])
    job.expect(b"\n")
    job.process.stdout.close()
    job.process.stdout = None
    ended = job.end()
    assert ended.code == 0
    assert ended.err.count("the reader of standard output is gone") == 1
    for rank in range(2):
        assert (tmp_path / "logs" / "1" / f"rank.{rank}" / "stdout").read_text().count("\n") == 3000


@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_a_reader_may_close_while_ranks_wait_for_it(start, where):
    """As `| head` does with a program that prints much: the job must not wait for ever."""
    size = 50_000_000
    job = start([*where, "-n", "1", *program("bulk", size, 1)])
    job.expect(b"\0")
    wait_until(
        lambda: any(_blocked(pid) for pid, line in job.left().items() if "bulk" in line and "-m mslaunch" not in line)
    )
    job.process.stdout.close()
    job.process.stdout = None
    ended = job.end()
    assert ended.code == 1
    assert ended.err.count("the reader of standard output is gone") == 1
    assert "mslaunch: nobody reads standard output any more, after" in ended.err


@pytest.mark.parametrize(
    "where", [["-n", "2", "--oversubscribe"], ["-n", "2", *through_rsh("alpha", "beta")]], ids=["local", "remote"]
)
@pytest.mark.parametrize("more", [[], ["--tag-output"], ["--xml"], ["--restart", "group"]], ids=" ".join)
def test_a_job_whose_output_is_neither_read_nor_kept_is_ended(start, where, more):
    """As programs are by SIGPIPE; else `yes | head` would go on for ever."""
    job = start([*where, *more, "yes"])
    job.expect(b"y")
    job.process.stdout.close()
    job.process.stdout = None
    ended = job.end()
    assert ended.code == 1
    assert "mslaunch: nobody reads standard output any more, after" in ended.err and "--output-filename" in ended.err


# --- targets that cannot be had


def test_a_directory_below_a_file(run, tmp_path):
    (tmp_path / "file").touch()
    ended = run(["-n", "1", "--output-filename", "file/logs", "touch", "started"])
    assert ended.code == 1
    assert "--output-filename" in ended.err and "file" in ended.err
    assert not (tmp_path / "started").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a link that belongs to another user")
def test_a_directory_that_is_a_link_of_another_user(run, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs" / "1").symlink_to(tmp_path / "elsewhere")
    os.lchown(tmp_path / "logs" / "1", 65534, 65534)
    ended = run(["-n", "1", "--output-filename", "logs", "touch", "started"])
    assert ended.code == 1
    assert "not a directory of yours" in ended.err
    assert os.listdir(tmp_path / "elsewhere") == []
    assert not (tmp_path / "started").exists()


def test_a_disk_that_is_full(start, tmp_path):
    """A limit on the size of files stands for it: the write fails in the same way."""
    limit = 100_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    job = start(["-n", "1", "--output-filename", "logs", *program("spew", 10_000)], preexec_fn=limited)
    ended = job.end()
    log = tmp_path / "logs" / "1" / "rank.0" / "stdout"
    assert ended.code == 1
    assert log.stat().st_size == limit
    assert ended.err.count(str(Path("logs", "1", "rank.0", "stdout"))) == 1, ended.err
    assert "not all of their output could be kept" in ended.err
    assert ended.out.count(b"\n") == 10_000


def test_standard_output_on_a_full_device(start):
    with open("/dev/full", "wb") as full:
        ended = start(["-n", "2", "--oversubscribe", "sh", "-c", "echo lost"], stdout=full).end()
    assert ended.code == 1
    assert ended.err.count("standard output: No space left on device") == 1
    assert "not all of their output could be kept" in ended.err


def test_an_unread_closing_block_does_not_delay_the_end(start):
    """Standard error is a pipe that is full, and stays so: the job has ended, and the command ends too."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(writer, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(writer, True)
    job = start(["-n", "1", "sh", "-c", "exit 3"], stderr=writer)
    assert job.end(20).code == 3
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("where", [[], through_rsh("alpha")], ids=["local", "remote"])
def test_closed_descriptors(closed, where, tmp_path):
    """As a daemon may start the command."""
    words = [*COMMAND, *where, "-n", "1", "--output-filename", "logs", "sh", "-c", "cat; echo out; echo err >&2"]
    ended = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *words],
        env=environment(), cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "logs" / "1" / "rank.0" / "stdout").read_text() == "out\n"
    assert (tmp_path / "logs" / "1" / "rank.0" / "stderr").read_text() == "err\n"
    assert ended.stdout == (b"" if " >&-" in f" {closed}" else b"out\n")


def test_descriptors_of_the_caller_stay_with_it(start, tmp_path):
    """A pipe that the caller had open ends with the caller, not with the job."""
    reader, writer = os.pipe()
    job = start(["-n", "1", *program("wait", tmp_path / "go")], pass_fds=[writer])
    os.close(writer)
    job.expect(b"ready")
    holders = [pid for pid in job.left() if _holds(pid, reader)]
    os.close(reader)
    (tmp_path / "go").touch()
    assert job.end().code == 0
    assert holders == [job.pid]


def _holds(pid: int, pipe: int) -> bool:
    inode = os.fstat(pipe).st_ino
    return any(os.stat(f"/proc/{pid}/fd/{fd}").st_ino == inode for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2)


# --- colours of messages


def _on_terminal(words, tmp_path, **variables) -> bytes:
    """What the command writes to a terminal that is its standard output and standard error."""
    main, other = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
        env=environment(**variables),
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(other)
    seen = b""
    try:
        while select.select([main], [], [], 30)[0]:
            seen += os.read(main, 1 << 16)
    except OSError:  # EIO: nobody has the other side any more
        pass
    finally:
        os.close(main)
        process.wait(30)
    return seen.replace(b"\r\n", b"\n")


#: rank 1 fails once rank 0 has printed, which then waits to be ended: what is shown depends on no race of the two
WORDS = 'echo "words of $RANK"; if [ $RANK = 0 ]; then : > said; exec sleep 1000; fi; '
WORDS += "until [ -e said ]; do sleep 0.01; done; rm said; exit 1"
FAILING = ["-n", "2", "--oversubscribe", "--pty", "no", "sh", "-c", WORDS]


def test_messages_have_colors_on_a_terminal_and_output_of_ranks_has_none(tmp_path):
    seen = _on_terminal(FAILING, tmp_path, TERM="xterm")
    assert b"\x1b[1;31mmslaunch:\x1b[0m\x1b[31m \x1b[1mrank 1\x1b[0;31m ended with exit code 1" in seen
    assert sorted(line for line in seen.splitlines() if b"words" in line) == [b"words of 0", b"words of 1"]
    refused = _on_terminal(["-n", "four", "true"], tmp_path, TERM="xterm")
    assert refused.startswith(b"\x1b[1;31mmslaunch:\x1b[0m\x1b[31m -n: ")


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ([], {"TERM": "dumb"}),
        ([], {}),
        ([], {"TERM": "xterm", "NO_COLOR": "1"}),
        (["--color", "no"], {"TERM": "xterm", "FORCE_COLOR": "1"}),
    ],
)
def test_a_terminal_may_be_left_without_colors(tmp_path, words, variables):
    for line in ([*words, *FAILING], [*words, "-n", "four", "true"]):
        seen = _on_terminal(line, tmp_path, **variables)
        assert b"mslaunch: " in seen and b"\x1b" not in seen


def test_colors_in_a_pipe_are_for_those_who_ask(run):
    plain = run(FAILING).err
    assert "\x1b" not in plain
    for ended in (run(["--color", "yes", *FAILING]), run(FAILING, env={"FORCE_COLOR": "1"})):
        assert "\x1b[1mrank 1" in ended.err and ended.code == 1 and b"\x1b" not in ended.out
        without = re.sub(r"\x1b\[[0-9;]*m", "", ended.err)
        assert re.sub(r"\d+\.\d s", "", without) == re.sub(r"\d+\.\d s", "", plain)
