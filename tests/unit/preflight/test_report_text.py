"""The table, the sentence and the JSON of --check."""

from __future__ import annotations

import json

from host_reports import report

from mslaunch.preflight.check_records import Finding, LinkReport
from mslaunch.preflight.compare_hosts import HERE
from mslaunch.preflight.report_text import CheckResult, as_json, as_text
from mslaunch.protocol.check_messages import LinkFacts

HOSTS = tuple(report(f"n{number:02}") for number in range(1, 5))
LINK = LinkReport("n01", "n02", LinkFacts("", "10.0.0.2", 0.0002, 1 << 30, 100, 0))


def result(*findings: Finding) -> CheckResult:
    return CheckResult(HOSTS, (LINK,), 2, findings, 1.25)


def test_a_clean_launch_is_one_sentence() -> None:
    assert as_text(result()) == (
        "mslaunch: no problem found for 8 ranks on 4 hosts (1 link measured: 0.2 ms, 1 GiB/s; 1.2 s)\n"
    )


def test_hosts_stand_in_their_order_each_name_once() -> None:
    text = as_text(
        result(
            Finding(("n03",), "disk", "the disk of /tmp is full", ("ssh n03 df",)),
            Finding(("n02",), "clock", "it is late", ("ssh n02 date",)),
            Finding(("n03",), "clock", "it is early", ("ssh n03 date",)),
            Finding((), "network", "links lose packets", ()),
        )
    )
    assert text.splitlines()[1:] == [
        "HOST  CHECK    WHAT",
        "-     network  links lose packets",
        "n02   clock    it is late",
        "        ssh n02 date",
        "n03   disk     the disk of /tmp is full",
        "        ssh n03 df",
        "      clock    it is early",
        "        ssh n03 date",
    ]
    assert text.startswith("mslaunch: 4 findings on 2 of 4 hosts; no rank was started (")


def test_this_host_is_none_of_the_hosts() -> None:
    rows = ((HERE,), "logs"), (("n02",), "disk"), ((), "link")
    here, host, every = (Finding(hosts, check, "it is full", ()) for hosts, check in rows)
    for findings, words in (
        ((here,), "1 finding on this host; "),
        ((here, host), "2 findings on this host and 1 of 4 hosts; "),
        ((here, every), "2 findings on this host; "),
        ((host, every), "2 findings on 1 of 4 hosts; "),
        ((every,), "1 finding for the launch; "),
    ):
        assert as_text(result(*findings)).startswith(f"mslaunch: {words}")


def test_hosts_with_the_same_finding_share_a_line() -> None:
    same = [Finding((f"n{at:02}",), "program", f"no 'a' on n{at:02}", (f"ssh n{at:02} ls",)) for at in (1, 2, 3)]
    lines = as_text(result(*same)).splitlines()
    assert lines[0].startswith("mslaunch: 1 finding on 3 of 4 hosts; ")
    assert lines[2].startswith("n[01-03]  program")
    assert lines[3:] == ["            ssh n01 ls", "            and the same on the other hosts"]


def test_links_are_not_taken_together() -> None:
    rows = [Finding(pair, "link", "slow", ("look",)) for pair in (("n01", "n02"), ("n03", "n04"))]
    assert as_text(result(*rows)).count("  link ") == 2


def test_texts_of_hosts_are_made_harmless() -> None:
    text = as_text(result(Finding(("n01",), "port", "taken by \x1b[31mred", ("\x1b]0;x\x07",))))
    assert "\x1b" not in text
    lines = as_text(result(Finding(("n01",), "port", "taken\nn02  clock  late", ("a\nn03  clock  late",)))).splitlines()
    assert [line for line in lines if line.startswith(("n02", "n03"))] == []
    assert "\x07" not in text


def test_json() -> None:
    found = json.loads(as_json(result(Finding(("n01",), "clock", "it is late", ("ssh n01 date",)))))
    assert (found["clean"], found["rounds"]) == (False, 2)
    assert found["findings"] == [{"hosts": ["n01"], "check": "clock", "what": "it is late", "repair": ["ssh n01 date"]}]
    assert [host["name"] for host in found["hosts"]] == ["n01", "n02", "n03", "n04"]
    assert found["hosts"][0]["facts"]["memory"] == 16 << 30
    assert found["links"] == [
        {"from": "n01", "to": "n02", "address": "10.0.0.2", "delay": 0.0002, "rate": 1 << 30, "segments": 100,
         "sent_again": 0}
    ]  # fmt: skip
    assert json.loads(as_json(result()))["clean"] is True
