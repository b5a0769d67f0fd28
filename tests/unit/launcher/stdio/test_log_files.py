"""Log files: layouts, patterns, files that are not ours, and disks that are full."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_output import OutputLab, files, places_of

from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError, UsageError
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.log_files import RankLogs, of_attempt
from mslaunch.protocol.frames import STDERR, STDOUT

FIRST_SERVER = SERVICE - 1


MADE: list[RankLogs] = []


def logs_of(policy: OutputPolicy, ranks: int = 1) -> RankLogs:
    MADE.append(RankLogs(policy, places_of(ranks), pytest.fail))
    return MADE[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """What a test leaves open is closed with it."""
    yield
    while MADE:
        MADE.pop().close()


@pytest.mark.parametrize(
    ("ranks", "first", "last"),
    [(1, "rank.0", "rank.0"), (9, "rank.0", "rank.8"), (10, "rank.00", "rank.09"), (101, "rank.000", "rank.100")],
)
def test_the_layout_of_open_mpi(tmp_path: Path, ranks: int, first: str, last: str) -> None:
    logs = logs_of(OutputPolicy(str(tmp_path / "out")), ranks)
    names = sorted(os.listdir(tmp_path / "out" / "1"))
    assert (names[0], names[-1], len(names)) == (first, last, ranks)
    assert sorted(os.listdir(tmp_path / "out" / "1" / last)) == ["stderr", "stdout"]
    assert logs.path(STDERR, ranks - 1) == str(tmp_path / "out" / "1" / last / "stderr")
    assert stat.S_IMODE((tmp_path / "out" / "1" / last / "stdout").stat().st_mode) == 0o644
    assert logs.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OutputPolicy("d", jobid=False), ["d/rank.0/stderr", "d/rank.0/stdout", "d/rank.1/stderr", "d/rank.1/stdout"]),
        (OutputPolicy("a%r", merge=True), ["a%r/1/rank.0/stdout", "a%r/1/rank.1/stdout"]),
        (OutputPolicy(file="d/f%"), ["d/f%.0.err", "d/f%.0.out", "d/f%.1.err", "d/f%.1.out"]),
        (OutputPolicy(file="f", merge=True), ["f.0.out", "f.1.out"]),
        (OutputPolicy(outfile="o.%r"), ["o.0", "o.1"]),
        (OutputPolicy(outfile="new/%h/%r-%p-%g-%%"), ["new/alpha/0-0-0-%", "new/beta/1-1-0-%"]),
        (OutputPolicy(outfile="all", errfile="e/%p.err"), ["all", "e/0.err", "e/1.err"]),
        (OutputPolicy(outfile="log/worker_%r.log", merge=True), ["log/worker_0.log", "log/worker_1.log"]),
        (OutputPolicy("d", merge=True, outfile="o.%r"), ["d/1/rank.0/stdout", "d/1/rank.1/stdout", "o.0", "o.1"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("absolute", [False, True])
def test_names_of_files_in_each_layout(
    policy: OutputPolicy, expected: list[str], absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if absolute:
        named = ("directory", "file", "outfile", "errfile")
        given = {name: str(tmp_path / value) for name in named if (value := getattr(policy, name)) is not None}
        policy = policy._replace(**given)
    assert logs_of(policy, 2).close()
    assert list(files(tmp_path)) == expected


def test_padding_of_a_file_name_is_that_of_the_directories(tmp_path: Path) -> None:
    logs_of(OutputPolicy(file=str(tmp_path / "f"), merge=True), 10).close()
    assert min(files(tmp_path)) == "f.00.out"


def test_a_pattern_at_the_root() -> None:
    assert logs_of(OutputPolicy(outfile="/dev/null", errfile="/dev/null"), 2).close()


@pytest.mark.parametrize("text", ["%q", "a%", "%", "%R", "%d/%n"])
def test_a_letter_that_means_nothing(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the pattern") as caught:
        logs_of(OutputPolicy(errfile=str(tmp_path / text)))
    assert text in caught.value.where and "%r" in caught.value.todo
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OutputPolicy("d"), {"d/1/scheduler/stderr"}),
        (OutputPolicy(outfile="w_%r.log", errfile="%h.%r.err"), {"alpha.scheduler.err"}),
        (OutputPolicy(outfile="all", errfile="all"), set()),
        (OutputPolicy(outfile="%h", errfile="%h"), set()),
    ],
    ids=["open mpi", "pattern", "a file of all ranks", "a file of each host"],
)
def test_the_scheduler_has_files_once_it_prints(
    policy: OutputPolicy, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = logs_of(policy, 2)
    before = set(files(tmp_path))
    for _ in range(2):
        logs.write(STDERR, SERVICE, b"words")
    assert set(files(tmp_path)) - before == expected
    assert all(data == (b"wordswords" if name in expected else b"") for name, data in files(tmp_path).items())


def test_files_of_an_earlier_launch_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "o.0").write_text("a longer text of a run before")
    logs = logs_of(OutputPolicy(outfile=str(tmp_path / "o.%r")))
    logs.write(STDOUT, 0, b"new")
    assert files(tmp_path) == {"o.0": b"new"}


# --- services, and names as msrun's

WORKERS = OutputPolicy(outfile="logs/worker_%r.log", merge=True, keep=True)


@pytest.mark.parametrize(
    ("policy", "scheduler", "server"),
    [
        (OutputPolicy("d"), "d/1/scheduler/stderr", "d/1/server.1/stderr"),
        (WORKERS, "logs/scheduler.log", "logs/server_1.log"),
        (WORKERS._replace(outfile="w_%a_%h_x_%r.log"), "scheduler.log", "server_1.log"),
        (WORKERS._replace(outfile="%h/%r"), "alpha/scheduler", "alpha/server_1"),
        (WORKERS._replace(outfile="100%%/w%r%%.log"), "100%/scheduler%.log", "100%/server_1%.log"),
        (WORKERS._replace(outfile="%r%%r"), "scheduler%r", "server.1%r"),
        (OutputPolicy(outfile="o_%r.log", errfile="e_%r.log"), "e_scheduler.log", "e_server.1.log"),
    ],
    ids=str,
)
def test_files_of_services_exist_once_they_run(
    policy: OutputPolicy, scheduler: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = logs_of(policy, 2)
    for number, name in ((SERVICE, scheduler), (SERVICE - 2, server)):
        assert name not in files(tmp_path)
        logs.add([number])
        assert files(tmp_path)[name] == b""
        logs.write(STDERR, number, b"words")
        assert files(tmp_path)[name] == b"words" and logs.path(STDERR, number) in (None, name)


def test_a_directory_that_is_made_for_workers_is_their_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for policy, mode in ((WORKERS, 0o700), (WORKERS._replace(merge=False, outfile="shared/o.%r"), 0o755)):
        logs_of(policy)
        assert policy.outfile and stat.S_IMODE(Path(policy.outfile).parent.stat().st_mode) == mode
    (tmp_path / "mine").mkdir(0o755)
    logs_of(WORKERS._replace(outfile="mine/worker_%r.log"))
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755, "who made it has chosen"


def test_ranks_of_other_launchers_count_in_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for policy, names in (
        (WORKERS, {"logs/worker_9.log", "logs/worker_10.log"}),
        (OutputPolicy("d", merge=True), {"d/1/rank.09/stdout", "d/1/rank.10/stdout"}),
    ):
        before = set(files(tmp_path))
        RankLogs(policy, PatternValues([("alpha", 0)] * 2, first=9), pytest.fail).write(STDOUT, 10, b"words")
        assert set(files(tmp_path)) - before == names
        assert files(tmp_path)[max(names, key=lambda name: "10" in name)] == b"words"


# --- files of an earlier launch


def launch(policy: OutputPolicy, words: dict[int, bytes], attempt: int = 1, ranks: int = 2) -> None:
    """One launch, whose ranks and services print; any notice fails the test."""
    logs = RankLogs(policy, places_of(ranks), pytest.fail, attempt)
    for number, data in words.items():
        if number < 0:
            logs.add([number])
        logs.write(STDOUT, number, data)
    assert logs.close()


def test_files_of_earlier_launches_are_kept_under_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launch(WORKERS, {0: b"first", SERVICE: b"its scheduler"})
    launch(WORKERS, {1: b"second"})
    launch(WORKERS, {})
    launch(WORKERS, {0: b"last"})
    assert files(tmp_path / "logs") == {
        "worker_0.log.1": b"first", "worker_1.log.1": b"", "scheduler.log.1": b"its scheduler",
        "worker_0.log.2": b"", "worker_1.log.2": b"second",
        "worker_0.log": b"last", "worker_1.log": b"",
    }  # fmt: skip


def test_a_number_is_free_only_if_no_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    policy = OutputPolicy("d", keep=True, merge=True)
    launch(policy, {0: b"x"})
    (tmp_path / "d/1/rank.1/stdout.1").write_text("not ours to replace")
    (tmp_path / "d/1/rank.0/stdout.3").write_text("nor this")
    (tmp_path / "d/1/rank.0/stdout.x").write_text("no number")
    launch(policy, {})
    found = files(tmp_path / "d/1")
    assert found["rank.0/stdout.2"] == b"x" and found["rank.1/stdout.2"] == b""
    assert found["rank.1/stdout.1"] == b"not ours to replace" and found["rank.0/stdout.3"] == b"nor this"


def test_a_kept_file_never_gets_the_name_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o").write_text("x")
    launch(OutputPolicy(outfile="o.%r", errfile="o", keep=True), {0: b"zero", 1: b"one"})
    assert files(tmp_path) == {"o": b"", "o.0": b"zero", "o.1": b"one", "o.2": b"x"}


def test_nothing_is_renamed_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        launch(WORKERS._replace(keep=False), {0: b"x"})
    assert set(files(tmp_path / "logs")) == {"worker_0.log", "worker_1.log"}


def test_a_link_is_not_renamed_but_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "precious").write_text("x")
    (tmp_path / "logs/worker_0.log").symlink_to(tmp_path / "precious")
    with pytest.raises(LaunchError, match="a link"):
        launch(WORKERS, {})
    assert (tmp_path / "precious").read_text() == "x" and (tmp_path / "logs/worker_0.log").is_symlink()


@pytest.mark.root
def test_nothing_is_renamed_in_directories_of_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED, needs root")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha/0").write_text("x")
    os.chown(tmp_path / "alpha", 65534, 65534)
    with pytest.raises(LaunchError, match="not a directory of yours"):
        launch(WORKERS._replace(outfile="%h/%r"), {}, ranks=1)
    assert os.listdir(tmp_path / "alpha") == ["0"]


# --- attempts


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("d/1/rank.0/stdout", "d/1/rank.0/stdout.attempt-2"),
        ("logs/worker_0.log", "logs/worker_0.attempt-2.log"),
        ("f.0.err", "f.0.attempt-2.err"),
        ("o.0", "o.0.attempt-2"),
        ("a.b/o", "a.b/o.attempt-2"),
        ("/dev/null", "/dev/null"),
    ],
)
def test_file_names_of_a_later_attempt(path: str, named: str) -> None:
    assert of_attempt(path, 1) == path and of_attempt(path, 2) == named


def test_each_attempt_has_its_files_and_the_next_launch_keeps_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    launch(WORKERS, {0: b"one", SERVICE: b"s1"})
    launch(WORKERS, {0: b"two", SERVICE: b"s2"}, attempt=2)
    launch(WORKERS, {0: b"three"}, attempt=3)
    expected = {
        "worker_0.log": b"one", "worker_1.log": b"", "scheduler.log": b"s1",
        "worker_0.attempt-2.log": b"two", "worker_1.attempt-2.log": b"", "scheduler.attempt-2.log": b"s2",
        "worker_0.attempt-3.log": b"three", "worker_1.attempt-3.log": b"",
    }  # fmt: skip
    assert files(tmp_path / "logs") == expected
    launch(WORKERS, {})
    kept = {f"{name}.1": data for name, data in expected.items()}
    assert files(tmp_path / "logs") == {**kept, "worker_0.log": b"", "worker_1.log": b""}


# --- files that are not ours


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (OutputPolicy("out"), "out/1/rank.0/stdout"),
        (OutputPolicy(outfile="o.%r"), "o.0"),
        (OutputPolicy(file="f"), "f.0.err"),
    ],
)
def test_a_link_in_place_of_a_file_is_refused(
    policy: OutputPolicy, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(LaunchError) as caught:
        logs_of(policy)
    assert name in caught.value.what and "a link" in caught.value.what and caught.value.where
    assert victim.read_text() == "precious"


@pytest.mark.root
@pytest.mark.parametrize("whose", ["out/1", "out/1/rank.0", "alpha"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, whose: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED, needs root")
    monkeypatch.chdir(tmp_path)
    place = tmp_path / whose
    place.parent.mkdir(parents=True, exist_ok=True)
    if linked:
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
    os.lchown(place, 65534, 65534)
    with pytest.raises(LaunchError, match="not a directory of yours"):
        logs_of(OutputPolicy("out", outfile="%h/out"))


def test_without_a_jobid_the_named_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    logs_of(OutputPolicy(str(tmp_path / "link"), jobid=False, outfile=str(tmp_path / "link/o")))
    assert (tmp_path / "real" / "rank.0" / "stdout").exists() and (tmp_path / "real" / "o").exists()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for policy, where in (
        (OutputPolicy(str(tmp_path / "file")), "--output-filename"),
        (OutputPolicy(str(tmp_path / "file/below")), "--output-filename"),
        (OutputPolicy(file=str(tmp_path / "file/below")), "--output file="),
        (OutputPolicy(outfile=str(tmp_path)), f"output files {tmp_path}"),
        (WORKERS._replace(outfile=f"{tmp_path}/file/worker_%r.log"), f"log files in {tmp_path}/file"),
    ):
        with pytest.raises(LaunchError, match=str(tmp_path)) as caught:
            logs_of(policy)
        assert caught.value.where == where and caught.value.todo


# --- disks and descriptors


def test_a_full_disk_is_reported_once_and_the_job_goes_on(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path)), 2)
    assert lab.output.logs
    os.close(lab.output.logs._open[str(tmp_path / "1/rank.0/stdout")])
    lab.output.logs._open[str(tmp_path / "1/rank.0/stdout")] = os.open("/dev/full", os.O_WRONLY)
    for _ in range(3):
        lab.output.write(STDOUT, 0, b"lost")
        lab.output.write(STDOUT, 1, b"kept")
    assert len(lab.notices) == 1 and "No space left" in lab.notices[0] and "rank.0/stdout" in lab.notices[0]
    assert files(tmp_path)["1/rank.1/stdout"] == b"kept" * 3
    assert lab.seen()[0] == b"lostkept" * 3
    assert not lab.output.close(), "the exit code must tell that output was lost"


def test_a_directory_that_vanished_is_reported_once(tmp_path: Path) -> None:
    notices: list[str] = []
    logs = RankLogs(OutputPolicy(str(tmp_path / "out")), places_of(1), notices.append)
    (tmp_path / "out/1/scheduler").write_text("no directory")
    for _ in range(2):
        logs.write(STDERR, SERVICE, b"words")
    assert len(notices) == 1 and "scheduler" in notices[0] and "further output is not kept there" in notices[0]
    assert not logs.close()


def test_300_ranks_do_not_need_600_descriptors(tmp_path: Path) -> None:
    logs = logs_of(OutputPolicy(str(tmp_path)), 300)
    for turn in range(2):
        for rank in range(300):
            logs.write(STDOUT, rank, b"%d.%d\n" % (turn, rank))
    assert len(logs._open) <= 256
    assert logs.close()
    found = files(tmp_path)
    assert len(found) == 600
    assert all(found[f"1/rank.{rank:03d}/stdout"] == b"0.%d\n1.%d\n" % (rank, rank) for rank in range(300))
