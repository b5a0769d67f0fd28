"""The import of paramiko's transport without what only its other users need, which is a third of the time.

`import paramiko` also brings the SFTP client and server, the reader of ssh_config, GSSAPI, PyNaCl for one kind of key,
and the metadata of its own package for a version string: 35 ms of 110, on top of a launch of 200 to one host.  Here its
`__init__` does not run, and what is not used has a placeholder meanwhile.  That is done in a process that is the
launcher's own; a program that uses our API may use paramiko as well, and gets the whole of it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from mslaunch import package_finder

#: names that paramiko's modules import at their top, and that nothing uses here
_UNUSED = (
    "invoke", "nacl", "nacl.signing", "paramiko.config", "paramiko.dsskey", "paramiko.kex_gss", "paramiko.sftp_client",
    "paramiko.ssh_gss",
)  # fmt: skip


class _Placeholder(ModuleType):
    """A module of which any name is a class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # it may be a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def import_paramiko() -> Any:
    """paramiko, or of it the modules that have `Transport`, `Packetizer` and `Message`; raises ImportError."""
    if package_finder.installed() and "paramiko" not in sys.modules:
        try:
            return _import_parts()
        except Exception:  # another version may want more: whatever is wrong, the whole of it says
            for name in [name for name in sys.modules if name.partition(".")[0] == "paramiko"]:
                del sys.modules[name]
    with _Absent("invoke"):
        import paramiko
    return paramiko


def _import_parts() -> Any:
    from importlib.util import find_spec, module_from_spec

    spec = find_spec("paramiko")
    if not spec:
        raise ImportError("No module named 'paramiko'")
    package: Any = module_from_spec(spec)
    package.__version__ = "mslaunch"  # of the banner, which says paramiko already
    missing = [name for name in _UNUSED if name not in sys.modules]
    sys.modules["paramiko"] = package
    sys.modules.update((name, _Placeholder(name)) for name in missing)
    if "nacl" in missing:
        sys.modules["nacl"].signing = sys.modules["nacl.signing"]  # type: ignore[attr-defined]
    try:
        from paramiko import message, packet, transport
    finally:
        for name in missing:
            sys.modules.pop(name, None)
    package.Transport, package.Packetizer, package.Message = transport.Transport, packet.Packetizer, message.Message
    return package


class _Absent:
    """While it is entered, a module that is not imported yet cannot be."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hidden = False

    def __enter__(self) -> None:
        self._hidden = self._name not in sys.modules
        if self._hidden:
            sys.modules[self._name] = None  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        if self._hidden:
            del sys.modules[self._name]
