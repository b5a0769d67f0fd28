"""Links and anchors in README, CONTRIBUTING and docs/ lead somewhere, and each page stands in the site's navigation."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from docs_lib.links import anchors, broken_links, slug

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/**/README.md"), *ROOT.glob("mslaunch/**/*.md")]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs_lib.links.ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Other\n\n## Two `words`\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[a](other.md#two-words) [b](#page) [c](https://x.invalid/) `[d](in-code.md)`\n\n"
        "[e](gone.md) [f](other.md#no-heading)\n\n    [g](in-code.md)\n\n```\n[h](in-code.md)\n```\n[i](#gone)\n"
    )
    assert broken_links(page) == [
        "page.md:5: there is no file gone.md",
        "page.md:5: other.md has no heading #no-heading",
        "page.md:12: page.md has no heading #gone",
    ]


def test_anchors_are_those_of_github() -> None:
    assert slug("`--restart group`, and more: [a link](x.md)") == "--restart-group-and-more-a-link"
    assert anchors("# A b\n## A b\n") == {"a-b", "a-b-1"}


def test_each_page_stands_once_in_the_navigation() -> None:
    """mkdocs would say so, too; this needs no mkdocs, and names the line to add."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- .*: ([\w-]+\.md)$", text.partition("\nnav:\n")[2].partition("\n\n")[0], re.MULTILINE)
    there = {path.name for path in ROOT.glob("docs/*.md")} | {"CONTRIBUTING.md", "CHANGELOG.md"}
    missing = sorted(there - set(listed))
    assert not missing, f"mkdocs.yml: add to a section of nav a line `- TITLE: PAGE` for {', '.join(missing)}"
    assert sorted(listed) == sorted(there)
