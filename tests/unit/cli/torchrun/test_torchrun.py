"""The torchrun dialect: readers, what each command starts, where ranks meet, and words under our own name."""

from __future__ import annotations

import os
import pwd
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli import main
from mslaunch.cli.parser.readers import Expected
from mslaunch.cli.torchrun import readers
from mslaunch.cli.torchrun.options import TABLE
from mslaunch.datamodel.request import HostMeeting, Request
from mslaunch.errors import UsageError

_MEET = "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1 --nnodes=2:4"


def parse(line: str, **environ: str) -> Request:
    words = line.split()
    return main.parse(words, environ, lambda path: "", called="torchrun")


def env(line: str, **environ: str) -> dict[str, str | None]:
    return dict(parse(line, **environ).apps[0].env)


def refusal(line: str, **environ: str) -> str:
    with pytest.raises(UsageError) as error:
        parse(line, **environ)
    return str(error.value)


# --- readers


@given(st.integers(1, 9999), st.integers(1, 9999))
def test_hosts_are_a_number_or_a_range(fewest: int, most: int) -> None:
    assert readers.nnodes(str(most)) == (most, most)
    if fewest <= most:
        assert readers.nnodes(f"{fewest}:{most}") == (fewest, most)
    else:
        with pytest.raises(Expected):
            readers.nnodes(f"{fewest}:{most}")


@given(st.text(max_size=12))
def test_whatever_is_written_is_read_or_refused(word: str) -> None:
    for reader in (readers.nnodes, readers.nproc, readers.streams, readers.local_ranks, readers.endpoint, readers.port,
                   readers.settings, readers.flag, readers.run_id, readers.interval):  # fmt: skip
        try:
            reader(word)  # type: ignore[operator]
        except Expected as error:
            assert error.what


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 3), min_size=1, max_size=5))
def test_streams_by_local_rank(wanted: dict[int, int]) -> None:
    assert dict(readers.streams(",".join(f"{rank}:{bits}" for rank, bits in wanted.items()))) == wanted


@pytest.mark.parametrize(
    ("word", "found"),
    [("n1:29400", ("n1", 29400)), ("n1", ("n1", None)), ("[::1]:5", ("::1", 5)), ("[::1]", ("::1", None)), ("", None)],
)
def test_endpoints(word: str, found: object) -> None:
    assert readers.endpoint(word) == found


def test_a_template_becomes_a_pattern() -> None:
    assert readers.prefix("[${role_name}${local_rank}]:", "tr") == "[tr%l]:"
    assert readers.prefix("50% $rank@${hostname} ", "x") == "50%% %r@%h "


