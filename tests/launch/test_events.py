"""--events, --on-event, --record and --metrics: what a launch tells, and what it leaves, in every kind of end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from launching import ROOT, Job, environment, wait_until

SECRET = "sesame-open-4711"


SCHEMA = json.loads((ROOT / "docs" / "events.schema.json").read_text(encoding="utf-8"))


def events_of(path: Path) -> list[dict[str, Any]]:
    """Each as the schema has it."""
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for event in events:
        jsonschema.validate(event, SCHEMA)
    return events


def launch(*words: object, **env: str) -> Job:
    return Job([str(word) for word in words], environment(**env))


def names(path: Path) -> list[str]:
    return [event["event"] for event in events_of(path)]


def test_a_launch_that_goes_well(tmp_path: Path) -> None:
    file, rec = tmp_path / "events", tmp_path / "rec"
    words = ("-n", 2, "-x", f"KEY={SECRET}", "--events", file, "--record", rec, "sh", "-c", "echo one; echo $KEY >&2")
    assert launch(*words).end().code == 0
    begin, connected, attempt, *ranks, output, attempt_ended, end = names(file)
    assert (begin, connected, attempt) == ("begin", "connected", "attempt_started")
    assert sorted(ranks) == ["all_started", "rank_ended", "rank_ended", "rank_started", "rank_started"]
    assert (output, attempt_ended, end) == ("output", "attempt_ended", "end")
    events = events_of(file)
    assert {event["job"] for event in events} == {events[0]["job"]}
    assert [event["seconds"] for event in events] == sorted(event["seconds"] for event in events)
    assert events[-1]["code"] == 0 and events[-1]["cause"] is None
    counted = next(event for event in events if event["event"] == "output")
    assert (counted["stdout"], counted["stderr"]) == (8, 2 * len(SECRET) + 2)
    record = json.loads((rec / "run.json").read_text())
    assert (record["state"], record["code"], record["exported"]) == ("ended", 0, ["KEY"])
    assert record["command"][:5] == ["mslaunch", "-n", "2", "-x", "KEY=…"] and "PATH" in record["environment"]
    (attempt,) = record["attempts"]
    assert [rank["code"] for rank in attempt["ranks"]] == [0, 0]
    assert [rank["bytes"] for rank in attempt["ranks"]] == [4 + len(SECRET) + 1] * 2
    assert attempt["began"] <= attempt["connected"] <= attempt["started"] <= attempt["all_started"] <= attempt["ended"]
    for path in (file, rec / "run.json"):
        assert SECRET not in path.read_text()


def test_a_rank_that_fails(tmp_path: Path) -> None:
    file, rec, hook = tmp_path / "events", tmp_path / "rec", tmp_path / "hook"
    words = ("-n", 2, "--events", file, "--record", rec, "--on-event", f"tee -a {hook}")
    done = launch(*words, "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 100").end()
    assert done.code == 7
    cause = {"text": f"rank 1 ended with exit code 7 on {os.uname().nodename}", "rank": 1, "code": 7}
    ends = [event for event in events_of(file) if event["event"] == "end"]
    assert [end["code"] for end in ends] == [7] and ends[0]["cause"].items() >= cause.items()
    record = json.loads((rec / "run.json").read_text())
    assert record["cause"].items() >= cause.items() and "rank 1 ended with exit code 7" in record["report"]
    one, two = record["attempts"][0]["ranks"]
    assert (two["code"], two["by_mslaunch"]) == (7, False) and (one["signal"], one["by_mslaunch"]) == (15, True)
    assert one["silence"] == pytest.approx(one["ended"] - one["started"], abs=0.002) and one["first_output"] is None
    assert names(hook) == ["failed", "end"]


def test_a_launch_that_is_refused_ends_too(tmp_path: Path) -> None:
    file, rec = tmp_path / "events", tmp_path / "rec"
    done = launch("-n", 2, "--hostfile", tmp_path / "none", "--events", file, "--record", rec, "true").end()
    assert done.code and names(file) == ["begin", "end"]
    assert json.loads((rec / "run.json").read_text())["code"] == done.code == events_of(file)[-1]["code"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_there_is_one_end_however_the_launcher_ends(tmp_path: Path, signum: int) -> None:
    file, rec = tmp_path / "events", tmp_path / "rec"
    job = launch("-n", 2, "--events", file, "--record", rec, "sh", "-c", "echo ready $$; exec sleep 100")
    job.expect(b"ready", 2)
    job.send(signum)
    job.end()
    wait_until(lambda: names(file)[-1] == "end")
    job.wait_gone()
    assert names(file).count("end") == 1
    state = json.loads((rec / "run.json").read_text())["state"]
    assert state == ("running" if signum == signal.SIGKILL else "ended")
    if signum == signal.SIGKILL:
        assert events_of(file)[-1]["cause"]["text"] == "the launcher was killed"
        assert events_of(file)[-1]["seconds"] > 0


def test_a_reader_that_is_slow_gets_the_end_of_a_launcher_that_was_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    while True:
        try:
            os.write(writer, b"\n" * 4096)
        except BlockingIOError:
            break
    os.close(writer)
    job = launch("-n", 1, "--events", fifo, "sh", "-c", "echo ready; exec sleep 1000")
    job.expect(b"ready")
    job.send(signal.SIGKILL)
    job.end()
    with os.fdopen(reader, encoding="ascii") as lines:
        os.set_blocking(reader, True)
        told = [json.loads(line) for line in lines if line.strip()]
    assert [event["event"] for event in told] == ["end"], "the others waited for the reader, too"
    job.wait_gone()


def test_a_restart_is_told_of_and_recorded(tmp_path: Path) -> None:
    file, rec = tmp_path / "events", tmp_path / "rec"
    words = ("-n", 2, "--restart", "group", "--max-restarts", 1, "--events", file, "--record", rec)
    done = launch(*words, "sh", "-c", "[ $MSLAUNCH_ATTEMPT$RANK = 11 ] && exit 7; exit 0").end()
    assert done.code == 0, done
    assert names(file).count("attempt_started") == 2 and names(file).count("restart") == 1
    record = json.loads((rec / "run.json").read_text())
    assert [attempt["number"] for attempt in record["attempts"]] == [1, 2]
    assert record["attempts"][0]["cause"]["code"] == 7 and record["attempts"][1]["cause"] is None
    assert [restart["rank"] for restart in record["restarts"]] == [None]


def test_a_rank_that_is_started_again_alone_is_recorded(tmp_path: Path) -> None:
    rec, flag = tmp_path / "rec", tmp_path / "flag"
    words = ("-n", 2, "--restart", "rank", "--max-restarts", 1, "--record", rec)
    script = f"[ $RANK = 1 ] && [ ! -e {flag} ] && : >{flag} && exit 7; exit 0"
    assert launch(*words, "sh", "-c", script).end().code == 0
    record = json.loads((rec / "run.json").read_text())
    assert [restart["rank"] for restart in record["restarts"]] == [1]
    assert [rank["starts"] for rank in record["attempts"][0]["ranks"]] == [1, 2]


def test_the_record_lies_beside_the_logs_that_were_named(tmp_path: Path) -> None:
    assert launch("-n", 1, "--output-filename", tmp_path / "logs", "true").end().code == 0
    assert json.loads((tmp_path / "logs" / "run.json").read_text())["state"] == "ended"
    assert launch("-n", 1, "--output-filename", tmp_path / "more", "--record", "none", "true").end().code == 0
    assert os.listdir(tmp_path / "more") == ["1"]


def test_a_command_that_hangs_is_killed_and_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\necho $MSLAUNCH_EVENT $$ >>" + str(tmp_path / "ran") + "\nexec sleep 1000\n")
    script.chmod(0o755)
    job = launch("-n", 1, "--on-event", script, "true")
    done = job.end()
    assert done.code == 0 and "was killed after 10 seconds" in done.err
    job.wait_gone()
    assert (tmp_path / "ran").read_text().split()[0] == "end"


def test_a_command_that_fails_is_told_and_changes_nothing() -> None:
    done = launch("-n", 1, "--on-event", "false", "true").end()
    assert done.code == 0 and done.err == "mslaunch: --on-event: false ended with exit code 1\n"


@pytest.mark.parametrize("command", ["", " ", "no-such-program x", "/no/such/program", "./hook"])
def test_a_command_that_is_not_there_refuses_the_launch(tmp_path: Path, command: str) -> None:
    done = launch("-n", 1, "--events", tmp_path / "e", "--on-event", command, "sh", "-c", "echo ran").end()
    assert done.code == 1 and done.out == b"" and "--on-event" in done.err and "Traceback" not in done.err


def test_what_a_command_prints_goes_where_messages_go(tmp_path: Path) -> None:
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\necho told; echo wrong >&2\n")
    script.chmod(0o755)
    program = f"""
