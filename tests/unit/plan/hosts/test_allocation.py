"""Allocations: nodes and slots from hostfiles, -H and the cores of this host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, HostfileError, UsageError
from mslaunch.plan.mapping.pipeline import allocate

EXAMPLES = Path(__file__).parents[4] / "hostfiles"
HERE = frozenset(("localhost", "127.0.0.1", "::1", "head0", "head0.cluster.local", "head0.own.org"))


def allocation(
    *apps: AppContext,
    files: Mapping[str, str] | None = None,
    default: str | None = None,
    mca: tuple[tuple[str, str], ...] = (),
    hostname: str = "head0",
) -> Allocation:
    texts = files or {}

    def read_text(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(2, "No such file or directory", path)
        return texts[path]

    return allocate(Request(apps, default_hostfile=default, mca=mca), read_text, HERE.__contains__, hostname, cores=6)


def app(hosts: str | tuple[str, ...] = (), hostfile: str | None = None) -> AppContext:
    return AppContext(("x",), hosts=(hosts,) if isinstance(hosts, str) else hosts, hostfile=hostfile)


def slots(allocation: Allocation) -> list[tuple[str, int | None]]:
    return [(node.name, node.slots) for node in allocation.nodes]


def from_file(text: str, **more: object) -> Allocation:
    return allocation(app(hostfile="hf"), files={"hf": text}, **more)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------- sources


def test_without_hosts_the_allocation_is_this_host() -> None:
    assert allocation(app()) == Allocation((Node("head0", 6, "cores", local=True),), declared=False)


def test_a_hostfile_gives_nodes_and_slots() -> None:
    made = from_file("joe@aa slots=2 port=2222\nbb slots=1 max_slots=3\ncc\n")
    assert made == Allocation(
        (
            Node("aa", 2, "hf:1", user="joe", port=2222),
            Node("bb", 1, "hf:2", max_slots=3),
            Node("cc", None, "hf:3"),
        ),
        declared=True,
    )


def test_hosts_replace_the_hostfile() -> None:
    made = allocation(app("bb,dd:3", "hf"), files={"hf": "aa slots=2\nbb slots=2\n"})
    assert slots(made) == [("bb", 1), ("dd", 3)]
    assert {node.source for node in made.nodes} == {"-H"}


def test_a_hostfile_that_hosts_replace_is_not_even_read() -> None:
    assert slots(allocation(app("bb", "missing"))) == [("bb", 1)]


@pytest.mark.parametrize("named", [app("dd"), app(hostfile="hg")])
def test_the_default_hostfile_counts_only_when_nothing_else_is_said(named: AppContext) -> None:
    files = {"hf": "aa slots=2", "hg": "dd slots=1"}
    assert slots(allocation(app(), files=files, default="hf")) == [("aa", 2)]
    assert slots(allocation(named, files=files, default="hf")) == [("dd", 1)]


@pytest.mark.parametrize("named", [app("dd"), app()])
def test_the_default_hostfile_can_be_none(named: AppContext) -> None:
    """From `ompi_info` of 4.1: "none" ignores the value of the environment or of a parameter file."""
    assert allocation(named, default="none") == allocation(named)


def test_several_hosts_options_are_joined() -> None:
    assert slots(allocation(app(("aa:2", "bb", "aa")))) == [("aa", 3), ("bb", 1)]


# ----------------------------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("aa\naa\naa\nbb\n", [("aa", 3), ("bb", None)]),
        ("aa\naa\nbb\nbb\nbb\naa\n", [("aa", 3), ("bb", 3)]),
        ("aa slots=3\naa\n", [("aa", 4)]),
        ("aa slots=0\nbb slots=1", [("bb", 1)]),
        ("aa max_slots=3", [("aa", 3)]),
        ("aa slots=2\naa max_slots=3\n", [("aa", 3)]),  # a line with only a maximum is a slot more, as a bare one
        ("aa\naa max_slots=5\n", [("aa", 2)]),
        ("aa max_slots=2\naa max_slots=3\n", [("aa", 3)]),
        ("node[1-2]\nnode2", [("node1", None), ("node2", 2)]),
        ("aa.x.org slots=1\nbb", [("aa", 1), ("bb", None)]),
        ("1.2.3.4 slots=1\n1.2.3.5 slots=2\n2001:db8::1 slots=1", [("1.2.3.4", 1), ("1.2.3.5", 2), ("2001:db8::1", 1)]),
    ],
)
def test_repeated_hosts_of_a_hostfile_are_merged(text: str, want: list[tuple[str, int | None]]) -> None:
    assert slots(from_file(text)) == want


def test_default_slots_are_those_of_hosts_for_which_none_are_given() -> None:
    """mpirun 4.1.4, by experiment; mpi-operator and Kubeflow's Trainer set it in their launchers."""
    default = (("orte_set_default_slots", "3"),)
    made = from_file("localhost\naa\nbb slots=2\ncc\ncc\ndd slots=0\n", mca=default)
    assert slots(made) == [("head0", 3), ("aa", 3), ("bb", 2), ("cc", 2)]
    assert [node.source for node in made.nodes[:2]] == ["orte_set_default_slots"] * 2
    assert slots(allocation(app("aa,bb:2"), mca=default)) == [("aa", 1), ("bb", 2)]
    assert slots(allocation(app(), mca=default)) == [("head0", 3)]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("aa\naa slots=3\n", 1, 2),
        ("aa\naa\naa slots=3\n", 1, 3),
        ("aa slots=2\nbb\naa slots=3\n", 1, 3),
        ("aa.x.org slots=1\naa slots=1\n", 1, 2),
        ("localhost slots=1\nhead0 slots=1\n", 1, 2),
        ("n[1-3] slots=1\nn2 slots=1\n", 1, 2),
        ("n[1,1] slots=1\n", 1, 1),
    ],
)
def test_slots_given_twice_are_refused_with_both_lines(text: str, first: int, second: int) -> None:
    with pytest.raises(HostfileError) as caught:
        from_file(text)
    assert caught.value.where == f"hf:{second}"
    assert f"hf:{first}" in caught.value.what
    assert "slots=N" in caught.value.todo


