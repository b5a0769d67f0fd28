"""Compares the result of a case with the recorded one: records in, a list of differences out.

Texts of error messages are mslaunch's own, so standard error is not compared; nor are times.  What differs from run to
run is normalised first: the case's directory is @W@, time stamps are @TIME@, job numbers J, process ids PID.  Lines of
the rank program `show` ("@@ rank=…") are taken out of stdout and become the placement.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from recorded import Case

_SHOWN = re.compile(r"@@ rank=(\S*) host=(\S*) lr=(\S*) nr=(\S*) ls=(\S*) ws=(\S*) ?(.*)")
_ALIKE = (
    (re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"), "@TIME@"),
    (re.compile(r"\[\[\d+,(\d+)\],"), r"[[J,\1],"),
    (re.compile(r"\[(\w[\w.-]*):\d+\]"), r"[\1:PID]"),
    (re.compile(r"(JOB|jobid:) \[\d+,"), r"\1 [J,"),
)


def differences(case: Case, came: dict[str, Any]) -> list[str]:
    """One sentence for each thing that is not as recorded; [] if all is."""
    if came["timed_out"]:
        return ["it did not end"]
    placement, stdout = _split(base64.b64decode(came["stdout"]), came["work"], bool(case.get("tty")))
    expect = case["expect"]
    found = _exit_code(expect, came["code"])
    if "placement" in expect and placement != expect["placement"]:
        found.append(f"placement: expected {expect['placement']}, got {placement}")
    if expect.get("no_ranks") and placement:
        found.append(f"no rank should have started, but {placement} did")
    if "stdout" in expect and not _printed(expect["stdout"], stdout):
        found.append(f"stdout: expected {expect['stdout']}, got {str(stdout)[:2000]}")
    if "files" in expect:
        found += _files(expect["files"], came)
    if "rsh" in expect and came["rsh"] != expect["rsh"]:
        found.append(f"hosts called: expected {expect['rsh']}, got {came['rsh']}")
    return found + _left(expect, came["left"])


def _exit_code(expect: dict[str, Any], code: int) -> list[str]:
    code = code if code >= 0 else 128 - code
    wanted = expect.get("exit_code", code)
    if expect.get("exit_nonzero"):
        return [] if code else ["exit code: expected any but 0"]
    return [] if code in (wanted if isinstance(wanted, list) else [wanted]) else [f"exit code: {wanted}, got {code}"]


def _alike(text: str, work: str) -> str:
    text = text.replace(work, "@W@")
    for pattern, name in _ALIKE:
        text = pattern.sub(name, text)
    return text


def _split(data: bytes, work: str, tty: bool) -> tuple[list[Any], Any]:
    """The placement, and stdout in lines (a last one without its end is marked), or as a digest if it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [], _value(data)
    if "\0" in text or len(data) > 300_000:
        return [], _value(data)
    lines = _alike(text.replace("\r\n", "\n") if tty else text, work).split("\n")
    rest = lines.pop()
    shown = [match.groups() for line in lines if (match := _SHOWN.match(line))]
    others = [line for line in lines if not _SHOWN.match(line)] + ([rest + "@NONL@"] if rest else [])
    return sorted((_row(groups) for groups in shown), key=lambda row: (str(type(row[0])), row[0], row[6])), others


def _row(groups: tuple[str, ...]) -> list[Any]:
    rank, host, local, node, size, world, words = groups
    numbers = [int(word) if word.isdigit() else word for word in (rank, local, node, size, world)]
    return [numbers[0], host, *numbers[1:], words]


def _value(data: bytes) -> Any:
    """As the recorder writes bytes down."""
    try:
        text = data.decode()
        if "\0" not in text:
            return text if len(text) <= 20_000 else {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    except UnicodeDecodeError:
        pass
    if len(data) <= 4096:
        return {"b64": base64.b64encode(data).decode()}
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _printed(wanted: dict[str, Any], got: Any) -> bool:
    if wanted["mode"] == "value":
        return bool(got == wanted["value"])
    if not isinstance(got, list):
        return False
    if "sha256" in wanted:
        return len(got) == wanted["count"] and hashlib.sha256("\n".join(got).encode()).hexdigest() == wanted["sha256"]
    if wanted["mode"] == "regex":
        there = all(any(re.search(pattern, line) for line in got) for pattern in wanted["patterns"])
        return there and not any(re.search(pattern, line) for pattern in wanted.get("lacks", []) for line in got)
    if wanted["mode"] == "contains":
        return set(wanted["lines"]) <= set(got)
    lines = wanted["lines"]
    return bool(sorted(got) == sorted(lines) if wanted["mode"] == "multiset" else got == lines)


def _files(wanted: dict[str, Any], came: dict[str, Any]) -> list[str]:
    got = {name: text if text is None else base64.b64decode(text) for name, text in came["files"].items()}
    found = [f"unexpected file {name}" for name in sorted(set(got) - set(wanted))]
    for name, content in wanted.items():
        if name not in got:
            found.append(f"no file {name}")
        elif not _same(content, got[name], came["work"]):
            found.append(f"{name}: expected {content}, got {str(got[name])[:500]}")
    return found


def _same(wanted: Any, data: bytes | None, work: str) -> bool:
    value = None if data is None else _value(data)
    if isinstance(value, str):
        value = _alike(value, work)
    if isinstance(wanted, dict) and "sorted" in wanted:
        return isinstance(value, str) and sorted(value.split("\n")) == sorted(wanted["sorted"].split("\n"))
    return bool(value == wanted)


def _left(expect: dict[str, Any], left: list[str]) -> list[str]:
    found = []
    if len(left) > expect.get("leftover_max", len(left)):
        found.append(f"left behind: {left}")
    if "leftover_has" in expect and not any(expect["leftover_has"] in command for command in left):
        found.append(f"expected a survivor {expect['leftover_has']!r}, got {left}")
    return found
