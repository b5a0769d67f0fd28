"""Readers of torchrun's values: hosts, ranks on each, streams, endpoints, prefixes; and devices of this host.

As in torch/distributed/run.py and elastic/multiprocessing/api.py of torch 2.15.
"""

from __future__ import annotations

import os

from mslaunch.cli.parser.readers import Expected, count, count_or_zero, is_number, span, text
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES = ("auto", "cpu", "gpu", "xpu")
MACROS = {"${role_name}": "", "${local_rank}": "%l", "${rank}": "%r", "${hostname}": "%h"}
_COUNTED = {"gpu": "/dev/nvidia0 or AMD card is visible", "xpu": "Intel card is visible"}
_NO_LIMIT = 1 << 16
_ALL = -1  # in pairs of `StreamPolicy`: every local rank


def nnodes(word: str) -> tuple[int, int]:
    """N, or MIN:MAX."""
    parts = word.split(":")
    if len(parts) > 2 or not all(is_number(part) and int(part) for part in parts):
        raise Expected("a number of hosts, or MIN:MAX", "as --nnodes 2, or --nnodes 1:4")
    fewest, most = int(parts[0]), int(parts[-1])
    if fewest > most:
        raise Expected(f"MIN:MAX with MIN no larger than MAX ({fewest} is larger than {most})")
    return fewest, most


def nproc(word: str) -> int | str:
    """A number, or a kind of device, of which each gets a rank."""
    if word in DEVICES:
        return word
    try:
        return count(word)
    except Expected:
        raise Expected(f"a number of ranks, or {', '.join(DEVICES)}") from None


def streams(word: str) -> tuple[tuple[int, int], ...]:
    """0 to 3 for all, or LOCAL_RANK:0-3 with commas between."""
    if word in ("0", "1", "2", "3"):
        return ((_ALL, int(word)),) if word != "0" else ()
    pairs = [part.partition(":") for part in word.split(",")]
    if all(is_number(rank) and bits in ("0", "1", "2", "3") for rank, _, bits in pairs):
        return tuple({int(rank): int(bits) for rank, _, bits in pairs}.items())
    raise Expected(
        "0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or such a number for each local rank", "as 3, or as 0:3,1:2"
    )


def local_ranks(word: str) -> tuple[int, ...] | None:
    """Numbers with commas between; nothing: all of them."""
    if not word:
        return None
    numbers = [part.strip() for part in word.split(",")]
    if not all(map(is_number, numbers)):
        raise Expected("local ranks with commas between, as 0,1,2")
    return tuple(map(int, numbers))


def endpoint(word: str) -> tuple[str, int | None] | None:
    """HOST or HOST:PORT, [ADDRESS] or [ADDRESS]:PORT for IPv6; nothing: as if not given."""
    word = word.strip()
    if not word:
        return None
    if word[0] == "[" and word[-1] == "]":
        return word[1:-1], None
    host, colon, number = word.rpartition(":")
    if not colon:
        return word, None
    if not host or not is_number(number) or int(number) > 65535:
        raise Expected("HOST:PORT with a port below 65536", "as node1:29400")
    return host.strip("[]"), int(number)


def port(word: str) -> int:
    """The port at which ranks meet; 0 is any, which others could not know."""
    if not is_number(word) or not 0 < int(word) < 65536:
        raise Expected("a port from 1 to 65535")
    return int(word)


def settings(word: str) -> tuple[tuple[str, str], ...]:
    """--rdzv-conf: KEY=VALUE with commas between."""
    pairs = [part.strip().partition("=") for part in word.split(",")] if word.strip() else []
    if not all(key.strip() and value.strip() for key, _, value in pairs):
        raise Expected("KEY=VALUE with commas between", "as join_timeout=60,last_call_timeout=10")
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def address(word: str) -> str:
    """A name, or an address, also in brackets."""
    word = word.strip()
    return text(word[1:-1] if word[:1] == "[" and word[-1:] == "]" else word)


def node_rank(word: str) -> int:
    """The number of this host, from 0."""
    return count_or_zero(word)


def flag(word: str) -> bool:
    """A flag's variable: a number, and not 0."""
    if not is_number(word):
        raise Expected("0 or 1")
    return bool(int(word))


def run_id(word: str) -> str:
    """--rdzv-id, which is a part of the name of a directory."""
    if "/" in word or "\0" in word:
        raise Expected("a name without '/', since the directory for logs is called after it")
    return text(word)


def interval(word: str) -> list[tuple[str, object]]:
    """Seconds, of which nothing is made."""
    span(word)
    return []


def prefix(template: str, role: str) -> str:
    """--log-line-prefix-template as a pattern of `OutputPolicy.prepend`."""
    made = template.replace("%", "%%")
    for macro, letter in {**MACROS, "${role_name}": role.replace("%", "%%")}.items():
        made = made.replace(macro, letter).replace(f"${macro[2:-1]}", letter)
    return made


def usual(*known: str) -> object:
    """A reader for an option that mslaunch needs not, and of which only these values have a meaning."""

    def read(word: str) -> list[tuple[str, object]]:
        if word not in known:
            raise Expected(" or ".join(known))
        return []

    return read


def devices(kind: str, environ: Mapping[str, str], root: str = "") -> tuple[int, str]:
    """How many devices of a kind this host has, and what was counted; 0 if none is found.

    gpu: NVIDIA's, else AMD's; xpu: Intel's; auto: the first of both that is found, else cpus.  A variable that limits
    them counts only as far as there are devices, as with torch.  `root` is prepended to /dev and /sys.
    """
    if kind == "cpu":
        return len(os.sched_getaffinity(0)), "cpus that this process may use"
    from mslaunch.agent.ranks.devices import found

    here = {one.name: len(names) for one, names in found({}, root)}
    gpus = here.get("nvidia") or here.get("amd", 0)
    counts = {
        "gpu": min(gpus, *_limits(environ, "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")),
        "xpu": min(here.get("intel", 0), *_limits(environ, "ZE_AFFINITY_MASK")),
    }
    if kind != "auto":
        return counts[kind], _COUNTED[kind]
    kind = next((name for name, many in counts.items() if many), "cpu")
    return devices(kind, environ, root)


def _limits(environ: Mapping[str, str], *names: str) -> list[int]:
    """How many devices each of these variables names, and a number that is no limit."""
    lists = [environ[name] for name in names if name in environ]
    return [len([one for one in words.split(",") if one.strip()]) for words in lists] + [_NO_LIMIT]
