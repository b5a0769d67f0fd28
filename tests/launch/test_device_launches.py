"""Each rank has its accelerators: those of a made /dev, and those that are visible already."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BOUND, environment, through_rsh

NAMES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS")
SHOW = ["sh", "-c", f"echo $RANK {' '.join(f'${{{name}-none}}' for name in NAMES)}"]
#: what of /dev a launch needs
NEEDED = ("null", "zero", "urandom", "random", "tty", "ptmx", "pts", "shm")


def launch(*words: object, wrapper: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    line = [*wrapper, sys.executable, "-m", "mslaunch", "--oversubscribe", *map(str, words)]
    env = {**environment(), **more}
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=BOUND, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.fixture
def with_devices(tmp_path: Path) -> tuple[str, ...]:
    """A command that runs another where /dev has six Ascend devices and nothing of other kinds."""
    made = tmp_path / "dev"
    made.mkdir()
    for at in range(6):
        (made / f"davinci{at}").touch()
    (made / "davinci_manager").touch()
    script = f"""
        mount -t tmpfs none /mnt && mkdir /mnt/real && mount --rbind /dev /mnt/real
        for name in {" ".join(NEEDED)}; do ln -sfn /mnt/real/$name {made}/$name; done
        mount --rbind {made} /dev && exec "$0" "$@"
    """
    return ("unshare", "-m", "sh", "-ec", script)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_devices_of_the_kernel(with_devices: tuple[str, ...]) -> None:
    done = launch("-n", 3, "--devices-per-rank", 2, *SHOW, wrapper=with_devices)
    assert lines(done) == ["0 none 0,1 0,1", "1 none 2,3 0,1", "2 none 4,5 0,1"]
    done = launch("-n", 4, "--devices-per-rank", 2, *SHOW, wrapper=with_devices)
    assert (done.returncode, done.stdout) == (1, "")
    assert "only 3 of 4 ranks can be started with 6 Ascend devices, 2 for each rank (--devices-per-rank)" in done.stderr
    assert "at most 3 ranks on a host would do" in done.stderr and len(done.stderr.splitlines()) <= 4


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_each_node_shares_out_its_own(with_devices: tuple[str, ...]) -> None:
    hosts = through_rsh("h1:2", "h2:1")
    done = launch(*hosts, "--devices-per-rank", 2, "--devices", "1-4", *SHOW, wrapper=with_devices)
    assert lines(done) == ["0 none 1,2 0,1", "1 none 3,4 0,1", "2 none 1,2 0,1"]


def test_what_is_visible_already_is_shared_out() -> None:
    done = launch("-n", 2, "--devices-per-rank", 1, *SHOW, CUDA_VISIBLE_DEVICES="7,5,3")
    assert lines(done) == ["0 7 none 0", "1 5 none 0"]


def test_chosen_devices_are_seen_by_all_ranks_of_a_node() -> None:
    done = launch("-n", 2, "--devices", "5,7", *SHOW, CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert lines(done) == ["0 5,7 none none", "1 5,7 none none"]
    done = launch("-n", 1, "--devices", "5,7", "-x", "CUDA_VISIBLE_DEVICES=1", *SHOW, CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert lines(done) == ["0 1 none none"], "the user's own word counts"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--devices", "5-9"], "none of 2 ranks can be started with the NVIDIA devices 4, 5: it has no 6, 7, 8, 9"),
        (["--devices-per-rank", "3"], "none of 2 ranks can be started with 2 NVIDIA devices, 3 for each rank"),
    ],
)
def test_what_a_node_lacks_is_one_message_and_nothing_starts(words: list[str], said: str) -> None:
    done = launch("-n", 2, *words, *SHOW, CUDA_VISIBLE_DEVICES="4,5")
    assert (done.returncode, done.stdout) == (1, "") and said in done.stderr
    assert "nothing was started; take other hosts, or change what is missing there" in done.stderr
    assert len(done.stderr.splitlines()) <= 4 and "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["", "a b", "0,,1", "1,1", "3-1", "0-300", "$HOME"])
def test_a_list_that_is_none(word: str) -> None:
    done = launch("-n", 1, "--devices", word, "true")
    assert done.returncode == 1 and "mslaunch: --devices: expected" in done.stderr
