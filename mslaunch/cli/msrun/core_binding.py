"""--bind_core and --bind_numa of msrun, as bindings by local rank (`LocalBinding`).

There are three notations: True; JSON with a list for each device, `{"scheduler": ["0"], "device0": ["1-3", "8,9"]}`,
where device N is the worker with local rank N on each host; and for --bind_numa JSON with bind_config, mostly in a
file.  With ASCEND_RT_VISIBLE_DEVICES=4,5 device 4 is the first worker's, as with msrun.  Whether a host has the cpus
and nodes is checked when ranks are mapped.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import is_number
from mslaunch.datamodel.request import LocalBinding, Request
from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.number_ranges import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mslaunch.cli.msrun.options import MsrunOptions

    Rows = dict[int, tuple[int, ...]]  # device, or _SCHEDULER -> numbers

_CORE, _NUMA = "--bind_core", "--bind_numa"
_SCHEDULER = -1
_MOST = 1 << 16  # a larger number is a mistake
_SECTIONS = ("bind_config", "bind_cpu", "bind_memory")
_DEVICES = 'write it like {"scheduler": ["0"], "device0": ["1-3"], "device1": ["4,5"]}'


def bound(request: Request, own: MsrunOptions, environ: Mapping[str, str], read_text: Callable[[str], str]) -> Request:
    """The request with the bindings of both options.  Raises `UsageError`."""
    core, numa = own.core, own.numa
    said, text = _read(numa, read_text) if isinstance(numa, str) else ({}, "")
    if "bind_config" in said:
        return _by_config(request, said, environ, core, str(numa), text)
    local = LocalBinding(even_cpus=core is True, even_numa=numa is True, where=_CORE if core else _NUMA)
    cpus: tuple[int, ...] = ()
    if isinstance(core, str):
        rows = _by_device(_json(core, _CORE), _CORE)
        cpus = rows.pop(_SCHEDULER, ())
        local = local._replace(cpus=_by_rank(rows, environ))
    if isinstance(numa, str):
        rows = _by_device(said, _NUMA)
        nodes = rows.pop(_SCHEDULER, ())
        by_rank = _by_rank(rows, environ)
        local = local._replace(numa=by_rank, memory=by_rank, scheduler=() if cpus else nodes)
    return _with(request, local, cpus) if core or numa else request


def _with(request: Request, local: LocalBinding, cpus: tuple[int, ...]) -> Request:
    return request._replace(policy=request.policy._replace(local=local), cluster=request.cluster._replace(cpus=cpus))


def idle(request: Request) -> list[str]:
    """Notes about options that bind no worker: with fewer cpus or nodes than workers, msrun does nothing."""
    from mslaunch.host.read_topology import read_topology
    from mslaunch.host.usable_cpus import usable_cpus

    local, ranks = request.policy.local, request.apps[0].np
    if local is None or ranks is None:
        return []
    cpus = usable_cpus()
    asked = [(_CORE, len(cpus), "cpu")] if local.even_cpus else []
    asked += [(_NUMA, len(read_topology(cpus).numa), "NUMA node")] if local.even_numa else []
    return [
        f"{option} binds no worker, as in msrun: {ranks} cannot share {counted(there, what)}"
        for option, there, what in asked
        if there < ranks
    ]


# --- JSON by device


def _read(word: str, read_text: Callable[[str], str]) -> tuple[dict[str, Any], str]:
    """The JSON of --bind_numa, and the text of its file if it is in one."""
    if word.lstrip()[:1] in ("{", "["):
        return _json(word, _NUMA), ""
    try:
        text = read_text(word)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        todo = "write True, False, JSON, or the path of a file of JSON"
        raise UsageError(f"cannot read {word}: {why}", _NUMA, todo) from None
    return _json(text, f"{_NUMA}={word}"), text


def _json(text: str, where: str) -> dict[str, Any]:
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        todo = f"{_DEVICES}, in single quotes for the shell"
        raise UsageError(f"cannot read {text.strip()[:60]!r} as JSON: {error}", where, todo) from None
    if not isinstance(found, dict):
        raise UsageError(f"expected True, False or JSON in braces, got {text.strip()[:60]!r}", where, _DEVICES)
    if where == _CORE and any(key in found for key in _SECTIONS):
        raise UsageError("bind_config is read by --bind_numa", where, "give this JSON to --bind_numa")
    return found


def _by_device(said: Mapping[str, Any], where: str) -> Rows:
    """{"device0": ["1-3", "8,9"]}, as msrun takes it; or with a string instead of a list."""
    rows: Rows = {}
    for key, value in said.items():
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise UsageError(f"{key} needs a list of strings, got {value!r}", where, _DEVICES)
        rows[_device(key, where)] = tuple(dict.fromkeys(n for item in listed for n in _numbers(item, key, where)))
    return rows


def _device(key: str, where: str) -> int:
    if key == "scheduler":
        return _SCHEDULER
    number = key[len("device") :].lstrip("_") if key.startswith("device") else ""
    if not is_number(number) or int(number) >= _MOST:
        raise UsageError(f"{key!r} is neither scheduler nor deviceN", where, _DEVICES)
    return int(number)


def _numbers(text: str, key: str, where: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in "".join(text.split()).split(","):
        ends = bounds(part)
        if not ends:
            raise UsageError(f"cannot read {text!r} of {key}", where, "write numbers as 0, 0,2 or 0-3")
        if ends[1] >= _MOST:
            raise UsageError(f"{ends[1]} in {text!r} of {key} is too large", where, "numbers are those of lscpu")
        found += range(ends[0], ends[1] + 1)
    return tuple(dict.fromkeys(found))


def _by_rank(rows: Rows, environ: Mapping[str, str]) -> tuple[tuple[int, ...], ...]:
    """The rows by local rank; device and local rank have one number unless only some devices are visible."""
    visible = [one.strip() for one in environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")]
    devices = sorted(map(int, visible)) if all(map(is_number, visible)) else range(max(rows, default=-1) + 1)
    return tuple(rows.get(device, ()) for device in devices)


# --- bind_config


def _by_config(
    request: Request, said: Mapping[str, Any], environ: Mapping[str, str], core: object, path: str, text: str
) -> Request:
    """bind_cpu_mode cpu, numa or none; bind_memory_mode numa or none; and which, by device."""
    cpu_mode = _mode(said, "bind_cpu_mode", "cpu", "numa", "none")
    memory = _section(said, "bind_memory", "") if _mode(said, "bind_memory_mode", "numa", "none") != "none" else {}
    memory.pop(_SCHEDULER, ())
    local = LocalBinding(where=_NUMA, memory=_by_rank(memory, environ))
    cpus: tuple[int, ...] = ()
    if cpu_mode != "none":
        rows = _section(said, "bind_cpu", "main" if cpu_mode == "cpu" else "")
        first = rows.pop(_SCHEDULER, ())
        by_rank = _by_rank(rows, environ)
        cpus = first if cpu_mode == "cpu" else ()
        local = local._replace(cpus=by_rank) if cpu_mode == "cpu" else local._replace(numa=by_rank, scheduler=first)
    if core:
        request = request._replace(notes=(*request.notes, "--bind_core has no effect beside bind_config, as in msrun"))
    if text:
        request = _with_file(request, path, text)
    return _with(request, local, cpus)


def _with_file(request: Request, path: str, text: str) -> Request:
    """Variables by which the library in the workers compares the file with that of set_cpu_affinity."""
    import hashlib
    import os

    known = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    (app,) = request.apps
    env = (("MSRUN_BIND_FILE", os.path.abspath(path)), ("MSRUN_BIND_FILE_HASH", known), *app.env)
    return request._replace(apps=(app._replace(env=env),))


def _mode(said: Mapping[str, Any], name: str, *known: str) -> str:
    config = said["bind_config"]
    if not isinstance(config, dict):
        raise UsageError("bind_config needs braces", _NUMA, 'write it like {"bind_cpu_mode": "cpu"}')
    mode = str(config.get(name, "none")).lower()
    if mode not in known:
        raise UsageError(f"{name} is {mode!r}", _NUMA, f"write one of {', '.join(known)}")
    return mode


def _section(said: Mapping[str, Any], name: str, part: str) -> Rows:
    """bind_cpu or bind_memory: by device a number or a list in a string; with `part`, that of the modules there."""
    section = said.get(name, {})
    if not isinstance(section, dict):
        raise UsageError(f"{name} needs braces", _NUMA, _example(name, part))
    rows: Rows = {}
    for key, value in section.items():
        if part and value is not None and not isinstance(value, dict):
            raise UsageError(f"{key} of {name} needs braces, got {value!r}", _NUMA, _example(name, part))
        numbers = value.get(part) if part and value is not None else value
        if isinstance(numbers, bool) or not isinstance(numbers, (int, str, type(None))):
            raise UsageError(f"{key} of {name} is {numbers!r}", _NUMA, _example(name, part))
        if numbers not in (None, ""):
            rows[_device(key, _NUMA)] = _numbers(str(numbers), f"{key} of {name}", _NUMA)
    return rows


def _example(name: str, part: str) -> str:
    return f'write it like "{name}": {{"device0": ' + ('{"main": "0-3"}}' if part else '"0"}')
