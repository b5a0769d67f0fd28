"""The page: one file, its policy, texts that mean harm, contrasts, bounds; and --report, which writes it."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import example_runs
import pytest
from hypothesis import given, settings
from test_figures import read, records

from mslaunch.cli.main import parse
from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, UsageError
from mslaunch.reports import page

TEMPLATES = Path(page.__file__).parent / "templates"
VOID = {"meta", "link", "input", "br", "img"}
OPTIONAL = {"tr", "td", "th", "tbody", "li"}  # their end tags may be left out


class Reader(html.parser.HTMLParser):
    """The elements of a page, as a browser nests them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] != tag:
            assert self.open.pop() in OPTIONAL, f"{tag} ends before {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.seen if name == tag]


def rendered(record: Any) -> str:
    return page.render(read(record))


RECORDS = {
    "eight": example_runs.example(),
    "well": example_runs.example(failing=None),
    "restarts": example_runs.example(restarts=9),
    "running": example_runs.running(),
    "begun": example_runs.begun(),
    "many": example_runs.example(512, 4, failing=77),
    "hostile": example_runs.hostile(),
    "nothing": {"schema": 1, "state": "ended"},
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_page_is_one_file_that_loads_nothing(name: str) -> None:
    text = rendered(RECORDS[name])
    seen = Reader(text)
    assert not [
        tag for tag, _ in seen.seen if tag in ("link", "img", "iframe", "object", "embed", "base", "form", "use")
    ]
    for tag, attributes in seen.seen:
        assert not {"src", "href", "xlink:href", "style", "action", "background", "srcset"} & set(attributes), tag
        assert not [key for key in attributes if key.startswith("on")], tag
    style, script = ((TEMPLATES / file).read_text(encoding="utf-8") for file in ("page.css", "page.js"))
    assert "url(" not in style and "@import" not in style
    assert not re.search(r"fetch|XMLHttpRequest|import\(|WebSocket|innerHTML|eval|document\.write", script)
    assert "://" not in style + script
    assert len(text) < 400_000


def test_the_policy_allows_its_own_style_and_script_alone() -> None:
    text = rendered(example_runs.example())
    (policy,) = [each["content"] for each in Reader(text).all("meta") if "http-equiv" in each]
    for kind, element in (("style-src", "style"), ("script-src", "script")):
        (body,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "*" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script>")


def test_texts_of_ranks_and_hosts_are_texts() -> None:
    text = rendered(example_runs.hostile())
    seen = Reader(text)
    assert text.count("<script") == 1 and len(seen.all("script")) == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    shown = "".join(seen.text)
    assert "<script>alert(1)</script>]]>--><img src=x onerror=alert(2)>\"'&{{7*7}}\\x00\\x1b[31m\\u202eevil" in shown
    assert "{{49}}" not in shown


@settings(deadline=None, max_examples=30)
@given(records())
def test_any_record_has_a_page(record: Any) -> None:
    text = rendered(record)
    seen = Reader(text)
    ids = [attributes["id"] for _, attributes in seen.seen if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", RECORDS)
def test_figures_and_tables_have_names(name: str) -> None:
    seen = Reader(rendered(RECORDS[name]))
    ids = {attributes.get("id") for _, attributes in seen.seen}
    for svg in seen.all("svg"):
        named = set(svg.get("aria-labelledby", "").split())
        assert svg.get("aria-hidden") == "true" or (svg["role"] == "img" and named and named <= ids)
    assert len(seen.all("caption")) == len(seen.all("table"))
    assert all(each.get("scope") in ("row", "col") for each in seen.all("th"))
    levels = [int(tag[1]) for tag, _ in seen.seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eight", ["rank 5 ended with exit code 3 on n01", "7 were ended by mslaunch", "ValueError: loss"]),
        ("eight", ["Slowest to start", "Longest silence", "Where ranks ran", "train.py --epochs 12", "6.1.0-28-amd64"]),
        ("well", ["All ranks succeeded"]),
        ("restarts", ["attempt 3 of 10", "all are started again", "4 attempts between the first and the last"]),
        ("running", ["The record was written while the job ran", "or its launcher has died", "no end is recorded"]),
        ("begun", ["The record knows of no attempt"]),
        ("many", ["511 more ranks", "n[000-127]", "a cell is a rank"]),
        ("nothing", ["No rank was started"]),
    ],
)  # fmt: skip
def test_what_a_page_says(name: str, words: list[str]) -> None:
    shown = " ".join("".join(Reader(rendered(RECORDS[name])).text).split())
    for word in words:
        assert word in shown


@pytest.mark.parametrize(("ranks", "per_host", "restarts"), [(4096, 8, 0), (4096, 1, 3), (4096, 64, 8), (20_000, 8, 0)])
def test_large_pages_are_bounded(ranks: int, per_host: int, restarts: int) -> None:
    run = read(example_runs.example(ranks, per_host, restarts=restarts))
    began = time.process_time()
    text = page.render(run)
    assert time.process_time() - began < 15, "less than one, on a machine that is not slow"
    assert len(text.encode()) < 3_000_000


@pytest.mark.parametrize("kind", ["hangs", "restarts", "attempts"])
def test_many_events_of_a_hostile_record_are_bounded(kind: str) -> None:
    record = example_runs.example(4, 4)
    first = record["attempts"][0]
    events = {
        "hangs": lambda: [{"seconds": at / 1000, "text": "h" * 500} for at in range(100_000)],
        "restarts": lambda: [
            {"seconds": at / 1000, "attempt": 1, "rank": at % 4, "text": "r"} for at in range(100_000)
        ],
        "attempts": lambda: [{**first, "number": at + 1, "began": at / 100, "ended": at / 100} for at in range(10_000)],
    }
    assert len(page.render(read({**record, kind: events[kind]()})).encode()) < 3_000_000


def test_a_hostile_record_does_not_make_a_page_without_bounds() -> None:
    long = "n" * 100_000
    record = example_runs.example(4096, 1, failing=None)
    for host in record["hosts"]:
        host["name"] = f"{host['name']}{long[:2000]}"
        host["facts"] = {f"fact {at}": f"{host['name']}{at}{long[:2000]}" for at in range(20)}
    record.update(command=[long] * 1000, environment=[long] * 100, report=long * 10)
    record["restarts"] = [{"seconds": 1.0, "attempt": 1, "rank": None, "text": long[:5000]}] * 2000
    assert len(rendered(record)) < 14_000_000


# --- contrast (WCAG 2.1)


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


STYLE = (TEMPLATES / "page.css").read_text(encoding="utf-8")
LIGHT = colours(STYLE.partition("@media")[0])
THEMES = {
    "light": LIGHT,
    "dark": {**LIGHT, **colours(STYLE.partition("prefers-color-scheme: dark")[2].partition("}\n}")[0])},
    "print": {**LIGHT, **colours(STYLE.partition("@media print")[2].partition("  }")[0])},
}


@pytest.mark.parametrize("theme", THEMES)
def test_texts_can_be_read(theme: str) -> None:
    known = THEMES[theme]
    for text in ("ink", "soft", "first", "failed", "lost"):
        for ground in ("paper", "panel"):
            assert contrast(known[text], known[ground]) >= 4.5, (text, ground)
    for phase in ("connect", "stage", "start", "run", "end"):
        assert contrast(known["on-phase"], known[phase]) >= 3, phase
    for mark in ("ok", "first", "failed", "ended", "lost", "output", "hang", "restart", "connect"):
        assert contrast(known[mark], known["panel"]) >= 2.4, mark
    shades = [contrast(known[f"s{at}"], known["paper"]) for at in range(6)]
    assert shades == sorted(shades), "more stands out more"


def seen_by(colour: str, kind: str) -> tuple[float, ...]:
    """A colour as somebody with that deficiency sees it (Machado, Oliveira, Fernandes 2009, severity 1), in CIELAB."""
    matrix = {
        "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
        "deuteranopia": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
        "tritanopia": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
    }[kind]  # fmt: skip
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    r, g, b = (min(1.0, max(0.0, sum(factor * part for factor, part in zip(row, linear)))) for row in matrix)
    xyz = (
        0.4124 * r + 0.3576 * g + 0.1805 * b,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        0.0193 * r + 0.1192 * g + 0.9505 * b,
    )
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (value / white for value, white in zip(xyz, (0.9505, 1.0, 1.089)))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["full", "protanopia", "deuteranopia", "tritanopia"])
def test_the_first_failure_is_told_from_the_others_by_everybody(theme: str, kind: str) -> None:
    known = THEMES[theme]
    for other in ("ok", "ended", "lost", "running", "unstarted"):
        one, two = seen_by(known["first"], kind), seen_by(known[other], kind)
        assert sum((a - b) ** 2 for a, b in zip(one, two)) ** 0.5 > 15, other


# --- the command


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "run.json"
    path.parent.mkdir()
    path.write_text(json.dumps(example_runs.example()))
    return path


def shown(*words: object) -> str:
    with pytest.raises(Show) as caught:
        parse([str(word) for word in words], {}, Path.read_text)  # type: ignore[arg-type]
    assert caught.value.code == 0
    return caught.value.text


def refusal(*words: object) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        parse([str(word) for word in words], {}, Path.read_text)  # type: ignore[arg-type]
    assert caught.value.code == 1
    return caught.value


def test_the_page_lies_beside_the_record(record: Path) -> None:
    assert shown("--report", record) == f"{record.parent}/run.html: open it in a browser"
    assert (record.parent / "run.html").read_text().startswith("<!DOCTYPE html>")
    assert shown("--report", record.parent) == f"{record.parent}/run.html: open it in a browser"


@pytest.mark.parametrize("words", [["{0}", "-o", "{1}"], ["-o", "{1}", "{0}"], ["{0}", "--output={1}"]])
def test_the_page_has_the_name_that_was_given(record: Path, tmp_path: Path, words: list[str]) -> None:
    target = tmp_path / "page.html"
    shown("--report", *(word.format(record, target) for word in words))
    assert target.stat().st_size > 10_000
    assert not (record.parent / "run.html").exists()


def test_a_dash_is_standard_output(record: Path) -> None:
    text = shown("--report", record, "-o", "-")
    assert text.startswith("<!DOCTYPE html>") and sorted(os.listdir(record.parent)) == ["run.json"]


@pytest.mark.parametrize(
    "words", [[], ["", "-o", "x"], ["a.json", "b.json"], ["a.json", "-o"], ["a.json", "-x"], [__file__]]
)
def test_a_wrong_line_is_refused(words: list[str]) -> None:
    assert isinstance(refusal("--report", *words), UsageError)


def test_a_record_that_is_missing_wrong_or_too_large_is_refused(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal("--report", tmp_path / "none.json").what == "cannot be read: No such file or directory"
    (tmp_path / "other.json").write_text("[]")
    error = refusal("--report", tmp_path / "other.json")
    assert (error.where, error.what) == (
        f"{tmp_path}/other.json", "it is no record of a run: it is a list and should be an object")  # fmt: skip
    assert not (tmp_path / "other.html").exists()
    monkeypatch.setattr("mslaunch.reports.read_record.MOST_BYTES", 1 << 10)
    assert refusal("--report", record).what.startswith("cannot be read: it is larger than")


def test_the_record_is_not_overwritten(record: Path, tmp_path: Path) -> None:
    before = record.read_text()
    (tmp_path / "link.json").symlink_to(record)
    for target in (record, tmp_path / "link.json"):
        assert "it is the record itself" in refusal("--report", record, "-o", target).what
    assert record.read_text() == before


def test_a_page_is_not_written_through_a_link(record: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (record.parent / "run.html").symlink_to(tmp_path / "precious")
    assert refusal("--report", record).what.startswith("cannot be written: ")
    assert (tmp_path / "precious").read_text() == "mine"


def test_without_jinja2_one_sentence_says_what_to_install(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    error = refusal("--report", record)
    assert (error.what, error.todo) == (
        "--report needs jinja2, which is not installed here", "pip install 'mslaunch[report]'")  # fmt: skip
    assert not (record.parent / "run.html").exists()