from mslaunch.api import Launch, MessageEvent
job = Launch(["true"], np=1, options=["--on-event", {str(script)!r}])
print(sorted(event.text for event in job if isinstance(event, MessageEvent)))
"""
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, env=environment(), capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"['told', 'wrong']\n", b""), done


@pytest.mark.parametrize("words", [("--metrics", "no/such/m"), ("--record", "file")])
def test_what_is_refused_before_the_launch_begins_ends_too(tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "file").write_text("")
    file = tmp_path / "events"
    done = launch("-n", 1, "--events", file, words[0], tmp_path / words[1], "true").end()
    assert done.code == 1
    begin, end = events_of(file)
    assert begin["event"] == "begin" and (end["event"], end["code"]) == ("end", 1) and words[0] in end["cause"]["text"]


def test_a_check_writes_none_of_these_files(tmp_path: Path) -> None:
    words = ("--events", "e", "--metrics", "m", "--record", "r", "--on-event", "false")
    done = Job(["--check", *words, "-n", "1", "true"], environment(), cwd=tmp_path).end()
    assert done.code == 0 and os.listdir(tmp_path) == [] and done.err == "", done


def test_values_of_x_leave_words_of_the_format_alone(tmp_path: Path) -> None:
    values = ["-x", "A=2026", "-x", "B=output", "-x", "C=ended", "-x", "D=begin", "-x", f"E={tmp_path}"]
    done = launch("-n", 1, *values, "--events", tmp_path / "e", "--record", tmp_path, "sh", "-c", "exit 3").end()
    assert done.code == 3
    assert names(tmp_path / "e")[0] == "begin" and names(tmp_path / "e")[-1] == "end"
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["state"] == "ended" and record["began"].startswith("20")
    assert str(tmp_path) not in str(record["command"])


def test_names_that_are_no_text_are_recorded_as_they_are(tmp_path: Path) -> None:
    place = os.path.join(os.fsencode(tmp_path), b"ev\xff")
    os.mkdir(place)
    done = Job(["-n", "1", "--record", ".", "--events", "e", "true"], environment(), cwd=os.fsdecode(place)).end()
    assert done.code == 0
    record = json.loads(Path(os.fsdecode(place), "run.json").read_bytes())
    assert os.fsencode(record["cwd"]) == place
    assert os.fsencode(events_of(Path(os.fsdecode(place), "e"))[0]["cwd"]) == place
    again = Job(["--rerun", os.fsdecode(place)], environment(), cwd="/").end()
    assert again.code == 0


def test_hosts_are_connected_for_the_attempt_that_follows(tmp_path: Path) -> None:
    words = ["-n", 1, "--restart", "group", "--max-restarts", 1, "--events", tmp_path / "e", "false"]
    assert launch(*words).end().code == 1
    connected = [event["attempt"] for event in events_of(tmp_path / "e") if event["event"] == "connected"]
    assert connected == [1, 2]


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    job = launch("-n", 1, "--on-event", f"sh -c 'sleep 1000 & echo $! >{tmp_path / 'pid'}; exit 0'", "true")
    assert job.end().code == 0
    pid = (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"))


def test_metrics_are_those_of_node_exporters_format(tmp_path: Path) -> None:
    file = tmp_path / "job.prom"
    gates = tmp_path / "gates"
    gates.mkdir()
    for rank in (1, 2):
        os.mkfifo(gates / str(rank))
    others = f"echo four; [ $RANK = 0 ] || {{ : > {gates}/$RANK; exec sleep 1000; }}; cat {gates}/1 {gates}/2; exit 5"
    done = launch("-n", 3, "--metrics", file, "sh", "-c", others).end()
    assert done.code == 5 and sorted(os.listdir(tmp_path)) == ["gates", "job.prom"]
    values = _metrics(file)
    assert values["mslaunch_exit_code"] == 5 and values["mslaunch_up"] == 0 and values["mslaunch_ranks"] == 3
    assert values["mslaunch_ranks_failed"] == 1, "those that mslaunch has ended did not fail"
    assert values["mslaunch_output_bytes_total"] == 15 and values["mslaunch_ranks_running"] == 0


@pytest.mark.parametrize("record", ["none", "rec"])
def test_metrics_after_a_restart(tmp_path: Path, record: str) -> None:
    """While attempt 2 runs, and after it; how often the file is written is tested in virtual time."""
    file = tmp_path / "job.prom"
    os.mkfifo(tmp_path / "go")
    script = "[ $MSLAUNCH_ATTEMPT = 1 ] && { echo four; exit 5; }; read line < go; echo on"
    words = ["-n", "1", "--restart", "group", "--metrics", str(file), "--record", record, "sh", "-c", script]
    job = Job(words, environment(), cwd=tmp_path)
    try:
        wait_until(lambda: file.exists() and _attempt_runs(_metrics(file), 2), tell=lambda: f"{_metrics(file)}")
        values = _metrics(file)
        assert (values["mslaunch_restarts_total"], values["mslaunch_ranks_failed"], values["mslaunch_up"]) == (1, 0, 1)
        assert values["mslaunch_output_bytes_total"] == 5 and "mslaunch_exit_code" not in values
        age = values["mslaunch_update_time_seconds"] - values["mslaunch_start_time_seconds"]
        assert 0 < values["mslaunch_silence_seconds"] < age
        (tmp_path / "go").write_text("on\n")
        assert job.end().code == 0
    finally:
        job.destroy()
    after = _metrics(file)
    assert set(after) == {*values, "mslaunch_exit_code"} and len(after) == 12
    assert after["mslaunch_update_time_seconds"] >= values["mslaunch_update_time_seconds"]
    assert (after["mslaunch_output_bytes_total"], after["mslaunch_exit_code"], after["mslaunch_up"]) == (8, 0, 0)


def _attempt_runs(values: dict[str, float], number: int) -> bool:
    return values["mslaunch_attempt"] == number and values["mslaunch_ranks_running"] == 1


def _metrics(file: Path) -> dict[str, float]:
    """The values of a file of metrics, by their names."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("option", ["--events", "--metrics", "--record"])
