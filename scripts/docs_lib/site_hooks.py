"""What mkdocs.yml adds to mkdocs, so that pages written for GitHub make the site as they are.

They link to `../CONTRIBUTING.md` or `../examples/…`: such files become part of the site, and links to them are turned.
Fences may carry words for a test, with which Python-Markdown would not take them for fences.  Code in a table has `\\|`
for a bar, which it would print.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs_lib.links import LINK, ROOT, without_code

#: pages outside docs/ that the site has as well
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def folder_of(page: str) -> Path:
    """The directory from which links of a page of the site count."""
    return ROOT if page in ROOT_PAGES else (ROOT / "docs" / page).parent


def target_in_site(page: str, target: str) -> str:
    """A relative link as it is in the site: `CONTRIBUTING.md` for `../CONTRIBUTING.md`."""
    path, mark, anchor = target.partition("#")
    if not path or ":" in path:
        return target
    inside = os.path.relpath(folder_of(page) / path, ROOT)
    inside = inside.removeprefix("docs/")
    return os.path.relpath(inside, os.path.dirname(page) or ".") + mark + anchor


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages, and the files that pages link to."""
    pages = {file.src_uri: Path(file.abs_src_path) for file in files.documentation_pages()}
    pages.update({name: ROOT / name for name in ROOT_PAGES})
    for name in ROOT_PAGES:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for page, path in pages.items():
        for link in LINK.finditer(without_code(path.read_text(encoding="utf-8"))):
            inside = target_in_site(page, link["target"]).partition("#")[0]
            outside = folder_of(page) / link["target"].partition("#")[0]
            if inside and ":" not in inside and files.get_file_from_path(inside) is None and outside.is_file():
                files.append(File(inside, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are in the site, and fences with the name of their language alone."""
    name = page.file.src_uri
    kept = without_code(markdown)
    parts: list[str] = []
    last = 0
    for link in LINK.finditer(kept):
        start, end = link.span("target")
        parts += [markdown[last:start], target_in_site(name, link["target"])]
        last = end
    return as_python_markdown("".join([*parts, markdown[last:]]))


def as_python_markdown(text: str) -> str:
    """Text for GitHub as Python-Markdown reads it: fences have no more than a title, and bars in code no backslash."""
    text = re.sub(r"^(\s*```+[\w-]+(?: title=\"[^\"]*\"$)?).*$", r"\1", text, flags=re.MULTILINE)
    row = re.compile(r"^\|.*$", re.MULTILINE)
    return row.sub(lambda found: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), found[0]), text)
