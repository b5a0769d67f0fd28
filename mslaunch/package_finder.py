"""A finder for the modules of this package that asks the file system once per module, and a loader that reads little.

Python's own finder lists each folder, checks it for changes, tries seven kinds of file, and reads an `__init__` for
each package.  Below `mslaunch`, a module is a file NAME.py, and a package has an empty `__init__`:
tests/test_architecture.py keeps both rules.  A compiled file that fits its source is read at once; Python's own loader
does all else: it checks by hash, compiles, and writes compiled files.
"""

from __future__ import annotations

import _imp
import sys
from marshal import loads
from os import O_CLOEXEC, O_RDONLY, close, open, read, stat

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from importlib.util import MAGIC_NUMBER
    from os import stat_result
    from types import CodeType, ModuleType
else:  # importlib.machinery, without its wrappers
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader


class _QuickLoader(SourceFileLoader):
    """Python's loader of a module whose compiled file is usually there, and of its source's time and size."""

    def __init__(self, name: str, path: str, compiled: str, source: stat_result) -> None:
        super().__init__(name, path)
        self._compiled = compiled
        self._most = 3 * source.st_size + 4096  # bytes: compiled files have at most 2.8 times what their sources have
        # PEP 552: no flags, that is: checked by time and size, of which there are 32 bits each
        numbers = (0, int(source.st_mtime), source.st_size)
        self._head = MAGIC_NUMBER + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)

    def get_code(self, fullname: str) -> CodeType | None:
        """What the module executes."""
        data = _read(self._compiled, self._most)
        if data[:16] != self._head or len(data) == self._most:
            return super().get_code(fullname)
        code: CodeType = loads(memoryview(data)[16:])
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


class _EmptyPackage(SourceFileLoader):
    """The loader of a package whose `__init__` need not be read."""

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


class PackageFinder:
    """Finds the modules below a package; `folder` holds them.

    `tail` is what the name of a compiled file ends with, in a folder `__pycache__`; "": it lies elsewhere.
    """

    def __init__(self, package: str, folder: str, tail: str) -> None:
        self._prefix = package + "."
        self._folder = folder
        self._tail = tail

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of the package; None, for the next finder, of any other."""
        if not name.startswith(self._prefix):
            return None
        base = f"{self._folder}/{name[len(self._prefix) :].replace('.', '/')}"
        file = base + ".py"
        source = _stat(file)
        if source:
            compiled = self._compiled(base)
            loader = _QuickLoader(name, file, compiled, source) if compiled else SourceFileLoader(name, file)
            found = ModuleSpec(name, loader, origin=file)
        else:
            file = base + "/__init__.py"
            if not _stat(file):
                return None
            found = ModuleSpec(name, _EmptyPackage(name, file), origin=file)
            found.submodule_search_locations = [base]
            compiled = self._compiled(base + "/__init__")
        found.has_location = True  # the module gets a __file__
        if compiled:
            found.cached = compiled
        return found

    def _compiled(self, base: str) -> str:
        """Where the compiled file of `base`.py is; "" if Python has to be asked."""
        folder, _, name = base.rpartition("/")
        return self._tail and f"{folder}/__pycache__/{name}{self._tail}"


def install(package: ModuleType) -> None:
    """Find the modules of `package` this way, if Python's own loader has loaded it from a file."""
    spec = package.__spec__
    loader = spec and spec.loader
    if spec and isinstance(loader, SourceFileLoader):
        folder = loader.path.rpartition("/")[0]
        start, _, tail = (spec.cached or "").rpartition("/__init__")
        tail = tail if start == folder + "/__pycache__" else ""  # with -X pycache_prefix
        sys.meta_path.insert(0, PackageFinder(package.__name__, folder, tail))


def installed() -> bool:
    """Whether this process is the command's own, which alone installs it."""
    return any(isinstance(finder, PackageFinder) for finder in sys.meta_path)


def _stat(file: str) -> stat_result | None:
    try:
        return stat(file)
    except OSError:
        return None


def _read(file: str, most: int) -> bytes:
    """The content, or so many bytes of it; b"" if there is none."""
    try:
        fd = open(file, O_RDONLY | O_CLOEXEC)
    except OSError:
        return b""
    try:
        return read(fd, most)
    finally:
        close(fd)
