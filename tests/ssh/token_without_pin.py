"""A program: give a token of SoftHSM a key that it uses for everybody, by the calls of PKCS#11.

usage: python token_without_pin.py PROVIDER PIN

No command of SoftHSM makes such a key.  The token also has to say that it needs no login, which is a flag in its file.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_LOGIN_REQUIRED = 0x4
_FLAGS = 0x42D  # of a new token: generator, login, PIN set, no restored state, initialized
_SESSION, _USER = 0x6, 1  # serial, read and write; the role that has the PIN
_YES, _NO = b"\1", b"\0"
_TOKEN, _PRIVATE, _LABEL, _ID, _SIGN, _VERIFY = 0x1, 0x2, 0x3, 0x102, 0x108, 0x10A
_BITS, _EXPONENT = 0x121, 0x122

Number = ctypes.c_ulong


class Attribute(ctypes.Structure):
    """CK_ATTRIBUTE."""

    _fields_ = (("type", Number), ("value", ctypes.c_char_p), ("size", Number))


class Mechanism(ctypes.Structure):
    """CK_MECHANISM; 0 generates pairs of RSA keys."""

    _fields_ = (("type", Number), ("parameter", ctypes.c_void_p), ("size", Number))


def attributes(values: Mapping[int, bytes]) -> ctypes.Array[Attribute]:
    return (Attribute * len(values))(*((kind, value, len(value)) for kind, value in values.items()))


def generate(provider: str, pin: bytes) -> None:
    library = ctypes.CDLL(provider)

    def call(name: str, *arguments: object) -> None:
        result = getattr(library, name)(*arguments)
        if result:
            raise OSError(f"{name}: {result:#x}")

    count, slots, session, keys = Number(8), (Number * 8)(), Number(), (Number(), Number())
    call("C_Initialize", None)
    call("C_GetSlotList", 1, slots, ctypes.byref(count))
    call("C_OpenSession", Number(slots[0]), Number(_SESSION), None, None, ctypes.byref(session))
    call("C_Login", session, Number(_USER), pin, Number(len(pin)))
    both = {_TOKEN: _YES, _PRIVATE: _NO, _ID: b"\2", _LABEL: b"open"}
    public = attributes({**both, _VERIFY: _YES, _BITS: bytes(Number(2048)), _EXPONENT: b"\1\0\1"})
    private = attributes({**both, _SIGN: _YES})
    made = [Number(len(public)), private, Number(len(private)), *map(ctypes.byref, keys)]
    call("C_GenerateKeyPair", session, ctypes.byref(Mechanism()), public, *made)
    call("C_Finalize", None)


def need_no_login(configuration: Path) -> None:
    [file] = (configuration.parent / "files").rglob("token.object")
    before, after = (number.to_bytes(8, "big") for number in (_FLAGS, _FLAGS - _LOGIN_REQUIRED))
    data = file.read_bytes()
    if data.count(before) != 1:
        raise OSError(f"{file} has no flags that are known")
    file.write_bytes(data.replace(before, after))


if __name__ == "__main__":
    generate(sys.argv[1], sys.argv[2].encode())
    need_no_login(Path(os.environ["SOFTHSM2_CONF"]))
