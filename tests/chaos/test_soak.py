"""scripts/soak, its short form; and that it sees what it is there to see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from soak_lib import streams  # noqa: E402
from soak_lib.counted import LINE, Lines, LogReader, TerminalReader  # noqa: E402
from soak_lib.traces import Traces  # noqa: E402

HOSTS = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


def line(rank, number):
    return f"{rank} {number} {'.' * LINE}"[: LINE - 1].encode()


@pytest.mark.parametrize("_", [pytest.param("here", marks=HOSTS)])
def test_the_short_form(_, tmp_path):
    record = tmp_path / "record"
    words = ["--launches", "20", "--minutes", "0.07", "--detached", "2", "--record", str(record)]
    command = [sys.executable, str(ROOT / "scripts" / "soak"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    launches, stream, detached = map(json.loads, record.read_text().splitlines())
    assert (launches["launches"], launches["by_api"], detached["jobs"]) == (20, 5, 2)
    assert stream["bytes_in_logs"] == stream["bytes_on_terminal"] > 16 * 50_000
    assert set(stream["memory"]) >= {"launcher on head", "agent on n01", "guard on n04"}


def test_lines_that_are_missing_doubled_or_torn_are_seen():
    def wrong(*given):
        lines = Lines(3)
        for each in given:
            lines.take(each)
        return lines.wrong

    assert wrong(line(3, 0), line(3, 1), line(3, 2)) == []
    for given in ([line(3, 0), line(3, 2)], [line(3, 0), line(3, 0)], [line(3, 0), line(3, 1)[:-1]], [line(2, 0)]):
        assert len(wrong(*given)) == 1, given


def test_a_log_that_grows_is_followed(tmp_path):
    path = tmp_path / "stdout"
    tagged = [b"[1,3]<stdout>:" + line(3, number) + b"\n" for number in range(3)]
    path.write_bytes(tagged[0] + tagged[1][:500])
    log = LogReader(path, 3)
    log.read()
    assert log.lines.count == 1
    with open(path, "ab") as file:
        file.write(tagged[1][500:] + tagged[2][:10])
    log.read()
    log.close()
    assert log.lines.count == 2 and "its log ends in" in log.lines.wrong[0]


def test_a_terminal_is_divided_by_its_tags():
    reader = TerminalReader(2)
    data = b"".join(b"[1,%d]<stdout>:%s\r\n" % (rank, line(rank, number)) for number in range(2) for rank in range(2))
    for at in range(0, len(data), 700):
        reader.take(data[at : at + 700])
    assert [lines.count for lines in reader.lines] == [2, 2]
    assert reader.wrong == reader.lines[0].wrong == []
    reader.take(b"rubbish\n")
    assert len(reader.wrong) == 1


def test_what_was_left_is_named():
    before = Traces((), 10, ("head: /tmp/known",), 4)
    assert before.differences(before) == []
    after = Traces(("head: 7 S sleep: sleep",), 12, ("head: /tmp/known", "n01: /tmp/new"), 4)
    assert after.differences(before) == [
        "left: head: 7 S sleep: sleep", "left: n01: /tmp/new", "2 descriptors more than before"
    ]  # fmt: skip


def test_a_slope_is_that_of_the_line_through_the_samples():
    assert streams._slope([(0.0, 100), (10.0, 200), (20.0, 300)]) == pytest.approx(10.0)
    assert streams._slope([(0.0, 100)]) == 0.0
