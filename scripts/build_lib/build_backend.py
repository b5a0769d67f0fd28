"""The build backend of pyproject.toml: that of setuptools, with the man page and the completions made before a wheel.

They are made of the tables of options at each build, so that none of them can be older than the command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build"  # as in [tool.setuptools.data-files]


def build_wheel(*words: Any, **named: Any) -> str:
    """As PEP 517 says."""
    write_shared_files()
    return build_meta.build_wheel(*words, **named)


def build_editable(*words: Any, **named: Any) -> str:
    """As PEP 660 says."""
    write_shared_files()
    return build_meta.build_editable(*words, **named)


def shared_files() -> dict[str, str]:
    """What is made to go below the prefix of an installation: path -> text."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from mslaunch.cli import completion, manpage

    return {
        "share/man/man1/mslaunch.1": manpage.page(),
        "share/bash-completion/completions/mslaunch": completion.script("bash"),
        "share/zsh/site-functions/_mslaunch": completion.script("zsh"),
        "share/fish/vendor_completions.d/mslaunch.fish": completion.script("fish"),
    }


def pages() -> dict[str, str]:
    """What goes there as it is: the pages that help and messages name as docs/NAME."""
    found = sorted(path for kind in ("*.md", "*.json") for path in (ROOT / "docs").glob(kind))
    return {f"share/doc/mslaunch/{path.name}": path.read_text(encoding="utf-8") for path in found}


def write_shared_files() -> None:
    """Write them where pyproject.toml says that they are."""
    for name, text in shared_files().items():
        path = PLACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
