"""The source distribution and the wheel: what is in them, and that one is built of the other without a network."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest
from distributions import ROOT, Distributions, call

import mslaunch

sys.path.insert(0, str(ROOT / "scripts" / "build_lib"))
from build_backend import pages, shared_files

pytestmark = pytest.mark.limit(300)


def names(distributions: Distributions) -> set[str]:
    with zipfile.ZipFile(distributions.wheel) as file:
        return set(file.namelist())


def test_the_version_stands_in_one_place(distributions: Distributions) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(r'^version\s*=\s*"', text, re.MULTILINE) and mslaunch.__version__ not in text
    assert distributions.sdist.name == f"mslaunch-{mslaunch.__version__}.tar.gz"
    assert distributions.wheel.name == f"mslaunch-{mslaunch.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(distributions.wheel) as file:
        metadata = Parser().parsestr(file.read(f"mslaunch-{mslaunch.__version__}.dist-info/METADATA").decode())
    assert (metadata["Version"], metadata["Requires-Python"]) == (mslaunch.__version__, ">=3.9")
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_wheel_has_the_package_and_nothing_else(distributions: Distributions) -> None:
    files = (path for path in (ROOT / "mslaunch").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".md"))
    package = {str(path.relative_to(ROOT)) for path in files}
    found = names(distributions)
    assert {name for name in found if name.startswith("mslaunch/")} == package
    stem = f"mslaunch-{mslaunch.__version__}"
    data = {name for name in found if name.startswith(f"{stem}.data/")}
    assert data == {f"{stem}.data/data/{name}" for name in (*shared_files(), *pages())}
    assert all(name.startswith((f"{stem}.dist-info/", "mslaunch/")) for name in found - data)


def test_man_page_and_completions_are_those_of_the_tables(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as file:
        for name, text in shared_files().items():
            kept = file.read(f"mslaunch-{mslaunch.__version__}.data/data/{name}").decode()
            assert kept == text and len(text.splitlines()) > 50


def test_the_source_distribution_has_all_that_the_repository_has(distributions: Distributions) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("NOT TESTED: this tree is no repository of git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.splitlines() if (ROOT / name).exists()}
    assert len(wanted) > 500
    there = {str(path.relative_to(distributions.unpacked)) for path in distributions.unpacked.rglob("*")}
    assert wanted - there == set()
    added = {name for name in there - wanted if (distributions.unpacked / name).is_file()}
    assert {name for name in added if not name.startswith(("mslaunch.egg-info/", "build/"))} <= {"PKG-INFO"} | {
        name
        for name in added
        if (ROOT / name).exists()  # not yet added to git
    }


def test_what_is_generated_is_fresh_in_the_source_distribution(distributions: Distributions) -> None:
    """Its scripts need nothing that only the repository has."""
    for script in ("make-docs", "make-manifest"):
        call([sys.executable, distributions.unpacked / "scripts" / script, "--check"], cwd=distributions.unpacked)


def test_tests_run_in_the_source_distribution(distributions: Distributions) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/datamodel"]
    assert " passed" in call([*words, "tests/unit/cli/test_refusals.py"], cwd=distributions.unpacked)
