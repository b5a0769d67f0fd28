"""The accelerators of a host, from files as their drivers make them, and how many ranks these are enough for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslaunch.agent.ranks.devices import fits, found
from mslaunch.agent.ranks.room import answer
from mslaunch.datamodel.device_kinds import AMD, ASCEND, INTEL, NVIDIA


def files(root: Path, *paths: str) -> str:
    """Makes these files; `path=text`."""
    for path in paths:
        name, _, text = path.partition("=")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_devices_are_numbered_and_other_files_of_drivers_are_none(tmp_path: Path) -> None:
    nodes = [f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id={gpu}\n" for node, gpu in enumerate((0, 2204, 56000))]
    names = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/x", "davinci7", "davinci_manager"]
    cards = ["renderD128/device/vendor=0x8086\n", "renderD129/device/vendor=0x10de\n", "card0/device/vendor=0x8086\n"]
    root = files(tmp_path, *nodes, *(f"dev/{name}" for name in names), *(f"sys/class/drm/{card}" for card in cards))
    assert found({}, root) == [(NVIDIA, ["0", "1"]), (ASCEND, ["0"]), (AMD, ["0", "1"]), (INTEL, ["0"])]


def test_a_host_without_any_has_none(tmp_path: Path) -> None:
    assert found({}, str(tmp_path)) == []
    assert fits(1, b"1", {}, str(tmp_path)).startswith(b"0 what is there: it has no device")


@pytest.mark.parametrize(
    ("value", "names"),
    [("3,1", ["3", "1"]), (" 0 , GPU-1b2c", ["0", "GPU-1b2c"]), ("0,-1,2", ["0"]), ("", []), ("void", []), ("-1", [])],
)  # fmt: skip
def test_what_is_visible_already_is_all_there_is(value: str, names: list[str], tmp_path: Path) -> None:
    root = files(tmp_path, "dev/nvidia0", "dev/nvidia1")
    assert found({"CUDA_VISIBLE_DEVICES": value}, root) == ([(NVIDIA, names)] if names else [])


@pytest.mark.parametrize(
    ("ranks", "asked", "told"),
    [
        (4, b"1", b"4\nnvidia 0,1,2,3"),
        (2, b"2", b"2\nnvidia 0,1,2,3"),
        (3, b"2", b"2 4 NVIDIA devices, 2 for each rank (--devices-per-rank)"),
        (9, b"0", b"9\nnvidia 0,1,2,3"),
        (2, b"1 1,3", b"2\nnvidia 1,3"),
        (2, b"0 3", b"2\nnvidia 3"),
        (2, b"2 3", b"0 1 NVIDIA device, 2 for each rank (--devices-per-rank)"),
        (2, b"1 3,4,x", b"0 the NVIDIA devices 0, 1, 2, 3: it has no 4, x (--devices)"),
    ],
)
def test_the_answer_to_a_question(ranks: int, asked: bytes, told: bytes, tmp_path: Path) -> None:
    root = files(tmp_path, *(f"dev/nvidia{at}" for at in range(4)))
    assert fits(ranks, asked, {}, root) == told


def test_a_kind_that_is_enough_is_enough(tmp_path: Path) -> None:
    """The graphics of a processor do not stand in the way of the cards."""
    root = files(tmp_path, "dev/nvidia0", "dev/nvidia1", "sys/class/drm/renderD128/device/vendor=0x8086\n")
    assert fits(2, b"1", {}, root) == b"2\nnvidia 0,1"
    assert fits(1, b"1", {}, root) == b"1\nnvidia 0,1\nintel 0"
    assert fits(3, b"1", {}, root) == b"2 2 NVIDIA devices, 1 for each rank (--devices-per-rank)"


def test_room_is_asked_for_with_and_without_devices() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "5,6"}
    assert answer(b"2", environ) == b"2"
    assert answer(b"2 1", environ).splitlines()[:2] == [b"2", b"nvidia 5,6"]
    assert answer(b"2 1 6", environ).startswith(b"1 1 NVIDIA device,")
    assert int(answer(b"999999999 1", environ).split()[0]) < 999999999, "a limit of processes"
