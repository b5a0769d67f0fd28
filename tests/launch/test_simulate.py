"""scripts/simulate: played hosts do what real ones do, the table has its form, and the judgement can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from simulate_lib import SimulateError, command, growth, table  # noqa: E402
from simulate_lib.measure import Step  # noqa: E402
from simulate_lib.played_agent import PORT, PlayedAgent, Traits, address_of, value_of  # noqa: E402

from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, World  # noqa: E402
from mslaunch.datamodel.node_report import ExitStatus  # noqa: E402
from mslaunch.errors import WireError  # noqa: E402
from mslaunch.protocol import codec, control, frames  # noqa: E402
from mslaunch.protocol.mpi import Gathering, Released, pack_with_blobs, unpack_with_blobs  # noqa: E402

BOUND = 100  # seconds for what takes a few
CHECKING = Traits(check_each=1)


def simulate(place: Path, *words: str, limit: int = 0) -> subprocess.CompletedProcess[str]:
    """`limit`: its limit of open files."""
    line = [sys.executable, str(ROOT / "scripts" / "simulate"), *words]
    if limit:
        line = ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', *line]
    environ = {**os.environ, "TMPDIR": str(place)}
    return subprocess.run(line, cwd=place, env=environ, capture_output=True, text=True, timeout=BOUND, check=False)


def run(place: Path, name: str, nodes: int, limit: int = 0) -> dict[str, Step]:
    done = simulate(place, "--one", name, str(nodes), limit=limit)
    assert done.returncode == 0, done.stderr
    return {row[0]: Step(*row) for row in json.loads(done.stdout)}


# --- whole runs, small


def test_a_job_goes_through_all_steps(tmp_path: Path) -> None:
    steps = run(tmp_path, "launch", 50)
    assert [*steps] == [
        "hostfile to allocation, of the launch",
        "start: links, HELLO, map",
        "start: addresses, plans, STARTED",
        "fence",
        "output",
        "end",
        "all of the launch",
    ]
    assert all(step.seconds > 0 and step.cpu > 0 for step in steps.values())
    assert (tmp_path / "stdout").read_bytes().count(b"\n") == 500
    tagged = b"[1,49]<stdout>:rank 49 prints line 9"
    assert any(line.startswith(tagged) for line in (tmp_path / "stdout").read_bytes().splitlines())


def test_more_hosts_than_descriptors_are_played_on_one_socket(tmp_path: Path) -> None:
    steps = run(tmp_path, "launch", 50, limit=60)
    assert steps["start: links, HELLO, map"].note == "links without descriptors"
    assert (tmp_path / "stdout").read_bytes().count(b"\n") == 500


@pytest.mark.parametrize("limit", [0, 60])
@pytest.mark.parametrize(
    ("name", "step"),
    [("dies", "a host dies"), ("bad-line", "refusal: a bad line"), ("refusing", "refusal: every tenth host refuses")],
)
def test_what_goes_wrong_ends_the_launch_as_it_should(tmp_path: Path, name: str, step: str, limit: int) -> None:
    assert step in run(tmp_path, name, 50, limit)


def test_hosts_that_answer_late_are_waited_for(tmp_path: Path) -> None:
    assert run(tmp_path, "late", 10)["start: every tenth host answers 2 s late"].seconds >= 2


def test_a_host_that_never_answers_is_named_in_a_few_lines(tmp_path: Path) -> None:
    step = run(tmp_path, "silent", 10)["refusal: a host never answers"]
    assert step.seconds >= 3
    assert step.note.startswith("3 lines")


def test_results_are_kept_and_judged(tmp_path: Path) -> None:
    done = simulate(tmp_path, "10", "20", "--only", "plan", "--results", "kept")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("No step grows faster than N log N.\n")
    assert len(json.loads((tmp_path / "kept").read_text())) == 12
    again = simulate(tmp_path, "--results", "kept", "--again")
    assert (again.returncode, again.stdout) == (0, "No step grows faster than N log N.\n")
    slow = [Step("plans", 100, 1.0, 1.0, 0), Step("plans", 1000, 100.0, 100.0, 0)]
    (tmp_path / "kept").write_text(json.dumps(slow))
    again = simulate(tmp_path, "--results", "kept", "--again")
    assert again.returncode == 1
    assert "GROWS TOO FAST: plans: from 100 to 1,000 hosts CPU time grows 100.0 times" in again.stdout


# --- growth


def steps_of(power: float, name: str = "plans") -> list[Step]:
    return [Step(name, nodes, 1e-4 * nodes**power, 1e-4 * nodes**power, 0) for nodes in (10, 100, 1000, 10_000)]


def test_what_grows_with_the_square_is_found_and_what_grows_with_n_is_not() -> None:
    assert growth.too_fast(steps_of(1.0)) == []
    found = growth.too_fast(steps_of(2.0, "end"))
    assert {(one.name, one.before, one.after) for one in found} >= {("end", 1000, 10_000)}


def test_memory_is_judged_too() -> None:
    steps = [Step("plans", nodes, 0.1, 0.1, nodes * nodes * 100) for nodes in (1000, 10_000)]
    assert [one.what for one in growth.too_fast(steps)] == ["memory"]


def test_a_step_that_costs_next_to_nothing_is_not_judged() -> None:
    assert growth.too_fast([Step("end", 10, 1.0, 0.0001, 10), Step("end", 100, 1.0, 0.015, 4 << 20)]) == []


def test_slow_or_large_planning_is_a_failure() -> None:
    """By CPU time: on a busy machine more time passes."""
    notes = command._judge([Step("all of the plan", 100_000, 21.0, 20.5, 5 << 30)])
    assert [note.split(":")[0] for note in notes] == ["TOO SLOW", "TOO LARGE"]
    assert command._judge([Step("all of the plan", 100_000, 30.0, 19.0, 3 << 30)]) == []


# --- the table


def test_the_table_has_a_column_for_each_number_of_hosts(tmp_path: Path) -> None:
    steps = [Step("plans", 10, 0.5, 0.25, 1000), Step("plans", 1000, 50.0, 25.0, 10_000), Step("end", 10, 1.0, 1.0, 0)]
    lines = table.render(steps, ["A note."]).splitlines()
    assert lines[:4] == [
        "| CPU time of the launcher, and µs a host | 10 hosts | 1,000 hosts |",
        "|---|---|---|",
        "| plans | 250 ms, 25,000 | 25.0 s, 25,000 |",
        "| end | 1.0 s, 100,000 | – |",
    ]
    assert lines[-1] == "A note."
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write(page, steps, [])
    text = page.read_text()
    assert "old" not in text and "| plans |" in text and text.endswith(f"{table.END}\nafter\n")


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SimulateError):
        table.write(page, [], [])
    assert page.read_text() == "nothing\n"


def test_the_plot_is_an_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from simulate_lib.plot import plot

    plot(tmp_path / "a.svg", [*steps_of(1.0), *steps_of(1.5, "end")])
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


# --- the agent that is played


class Heard:
    """An agent whose launcher is the test."""

    def __init__(self, index: int = 3, traits: Traits = CHECKING) -> None:
        self.frames: list[frames.Frame] = []
        self._decoder = frames.Decoder(frames.UP, magic=True)
        self.agent = PlayedAgent(index, 5, traits, lambda data: self.frames.extend(self._decoder.feed(data)))

    def say(self, kind: int, payload: bytes = b"") -> list[frames.Frame]:
        """What it answers."""
        self.agent.feed(frames.encode(kind, payload=payload))
        return self.heard()

    def heard(self) -> list[frames.Frame]:
        heard, self.frames = self.frames, []
        return heard

    def launch(self) -> list[frames.Frame]:
        self.agent.feed(b"12345")
        self.heard()
        world = World("77-x", hosts=("a", "b"), ranks=((0, 1), (2, 3)), here=1)
        ranks = tuple(RankPlan(rank, 0, (), ()) for rank in (2, 3))
        plan = NodePlan(ranks, (AppPlan(("true",), "/"),), (), world=world)
        return self.say(frames.LAUNCH, control.pack_plan(plan))


def test_it_says_hello_when_the_bootstrap_is_here() -> None:
    heard = Heard()
    heard.agent.feed(b"1234")
    assert heard.heard() == []
    heard.agent.feed(b"5" + frames.encode(frames.DESCRIBE))
    hello, topology = heard.heard()
    assert control.unpack_record(control.Hello, hello.payload).addresses == (address_of(3),)
    assert len(control.unpack_topology(topology.payload).cpus) == 8


def test_it_holds_ports_and_reaches_addresses() -> None:
    heard = Heard()
    heard.agent.feed(b"12345")
    heard.heard()
    (frame,) = heard.say(frames.RESERVE, b"0 0")
    assert control.unpack_record(control.Reserved, frame.payload).ports == (PORT, PORT + 1)
    probe = control.pack_record(control.Probe(("10.0.0.1",), 5, "token"))
    (frame,) = heard.say(frames.PROBE, probe)
    assert control.unpack_record(control.Reached, frame.payload).addresses == ("10.0.0.1",)


def test_its_ranks_start_fence_print_and_end() -> None:
    heard = Heard(traits=Traits(lines=2, check_each=1))
    assert [(frame.kind, frame.rank) for frame in heard.launch()] == [(frames.STARTED, 2), (frames.STARTED, 3)]
    heard.agent.fence()
    joined, _, gather = heard.heard()
    assert joined.kind == frames.JOINED
    part = unpack_with_blobs(Gathering, gather.payload)
    assert (part.op, part.members) == ("pmi fence", ("77-x",))
    first = codec.pack({"bc-0": [value_of(0)]})
    heard.say(frames.RELEASE, pack_with_blobs(Released(part.op, part.members, (first, *part.blobs))))
    assert heard.agent.found == 1
    heard.agent.print()
    assert [frame.payload.count(b"\n") for frame in heard.heard()] == [2, 2]
    heard.agent.end()
    said = heard.heard()
    assert [frame.kind for frame in said[:4]] == [frames.LEFT, frames.STDOUT, frames.STDERR, frames.EXIT]
    assert control.unpack_record(ExitStatus, said[3].payload) == ExitStatus(code=0)


def test_a_fence_that_brings_the_wrong_value_is_noticed() -> None:
    heard = Heard()
    heard.launch()
    wrong = codec.pack({"bc-0": ["another"]})
    with pytest.raises(WireError, match="neighbour of rank 2"):
        heard.say(frames.RELEASE, pack_with_blobs(Released("pmi fence", ("77-x",), (wrong,))))


def test_a_frame_that_it_has_no_answer_to_is_an_error() -> None:
    heard = Heard()
    heard.agent.feed(b"12345")
    with pytest.raises(WireError):
        heard.say(frames.TRACE)
