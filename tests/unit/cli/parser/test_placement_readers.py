"""Options of placement and binding, and combinations that contradict each other."""

from __future__ import annotations

import pytest
from command_lines import parse
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli.parser import placement_readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.datamodel.request import Policy
from mslaunch.errors import UsageError


def policy(*words: str) -> Policy:
    return parse([*words, "prog"], {}).policy


def refusal(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"], {})
    return caught.value


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((level, Policy(map_by=level)) for level in ("slot", "node", "seq", *LEVELS)),
        ("NODE", Policy(map_by="node")),
        ("nod", Policy(map_by="node")),
        ("s", Policy(map_by="slot")),  # the first one, as in mpirun
        ("n", Policy(map_by="node")),
        ("", Policy(map_by="slot")),
        ("L2", Policy(map_by="l2cache")),
        ("L3Cache", Policy(map_by="l3cache")),
        ("hwt", Policy(map_by="hwthread")),
        ("package", Policy(map_by="socket")),
        ("sequential", Policy(map_by="seq")),
        ("slot:", Policy(map_by="slot")),
        ("slot:PE=2", Policy(map_by="slot", pe=2)),
        (":pe=3", Policy(pe=3)),
        (":OVERSUBSCRIBE", Policy(oversubscribe=True)),
        ("slot:over", Policy(map_by="slot", oversubscribe=True)),
        ("node:NoOversubscribe", Policy(map_by="node", oversubscribe=False)),
        ("socket:SPAN,PE=2,OVERSUBSCRIBE", Policy(map_by="socket", span=True, pe=2, oversubscribe=True)),
        ("package:span:pe=2:oversubscribe", Policy(map_by="socket", span=True, pe=2, oversubscribe=True)),  # 5.0
        ("slot:NOLOCAL", Policy(map_by="slot", nolocal=True)),
        ("core:HWTCPUS", Policy(map_by="core", hwthread_cpus=True)),
        ("core:CORECPUS:INHERIT:noinherit", Policy(map_by="core")),
        ("ppr:2:node", Policy(map_by="ppr", ppr=((2, "node"),))),
        ("PPR:2:Socket:PE=2", Policy(map_by="ppr", ppr=((2, "socket"),), pe=2)),
        ("ppr:1:skt", Policy(map_by="ppr", ppr=((1, "socket"),))),
        ("ppr:1:package", Policy(map_by="ppr", ppr=((1, "socket"),))),
        ("ppr:1:thread", Policy(map_by="ppr", ppr=((1, "hwthread"),))),
        ("ppr:1:l3", Policy(map_by="ppr", ppr=((1, "l3cache"),))),
        ("ppr:4:node,1:numa:OVERSUBSCRIBE", Policy("ppr", ((4, "node"), (1, "numa")), oversubscribe=True)),
        ("dist:mlx5_0", Policy(map_by="dist")),
        ("dist:span,eth0", Policy(map_by="dist", span=True)),
        ("distance:device=eth0", Policy(map_by="dist")),
        ("rankfile:file=r,1", Policy(rankfile="r,1")),
        ("rankfile:FILE=r:oversubscribe", Policy(rankfile="r", oversubscribe=True)),
        ("pe-list=0,2-3", Policy(map_by="slot", cpu_set="0,2-3")),
        ("PE-LIST=0,2:ordered", Policy(map_by="slot", cpu_set="0,2", bind_to="cpu-list:ordered")),
        ("node:pe-list=0,2:span", Policy(map_by="node", cpu_set="0,2", span=True)),
    ],
)
def test_map_by_is_read(word, expected):
    assert policy("--map-by", word) == expected