def test_two_hosts_of_one_short_name_are_two_hosts() -> None:
    text = "aa.x.org slots=1\naa.y.org slots=2\n"
    assert slots(from_file(text)) == [("aa", 1), ("aa.y.org", 2)]
    made = from_file(text, mca=(("orte_keep_fqdn_hostnames", "1"),))
    assert slots(made) == [("aa.x.org", 1), ("aa.y.org", 2)]


@pytest.mark.parametrize("named", ["aa.1.foo,aa.2.foo", "aa.1.foo:2,bb,aa.2.foo:2", "aa,aa.1.foo,aa.2.foo"])
def test_two_hosts_of_one_short_name_are_never_taken_for_one(named: str) -> None:
    """mpirun 4.1.4 starts all of these ranks on one of them."""
    for made in (allocation(app(named)), from_file(named.replace(",", "\n").replace(":", " slots="))):
        assert {"aa", "aa.2.foo"} <= {node.name for node in made.nodes}
    assert slots(allocation(app("aa.1.foo:1,aa:1,aa.1.foo:1"))) == [("aa", 3)]


def test_a_host_is_called_as_it_was_typed() -> None:
    made = allocation(app("aa.1.foo,bb,aa.2.foo"))
    assert [(node.name, node.called) for node in made.nodes] == [
        ("aa", "aa.1.foo"),
        ("bb", "bb"),
        ("aa.2.foo", "aa.2.foo"),
    ]


@pytest.mark.parametrize("text", ["aa max_slots=1\naa\n", "aa\naa max_slots=1\n", "aa slots=3\naa max_slots=1\n"])
def test_more_lines_than_max_slots_are_refused(text: str) -> None:
    with pytest.raises(HostfileError, match="more than its max_slots=1"):
        from_file(text)


def test_a_maximum_on_a_later_line_counts() -> None:
    assert from_file("aa\naa max_slots=5\n").nodes == (Node("aa", 2, "hf:1,2", max_slots=5),)


def test_the_source_of_a_host_on_many_lines_stays_short() -> None:
    (node,) = from_file("aa\n" * 5000).nodes
    assert node.slots == 5000
    assert node.source.startswith("hf:1,2,3,")
    assert len(node.source) < 50


