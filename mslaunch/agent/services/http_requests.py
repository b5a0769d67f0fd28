"""The requests of Horovod's HTTP client (third_party/HTTPRequest/include/HTTPRequest.hpp, 0.28.1), and no others.

A request line, headers, an empty line, and as many bytes as Content-Length says, which GET and DELETE have too.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.store_messages import VALUE_SIZE, is_name

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = 4096  # bytes of request line and headers
_METHODS = ("GET", "PUT", "DELETE")
_DIGITS = 8  # of a length


class StoreRequest(NamedTuple):
    """A whole request."""

    method: str
    path: str
    body: bytes


class RefusedRequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def read_request(data: bytes, check: Callable[[str], None]) -> StoreRequest | None:
    """The request that has come; None if more of it is to come.  Raises `RefusedRequestError`.

    `check(path)` raises it for whoever may ask nothing; that comes first, and before the body is waited for.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    if len(head) > _HEAD:
        raise RefusedRequestError(400)
    if not end:
        return None
    line, *headers = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[1].isascii() or not words[2].startswith("HTTP/1."):
        raise RefusedRequestError(400)
    method, path, _ = words
    check(path)
    if method not in _METHODS:
        raise RefusedRequestError(405)
    if not is_name(path.split("/", 2)[-1]):
        raise RefusedRequestError(400)
    size = _length(headers)
    if size > VALUE_SIZE:
        raise RefusedRequestError(413)
    if len(body) > size:
        raise RefusedRequestError(400)
    return StoreRequest(method, path, body) if len(body) == size else None


def _length(headers: list[str]) -> int:
    """What Content-Length says, once; 0 without one."""
    found = [
        value.strip()
        for name, _, value in (line.partition(":") for line in headers)
        if name.lower() == "content-length"
    ]
    if not found:
        return 0
    if len(found) > 1 or not (found[0].isascii() and found[0].isdigit()) or len(found[0]) > _DIGITS:
        raise RefusedRequestError(400)
    return int(found[0])
