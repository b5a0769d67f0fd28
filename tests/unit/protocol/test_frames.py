"""Frames: any division of the stream gives the same frames; impossible frames are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol import frames as frames_module
from mslaunch.protocol.frames import (
    ANY,
    DOWN,
    EXIT,
    GATHER,
    HELLO,
    LAUNCH,
    LEFT,
    MAGIC,
    SERVES,
    STDOUT,
    UP,
    Decoder,
    Frame,
    encode,
    header,
)

FEW = settings(max_examples=60, deadline=None)
KINDS = [kind for kind, most in enumerate(ANY) if most >= 0]
FRAMES = st.lists(
    st.builds(Frame, st.sampled_from(KINDS), st.integers(-1, 2**31 - 1), st.binary(max_size=40)), max_size=6
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    marks = [0, *sorted(mark % (len(data) + 1) for mark in at), len(data)]
    return [data[a:b] for a, b in zip(marks, marks[1:])]


@FEW
@given(FRAMES, st.lists(st.integers(0, 1000)))
def test_any_division_gives_the_same_frames(frames: list[Frame], at: list[int]) -> None:
    decoder = Decoder()
    data = b"".join(encode(*frame) for frame in frames)
    assert [frame for piece in cut(data, at) for frame in decoder.feed(piece)] == frames


@FEW
@given(st.binary(max_size=60), FRAMES, st.lists(st.integers(0, 1000)))
def test_bytes_before_the_magic_are_noise(noise: bytes, frames: list[Frame], at: list[int]) -> None:
    noise = noise.replace(MAGIC, b"")
    decoder = Decoder(magic=True)
    data = noise + MAGIC + b"".join(encode(*frame) for frame in frames)
    if data.find(MAGIC) != len(noise):
        return
    assert [frame for piece in cut(data, at) for frame in decoder.feed(piece)] == frames
    assert decoder.noise == noise


def test_byte_by_byte() -> None:
    decoder = Decoder(magic=True)
    data = b"Welcome!\n" + MAGIC[:5] + MAGIC + encode(65, 3, b"abc") + encode(66)
    frames = [frame for byte in data for frame in decoder.feed(bytes([byte]))]
    assert frames == [Frame(65, 3, b"abc"), Frame(66, -1, b"")]
    assert decoder.noise == b"Welcome!\n" + MAGIC[:5]


def test_only_the_last_of_much_noise_is_kept() -> None:
    decoder = Decoder(magic=True)
    for _ in range(100):
        assert decoder.feed(b"x" * 1000) == []
    assert decoder.feed(b"the end" + MAGIC) == []
    assert len(decoder.noise) == 4096 and decoder.noise.endswith(b"xthe end")


def test_noise_without_a_magic_is_known_to_its_last_byte() -> None:
    """At the end of the stream, the beginning of a magic is noise as well."""
    decoder = Decoder(magic=True)
    decoder.feed(b"no python\n")
    assert decoder.noise == b"no python\n"
    decoder.feed(b"python3: command not found\n")
    assert decoder.noise == b"no python\npython3: command not found\n"


@pytest.mark.parametrize("bounds", [DOWN, UP])
def test_a_header_is_held_against_the_bound_of_its_kind(bounds: list[int]) -> None:
    """Before a byte of the payload has come."""
    for kind in range(256):
        assert bounds[kind] == -1 or bounds[kind] >= 1 << 16
        if bounds[kind] >= 0:
            assert Decoder(bounds).feed(struct.pack("!BIi", kind, bounds[kind], 0)) == []
        with pytest.raises(WireError, match=f"kind {kind}"):
            Decoder(bounds).feed(struct.pack("!BIi", kind, bounds[kind] + 1, 0))


def test_every_kind_goes_one_way() -> None:
    names = {name: value for name, value in vars(frames_module).items() if name.isupper() and isinstance(value, int)}
    kinds = {value for name, value in names.items() if 0 < value < 256} - {frames_module.NO_RANK}
    assert kinds <= {kind for kind in range(256) if max(UP[kind], DOWN[kind]) >= 0}
    assert not [kind for kind in range(256) if min(UP[kind], DOWN[kind]) >= 0]
    assert (UP[LAUNCH], DOWN[HELLO]) == (-1, -1)


def test_what_need_not_be_long_must_not_be() -> None:
    """Only these may be longer than 64 KiB, and what an agent may make the launcher hold at once is 16 MiB."""
    long = {kind for kind in range(256) if UP[kind] > 1 << 16}
    assert {EXIT, HELLO, SERVES}.isdisjoint(long) and {GATHER, STDOUT} < long and len(long) == 8
    assert max(UP) == 1 << 24


@FEW
@given(st.binary(max_size=200))
def test_garbage_is_frames_or_refused(data: bytes) -> None:
    try:
        frames = Decoder().feed(data)
    except WireError:
        return
    assert data.startswith(b"".join(encode(*frame) for frame in frames))


def test_a_header_and_its_payload_are_a_frame() -> None:
    assert header(69, 3, 5) + b"abc" == encode(69, 5, b"abc")
    assert len(header(1, 0)) == 9


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    """64 MiB took 13 s when each piece was appended to what was there."""
    payload = bytes(range(256)) * (1 << 16)
    stream = encode(GATHER, 3, payload) + encode(LEFT, 4)
    decoder = Decoder()
    found = [frame for at in range(0, len(stream), 4096) for frame in decoder.feed(stream[at : at + 4096])]
    assert found == [Frame(GATHER, 3, payload), Frame(LEFT, 4, b"")]


def test_a_decoder_knows_whether_it_is_between_frames() -> None:
    """What looks like a frame may be a part of another one's payload."""
    decoder = Decoder(UP)
    whole = encode(STDOUT, 3, b"abc")
    for byte in whole[:-1]:
        assert decoder.feed(bytes([byte])) == [] and not decoder.between
    assert decoder.feed(whole[-1:]) == [Frame(STDOUT, 3, b"abc")] and decoder.between
    assert decoder.feed(whole[:9]) == [] and not decoder.between, "a header without payload"
