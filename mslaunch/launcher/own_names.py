"""The addresses of a name, by the system's name service, for a bounded time: getaddrinfo(3) has no bound of its own."""

from __future__ import annotations


def addresses_of(name: str, seconds: float) -> set[str]:
    """Empty for a name that is not known, or not within `seconds`."""
    import _socket
    import threading

    found: set[str] = set()

    def ask() -> None:
        try:
            found.update(str(info[4][0]) for info in _socket.getaddrinfo(name, None))
        except (OSError, UnicodeError):
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return set(found)