def test_the_first_user_and_port_count() -> None:
    made = from_file("aa\njoe@aa\nann@aa port=7\naa port=8\n")
    assert made.nodes == (Node("aa", 4, "hf:1,2,3,4", user="joe", port=7),)


@pytest.mark.parametrize(
    ("hosts", "want"),
    [
        ("aa,aa,bb", [("aa", 2), ("bb", 1)]),
        ("aa:2,aa", [("aa", 3)]),
        ("aa:*,bb", [("aa", None), ("bb", 1)]),
        ("aa:auto,aa", [("aa", None)]),
        ("aa.cluster.local,aa", [("aa", 2)]),
        ("localhost,head0,127.0.0.1", [("head0", 3)]),
        ("aa:0,bb", [("bb", 1)]),
    ],
)
def test_repeated_hosts_of_an_option_add_up(hosts: str, want: list[tuple[str, int | None]]) -> None:
    assert slots(allocation(app(hosts))) == want


# --------------------------------------------------------------------------------------------------------- this host


@pytest.mark.parametrize("name", sorted(HERE))
def test_every_name_of_this_host_is_one_local_node(name: str) -> None:
    made = from_file(f"{name} slots=2")
    assert made.nodes == (Node("head0", 2, "hf:1", local=True),)


@pytest.mark.parametrize("apps", [(app("aa,localhost,bb"),), (app(hostfile="hf"),)])
def test_this_host_is_node_0_whatever_its_line(apps: tuple[AppContext, ...]) -> None:
    made = allocation(*apps, files={"hf": "aa slots=2\nlocalhost slots=1\nbb slots=1\n"})
    assert [(node.name, node.local) for node in made.nodes] == [("head0", True), ("aa", False), ("bb", False)]


def test_the_cores_of_this_host_need_no_agent() -> None:
    assert from_file("localhost").nodes == (Node("head0", 6, "cores of head0", local=True),)
    assert slots(allocation(app("localhost:*"))) == [("head0", 6)]


def test_a_host_name_with_a_domain_is_this_host_too() -> None:
    made = from_file("head0 slots=1", hostname="head0.cluster.local")
    assert made.nodes == (Node("head0.cluster.local", 1, "hf:1", local=True),)


def test_a_name_that_is_this_host_but_for_its_domain_is_this_host() -> None:
    """If the name service does not say otherwise: only `is_local` can know."""
    for mca in ((), (("orte_keep_fqdn_hostnames", "true"),)):
        ours = from_file("head0.own.org slots=1\n", mca=mca)
        assert ours.nodes == (Node("head0", 1, "hf:1", local=True),)
        other = from_file("head0.x.org slots=1\n", mca=mca)
        assert other.nodes == (Node("head0.x.org", 1, "hf:1"),)


def test_cores_of_other_hosts_arrive_with_hello() -> None:
    made = from_file("aa\nbb slots=2\ncc\n")
    assert made.with_cores({"aa": 4, "bb": 64}).nodes == (
        Node("aa", 4, "cores of aa"),
        Node("bb", 2, "hf:2"),
        Node("cc", None, "hf:3"),
    )


# ------------------------------------------------------------------------------------------------- several programs


def test_each_program_has_its_own_hosts() -> None:
    made = allocation(app("aa"), app("localhost,bb"), app())
    assert slots(made) == [("head0", 1), ("aa", 1), ("bb", 1)]
    assert made.apps == ((1,), (0, 2), (0, 1, 2))


def test_programs_may_share_hosts() -> None:
    files = {"hf": "aa slots=2\nbb slots=2"}
    made = allocation(app(hostfile="hf"), app(hostfile="hf"), app(), files=files)
    assert slots(made) == [("aa", 2), ("bb", 2)]
    assert made.apps == ()


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [("aa:2", "aa:3", 3), ("aa:3", "aa:2", 2), ("aa", "aa", 1), ("aa:9", "aa:*", 9), ("aa:*", "aa:9", 9)],
)
def test_of_several_options_the_last_to_name_slots_counts(first: str, second: str, want: int) -> None:
    assert slots(allocation(app(first), app(second))) == [("aa", want)]


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        ("bb slots=1", "bb slots=3", 1),
        ("bb slots=3", "bb slots=1", 3),
        ("bb", "bb slots=5", None),
        ("bb slots=5", "bb", 5),
    ],
)
def test_of_several_hostfiles_the_first_to_name_a_host_counts(first: str, second: str, want: int | None) -> None:
    made = allocation(app(hostfile="hf"), app(hostfile="hg"), files={"hf": first, "hg": second})
    assert slots(made) == [("bb", want)]


