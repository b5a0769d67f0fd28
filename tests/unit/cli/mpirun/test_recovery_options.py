"""--restart and related options, --scheduler, --server_num: values and combinations."""

from __future__ import annotations

import pytest
from command_lines import parse, parse_msrun
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.backends.openmpi.translate_options import refuse
from mslaunch.cli.mpirun import mindspore_options
from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import ServicePolicy
from mslaunch.errors import UsageError


def parsed(line, environ=None):
    return parse([*line.split(), "a"], environ or {})


@pytest.mark.parametrize(
    ("line", "restart", "often", "recovery_"),
    [
        ("", "", 0, False),
        ("--max-restarts 2", "", 2, False),
        ("--restart rank", "rank", 3, False),
        ("--restart GROUP", "group", 3, False),
        ("--restart group --max-restarts 5", "group", 5, False),
        ("--restart group --enable-recovery", "group", 3, False),
        ("--restart rank --enable-recovery", "rank", 3, True),
        ("--restart none", "none", 0, False),
        ("--restart none --max-restarts 0", "none", 0, False),
        ("--restart none --enable-recovery", "none", 0, True),
        ("--restart none --restart group", "group", 3, False),
    ],
)
def test_restart_is_read(line, restart, often, recovery_):
    request = parsed(line)
    assert (request.restart, request.max_restarts, request.recovery) == (restart, often, recovery_)


def test_a_number_from_another_option_counts():
    assert parsed("--restart group", {"OMPI_MCA_orte_max_restarts": "7"}).max_restarts == 7
    assert parsed("--restart group -mca orte_max_restarts 8").max_restarts == 8


def test_delay_and_minimum_are_read():
    request = parsed("-n 4 --restart group --restart-delay 1.5 --min-ranks 2 --detach")
    assert (request.restart_delay, request.min_ranks, request.detach) == (1.5, 2, True)
    assert "no effect" in parsed("--restart-delay 1").notes[0]
    assert parsed("--restart-delay 1 --max-restarts 1").notes == ()
    assert not parsed("--detach --do-not-launch").detach
    request = parsed("--restart group --max-restart-delay 60 --progress-file ckpt --max-no-progress 5 --device-wait 9")
    assert (request.progress_file, request.max_no_progress, request.device_wait) == ("ckpt", 5, 9.0)
    assert (request.max_restart_delay, request.notes) == (60.0, ())


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--restart-delay 1", "--restart-delay"),
        ("--max-restart-delay 1", "--max-restart-delay"),
        ("--progress-file ckpt", "--progress-file"),
        ("--device-wait 5", "--device-wait"),
    ],
)
def test_what_has_no_effect_is_told(line, option):
    for request in (parsed(line), parse(["--dialect", "torchrun", *line.split(), "t.py"], {})):
        assert [note.partition(" has no effect: ")[0] for note in request.notes] == [option]
    assert parsed(f"--restart group {line}").notes == ()


@pytest.mark.parametrize("line", ["--progress-file ckpt", "--device-wait 5"])
def test_what_a_group_alone_can_use_is_told(line):
    (note,) = parsed(f"--restart rank {line}").notes
    assert note.startswith(f"{line.split()[0]} has no effect: it is for --restart group")


@pytest.mark.parametrize(
    ("line", "where", "phrase"),
    [
        ("--restart some", "--restart", "none, rank or group"),
        ("--restart none --max-restarts 1", "--restart none", "contradicts --max-restarts 1"),
        ("--restart group --max-restarts 0", "--restart group", "contradicts"),
        ("--restart rank --disable-recovery", "--restart rank", "contradicts"),
        ("--restart-delay -1", "--restart-delay", "0 or more"),
        (
            "--restart group --restart-delay 9 --max-restart-delay 8",
            "--max-restart-delay",
            "less than --restart-delay 9",
        ),
        ("--max-restart-delay 0", "--max-restart-delay", "more than 0"),
        ("--restart group --max-no-progress 2", "--max-no-progress", "add --progress-file"),
        ("--restart group --progress-file x --max-no-progress 0", "--max-no-progress", "1 or more"),
        ("--restart group --progress-file=", "--progress-file", "not empty"),
        ("--device-wait -1", "--device-wait", "0 or more"),
        ("--min-ranks 2", "--min-ranks", "--restart group"),
        ("--min-ranks 2 --restart rank", "--min-ranks", "--restart group"),
        ("-n 2 --min-ranks 1 --restart group a : -n 2", "--min-ranks", "several programs"),
    ],
)
def test_bad_values_are_refused(line, where, phrase):
    with pytest.raises(UsageError) as caught:
        parsed(line)
    assert caught.value.where == where and phrase in str(caught.value)


def test_msrun_has_the_same_options():
    request = parse_msrun(
        ["--worker_num=2", "--restart=group", "--restart-delay=2", "--min-ranks=1", "--enable-recovery", "net.py"], {}
    )
    assert (request.restart, request.max_restarts, request.restart_delay) == ("group", 3, 2.0)
    assert (request.min_ranks, request.recovery) == (1, False)


@pytest.mark.parametrize(
    ("word", "host", "port"),
    [
        ("node1", "node1", 0),
        ("node1:8118", "node1", 8118),
        ("joe@node1:8118", "joe@node1", 8118),
        (":8118", "", 8118),
        ("[fd00::1]:8118", "fd00::1", 8118),
        ("[fd00::1]", "fd00::1", 0),
        ("fd00::1", "fd00::1", 0),
        ("10.0.0.1:80", "10.0.0.1", 80),
    ],
)
def test_the_host_of_the_scheduler_is_read(word, host, port):
    assert parsed(f"--scheduler {word}").cluster == ServicePolicy(host=host, port=port, first=True)


@pytest.mark.parametrize(
    "word", ["", ":", "node1:", "node1:x", "node1:0", "node1:65536", "[fd00::1", "[]", "a,b", "[a]b"]
)
def test_a_scheduler_can_be_turned_off(word):
    with pytest.raises(UsageError, match="node1:8118"):
        parse([f"--scheduler={word}", "a"], {})


@given(st.text(max_size=12) | st.text("[]:.@a1 ", max_size=12))
def test_any_text_is_a_scheduler_or_refused(word):
    try:
        settings = dict(mindspore_options.scheduler(word))
    except Expected:
        return
    assert settings["cluster.host"] or settings["cluster.port"]


def test_parameter_servers_and_the_program_of_the_scheduler():
    assert parsed("--server_num 2").cluster == parsed("--server-num 2").cluster == ServicePolicy(servers=2, first=True)
    assert parsed("--server_num 0").cluster == ServicePolicy()
    assert parsed("--scheduler-runs ranks").cluster == ServicePolicy(program="ranks")
    with pytest.raises(UsageError, match="0 or more"):
        parsed("--server_num -1")


@pytest.mark.parametrize(
    "line",
    [
        "--restart group",
        "--detach",
        "--check",
        "--scheduler node1",
        "--scheduler :8118",
        "--server_num 1",
        "--scheduler-runs light",
        "--progress-file ckpt",
        "--max-restart-delay 9",
    ],
)
def test_the_openmpi_backend_refuses_them(line):
    with pytest.raises(UsageError, match="not with --backend openmpi") as caught:
        refuse(parsed(f"--backend openmpi {line}"))
    assert caught.value.where == line.split()[0]
