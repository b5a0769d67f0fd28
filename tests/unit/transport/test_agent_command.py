"""The words that start an agent by a program of the user's: mpirun's form, places in the words, and kubexec.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import UsageError
from mslaunch.transport.agent_command import AgentCommand
from mslaunch.transport.base import Link, OpenContext
from mslaunch.transport.rsh_program import open_by_rsh

COMMAND = "exec python3 -c 'x y'"
IN_POD = ["pod-0", "--", "/bin/sh", "-c", COMMAND]
KUBEXEC = """#!/bin/sh
set -x
POD_NAME=$1
shift
/opt/kube/kubectl exec ${POD_NAME}%s -- /bin/sh -c "$*"
"""


def argv(agent: str, *args: str, user: str | None = None, port: int | None = None) -> list[str]:
    policy = LinkPolicy(agent=tuple(agent.split()), agent_args=args)
    return AgentCommand(policy).argv(Node("pod-0", 1, "", user=user, port=port), COMMAND)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("rsh", ["rsh", "pod-0", COMMAND]),
        ("kubectl exec -i", ["kubectl", "exec", "-i", *IN_POD]),
        ("/opt/kubectl -n ns exec -i -c main", ["/opt/kubectl", "-n", "ns", "exec", "-i", "-c", "main", *IN_POD]),
        ("oc exec -i", ["oc", "exec", "-i", *IN_POD]),
        ("docker exec -i", ["docker", "exec", "-i", "pod-0", "/bin/sh", "-c", COMMAND]),
        ("podman exec -i", ["podman", "exec", "-i", "pod-0", "/bin/sh", "-c", COMMAND]),
        ("kubectl exec -i pod/{host} -- bash -c {command}",
         ["kubectl", "exec", "-i", "pod/pod-0", "--", "bash", "-c", COMMAND]),
        ("my-run --on={host} {command} --", ["my-run", "--on=pod-0", COMMAND, "--"]),
    ],
)  # fmt: skip
def test_the_places_of_host_and_command(agent: str, words: list[str]) -> None:
    assert argv(agent) == words


def test_mpiruns_form_has_arguments_users_and_ssh_alone_ports() -> None:
    assert argv("ssh -q", "-x", user="joe", port=22) == ["ssh", "-q", "-x", "-p", "22", "joe@pod-0", COMMAND]
    assert argv("rsh", "-x", user="joe", port=22) == ["rsh", "-x", "joe@pod-0", COMMAND]


@pytest.mark.parametrize("agent", ["run {host}", "run {command}", "run {host} x{command}"])
def test_one_place_without_the_other_is_refused(agent: str) -> None:
    with pytest.raises(UsageError) as caught:
        argv(agent)
    assert caught.value.where == "--rsh-agent"
    assert "{host} -- sh -c {command}" in caught.value.todo


def test_arguments_without_a_place_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        argv("kubectl exec -i", "-o", "ConnectTimeout=1")
    assert "ConnectTimeout=1" in caught.value.what


@pytest.mark.parametrize(("more", "words"), [("", []), (" --container main", ["--container", "main"])])
def test_the_script_of_mpi_operator_gets_an_input(more: str, words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "kubexec.sh"
    script.write_text(KUBEXEC % more)
    assert argv(str(script)) == ["/opt/kube/kubectl", "exec", "-i", "pod-0", *words, *IN_POD[1:]]


@pytest.mark.parametrize("text", ["", "#!/bin/sh\nexec rsh $*\n", 'kubectl exec ${POD_NAME} -- sh -c "$*" &\n', "'"])
def test_another_script_of_that_name_is_run_as_it_is(text: str, tmp_path: Path) -> None:
    script = tmp_path / "kubexec.sh"
    assert argv(str(script)) == [str(script), "pod-0", COMMAND]
    script.write_text(text)
    assert argv(str(script)) == [str(script), "pod-0", COMMAND]


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("ssh", False),
        ("docker exec -i", False),
        ("my-run {host} {command}", False),
        ("kubectl exec -i", True),
        ("sudo /opt/bin/oc exec -i {host} -- sh -c {command}", True),
    ],
)
def test_only_what_may_lose_a_question_gets_the_program_unasked(words: str, lost: bool) -> None:
    """Elsewhere a start-up file of a slow login might read it."""
    opened: list[Link] = []
    policy = LinkPolicy(agent=tuple(words.split()))
    context = OpenContext(policy, {}, str, opened.append, pytest.fail, None, [])  # type: ignore[arg-type]
    open_by_rsh([Node("pod-0", 1, "")], context)
    assert (opened[0].unasked > 0) is lost
    opened[0].close()


@given(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1))
def test_a_command_is_one_word_whatever_it_holds(command: str) -> None:
    policy = LinkPolicy(agent=("kubectl", "exec", "-i"))
    assert AgentCommand(policy).argv(Node("pod-0", 1, ""), command)[-1] == command


def test_a_shell_reads_what_a_template_of_ours_makes() -> None:
    words = argv("env POD={host} sh -c {command}")
    words[-1] = "echo $POD 'a  b'"
    assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout == "pod-0 a  b\n"