def test_an_option_counts_before_hostfiles() -> None:
    files = {"hf": "joe@aa slots=3 max_slots=4\nbb slots=1\n"}
    made = allocation(app(hostfile="hf"), app("bb:3,aa"), files=files)
    assert slots(made) == [("bb", 3), ("aa", 1)]
    assert (made.nodes[1].user, made.nodes[1].max_slots, made.nodes[1].source) == ("joe", None, "-H")


def test_a_file_of_a_thousand_programs_takes_no_longer() -> None:
    """Each names the same hostfile; 1000 programs on 1000 hosts took 3.5 s."""
    programs = tuple(app(hostfile="hf") for _ in range(1000))
    begin = time.process_time()
    assert allocation(*programs, files={"hf": "node[1-1000] slots=1"}).apps == ()
    assert time.process_time() - begin < 1


def test_a_hostfile_of_two_programs_is_read_once() -> None:
    read: list[str] = []

    def read_text(path: str) -> str:
        read.append(path)
        return "aa"

    request = Request((app(hostfile="hf"), app(hostfile="hf")))
    made = allocate(request, read_text, HERE.__contains__, "head0", 1)
    assert slots(made) == [("aa", None)]
    assert read == ["hf"]


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("apps", [(app(hostfile="hf"),), (app(","),), (app(("", " ")),)])
def test_an_empty_allocation_is_refused(apps: tuple[AppContext, ...]) -> None:
    with pytest.raises(AllocationError, match="no host is named") as caught:
        allocation(*apps, files={"hf": "# none\n"})
    assert caught.value.todo


@pytest.mark.parametrize("apps", [(app(hostfile="hf"),), (app("aa:0"),), (app("bb"), app("aa:0"))])
def test_an_allocation_without_slots_is_refused(apps: tuple[AppContext, ...]) -> None:
    with pytest.raises(AllocationError, match="all nodes are filled: aa has 0 slots"):
        allocation(*apps, files={"hf": "aa slots=0\n"})


def raising(error: Exception) -> Callable[[str], str]:
    def read_text(path: str) -> str:
        raise error

    return read_text


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileNotFoundError(2, "No such file or directory", "hf"), "there is no file hf"),
        (IsADirectoryError(21, "Is a directory", "hf"), "hf is a directory"),
        (PermissionError(13, "Permission denied", "hf"), "hf cannot be read: Permission denied"),
        (OSError(5, "Input/output error", "hf"), "hf cannot be read: Input/output error"),
        (UnicodeDecodeError("utf-8", b"aa\xff", 2, 3, "invalid start byte"), "hf is not text (byte 2)"),
        (ValueError("embedded null byte"), "hf cannot be read: embedded null byte"),
    ],
)
@pytest.mark.parametrize("option", ["--hostfile", "--default-hostfile"])
def test_an_unreadable_hostfile_is_refused(error: Exception, why: str, option: str) -> None:
    request = Request((app(hostfile="hf"),)) if option == "--hostfile" else Request((app(),), default_hostfile="hf")
    with pytest.raises(HostfileError) as caught:
        allocate(request, raising(error), HERE.__contains__, "head0", 1)
    assert caught.value.what == why
    assert caught.value.where == option
    assert caught.value.todo


def test_errors_of_the_hostfile_are_reported() -> None:
    with pytest.raises(UsageError):
        allocation(app("aa:x"))
    with pytest.raises(HostfileError, match="hf:1"):
        from_file("aa slots=x")


@pytest.mark.parametrize("path", sorted(p for p in EXAMPLES.iterdir() if p.is_file()), ids=lambda p: p.name)
def test_every_example_makes_an_allocation(path: Path) -> None:
    assert from_file(path.read_text(encoding="utf-8")).nodes