def test_seq_takes_a_hostfile():
    request = parse(["--map-by", "seq:file=h", "prog"], {})
    assert (request.policy, request.apps[0].hostfile) == (Policy(map_by="seq"), "h")


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("slto", "did you mean slot?"),
        ("sockets", "did you mean socket?"),
        ("nowhere", "ppr:N:OBJECT"),
        (":foo", "the modifiers PE=N"),
        ("slot:OVRSUBSCRIBE", "did you mean oversubscribe?"),
        ("slot:PE", "PE=N"),
        ("slot:PE=x", "whole number"),
        ("slot:PE=0", "1 or more"),
        ("slot:color=red", "the modifiers PE=N"),
        ("slot:file=f", "seq or rankfile"),
        ("slot:device=f", "after dist"),
        ("node:ordered", "the modifiers PE=N"),
        ("ppr", "ppr:N:OBJECT"),
        ("ppr:1", "such as ppr:2:socket"),
        ("ppr:0:node", "1 or more"),
        ("ppr:x:node", "whole number"),
        ("ppr:1:foo", "for OBJECT"),
        ("ppr:1:sockt", "did you mean socket?"),
        ("ppr:1:node,2", "such as ppr:2:socket"),
        ("ppr:1:node:foo", "the modifiers PE=N"),
        ("rankfile", "rankfile:file=FILE"),
        ("rankfile:file=", "not empty"),
        ("pe-list=", "such as 0,2-3"),
    ],
)
def test_map_by_refuses_bad_words(word, phrase):
    error = refusal("--map-by", word)
    assert error.where == "--map-by"
    assert repr(word) in error.what
    assert phrase in str(error)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("slot", ("slot", "")),
        ("NO", ("node", "")),
        ("core:SPAN", ("core", "span")),
        ("package:fill", ("socket", "fill")),
        ("numa:f", ("numa", "fill")),
        ("l1", ("l1cache", "")),
        ("fill", ("", "fill")),
        ("SPAN", ("", "span")),
    ],
)
def test_rank_by_is_read(word, expected):
    assert policy("--rank-by", word) == Policy(rank_by=expected[0], rank_how=expected[1])


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("seq", "slot, node"),
        ("cpre", "did you mean core?"),
        ("core:foo", "SPAN or FILL"),
        ("fill:span", "fill without span"),
    ],
)
def test_rank_by_refuses_bad_words(word, phrase):
    assert phrase in str(refusal("--rank-by", word))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((level, Policy(bind_to=level)) for level in ("none", *LEVELS)),
        ("CORE", Policy(bind_to="core")),
        ("l3", Policy(bind_to="l3cache")),
        ("package", Policy(bind_to="socket")),
        ("cpulist", Policy(bind_to="cpu-list")),
        ("cpu-list:ordered", Policy(bind_to="cpu-list:ordered")),
        ("core:overload-allowed", Policy(bind_to="core", overload=True)),
        ("core:over", Policy(bind_to="core", overload=True)),
        ("core:oversubscribe-allowed,if-supported", Policy(bind_to="core", overload=True, if_supported=True)),
        ("core:overload:no-overload", Policy(bind_to="core")),
        (":if", Policy(if_supported=True)),
        ("none:overload-allowed", Policy(bind_to="none", overload=True)),
    ],
)
def test_bind_to_is_read(word, expected):
    assert policy("--bind-to", word) == expected


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("", "none, hwthread"),
        ("cores", "did you mean core?"),
        ("c", "none, hwthread"),  # core or cpu-list
        ("nonexx", "did you mean none?"),
        ("core:foo", "overload-allowed, if-supported or report"),
        ("core:overlaod", "did you mean overload-allowed?"),
        ("core:ordered", "overload-allowed, if-supported or report"),
    ],
)
def test_bind_to_refuses_bad_words(word, phrase):
    assert phrase in str(refusal("--bind-to", word))


@pytest.mark.parametrize("word", ["0", "0,2-3", "0:1", "S0;1:0-1", " 0, 1 ", "0:*"])
def test_cpu_lists_are_not_checked_against_the_machine(word):
    assert policy("--cpu-list", word).cpu_set == word


@pytest.mark.parametrize("word", ["", "x", "0..2", "-", ",", "0x1", "all"])
def test_malformed_cpu_lists_are_refused(word):
    assert "such as 0,2-3" in str(refusal("--cpu-set", word))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--map-by node --map-by slot", Policy(map_by="slot")),  # the last one, as in mpirun
        ("--map-by ppr:2:node --map-by slot", Policy(map_by="slot")),
        ("--bind-to core --bind-to none", Policy(bind_to="none")),
        ("--map-by node --bynode", Policy(map_by="node", rank_by="node")),
        ("--ppr 1:node --map-by ppr:1:node", Policy(map_by="ppr", ppr=((1, "node"),))),
        ("--bind-to-core --bind-to core", Policy(bind_to="core")),
        ("--map-by slot:OVERSUBSCRIBE --oversubscribe", Policy(map_by="slot", oversubscribe=True)),
        ("--cpus-per-proc 2 --map-by slot:PE=2", Policy(map_by="slot", pe=2)),
        ("-N 1 -npernode 2", Policy(map_by="ppr", ppr=((2, "node"),))),
        ("-N 2 --map-by :OVERSUBSCRIBE", Policy(map_by="ppr", ppr=((2, "node"),), oversubscribe=True)),
        ("-rf r --bind-to core", Policy(rankfile="r", bind_to="core")),
    ],
)
def test_consistent_options_may_be_combined(words, expected):
    request = parse([*words.split(), "prog"], {})
    assert (request.policy, request.notes) == (expected, ())