def test_devices_that_are_masked_are_not_counted(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert readers.devices("auto", {}, root) == readers.devices("cpu", {}, root)
    assert readers.devices("gpu", {"CUDA_VISIBLE_DEVICES": "0"}, root)[0] == 0, "there is none"
    (tmp_path / "dev").mkdir()
    for number in range(8):
        (tmp_path / "dev" / f"nvidia{number}").touch()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert readers.devices("gpu", {}, root)[0] == 8
    assert readers.devices("auto", {"CUDA_VISIBLE_DEVICES": "2,5"}, root)[0] == 2
    assert readers.devices("gpu", {"CUDA_VISIBLE_DEVICES": ""}, root)[0] == 0


def test_amds_devices_are_those_of_the_agent(tmp_path: Path) -> None:
    """Nodes of the KFD with a GPU's number; CPUs are nodes, too."""
    for node, gpu in enumerate(("0", "4711", "4712")):
        (tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}").mkdir(parents=True)
        (tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id").write_text(f"{gpu}\n")
    assert readers.devices("gpu", {}, str(tmp_path))[0] == 2
    assert readers.devices("gpu", {"HIP_VISIBLE_DEVICES": "1"}, str(tmp_path))[0] == 1


# --- what one command starts


def test_one_of_several_hosts() -> None:
    request = parse("--nnodes=4 --node-rank=2 --master-addr=127.0.0.1 --nproc-per-node=3 t.py")
    share = request.cluster.share
    assert share and (share.size, share.first, share.meeting, share.master) == (12, 6, 29500, False)
    assert request.apps[0].np == 3 and request.stdin == "none"
    assert parse("--nnodes=2 --rdzv_endpoint=127.0.0.1:77 t.py").cluster.meeting == 77


def test_one_command_for_all_hosts() -> None:
    request = parse("--nnodes=2:4 --max-restarts=3 -H a,b,c --nproc-per-node=2 --master-port=7 t.py")
    assert (request.policy.per_host, request.policy.nodes, request.min_ranks) == (2, (2, 4), 4)
    assert (request.restart, request.max_restarts, request.cluster.meeting) == ("group", 3, 7)
    assert request.apps[0].np is None and request.cluster.share is None
    assert parse("-H a,b t.py").policy.nodes == (1, 0)


def test_the_id_of_a_run() -> None:
    assert env("--rdzv-id=j --master-port=5000 t.py")["TORCHELASTIC_RUN_ID"] == "j"
    assert re.fullmatch(r"[0-9a-f-]{36}", env("t.py")["TORCHELASTIC_RUN_ID"] or "")
    assert env("--nnodes=2 --master-addr=127.0.0.1 t.py")["TORCHELASTIC_RUN_ID"] == "none"


def test_threads_are_one_where_nobody_says_more() -> None:
    assert env("--nproc-per-node=2 t.py")["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in env("t.py")
    assert "OMP_NUM_THREADS" not in env("--nproc-per-node=2 t.py", OMP_NUM_THREADS="4")


def test_hosts_without_numbers_meet_at_the_endpoint() -> None:
    request = parse(f"{_MEET} --nproc-per-node=3 --rdzv-id=j t.py", HOME="/home/joe")
    found = request.cluster.host_meeting
    assert found == HostMeeting(
        "127.0.0.1", "127.0.0.1", 29400, True, 2, 4, 3, "j", "/home/joe/.config/mslaunch/rendezvous-secret"
    )
    assert request.apps[0].np == 3 and request.cluster.share is not None
    conf = "--rdzv-conf=join_timeout=7,last_call_timeout=2,is_host=0,secret_file=/s,read_timeout=5"
    found = parse(f"{_MEET.replace('127.0.0.1', '192.0.2.1:77')} {conf} t.py").cluster.host_meeting
    assert found == HostMeeting("192.0.2.1", "192.0.2.1", 77, False, 2, 4, 1, "none", "/s", 7, 2)
    assert parse(f"{_MEET} t.py", XDG_CONFIG_HOME="/c").cluster.host_meeting.secret_file.startswith("/c/mslaunch/")
    assert parse(f"{_MEET} -H a,b t.py").cluster.host_meeting is None, "one command starts all"


def test_numbers_have_no_effect_where_hosts_meet_without_them() -> None:
    assert not parse(f"{_MEET} t.py").notes
    for words in ("--node-rank=1", "--master-addr=n9", "--master-port=29500"):
        (note,) = parse(f"{_MEET} {words} t.py").notes
        assert "have no effect" in note


def test_the_secret_is_in_a_home_directory_and_never_in_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container whose user is only a number has none."""

    def secret(conf: str, **environ: str) -> str:
        found = parse(f"{_MEET} {conf} t.py", **environ).cluster.host_meeting
        assert found
        return found.secret_file

    assert secret("--rdzv-conf=secret_file=~/s", HOME="/home/joe") == "/home/joe/s"
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert secret("", HOME="") == secret("") == f"{home}/.config/mslaunch/rendezvous-secret"

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for conf in ("", "--rdzv-conf=secret_file=~/s"):
        assert "secret_file=FILE" in refusal(f"{_MEET} {conf} t.py"), conf
    assert secret("--rdzv-conf=secret_file=/s") == "/s"
    parse("t.py")


def test_the_name_of_this_host_is_here_whatever_address_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's installer writes it into /etc/hosts with 127.0.1.1."""
    monkeypatch.setattr("mslaunch.cli.pods.scheduler_address.resolved", lambda host, where: "127.0.1.1")
    own = os.uname().nodename
    found = parse(f"--rdzv-backend=c10d --rdzv-endpoint={own}:5 --nnodes=2 t.py").cluster.host_meeting
    assert found is not None and found.hosts_meeting and found.address == "127.0.1.1"
    other = parse("--rdzv-backend=c10d --rdzv-endpoint=elsewhere:5 --nnodes=2 t.py").cluster.host_meeting
    assert other is not None and not other.hosts_meeting
    assert parse(f"--nnodes=2 --master-addr={own} t.py").cluster.share is not None
    assert parse(f"--master-addr={own} --master-port=7 t.py").cluster.meeting == 7


def test_the_time_to_end() -> None:
    assert parse("t.py").grace == 30 and parse("--shutdown-timeout=5 t.py").grace == 5
    assert parse("t.py", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7").grace == 7
    assert parse("--grace 3 t.py").grace == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--rdzv-backend=c10d --nnodes=2 t.py", "--rdzv-endpoint NODE1:29400"),
        (f"{_MEET} --rdzv-conf=join_timeout=0 t.py", "join_timeout is a number of seconds"),
        (f"{_MEET} --rdzv-conf=last_call_timeout=x t.py", "as last_call_timeout=30"),
        (f"{_MEET} --rdzv-conf=is_host=perhaps t.py", "is_host is true or false"),
        ("--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 --nnodes=2 t.py", "write 127.0.0.1:29400"),
        ("--rdzv-backend=c10d --rdzv-endpoint=no.such.host.invalid --nnodes=2 t.py", "cannot be resolved"),
        ("--rdzv-backend=etcd --nnodes=2 t.py", "-H node1,node2"),
        ("--nnodes=2 --node-rank=2 --master-addr=127.0.0.1 t.py", "no host 2 among 2"),
        ("--nnodes=2 --master-addr=192.0.2.1 t.py", "is not an address of it"),
        ("--master-addr=192.0.2.1 --master-port=5 t.py", "not an address of this host"),
        ("--standalone --nnodes=2 t.py", "is for one host"),
        ("-H a,b --standalone t.py", "is for one host"),
        ("-H a,b --nproc-per-node=gpu t.py", "number of ranks on each host"),
        ("--nnodes=5:2 t.py", "5 is larger than 2"),
        ("--no-python -m t", "no module"),
        ("--rdzv-id=a/b t.py", "without '/'"),
        ("--ma=3 t.py", "could be several"),
        ("--virtual-local-rank --nproc-per-node=3 t.py", "has 2 for 3 ranks"),
        ("--nproc-per-node=gpu t.py", "write the number of ranks"),
        ("", "no script"),
    ],
)
def test_what_cannot_be_done_is_refused(line: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.agent.ranks.devices.found", lambda environ, root: [])
    assert said in refusal(line, CUDA_VISIBLE_DEVICES="0,1")


def test_a_refused_option_says_what_to_write() -> None:
    for row in TABLE:
        if row.status == "refused":
            assert "; use " in row.help


# --- under our own name


@pytest.mark.parametrize("word", ["--nproc-per-node=2", "--nproc_per_node=2", "--nnodes=1", "--standalone", "--tee=3"])
def test_a_first_option_of_torchrun_selects_its_dialect(word: str) -> None:
    assert main.parse([word, "t.py"], {}, lambda path: "").apps[0].argv[1:] == ("-u", "t.py")


def test_words_of_msrun_stay_its_own() -> None:
    assert main.parse(["--log_dir=x", "--worker_num=2", "net.py"], {}, lambda path: "").output.outfile


@pytest.mark.parametrize(("word", "said"), [("--nproc-per-node", "-N N"), ("--no_python", "the program as it is")])
def test_words_of_torchrun_after_those_of_mpirun(word: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        main.parse(["-n", "2", word, "2", "t.py"], {}, lambda path: "")
    assert "a word of torchrun" in str(error.value) and said in str(error.value)


def test_an_address_is_checked_before_anything_starts() -> None:
    assert socket.gethostname() and parse("--master-addr=localhost --master-port=5 t.py").cluster.meeting == 5
