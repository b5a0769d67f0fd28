"""The records that bind a stream to the token of its ends: however it is cut, and whatever is changed in between."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol import frames
from mslaunch.protocol.call_proof import CALLER, HOST, CallWords, seals
from mslaunch.protocol.sealed_records import CHANGED, LONGEST, RecordOpener, RecordSealer
from mslaunch.runtime.fd_writer import Writer
from mslaunch.runtime.loop import Loop

KEY = bytes(range(32))
HEAD = 20
contents = st.lists(st.lists(st.binary(max_size=40), max_size=4), min_size=1, max_size=6)


def sealed(records: list[list[bytes]]) -> list[bytes]:
    sealer = RecordSealer(KEY)
    return [b"".join(sealer.seal(*pieces)) for pieces in records]


def cut(stream: bytes, places: list[int]) -> Iterator[bytes]:
    marks = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    for start, end in zip(marks, marks[1:]):
        yield stream[start:end]


def opened(chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    """What is handed on, and whether it was refused then."""
    opener, found = RecordOpener(KEY), b""
    for chunk in chunks:
        try:
            found += b"".join(opener.feed(chunk))
        except WireError as error:
            assert error.what == CHANGED
            with pytest.raises(WireError):  # and so is all that follows
                opener.feed(b"x" * HEAD)
            return found, True
    return found, False


@given(contents, st.lists(st.integers(0, 10_000), max_size=20))
def test_what_was_sealed_comes_out_however_it_was_cut(records: list[list[bytes]], places: list[int]) -> None:
    whole = b"".join(map(b"".join, records))
    assert opened(cut(b"".join(sealed(records)), places)) == (whole, False)


@given(contents, st.integers(0, 10_000), st.integers(1, 255), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_changed_byte_is_refused_with_its_record(
    records: list[list[bytes]], at: int, change: int, places: list[int]
) -> None:
    """What came before is handed on at most; a length that grows may have to wait for bytes."""
    made = sealed(records)
    stream = bytearray(b"".join(made))
    at %= len(stream)
    stream[at] ^= change
    ends = list(accumulate(map(len, made)))
    hit = next(number for number, end in enumerate(ends) if at < end)
    before = b"".join(map(b"".join, records[:hit]))
    found, refused = opened(cut(bytes(stream), places))
    assert before.startswith(found)
    assert refused or at - (ends[hit] - len(made[hit])) < 4
    assert opened(cut(bytes(stream) + bytes(2 * LONGEST), places))[1], "at the latest when so many bytes have come"


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=2, max_size=5), st.data())
def test_no_record_can_be_dropped_repeated_or_moved(pieces: list[bytes], data: st.DataObject) -> None:
    made = sealed([[piece] for piece in pieces])
    order = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=8))
    in_order = next((at for at, number in enumerate(order) if number != at), len(order))
    found, refused = opened(iter([made[number] for number in order]))
    assert (found, refused) == (b"".join(pieces[:in_order]), in_order < len(order))


def test_each_direction_of_each_connection_has_keys_of_its_own() -> None:
    one = CallWords("a" * 32, "b" * 32, "n1", "cpython", "10.0.0.1")
    record = b"".join(seals(CALLER, KEY, one).sealer.seal(b"frame"))
    assert seals(HOST, KEY, one).opener.feed(record) == [b"frame"]
    others = [one._replace(**{field: "x"}) for field in one._fields]
    openers = [seals(CALLER, KEY, one).opener, *(seals(HOST, KEY, other).opener for other in others)]
    for opener in (*openers, seals(HOST, bytes(32), one).opener):
        with pytest.raises(WireError):
            opener.feed(record)


def test_a_record_of_any_length_is_not_waited_for() -> None:
    for size in (LONGEST + 1, 0xFFFFFFFF):
        with pytest.raises(WireError):
            RecordOpener(KEY).feed(size.to_bytes(4, "big") + bytes(16))


def test_a_record_that_comes_byte_by_byte_is_kept_in_little_room() -> None:
    (record,), opener = sealed([[bytes(5000)]]), RecordOpener(KEY)
    for byte in record[:-1]:
        assert opener.feed(bytes([byte])) == []
        assert len(opener._pieces) <= 1000
    assert b"".join(opener.feed(record[-1:])) == bytes(5000)


def test_what_is_read_behind_the_program_is_for_the_decoder() -> None:
    """As an agent reads its modules, and then frames, some of which have come with them."""
    end = frames.encode(frames.END, payload=b"0")
    stream = b"".join(sealed([[b"5\nfirstrest" + end[:4]], [end[4:], end]]))
    source = iter([stream[:30], stream[30:-3], stream[-3:], b""])
    opener = RecordOpener(KEY)

    def receive(most: int) -> bytes:
        return next(source)

    assert [opener.read(size, receive) for size in (1, 1, 5, 4)] == [b"5", b"\n", b"first", b"rest"]
    decoder = frames.Decoder(frames.DOWN, opener=opener)
    rest = b"".join(iter(lambda: receive(1), b""))
    assert [frame.payload for frame in (*decoder.feed(b""), *decoder.feed(rest))] == [b"0", b"0"]
    with pytest.raises(ConnectionError):
        opener.read(1, lambda most: b"")


# --- a writer that seals


@pytest.mark.parametrize("piece", [10, 1000, 200_000])
def test_a_writer_makes_records_of_what_is_sent_together(piece: int) -> None:
    """The other side reads slowly; bytes are counted without heads."""
    ours, theirs = socket.socketpair()
    gone: list[int] = []
    opener, received, chunks = RecordOpener(KEY), b"", 0
    with Loop() as loop, ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writer = Writer(loop, ours.fileno(), pytest.fail, gone.append, sealer=RecordSealer(KEY))
        sent = [bytes([number]) * piece for number in range(20)]
        for data in sent:
            writer.send(data[:7], memoryview(data)[7:])
        assert writer.pending <= 20 * piece
        theirs.setblocking(False)

        def read() -> None:
            nonlocal received, chunks
            received += b"".join(opener.feed(theirs.recv(3000)))
            chunks += 1

        loop.reader(theirs.fileno(), read)
        assert loop.run(lambda: len(received) == 20 * piece, 20)
        assert received == b"".join(sent) and writer.pending == 0 and sum(gone) == 20 * piece
        assert opener._number == max(1, -(-20 * piece // LONGEST)) or piece == 200_000
        writer.say(b"at once")
        assert loop.run(lambda: received.endswith(b"at once"), 20)
        loop.reader(theirs.fileno(), None)
        writer.close()


def test_what_could_not_be_said_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with Loop() as loop, ours, theirs:
        writer = Writer(loop, ours.fileno(), pytest.fail, sealer=RecordSealer(KEY))
        with monkeypatch.context() as patch:

            def full(*_: Any) -> int:
                raise BlockingIOError

            patch.setattr(os, "write", full)
            writer.say(b"lost")
        writer.say(b"said")
        assert RecordOpener(KEY).feed(theirs.recv(99)) == [b"said"]
        writer.close()
