"""Pods of ms-operator and of the Ascend operator: the part that each starts, what words change of it, and refusals.

The variables are those that the operators' sources set (`cli.pods.operator_pod` names them).
"""

from __future__ import annotations

import pytest
from command_lines import parse, parse_msrun
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli import main
from mslaunch.datamodel.request import LocalBinding, Request, Share
from mslaunch.errors import UsageError

KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def ms_operator(role: str, pod: str, workers: int = 4, servers: int = 0, host: str = "10.96.7.7") -> dict[str, str]:
    """msjob_controller.go, SetClusterSpec."""
    return {
        **KUBERNETES,
        "MS_ROLE": role,
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": "2222",
        "MS_SERVER_NUM": str(servers),
        "MS_WORKER_NUM": str(workers),
        "MS_NODE_ID": pod,
    }


def ascend(role: str, node: int, local: int = 8, pods: int = 2, npu: str = "", host: str = "10.96.7.7"):
    """env.go, setMindSporeEnv."""
    return {
        **KUBERNETES,
        "MINDX_TASK_ID": "1f6b",
        "HostNetwork": "false",
        "MS_ROLE": role,
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": "2222",
        "MS_SERVER_NUM": "0",
        "MS_LOCAL_WORKER": str(local),
        "MS_WORKER_NUM": str(local * pods),
        "MS_NODE_RANK": str(node),
        **({"NPU_POD": npu} if npu else {}),
    }


def ascend_torch(node: int, local: int = 4, pods: int = 2) -> dict[str, str]:
    """env.go, setPytorchEnv."""
    return {
        **KUBERNETES,
        "MINDX_TASK_ID": "1f6b",
        "MASTER_ADDR": "10.96.7.7",
        "MASTER_PORT": "2222",
        "RANK": str(node),
        "WORLD_SIZE": str(local * pods),
        "LOCAL_WORLD_SIZE": str(local),
        "LOCAL_RANK": ",".join(map(str, range(local))),
    }


def part(size: int, first: int | None, role: str = "", *, port: int = 2222, master: bool = False, meeting: int = 0):
    return Share(size, first, "10.96.7.7", port, master, True, role, meeting)


def np(request: Request) -> int | None:
    return request.apps[0].np


PARTS = [
    # variables, processes here, their part of the job
    (ms_operator("MS_WORKER", "job-worker-3"), 1, part(4, 3)),
    (ms_operator("MS_WORKER", "job-worker-0", 1), 1, part(1, 0)),
    (ms_operator("MS_WORKER", "renamed"), 1, part(4, None)),
    (ms_operator("MS_SCHED", "job-scheduler-0"), 1, part(4, None, "scheduler")),
    (ms_operator("MS_PSERVER", "job-ps-1", servers=2), 1, part(4, None, "server")),
    (ascend("MS_WORKER", 1), 8, part(16, 8)),
    (ascend("MS_WORKER", 0, 1), 1, part(2, 0)),
    (ascend("MS_SCHED", 0), 1, part(16, None, "scheduler")),
    (ascend("MS_SCHED", 0, npu="false"), 1, part(16, None, "scheduler")),
    (ascend("MS_SCHED", 0, npu="true"), 8, part(16, 0, master=True)),
    ({**ascend("MS_SCHED", 0), "ASCEND_VISIBLE_DEVICES": "0,1"}, 8, part(16, 0, master=True)),
    ({**ascend("MS_SCHED", 0, npu="false"), "ASCEND_VISIBLE_DEVICES": "0"}, 1, part(16, None, "scheduler")),
    (ascend_torch(1), 4, part(8, 4, port=0, meeting=2222)),
    (ascend_torch(0, 1), 1, part(2, 0, port=0, meeting=2222)),
]


