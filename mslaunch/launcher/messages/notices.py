"""The sentences for what the state of a job decides while the job runs."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.messages.exit_text import advice, ending
from mslaunch.launcher.messages.failure_text import spawn_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mslaunch.launcher.rank_names import RankNames


def notice_text(kind: str, facts: Mapping[str, Any], names: RankNames, hosts: Sequence[str]) -> str:
    """The text of one kind of notice."""
    if kind == "interrupted":
        what = "killing the ranks" if facts["again"] else "ending the ranks; a second signal kills them"
        return f"{facts['signal']}: {what}"
    if kind == "restart":
        status, delay = facts["status"], facts["delay"]
        where = f"{names.name(facts['rank'])} {ending(status.code, status.signal)} on {hosts[facts['node']]}"
        when = f" in {delay:g} s" if delay else ""
        return f"{where}; started again{when}, {facts['number']} of {facts['limit']}"
    if kind == "spawn failed":
        return f"{names.name(facts['rank'])} {spawn_text(facts)}"
    if kind == "unexpected library":
        what = f"{names.name(facts['rank'])} has loaded {facts['family']} ({facts['library']}), which was not expected"
        return f"{what}; if it comes up alone, {advice(facts['family'], facts['offered'])}"
    infos = [service_info(number) for number in facts["services"]]
    what = "does not listen" if all(info.listens for info in infos) else "are not ready"
    who = " and ".join(info.title for info in infos)
    return f"{who} {what} after {facts['seconds']:g} s; the ranks are started all the same"
