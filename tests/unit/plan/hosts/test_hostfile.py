"""Hostfiles and -H: their grammar, and refusals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import HostLine
from mslaunch.errors import HostfileError, UsageError
from mslaunch.plan.hosts.host_ranges import MAX_NAMES
from mslaunch.plan.hosts.hostfile import MAX_SLOTS, parse, parse_hosts

FEW = settings(max_examples=50, deadline=None)  # a file is done within two seconds, on a busy machine too

EXAMPLES = Path(__file__).parents[4] / "hostfiles"
MAXIMA = [
    f"{word}{mark}{other}"
    for key in ("slots", "cpu", "count")
    for mark in "-_"
    for word, other in ((key, "max"), ("max", key))
]


def said(text: str) -> list[tuple[object, ...]]:
    """Name, slots, max_slots, user, port of each host, without the Nones at the end."""
    rows: list[tuple[object, ...]] = []
    for line in parse(text, "hf"):
        row = list(line[:5])
        while row[-1] is None:
            row.pop()
        rows.append(tuple(row))
    return rows


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("\n \n\t\n# nothing\n// nothing\n/* nothing\n */\n", []),
        ("aa", [("aa",)]),
        ("aa slots=2\nbb slots=1", [("aa", 2), ("bb", 1)]),
        ("aa#x\nbb slots=1#y\ncc slots=2//z\ndd/*y*/slots=3", [("aa",), ("bb", 1), ("cc", 2), ("dd", 3)]),
        ("aa /* one\ntwo */ slots=2\nbb", [("aa", 2), ("bb",)]),
        ("aa slots=1 # /* not opened\nbb // /* nor here\ncc", [("aa", 1), ("bb",), ("cc",)]),
        ("aa /* # */ slots=1 /* // */\nbb", [("aa", 1), ("bb",)]),
        ("aa /*/ slots=1 */ slots=2", [("aa", 2)]),
        ("/* a */ /* b */ aa /**/ slots=2", [("aa", 2)]),
        ("aa slots = 2\nbb slots= 3\ncc slots =4", [("aa", 2), ("bb", 3), ("cc", 4)]),
        ("\taa\tslots=2\t\n", [("aa", 2)]),
        ("aa slots=2\r\nbb\r\n", [("aa", 2), ("bb",)]),
        ("aa slots=2\rbb\r", [("aa", 2), ("bb",)]),
        ("\ufeffaa slots=2", [("aa", 2)]),
        (b"\xef\xbb\xbfaa slots=2".decode("latin-1"), [("aa", 2)]),
        ("aa cpu=2\nbb count=3", [("aa", 2), ("bb", 3)]),
        ("aa spare\nbb slots=2 is spare", [("aa",), ("bb", 2)]),
        ("aa slots=0\nbb slots=08", [("aa", 0), ("bb", 8)]),
        ("aa slots=2 max_slots=3", [("aa", 2, 3)]),
        ("aa max-slots=3 slots=2", [("aa", 2, 3)]),
        ("aa max_slots=2 slots=3", [("aa", 3, 3)]),
        ("aa max_slots=3", [("aa", None, 3)]),  # its meaning depends on the other lines of the host
        ("joe@aa\njoe@1.2.3.4", [("aa", None, None, "joe"), ("1.2.3.4", None, None, "joe")]),
        (
            "aa username=ann\nbb user-name = bob\ncc user_name=eve",
            [(h, None, None, u) for h, u in zip(("aa", "bb", "cc"), ("ann", "bob", "eve"))],
        ),
        ("joe@aa username=ann", [("aa", None, None, "joe")]),
        ("aa username=ann username=bob", [("aa", None, None, "ann")]),
        ("DOM\\joe@aa", [("aa", None, None, "DOM\\joe")]),
        ("aa port=2222 slots=1", [("aa", 1, None, None, 2222)]),
        ("aa bb cc\ndd slots=1 extra 7", [("aa",), ("dd", 1)]),
        ("node[01-03] slots=8", [("node01", 8), ("node02", 8), ("node03", 8)]),
        ("joe@n[1,3]:2", [("n1", 2, None, "joe"), ("n3", 2, None, "joe")]),
        ("aa:4\naa_b.c-d:2", [("aa", 4), ("aa_b.c-d", 2)]),
        ("fd00::1 slots=2\n[fd00::2] slots=2\n[fd00::3]:4", [("fd00::1", 2), ("fd00::2", 2), ("fd00::3", 4)]),
        ("rank slots=2", [("rank", 2)]),
    ],
)
def test_lines_are_read(text: str, hosts: list[tuple[object, ...]]) -> None:
    assert said(text) == hosts


@pytest.mark.parametrize("key", MAXIMA)
def test_every_spelling_of_the_maximum(key: str) -> None:
    assert said(f"aa {key}=3") == [("aa", None, 3)]


def test_lines_are_counted_and_kept_apart() -> None:
    lines = parse("aa\n# x\naa /* y\n z */ extra\n\naa", "some/hosts")
    assert [line.source for line in lines] == ["some/hosts:1", "some/hosts:3", "some/hosts:6"]


@pytest.mark.parametrize(
    ("text", "why", "todo"),
    [
        ("aa slot=2", '"slot" is no key', "did you mean slots=2?"),
        ("aa SLOTS=2", '"SLOTS" is no key', "did you mean slots=2?"),
        ("aa cpus=2", '"cpus" is no key', "did you mean slots=2?"),
        ("aa solts = 4", '"solts" is no key', "did you mean slots=4?"),
        ("aa maxslots=4", '"maxslots" is no key', "did you mean max_slots=4?"),
        ("aa user=joe", '"user" is no key', "did you mean username=joe?"),
        ("aa prot=22", '"prot" is no key', "did you mean port=22?"),
        ("aa foo=2", '"foo" is no key', "slots, max_slots, username and port"),
        ("aa slots 2", "no = behind it", "did you mean slots=2?"),
        ("aa slot", "no = behind it", "did you mean slots=N?"),
        ("aa slots=", "has no value", "slots=4"),
        ("aa slots==2", "has no value", "slots=4"),
        ("aa slots=2 =3", "neither key=value", ""),
        ("slots=2", "begins with a host", ""),
        ("=2", "begins with a host", ""),
        ("aa slots=-1", "whole number", ""),
        ("aa slots=x", "whole number", ""),
        ("aa slots=2.5", "whole number", ""),
        ('aa slots="2"', "whole number", ""),
        ("aa slots=+2", "whole number", ""),
        ("aa slots=2;", "whole number", ""),
        ("aa slots=²", "whole number", ""),
        ("aa slots=99999999999", "whole number", ""),
        (f"aa slots={MAX_SLOTS + 1}", "whole number", ""),
        ("aa slots=" + "9" * 5000, "whole number", ""),
        ("aa port=0", "port is a whole number from 1 to 65535", ""),
        ("aa slots=2 slots=3", "given twice", ""),
        ("aa:2 slots=3", "given twice", ""),
        ("aa slots=2 max_slots=1", "max_slots=1 is below slots=2", ""),
        ("a@b@c", "more than one @", ""),
        ("@aa", "no user name", ""),
        ("-x@aa", "no user name", ""),
        ("joe@", "name of the host is missing", ""),
        ("aa:", "whole number", ""),
        ("-oProxyCommand=x", "begins with a host", ""),
        ("-oProxy", "cannot begin with -", ""),
        (".aa", "cannot begin with .", ""),
        ("aa bb.cc", "neither key=value nor a word", ""),
        ("aa,bb slots=2", 'cannot hold ","', "one on a line"),
        ("aa,n[1-2] slots=2", 'cannot hold ","', "one on a line"),
        (",[1-3]", 'cannot hold ","', "one on a line"),
        ("!aa", 'cannot hold "!"', ""),
        ("*", 'cannot hold "*"', ""),
        ("größe", 'cannot hold "ö"', ""),
        ("a" * 254, "at most 253", ""),
        ("fe80::1%eth0 slots=2", "scope", "~/.ssh/config"),
        ("fd00:::1", "no IPv6 address", ""),
        ("[fd00::1]x", "no address in brackets", ""),
        ("[fd00::1", "no address in brackets", ""),
        ("n[3-1]", "runs backwards", "node[01-16]"),
        ("n[1-2", "no ]", ""),
        ("^aa", "only -H takes ^aa", "-H ^aa together with this hostfile"),
        ("+n0", "only -H takes +n0", "write the name"),
        ("+e", "only -H takes +e", "write the name"),
        ("rank 0=bb slots=2", "neither of a hostfile nor of a rankfile", ""),
        ("rank 0=b[1-2] slot=0", "neither of a hostfile nor of a rankfile", ""),
        ("rank 1 =", "neither of a hostfile nor of a rankfile", ""),
        ("rank 1==", "neither of a hostfile nor of a rankfile", ""),
    ],
)
def test_malformed_lines_are_refused(text: str, why: str, todo: str) -> None:
    with pytest.raises(HostfileError) as caught:
        parse(f"ok slots=1\n{text}\n", "hf")
    error = caught.value
    assert why in error.what
    assert todo in error.todo
    assert error.todo
    assert error.where == "hf:2"
    assert error.what.startswith(f'cannot read "{text[:50]}')


def test_a_message_shows_no_control_characters_and_little_of_a_long_line() -> None:
    with pytest.raises(HostfileError) as caught:
        parse("aa\x1b[2J\x01 slots=1" + " x" * 5000, "hf")
    assert str(caught.value).replace("\n", "").isprintable()
    assert len(str(caught.value)) < 300


def test_an_unterminated_comment_is_reported_with_its_first_line() -> None:
    with pytest.raises(HostfileError) as caught:
        parse("aa\n/* x\nbb\ncc\n", "hf")
    assert caught.value.where == "hf:2"


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(HostfileError, match=f"more than {MAX_NAMES} hosts"):
        parse(f"n[1-{MAX_NAMES * 2 // 3}]\n" * 2, "hf")


# ------------------------------------------------------------------------------------------------------ properties

NAMES = st.one_of(
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,12}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
)


@st.composite
def host_lines(draw: st.DrawFn) -> HostLine:
    slots = draw(st.none() | st.integers(0, MAX_SLOTS))
    maximum = draw(st.none() | st.integers(slots or 0, MAX_SLOTS))
    user = draw(st.none() | st.from_regex(r"[a-z0-9._][a-z0-9._+$-]{0,8}", fullmatch=True))
    return HostLine(draw(NAMES), slots, maximum, user, draw(st.none() | st.integers(1, 65535)))


def render(lines: list[HostLine]) -> str:
    """A hostfile that `parse` reads as these hosts again (but for their `source`)."""
    rows = []
    for line in lines:
        words = [line.name]
        for key, value in (("slots", line.slots), ("max_slots", line.max_slots), ("port", line.port)):
            if value is not None:
                words.append(f"{key}={value}")
        if line.user is not None:
            words.append(f"username={line.user}")
        rows.append(" ".join(words) + "\n")
    return "".join(rows)


@FEW
@given(st.lists(host_lines(), max_size=6))
def test_a_written_hostfile_is_read_back(lines: list[HostLine]) -> None:
    again = parse(render(lines), "hf")
    assert [line._replace(source="") for line in again] == lines
    assert [line.source for line in again] == [f"hf:{number}" for number in range(1, len(lines) + 1)]


def refused_or_read(text: str) -> None:
    try:
        lines = parse(text, "hf")
    except HostfileError as error:
        assert error.where.startswith("hf:")
        assert error.todo
    else:
        assert all(line.name and line.source.startswith("hf:") for line in lines)
    try:
        parse_hosts(text)
    except UsageError as error:
        assert error.where == "-H"


@FEW
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    refused_or_read(data.decode("latin-1"))


@FEW
@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    refused_or_read(text)


PIECES = [
    "aa",
    "slots",
    "=",
    "2",
    " ",
    "\n",
    "\r\n",
    "/*",
    "*/",
    "//",
    "#",
    "[",
    "]",
    "-",
    ",",
    "@",
    ":",
    "max_slots=1",
]


@FEW
@given(st.lists(st.sampled_from([*PIECES, "rank 0=", "fd00::1", "+n0", "^", "[1-3]", "\ufeff", "username=", "*"])))
def test_any_mix_of_pieces_is_read_or_refused(pieces: list[str]) -> None:
    refused_or_read("".join(pieces))


@FEW
@given(
    st.lists(host_lines(), max_size=4),
    st.sampled_from(["# c", "// c", "/* c */", "  ", ""]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_comments_and_line_ends_change_nothing(lines: list[HostLine], comment: str, end: str) -> None:
    text = "".join(row + comment + end for row in render(lines).splitlines())
    assert parse(text, "hf") == parse(render(lines), "hf")


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"node{number:05} slots=8\n" for number in range(20000)),
        "/**/" * 100_000,
        "/*#*/" * 80_000,
        "a/" * 200_000,
        "a\n/*\n*/" * 50_000,
        "[" * 400_000,
        "=" * 400_000,
        "\0" * 400_000,
    ],
    ids=["hosts", "comments", "hashes", "slashes", "lines", "brackets", "equals", "zeros"],
)
def test_a_large_file_is_read_or_refused_in_time_that_grows_with_its_size(text: str) -> None:
    """400 KB take far below a second, or a minute if quadratic; processor time, as other work does not count."""
    begin = time.process_time()
    refused_or_read(text)
    assert time.process_time() - begin < 12


# ---------------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("path", sorted(p for p in EXAMPLES.iterdir() if p.is_file()), ids=lambda p: p.name)
def test_every_example_is_understood(path: Path) -> None:
    assert parse(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "bad").iterdir()), ids=lambda p: p.name)
def test_every_bad_example_is_refused_as_its_first_line_says(path: Path) -> None:
    text = path.read_bytes().decode("latin-1")
    line, why = text.splitlines()[0].removeprefix("# expect ").split(": ", 1)
    if path.name == "two-definitions":
        assert parse(text, path.name)  # each line is right; the allocation refuses them together
        return
    with pytest.raises(HostfileError) as caught:
        parse(text, path.name)
    assert caught.value.where == f"{path.name}:{line}"
    assert why in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------- -H


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [("a", 1, None)]),
        ("a,b:4,user@c", [("a", 1, None), ("b", 4, None), ("c", 1, "user")]),
        ("a,a,b", [("a", 1, None), ("a", 1, None), ("b", 1, None)]),
        ("[fd00::1]:2,fd00::2,joe@[fd00::3]", [("fd00::1", 2, None), ("fd00::2", 1, None), ("fd00::3", 1, "joe")]),
        ("node[01-03,7]:8", [("node01", 8, None), ("node02", 8, None), ("node03", 8, None), ("node7", 8, None)]),
        ("a:*,b:auto,c:-1,d", [("a", None, None), ("b", None, None), ("c", None, None), ("d", 1, None)]),
        ("a:0", [("a", 0, None)]),
        (",a,, b ,", [("a", 1, None), ("b", 1, None)]),
        ("", []),
        (",", []),
    ],
)
def test_the_words_of_the_host_option_are_read(text: str, hosts: list[tuple[object, ...]]) -> None:
    assert [(line.name, line.slots, line.user) for line in parse_hosts(text)] == hosts
    assert all(line.source == "-H" for line in parse_hosts(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:x", "whole number"),
        ("b,a:", "whole number"),
        ("a:-2", "whole number"),
        ("a:2:3", "no IPv6 address"),
        ("^", "no host to leave out"),
        ("^+n1", "no host to leave out"),
        ("^a:2", "neither user nor slots"),
        ("^joe@a", "neither user nor slots"),
        ("+", "no relative host"),
        ("+x", "no relative host"),
        ("+n", "no relative host"),
        ("+n1:2", "no relative host"),
        ("+nx", "no relative host"),
        ("+e:", "no relative host"),
        ("+e:x", "no relative host"),
        ("+e2", "no relative host"),
        ("a b", 'cannot hold " "'),
        ("a@b@c", "more than one @"),
        ("n[1-2", "no ]"),
        (f"n[1-{MAX_NAMES}],m", f"more than {MAX_NAMES} hosts"),
    ],
)
def test_malformed_host_options_are_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert why in caught.value.what
    assert caught.value.where == "-H"
    assert caught.value.todo


def test_relative_and_excluded_hosts_are_read() -> None:
    """Their names keep the + or ^ that no host has; the 2 of +e:2 stands for slots."""
    found = parse_hosts("+n1,+N02,+e,+E:2,^a[1-2],b")
    assert [(line.name, line.slots) for line in found] == [
        ("+n1", None),
        ("+n2", None),
        ("+e", None),
        ("+e", 2),
        ("^a1", None),
        ("^a2", None),
        ("b", 1),
    ]


def test_a_rankfile_may_be_used_as_a_hostfile() -> None:
    """As in mpirun: one slot a line."""
    found = parse("rank 0=bb slot=0\nrank 1 = joe@aa slot=0:1\nrank 2=bb slot=1\ncc slots=3\n", "rf")
    assert [(line.name, line.slots, line.user) for line in found] == [
        ("bb", 1, None),
        ("aa", 1, "joe"),
        ("bb", None, None),  # one more, as any second mention
        ("cc", 3, None),
    ]


# ----------------------------------------------------------------------------------------------------------- spares


@pytest.mark.parametrize(
    ("text", "spares"),
    [
        ("aa\nbb spare", [False, True]),
        ("aa spare slots=2\nbb slots=2 spare\ncc spare slots = 2 port=22", [True, True, True]),
        ("aa spare spare", [True]),
        ("n[1-2] slots=1 spare\nspare", [True, True, False]),  # a host may have this name
        ("aa sparely", [False]),
    ],
)
def test_spares_are_read(text: str, spares: list[bool]) -> None:
    assert [line.spare for line in parse(text, "hf")] == spares


@pytest.mark.parametrize(
    ("text", "todo"),
    [
        ("aa Spare", "did you mean spare?"),
        ("aa slots=2 spares", "did you mean spare?"),
        ("aa spare=1", "write the word alone"),
        ("aa spare = yes", "write the word alone"),
    ],
)
def test_misspelled_spares_are_refused(text: str, todo: str) -> None:
    """A host that was meant as a spare must not get ranks silently."""
    with pytest.raises(HostfileError) as caught:
        parse(text, "hf")
    assert caught.value.where == "hf:1"
    assert todo in caught.value.todo


def test_hosts_of_an_option_are_no_spares() -> None:
    assert [line.spare for line in parse_hosts("aa,spare,bb:2")] == [False] * 3
