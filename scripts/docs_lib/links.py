"""Links and anchors of Markdown pages, by GitHub's rules."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
CODE = re.compile(r"^( *)(```+).*?^\1\2 *$|(?<=\n\n)(?:(?: {4}|\t)[^\n]*\n)+|`+[^`\n]+`+", re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    """The text with code as blanks, of the same length."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """All anchors of a page; a heading that stands there again has a number."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    fenceless = re.sub(r"^( *)(```+).*?^\1\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in HEADING.findall(fenceless):
        name = slug(heading)
        number = counts.get(name, 0)
        counts[name] = number + 1
        found.add(f"{name}-{number}" if number else name)
    return found


def broken_links(page: Path) -> list[str]:
    """A sentence for each relative link of a page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    wrong = []
    for link in LINK.finditer(without_code(text)):
        path, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        line = text.count("\n", 0, link.start()) + 1
        target = (page.parent / path).resolve() if path else page
        if not target.is_file():
            wrong.append(f"{page.relative_to(ROOT)}:{line}: there is no file {path}")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(f"{page.relative_to(ROOT)}:{line}: {target.relative_to(ROOT)} has no heading #{anchor}")
    return wrong
