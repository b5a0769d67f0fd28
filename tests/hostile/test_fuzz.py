"""The decoders under the fuzzer for a few seconds each, and on inputs that were findings once; see docs/fuzzing.md."""

from __future__ import annotations

import gc
import importlib.util
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from fuzz_lib.judge import Judge, TooMuchError  # noqa: E402
from fuzz_lib.targets import TARGETS, Target, seeds_of  # noqa: E402

SECONDS = 1
LARGE = 1 << 17  # bytes: what grows with their square takes more than the second of the judge
HAS_WHEELS = (3, 11) <= sys.version_info < (3, 14) and platform.machine() == "x86_64"  # as pyproject.toml says


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_earlier_findings_end_as_documented(name: str) -> None:
    judge = Judge(name)
    seeds = seeds_of(name)
    assert seeds
    for seed in seeds:
        judge(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_large_inputs_take_no_time(name: str) -> None:
    """The fuzzer's inputs are short; these are what grows faster than its input."""
    judge = Judge(name)
    for seed in seeds_of(name)[:4]:
        judge(seed * (LARGE // max(len(seed), 1)))
        judge(seed.replace(b"\n", b" ") * (LARGE // max(len(seed), 1)))


@pytest.mark.parametrize("name", TARGETS)
def test_some_seconds_of_fuzzing_find_nothing(name: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        assert not HAS_WHEELS, "atheris belongs to the extra `fuzz`, and is not installed"
        pytest.skip("NOT TESTED, no wheels for this Python: atheris")
    line = [sys.executable, str(ROOT / "scripts" / "fuzz"), name, "--seconds", str(SECONDS)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and "0 findings" in done.stdout, done


def test_the_judge_does_not_count_what_the_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the objects of a whole test run, one large input took 2.0 s instead of 0.7."""
    seen: list[int] = []

    def count(data: bytes) -> None:
        seen.append(len(gc.get_objects()))

    monkeypatch.setitem(TARGETS, "counts", Target(count, "errors:UsageError", list, ""))
    Judge("counts")(b"")
    assert seen[0] < 1000 < len(gc.get_objects())


def test_the_judge_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # bytes, by tests before this one

    def wrong(data: bytes) -> object:
        if data == b"raise":
            raise KeyError(data)
        if data == b"slow":
            return [number for _ in range(10) for number in range(100_000)][:0]
        return bytearray(peak + (100 << 20)).count(b"x") if data == b"large" else None

    monkeypatch.setitem(TARGETS, "wrong", Target(wrong, "errors:UsageError", list, ""))
    judge = Judge("wrong")
    judge(b"")
    with pytest.raises(KeyError):
        judge(b"raise")
    monkeypatch.setattr(judge, "_seconds", 60.0)  # the peak may be so high that filling it takes a second
    with pytest.raises(TooMuchError, match="MB"):
        judge(b"large")
    monkeypatch.setattr(judge, "_seconds", 0.01)
    with pytest.raises(TooMuchError, match=" s"):
        judge(b"slow")
