"""The site that scripts/docs builds: complete, as on GitHub, and without a request to another host."""

from __future__ import annotations

import collections
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
import markdown
import yaml
from markdown_it import MarkdownIt

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from docs_lib.site_hooks import as_python_markdown

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in ROOT.glob("docs/*.md"))
BLOCKS = re.compile(r"<(li|ul|ol|table|tr|td|pre|h[1-6]|blockquote|code|strong)\b")
#: what makes a browser load something: not <a href>, which only a click follows
LOADED = re.compile(
    r"<(?:script|img|iframe|source|embed|object|video|audio|image|use)\b[^>]*?\b(?:src|srcset|data|href|xlink:href)="
    r"[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|url\(\s*[\"']?((?:https?:)?//[^\"')\s]+)|@import\s+[\"']((?:https?:)?//[^\"']+)"
)
BUILD = [sys.executable, str(ROOT / "scripts" / "docs"), "--to"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run([*BUILD, str(place)], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return place


def test_each_page_is_there_and_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {path.with_suffix(".html").name for path in PAGES} | {"CONTRIBUTING.html", "CHANGELOG.html"}
    assert pages <= {path.name for path in site.glob("*.html")}
    assert pages <= found
    text = " ".join(entry["text"] for entry in index["docs"])
    assert "GLOG_v" in text
    assert "max_slots" in text


def test_files_that_pages_link_to_are_part_of_it(site: Path) -> None:
    assert (site / "examples" / "kubernetes" / "mpijob.yaml").is_file()
    assert 'href="examples/kubernetes/mpijob.yaml"' in (site / "kubernetes.html").read_text()


def loaded(text: str) -> list[str]:
    """Addresses of other hosts that a browser would load."""
    return [next(filter(None, found)) for found in LOADED.findall(text)]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.invalid/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.invalid/css">',
        "@font-face { src: url('https://cdn.invalid/f.woff2') }",
        '<img alt="" src=http://x.invalid/a.png>',
    ],
)
def test_a_request_to_another_host_is_seen(text: str) -> None:
    assert loaded(text)


def test_no_page_asks_another_host(site: Path) -> None:
    kinds = {".html", ".css", ".js", ".svg"}
    texts = {path: path.read_text(errors="replace") for path in site.rglob("*") if path.suffix in kinds}
    canonical = re.compile(r'<link rel="(?:canonical|alternate)"[^>]*>')
    found = {str(path.relative_to(site)): loaded(canonical.sub("", text)) for path, text in texts.items()}
    assert {path: links for path, links in found.items() if links} == {}
    pages = [text for path, text in texts.items() if path.suffix == ".html"]
    assert not any("unpkg.com" in text or "fonts.g" in text or "cdnjs" in text for text in pages)


def blocks(html: str) -> dict[str, int]:
    return dict(collections.Counter(BLOCKS.findall(html)))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_a_page_has_the_same_lists_and_tables_as_on_github(page: Path) -> None:
    """Python-Markdown wants four spaces where CommonMark takes two, and blank lines where it takes none."""
    text = page.read_text(encoding="utf-8")
    names = [each if isinstance(each, str) else next(iter(each)) for each in settings()["markdown_extensions"]]
    here = markdown.markdown(as_python_markdown(text), extensions=names)
    there = MarkdownIt("commonmark").enable("table").render(text)
    assert blocks(re.sub(r"</?span[^>]*>|<a id[^>]*></a>", "", here)) == blocks(there)
    assert r"\|" not in re.sub(r"<pre>.*?</pre>", "", here, flags=re.DOTALL)


def settings() -> dict[str, list[str | dict[str, object]]]:
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return yaml.safe_load(text)


def add_link(root: Path) -> None:
    with (root / "docs" / "jobs.md").open("a") as page:
        page.write("\n[gone](gone.md)\n")


def add_anchor(root: Path) -> None:
    with (root / "docs" / "jobs.md").open("a") as page:
        page.write("\n[gone](output.md#gone)\n")


def add_page(root: Path) -> None:
    (root / "docs" / "new.md").write_text("# New\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (add_link, "link 'gone.md', but the target is not found"),
        (add_anchor, "does not contain an anchor '#gone'"),
        (add_page, 'not included in the "nav" configuration'),
    ],
)
def test_a_mistake_is_an_error(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    for name in ("docs", "examples", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    change(tmp_path)
    command = [sys.executable, "scripts/docs", "--to", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1
    assert words in done.stderr