def test_the_bad_example_for_allocations() -> None:
    text = (EXAMPLES / "bad" / "two-definitions").read_text(encoding="utf-8")
    with pytest.raises(HostfileError) as caught:
        from_file(text)
    assert text.startswith(f"# expect {caught.value.where.partition(':')[2]}: ")
    assert "node1 gets its slots a second time" in caught.value.what


# ------------------------------------------------------------------------------------------- relative hosts, exclusions

THREE = "aa slots=2\nbb slots=3 username=joe\nlocalhost slots=4\n"


@pytest.mark.parametrize(
    ("hosts", "want"),
    [
        ("+n0", [("head0", 4)]),  # this host is number 0, whatever its line
        ("+n1", [("aa", 2)]),
        ("+n2,+n1,+n2", [("aa", 2), ("bb", 3)]),  # once each, in the order of the file
        ("+e", [("head0", 4), ("aa", 2), ("bb", 3)]),
        ("+e:2", [("head0", 4), ("aa", 2)]),
        ("dd:5,+n1", [("dd", 5), ("aa", 2)]),
        ("^aa", [("head0", 4), ("bb", 3)]),
        ("^localhost,^bb", [("aa", 2)]),
        ("aa,dd:3,^aa", [("dd", 3)]),
        ("+e,^bb", [("head0", 4), ("aa", 2)]),
    ],
)
def test_relative_hosts_are_those_of_the_hostfile(hosts: str, want: list[tuple[str, int]]) -> None:
    assert slots(allocation(app(hosts, "hf"), files={"hf": THREE})) == want
    assert slots(allocation(app(hosts), files={"hf": THREE}, default="hf")) == want


def test_a_relative_host_has_the_properties_of_its_line() -> None:
    (node,) = allocation(app("+n2", "hf"), files={"hf": THREE}).nodes
    assert (node.user, node.source) == ("joe", "hf:2")


@pytest.mark.parametrize("named", [app(hostfile="hf"), app("+n1", "hf"), app("+n0")])
def test_relative_hosts_may_be_in_the_hostfile_of_another_program(named: AppContext) -> None:
    made = allocation(named, app("+n2"), app("dd", "hf"), files={"hf": THREE, "hg": "zz"}, default="hg")
    assert made.apps[1] == ([node.name for node in made.nodes].index("bb"),)


def test_relative_hosts_prefer_the_hostfile_of_their_program() -> None:
    made = allocation(app(hostfile="hg"), app("+n1", "hf"), files={"hf": THREE, "hg": "zz slots=1"})
    assert slots(made) == [("zz", 1), ("aa", 2)]


def test_relative_hosts_without_a_hostfile_are_this_host() -> None:
    assert slots(allocation(app("+n0"))) == [("head0", 6)]
    assert slots(allocation(app("+e"))) == [("head0", 6)]


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ("+n3", "there is no host number 3, counted from 0"),
        ("+e:4", "4 hosts asked for, 3 hosts named"),
        ("+n4,^aa", "there is no host number 4"),
        ("^dd", "dd cannot be left out"),
        ("aa,^bb", "bb cannot be left out"),
        ("^aa,^bb,^localhost", "no host is named"),
    ],
)
def test_relative_hosts_outside_the_hostfile_are_refused(hosts: str, why: str) -> None:
    with pytest.raises(AllocationError) as caught:
        allocation(app(hosts, "hf"), files={"hf": THREE})
    assert why in caught.value.what
    assert caught.value.todo


def test_more_relative_hosts_than_exist_are_refused() -> None:
    with pytest.raises(AllocationError, match="2 hosts asked for, 1 host named"):
        allocation(app("+e:2"))


def test_an_exclusion_without_a_hostfile_is_refused() -> None:
    """4.1.4 fails with any ^, after it has contacted the host."""
    with pytest.raises(AllocationError):
        allocation(app("^aa"))


# ------------------------------------------------------------------------------------------------------------ sequences


def sequences(*apps: AppContext, default: str | None = None) -> list[list[str]]:
    """--map-by seq: the hosts line by line, by name."""
    request = Request(apps, Policy("seq"), default_hostfile=default)
    files = {"hf": "bb\naa\nbb\n", "hg": "cc slots=2\nlocalhost\n"}
    made = allocate(request, files.__getitem__, HERE.__contains__, "head0", 6)
    return [[made.nodes[node].name for node in one] for one in made.sequences]