@pytest.mark.parametrize(("environ", "processes", "share"), PARTS)
def test_a_pod_starts_its_part(environ: dict[str, str], processes: int, share: Share) -> None:
    for request in (
        parse(["python", "net.py"], environ),
        parse_msrun(["net.py"], environ),
    ):
        assert (np(request), request.cluster.share) == (processes, share)
        assert not request.cluster.moves
        assert not request.detach, "a pod ends with its command"
        assert len(request.notes) == 1
        assert request.notes[0].startswith("pod of ")
        assert request.stdin == ("0" if share.first in (0, None) else "none")


RANKS = [
    ("a rank of ours", {"MSLAUNCH_JOBID": "ab12"}),
    ("a worker of msrun", {"RANK_ID": "1", "MS_NODE_ID": "1"}),
    ("one that somebody has numbered", {"MS_NODE_ID": "1"}),
    ("a rank of mpirun", {"OMPI_COMM_WORLD_RANK": "0"}),
    ("a rank of hydra", {"PMI_RANK": "0"}),
    ("a rank of torchrun", {"TORCHELASTIC_RUN_ID": "none"}),
]


@pytest.mark.parametrize(("what", "more"), RANKS, ids=[what for what, _ in RANKS])
def test_a_launch_inside_of_a_job_is_a_job_of_its_own(what: str, more: dict[str, str]) -> None:
    for environ in (ascend("MS_WORKER", 1), ms_operator("MS_WORKER", "job-worker-1")):
        request = parse(["-n", "2", "python", "net.py"], {**environ, **more})
        assert (np(request), request.cluster.share, request.notes) == (2, None, ())
    for name in ("MSLAUNCH_JOBID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHELASTIC_RUN_ID"):
        assert parse(["a"], {**ascend_torch(1), name: "x"}).cluster.share is None


def test_a_single_pod_of_the_ascend_operator_is_a_host_like_others() -> None:
    """A job of one Worker's pod gets none of MindSpore's variables; one of TensorFlow has all of its workers here."""
    for more in ({}, {"CM_WORKER_SIZE": "4", "CM_LOCAL_WORKER": "4"}):
        request = parse(["-n", "2", "a"], {**KUBERNETES, "MINDX_TASK_ID": "1f6b", **more})
        assert (np(request), request.cluster.share, request.notes) == (2, None, ())


def test_outside_of_kubernetes_nothing_is_a_pod() -> None:
    """Whoever sets up MindSpore's Dynamic Cluster by hand has these variables too."""
    environ = {name: word for name, word in ms_operator("MS_WORKER", "w").items() if name not in KUBERNETES}
    assert parse(["-n", "2", "a"], environ).cluster.share is None


@pytest.mark.parametrize("words", [["--resource-manager", "none"], ["-H", "a,b"]])
def test_a_job_of_its_own_can_be_asked_for(words: list[str]) -> None:
    for environ in (ascend("MS_WORKER", 1), ascend_torch(1)):
        for request in (parse([*words, "a"], environ), parse_msrun([*words, "--join=True", "a.py"], environ)):
            assert request.cluster.share is None


