"""scripts/chaos: a part of its matrix that changes with the day, and its own parts: cells, the sample, the table."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "chaos"
sys.path.insert(0, str(ROOT / "scripts"))

from chaos_lib import cells, checks, expectations, table  # noqa: E402
from chaos_lib.cells import Cell  # noqa: E402

from mslaunch.launcher.agents import leases  # noqa: E402

BUDGET = 75  #: seconds after which no cell is begun
SAMPLE = 60
HOSTS = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


def chaos(*words, bound=30):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=bound, check=False
    )


# --- real hosts


@pytest.mark.limit(240)
@pytest.mark.parametrize("_", [pytest.param("today", marks=HOSTS)])
def test_a_part_of_the_matrix_that_changes_with_the_day(_, tmp_path):
    seed = datetime.date.today().isoformat()
    words = ["--known", "--short", "--sample", SAMPLE, "--seed", seed, "--seconds", BUDGET, "--jobs", 2]
    done = chaos(*words, bound=220)
    again = f"scripts/chaos {' '.join(map(str, words))}"
    print(f"again: {again}\n{done.stdout}")
    assert done.returncode == 0, f"{again}\n{done.stdout}{done.stderr}"
    assert len(re.findall("^right ", done.stdout, re.M)) >= 10


@pytest.mark.parametrize("_", [pytest.param("here", marks=HOSTS)])
def test_a_wrong_cell_is_red(_, tmp_path):
    """The checks can fail: a rank that is killed is not what is expected of its child."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    code += "from chaos_lib.cells import Cell; from chaos_lib.trial import Trial\n"
    code += "from chaos_lib.expectations import expected\n"
    code += "trial = Trial(Cell('rank', 'running', 'KILL'), Path(sys.argv[2]))\n"
    code += "trial.expected = expected(Cell('child', 'running', 'KILL'))\n"
    code += "print('\\n'.join(trial.run().wrong))\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "scripts"), str(tmp_path / "c")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "exit code 137, not 0" in done.stdout, done.stdout + done.stderr


# --- cells


def test_every_cell_is_named_once_and_can_be_parsed():
    known = cells.all_cells()
    assert len(known) == len(set(known)) > 600
    assert [Cell.parse(str(cell)) for cell in known] == known
    for text in ("agent", "agent/running", "nobody/running/KILL", "agent/never/KILL", "agent/running/HUG"):
        with pytest.raises(ValueError, match="is no cell"):
            Cell.parse(text)


def test_a_sample_is_that_of_its_seed():
    known = cells.all_cells()
    assert cells.sample(known, 20, "monday") == cells.sample(known, 20, "monday")
    assert cells.sample(known, 20, "monday") != cells.sample(known, 20, "tuesday")
    assert cells.sample(known[:3], 20, "monday") != [] and len(cells.sample(known[:3], 20, "monday")) == 3


def test_cells_are_chosen_by_axis():
    assert cells.chosen(who=["rank"], when=["running"], what=["KILL"]) == [Cell("rank", "running", "KILL")]
    assert all(cells.no_sense(cell) == "" for cell in cells.all_cells())
    assert cells.no_sense(Cell("rank", "connecting", "KILL")) == "no rank runs yet"


def test_every_cell_has_an_expectation_that_can_fail():
    for cell in cells.all_cells():
        rule = expectations.expected(cell)
        assert rule.codes and rule.bound <= 100 and rule.rest <= 15, cell
        assert rule.cause or rule.fate != expectations.ENDS, cell
        re.compile(rule.cause)


def test_only_a_host_that_starts_ranks_may_be_silent_for_long():
    """And not an agent that is stopped there, which its guard sees."""
    assert expectations.BUSY_LEASES == leases.BUSY_LEASES
    more = (leases.BUSY_LEASES - 1) * expectations.LEASE
    for who, what, longer in (
        ("sshd", "STOP", more),
        ("both", "STOP", more),
        ("host", "cut", more),
        ("head", "cut", more),
        ("agent", "STOP", 0),
    ):
        bounds = [expectations.expected(Cell(who, when, what)).bound for when in ("running", "starting")]
        assert bounds[1] - bounds[0] == longer, who


def test_a_wrong_word_is_refused():
    for words in (["--who", "nobody"], ["agent/running/HUG"], ["--write", "page"]):
        done = chaos(*words)
        assert done.returncode == 2 and "Traceback" not in done.stderr


def test_the_list_of_cells():
    done = chaos("--who", "rank", "--what", "KILL", "--list")
    assert done.stdout.split()[:2] == ["rank/starting/KILL", "rank/running/KILL"]


# --- checks


END = "mslaunch: rank 1 was ended by SIGKILL (killed) on n02, after 1.0 s\n"


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (137, END, []),
        (1, END, ["exit code 1, not 137"]),
        (137, END + END, ["the cause is named 2 times", "2 failures are reported"]),
        (137, "", ["the cause is named 0 times", "it failed without a word"]),
        (137, END + "Traceback (most recent call last):", ["a traceback"]),
    ],
)
def test_the_end_of_a_cell(code, said, wrong):
    found = checks.of_end(expectations.expected(Cell("rank", "running", "KILL")), code, said)
    assert len(found) == len(wrong)
    assert all(text.startswith(start) for text, start in zip(found, wrong))


# --- the record and the table


def result(cell, **how):
    return {"cell": cell, "wrong": [], "error": "", "commit": "abc", "date": 86400.0 * 20000, **how}


def test_the_table_of_a_record(tmp_path):
    record, page = tmp_path / "record", tmp_path / "page.md"
    left = "left after 2 s on n02: 4711 S chaos-grand: /usr/bin/python3 rank.py"
    rows = [
        result("agent/running/KILL", wrong=["old"]),
        result("agent/running/KILL"),
        result("guard/running/KILL", wrong=[left]),
        result("guard/fence/KILL", wrong=[left.replace("4711", "4712")]),
        result("rank/running/TERM", error="it broke\nand more"),
    ]
    record.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    assert chaos("--record", record, "--write", page).returncode == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "\nold\n" not in text
    assert "4 tried (2024-10-04, commit abc): 1 right, 3 wrong." in text
    agent = text[text.index("(`agent`)") :]
    assert re.search(r"^\| running \| \? \| ✓ \|", agent, re.M), agent
    assert text.count("✗ 1") == 2 and text.count("left after 2 s on n02: chaos-grand") == 1
    assert "not tried: it broke" in text and "no rank runs yet" in text
    assert chaos("--record", record, "--write", record).returncode == 2  # a page without the marks
