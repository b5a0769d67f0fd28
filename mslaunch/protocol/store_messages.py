"""What launcher and agents say of a job's key store (`frames.KEYS` down, `frames.WRITE` up).

A payload is a line of ASCII, `what number name`, and then the value, raw.  Values travel compressed, and are kept so:
addresses of Gloo are mostly zeros.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import NamedTuple
from mslaunch.protocol.codec import integer, strict

# down: serve the store (name: a token, value: an address of rank 0's host); a value; a scope or name that is gone;
# the answer to a write, which was applied or refused
SERVE, VALUE, GONE, DONE, REFUSED = "serve", "value", "gone", "done", "refused"
# up: the store is served at port `number`, and ranks are to use the interface `name`; a value is to be put; a rank is
# done with a scope
SERVED, PUT, DELETE = "served", "put", "delete"
_DOWN, _UP = (SERVE, VALUE, GONE, DONE, REFUSED), (SERVED, PUT, DELETE)
NAME = 400  #: characters of a name, which is a scope, a slash and a key
VALUE_SIZE = 1 << 20  #: bytes of a value: the addresses of 7,000 ranks
COMPRESSED_SIZE = (1 << 16) - NAME - 40  #: of one on its way, within the bound of a frame


class StoreMessage(NamedTuple):
    """One frame; what it says decides what `number`, `name` and `value` mean."""

    what: str
    number: int = 0  # of a write and its answer, by which the agent knows who asked; a port
    name: str = ""
    value: bytes = b""

    def pack(self) -> bytes:
        """The payload."""
        return f"{self.what} {self.number} {self.name}\n".encode("ascii") + self.value


def is_name(name: str) -> bool:
    """Whether this can be the name of a value: a scope, a slash and a key, of printable ASCII without blanks."""
    scope, slash, key = name.partition("/")
    plain = name.isascii() and name.isprintable() and " " not in name and len(name) <= NAME
    return plain and bool(scope and slash and key) and "/" not in key


@strict
def unpack_write(payload: bytes) -> StoreMessage:
    """What an agent says; raises `WireError` if it is none of this."""
    message = _unpack(payload, _UP)
    if message.what != SERVED and not is_name(message.name):
        raise ValueError(message.name[:80])
    return message


@strict
def unpack_keys(payload: bytes) -> StoreMessage:
    """What the launcher says; raises `WireError` if it is none of this."""
    return _unpack(payload, _DOWN)


def _unpack(payload: bytes, known: tuple[str, ...]) -> StoreMessage:
    at = payload.index(b"\n")
    what, number, name = payload[:at].decode("ascii").split(" ")
    if what not in known or len(name) > NAME or not number.isdigit():
        raise ValueError(what)
    return StoreMessage(what, integer(number), name, payload[at + 1 :])


def compressed(value: bytes) -> bytes:
    """A value as it travels; the same bytes for the same value."""
    import zlib

    return zlib.compress(value, 1)


def expanded(value: bytes) -> bytes:
    """The inverse of `compressed`; raises `WireError` for what it has not made, and beyond `VALUE_SIZE`."""
    import zlib

    expander = zlib.decompressobj()
    try:
        found = expander.decompress(value, VALUE_SIZE + 1)
    except zlib.error:
        found = b""
    if not expander.eof or expander.unused_data or len(found) > VALUE_SIZE:
        raise WireError("it sent a value that cannot be expanded")
    return found
