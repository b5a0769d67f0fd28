"""The page of --report in a real browser: it asks nobody for anything, nothing overlaps, and its script works."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import example_runs
import pytest
from headless import Browser
from launching import environment

RECORDS: dict[str, Callable[[], Any]] = {
    "8": lambda: example_runs.example(restarts=1),
    "64": lambda: example_runs.example(64, 16, failing=None),
    "4096": lambda: example_runs.example(4096, 8, failing=1207),
    "4096 hosts": lambda: example_runs.example(4096, 1, failing=1207, restarts=2),
    "running": example_runs.running,
    "begun": example_runs.begun,
    "hostile": example_runs.hostile,
}

#: the titles of the pictures of a page
FIGURES = {
    "8": ["The whole run", "Attempt 2", "Slowest to start", "Longest silence", "Most output", *2 * ["Cpus of a host"]],
    "4096": [
        *("The whole run", "Attempt 1", "Every rank", "Slowest to start", "Longest silence", "Most output"),
        "Cpus of a host",
    ],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`pages("8")`: the page that the command writes of a record."""
    folder = tmp_path_factory.mktemp("pages")

    def made(name: str) -> Path:
        path = folder / f"{name.replace(' ', '-')}.json"
        target = path.with_suffix(".html")
        if not target.exists():
            path.write_text(json.dumps(RECORDS[name]()))
            words = [sys.executable, "-m", "mslaunch", "--report", str(path)]
            done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, ""), done
        return target

    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", RECORDS)
def test_the_page_asks_nobody_and_complains_of_nothing(browser: Browser, pages: Any, name: str, scheme: str) -> None:
    path = pages(name)
    browser.open(path, scheme=scheme)
    assert browser.requests() == [path.as_uri()]
    assert browser.complaints() == []


def test_a_page_that_asks_and_fails_is_seen(browser: Browser, pages: Any, tmp_path: Path) -> None:
    """What the test above would miss, it could not find; here the policy itself forbids both."""
    text = pages("8").read_text()
    bad = text.replace("</main>", '</main><img src="http://other.example/x.png"><script>alert(1)</script>')
    (tmp_path / "bad.html").write_text(bad)
    browser.open(tmp_path / "bad.html")
    assert len([text for text in browser.complaints() if "Content Security Policy" in text]) == 2
    (tmp_path / "open.html").write_text(bad.replace("Content-Security-Policy", "x-nothing").replace("alert(1)", "x.y"))
    browser.open(tmp_path / "open.html")
    assert "http://other.example/x.png" in browser.requests()
    assert any("Uncaught" in text for text in browser.complaints())


@pytest.mark.parametrize("width", [1240, 390])
@pytest.mark.parametrize("name", RECORDS)
def test_all_parts_are_visible_and_fit(browser: Browser, pages: Any, name: str, width: int) -> None:
    browser.open(pages(name), width=width)
    small = browser.run(
        """Array.from(document.querySelectorAll("h1, h2, section .figure, header pre, tbody tr"))
        .filter(each => each.checkVisibility() === !each.closest("details:not([open])"))
        .filter(each => !(each.getBoundingClientRect().width > 20 && each.getBoundingClientRect().height > 8)
                        && each.checkVisibility())
        .map(each => each.outerHTML.slice(0, 100))"""
    )
    assert small == []
    assert browser.run("document.querySelectorAll('h2').length") >= 2
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "wide figures scroll by themselves"