def test_a_file_that_cannot_be_written_refuses_the_launch(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").write_text("")
    done = launch("-n", 1, option, tmp_path / "file" / "below", "sh", "-c", "echo ran").end()
    assert done.code == 1 and done.out == b"" and option in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("option", ["--events", "--metrics"])
def test_no_link_is_followed(tmp_path: Path, option: str) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    done = launch("-n", 1, option, link, "true").end()
    assert victim.read_text() == "precious" and done.code == 1 and option in done.err and link.is_symlink()


def test_metrics_replace_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder"):
        done = launch("-n", 1, "--metrics", tmp_path / name, "true").end()
        assert done.code == 1 and "it is no regular file" in done.err, done
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder"] and (tmp_path / "fifo").is_fifo()


def test_a_record_that_cannot_be_written_refuses_the_launch(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    done = launch("-n", 1, "--record", tmp_path, "sh", "-c", "echo ran").end()
    assert (done.code, done.out) == (1, b"") and done.err.count("mslaunch:") == 1, done
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize("words", [("--events", "f", "--metrics", "./f"), ("--record", ".", "--events", "run.json")])
def test_one_file_for_two_things_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = Job(["-n", "1", *words, "sh", "-c", "echo ran"], environment(), cwd=tmp_path).end()
    assert (done.code, done.out) == (1, b"") and "is the file of" in done.err, done


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, needs root: a device of one's own")
def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    null = tmp_path / "null"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert launch("-n", 1, "--metrics", null, "true").end().code == 0
    assert stat.S_ISCHR(null.lstat().st_mode) and os.listdir(tmp_path) == ["null"]


def test_a_backend_refuses_what_it_cannot_tell(tmp_path: Path) -> None:
    for option, value in (("--events", "e"), ("--on-event", "true"), ("--metrics", "m"), ("--record", "r")):
        done = launch("-n", 1, "--backend", "openmpi", option, tmp_path / value, "true").end()
        assert done.code == 1 and option in done.err
