"""Accelerators shared out among the ranks of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.request import DevicePolicy
from mslaunch.plan.device_shares import DeviceShares


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 5))
def test_ranks_of_a_node_share_no_device_and_each_has_its_number(each: int, ranks: int, spare: int) -> None:
    shares = DeviceShares(DevicePolicy(each))
    names = [str(at) for at in range(each * ranks + spare)]
    shares.found(3, f"nvidia {','.join(names)}")
    made = [shares.variables(3, local, ranks) for local in range(ranks)]
    lists = [one.partition("=")[2].split(",") for (one,) in made]
    assert all(len(mine) == each for mine in lists)
    assert [name for mine in lists for name in mine] == names[: each * ranks]


def test_without_a_number_all_ranks_of_a_node_have_the_chosen_ones() -> None:
    shares = DeviceShares(DevicePolicy(0, ("1", "3")))
    assert shares.question == b"0 1,3"
    shares.found(0, "nvidia 1,3\namd 1,3")
    assert shares.variables(0, 1, 2) == ["CUDA_VISIBLE_DEVICES=1,3", "ROCR_VISIBLE_DEVICES=1,3"]
    assert shares.variables(1, 0, 1) == [], "another node"


def test_one_ascend_each_is_found_by_the_local_rank() -> None:
    """mindspore.communication sets DEVICE_ID to the local rank, which counts among the visible ones."""
    shares = DeviceShares(DevicePolicy(1))
    shares.found(0, "ascend 4,5,6,7")
    assert [shares.variables(0, local, 3) for local in range(3)] == [["ASCEND_RT_VISIBLE_DEVICES=4,5,6"]] * 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nvidia",
        "nvidia ",
        "tpu 0",
        "nvidia 0\ntpu 1",
        "nvidia 0\0LD_PRELOAD=x,1",
        "nvidia 0\x1b[2J",
        f"nvidia {'1,' * 9000}",
    ],
)
def test_a_host_that_tells_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        DeviceShares(DevicePolicy(1)).found(0, text)