def test_sequences_keep_order_and_repetitions() -> None:
    assert sequences(app(hostfile="hf")) == [["bb", "aa", "bb"]]
    assert sequences(app("aa,localhost,aa:3")) == [["aa", "head0", "aa"]]
    assert sequences(app("+n1,+n0,+n1", "hf")) == [["aa", "bb", "aa"]]
    assert sequences(app("aa,bb,aa,^aa")) == [["bb"]]
    assert sequences(app(hostfile="hg"), app("aa")) == [["cc", "head0"], ["aa"]]


def test_a_program_without_hosts_has_no_sequence_of_its_own() -> None:
    assert sequences(app(hostfile="hf"), app()) == [["bb", "aa", "bb"], []]
    assert sequences(app(), app(), default="hf") == [["bb", "aa", "bb"], []]


def test_only_seq_needs_sequences() -> None:
    assert allocation(app("aa,bb")).sequences == ()


# ------------------------------------------------------------------------------------------------------------ spares


def spares(allocation: Allocation) -> list[tuple[str, int | None]]:
    assert all(node.spare for node in allocation.spares)
    assert not any(node.spare for node in allocation.nodes)
    return [(node.name, node.slots) for node in allocation.spares]


def test_spares_are_kept_out_of_the_allocation() -> None:
    made = from_file("aa slots=2\nbb slots=3 spare\nlocalhost\ncc spare\ndd slots=0 spare\n")
    assert slots(made) == [("head0", 6), ("aa", 2)]
    assert spares(made) == [("bb", 3), ("cc", None)]


def test_a_host_is_a_spare_if_one_of_its_lines_says_so() -> None:
    assert spares(from_file("zz\naa slots=2\naa spare\nbb spare\nbb")) == [("aa", 3), ("bb", 2)]


def test_a_spare_that_is_named_elsewhere_is_used() -> None:
    made = allocation(app("bb:2"), app(hostfile="hf"), files={"hf": "aa\nbb spare\ncc spare\n"})
    assert slots(made) == [("bb", 2), ("aa", None)]
    assert spares(made) == [("cc", None)]
    one = allocation(app(hostfile="h1"), app(hostfile="h2"), files={"h1": "aa\nbb spare\n", "h2": "bb slots=3\n"})
    assert [name for name, _ in slots(one)] == ["aa", "bb"]


def test_relative_hosts_skip_spares() -> None:
    files = {"hf": "aa slots=1\nbb slots=1 spare\ncc slots=1\n"}
    assert slots(allocation(app("+n1", "hf"), files=files)) == [("cc", 1)]
    assert slots(allocation(app("+e", "hf"), files=files)) == [("aa", 1), ("cc", 1)]
    left = allocation(app("^aa", "hf"), files=files)
    assert (slots(left), spares(left)) == ([("cc", 1)], [("bb", 1)])
    assert spares(allocation(app("^bb", "hf"), files=files)) == []


@pytest.mark.parametrize("text", ["aa spare\n", "aa slots=2 spare\nbb slots=0\n"])
def test_a_hostfile_with_only_spares_is_refused(text: str) -> None:
    with pytest.raises(AllocationError) as caught:
        from_file(text)
    assert caught.value.what == "all hosts are spares: aa"
    assert caught.value.where == "hf:1"


def test_a_program_with_only_spares_is_refused() -> None:
    with pytest.raises(AllocationError, match="all hosts are spares"):
        allocation(app("aa"), app(hostfile="hf"), files={"hf": "bb spare\n"})


def test_spares_beside_a_rankfile() -> None:
    files = {"hf": "aa slots=1\nbb slots=1 spare\ncc slots=2 spare\n", "rf": "rank 0=aa slot=0\nrank 1=bb slot=0\n"}
    request = Request((app(hostfile="hf"),), policy=Policy(rankfile="rf"))
    made = allocate(request, files.__getitem__, HERE.__contains__, "head0", 6)
    assert [node.name for node in made.nodes] == ["aa", "bb"]
    assert spares(made) == [("cc", 2)]
