"""What differs from rank to rank in arguments: --fill, and the plans where each rank has its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import AppPlan, RankId, RankPlan
from mslaunch.datamodel.request import AppContext
from mslaunch.errors import UsageError
from mslaunch.frameworks.contract import RankInfo
from mslaunch.plan.rank_patterns import check_names, filler, with_own_arguments

PLACE = RankInfo(5, 8, 1, 2, 2, 4, 8, "10.0.0.1", 2345, 8118)
KNOWN = {
    "rank": "5", "size": "8", "local_rank": "1", "local_size": "2", "node_rank": "2", "nnodes": "4",
    "master_addr": "10.0.0.1", "master_port": "2345", "hosts": "a,b",
}  # fmt: skip
fill = filler(["a", "b"])


@pytest.mark.parametrize("name", KNOWN)
def test_a_name_is_replaced_by_its_value_and_stays_in_two_braces(name: str) -> None:
    check_names([AppContext(("x", f"{{{name}}}"))])
    assert fill(f"--a={{{name}}},{{{{{name}}}}}", PLACE) == f"--a={KNOWN[name]},{{{name}}}"
    assert fill(f"{{{{{{{name}}}}}}}", PLACE) == f"{{{KNOWN[name]}}}", "a value in braces"


def test_a_variable_of_a_shell_is_the_shells_own() -> None:
    words = ["echo ${rank} ${any_name} $rank", "a=${size}{size}", "${{rank}} ${{any_name}}"]
    check_names([AppContext(("sh", "-c", word)) for word in words])
    assert [fill(word, PLACE) for word in words] == [
        "echo ${rank} ${any_name} $rank",
        "a=${size}8",
        "${rank} ${any_name}",
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                "{rank}",
                "{{rank}}",
                "{{{rank}}}",
                "${rank}",
                "{hosts}",
                "{",
                "}",
                '"a":',
                "$(rank)",
                "{ rank }",
                "%r",
                "{}",
            ]
        )
    )
)
def test_other_braces_are_nothing_special(parts: list[str]) -> None:
    """Each name by itself, whatever stands around it, but for a brace that makes two of one."""
    word = " ".join(parts)
    values = {"{rank}": "5", "{{rank}}": "{rank}", "{{{rank}}}": "{5}", "{hosts}": "a,b"}
    assert fill(word, PLACE) == " ".join(values.get(part, part) for part in parts)
    check_names([AppContext(("x", word))])


@given(st.text(st.characters(exclude_characters="{"), max_size=40))
def test_a_word_without_a_brace_is_itself(word: str) -> None:
    assert fill(word, PLACE) == word


@pytest.mark.parametrize("word", ["{rnak}", "{{{rnak}}}", "--x={RANK}{world}", '{"a":{b}}'])
def test_a_name_that_stands_for_nothing_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="stands for nothing") as refused:
        check_names([AppContext(("{any}", word))])
    assert "{{" in refused.value.todo and "{master_addr}" in refused.value.todo


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=12))
def test_ranks_with_equal_arguments_share_a_program(rows: list[tuple[int, int]]) -> None:
    apps = (AppPlan(("{node_rank}", "-k", "{node_rank}"), "/w"), AppPlan(("same",), "/v"))
    ranks = tuple(RankPlan(RankId(number), app, ()) for number, (app, _) in enumerate(rows))
    places = [PLACE._replace(rank=number, node=node) for number, (_, node) in enumerate(rows)]
    made, programs = with_own_arguments(fill, places, ranks, apps)
    assert len(programs) == len(set(programs)) <= len(rows)
    for rank, (app, node) in zip(made, rows):
        expected = apps[app]._replace(argv=("{node_rank}", "-k", str(node))) if app == 0 else apps[app]
        assert programs[rank.app] == expected


def test_a_node_without_ranks_keeps_its_programs() -> None:
    apps = (AppPlan(("x", "{rank}"), "/w"),)
    assert with_own_arguments(fill, [], (), apps) == ((), apps)
