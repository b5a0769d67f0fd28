"""A finder for the modules of this package that asks the file system once per module.

Python's own finder lists each folder, checks it for changes, tries seven kinds of file, and reads an `__init__` for
each package.  Below `mslaunch`, a module is a file NAME.py, and a package has an empty `__init__`:
tests/test_architecture.py keeps both rules.  Python's own loader still reads, checks and writes the compiled files.
"""

from __future__ import annotations

import sys
from os import stat

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import ModuleType
else:  # importlib.machinery, without its wrappers
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import SourceFileLoader


class _EmptyPackage(SourceFileLoader):
    """The loader of a package whose `__init__` need not be read."""

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


class PackageFinder:
    """Finds the modules below a package; `folder` holds them."""

    def __init__(self, package: str, folder: str) -> None:
        self._prefix = package + "."
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of the package; None, for the next finder, of any other."""
        if not name.startswith(self._prefix):
            return None
        base = f"{self._folder}/{name[len(self._prefix) :].replace('.', '/')}"
        file = base + ".py"
        if _is_there(file):
            found = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
        else:
            file = base + "/__init__.py"
            if not _is_there(file):
                return None
            found = ModuleSpec(name, _EmptyPackage(name, file), origin=file)
            found.submodule_search_locations = [base]
        found.has_location = True  # the module gets a __file__
        return found


def install(package: ModuleType) -> None:
    """Find the modules of `package` this way, if Python's own loader has loaded it from a file."""
    loader = package.__spec__ and package.__spec__.loader
    if isinstance(loader, SourceFileLoader):
        sys.meta_path.insert(0, PackageFinder(package.__name__, loader.path.rpartition("/")[0]))


def installed() -> bool:
    """Whether this process is the command's own, which alone installs it."""
    return any(isinstance(finder, PackageFinder) for finder in sys.meta_path)


def _is_there(file: str) -> bool:
    try:
        stat(file)
    except OSError:
        return False
    return True
