"""Whatever bytes come on a link: frames and records, or `WireError`, and nothing else; and not in the time of a day."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.errors import WireError
from mslaunch.protocol import codec, control, frames, mpi, store_messages

#: records that `unpack_record` reads, and those with blobs
RECORDS = (
    control.Hello, control.Reserved, control.Probe, control.Reached, control.FileHead, control.Stored,
    control.StackTrace, ExitStatus, mpi.Abort, mpi.Alone,
)  # fmt: skip
WITH_BLOBS = (mpi.Gathering, mpi.Released, mpi.Question, mpi.Answer)
#: every function that makes something of a payload
UNPACKERS: dict[str, Callable[[bytes], Any]] = {
    "unpack": codec.unpack,
    "unpack_ports": control.unpack_ports,
    "unpack_address": control.unpack_address,
    "unpack_number": control.unpack_number,
    "unpack_topology": control.unpack_topology,
    "unpack_plan": control.unpack_plan,
    "unpack_part": mpi.unpack_part,
    "unpack_write": store_messages.unpack_write,
    "unpack_keys": store_messages.unpack_keys,
    "expanded": store_messages.expanded,
    **{f"unpack_record {kind.__name__}": partial(control.unpack_record, kind) for kind in RECORDS},
    **{f"unpack_with_blobs {kind.__name__}": partial(mpi.unpack_with_blobs, kind) for kind in WITH_BLOBS},
}
#: the names that fields have, so that not every payload fails at the first word
FIELDS = sorted(
    {name for kind in (*RECORDS, *WITH_BLOBS) for name in kind.__annotations__}
    | {f".{name}" for kind in WITH_BLOBS for name in kind.__annotations__}
    | {"ranks", "apps", "services", "rank.0", "app.0.argv", "world.ranks", "world.name", "cpus", "core", "nodes"}
)
NUMBERS = st.sampled_from(["0", "1", "-1", "2", "99999999999999999999", "9" * 5000, "1e9", "٣", "+1", "0x1", " 1", ""])
WORDS = st.one_of(st.sampled_from(FIELDS), NUMBERS, st.text(max_size=5))
LIKE_FIELDS = st.lists(WORDS, max_size=12).map(lambda words: "\0".join(words).encode("utf-8", "surrogatepass"))
WELL_FORMED = st.dictionaries(
    st.sampled_from(FIELDS), st.lists(WORDS.map(lambda word: word.replace("\0", "")), max_size=3), max_size=12
).map(lambda fields: codec.pack({name: [_plain(word) for word in words] for name, words in fields.items()}))
PAYLOADS = st.one_of(st.binary(max_size=100), LIKE_FIELDS, WELL_FORMED)


def _plain(word: str) -> str:
    return word.encode("utf-8", "replace").decode()


def functions(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if name.startswith("unpack") and callable(value) and not inspect.isclass(value)
    }


def test_every_unpacker_is_tried() -> None:
    """`unpack_runs` is for words of a plan, and raises ValueError, which that of the plan turns into `WireError`."""
    known = {name.partition(" ")[0] for name in UNPACKERS}
    assert functions(codec) | functions(control) | functions(mpi) | functions(store_messages) | {
        "expanded"
    } == known | {"unpack_runs"}


@pytest.mark.parametrize("name", UNPACKERS)
@settings(max_examples=150, deadline=None)
@given(payload=PAYLOADS, blobs=st.booleans())
def test_any_payload_is_a_record_or_a_wire_error(name: str, payload: bytes, blobs: bool) -> None:
    if blobs:  # sizes that are right, so that what is inside is read
        payload = b"%d 1\n%sx" % (len(payload), payload)
    try:
        UNPACKERS[name](payload)
    except WireError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([frames.UP, frames.DOWN]), st.booleans(), st.lists(st.binary(max_size=40), max_size=6))
def test_any_stream_is_frames_or_a_wire_error(bounds: list[int], magic: bool, pieces: list[bytes]) -> None:
    decoder = frames.Decoder(bounds, magic)
    stream = (frames.MAGIC if magic else b"") + b"".join(pieces)
    found = []
    try:
        found += [frame for piece in ([frames.MAGIC] if magic else []) + pieces for frame in decoder.feed(piece)]
    except WireError:
        return
    whole = b"".join(frames.encode(*frame) for frame in found)
    assert whole in stream, "no byte of a frame is lost or made up"
    assert all(len(frame.payload) <= bounds[frame.kind] for frame in found)


@pytest.mark.parametrize("digits", [b"9" * (1 << 16), b"-" + b"1" * (1 << 16)])
@pytest.mark.limit(5)
def test_many_digits_are_no_number(digits: bytes) -> None:
    """int() takes quadratic time for them in a Python without the limit of 3.11."""
    hello = control.pack_record(control.Hello("n", 1, 1, 1, "3", ())).replace(
        b"pid\x001\x001", b"pid\x001\x00" + digits
    )
    for read, payload in (
        (control.unpack_number, digits),
        (partial(control.unpack_record, control.Hello), hello),
        (codec.unpack, b"a\0" + digits + b"\0b"),
        (partial(mpi.unpack_with_blobs, mpi.Answer), digits + b"\n"),
    ):
        with pytest.raises(WireError):
            read(payload)


def test_words_are_counted_before_they_are_cut() -> None:
    with pytest.raises(WireError, match="more than 262144 words"):
        codec.unpack(bytes(1 << 18))
    with pytest.raises(WireError):
        mpi.unpack_with_blobs(mpi.Gathering, b"0 " * (1 << 18) + b"\n")
    many = codec.pack({"a": [""] * 100_000})
    assert len(codec.unpack(many)["a"]) == 100_000