WORDS = [
    # words of msrun, variables, processes, part, the notes' beginnings
    (
        "--worker_num=4 --local_worker_num=2 --master_addr=10.96.7.7 --master_port=2222 --node_rank=1",
        ascend("MS_WORKER", 1, 2), 2, part(4, 2), ["pod of the Ascend operator: workers 2 to 3 of 4"],
    ),
    (
        "--master_port=9000", ascend("MS_WORKER", 1, 2), 2, part(4, 2, port=9000),
        ["pod of ", "--master_port 9000 wins over MS_SCHED_PORT, which says 2222"],
    ),
    (
        "--worker_num=32 --local_worker_num=8", ms_operator("MS_WORKER", "job-worker-3"), 8, part(32, 24),
        ["pod of ms-operator: workers 24 to 31 of 32", "--worker_num 32 wins", "--local_worker_num 8 wins"],
    ),
    (
        "--worker_num=32 --local_worker_num=8", ms_operator("MS_SCHED", "job-scheduler-0"), 1,
        part(32, None, "scheduler"), ["pod of ms-operator: the scheduler of 32 workers", "--worker_num", "--local_"],
    ),
    ("--node_rank=0", ascend("MS_WORKER", 1, 2), 2, part(4, 0), ["pod of ", "--node_rank 0 wins over MS_NODE_RANK"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "environ", "processes", "share", "notes"), WORDS)
def test_words_win_and_it_is_said(words: str, environ, processes: int, share: Share, notes: list[str]) -> None:
    request = parse_msrun([*words.split(), "net.py"], environ)
    assert (np(request), request.cluster.share) == (processes, share)
    assert len(request.notes) == len(notes)
    for note, beginning in zip(request.notes, notes):
        assert note.startswith(beginning)


def test_a_number_of_ranks_wins() -> None:
    for words in (["-n", "4"], ["-N", "4"], ["--npernode", "4"]):
        request = parse([*words, "a"], ascend("MS_WORKER", 1))
        assert (np(request), request.cluster.share) == (4, part(16, 4))
        assert request.notes[1] == "-n 4 wins over MS_LOCAL_WORKER, which says 8"
        assert not request.policy.ppr


def test_hydra_starts_one_rank_unless_told() -> None:
    """As ever; so there is a note."""
    request = parse(["a"], ascend("MS_WORKER", 1), "mpiexec.hydra")
    assert (np(request), request.cluster.share) == (1, part(16, 1))
    assert request.notes[1] == "-n 1 wins over MS_LOCAL_WORKER, which says 8"


@pytest.mark.parametrize("workers", [8, 16])
def test_all_workers_here_is_a_job_of_its_own(workers: int) -> None:
    """What msrun_launcher.sh says with 1, 2 and 6 arguments, and msrun does then."""
    line = f"--bind_core=True --worker_num={workers} --local_worker_num={workers} --master_port=8118 --join=True net.py"
    request = parse_msrun(line.split(), ascend("MS_WORKER", 1))
    assert (np(request), request.cluster.share, request.cluster.port) == (workers, None, 8118)
    assert "a job of this pod alone, whatever the Ascend operator says" in request.notes[0]


def test_join_false_is_obeyed_with_a_warning() -> None:
    request = parse_msrun(["--join=False", "net.py"], ascend("MS_WORKER", 1))
    assert request.detach
    assert any("the pod ends as soon as" in note for note in request.notes)
    assert parse_msrun(["net.py"], {}).detach, "elsewhere msrun's default holds"


def test_logs_have_the_name_of_the_role() -> None:
    def log(environ: dict[str, str]) -> str | None:
        return parse_msrun(["--log_dir=logs", "net.py"], environ).output.outfile

    assert log(ascend("MS_SCHED", 0)) == "logs/scheduler.log"
    assert log(ms_operator("MS_PSERVER", "job-ps-1")) == "logs/server_%h.log"
    assert log(ascend("MS_WORKER", 1)) == "logs/worker_%r.log"


def test_a_scheduler_is_bound_as_schedulers_are() -> None:
    def local(word: str) -> LocalBinding | None:
        return parse_msrun([f"--bind_core={word}", "net.py"], ascend("MS_SCHED", 0)).policy.local

    assert local("True") is None
    assert local('{"device0": ["1"]}') is None
    assert local('{"scheduler": ["0"], "device0": ["1"]}') == LocalBinding(cpus=((0,),))


REFUSED = [
    # variables, words, what the message must have
    (ascend("MS_SCHEDULER", 0), "", "MS_ROLE: 'MS_SCHEDULER' is no role"),
    ({**ascend("MS_WORKER", 0), "MS_SCHED_HOST": ""}, "", "MS_SCHED_HOST: it is not set"),
    ({**ascend("MS_WORKER", 0), "MS_SCHED_PORT": "70000"}, "", "MS_SCHED_PORT: there is no port 70000"),
    ({**ascend("MS_WORKER", 0), "MS_WORKER_NUM": "0"}, "", "MS_WORKER_NUM: '0' is no whole number from 1 on"),
    ({**ascend("MS_WORKER", 0), "MS_WORKER_NUM": "many"}, "", "MS_WORKER_NUM: 'many'"),
    ({**ascend("MS_WORKER", 0), "MS_LOCAL_WORKER": "-1"}, "", "MS_LOCAL_WORKER: '-1'"),
    ({**ascend("MS_WORKER", 0), "MS_NODE_RANK": "x"}, "", "MS_NODE_RANK: 'x'"),
    ({**ascend("MS_WORKER", 0), "MS_LOCAL_WORKER": "99"}, "", "MS_LOCAL_WORKER: 99 workers here are more than 16 in"),
    (ascend("MS_WORKER", 2), "", "MS_NODE_RANK: pod 2 would have workers up to 23, but there are 16"),
    (ms_operator("MS_WORKER", "job-worker-4"), "", "MS_NODE_ID: pod 4 would have workers up to 4, but there are 4"),
    ({**ascend("MS_WORKER", 0), "MS_SCHED_HOST": "0.0.0.0"}, "", "MS_SCHED_HOST: 0.0.0.0 stands for all addresses"),
    ({**ascend_torch(0), "LOCAL_WORLD_SIZE": "x"}, "", "LOCAL_WORLD_SIZE: 'x'"),
    ({**ascend_torch(0), "MASTER_PORT": ""}, "", "MASTER_PORT: it is not set"),
    ({**KUBERNETES, "MINDX_TASK_ID": "1", "CM_WORKER_SIZE": "8", "CM_LOCAL_WORKER": "4"}, "", "a job of TensorFlow"),
    (ascend("MS_WORKER", 1), "-n 12", "pod 1 would have workers up to 23"),
    (ascend("MS_WORKER", 1), "-n 1 a : -n 1", "a pod of an operator's job has one program"),
    (ascend("MS_WORKER", 1), "--scheduler 10.0.0.1", "the Ascend operator says where the scheduler is"),
    (ascend("MS_WORKER", 1), "--backend openmpi", "a job of this pod alone"),
    (ascend("MS_WORKER", 1), "--restart group", "cannot start workers of other pods again"),
    (ascend("MS_WORKER", 1), "--map-by ppr:1:core", "add -n N"),
    (ascend("MS_SCHED", 0), "--scheduler-runs light", "the pod's own program is its scheduler"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "words", "message"), REFUSED)
def test_refusals(environ: dict[str, str], words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([*words.split(), "a"], environ)
    assert message in str(caught.value)
    assert "\n" in str(caught.value), "it says what to do"


@given(
    local=st.integers(1, 16),
    pods=st.integers(1, 300),
    operator=st.sampled_from(["ms-operator", "ascend", "torch"]),
)
def test_the_parts_of_all_pods_are_the_job(local: int, pods: int, operator: str) -> None:
    ranks: list[int] = []
    for node in range(pods):
        if operator == "ms-operator":
            local, environ = 1, ms_operator("MS_WORKER", f"a-worker-1-worker-{node}", pods)
        else:
            environ = (
                ascend("MS_WORKER", node, local, pods) if operator == "ascend" else ascend_torch(node, local, pods)
            )
        request = parse(["a"], environ)
        share, here = request.cluster.share, np(request)
        assert share
        assert share.first is not None
        assert share.size == local * pods
        assert not share.master
        ranks += range(share.first, share.first + (here or 0))
    assert ranks == list(range(local * pods))


def test_api_launches_know_their_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """`np` and hosts are known only after the options have been read."""
    from mslaunch import api

    made: list[Request] = []

    def run(request: Request, caller: object) -> None:
        made.append(request)

    monkeypatch.setattr("mslaunch.launcher.launch.run", run)
    api.launch(["a"], np=4, environ=ascend("MS_WORKER", 1))
    api.launch(["a"], hosts="n1,n2", environ=ascend("MS_WORKER", 1))
    assert [request.cluster.share for request in made] == [part(16, 4), None]
    assert callable(main.in_pod)