OVERLAPS = """
Array.from(document.querySelectorAll("svg.figure")).flatMap(svg => {
    const boxes = Array.from(svg.querySelectorAll("text"), text => [text.textContent, text.getBoundingClientRect()])
        .filter(([_, box]) => box.width > 0);
    const outside = svg.getBoundingClientRect();
    const out = boxes.filter(([_, box]) => box.left < outside.left - 1 || box.right > outside.right + 1)
        .map(([text]) => text + " is outside of " + svg.id);
    return out.concat(boxes.flatMap(([text, one], at) => boxes.slice(at + 1).filter(([_, two]) =>
        Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1 &&
        Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top) > 4).map(([other]) => text + " | " + other)));
})
"""


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "hostile"])
def test_no_words_of_a_figure_overlap(browser: Browser, pages: Any, name: str) -> None:
    browser.open(pages(name))
    browser.run("document.querySelectorAll('details:not(.large)').forEach(each => { each.open = true; })")
    assert browser.run(OVERLAPS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme(browser: Browser, pages: Any, scheme: str) -> None:
    browser.open(pages("8"), scheme=scheme)
    ground, ink = browser.run(
        "[document.documentElement, document.querySelector('h1')].map((each, at) =>"
        " getComputedStyle(each)[at ? 'color' : 'backgroundColor'])"
    )
    light = [sum(map(int, colour[4:-1].split(","))) > 380 for colour in (ground, ink)]
    assert light == ([True, False] if scheme == "light" else [False, True])


# --- the grid of ranks


def center(browser: Browser, rank: int) -> tuple[float, float]:
    """Where the cell of a rank lies: its host's block, and its place in it."""
    host, local = divmod(rank, 8)
    x, y = browser.run(
        f"""(() => {{
        const grid = document.getElementById("grid");
        grid.scrollIntoView({{block: "center"}});
        const get = (name) => Number(grid.dataset[name]);
        const at = new DOMPoint(
            get("left") + {host} % get("row") * get("width") + ({local} % get("columns") + .4) * get("cell"),
            get("top") + Math.floor({host} / get("row")) * get("height") +
            (Math.floor({local} / get("columns")) + .4) * get("cell")).matrixTransform(grid.getScreenCTM());
        return [at.x, at.y];
    }})()"""
    )
    return x, y


def test_a_cell_of_the_grid_tells_of_its_rank(browser: Browser, pages: Any) -> None:
    browser.open(pages("4096"))
    for rank, words in (
        (1207, "rank 1207 on n150: exit code 3"),
        (0, "rank 0 on n000: SIGTERM"),
        (4095, "rank 4095 on n511"),
    ):
        browser.move(*center(browser, rank))
        assert browser.run("document.getElementById('tip').hidden") is False
        assert browser.run("document.getElementById('tip').textContent").startswith(words)
    browser.move(5, 5)
    assert browser.run("document.getElementById('tip').hidden") is True
    browser.click(*center(browser, 1207))
    chosen = "document.querySelector('#ranks .chosen')"
    assert browser.run(f"{chosen}.cells[0].textContent.trim()") == "1207"
    top = browser.run(f"{chosen}.getBoundingClientRect().top")
    assert 0 < top < 900
    assert browser.complaints() == []


def test_the_grid_shows_the_measure_that_was_chosen(browser: Browser, pages: Any) -> None:
    browser.open(pages("4096"))
    shown = "filter(each => getComputedStyle(each).display !== 'none')"
    seen = f"Array.from(document.querySelectorAll('#grid .layer')).{shown}"
    assert browser.run(f"{seen}.map(each => each.classList[1])") == ["layer-end"]
    for layer in ("start", "silence", "output", "end"):
        browser.run(f"document.querySelector('label[for=layer-{layer}]').scrollIntoView({{block: 'center'}})")
        label = f"document.querySelector('label[for=layer-{layer}]')"
        x, y = browser.run(f"(box => [box.left + 9, box.top + 9])({label}.getBoundingClientRect())")
        browser.click(x, y)
        assert browser.run(f"{seen}.map(each => each.classList[1])") == [f"layer-{layer}"]
        assert browser.run(f"Array.from(document.querySelectorAll('.switch > .layer')).{shown}.length") == 1
    assert browser.run("document.activeElement.id") == "layer-end", "the arrow keys go on from here"


def test_the_table_is_filtered(browser: Browser, pages: Any) -> None:
    browser.open(pages("4096"))
    browser.run("document.getElementById('ranks-details').open = true")
    browser.run("document.getElementById('filter').focus()")
    browser.call("Input.insertText", text="n150")
    rows = "Array.from(document.querySelectorAll('#ranks tbody tr')).filter(each => each.checkVisibility())"
    assert browser.run(f"{rows}.map(each => each.cells[0].textContent.trim())") == [str(1200 + at) for at in range(8)]
    assert browser.run("document.getElementById('matching').textContent") == "8 of 4096"


def test_without_a_script_the_page_says_the_same(browser: Browser, pages: Any) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages("4096"), scripts=False)
        x, y = browser.run(
            "(box => [box.left + 9, box.top + 9])((each => { each.scrollIntoView({block: 'center'}); return each; })"
            "(document.querySelector('label[for=layer-silence]')).getBoundingClientRect())"
        )
        browser.click(x, y)
        assert browser.run("getComputedStyle(document.querySelector('#grid .layer-silence')).display") == "block"
        assert browser.run("document.querySelector('.filter').checkVisibility()") is False
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


# --- paper, and those who do not see it


@pytest.mark.parametrize(("name", "most"), [("8", 6), ("4096", 9)])
def test_the_page_can_be_printed(browser: Browser, pages: Any, name: str, most: int) -> None:
    browser.open(pages(name), scheme="dark")
    data = browser.paper()
    assert data.startswith(b"%PDF") and 1 <= data.count(b"/Type /Page\n") <= most
    browser.media("dark", "print")
    assert browser.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('h1')).color") == "rgb(0, 0, 0)"


@pytest.mark.parametrize("name", ["8", "4096"])
def test_pictures_and_tables_have_names_for_screen_readers(browser: Browser, pages: Any, name: str) -> None:
    browser.open(pages(name))
    nodes = [each for each in browser.call("Accessibility.getFullAXTree")["nodes"] if not each["ignored"]]
    named = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes]
    pictures = [words for role, words in named if role in ("image", "img")]
    tables = [words for role, words in named if role == "table"]
    titles = [next((title for title in FIGURES[name] if words.startswith(f"{title} ")), words) for words in pictures]
    assert sorted(titles) == sorted(FIGURES[name]), "each has its title, and what it shows in words"
    assert len(tables) >= 4 and all(tables), tables
    assert [words for role, words in named if role == "radio"] == (
        ["how it ended", "when it started", "its longest silence", "how much it printed"] if name == "4096" else []
    )