@pytest.mark.parametrize(
    ("words", "where", "other"),
    [
        ("--map-by slot --bynode", "--bynode", "--map-by"),
        ("-bynode --byslot", "--byslot", "-bynode"),
        ("--bynode --rank-by slot", "--rank-by", "--bynode"),
        ("--ppr 1:node --map-by slot", "--map-by", "--ppr"),
        ("--bind-to none -bind-to-core", "-bind-to-core", "--bind-to"),
        ("--bind-to-core --bind-to-socket", "--bind-to-socket", "--bind-to-core"),
        ("--oversubscribe --nooversubscribe", "--nooversubscribe", "--oversubscribe"),
        ("--oversubscribe --map-by :NOOVERSUBSCRIBE", "--map-by", "--oversubscribe"),
        ("--cpus-per-proc 2 --map-by slot:PE=3", "--map-by", "--cpus-per-proc"),
        ("--cpu-set 0 --cpu-list 1", "--cpu-list", "--cpu-set"),
        ("-rf r --map-by slot", "-rf", "--map-by"),
        ("-rf r -N 2", "-rf", "-N"),
        ("-N 2 -pernode", "-pernode", "-N"),
        ("-N 2 -npersocket 1", "-npersocket", "-N"),
    ],
)
def test_contradicting_options_are_refused(words, where, other):
    error = refusal(*words.split())
    assert error.where == where
    assert other in error.what


def test_programs_share_their_placement():
    words = ["--map-by", "slot", "a", ":", "--bynode", "b"]
    with pytest.raises(UsageError, match="contradicts --map-by"):
        parse(words, {})


@pytest.mark.parametrize(
    ("words", "expected", "notes"),
    [
        ("--bind-to core a : --bind-to none b", Policy(bind_to="none"), 1),
        ("--map-by node a : --map-by slot b : --map-by slot c", Policy(map_by="slot"), 1),
        ("-N 1 a : -N 2 b", Policy(map_by="ppr", ppr=((2, "node"),)), 1),
        ("--bind-to core a : --bind-to core b", Policy(bind_to="core"), 0),
    ],
)
def test_the_placement_of_the_last_program_counts_with_a_notice(words, expected, notes):
    request = parse(words.split(), {})
    assert request.policy == expected
    assert len(request.notes) == notes
    assert all("acts on all programs" in note for note in request.notes)


@pytest.mark.parametrize(
    ("words", "expected", "notes"),
    [
        ("-N 2 --map-by node", Policy("node", ((2, "node"),)), 0),
        ("--map-by slot:PE=2 -npernode 2", Policy("slot", ((2, "node"),), pe=2), 0),
        ("-npersocket 2 --bycore", Policy("core", ((2, "socket"),), rank_by="core"), 0),
        ("-N 2 --map-by ppr:1:core", Policy("ppr", ((1, "core"),)), 1),
        ("-N 2 --map-by ppr:2:node", Policy(map_by="ppr", ppr=((2, "node"),)), 0),
    ],
)
def test_map_by_and_n_go_together_except_with_ppr(words, expected, notes):
    request = parse([*words.split(), "prog"], {})
    assert request.policy == expected
    assert len(request.notes) == notes
    for note in request.notes:
        assert "has no effect beside" in note
        assert "--map-by ppr:2:" in note


def test_options_override_the_environment_silently():
    environ = {"OMPI_MCA_rmaps_base_mapping_policy": "slot", "OMPI_MCA_hwloc_base_binding_policy": "core"}
    request = parse(["-N", "2", "--bind-to", "none", "prog"], environ)
    assert request.policy == Policy(map_by="ppr", ppr=((2, "node"),), bind_to="none")
    assert request.notes == ()


@given(
    st.text(max_size=12)
    | st.lists(st.sampled_from(["slot", "node", "ppr", "2", ":", ",", "=", "pe", "span", "file"]), max_size=6).map(
        "".join
    )
)
def test_any_text_is_read_or_refused(word):
    for read in (placement_readers.map_by, placement_readers.rank_by, placement_readers.bind_to, placement_readers.ppr):
        try:
            settings = read(word)
        except Expected as error:
            assert error.what
            continue
        assert all(path.startswith(("policy.", "app.hostfile")) for path, _ in settings)
