"""XML as Open MPI 4.1.4 writes it, but well-formed."""

from __future__ import annotations

import re
from functools import partial
from xml.etree import ElementTree

from fake_output import FakeOutput, jobmap_of
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.launcher.rank_names import RankNames
from mslaunch.launcher.stdio.xml import XmlDocument, elements, map_element
from mslaunch.protocol.frames import STDERR, STDOUT

dress = partial(elements, RankNames(16), False)


def test_elements_are_those_of_4_1_4() -> None:
    """Copied from the output of the real command; for control characters see below."""
    assert dress(STDOUT, 0, b"out\n") == b'<stdout rank="0">out&#010;</stdout>\n'
    assert dress(STDERR, 12, b"a\nb\n") == (b'<stderr rank="12">a&#010;</stderr>\n<stderr rank="12">b&#010;</stderr>\n')
    assert dress(STDOUT, 0, b"end") == b'<stdout rank="0">end</stdout>'
    assert dress(STDOUT, 0, b"a<b>&\"'\n") == b'<stdout rank="0">a&lt;b&gt;&amp;"\'&#010;</stdout>\n'
    assert dress(STDOUT, 0, b"\t\r\x7f\xc3\xa9\n") == b'<stdout rank="0">&#009;&#013;\x7f&#195;&#169;&#010;</stdout>\n'
    assert dress(STDOUT, 0, b"&#010;\n") == b'<stdout rank="0">&amp;#010;&#010;</stdout>\n'


def test_control_characters_are_shown_as_their_pictures() -> None:
    assert ElementTree.fromstring(dress(STDOUT, 0, b"\x00\x1b[31m")).text == "␀␛[31m"


@given(st.binary())
def test_any_bytes_are_well_formed_and_come_back(data: bytes) -> None:
    text = "".join(element.text or "" for element in ElementTree.fromstring(b"<r>" + dress(STDOUT, 0, data) + b"</r>"))
    assert bytes(code - 0x2400 if code >= 0x2400 else code for code in map(ord, text)) == data


def test_the_time_is_an_attribute() -> None:
    element = ElementTree.fromstring(elements(RankNames(16), True, STDOUT, 0, b"a\n"))
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", element.get("timestamp") or "")


def test_a_document_is_opened_by_its_first_element() -> None:
    screen = FakeOutput()
    document = XmlDocument(screen)
    assert screen.seen == b""
    document.send(b"<a/>\n")
    document.send(b"<b/>\n")
    document.end()
    assert screen.seen == b"<mpirun>\n<a/>\n<b/>\n</mpirun>\n"


def test_the_map() -> None:
    assert map_element(jobmap_of(3)).decode().splitlines() == [
        "<map>",
        '\t<host name="alpha" slots="4" max_slots="0">',
        '\t\t<process rank="0" status="INITIALIZED"/>',
        '\t\t<process rank="2" status="INITIALIZED"/>',
        "\t</host>",
        '\t<host name="beta" slots="4" max_slots="8">',
        '\t\t<process rank="1" status="INITIALIZED"/>',
        "\t</host>",
        "</map>",
        "",
    ]


def test_a_map_of_strange_names() -> None:
    jobmap = JobMap(
        (Node('a"<&\u4e2d\xe9', None, "-H"), Node("of the scheduler", 1, "-H")), (Placement(0, 0, 0, 0),), 0
    )
    host = ElementTree.fromstring(map_element(jobmap)).find("host")
    assert host is not None and host.get("name") == 'a"<&\u4e2d\xe9' and host.get("slots") == "0"
